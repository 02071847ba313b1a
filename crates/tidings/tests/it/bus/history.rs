//! What became of messages: one row each, in `/trace`, by message id, and on the page.

use serde_json::{Value, json};

use super::{complete, receive_one, send, settle, with_queue};
use crate::support::{Client, TestServer};

async fn send_as(client: &Client, entity: &str, properties: &Value) {
    let headers = [("content-type", "text/plain"), ("brokerproperties", &properties.to_string())];
    client.post_with(&format!("/bus/{entity}/messages"), &headers, "work").await.expect(201);
}

/// The steps of the bus in a trace: path, state, deliveries.
async fn steps(client: &Client, correlation: &str) -> Vec<(String, String, u64)> {
    let trace = client.get(&format!("/trace/{correlation}")).await.expect(200).json();
    let of_bus = trace["items"].as_array().unwrap().iter().filter(|step| step["kind"] == "bus");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    of_bus
        .map(|step| &step["details"])
        .map(|of| (text(&of["path"]), text(&of["state"]), of["deliveries"].as_u64().unwrap()))
        .collect()
}

fn step(state: &str, deliveries: u64) -> Vec<(String, String, u64)> {
    vec![("q".to_owned(), state.to_owned(), deliveries)]
}

// S003-84
#[tokio::test]
async fn a_message_is_traced_from_sending_to_completion() {
    let server = with_queue("q", &json!({})).await;
    let client = server.client();
    send_as(&client, "q", &json!({ "MessageId": "m1", "CorrelationId": "c1", "Label": "scan" })).await;
    assert_eq!(steps(&client, "c1").await, step("waiting", 0));
    let got = receive_one(&client, "q").await;
    assert_eq!(steps(&client, "c1").await, step("locked", 1));
    settle(&client, "q", &got, json!({ "action": "abandon" })).await;
    let got = receive_one(&client, "q").await;
    complete(&client, "q", &got).await;
    assert_eq!(steps(&client, "c1").await, step("completed", 2));
    let found = client.get("/bus/q/history?messageId=m1").await.expect(200).json();
    let row = &found["items"][0];
    assert_eq!((&row["state"], &row["subject"], &row["path"]), (&json!("completed"), &json!("scan"), &json!("q")));
    assert_eq!(found["items"].as_array().unwrap().len(), 1);
    client.get("/bus/q/history").await.problem(400);
    client.get("/bus/none/history?messageId=m1").await.problem(410);
    // It survives a restart, and 90 days.
    let token = server.admin_token().to_owned();
    let server = server.restart().await;
    let client = server.client_with(&token);
    server.advance(89 * 24);
    assert_eq!(steps(&client, "c1").await, step("completed", 2));
    server.advance(2 * 24);
    assert!(steps(&client, "c1").await.is_empty());
}

// S003-84: dead letters, those that are sent back, and those that are thrown away.
#[tokio::test]
async fn a_dead_letter_is_traced_and_so_is_what_comes_of_it() {
    let server = with_queue("q", &json!({})).await;
    let client = server.client();
    for id in ["a", "b"] {
        send_as(&client, "q", &json!({ "MessageId": id, "CorrelationId": id })).await;
        let got = receive_one(&client, "q").await;
        settle(&client, "q", &got, json!({ "action": "deadletter", "reason": "Bad" })).await;
        assert_eq!(steps(&client, id).await, step("dead-lettered", 1));
    }
    server.clock.advance(std::time::Duration::from_secs(1));
    client.post("/bus/q/$deadletterqueue/resubmit", &json!({ "ids": ["a"] })).await.expect(200);
    let mut both = step("resubmitted", 1);
    both.extend(step("waiting", 0));
    assert_eq!(steps(&client, "a").await, both);
    let letter = receive_one(&client, "q/$deadletterqueue").await;
    complete(&client, "q/$deadletterqueue", &letter).await;
    assert_eq!(steps(&client, "b").await, step("removed", 1));
}

// S003-84: what waits for its time is known from then on.
#[tokio::test]
async fn scheduled_deferred_cancelled_and_expired_messages_are_traced() {
    let server = with_queue("q", &json!({})).await;
    let client = server.client();
    let due = "Sun, 01 Mar 2026 13:00:00 GMT";
    for id in ["later", "never"] {
        let properties = json!({ "MessageId": id, "CorrelationId": id, "ScheduledEnqueueTimeUtc": due });
        send_as(&client, "q", &properties).await;
        assert_eq!(steps(&client, id).await, step("scheduled", 0));
    }
    client.delete("/bus/q/scheduled?key=never").await.expect(200);
    assert_eq!(steps(&client, "never").await, step("cancelled", 0));
    server.advance(2);
    server.services.bus.settle_time().await.unwrap();
    assert_eq!(steps(&client, "later").await, step("waiting", 0));
    let got = receive_one(&client, "q").await;
    assert_eq!(steps(&client, "later").await, step("locked", 1));
    settle(&client, "q", &got, json!({ "action": "defer" })).await;
    assert_eq!(steps(&client, "later").await, step("deferred", 1));
    let again = client.post("/bus/q/receive", &json!({ "sequenceNumbers": [got["sequenceNumber"]] })).await.json();
    complete(&client, "q", &again["messages"][0]).await;
    assert_eq!(steps(&client, "later").await, step("completed", 2));
    send_as(&client, "q", &json!({ "MessageId": "x", "CorrelationId": "x", "TimeToLive": 10 })).await;
    server.advance(1);
    server.services.bus.settle_time().await.unwrap();
    assert_eq!(steps(&client, "x").await, step("expired", 0));
}

#[tokio::test]
async fn an_entity_can_do_without() {
    let server = with_queue("q", &json!({ "history": false })).await;
    let client = server.client();
    assert_eq!(client.get("/bus/q").await.json()["history"], false);
    send_as(&client, "q", &json!({ "MessageId": "m", "CorrelationId": "c" })).await;
    assert_eq!(steps(&client, "c").await, step("waiting", 0));
    let got = receive_one(&client, "q").await;
    complete(&client, "q", &got).await;
    assert!(steps(&client, "c").await.is_empty());
    assert_eq!(client.put("/bus/q", &json!({ "history": "no" })).await.bad_fields(), ["history"]);
}

// The pages of a timeline hold each message once.
#[tokio::test]
async fn a_trace_of_many_messages_is_paged() {
    let server = TestServer::start().await;
    let client = server.client();
    client.put("/bus/q", &json!({})).await.expect(201);
    for n in 0..7 {
        send_as(&client, "q", &json!({ "MessageId": format!("m{n}"), "CorrelationId": "c" })).await;
        server.clock.advance(std::time::Duration::from_secs(1));
        if n % 2 == 0 {
            let got = receive_one(&client, "q").await;
            complete(&client, "q", &got).await;
        }
    }
    send(&client, "q", "other").await;
    let (mut ids, mut cursor) = (Vec::new(), String::new());
    for _ in 0..9 {
        let page = client.get(&format!("/trace/c?limit=2{cursor}")).await.expect(200).json();
        ids.extend(page["items"].as_array().unwrap().iter().map(|step| step["id"].as_str().unwrap().to_owned()));
        match page["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    ids.sort();
    assert_eq!(ids, ["m0", "m1", "m2", "m3", "m4", "m5", "m6"]);
}
