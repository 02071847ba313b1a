//! Windows: a rule that does not say the same again for a while.

use std::time::Duration;

use serde_json::json;

use super::Rig;

async fn send(rig: &Rig, id: &str, n: u32) -> serde_json::Value {
    rig.send(json!({ "eventId": id, "eventType": "a", "data": { "n": n, "id": id } })).await;
    rig.outcome(id).await
}

#[tokio::test]
async fn the_same_notice_is_not_repeated_within_the_window() {
    let rig = Rig::start().await;
    let targets = json!([{ "channel": "inbox", "users": ["u"] }, { "channel": "ntfy" }]);
    rig.rule("r", json!({ "targets": targets, "title": "n is {{ data.n }}", "text": "x", "dedupe_seconds": 60 })).await;
    rig.rule("always", json!({ "targets": [{ "channel": "queue", "entity": "q" }] })).await;

    assert_eq!(send(&rig, "e1", 1).await["totals"]["notifications"], 1);
    rig.server.clock.advance(Duration::from_secs(59));
    let outcome = send(&rig, "e2", 1).await;
    assert_eq!(outcome["deduplicated"], json!(["r"]), "{outcome}");
    assert_eq!(outcome["totals"], json!({ "rules": 2, "notifications": 0, "messages": 1 }), "the other rule goes on");
    assert_eq!(send(&rig, "e3", 2).await["totals"]["notifications"], 1, "another notice");
    rig.server.clock.advance(Duration::from_secs(1));
    assert_eq!(send(&rig, "e4", 1).await["totals"]["notifications"], 1, "the window is over");
    assert_eq!((rig.unread("u").await, rig.messages("r").await.len(), rig.messages("always").await.len()), (3, 3, 4));
    let metrics = rig.server.client().get("/metrics").await.text();
    assert!(metrics.contains("tidings_rule_matches_total{result=\"deduplicated\"} 1"), "{metrics}");
}

#[tokio::test]
async fn a_key_of_its_own_decides_what_is_the_same() {
    let rig = Rig::start().await;
    let targets = json!([{ "channel": "inbox", "users": ["u"] }]);
    let rule =
        json!({ "targets": targets, "title": "{{ data.id }}", "dedupe_seconds": 60, "dedupe_key": "{{ data.n }}" });
    rig.rule("r", rule).await;
    send(&rig, "e1", 1).await;
    assert_eq!(send(&rig, "e2", 1).await["deduplicated"], json!(["r"]));
    send(&rig, "e3", 2).await;
    assert_eq!(rig.unread("u").await, 2);
}

#[tokio::test]
async fn within_one_request_too_only_the_first_is_told() {
    let rig = Rig::start().await;
    for rule in ["r1", "r2", "r3"] {
        let targets = json!([{ "channel": "inbox", "users": [rule] }]);
        rig.rule(rule, json!({ "targets": targets, "title": "T", "text": "x", "dedupe_seconds": 60 })).await;
    }
    let events: Vec<_> = (0..50).map(|n| json!({ "eventId": format!("e{n}"), "eventType": "a" })).collect();
    let answer = rig.server.client().post("/events", &json!(events)).await.expect(202).json();
    assert_eq!(answer["accepted"], 50);
    for rule in ["r1", "r2", "r3"] {
        assert_eq!((rig.inbox(rule).await.len(), rig.unread(rule).await), (1, 1));
    }
    assert_eq!(rig.outcome("e0").await["totals"]["notifications"], 3);
    assert_eq!(rig.outcome("e49").await["deduplicated"], json!(["r1", "r2", "r3"]));
}

/// Sends an event about `data`, and gives what came of it once its job, if any, is done.
async fn about(rig: &Rig, id: &str, data: serde_json::Value) -> serde_json::Value {
    rig.send(json!({ "eventId": id, "eventType": "a", "data": data })).await;
    rig.server.services.fanout().activate().await.unwrap();
    rig.outcome(id).await
}

/// A rule that says the same of every event, with this one target.
async fn same_of_all(rig: &Rig, name: &str, target: serde_json::Value) {
    let rule = json!({ "targets": [target], "title": "hello", "text": "same", "dedupe_seconds": 60 });
    rig.rule(name, rule).await;
}

// SX-09: a window is for whom it tells; what is new to somebody is told.
#[tokio::test]
async fn whoever_has_not_heard_it_yet_is_told_within_the_window_of_others() {
    let rig = Rig::start().await;
    rig.map("p1", "g", &["a1"]).await;
    rig.map("p2", "g", &["a2"]).await;
    same_of_all(&rig, "users", json!({ "channel": "inbox", "users": ["{{ data.u }}"] })).await;
    same_of_all(&rig, "map", json!({ "channel": "inbox", "map": { "product": "{{ data.p }}" } })).await;
    same_of_all(&rig, "mail", json!({ "channel": "email", "to": ["{{ data.m }}"] })).await;
    same_of_all(&rig, "push", json!({ "channel": "ntfy", "topic": "{{ data.u }}" })).await;
    same_of_all(&rig, "call", json!({ "channel": "webhook", "url": "https://h.example/{{ data.u }}" })).await;
    same_of_all(&rig, "ticket", json!({ "channel": "ticket", "caller": "{{ data.u }}" })).await;

    about(&rig, "e1", json!({ "u": "ana", "p": "p1", "m": "ana@example.com" })).await;
    let outcome = about(&rig, "e2", json!({ "u": "ben", "p": "p2", "m": "ben@example.com" })).await;
    assert!(outcome.get("deduplicated").is_none(), "{outcome}");
    assert!(outcome["rules"].as_array().unwrap().iter().all(|rule| rule["status"] == "matched"), "{outcome}");
    let outcome = about(&rig, "e3", json!({ "u": "ana", "p": "p1", "m": "ANA@example.com" })).await;
    assert_eq!(outcome["deduplicated"], json!(["call", "mail", "map", "push", "ticket", "users"]), "{outcome}");
    assert_eq!(outcome["totals"], json!({ "rules": 6, "notifications": 0, "messages": 0 }));
    for user in ["ana", "ben", "a1", "a2"] {
        assert_eq!((rig.inbox(user).await.len(), rig.unread(user).await), (1, 1), "{user}");
    }
    for rule in ["mail", "push", "call", "ticket"] {
        assert_eq!(rig.messages(rule).await.len(), 2, "{rule}");
    }
    rig.server.clock.advance(Duration::from_secs(60));
    about(&rig, "e4", json!({ "u": "ana", "p": "p1", "m": "ana@example.com" })).await;
    assert_eq!((rig.unread("ana").await, rig.messages("mail").await.len()), (2, 3));
}

#[tokio::test]
async fn of_several_only_those_are_told_again_who_were_not_told_before() {
    let rig = Rig::start().await;
    let targets = json!([
        { "channel": "inbox", "users": ["ops"] },
        { "channel": "queue", "entity": "q" },
        { "channel": "inbox", "users": ["{{ data.u }}"] },
        { "channel": "email", "to": ["{{ data.m }}"] },
    ]);
    rig.rule("r", json!({ "targets": targets, "title": "hello", "text": "same", "dedupe_seconds": 60 })).await;
    about(&rig, "e1", json!({ "u": ["ana", "ben"], "m": ["ana@b.c", "ben@b.c"] })).await;
    let outcome = about(&rig, "e2", json!({ "u": ["ben", "cy"], "m": ["ben@b.c", "cy@b.c"] })).await;
    assert_eq!((&outcome["rules"][0]["status"], &outcome["rules"][0]["repeats"]), (&json!("matched"), &json!(4)));
    assert_eq!((&outcome["deduplicated"], &outcome["totals"]["notifications"]), (&json!(["r"]), &json!(1)));
    for user in ["ops", "ana", "ben", "cy"] {
        assert_eq!((rig.inbox(user).await.len(), rig.unread(user).await), (1, 1), "{user}");
    }
    let messages = rig.messages("r").await;
    let mails: Vec<_> = messages.iter().filter(|m| m.channel == "email").map(|m| json!(m.target["to"])).collect();
    assert_eq!(mails.len(), 2, "{mails:?}");
    assert!(mails.contains(&json!(["cy@b.c"])), "{mails:?}");
    assert_eq!(messages.iter().filter(|message| message.channel == "queue").count(), 1);
}

#[tokio::test]
async fn a_rule_that_leads_elsewhere_now_has_said_nothing_there() {
    let rig = Rig::start().await;
    same_of_all(&rig, "r", json!({ "channel": "inbox", "users": ["ana"] })).await;
    about(&rig, "e1", json!({})).await;
    same_of_all(&rig, "r", json!({ "channel": "inbox", "users": ["ben"] })).await;
    about(&rig, "e2", json!({})).await;
    assert_eq!(about(&rig, "e3", json!({})).await["deduplicated"], json!(["r"]));
    assert_eq!((rig.unread("ana").await, rig.unread("ben").await), (1, 1));
}

// The same by a job as in the event's own transaction, and the one knows what the other has told.
#[tokio::test]
async fn a_fan_out_keeps_to_the_windows_of_each_too() {
    let rig = Rig::start().await;
    let names = |from: usize, to: usize| (from..to).map(|n| format!("u{n:03}")).collect::<Vec<_>>();
    rig.map("p1", "g", &names(500, 600).iter().map(String::as_str).collect::<Vec<_>>()).await;
    let many: Vec<_> = names(700, 800);
    let targets = json!([
        { "channel": "inbox", "users": many },
        { "channel": "inbox", "users": ["{{ data.u }}"] },
        { "channel": "inbox", "map": { "product": "{{ data.p }}" } },
        { "channel": "email", "to": ["{{ data.m }}"] },
    ]);
    rig.rule("r", json!({ "targets": targets, "title": "hello", "text": "same", "dedupe_seconds": 60 })).await;
    let first = about(&rig, "e1", json!({ "u": names(0, 120), "p": "p1", "m": ["a@b.c", "b@b.c"] })).await;
    assert_eq!(
        (&first["fanout"]["state"], &first["fanout"]["notifications"]),
        (&json!("done"), &json!(320)),
        "{first}"
    );
    assert!(first.get("deduplicated").is_none(), "{first}");

    let second = about(&rig, "e2", json!({ "u": names(60, 180), "p": "p1", "m": ["b@b.c", "c@b.c"] })).await;
    assert_eq!(second["fanout"]["notifications"], 60, "{second}");
    assert_eq!((&second["deduplicated"], &second["fanout"]["repeats"]), (&json!(["r"]), &json!(61)), "{second}");
    for user in names(0, 180).iter().chain(&names(500, 600)).chain(&many) {
        assert_eq!((rig.inbox(user).await.len(), rig.unread(user).await), (1, 1), "{user}");
    }
    let mails: Vec<_> = rig.messages("r").await.iter().map(|message| json!(message.target["to"])).collect();
    assert_eq!(mails.len(), 2, "{mails:?}");
    assert!(mails.contains(&json!(["c@b.c"])), "{mails:?}");
}

#[tokio::test]
async fn what_a_fan_out_has_told_is_not_repeated_by_an_event_alone() {
    let rig = Rig::start().await;
    same_of_all(&rig, "r", json!({ "channel": "inbox", "users": ["{{ data.u }}"] })).await;
    let names: Vec<_> = (0..120).map(|n| format!("u{n}")).collect();
    assert_eq!(about(&rig, "e1", json!({ "u": names })).await["fanout"]["notifications"], 120);
    let outcome = about(&rig, "e2", json!({ "u": ["u0", "zoe"] })).await;
    assert_eq!((&outcome["totals"]["notifications"], &outcome["rules"][0]["repeats"]), (&json!(1), &json!(1)));
    let outcome = about(&rig, "e3", json!({ "u": names })).await;
    assert_eq!((&outcome["fanout"]["notifications"], &outcome["fanout"]["repeats"]), (&json!(0), &json!(120)));
    assert_eq!(outcome["deduplicated"], json!(["r"]));
    assert_eq!((rig.unread("u0").await, rig.unread("u7").await, rig.unread("zoe").await), (1, 1, 1));
}
