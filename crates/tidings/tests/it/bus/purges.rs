//! What goes on when everything is purged: who waits, numbers, and what was counted for ever.

use std::time::Duration;

use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tidings::bus::Path;

use super::{counts, receive_one, send, settle, with_queue};
use crate::support::Client;

async fn schedule(client: &Client, body: &str) -> u64 {
    let properties = json!({ "ScheduledEnqueueTimeUtc": "2026-03-02T00:00:00Z" }).to_string();
    let sent = client.post_with("/bus/q/messages", &[("brokerproperties", &properties)], body.to_owned()).await;
    sent.expect(201).json()["messages"][0]["sequenceNumber"].as_u64().unwrap()
}

async fn scheduled(client: &Client) -> Vec<Value> {
    client.get("/bus/q/peek?state=scheduled").await.expect(200).json()["items"].as_array().unwrap().clone()
}

#[tokio::test]
async fn whoever_waits_goes_on_waiting() {
    let server = with_queue("q", &json!({})).await;
    let client = server.client();
    let (bus, path) = (&server.services.bus, Path::queue("q"));
    let wait = Duration::from_secs(60);
    let mut locking = Box::pin(bus.receive(&path, 1, wait, None, false));
    let mut deleting = Box::pin(bus.receive(&path, 1, wait, None, true));
    assert!(locking.as_mut().now_or_never().is_none() && deleting.as_mut().now_or_never().is_none());
    client.post("/bus/q/purge", &json!({})).await.expect(200);
    assert!(locking.as_mut().now_or_never().is_none(), "there is nothing, and the queue is there");
    assert!(deleting.as_mut().now_or_never().is_none());
    send(&client, "q", "a").await;
    send(&client, "q", "b").await;
    let (one, other) = tokio::join!(locking, deleting);
    assert_eq!((one.unwrap().1.len(), other.unwrap().1.len()), (1, 1));
    // An entity that is deleted is gone for them.
    client.put("/bus/z", &json!({})).await.expect(201);
    let path = Path::queue("z");
    let mut waiting = Box::pin(bus.receive(&path, 1, wait, None, false));
    assert!(waiting.as_mut().now_or_never().is_none());
    client.delete("/bus/z").await.expect(204);
    assert!(waiting.await.is_err());
}

#[tokio::test]
async fn numbers_and_counters_go_on() {
    let server = with_queue("q", &json!({})).await;
    let client = server.client();
    let mut last = 0;
    for body in ["1", "2", "3"] {
        last = schedule(&client, body).await;
    }
    send(&client, "q", "done").await;
    let got = receive_one(&client, "q").await;
    settle(&client, "q", &got, json!({ "action": "complete" })).await;
    let before = counts(&client, "q").await;
    assert_eq!(client.post("/bus/q/purge", &json!({})).await.expect(200).json()["purged"], 3);
    let after = counts(&client, "q").await;
    assert_eq!((&after["incoming"], &after["outgoing"]), (&before["incoming"], &before["outgoing"]));
    assert_eq!((&after["scheduled"], &after["active"]), (&json!(0), &json!(0)));
    let other = schedule(&client, "other").await;
    assert!(other > last.max(got["sequenceNumber"].as_u64().unwrap()), "{other} after {last}");
    for number in 1..=last {
        client.delete(&format!("/bus/q/scheduled/{number}")).await.problem(404);
    }
    assert_eq!(scheduled(&client).await.len(), 1);
    let token = server.admin_token().to_owned();
    let server = server.restart().await;
    let client = server.client_with(&token);
    assert!(schedule(&client, "more").await > other);
    assert_eq!(counts(&client, "q").await["incoming"], 6);
    client.delete(&format!("/bus/q/scheduled/{other}")).await.expect(204);
    assert_eq!(scheduled(&client).await.len(), 1);
}
