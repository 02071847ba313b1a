//! `GET /notifications`: what is in a page, and what pages are together.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Rig, identifiers, titles};
use crate::support::TestServer;

fn numbers(range: std::ops::RangeInclusive<u32>) -> impl Iterator<Item = String> {
    range.map(|n| format!("n{n}"))
}

// S001-72, S001-78, S001-85 to S001-90
#[tokio::test]
async fn an_entry_has_every_field_and_the_newest_comes_first() {
    let rig = Rig::start().await;
    let score = json!({ "event_type": "score", "product_id": "p1", "env": "dev", "old_score": 24, "new_score": 30.5 });
    rig.tell(&["u1"], "first", score).await;
    rig.server.clock.advance(Duration::from_millis(5));
    let question =
        json!({ "event_type": "question", "product_id": "p1", "env": "hom", "question": "Q", "compliance": false });
    rig.tell(&["u1"], "second", question).await;
    let page = rig.page("user=u1").await;
    assert_eq!(titles(&page), ["second", "first"]);
    assert_eq!((&page["unread"], &page["LastEvaluatedKey"]), (&json!(2), &Value::Null));
    let identifier = page["items"][0]["notification_identifier"].as_str().unwrap();
    assert!(identifier.starts_with("all#017723664000050") && identifier.len() == 41, "{identifier}");
    assert_eq!(
        page["items"][0],
        json!({
            "user": "u1", "productid": "p1", "question": "Q", "type": "compliance", "event_type": "question",
            "old_score": null, "new_score": null, "compliance": "pending", "env": "hom",
            "notification_identifier": identifier, "status": "unread", "time": "2026-03-01T12:00:00.005Z",
            "read_at": null, "link": null, "title": "second", "text": "x",
        })
    );
    let score = &page["items"][1];
    assert_eq!(
        (&score["type"], &score["question"], &score["compliance"]),
        (&json!("score"), &Value::Null, &Value::Null)
    );
    assert_eq!((&score["old_score"], &score["new_score"]), (&json!(24), &json!(30.5)));
    // Somebody of whom nothing is known has an empty inbox.
    assert_eq!(rig.page("user=nobody").await, json!({ "items": [], "LastEvaluatedKey": null, "unread": 0 }));
}

// S001-76, S001-79 to S001-82, S001-91
#[tokio::test]
async fn unread_read_and_all() {
    let rig = Rig::start().await;
    rig.tell_many(&["u1"], numbers(1..=5)).await;
    let ids = rig.identifiers("u1").await;
    rig.mark("u1", &ids[0..2], "read").await;
    rig.mark("u1", &ids[4..5], "archive").await;
    assert_eq!(rig.identifiers("u1").await, ids);
    assert_eq!(identifiers(&rig.page("user=u1&status=unread").await), ids[2..4]);
    assert_eq!(identifiers(&rig.page("user=u1&status=read").await), ids[0..2]);
    assert_eq!(identifiers(&rig.page("user=u1&status=all").await), ids);
    let states: Vec<_> =
        rig.page("user=u1").await["items"].as_array().unwrap().iter().map(|i| i["status"].clone()).collect();
    assert_eq!(states, ["read", "read", "unread", "unread", "archived"]);
}

// S001-80: by the time of reading, if somebody asks for it.
#[tokio::test]
async fn those_that_are_read_can_be_listed_by_when_that_was() {
    let rig = Rig::start().await;
    for n in 0..6 {
        let kind = if n % 2 == 0 { "score" } else { "question" };
        rig.tell(&["u1"], &format!("n{n}"), json!({ "event_type": kind })).await;
        rig.server.clock.advance(Duration::from_millis(1));
    }
    let mut ids = rig.identifiers("u1").await;
    ids.reverse();
    for n in [3, 0, 5, 1] {
        rig.server.clock.advance(Duration::from_millis(1));
        rig.mark("u1", &ids[n..=n], "read").await;
    }
    let read = "user=u1&status=read&sort=read_at";
    assert_eq!(titles(&rig.page(read).await), ["n1", "n5", "n0", "n3"]);
    assert_eq!(titles(&rig.page("user=u1&status=read").await), ["n5", "n3", "n1", "n0"]);
    assert_eq!(titles(&rig.page("user=u1&status=read&sort=time").await), ["n5", "n3", "n1", "n0"]);
    assert_eq!(rig.pages(&format!("{read}&limit=3")).await, [vec!["n1", "n5", "n0"], vec!["n3"]]);
    assert_eq!(rig.pages(&format!("{read}&limit=1&type=compliance")).await, [["n1"], ["n5"], ["n3"]]);
    // Read again after it was unread, an entry counts as read then; in the archive it is not among them.
    rig.mark("u1", &ids[3..=3], "unread").await;
    rig.server.clock.advance(Duration::from_millis(1));
    rig.mark("u1", &ids[3..=3], "read").await;
    rig.mark("u1", &ids[0..=0], "archive").await;
    assert_eq!(titles(&rig.page(read).await), ["n3", "n1", "n5"]);
    for bad in ["sort=read_at", "sort=read_at&status=unread", "sort=read_at&status=all", "sort=x"] {
        assert_eq!(rig.client.get(&format!("/notifications?user=u1&{bad}")).await.bad_fields(), ["sort"], "{bad}");
    }
}

// S001-69
#[tokio::test]
async fn the_type_is_a_filter_with_every_status() {
    let rig = Rig::start().await;
    for n in 0..30 {
        let kind = if n % 10 == 3 { "question" } else { "score" };
        rig.tell(&["u1"], &format!("{kind}{n}"), json!({ "event_type": kind })).await;
        rig.server.clock.advance(Duration::from_millis(1));
    }
    let questions = ["question23", "question13", "question3"];
    assert_eq!(titles(&rig.page("user=u1&type=compliance").await), questions);
    assert_eq!(titles(&rig.page("user=u1&type=question&status=unread").await), questions);
    let ids = identifiers(&rig.page("user=u1&type=compliance").await);
    rig.mark("u1", &ids[1..2], "read").await;
    rig.mark("u1", &ids[2..3], "archive").await;
    // All three in the order of time, whatever their status, and page by page.
    for limit in 1..=3 {
        let pages = rig.pages(&format!("user=u1&type=compliance&limit={limit}")).await;
        assert_eq!(pages.concat(), questions, "{limit}");
        assert!(pages.iter().all(|page| page.len() <= limit), "{pages:?}");
    }
    assert_eq!(titles(&rig.page("user=u1&type=compliance&status=read").await), ["question13"]);
    assert_eq!(titles(&rig.page("user=u1&type=compliance&status=unread").await), ["question23"]);
    assert_eq!(rig.pages("user=u1&type=score&limit=7").await.concat().len(), 27);
    assert_eq!(titles(&rig.page("user=u1&type=notice").await), [""; 0]);
}

// S001-83: nothing twice and nothing left out while entries arrive and are marked.
#[tokio::test]
async fn paging_is_stable_while_entries_arrive() {
    let rig = Rig::start().await;
    rig.tell_many(&["u1"], numbers(1..=50)).await;
    rig.server.clock.advance(Duration::from_millis(1));
    for query in ["user=u1&limit=7", "user=u1&limit=7&status=unread", "user=u1&limit=7&type=notice"] {
        let there: BTreeSet<String> = rig.identifiers("u1").await.into_iter().collect();
        let (mut seen, mut after, mut turn) = (Vec::new(), String::new(), 0);
        loop {
            let page = rig.page(&format!("{query}{after}")).await;
            let ids = identifiers(&page);
            rig.tell(&["u1"], "new", json!({})).await;
            rig.server.clock.advance(Duration::from_millis(1));
            // What has been shown may change its status without changing what comes.
            rig.mark("u1", &ids[..1], "read").await;
            rig.mark("u1", &ids[..1], "unread").await;
            seen.extend(ids);
            turn += 1;
            assert!(turn < 40);
            let Some(key) = page["LastEvaluatedKey"].as_str() else { break };
            after = format!("&cursor={key}");
        }
        let distinct: BTreeSet<String> = seen.iter().cloned().collect();
        assert_eq!((seen.len(), &distinct), (distinct.len(), &there), "{query}");
        assert!(seen.is_sorted_by(|a, b| a > b), "{query}");
    }
}

// S001-59: two events of one instant are both kept, each under its own name.
#[tokio::test]
async fn events_of_one_instant_are_all_there() {
    let rig = Rig::start().await;
    rig.tell_many(&["u1", "u2"], numbers(1..=80)).await;
    for user in ["u1", "u2"] {
        let ids: BTreeSet<String> = rig.identifiers(user).await.into_iter().collect();
        assert_eq!((ids.len(), rig.unread(user).await), (80, 80));
    }
    let all = rig.pages("user=u1&limit=9").await.concat();
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 80);
}

// S001-73 to S001-77, SX-10, SX-27
#[tokio::test]
async fn parameters_have_their_aliases_and_their_limits() {
    let rig = Rig::start().await;
    rig.tell_many(&["u1"], numbers(1..=101)).await;
    assert_eq!(rig.page("user=u1").await["items"].as_array().unwrap().len(), 20);
    for (query, count) in [("userid=u1&size=1", 1), ("user=u1&limit=99", 99), ("user=u1&limit=100", 100)] {
        assert_eq!(rig.page(query).await["items"].as_array().unwrap().len(), count, "{query}");
    }
    for nothing in ["lastitemretrieved=", "lastitemretrieved=null", "cursor=null", "LastItemRetrieved=null"] {
        assert_eq!(titles(&rig.page(&format!("user=u1&{nothing}")).await).len(), 20, "{nothing}");
    }
    let key = rig.page("user=u1&limit=100").await["LastEvaluatedKey"].as_str().unwrap().to_owned();
    for name in ["lastitemretrieved", "LastItemRetrieved", "cursor"] {
        assert_eq!(titles(&rig.page(&format!("user=u1&limit=7&{name}={key}")).await).len(), 1, "{name}");
    }
    for (query, fields) in [
        ("user=u1&limit=0", vec!["limit"]),
        ("user=u1&limit=101", vec!["limit"]),
        ("user=u1&size=101", vec!["size"]),
        ("user=u1&limit=x&status=new&type=other", vec!["status", "type", "limit"]),
        ("user=u1&limit=5&size=5", vec!["size"]),
        ("user=u1&userid=u1", vec!["userid"]),
        ("user=u1&lastitemretrieved=abc", vec!["lastitemretrieved"]),
        ("user=u1&status=archived", vec!["status"]),
        ("status=unread", vec!["user"]),
        ("user=notificationmap", vec!["user"]),
        ("user=u1&x=1", vec!["x"]),
        // A cursor belongs to its user and its filters.
        (&format!("user=u2&cursor={key}"), vec!["cursor"]),
        (&format!("user=u1&status=unread&cursor={key}"), vec!["cursor"]),
        (&format!("user=u1&type=score&cursor={key}"), vec!["cursor"]),
    ] {
        assert_eq!(rig.client.get(&format!("/notifications?{query}")).await.bad_fields(), fields, "{query}");
    }
}

// S001-71: after 90 days, read or not, they are gone, and the count knows it.
#[tokio::test]
async fn entries_and_their_count_expire_together() {
    let rig = Rig::start().await;
    rig.tell(&["u1"], "old", json!({})).await;
    rig.server.advance(24);
    rig.tell(&["u1"], "young", json!({})).await;
    rig.server.advance(24 * 89);
    assert_eq!((titles(&rig.page("user=u1").await), rig.unread("u1").await), (vec!["young".into(), "old".into()], 2));
    // Noon of the 90th day has passed; at midnight the older one goes.
    rig.server.advance(12);
    assert_eq!((titles(&rig.page("user=u1").await), rig.unread("u1").await), (vec!["young".into()], 1));
    assert_eq!(rig.page("user=u1&status=unread").await["unread"], 1);
    rig.server.advance(24);
    assert_eq!(rig.page("user=u1").await, json!({ "items": [], "LastEvaluatedKey": null, "unread": 0 }));
    rig.tell(&["u1"], "again", json!({})).await;
    assert_eq!(rig.unread("u1").await, 1);
}

// S001-109
#[tokio::test]
async fn entries_link_to_what_they_are_about() {
    let link = "https://portal.example.com/products/{{ productid }}/questions/{{ question }}?t={{ type }}";
    let server = TestServer::start_with(|config| config.notification_center.link = Some(link.to_owned())).await;
    let rig = Rig::over(server).await;
    let about = json!({ "product_id": "a/b c", "question": "Q&1", "event_type": "question" });
    rig.tell(&["u1"], "t", about).await;
    let page = rig.page("user=u1").await;
    assert_eq!(page["items"][0]["link"], "https://portal.example.com/products/a%2Fb%20c/questions/Q%261?t=compliance");
    // What lacks a part of it would lead elsewhere.
    rig.tell(&["u2"], "score", json!({ "product_id": "p", "event_type": "score" })).await;
    rig.tell(&["u2"], "notice", json!({})).await;
    rig.tell(&["u2"], "empty", json!({ "product_id": "p", "question": " " })).await;
    for item in rig.page("user=u2").await["items"].as_array().unwrap() {
        assert_eq!(item["link"], json!(null), "{item}");
    }
}

// S001-109: a rule's own link comes first.
#[tokio::test]
async fn a_rule_may_have_its_own_link() {
    let all = "https://portal.example.com/{{ productid }}";
    let server = TestServer::start_with(|config| config.notification_center.link = Some(all.to_owned())).await;
    let rig = Rig::over(server).await;
    let own = "https://desk.example.com/t/{{ data.ticket }}{% if env %}?env={{ env }}{% endif %}";
    let rule = json!({
        "pattern": { "eventType": ["own"] }, "targets": [{ "channel": "inbox", "users": ["u1"] }], "link": own,
    });
    let made = rig.client.put("/rules/own", &rule).await.expect(201).json();
    assert_eq!(made["link"], own);
    assert_eq!(rig.client.get("/rules/own").await.expect(200).json()["link"], own);
    for data in [json!({ "ticket": "T 1" }), json!({ "ticket": "T2", "env": "dev" }), json!({ "product_id": "p" })] {
        rig.client.send(&json!({ "eventType": "own", "data": data })).await;
        rig.server.clock.advance(std::time::Duration::from_secs(1));
    }
    rig.tell(&["u1"], "other", json!({ "product_id": "p" })).await;
    let page = rig.page("user=u1").await;
    let links: Vec<_> = page["items"].as_array().unwrap().iter().map(|item| item["link"].clone()).collect();
    let desk = "https://desk.example.com/t";
    let expected = json!(["https://portal.example.com/p", null, format!("{desk}/T2?env=dev"), format!("{desk}/T%201")]);
    assert_eq!(json!(links), expected);
    // An event chooses where on a site it leads, never the site.
    for bad in ["https://{{ data.host }}/", "javascript:alert(1)", "portal", "https://x/{{ a"] {
        let mut rule = rule.clone();
        rule["link"] = bad.into();
        assert_eq!(rig.client.put("/rules/own", &rule).await.bad_fields(), ["link"], "{bad}");
    }
    let exclude = json!({ "pattern": { "eventType": ["x"] }, "exclude": true, "reason": "r", "link": own });
    assert_eq!(rig.client.put("/rules/none", &exclude).await.bad_fields(), ["link"]);
}

// A score with more digits than a number of JSON is sure to keep is text, and described so.
#[tokio::test]
async fn scores_are_numbers_or_text() {
    let rig = Rig::start().await;
    let long = "1234567890.12345678901234567890";
    rig.tell(&["u1"], "t", json!({ "event_type": "score", "old_score": 7, "new_score": long })).await;
    let page = rig.page("user=u1").await;
    assert_eq!((&page["items"][0]["old_score"], &page["items"][0]["new_score"]), (&json!(7), &json!(long)));
}

// SX-10 and the contract: every failing parameter is named, not only the first.
#[tokio::test]
async fn every_parameter_that_is_wrong_is_named() {
    let rig = Rig::start().await;
    for (path, fields) in [
        ("/notifications?limit=0&status=x", &["user", "status", "limit"][..]),
        ("/notifications?foo=1&limit=0&user=notificationmap", &["foo", "user", "limit"]),
        ("/notifications?user=u1&user=u2&type=x", &["user", "type"]),
        ("/notifications/count?x=1", &["x", "user"]),
        (
            "/alerts?limit=0&format=x&startDate=q&foo=1&suppressed=2",
            &["foo", "format", "limit", "startDate", "suppressed"],
        ),
        ("/events?limit=0&foo=1", &["foo", "limit"]),
        // A call that has none, and one whose handler does not look at any.
        ("/sources?a=1&b=2", &["a", "b"]),
        ("/rules/none?a=1", &["a"]),
    ] {
        let mut named = rig.client.get(path).await.bad_fields();
        let mut fields = fields.to_vec();
        named.sort();
        fields.sort_unstable();
        assert_eq!(named, fields, "{path}");
    }
}

// S001-75: `null` is no cursor; as a user's name it is one like any other.
#[tokio::test]
async fn null_is_a_user_and_no_cursor() {
    let rig = Rig::start().await;
    rig.tell(&["u1"], "secret", json!({})).await;
    rig.tell(&["null"], "own", json!({})).await;
    assert_eq!(titles(&rig.page("user=null&cursor=null").await), ["own"]);
    assert_eq!(rig.unread("null").await, 1);
    let u1 = rig.server.client_for(&["user:u1"]).await;
    for path in ["/notifications?user=null", "/notifications/count?userid=null", "/notifications/stream?user=null"] {
        u1.get(path).await.problem(403);
    }
    assert_eq!(titles(&u1.get("/notifications?cursor=null").await.expect(200).json()), ["secret"]);
}

crate::support::on_dynamodb! {
    an_entry_has_every_field_and_the_newest_comes_first,
    unread_read_and_all,
    the_type_is_a_filter_with_every_status,
}
