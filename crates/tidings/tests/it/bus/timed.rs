//! Delays, schedules, expiry, duplicates and order.

use std::time::Duration;

use serde_json::{Value, json};

use super::{bodies, complete, counts, receive, receive_one, send, settle, with_queue};
use crate::support::{Client, TestServer};

const BATCH: &str = "application/vnd.microsoft.servicebus.json";

async fn send_with(client: &Client, entity: &str, body: &str, properties: Value) -> Value {
    let list = json!([{ "Body": body, "BrokerProperties": properties }]);
    client.post_as(&format!("/bus/{entity}/messages"), BATCH, list.to_string()).await.expect(201).json()["messages"][0]
        .clone()
}

/// Moves the clock, and lets the bus do what is due.
async fn advance(server: &TestServer, seconds: u64) {
    server.clock.advance(Duration::from_secs(seconds));
    server.services.bus.settle_time().await.unwrap();
}

// S003-29, S003-40: delivered after 72 hours, across restarts.
#[tokio::test]
async fn a_scheduled_message_comes_at_its_time() {
    let server = with_queue("q", &json!({})).await;
    let client = server.client();
    let sent =
        send_with(&client, "q", "expire", json!({ "ScheduledEnqueueTimeUtc": "Wed, 04 Mar 2026 12:00:00 GMT" })).await;
    assert!(receive(&client, "q", 1).await.is_empty());
    let peeked = client.get("/bus/q/peek?state=scheduled").await.expect(200).json();
    assert_eq!(peeked["items"][0]["sequenceNumber"], sent["sequenceNumber"]);
    assert_eq!(peeked["items"][0]["scheduledFor"], "2026-03-04T12:00:00.000Z");
    assert_eq!(counts(&client, "q").await["scheduled"], 1);
    let token = server.admin_token().to_owned();
    let server = server.restart().await;
    let client = server.client_with(&token);
    advance(&server, 72 * 3600 - 1).await;
    assert!(receive(&client, "q", 1).await.is_empty());
    advance(&server, 1).await;
    let got = receive_one(&client, "q").await;
    assert_eq!((got["body"].as_str(), got["enqueuedAt"].as_str()), (Some("expire"), Some("2026-03-04T12:00:00.000Z")));
    assert_eq!(got["enqueuedSequenceNumber"], sent["sequenceNumber"]);
    assert_eq!(counts(&client, "q").await["scheduled"], 0);
}

// S003-30
#[tokio::test]
async fn scheduled_messages_are_cancelled_by_number_key_and_id() {
    let server = with_queue("q", &json!({})).await;
    let client = server.client();
    let later = "2026-03-02T00:00:00Z";
    let one = send_with(&client, "q", "1", json!({ "ScheduledEnqueueTimeUtc": later })).await;
    for n in 2..=3 {
        send_with(&client, "q", &n.to_string(), json!({ "ScheduledEnqueueTimeUtc": later, "Key": "transfer-7" })).await;
    }
    send_with(&client, "q", "4", json!({ "ScheduledEnqueueTimeUtc": later, "Key": "transfer-70", "MessageId": "m4" }))
        .await;
    send_with(&client, "q", "5", json!({ "ScheduledEnqueueTimeUtc": later })).await;
    client.delete(&format!("/bus/q/scheduled/{}", one["sequenceNumber"])).await.expect(204);
    client.delete(&format!("/bus/q/scheduled/{}", one["sequenceNumber"])).await.problem(404);
    assert_eq!(client.delete("/bus/q/scheduled?key=transfer-7").await.expect(200).json()["cancelled"], 2);
    client.delete("/bus/q/scheduled?key=transfer-7").await.problem(404);
    // Each of them is on record.
    let log = client.get("/audit-log?action=bus.cancel").await.expect(200).json();
    let entries = log["items"].as_array().unwrap();
    assert_eq!(entries.len(), 2, "{log}");
    assert!(entries.iter().all(|entry| entry["entityId"] == "q"), "{log}");
    assert_eq!(client.delete("/bus/q/scheduled?key=m4").await.expect(200).json()["cancelled"], 1);
    assert_eq!(client.delete("/bus/q/scheduled").await.bad_fields(), ["key"]);
    assert_eq!(counts(&client, "q").await["scheduled"], 1);
    advance(&server, 86_400).await;
    assert_eq!(bodies(&receive(&client, "q", 10).await), ["5"]);
}

// Pages of scheduled messages follow the order of time, whatever their numbers.
#[tokio::test]
async fn scheduled_messages_are_looked_at_page_by_page() {
    let server = with_queue("q", &json!({})).await;
    let client = server.client();
    for n in 0..5 {
        let later = format!("2026-03-02T0{}:00:00Z", 5 - n / 2);
        send_with(&client, "q", &n.to_string(), json!({ "ScheduledEnqueueTimeUtc": later })).await;
    }
    let mut seen = Vec::new();
    let mut cursor = String::new();
    for _ in 0..4 {
        let page = client.get(&format!("/bus/q/peek?state=scheduled&limit=2{cursor}")).await.expect(200).json();
        seen.extend(bodies(page["items"].as_array().unwrap()).into_iter().map(ToOwned::to_owned));
        let Some(next) = page["cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(seen, ["4", "2", "3", "0", "1"]);
    let whole = client.get("/bus/q/peek?state=scheduled&limit=5").await.expect(200).json();
    assert_eq!((whole["items"].as_array().unwrap().len(), &whole["cursor"]), (5, &Value::Null));
    for bad in ["state=scheduled&cursor=2", "state=active&cursor=x"] {
        assert_eq!(client.get(&format!("/bus/q/peek?{bad}")).await.bad_fields(), ["cursor"], "{bad}");
    }
    // Those in the order of numbers have theirs.
    for body in ["x", "y", "z"] {
        send(&client, "q", body).await;
    }
    let page = client.get("/bus/q/peek?limit=2").await.expect(200).json();
    let rest = client.get(&format!("/bus/q/peek?cursor={}", page["cursor"].as_str().unwrap())).await.expect(200).json();
    assert_eq!(bodies(rest["items"].as_array().unwrap()), ["z"]);
}

#[tokio::test]
async fn many_that_are_due_together_come_in_order_and_whole() {
    let server = with_queue("q", &json!({})).await;
    let client = server.client();
    let list: Vec<Value> = (0..1000)
        .map(|n| json!({ "Body": format!("{n}"), "BrokerProperties": { "ScheduledEnqueueTimeUtc": "2026-03-01T12:00:01Z" } }))
        .collect();
    client.post_as("/bus/q/messages", BATCH, Value::from(list).to_string()).await.expect(201);
    advance(&server, 1).await;
    let mut seen = Vec::new();
    loop {
        let got = receive(&client, "q", 256).await;
        if got.is_empty() {
            break;
        }
        seen.extend(bodies(&got).into_iter().map(|body| body.parse::<usize>().unwrap()));
    }
    assert_eq!(seen, (0..1000).collect::<Vec<_>>());
}

// Delayed abandon, which Service Bus does not have.
#[tokio::test]
async fn an_abandoned_message_can_be_delayed() {
    let server = with_queue("q", &json!({})).await;
    let client = server.client();
    for body in ["a", "b"] {
        send(&client, "q", body).await;
    }
    let got = receive_one(&client, "q").await;
    let result = settle(&client, "q", &got, json!({ "action": "abandon", "delaySeconds": 10 })).await;
    assert_eq!(result["status"], "ok");
    assert_eq!(counts(&client, "q").await["scheduled"], 1);
    assert_eq!(bodies(&receive(&client, "q", 2).await), ["b"]);
    send(&client, "q", "c").await;
    advance(&server, 10).await;
    let got = receive(&client, "q", 2).await;
    // What comes back goes to the front.
    assert_eq!(bodies(&got), ["a", "c"]);
    assert_eq!((got[0]["deliveryCount"].as_u64(), got[0]["sequenceNumber"].as_u64().is_some()), (Some(2), true));
    complete(&client, "q", &got[0]).await;
    let counts = counts(&client, "q").await;
    assert_eq!((counts["scheduled"].as_u64(), counts["locked"].as_u64()), (Some(0), Some(2)));
}

// S003-91: 1, 2, 4, 8, 16 s, then the dead letters.
#[tokio::test]
async fn a_retry_policy_spaces_deliveries() {
    let server = with_queue("q", &json!({ "retry": { "jitter": false } })).await;
    let client = server.client();
    send(&client, "q", "a").await;
    for wait in [1, 2, 4, 8, 16] {
        let got = receive_one(&client, "q").await;
        settle(&client, "q", &got, json!({ "action": "abandon" })).await;
        server.clock.advance(Duration::from_millis(wait * 1000 - 1));
        server.services.bus.settle_time().await.unwrap();
        assert!(receive(&client, "q", 1).await.is_empty(), "{wait}");
        server.clock.advance(Duration::from_millis(1));
        server.services.bus.settle_time().await.unwrap();
    }
    let got = receive_one(&client, "q").await;
    assert_eq!(got["deliveryCount"], 6);
    settle(&client, "q", &got, json!({ "action": "abandon" })).await;
    let dead = client.post("/bus/q/$deadletterqueue/receive", &json!({ "waitSeconds": 10 })).await.json();
    assert_eq!(dead["messages"][0]["attempts"].as_array().unwrap().len(), 6);
}

#[tokio::test]
async fn messages_expire_with_and_without_a_dead_letter() {
    let server = with_queue("q", &json!({ "defaultTtlSeconds": 60, "deadLetterOnExpiration": true })).await;
    let client = server.client();
    client.put("/bus/silent", &json!({})).await.expect(201);
    send_with(&client, "q", "short", json!({ "TimeToLive": 10 })).await;
    send_with(&client, "q", "cut", json!({ "TimeToLive": 3600 })).await;
    send(&client, "q", "default").await;
    send_with(&client, "silent", "gone", json!({ "TimeToLive": 10 })).await;
    send(&client, "silent", "stays").await;
    advance(&server, 9).await;
    assert_eq!(counts(&client, "q").await["active"], 3);
    advance(&server, 1).await;
    assert_eq!(counts(&client, "q").await["active"], 2);
    assert_eq!(counts(&client, "silent").await["active"], 1);
    assert_eq!(bodies(&receive(&client, "silent", 9).await), ["stays"]);
    // What is locked does not expire until the lock ends.
    let held = receive_one(&client, "q").await;
    advance(&server, 50).await;
    assert_eq!(settle(&client, "q", &held, json!({ "action": "renew" })).await["status"], "ok");
    assert_eq!(counts(&client, "q").await["locked"], 1);
    settle(&client, "q", &held, json!({ "action": "abandon" })).await;
    let dead = client.post("/bus/q/$deadletterqueue/receive", &json!({ "max": 3, "waitSeconds": 10 })).await.json();
    let mut got = bodies(dead["messages"].as_array().unwrap());
    got.sort_unstable();
    assert!(got.contains(&"short") && got.contains(&"default"), "{got:?}");
    assert_eq!(dead["messages"][0]["deadLetter"]["reason"], "TTLExpiredException");
}

// S003-57: a duplicate is accepted and dropped.
#[tokio::test]
async fn duplicates_within_the_window_are_dropped() {
    let server = with_queue("q", &json!({ "duplicateWindowSeconds": 600 })).await;
    let client = server.client();
    for _ in 0..3 {
        send_with(&client, "q", "a", json!({ "MessageId": "same" })).await;
    }
    send_with(&client, "q", "b", json!({ "MessageId": "other" })).await;
    assert_eq!(bodies(&receive(&client, "q", 9).await), ["a", "b"]);
    server.clock.advance(Duration::from_secs(599));
    send_with(&client, "q", "c", json!({ "MessageId": "same" })).await;
    assert_eq!(counts(&client, "q").await["incoming"], 2);
    server.clock.advance(Duration::from_secs(1));
    send_with(&client, "q", "d", json!({ "MessageId": "same" })).await;
    assert_eq!(counts(&client, "q").await["incoming"], 3);
}

// S003-83: one at a time for each key, in order, the others in parallel.
#[tokio::test]
async fn an_ordered_queue_keeps_the_order_of_each_session() {
    let server = with_queue("q", &json!({ "ordered": true, "lockSeconds": 30 })).await;
    let client = server.client();
    for (body, session) in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("a3", "a"), ("b2", "b")] {
        send_with(&client, "q", body, json!({ "SessionId": session })).await;
    }
    let got = receive(&client, "q", 9).await;
    assert_eq!(bodies(&got), ["a1", "b1"]);
    complete(&client, "q", &got[1]).await;
    let next = receive(&client, "q", 9).await;
    assert_eq!(bodies(&next), ["b2"]);
    // What fails comes again before the others of its key, and after its wait.
    settle(&client, "q", &got[0], json!({ "action": "abandon", "delaySeconds": 5 })).await;
    assert!(receive(&client, "q", 9).await.is_empty());
    server.clock.advance(Duration::from_secs(5));
    let again = receive(&client, "q", 9).await;
    assert_eq!(bodies(&again), ["a1"]);
    complete(&client, "q", &again[0]).await;
    assert_eq!(bodies(&receive(&client, "q", 9).await), ["a2"]);
    server.clock.advance(Duration::from_secs(30));
    assert_eq!(bodies(&receive(&client, "q", 9).await), ["a2", "b2"], "lost locks");
}
