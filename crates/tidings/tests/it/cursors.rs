//! Cursors: opaque, sealed, and good only for the list and the asker they were made for.

use serde_json::json;

use crate::support::{TestServer, encode, event};

async fn with_events(count: usize) -> TestServer {
    let server = TestServer::start().await;
    let batch: Vec<_> = (0..count).map(|n| json!({ "eventId": n.to_string(), "eventType": "a" })).collect();
    server.client().post("/events", &json!(batch)).await.expect(202);
    server
}

// SX-10
#[tokio::test]
async fn a_tampered_cursor_is_refused() {
    let server = with_events(3).await;
    let cursor = server.client().get("/events?limit=1").await.expect(200).cursor().unwrap();
    for place in [0, cursor.len() / 2, cursor.len() - 2] {
        let mut changed = cursor.clone().into_bytes();
        changed[place] = if changed[place] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).unwrap();
        let answer = server.client().get(&format!("/events?limit=1&cursor={changed}")).await;
        assert_eq!(answer.bad_fields(), ["cursor"]);
    }
    for nonsense in ["x", "AAAA", "!!!", &cursor[1..], &format!("{cursor}A"), "ä", &"A".repeat(5000)] {
        let answer = server.client().get(&format!("/events?limit=1&cursor={}", encode(nonsense))).await;
        assert_eq!(answer.bad_fields(), ["cursor"], "{nonsense}");
    }
}

// SX-10
#[tokio::test]
async fn a_cursor_is_refused_with_other_filters() {
    let server = with_events(3).await;
    let cursor = server.client().get("/events?type=a&limit=1").await.expect(200).cursor().unwrap();
    for filters in ["", "type=b&", "type=a*&", "type=a&source=x&", "type=a&from=2020-01-01&"] {
        let answer = server.client().get(&format!("/events?{filters}limit=1&cursor={cursor}")).await;
        assert_eq!(answer.bad_fields(), ["cursor"], "{filters}");
    }
    server.client().get(&format!("/events?limit=2&type=a&cursor={cursor}")).await.expect(200);
}

// SX-10, SX-20
#[tokio::test]
async fn a_cursor_is_refused_from_another_token() {
    let server = with_events(3).await;
    let other = server.client_for(&["read"]).await;
    let cursor = server.client().get("/events?limit=1").await.expect(200).cursor().unwrap();
    assert_eq!(other.get(&format!("/events?limit=1&cursor={cursor}")).await.bad_fields(), ["cursor"]);
}

// SX-10
#[tokio::test]
async fn a_cursor_of_one_list_is_refused_by_another() {
    let server = with_events(3).await;
    server.client().send(&json!({ "eventType": "a", "correlationId": "c" })).await;
    server.client().send(&json!({ "eventType": "a", "correlationId": "c" })).await;
    let cursor = server.client().get("/events?limit=1").await.expect(200).cursor().unwrap();
    for path in ["/audit-log", "/trace/c"] {
        assert_eq!(server.client().get(&format!("{path}?limit=1&cursor={cursor}")).await.bad_fields(), ["cursor"]);
    }
    let cursor = server.client().get("/trace/c?limit=1").await.expect(200).cursor().unwrap();
    assert_eq!(server.client().get(&format!("/trace/d?limit=1&cursor={cursor}")).await.bad_fields(), ["cursor"]);
}

// SX-10: a cursor tells nothing about what is in it.
#[tokio::test]
async fn a_cursor_is_opaque_and_never_the_same_twice() {
    let server = with_events(3).await;
    server.client().send(&event("b")).await;
    let one = server.client().get("/events?limit=1").await.cursor().unwrap();
    let two = server.client().get("/events?limit=1").await.cursor().unwrap();
    assert_ne!(one, two);
    assert!(one.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)), "{one}");
}
