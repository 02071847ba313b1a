//! `Idempotency-Key`: the same request again is answered as the first time, and done once.

use std::sync::Arc;

use serde_json::{Value, json};
use tidings_store::faults::{Fault, Faulty, Moment};
use tidings_store::memory::Memory;

use crate::alerts::audit_event;
use crate::support::{Answer, Client, TestServer, event, server};

async fn post(client: &Client, path: &str, key: &str, body: &Value) -> Answer {
    let headers = [("content-type", "application/json"), ("idempotency-key", key)];
    client.post_with(path, &headers, body.to_string()).await
}

// SX-09
#[tokio::test]
async fn the_same_key_and_body_replay_the_first_answer_byte_by_byte() {
    let server = TestServer::start().await;
    let first = post(&server.client(), "/events", "k", &event("a")).await.expect(202);
    assert_eq!(first.header("idempotent-replay"), "");
    for _ in 0..3 {
        let again = post(&server.client(), "/events", "k", &event("a")).await.expect(202);
        assert_eq!(again.body, first.body);
        assert_eq!(again.header("content-type"), first.header("content-type"));
        assert_eq!(again.header("idempotent-replay"), "true");
    }
    assert_eq!(server.client().stored().await.len(), 1, "although the server made the id");
}

// SX-09
#[tokio::test]
async fn the_same_key_with_another_body_is_422_and_changes_nothing() {
    let server = TestServer::start().await;
    post(&server.client(), "/events", "k", &event("a")).await.expect(202);
    post(&server.client(), "/events", "k", &event("b")).await.problem(422);
    post(&server.client(), "/events", "k", &json!({ "eventType": "a", "x": 1 })).await.problem(422);
    assert_eq!(server.client().stored().await.len(), 1);
    post(&server.client(), "/events", "k", &event("a")).await.expect(202);
}

// SX-09: a key is its token's, and its path's.
#[tokio::test]
async fn keys_of_different_tokens_and_paths_do_not_meet() {
    let server = TestServer::start().await;
    let (one, two) = (server.client_for(&["ingest"]).await, server.client_for(&["ingest"]).await);
    let first = post(&one, "/events", "k", &event("a")).await.expect(202);
    let second = post(&two, "/events", "k", &event("a")).await.expect(202);
    assert_ne!(first.json()["events"][0]["eventId"], second.json()["events"][0]["eventId"]);
    post(&two, "/events", "k2", &event("b")).await.expect(202);
    let body = json!({ "eventType": "a", "scopes": ["read"] });
    post(&server.client(), "/events", "k", &body).await.expect(202);
    post(&server.client(), "/tokens", "k", &body).await.expect(201);
    assert_eq!(server.client().stored().await.len(), 4);
}

// SX-09: also where the answer cannot be made a second time.
#[tokio::test]
async fn a_token_made_with_a_key_is_made_once() {
    let server = TestServer::start().await;
    let body = json!({ "scopes": ["read"] });
    let first = post(&server.client(), "/tokens", "k", &body).await.expect(201);
    let again = post(&server.client(), "/tokens", "k", &body).await.expect(201);
    assert_eq!(again.body, first.body);
    assert_eq!(server.client().get("/tokens").await.json()["items"].as_array().unwrap().len(), 2);
}

// SX-09, SX-26: a key is remembered for 24 h.
#[tokio::test]
async fn a_key_is_forgotten_after_a_day() {
    let server = TestServer::start().await;
    post(&server.client(), "/events", "k", &event("a")).await.expect(202);
    server.clock.advance(std::time::Duration::from_secs(24 * 3600 - 1));
    post(&server.client(), "/events", "k", &event("b")).await.problem(422);
    server.clock.advance(std::time::Duration::from_secs(2));
    post(&server.client(), "/events", "k", &event("b")).await.expect(202);
    assert_eq!(server.client().stored().await.len(), 2);
}

// SX-27: at n-1, n, n+1.
#[tokio::test]
async fn a_key_has_one_to_256_characters() {
    let server = TestServer::start().await;
    for (length, good) in [(0, false), (1, true), (255, true), (256, true), (257, false)] {
        let answer = post(&server.client(), "/events", &"k".repeat(length), &event("a")).await;
        if good {
            answer.expect(202);
        } else {
            assert_eq!(answer.bad_fields(), ["Idempotency-Key"], "{length}");
        }
    }
    assert_eq!(server.client().stored().await.len(), 3);
}

// SX-09: a mistake is no answer to keep; the corrected request may use the same key.
#[tokio::test]
async fn a_refused_request_does_not_use_up_its_key() {
    let server = TestServer::start().await;
    post(&server.client(), "/events", "k", &event("")).await.problem(400);
    post(&server.client(), "/events", "k", &event("a")).await.expect(202);
    assert_eq!(server.client().stored().await.len(), 1);
}

fn faulty() -> (Arc<Faulty>, Arc<tidings_core::time::ManualClock>) {
    let clock = server::clock();
    (Arc::new(Faulty::new(Arc::new(Memory::new(clock.clone())))), clock)
}

// SX-09: the effect is durable, its answer is not kept: the second run finds its own work done.
#[tokio::test]
async fn a_request_whose_answer_was_lost_acts_once() {
    let (store, clock) = faulty();
    let server = TestServer::over(store.clone(), clock).await;
    let batch = json!([event("a"), event("b")]);
    for lost in [1, 2, 4] {
        // The claim of the key, an event's transaction, the answer.
        store.fail_nth(lost, Fault::ReplyLost);
        let key = format!("k{lost}");
        assert!(post(&server.client(), "/events", &key, &batch).await.status >= 500, "{lost}");
        let answer = post(&server.client(), "/events", &key, &batch).await.expect(202).json();
        assert_eq!(answer["rejected"], 0);
    }
    assert_eq!(server.client().stored().await.len(), 6);
}

// SX-09: a token whose answer was lost is not made twice, and what the second answer says works.
#[tokio::test]
async fn a_token_whose_answer_was_lost_is_made_once() {
    let (store, clock) = faulty();
    let server = TestServer::over(store.clone(), clock).await;
    let tokens = || async { server.client().get("/tokens").await.json()["items"].as_array().unwrap().len() };
    let body = json!({ "scopes": ["read"] });
    let before = tokens().await;
    for (made, lost) in [1, 2, 3].into_iter().enumerate() {
        store.fail_nth(lost, Fault::ReplyLost);
        let key = format!("k{lost}");
        assert!(post(&server.client(), "/tokens", &key, &body).await.status >= 500, "{lost}");
        let answer = post(&server.client(), "/tokens", &key, &body).await.expect(201).json();
        assert_eq!(tokens().await, before + made + 1, "{lost}");
        server.client_with(answer["token"].as_str().unwrap()).get("/events").await.expect(200);
    }
    // A key that is forgotten makes a new one, and does not take the place of the old.
    server.clock.advance(std::time::Duration::from_secs(25 * 3600));
    post(&server.client(), "/tokens", "k1", &body).await.expect(201);
    assert_eq!(tokens().await, before + 4);
}

// SX-09: a message of the bus and the mark of its key are one transaction. The program dies between the two commits, that
// of the message and that of its answer: whoever asks again is told what was done, and nothing is sent twice.
#[tokio::test]
async fn a_message_of_the_bus_whose_answer_was_lost_is_sent_once() {
    const BATCH: &str = "application/vnd.microsoft.servicebus.json";
    let (store, clock) = faulty();
    let server = TestServer::over(store.clone(), clock).await;
    let client = server.client();
    for queue in ["q", "many"] {
        client.put(&format!("/bus/{queue}"), &json!({})).await.expect(201);
    }
    client.put("/bus/d", &json!({ "duplicateWindowSeconds": 600 })).await.expect(201);
    client.put("/bus/t", &json!({ "kind": "topic" })).await.expect(201);
    client.put("/bus/nobody", &json!({ "kind": "topic" })).await.expect(201);
    for name in ["s1", "s2"] {
        client.put(&format!("/bus/t/subscriptions/{name}"), &json!({})).await.expect(201);
    }
    let batch: Vec<Value> = (0..120).map(|n| json!({ "Body": format!("b{n}") })).collect();
    let batch = Value::from(batch).to_string();
    let send = async |to: &str, kind: &str, key: &str, body: &str| {
        let headers = [("content-type", kind), ("idempotency-key", key)];
        client.post_with(&format!("/bus/{to}/messages"), &headers, body.to_owned()).await
    };
    let waiting = async |path: &str| {
        let seen = client.get(&format!("/bus/{path}/peek?limit=1000")).await.expect(200).json();
        seen["items"].as_array().unwrap().len()
    };
    // The claim of the key is the first transaction, and keeping the answer the last.
    for (to, from, kind, body, count, last) in [
        ("q", "q", "text/plain", "x", 1, 3),
        ("d", "d", "text/plain", "x", 1, 3),
        ("t", "t/subscriptions/s1", "text/plain", "x", 2, 3),
        ("nobody", "", "text/plain", "x", 0, 3),
        ("many", "many", BATCH, batch.as_str(), 120, 5),
    ] {
        for lost in 2..=last {
            let key = format!("k{lost}");
            let fault = if lost == last { Fault::ReadOnly } else { Fault::ReplyLost };
            store.fail_nth(lost, fault);
            assert!(send(to, kind, &key, body).await.status >= 500, "{to} {lost}");
            store.heal();
            let again = send(to, kind, &key, body).await.expect(201).json();
            assert_eq!(again["messages"].as_array().unwrap().len(), count, "{to} {lost}: {again}");
            assert_eq!(send(to, kind, &key, body).await.expect(201).json(), again, "{to} {lost}: it is kept now");
        }
        if !from.is_empty() {
            let each = if to == "t" { 1 } else { count };
            assert_eq!(waiting(from).await, each * usize::try_from(last - 1).unwrap(), "{to}");
        }
    }
}

// SX-09: a message that is called off stays so, and whoever asks again is told.
#[tokio::test]
async fn a_message_whose_cancelling_was_not_answered_is_cancelled() {
    let (store, clock) = faulty();
    let server = TestServer::over(store.clone(), clock).await;
    let client = server.client();
    let body = json!({ "message_type": "manual_notification", "payload": { "text": "x" } });
    for lost in [2, 3] {
        let made = client.post("/api/messages", &body).await.expect(201).json();
        let path = format!("/api/messages/{}/cancel", made["message_id"].as_str().unwrap());
        store.fail_nth(lost, if lost == 3 { Fault::ReadOnly } else { Fault::ReplyLost });
        assert!(post(&client, &path, "k", &json!({})).await.status >= 500);
        store.heal();
        assert_eq!(post(&client, &path, "k", &json!({})).await.expect(200).json()["status"], "failed");
        post(&client, &path, "another", &json!({})).await.problem(409);
    }
}

// SX-09, SX-02: a key that is used again a day later is a new one, and what it makes is new.
#[tokio::test]
async fn a_key_of_yesterday_makes_something_new() {
    let server = TestServer::start().await;
    let client = server.client();
    let message = |text: &str| json!({ "message_type": "manual_notification", "payload": { "text": text } });
    let ticket = json!({ "caller_id": "u1", "issue_description": "d" });
    let (mut messages, mut tickets) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
    for day in ["day 1", "day 2", "day 3"] {
        let made = post(&client, "/api/messages", "daily", &message(day)).await.expect(201).json();
        assert_eq!(made["payload"]["text"], day);
        messages.insert(made["message_id"].as_str().unwrap().to_owned());
        let made = post(&client, "/tickets", "daily", &ticket).await.expect(201).json();
        tickets.insert(made["ticket_id"].as_str().unwrap().to_owned());
        server.clock.advance(std::time::Duration::from_secs(24 * 3600 + 1));
    }
    assert_eq!((messages.len(), tickets.len()), (3, 3));
}

// SX-09: the largest answers, too.
#[tokio::test]
async fn a_large_answer_is_replayed() {
    let server = TestServer::start().await;
    let client = server.client();
    let id = |n: usize| format!("{n:0>245}");
    let batch: Vec<Value> =
        (0..1000).map(|n| json!({ "eventType": "a", "eventId": id(n), "correlationId": "c".repeat(120) })).collect();
    let batch = Value::from(batch);
    let first = post(&client, "/events", "k", &batch).await.expect(202);
    assert!(first.body.len() > 290 * 1024, "{}", first.body.len());
    let again = post(&client, "/events", "k", &batch).await.expect(202);
    assert!(again.body == first.body);
    post(&client, "/events", "k", &event("b")).await.problem(422);
}

// SX-09: with all that the first answer said.
#[tokio::test]
async fn the_headers_of_an_answer_are_replayed() {
    let server = TestServer::start().await;
    let client = server.client();
    client.put("/bus/q", &json!({ "kind": "queue" })).await.expect(201);
    client
        .post_with("/bus/q/messages", &[("content-type", "text/plain"), ("priority", "\"High\"")], "x")
        .await
        .expect(201);
    let ask = || client.post_with("/bus/q/messages/head", &[("idempotency-key", "k")], "");
    let (first, again) = (ask().await.expect(201), ask().await.expect(201));
    for name in ["brokerproperties", "location", "priority", "content-type"] {
        assert!(!first.header(name).is_empty(), "{name}");
        assert_eq!(again.header(name), first.header(name), "{name}");
    }
    assert_eq!(again.body, first.body);
}

// SX-09: two at once with one key.
#[tokio::test]
async fn a_key_that_is_still_being_worked_on_is_409() {
    let (store, clock) = faulty();
    let server = TestServer::over(store.clone(), clock).await;
    let gate = store.hold(Moment::Before);
    let client = server.client();
    let first = tokio::spawn(async move { post(&client, "/events", "k", &event("a")).await });
    gate.arrived(1).await;
    let second = post(&server.client(), "/events", "k", &event("a")).await;
    second.problem(409);
    assert_eq!(second.header("retry-after"), "1");
    gate.open();
    let first = first.await.unwrap().expect(202);
    assert_eq!(post(&server.client(), "/events", "k", &event("a")).await.expect(202).body, first.body);
    assert_eq!(server.client().stored().await.len(), 1);
}

// SX-09: of a CloudEvent in binary mode the body is only its data.
#[tokio::test]
async fn what_is_said_in_headers_or_the_query_counts_as_the_body_does() {
    let server = TestServer::start().await;
    let client = server.client();
    let binary = async |id: &'static str, content_type: &'static str, trace: &'static str| {
        let headers = [
            ("content-type", content_type),
            ("ce-specversion", "1.0"),
            ("ce-id", id),
            ("ce-source", "/s"),
            ("ce-type", "t"),
            ("traceparent", trace),
            ("x-correlation-id", trace),
            ("idempotency-key", "k"),
        ];
        client.post_with("/events", &headers, "{\"a\":1}".to_owned()).await
    };
    let traces = [
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4737-00f067aa0ba902b7-01",
    ];
    let first = binary("one", "application/json", traces[0]).await.expect(202);
    binary("two", "application/json", traces[0]).await.problem(422);
    binary("one", "text/plain", traces[0]).await.problem(422);
    // A trace is another with each attempt, and says nothing.
    let again = binary("one", "application/json", traces[1]).await.expect(202);
    assert_eq!((again.header("idempotent-replay"), &again.body), ("true", &first.body));
    assert_eq!(client.stored().await, ["one"]);

    client.put("/bus/q", &json!({})).await.expect(201);
    let send = async |broker: &'static str, colour: &'static str| {
        let headers =
            [("brokerproperties", broker), ("colour", colour), ("user-agent", broker), ("idempotency-key", "k")];
        client.post_with("/bus/q/messages", &headers, "m".to_owned()).await
    };
    let first = send("{\"Label\":\"a\"}", "red").await.expect(201);
    send("{\"Label\":\"b\"}", "red").await.problem(422);
    send("{\"Label\":\"a\"}", "blue").await.problem(422);
    assert_eq!(send("{\"Label\":\"a\"}", "red").await.expect(201).body, first.body);
}

// SX-09: a token is the same one wherever it stands.
#[tokio::test]
async fn a_key_is_known_again_with_the_token_in_another_place() {
    let server = TestServer::start().await;
    let path = format!("/ingest/azure-devops?key={}", server.admin_token());
    let body = audit_event("e1").to_string();
    let headers = [("content-type", "application/json"), ("idempotency-key", "k")];
    let first = server.stranger().post_with(&path, &headers, body.clone()).await;
    let again = server.client().post_with("/ingest/azure-devops", &headers, body).await;
    assert_eq!((again.status, &again.body), (first.status, &first.body));
    assert_eq!(again.header("idempotent-replay"), "true");
}
