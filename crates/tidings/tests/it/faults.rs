//! When the store fails: a clear answer, no acknowledgement, nothing twice, and reads that go on.

use std::sync::Arc;

use serde_json::json;
use tidings_store::faults::{Chances, Fault, Faulty};
use tidings_store::memory::Memory;

use crate::support::{TestServer, event, server};

async fn over_faulty() -> (TestServer, Arc<Faulty>) {
    let clock = server::clock();
    let store = Arc::new(Faulty::new(Arc::new(Memory::new(clock.clone()))));
    (TestServer::over(store.clone(), clock).await, store)
}

// SX-02, SX-24
#[tokio::test]
async fn a_busy_store_is_503_with_retry_after() {
    let (server, store) = over_faulty().await;
    store.fail_nth(1, Fault::Throttled);
    let answer = server.client().post("/events", &event("a")).await;
    answer.problem(503);
    assert_eq!(answer.header("retry-after"), "1");
    assert!(server.client().stored().await.is_empty());
    server.client().send(&event("a")).await;
}

// SX-02, SX-24
#[tokio::test]
async fn a_full_disk_is_507_and_reads_go_on() {
    let (server, store) = over_faulty().await;
    server.client().send(&json!({ "eventId": "before", "eventType": "a" })).await;
    store.fail_nth(1, Fault::Full);
    let answer = server.client().post("/events", &json!({ "eventId": "e", "eventType": "a" })).await;
    answer.problem(507);
    assert!(!answer.header("retry-after").is_empty());
    assert_eq!(server.client().stored().await, ["before"]);
    server.client().get("/readyz").await.expect(200);
    server.client().send(&json!({ "eventId": "e", "eventType": "a" })).await;
}

// SX-02, SX-22: readiness says why.
#[tokio::test]
async fn a_read_only_store_is_503_and_readiness_says_why() {
    let (server, store) = over_faulty().await;
    server.client().send(&json!({ "eventId": "before", "eventType": "a" })).await;
    store.fail_nth(1, Fault::ReadOnly);
    for _ in 0..2 {
        let answer = server.client().post("/events", &event("a")).await;
        answer.problem(503);
        assert!(!answer.header("retry-after").is_empty());
        server.client().post("/tokens", &json!({ "scopes": ["read"] })).await.problem(503);
    }
    let answer = server.stranger().get("/readyz").await;
    let detail = answer.problem(503)["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("takes no writes") && detail.contains("a fault was injected"), "{detail}");
    assert!(!answer.header("retry-after").is_empty());
    server.stranger().get("/healthz").await.expect(200);
    assert_eq!(server.client().stored().await, ["before"]);
    let metrics = server.client().get("/metrics").await.expect(200).text();
    assert!(metrics.contains("tidings_store_ready 0\n"), "{metrics}");
    store.heal();
    server.client().get("/readyz").await.expect(200);
    server.client().send(&event("a")).await;
}

// SX-02, S003-57: nothing twice.
#[tokio::test]
async fn an_event_whose_answer_was_lost_is_a_duplicate_when_sent_again() {
    let (server, store) = over_faulty().await;
    let event = json!({ "eventId": "e", "eventType": "a", "correlationId": "c" });
    store.fail_nth(1, Fault::ReplyLost);
    assert_eq!(server.client().post("/events", &event).await.problem(500)["status"], 500);
    let answer = server.client().post("/events", &event).await.expect(202).json();
    assert_eq!((&answer["duplicates"], &answer["events"][0]["correlationId"]), (&json!(1), &json!("c")));
    assert_eq!(server.client().stored().await, ["e"]);
}

// SX-02: a batch of which one transaction fails is not acknowledged; sent again, it is whole and nothing is twice.
#[tokio::test]
async fn a_batch_that_failed_in_the_middle_can_be_sent_again() {
    for fault in [Fault::Throttled, Fault::Full, Fault::ReplyLost] {
        let (server, store) = over_faulty().await;
        let batch: Vec<_> = (0..10).map(|n| json!({ "eventId": n.to_string(), "eventType": "a" })).collect();
        store.fail_nth(5, fault);
        assert!(server.client().post("/events", &json!(batch)).await.status >= 500, "{fault:?}");
        let answer = server.client().post("/events", &json!(batch)).await.expect(202).json();
        assert_eq!(answer["accepted"].as_u64().unwrap() + answer["duplicates"].as_u64().unwrap(), 10, "{fault:?}");
        let mut stored = server.client().stored().await;
        stored.sort();
        assert_eq!(stored, (0..10).map(|n| n.to_string()).collect::<Vec<_>>(), "{fault:?}");
    }
}

// SX-19: an action and its record are made together or not at all.
#[tokio::test]
async fn an_action_that_fails_is_not_on_record() {
    let (server, store) = over_faulty().await;
    for fault in [Fault::Throttled, Fault::Full] {
        store.fail_nth(1, fault);
        let answer = server.client().post("/tokens", &json!({ "scopes": ["read"] })).await;
        assert!([503, 507].contains(&answer.status));
    }
    assert_eq!(server.client().get("/tokens").await.json()["items"].as_array().unwrap().len(), 1);
    assert_eq!(server.client().get("/audit-log/verify").await.json(), json!({ "ok": true, "entries": 1 }));
}

// SX-24: reads that fail say so, and never pass for an empty list.
#[tokio::test]
async fn failing_reads_are_503_and_never_an_empty_list() {
    let (server, store) = over_faulty().await;
    server.client().send(&event("a")).await;
    let client = server.client();
    client.get("/events").await.expect(200);
    store.fail_at_random(1, Chances { reads: 1000, ..Chances::default() });
    for path in ["/events", "/events?type=a", "/events/e", "/trace/c", "/audit-log", "/audit-log/verify", "/tokens"] {
        let answer = client.get(path).await;
        answer.problem(503);
        assert_eq!(answer.header("retry-after"), "1", "{path}");
    }
    store.heal();
    assert_eq!(client.stored().await.len(), 1);
}

// SX-02: whatever fails by chance, what was acknowledged is there, and once.
#[tokio::test]
async fn under_random_faults_what_was_acknowledged_is_there_once() {
    let (server, store) = over_faulty().await;
    store.fail_at_random(7, Chances { throttled: 150, full: 100, reply_lost: 150, reads: 0 });
    let mut acknowledged = Vec::new();
    for n in 0..100 {
        let event = json!({ "eventId": format!("{n:03}"), "eventType": "a" });
        // As a careful sender does: the same again until it is acknowledged, but not for ever.
        for _ in 0..3 {
            if server.client().post("/events", &event).await.status == 202 {
                acknowledged.push(format!("{n:03}"));
                break;
            }
        }
    }
    store.heal();
    let mut stored = server.client().stored().await;
    stored.sort();
    let mut once = stored.clone();
    once.dedup();
    assert_eq!(stored, once, "nothing twice");
    assert!(acknowledged.len() > 80);
    assert!(acknowledged.iter().all(|id| stored.contains(id)), "nothing lost");
}
