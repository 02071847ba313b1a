//! `POST /rules/test`: trying a pattern before it is switched on.

use serde_json::{Value, json};

use crate::support::TestServer;

async fn test(server: &TestServer, body: Value) -> Value {
    server.client().post("/rules/test", &body).await.expect(200).json()
}

// SX-11
#[tokio::test]
async fn a_pattern_is_tried_against_one_event() {
    let server = TestServer::start().await;
    for (pattern, event, matches) in [
        (json!({ "eventType": ["a"] }), json!({ "eventType": "a" }), true),
        (json!({ "eventType": ["a"] }), json!({ "eventType": "b" }), false),
        (json!({ "eventVersion": ["1.0"] }), json!({ "eventType": "a" }), true),
        (json!({ "data": { "n": [{ "numeric": [">", 3] }] } }), json!({ "eventType": "a", "data": { "n": 4 } }), true),
        // What could not be sent can still be tried.
        (json!({ "detail": { "x": [1] } }), json!({ "detail": { "x": 1 } }), true),
    ] {
        let answer = test(&server, json!({ "pattern": pattern, "event": event })).await;
        assert_eq!(answer, json!({ "matches": matches }), "{pattern} {event}");
    }
}

// SX-11
#[tokio::test]
async fn a_pattern_is_tried_against_stored_events_newest_first() {
    let server = TestServer::start().await;
    let client = server.client();
    for n in 0..60 {
        let kind = if n % 2 == 0 { "even" } else { "odd" };
        client.send(&json!({ "eventId": format!("e{n:02}"), "eventType": kind, "data": { "n": n } })).await;
        server.clock.advance(std::time::Duration::from_secs(1));
    }
    let even = json!({ "eventType": ["even"] });
    let answer = test(&server, json!({ "pattern": even, "last": 10_000 })).await;
    assert_eq!((&answer["checked"], &answer["matched"]), (&json!(60), &json!(30)));
    let sample: Vec<_> = answer["sample"].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
    assert_eq!((sample.len(), sample[0], sample[19]), (20, "e58", "e20"));
    let answer = test(&server, json!({ "pattern": even, "last": 3 })).await;
    assert_eq!(answer, json!({ "checked": 3, "matched": 1, "sample": ["e58"] }));
}

#[tokio::test]
async fn what_cannot_be_tried_is_refused_with_its_place() {
    let server = TestServer::start().await;
    let client = server.client();
    let good = json!({ "eventType": ["a"] });
    for (body, fields) in [
        (json!({ "pattern": { "data": { "env": [{ "wrong": 1 }] } }, "event": {} }), vec!["pattern.data.env[0].wrong"]),
        (json!({ "pattern": {}, "last": 0 }), vec!["pattern", "last"]),
        (json!({ "event": {} }), vec!["pattern"]),
        (json!({ "pattern": good, "last": 10_001 }), vec!["last"]),
        (json!({ "pattern": good, "last": "9" }), vec!["last"]),
        (json!({ "pattern": good, "event": [] }), vec!["event"]),
        (json!({ "pattern": good }), vec!["event"]),
        (json!({ "pattern": good, "event": {}, "last": 1 }), vec!["event"]),
    ] {
        assert_eq!(client.post("/rules/test", &body).await.bad_fields(), fields, "{body}");
    }
    client.post_as("/rules/test", "application/json", "{").await.problem(400);
}
