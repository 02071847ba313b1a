//! What becomes of an event that rules match: entries, messages, outcome, trace.

use std::collections::BTreeSet;

use serde_json::json;
use tidings::inbox::{Kind, Status};

use super::Rig;
use crate::support::{TestServer, encode};

const HUSH: &str = "whsec_aHVzaC1odXNoLWh1c2gtaHVzaC1odXNoLWh1c2g=";

// S001-51, S001-54 to S001-57, SX-02
#[tokio::test]
async fn every_target_gets_what_is_its_own() {
    let rig = Rig::start().await;
    let targets = json!([
        { "channel": "inbox", "users": ["u1", "{{ data.user }}"] },
        { "channel": "email", "to": ["ops@example.com", "{{ data.mail }}"] },
        { "channel": "ntfy" },
        { "channel": "webhook", "url": "https://h.example/{{ data.user }}", "secret": HUSH },
        { "channel": "queue", "entity": "jobs" },
        { "channel": "ticket", "caller": "{{ data.user }}" },
    ]);
    rig.rule("all", json!({ "targets": targets, "title": "T {{ data.user }}", "text": "<b>{{ data.x }}</b>" })).await;
    let data = json!({ "user": "u/2", "mail": "m@example.com", "x": "<script>" });
    rig.send(json!({ "eventId": "e1", "eventType": "a", "correlationId": "c-1", "data": data })).await;

    for user in ["u1", "u/2"] {
        let inbox = rig.inbox(user).await;
        assert_eq!((inbox.len(), rig.unread(user).await), (1, 1));
        assert_eq!((inbox[0].title.as_str(), inbox[0].status, inbox[0].kind), ("T u/2", Status::Unread, Kind::Notice));
        assert_eq!((inbox[0].event_id.as_str(), inbox[0].rule.as_str()), ("e1", "all"));
    }
    let messages = rig.messages("all").await;
    let of = |channel: &str| messages.iter().find(|message| message.channel == channel).unwrap();
    assert_eq!(messages.len(), 5);
    assert_eq!(json!(of("email").target), json!({ "to": ["m@example.com", "ops@example.com"] }));
    assert_eq!(of("email").payload["text"], "<b><script></b>");
    assert_eq!(of("email").payload["html"], "<b>&lt;script&gt;</b>");
    assert_eq!(json!(of("ntfy").target), json!({ "topic": "tidings" }));
    assert_eq!(json!(of("webhook").target), json!({ "url": "https://h.example/u%2F2" }));
    assert_eq!(of("webhook").secret.as_ref().unwrap().expose(), HUSH);
    assert_eq!(json!(of("queue").target), json!({ "entity": "jobs" }));
    assert_eq!(json!(of("ticket").target), json!({ "caller": "u/2" }));
    for message in &messages {
        assert_eq!((message.created_by.as_str(), message.correlation_id.as_str()), ("rule:all", "c-1"));
        assert_eq!((message.message_type.as_str(), message.stage.as_str()), ("alert_notification", "dev"));
        assert_eq!(message.ttl, message.created_date.as_second() + 90 * 86_400);
    }
}

// Lines may end as they did on old machines, and are lines all the same.
#[tokio::test]
async fn a_lone_carriage_return_ends_a_line() {
    let rig = Rig::start().await;
    rig.rule("mail", json!({ "targets": [{ "channel": "email", "to": ["ops@example.com"] }] })).await;
    rig.send(json!({ "eventId": "e1", "eventType": "a", "data": { "message": "one\rtwo\r\nthree\nfour" } })).await;
    assert_eq!(rig.messages("mail").await[0].payload["text"], "one\ntwo\nthree\nfour");
}

// S003-104
#[tokio::test]
async fn the_outcome_and_the_trace_tell_what_came_of_it() {
    let rig = Rig::start().await;
    rig.rule("mail", json!({ "targets": [{ "channel": "email", "to": ["a@b.c"] }] })).await;
    rig.rule(
        "tell",
        json!({ "targets": [{ "channel": "inbox", "users": ["u1"] }, { "channel": "queue", "entity": "q" }] }),
    )
    .await;
    rig.rule("off", json!({ "enabled": false, "targets": [{ "channel": "ntfy" }] })).await;
    rig.send(json!({ "eventId": "e1", "eventType": "a", "correlationId": "c-1" })).await;
    rig.send(json!({ "eventId": "e2", "eventType": "b", "correlationId": "c-1" })).await;

    let outcome = rig.outcome("e1").await;
    let names: Vec<_> =
        outcome["rules"].as_array().unwrap().iter().map(|rule| rule["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["mail", "tell"]);
    assert_eq!(outcome["totals"], json!({ "rules": 2, "notifications": 1, "messages": 2 }));
    assert_eq!(outcome["messages"][0]["channel"], "email");
    assert_eq!(outcome["queue"][0]["rule"], "tell");
    assert_eq!(outcome["notifications"][0]["notification_identifier"], rig.inbox("u1").await[0].identifier());
    let nothing = rig.outcome("e2").await;
    assert_eq!((&nothing["rules"], &nothing["messages"]), (&json!([]), &json!([])));
    let list = rig.server.client().get("/events?type=a").await.json();
    // What became of each message is told with the event alone.
    for part in ["rules", "notifications", "totals"] {
        assert_eq!(list["items"][0]["outcome"][part], outcome[part], "{part}");
    }

    let trace = rig.server.client().get("/trace/c-1").await.expect(200).json();
    let kinds: Vec<_> = trace["items"].as_array().unwrap().iter().map(|step| step["kind"].as_str().unwrap()).collect();
    let count = |kind: &str| kinds.iter().filter(|k| **k == kind).count();
    assert_eq!((count("event"), count("rule"), count("notification"), count("message")), (2, 1, 1, 2), "{kinds:?}");
    assert!(kinds.iter().position(|k| *k == "event") < kinds.iter().position(|k| *k == "rule"));
    // Page by page, the same, each step once.
    let mut paged = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = rig.server.client().get(&format!("/trace/c-1?limit=1{cursor}")).await.expect(200);
        paged.extend(page.json()["items"].as_array().unwrap().clone());
        match page.cursor() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(&json!(paged), &trace["items"]);
}

// S001-47 to S001-49, S001-53
#[tokio::test]
async fn the_map_names_exactly_the_products_users_each_once() {
    let rig = Rig::start().await;
    rig.map("app1", "network", &["u1", "both"]).await;
    rig.map("app1", "storage", &["u2", "both", "notificationmap"]).await;
    rig.map("app10", "network", &["stranger"]).await;
    rig.map("app1#x", "network", &["stranger"]).await;
    rig.rule("all", json!({ "targets": [{ "channel": "inbox", "map": { "product": "{{ data.productId }}" } }] })).await;
    rig.send(json!({ "eventId": "e1", "eventType": "a", "data": { "productId": "app1" } })).await;
    let outcome = rig.outcome("e1").await;
    let users: BTreeSet<_> =
        outcome["notifications"].as_array().unwrap().iter().map(|n| n["user"].as_str().unwrap().to_owned()).collect();
    assert_eq!(users, ["both", "u1", "u2"].map(ToOwned::to_owned).into());
    for user in ["u1", "u2", "both"] {
        assert_eq!((rig.inbox(user).await.len(), rig.unread(user).await), (1, 1), "{user}");
    }
    assert!(rig.inbox("stranger").await.is_empty());

    let groups = json!({ "product": "app1", "groups": ["storage"] });
    rig.rule("all", json!({ "targets": [{ "channel": "inbox", "map": groups }] })).await;
    rig.send(json!({ "eventId": "e2", "eventType": "a" })).await;
    assert_eq!((rig.inbox("u1").await.len(), rig.inbox("u2").await.len()), (1, 2));
}

// S001-49: however many rules and targets name a user.
#[tokio::test]
async fn a_user_hears_of_an_event_once() {
    let rig = Rig::start().await;
    let twice = json!([{ "channel": "inbox", "users": ["u1", "u1"] }, { "channel": "inbox", "users": ["u1"] }]);
    rig.rule("one", json!({ "targets": twice, "title": "first" })).await;
    rig.rule("two", json!({ "targets": [{ "channel": "inbox", "users": ["u1", "u2"] }] })).await;
    rig.send(json!({ "eventId": "e1", "eventType": "a" })).await;
    let inbox = rig.inbox("u1").await;
    assert_eq!((inbox.len(), rig.unread("u1").await, inbox[0].title.as_str()), (1, 1, "first"));
    assert_eq!(rig.inbox("u2").await.len(), 1);
    // S001-59: two events of one instant are two entries.
    let both = json!([{ "eventId": "x", "eventType": "a" }, { "eventId": "y", "eventType": "a" }]);
    rig.server.client().post("/events", &both).await.expect(202);
    assert_eq!((rig.inbox("u1").await.len(), rig.unread("u1").await), (3, 3));
}

// S001-50
#[tokio::test]
async fn nobody_to_tell_is_recorded_and_counted() {
    let rig = Rig::start().await;
    rig.rule("map", json!({ "targets": [{ "channel": "inbox", "map": { "product": "unknown" } }] })).await;
    rig.rule("field", json!({ "targets": [{ "channel": "inbox", "users": ["{{ data.user }}"] }] })).await;
    rig.rule("mail", json!({ "targets": [{ "channel": "email", "to": ["{{ data.mail }}"] }] })).await;
    rig.rule("topic", json!({ "targets": [{ "channel": "ntfy", "topic": "{{ data.topic }}" }] })).await;
    let data = json!({ "mail": "a@b.c\r\nBcc: x@y.z", "topic": "no/topic", "user": "notificationmap" });
    rig.send(json!({ "eventId": "e1", "eventType": "a", "data": data })).await;
    let outcome = rig.outcome("e1").await;
    assert_eq!(outcome["no_recipients"], json!(["field", "mail", "map", "topic"]), "{outcome}");
    assert_eq!(outcome["totals"], json!({ "rules": 4, "notifications": 0, "messages": 0 }));
    let metrics = rig.server.client().get("/metrics").await.text();
    assert!(metrics.contains("tidings_rule_matches_total{result=\"no_recipients\"} 4"), "{metrics}");
}

// SX-13: from a field of the event.
#[tokio::test]
async fn a_field_may_name_many_users() {
    let rig = Rig::start().await;
    rig.rule("field", json!({ "targets": [{ "channel": "inbox", "users": ["{{ data.who }}"] }] })).await;
    rig.send(json!({ "eventId": "e1", "eventType": "a", "data": { "who": ["u1", "u2", "", 7] } })).await;
    rig.send(json!({ "eventId": "e2", "eventType": "a", "data": { "who": "u1" } })).await;
    assert_eq!((rig.inbox("u1").await.len(), rig.inbox("u2").await.len()), (2, 1));
}

#[tokio::test]
async fn without_templates_the_event_speaks_for_itself() {
    let rig = Rig::start().await;
    rig.rule("plain", json!({ "targets": [{ "channel": "inbox", "users": ["u"] }] })).await;
    for (event, title, text) in [
        (json!({ "eventType": "a", "subject": "Disk full", "data": { "message": "93 %" } }), "Disk full", "93 %"),
        (json!({ "eventType": "a", "data": { "env": "prod", "n": 3, "deep": {} } }), "a", "env: prod\nn: 3"),
        (json!({ "eventType": "a", "eventTimestamp": "2026-03-01T11:00:00Z" }), "a", "a at 2026-03-01T11:00:00Z"),
        (json!({ "eventType": "a", "data": { "message": "{{ 7*7 }}" } }), "a", "{{ 7*7 }}"),
    ] {
        rig.send(event).await;
        rig.server.clock.advance(std::time::Duration::from_secs(1));
        let inbox = rig.inbox("u").await;
        let last = inbox.last().unwrap();
        assert_eq!((last.title.as_str(), last.text.as_str()), (title, text));
    }
}

#[tokio::test]
async fn a_template_that_fails_is_recorded_and_loses_nothing() {
    let rig = Rig::start().await;
    let bomb = "{% for a in data.l %}{% for b in data.l %}{% for c in data.l %}x{% endfor %}{% endfor %}{% endfor %}";
    rig.rule("bomb", json!({ "targets": [{ "channel": "inbox", "users": ["u"] }], "text": bomb, "title": "T" })).await;
    let list: Vec<u32> = (0..1000).collect();
    rig.send(json!({ "eventId": "e1", "eventType": "a", "data": { "l": list, "env": "prod" } })).await;
    let inbox = rig.inbox("u").await;
    assert_eq!(inbox[0].title, "T");
    // What is long is cut, and says so.
    let list = inbox[0].text.strip_prefix("env: prod\nl: [0,1,2,3,").and_then(|rest| rest.strip_suffix('…'));
    assert_eq!(list.map(str::len), Some(500 - "[0,1,2,3,".len()), "{}", inbox[0].text);
    let outcome = rig.outcome("e1").await;
    assert!(outcome["rules"][0]["errors"][0].as_str().unwrap().starts_with("text: "), "{outcome}");
}

// S001-41: a stream gives the same record twice; so does a client that lost its answer.
#[tokio::test]
async fn sending_an_event_again_changes_nothing() {
    let rig = Rig::start().await;
    let targets = json!([{ "channel": "inbox", "users": ["u1", "u2"] }, { "channel": "ntfy" }]);
    rig.rule("r", json!({ "targets": targets, "dedupe_seconds": 60 })).await;
    let event = json!({ "eventId": "e1", "eventType": "a", "source": "s" });
    rig.send(event.clone()).await;
    let before = (rig.inbox("u1").await, rig.messages("r").await, rig.outcome("e1").await);
    for _ in 0..5 {
        rig.server.clock.advance(std::time::Duration::from_secs(61));
        let answer = rig.server.client().post("/events", &event).await.expect(202).json();
        assert_eq!(answer["duplicates"], 1);
    }
    assert_eq!((rig.inbox("u1").await, rig.messages("r").await, rig.outcome("e1").await), before);
    assert_eq!(rig.unread("u1").await, 1);
    // After the window for duplicates it is another event.
    rig.server.advance(25);
    rig.send(event).await;
    assert_eq!((rig.unread("u1").await, rig.messages("r").await.len()), (2, 2));
}

// An event as large as they come still has room for what came of it.
#[tokio::test]
async fn the_outcome_of_a_huge_event_is_brief() {
    let largest = 389_120;
    let server = TestServer::start_with(|config| config.limits.event_bytes = largest).await;
    let client = server.client();
    for n in 0..60 {
        let targets = json!([{ "channel": "ntfy", "topic": format!("t{n}") }]);
        let rule = json!({ "pattern": { "eventType": [{ "exists": true }] }, "targets": targets });
        client.put(&format!("/rules/{n:03}{}", "n".repeat(120)), &rule).await.expect(201);
    }
    let (name, id) = ("ä".repeat(250), "c".repeat(128));
    let bare = json!({ "eventId": name, "eventType": name, "source": name, "correlationId": id, "data": { "x": "" } });
    let room = usize::try_from(largest).unwrap() - bare.to_string().len() - 80;
    let mut event = bare;
    event["data"]["x"] = json!("y".repeat(room));
    client.send(&event).await;
    let stored = client.get(&format!("/events?type={}", encode(&name))).await.expect(200).json();
    assert_eq!(stored["items"][0]["outcome"]["totals"], json!({ "rules": 60, "notifications": 0, "messages": 60 }));
    assert_eq!(stored["items"][0]["outcome"]["rules"], json!([]), "only totals fit");
}

// Whoever watches sees what became of an event.
#[tokio::test]
async fn the_live_stream_tells_the_outcome() {
    let rig = Rig::start().await;
    rig.rule("r", json!({ "targets": [{ "channel": "inbox", "users": ["u"] }] })).await;
    let mut stream = rig.server.client().request(reqwest::Method::GET, "/events/stream").send().await.unwrap();
    rig.send(json!({ "eventId": "e1", "eventType": "a" })).await;
    let piece = stream.chunk().await.unwrap().unwrap();
    let text = String::from_utf8(piece.to_vec()).unwrap();
    let event: serde_json::Value = serde_json::from_str(text.split("data: ").nth(1).unwrap().trim()).unwrap();
    assert_eq!(event["outcome"]["rules"][0]["name"], "r", "{event}");
}

// A rule that found nobody has said nothing: its window stays closed.
#[tokio::test]
async fn nobody_to_tell_opens_no_window() {
    let rig = Rig::start().await;
    let target = json!({ "channel": "inbox", "map": { "product": "p" } });
    rig.rule("r", json!({ "targets": [target], "title": "T", "text": "x", "dedupe_seconds": 60 })).await;
    rig.send(json!({ "eventId": "e1", "eventType": "a" })).await;
    rig.map("p", "g", &["u"]).await;
    rig.send(json!({ "eventId": "e2", "eventType": "a" })).await;
    assert_eq!(rig.unread("u").await, 1);
}

// Without a text of the rule's own, everything that the event says is in it.
#[tokio::test]
async fn the_default_text_has_lists_and_objects_too() {
    let rig = Rig::start().await;
    rig.rule("r", json!({ "targets": [{ "channel": "inbox", "users": ["u"] }] })).await;
    let data = json!({ "a": 1, "l": [1, "two"], "n": null, "o": { "k": true } });
    rig.send(json!({ "eventId": "e1", "eventType": "a", "data": data })).await;
    assert_eq!(rig.inbox("u").await[0].text, "a: 1\nl: [1,\"two\"]\no: {\"k\":true}");
}

// A text without markup of its own is made HTML where it is sent, with its line ends and a link.
#[tokio::test]
async fn only_a_text_with_markup_brings_html_of_its_own() {
    let rig = Rig::start().await;
    for (name, text) in [("plain", "{{ data.x }}\nsecond line"), ("marked", "<b>{{ data.x }}</b>")] {
        let targets = json!([{ "channel": "email", "to": [format!("{name}@b.c")] }]);
        rig.rule(name, json!({ "targets": targets, "text": text })).await;
    }
    rig.send(json!({ "eventId": "e1", "eventType": "a", "data": { "x": "<i>" } })).await;
    assert!(rig.messages("plain").await[0].payload.get("html").is_none());
    assert_eq!(rig.messages("marked").await[0].payload["html"], "<b>&lt;i&gt;</b>");
}
