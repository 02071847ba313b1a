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
