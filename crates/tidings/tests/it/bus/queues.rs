//! One message at a time, in the shape of the Service Bus REST API.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use tidings_core::time::Clock;
use tidings_store::Store;
use tidings_store::memory::Memory;

use super::{broker_properties, counts, receive, receive_one, send, settle, with_queue};
use crate::support::{Answer, TestServer};

// S003-72, S003-79, S003-87, S003-113
#[tokio::test]
async fn a_message_is_received_under_a_lock_and_completed() {
    let server = with_queue("q", &json!({ "kind": "queue" })).await;
    let client = server.client();
    let headers = [
        ("content-type", "application/json"),
        ("brokerproperties", r#"{"MessageId":"m-1","Label":"order.paid","CorrelationId":"c-1","Nonsense":1}"#),
        ("priority", "\"High\""),
        ("amount", "12.5"),
        ("plain", "some text"),
    ];
    let sent = client.post_with("/bus/q/messages", &headers, r#"{"n":1}"#).await.expect(201).json();
    assert_eq!(sent["messages"][0]["messageId"], "m-1");

    let got = Answer::to(client.request(Method::POST, "/bus/q/messages/head?timeout=5")).await.expect(201);
    assert_eq!(got.text(), r#"{"n":1}"#);
    assert_eq!(got.header("content-type"), "application/json");
    assert_eq!((got.header("priority"), got.header("amount")), ("\"High\"", "12.5"));
    assert_eq!(got.header("plain"), "\"some text\"");
    let properties = broker_properties(&got);
    assert_eq!(properties["MessageId"], "m-1");
    assert_eq!(properties["Label"], "order.paid");
    assert_eq!(properties["CorrelationId"], "c-1");
    assert_eq!(properties["DeliveryCount"], 1);
    assert_eq!(properties["SequenceNumber"], sent["messages"][0]["sequenceNumber"]);
    assert_eq!(properties["LockedUntilUtc"], "Sun, 01 Mar 2026 12:01:00 GMT");

    // Nobody else gets it, and its place is where its Location says.
    assert_eq!(Answer::to(client.request(Method::POST, "/bus/q/messages/head")).await.status, 204);
    let location = got.header("location").strip_prefix(&server.url).expect("an absolute address").to_owned();
    assert!(location.ends_with(properties["LockToken"].as_str().unwrap()));
    client.delete(&location).await.expect(200);
    client.delete(&location).await.problem(404);
    let counts = counts(&client, "q").await;
    assert_eq!((counts["active"].as_u64(), counts["locked"].as_u64()), (Some(0), Some(0)));
    assert_eq!((counts["incoming"].as_u64(), counts["outgoing"].as_u64()), (Some(1), Some(1)));
}

#[tokio::test]
async fn the_lock_is_named_by_message_id_or_number() {
    let server = with_queue("q", &json!({})).await;
    let client = server.client();
    let sent = client.post_with("/bus/q/messages", &[("brokerproperties", r#"{"MessageId":"a"}"#)], "x").await;
    let number = sent.json()["messages"][0]["sequenceNumber"].clone();
    let token = receive_one(&client, "q").await["lockToken"].as_str().unwrap().to_owned();
    for other in ["b", "999", ""] {
        let answer = Answer::to(client.request(Method::POST, &format!("/bus/q/messages/{other}/{token}"))).await;
        assert_eq!(answer.status, 404, "{other}");
    }
    Answer::to(client.request(Method::POST, &format!("/bus/q/messages/a/{token}"))).await.expect(200);
    client.delete(&format!("/bus/q/messages/{number}/not-a-token")).await.problem(404);
    client.delete(&format!("/bus/q/messages/{number}/{token}")).await.expect(200);
}

#[tokio::test]
async fn receive_and_delete_gives_a_message_once() {
    let server = with_queue("q", &json!({})).await;
    let client = server.client();
    send(&client, "q", "a").await;
    assert_eq!(client.delete("/bus/q/messages/head").await.expect(200).text(), "a");
    client.delete("/bus/q/messages/head").await.expect(204);
    assert_eq!(counts(&client, "q").await["outgoing"], 1);
}

// S003-81: unlocked, it is first in line again, and has been delivered once more.
#[tokio::test]
async fn an_abandoned_message_comes_again_before_later_ones() {
    let server = with_queue("q", &json!({})).await;
    let client = server.client();
    for body in ["a", "b"] {
        send(&client, "q", body).await;
    }
    let first = receive_one(&client, "q").await;
    let path =
        format!("/bus/q/messages/{}/{}", first["messageId"].as_str().unwrap(), first["lockToken"].as_str().unwrap());
    Answer::to(client.request(Method::PUT, &path)).await.expect(200);
    let again = receive_one(&client, "q").await;
    assert_eq!((again["body"].as_str(), again["deliveryCount"].as_u64()), (Some("a"), Some(2)));
    assert_eq!(again["sequenceNumber"], first["sequenceNumber"]);
    assert_ne!(again["lockToken"], first["lockToken"]);
}

// S003-82: a lock that is not used in time is lost, and counts as an attempt; renewed, it lasts.
#[tokio::test]
async fn locks_expire_and_can_be_renewed() {
    let server = with_queue("q", &json!({ "lockSeconds": 30 })).await;
    let client = server.client();
    send(&client, "q", "a").await;
    let first = receive_one(&client, "q").await;
    server.clock.advance(Duration::from_secs(29));
    let renewed = settle(&client, "q", &first, json!({ "action": "renew" })).await;
    assert_eq!(renewed["lockedUntil"], "2026-03-01T12:00:59.000Z");
    server.clock.advance(Duration::from_secs(29));
    assert!(receive(&client, "q", 1).await.is_empty());
    server.clock.advance(Duration::from_secs(1));
    let second = receive_one(&client, "q").await;
    assert_eq!(second["deliveryCount"], 2);
    assert_eq!(second["attempts"][0]["outcome"], "expired");
    for action in ["complete", "abandon", "deadletter", "defer", "renew"] {
        assert_eq!(settle(&client, "q", &first, json!({ "action": action })).await["status"], "lost", "{action}");
    }
    assert_eq!(settle(&client, "q", &second, json!({ "action": "complete" })).await["status"], "ok");
}

// S003-88, S003-89, S003-93, S003-94, S003-98
#[tokio::test]
async fn a_poison_message_ends_among_the_dead_letters() {
    let server = with_queue("q", &json!({ "maxDeliveryCount": 2, "lockSeconds": 5 })).await;
    let client = server.client();
    send(&client, "q", "poison").await;
    let first = receive_one(&client, "q").await;
    let why = json!({ "action": "abandon", "reason": "Timeout", "description": "the database did not answer" });
    assert_eq!(settle(&client, "q", &first, why).await["status"], "ok");
    receive_one(&client, "q").await;
    server.clock.advance(Duration::from_secs(5));
    assert!(receive(&client, "q", 1).await.is_empty());
    let dead = client.post("/bus/q/$deadletterqueue/receive", &json!({ "waitSeconds": 10 })).await.expect(200).json();
    let dead = &dead["messages"][0];
    assert_eq!(dead["body"], "poison");
    assert_eq!(dead["properties"]["DeadLetterReason"], "MaxDeliveryCountExceeded");
    let letter = &dead["deadLetter"];
    assert_eq!((letter["source"].as_str(), letter["deliveries"].as_u64()), (Some("q"), Some(2)));
    assert_eq!(letter["firstFailure"], "2026-03-01T12:00:00Z");
    assert_eq!(letter["lastFailure"], "2026-03-01T12:00:05Z");
    assert!(letter["lastConsumer"].as_str().unwrap().starts_with("token:"));
    let attempts = dead["attempts"].as_array().unwrap();
    assert_eq!((attempts[0]["reason"].as_str(), attempts[1]["outcome"].as_str()), (Some("Timeout"), Some("expired")));
    // A dead letter stays until somebody deals with it.
    let again = settle(&client, "q/$deadletterqueue", dead, json!({ "action": "deadletter" })).await;
    assert_eq!(again["status"], "failed");
    assert_eq!(settle(&client, "q/$deadletterqueue", dead, json!({ "action": "complete" })).await["status"], "ok");
    assert_eq!(counts(&client, "q").await["deadLettered"], 0);
}

// S003-92: what cannot succeed is not tried again.
#[tokio::test]
async fn a_receiver_can_dead_letter_at_once() {
    let server = with_queue("q", &json!({})).await;
    let client = server.client();
    send(&client, "q", "bad").await;
    let got = receive_one(&client, "q").await;
    let why = json!({ "action": "deadletter", "reason": "BadSchema", "description": "no total" });
    assert_eq!(settle(&client, "q", &got, why).await["status"], "ok");
    let answer = Answer::to(client.request(Method::POST, "/bus/q/$deadletterqueue/messages/head")).await.expect(201);
    assert_eq!(answer.header("deadletterreason"), "\"BadSchema\"");
    assert_eq!(answer.header("deadlettererrordescription"), "\"no total\"");
    assert_eq!(broker_properties(&answer)["DeadLetterSource"], "q");
}

// S003-81
#[tokio::test]
async fn a_deferred_message_is_received_by_its_number() {
    let server = with_queue("q", &json!({})).await;
    let client = server.client();
    send(&client, "q", "later").await;
    let got = receive_one(&client, "q").await;
    assert_eq!(settle(&client, "q", &got, json!({ "action": "defer" })).await["status"], "ok");
    assert!(receive(&client, "q", 1).await.is_empty());
    assert_eq!(counts(&client, "q").await["deferred"], 1);
    let peeked = client.get("/bus/q/peek?state=deferred").await.expect(200).json();
    assert_eq!(peeked["items"][0]["body"], "later");
    let numbers = json!({ "sequenceNumbers": [got["sequenceNumber"], 999] });
    let again = client.post("/bus/q/receive", &numbers).await.expect(200).json();
    assert_eq!(again["messages"].as_array().unwrap().len(), 1);
    assert_eq!(again["messages"][0]["deliveryCount"], 2);
    let held = client.post("/bus/q/receive", &numbers).await.expect(200).json();
    assert_eq!(held["messages"], json!([]), "it is locked");
    assert_eq!(settle(&client, "q", &again["messages"][0], json!({ "action": "complete" })).await["status"], "ok");
    let counts = counts(&client, "q").await;
    assert_eq!((counts["deferred"].as_u64(), counts["outgoing"].as_u64()), (Some(0), Some(1)));
}

// Waiting receivers are woken; the wait ends when a message comes, not before and not much later.
#[tokio::test]
async fn a_waiting_receiver_is_woken_by_a_message() {
    let server = with_queue("q", &json!({})).await;
    let client = server.client();
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { Answer::to(client.request(Method::POST, "/bus/q/messages/head?timeout=60")).await }
    });
    send(&client, "q", "wake").await;
    assert_eq!(waiting.await.unwrap().expect(201).text(), "wake");
}

#[tokio::test]
async fn a_wait_ends_with_the_server() {
    let mut server = with_queue("q", &json!({})).await;
    let client = server.client();
    let waiting =
        tokio::spawn(async move { Answer::to(client.request(Method::POST, "/bus/q/messages/head?timeout=300")).await });
    // The waiter is on its way; whether it waits already or comes late, it is answered or turned away in time.
    server.services.bus.line(&tidings::bus::Path::queue("q")).unwrap();
    tokio::task::yield_now().await;
    server.stop().await;
    let _ = waiting.await;
}

// Many clients write the dollar as they must elsewhere.
#[tokio::test]
async fn dead_letters_are_found_under_an_encoded_name() {
    let server = with_queue("q", &json!({})).await;
    let client = server.client();
    send(&client, "q", "bad").await;
    let got = receive_one(&client, "q").await;
    settle(&client, "q", &got, json!({ "action": "deadletter" })).await;
    for spelt in ["%24deadletterqueue", "%24DeadLetterQueue", "%24deadletter%71ueue", "$deadletterqueue"] {
        let seen = client.get(&format!("/bus/q/{spelt}/peek")).await.expect(200).json();
        assert_eq!(seen["items"][0]["body"], "bad", "{spelt}");
    }
    client.get("/bus/q/%25deadletterqueue/peek").await.problem(404);
    for spelt in ["$deadletterqueue", "$DeadLetterQueue"] {
        let problem = client.put(&format!("/bus/q/{spelt}/receive"), &json!({})).await.problem(405);
        assert_eq!(
            problem["detail"],
            "PUT is not possible on /bus/q/$deadletterqueue/receive; GET /openapi.json lists what is"
        );
    }
}

// S003-112, S003-68
#[tokio::test]
async fn a_message_without_a_correlation_id_gets_that_of_its_request() {
    let server = with_queue("q", &json!({})).await;
    let client = server.client();
    client.post_with("/bus/q/messages", &[("x-correlation-id", "trace-7")], "a").await.expect(201);
    assert_eq!(receive_one(&client, "q").await["correlationId"], "trace-7");
    let answer = client.post_as("/bus/q/messages", "text/plain", "b").await.expect(201);
    assert_eq!(receive_one(&client, "q").await["correlationId"], answer.header("x-correlation-id"));
}

#[tokio::test]
async fn what_is_not_there_is_gone_for_messages_and_not_found_for_management() {
    let server = TestServer::start().await;
    let client = server.client();
    client.post_as("/bus/none/messages", "text/plain", "a").await.problem(410);
    Answer::to(client.request(Method::POST, "/bus/none/messages/head")).await.problem(410);
    client.delete("/bus/none/messages/head").await.problem(410);
    client.delete("/bus/none/messages/1/2").await.problem(410);
    client.post("/bus/none/receive", &json!({})).await.problem(410);
    client.get("/bus/none/peek").await.problem(410);
    client.get("/bus/none").await.problem(404);
    client.delete("/bus/none").await.problem(404);
    client.get("/bus/none/subscriptions/s").await.problem(404);
}

// Scopes: ingest sends, consume receives and settles, operate manages, read looks.
#[tokio::test]
async fn each_call_needs_its_scope() {
    let server = with_queue("q", &json!({})).await;
    send(&server.client(), "q", "a").await;
    let calls = [
        (Method::POST, "/bus/q/messages", "ingest"),
        (Method::POST, "/bus/q/messages/head", "consume"),
        (Method::DELETE, "/bus/q/messages/head", "consume"),
        (Method::GET, "/bus/q/peek", "read"),
        (Method::GET, "/bus", "read"),
        (Method::POST, "/bus/q/purge", "operate"),
    ];
    for scope in ["ingest", "consume", "read", "operate", "tickets"] {
        let client = server.client_for(&[scope]).await;
        for (method, path, needs) in &calls {
            let answer = Answer::to(client.request(method.clone(), path)).await;
            assert_eq!(answer.status == 403, scope != *needs, "{method} {path} with {scope}: {}", answer.status);
        }
    }
    Answer::to(server.stranger().request(Method::POST, "/bus/q/messages")).await.problem(401);
}

// S003-81, S003-97: what a receiver says of a failure is durable when it is answered, and seen at once.
#[tokio::test]
async fn why_a_message_was_abandoned_is_stored_with_the_answer() {
    let clock = crate::support::server::clock();
    let store: Arc<dyn Store> = Arc::new(Memory::new(Arc::clone(&clock) as Arc<dyn Clock>));
    let mut first = TestServer::over(Arc::clone(&store), clock).await;
    let client = first.client();
    client.put("/bus/q", &json!({ "maxDeliveryCount": 3 })).await.expect(201);
    for body in ["a", "b"] {
        send(&client, "q", body).await;
    }
    let why = json!({ "action": "abandon", "reason": "NoPaper", "description": "tray 2" });
    let got = receive_one(&client, "q").await;
    assert_eq!(settle(&client, "q", &got, why.clone()).await["status"], "ok");
    let seen = client.get("/bus/q/peek").await.expect(200).json()["items"][0].clone();
    assert_eq!((&seen["body"], &seen["attempts"][0]["reason"]), (&json!("a"), &json!("NoPaper")));
    // It is the first again, and without a word nothing is written.
    let got = receive_one(&client, "q").await;
    assert_eq!((&got["body"], &got["deliveryCount"]), (&json!("a"), &json!(2)));
    settle(&client, "q", &got, json!({ "action": "abandon" })).await;
    first.stop().await;
    let second = TestServer::over_again(store, &first, |_| {}).await;
    let client = second.client();
    let got = receive_one(&client, "q").await;
    assert_eq!((&got["body"], &got["deliveryCount"]), (&json!("a"), &json!(3)));
    // The last word, too.
    assert_eq!(settle(&client, "q", &got, why).await["status"], "ok");
    let dead = client.post("/bus/q/$deadletterqueue/receive", &json!({ "waitSeconds": 10 })).await.expect(200).json();
    let attempts = dead["messages"][0]["attempts"].clone();
    let ends: Vec<_> = attempts.as_array().unwrap().iter().map(|one| (&one["outcome"], &one["reason"])).collect();
    let (abandoned, reason) = (json!("abandoned"), json!("NoPaper"));
    assert_eq!(ends, [(&abandoned, &reason), (&json!("lost"), &json!("Lost")), (&abandoned, &reason)]);
    assert_eq!(dead["messages"][0]["deadLetter"]["reason"], "MaxDeliveryCountExceeded");
    assert_eq!(counts(&client, "q").await["active"], 1);
}
