//! From created to completed or failed, on a moved clock.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tidings::messages::deliver::Deliverer;

use super::{answering, becomes, deliver, hello, id_of, look, make, published, quiet, seconds, server_with, store};
use crate::channels::http_server::{Reply, Server};
use crate::support::TestServer;

fn outcomes(message: &Value) -> Vec<&str> {
    message["attempts"].as_array().unwrap().iter().map(|attempt| attempt["outcome"].as_str().unwrap()).collect()
}

// S002-43 to S002-46, S002-68, S002-10, S002-11, S002-14, S002-35, S002-09
#[tokio::test]
async fn a_message_is_published_and_completed() {
    let (server, sink) = answering(published("hwQ2YpKdmgXK")).await;
    let client = server.client();
    let body = json!({ "message_type": "manual_notification", "payload": { "text": "hi", "title": "T",
        "priority": "urgent", "tags": ["a"], "click_url": "https://example.com", "topic": "ops" } });
    let made = make(&client, &body).await;
    server.clock.advance(seconds(1.0));
    assert_eq!(deliver(&server.services, "ntfy").await, None);
    let done = look(&client, &made).await;
    assert_eq!((&done["status"], &done["notification_id"]), (&json!("completed"), &json!("hwQ2YpKdmgXK")));
    for moved in ["processing_started_at", "processing_completed_at", "updated_date"] {
        assert_eq!(done[moved], "2026-03-01T12:00:01.000Z", "{moved}");
    }
    assert_eq!(done["created_date"], "2026-03-01T12:00:00.000Z");
    assert_eq!(outcomes(&done), ["delivered"]);
    assert_eq!(done.get("next_attempt_at"), None);
    let asked: Value = serde_json::from_slice(&sink.asked()[0].body).unwrap();
    assert_eq!((&asked["topic"], &asked["title"], &asked["priority"]), (&json!("ops"), &json!("T"), &json!(5)));
    assert_eq!(asked["click"], "https://example.com");
    let correlation = made["correlation_id"].as_str().unwrap();
    assert_eq!(sink.asked()[0].headers["x-correlation-id"], correlation);
    // S002-15: the trace goes on.
    assert!(sink.asked()[0].headers["traceparent"].starts_with(&format!("00-{}-", correlation.replace('-', ""))));
    deliver(&server.services, "ntfy").await;
    assert_eq!(sink.asked().len(), 1, "once");
}

// S002-49, S002-50, SX-06: five retries of 1, 2, 4, 8 and 16 s, then failed with a dead letter.
#[tokio::test]
async fn five_retries_double_and_then_it_is_a_dead_letter() {
    let (server, sink) = answering(Reply::status(500)).await;
    let client = server.client();
    let made = make(&client, &hello()).await;
    let mut deliverer = Deliverer::new(&server.services, "ntfy");
    for (retry, wait) in [1.0, 2.0, 4.0, 8.0, 16.0].into_iter().enumerate() {
        deliverer.drain().await.unwrap();
        let waiting = look(&client, &made).await;
        assert_eq!((&waiting["status"], &waiting["retry_count"]), (&json!("processing"), &json!(retry + 1)));
        let next = super::time_of(&waiting["next_attempt_at"]);
        assert_eq!(next.duration_since(super::time_of(&waiting["updated_date"])).as_secs_f64(), wait);
        server.clock.advance(seconds(wait - 0.001));
        deliverer.drain().await.unwrap();
        assert_eq!(sink.asked().len(), retry + 1, "not a moment before");
        server.clock.advance(seconds(0.001));
    }
    deliverer.drain().await.unwrap();
    let failed = look(&client, &made).await;
    assert_eq!((&failed["status"], &failed["retry_count"]), (&json!("failed"), &json!(5)));
    assert_eq!(failed["error_message"], "answered 500 (after 6 attempts)");
    assert_eq!(failed["processing_started_at"], "2026-03-01T12:00:00.000Z", "the first");
    assert_eq!(failed["processing_completed_at"], "2026-03-01T12:00:31.000Z");
    assert_eq!(outcomes(&failed), ["transient"; 6]);
    assert_eq!(sink.asked().len(), 6);
    // SX-08
    let letter = client.get(&format!("/dead-letters/{}", id_of(&made))).await.expect(200).json();
    assert_eq!(letter["reason"], failed["error_message"]);
    assert_eq!(letter["attempts"], failed["attempts"]);
    let letters = client.get("/dead-letters").await.expect(200).json();
    assert_eq!(letters["items"], json!([letter]));
}

// S002-50: ntfy 4xx except 408 and 429 fail at once.
#[tokio::test]
async fn what_is_refused_is_not_tried_again() {
    for status in [400, 401, 403, 404, 413] {
        let (server, sink) = answering(Reply::status(status)).await;
        let made = make(&server.client(), &hello()).await;
        assert_eq!(deliver(&server.services, "ntfy").await, None);
        let failed = look(&server.client(), &made).await;
        assert_eq!((&failed["status"], outcomes(&failed)), (&json!("failed"), vec!["permanent"]), "{status}");
        assert_eq!(failed["attempts"][0]["code"], status);
        assert_eq!(sink.asked().len(), 1);
        server.client().get(&format!("/dead-letters/{}", id_of(&made))).await.expect(200);
    }
}

// S002-50
#[tokio::test]
async fn retry_after_is_honoured() {
    let asked = AtomicUsize::new(0);
    let sink = Server::start(move |_| match asked.fetch_add(1, Ordering::Relaxed) {
        0 => Reply::Answer { status: 429, headers: vec![("retry-after", "120".to_owned())], body: String::new() },
        _ => published("n"),
    })
    .await;
    let server = server_with(&sink).await;
    let made = make(&server.client(), &hello()).await;
    let mut deliverer = Deliverer::new(&server.services, "ntfy");
    deliverer.drain().await.unwrap();
    let waiting = look(&server.client(), &made).await;
    assert_eq!(waiting["next_attempt_at"], "2026-03-01T12:02:00.000Z");
    server.clock.advance(seconds(119.0));
    deliverer.drain().await.unwrap();
    assert_eq!(sink.asked().len(), 1);
    server.clock.advance(seconds(1.0));
    deliverer.drain().await.unwrap();
    let done = look(&server.client(), &made).await;
    assert_eq!((&done["status"], outcomes(&done)), (&json!("completed"), vec!["transient", "delivered"]));
    assert_eq!(done.get("error_message"), None);
}

// SX-06: the time that a try has is the policy's, on whatever channel it is made.
#[tokio::test]
async fn a_try_has_as_long_as_its_policy_says() {
    let sink = Server::start(|_| Reply::Hang).await;
    let url = sink.url("");
    let server = TestServer::start_with(|config| {
        quiet(config, &url);
        config.delivery.timeout_seconds = 0.2;
    })
    .await;
    let late = format!("{url} took longer than 0.2 s to answer");
    let made = make(&server.client(), &hello()).await;
    deliver(&server.services, "ntfy").await;
    assert_eq!(look(&server.client(), &made).await["attempts"][0]["error"], late);
    let hook = store(&server.services, "webhook", json!({ "url": sink.url("/hook") })).await;
    deliver(&server.services, "webhook").await;
    let hook = server.services.messages.get(&hook.message_id).await.unwrap().unwrap().message;
    assert_eq!(hook.delivery.attempts[0].error.as_deref(), Some(late.as_str()));
    // A test of the channel has the same.
    let tested = server.client().post("/channels/webhook/test", &json!({ "url": sink.url("/hook") })).await;
    assert_eq!(tested.expect(200).json()["detail"], late);
}

#[tokio::test]
async fn deliver_at_is_waited_for() {
    let (server, sink) = answering(published("n")).await;
    let mut body = hello();
    body["deliver_at"] = json!("2026-03-01T13:00:00Z");
    let made = make(&server.client(), &body).await;
    assert_eq!(made["deliver_at"], "2026-03-01T13:00:00.000Z");
    assert_eq!(deliver(&server.services, "ntfy").await, Some(3600.0));
    server.clock.advance(seconds(3599.999));
    deliver(&server.services, "ntfy").await;
    assert_eq!(sink.asked().len(), 0);
    server.clock.advance(seconds(0.001));
    deliver(&server.services, "ntfy").await;
    assert_eq!(look(&server.client(), &made).await["status"], "completed");
    // What lies in the past is due at once.
    body["deliver_at"] = json!("2020-01-01T00:00:00Z");
    let past = make(&server.client(), &body).await;
    deliver(&server.services, "ntfy").await;
    assert_eq!(look(&server.client(), &past).await["status"], "completed");
}

// A deliverer that has read on hears of what is made before the place it has reached, and after the clock went back.
#[tokio::test]
async fn nothing_is_overlooked_when_the_clock_is_set_back() {
    let (server, sink) = answering(published("n")).await;
    let mut deliverer = Deliverer::new(&server.services, "ntfy");
    make(&server.client(), &hello()).await;
    deliverer.drain().await.unwrap();
    server.clock.jump_to("2026-03-01T10:00:00Z".parse().unwrap());
    make(&server.client(), &hello()).await;
    deliverer.drain().await.unwrap();
    server.clock.jump_to("2026-03-31T10:00:00Z".parse().unwrap());
    make(&server.client(), &hello()).await;
    deliverer.drain().await.unwrap();
    assert_eq!(sink.asked().len(), 3);
}

// The workers of a running server: woken by the commit, not by a timer.
// S002-67: whoever makes a message wakes who sends it; nothing is polled for.
#[tokio::test]
async fn a_running_server_delivers_what_is_made() {
    let sink = Server::start(|_| published("n")).await;
    let url = sink.url("");
    let server = crate::support::TestServer::start_with(|config| {
        config.delivery.enabled = true;
        config.ntfy.server = Some(url);
    })
    .await;
    let made = make(&server.client(), &hello()).await;
    becomes(&server.services, &id_of(&made), "completed").await;
    assert_eq!(sink.asked().len(), 1);
}

// S002-15, S002-69, SX-03: a correlation id and a trace that both came with the request both go on, by event and by call.
#[tokio::test]
async fn a_correlation_id_and_a_trace_beside_it_are_both_passed_on() {
    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let (server, sink) = answering(published("n-1")).await;
    let client = server.client();
    let rule = json!({ "pattern": { "eventType": ["disk.full"] }, "targets": [{ "channel": "ntfy", "topic": "ops" }] });
    client.put("/rules/disk", &rule).await.expect(201);
    let both = [("x-correlation-id", "order-17"), ("traceparent", PARENT), ("content-type", "application/json")];
    client
        .post_with("/events", &both, json!({ "eventType": "disk.full", "eventId": "e-1" }).to_string())
        .await
        .expect(202);
    let made = client.post_with("/api/messages", &both, hello().to_string()).await.expect(201).json();
    assert_eq!(
        (&made["correlation_id"], &made["trace_id"]),
        (&json!("order-17"), &json!("4bf92f3577b34da6a3ce929d0e0e4736"))
    );
    deliver(&server.services, "ntfy").await;
    let asked = sink.asked();
    assert_eq!(asked.len(), 2);
    for asked in asked {
        assert_eq!(asked.headers["x-correlation-id"], "order-17");
        assert!(asked.headers["traceparent"].starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-"));
    }
    assert_eq!(client.get("/events/e-1").await.expect(200).json()["traceparent"], PARENT);
    // One that says the same is not kept twice.
    let alone = [("traceparent", PARENT), ("content-type", "application/json")];
    let made = client.post_with("/api/messages", &alone, hello().to_string()).await.expect(201).json();
    assert_eq!((&made["correlation_id"], made.get("trace_id")), (&json!("4bf92f3577b34da6a3ce929d0e0e4736"), None));
}

// S002-15, SX-03: a trace that is not sampled stays so, with a correlation id beside it and without, by event and by call.
#[tokio::test]
async fn the_flags_of_a_trace_are_passed_on() {
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    let parent = format!("00-{TRACE}-00f067aa0ba902b7-00");
    let (server, sink) = answering(published("n-1")).await;
    let client = server.client();
    let rule = json!({ "pattern": { "eventType": ["disk.full"] }, "targets": [{ "channel": "ntfy", "topic": "ops" }] });
    client.put("/rules/disk", &rule).await.expect(201);
    let alone = [("traceparent", parent.as_str()), ("content-type", "application/json")];
    let both = [&alone[..], &[("x-correlation-id", "order-17")]].concat();
    for headers in [&alone[..], &both] {
        let made = client.post_with("/api/messages", headers, hello().to_string()).await.expect(201).json();
        assert_eq!(made["trace_id"], TRACE, "without its flags");
        assert_eq!(look(&client, &made).await["trace_id"], TRACE);
        client.post_with("/events", headers, json!({ "eventType": "disk.full" }).to_string()).await.expect(202);
    }
    deliver(&server.services, "ntfy").await;
    let asked = sink.asked();
    assert_eq!(asked.len(), 4);
    for asked in asked {
        let passed = &asked.headers["traceparent"];
        assert!(passed.starts_with(&format!("00-{TRACE}-")) && passed.ends_with("-00"), "{passed}");
    }
}
