//! Events that rules put on the bus, in the events' own transactions.

use serde_json::{Value, json};
use tidings::messages::deliver::Deliverer;

use super::{counts, receive, receive_one};
use crate::support::{TestServer, engines};

fn rule(entity: &str) -> Value {
    json!({
        "pattern": { "eventType": [{ "prefix": "order." }] },
        "targets": [{ "channel": "queue", "entity": entity }],
    })
}

// SX-05: the message is there as soon as the event is acknowledged, and the event knows its number; where nodes share the
// store, the queue's owner gives it one afterwards.
#[tokio::test]
async fn a_rule_puts_an_event_on_a_queue() {
    let server = TestServer::start().await;
    let client = server.client();
    client.put("/bus/orders", &json!({})).await.expect(201);
    client.put("/rules/to-orders", &rule("orders")).await.expect(201);
    let event = json!({ "eventId": "e-1", "eventType": "order.paid", "source": "shop", "correlationId": "c-7", "data": { "n": 1 } });
    client.send(&event).await;
    let got = receive_one(&client, "orders").await;
    let body: Value = serde_json::from_str(got["body"].as_str().unwrap()).unwrap();
    assert_eq!((body["eventId"].as_str(), body["data"]["n"].as_u64()), (Some("e-1"), Some(1)));
    assert_eq!((got["messageId"].as_str(), got["subject"].as_str()), (Some("e-1"), Some("order.paid")));
    assert_eq!((got["correlationId"].as_str(), got["contentType"].as_str()), (Some("c-7"), Some("application/json")));
    assert_eq!(got["properties"]["rule"], "to-orders");
    let stored = client.get("/events/e-1").await.expect(200).json();
    let queue = &stored["outcome"]["queue"][0];
    assert_eq!((queue["entity"].as_str(), queue["rule"].as_str()), (Some("orders"), Some("to-orders")));
    let number = if engines::is_dynamodb() { &Value::Null } else { &got["sequenceNumber"] };
    assert_eq!(&queue["sequence_number"], number);
    // A duplicate of the event puts nothing on the queue.
    client.post("/events", &event).await.expect(202);
    assert_eq!(counts(&client, "orders").await["incoming"], 1);
}

#[tokio::test]
async fn two_rules_and_a_topic_are_one_transaction() {
    let server = TestServer::start().await;
    let client = server.client();
    client.put("/bus/orders", &json!({})).await.expect(201);
    client.put("/bus/copies", &json!({})).await.expect(201);
    client.put("/bus/t", &json!({ "kind": "topic" })).await.expect(201);
    for (name, key) in [("paid", "order.paid"), ("all", "order.#"), ("none", "other")] {
        let rules = json!({ "rules": [{ "name": "k", "key": key }] });
        client.put(&format!("/bus/t/subscriptions/{name}"), &rules).await.expect(201);
    }
    client.put("/rules/a", &rule("orders")).await.expect(201);
    client.put("/rules/b", &rule("copies")).await.expect(201);
    client.put("/rules/c", &rule("t")).await.expect(201);
    client.put("/rules/d", &rule("orders")).await.expect(201);
    for _ in 0..3 {
        client.send(&json!({ "eventType": "order.paid" })).await;
    }
    assert_eq!(receive(&client, "orders", 99).await.len(), 3, "the last rule sends nothing twice");
    assert_eq!(receive(&client, "copies", 99).await.len(), 3);
    assert_eq!(receive(&client, "t/subscriptions/paid", 99).await.len(), 3);
    assert_eq!(receive(&client, "t/subscriptions/all", 99).await.len(), 3);
    assert!(receive(&client, "t/subscriptions/none", 99).await.is_empty());
}

#[tokio::test]
async fn an_entity_that_is_not_there_is_told_by_a_message() {
    let server = TestServer::start().await;
    let client = server.client();
    client.put("/rules/lost", &rule("nowhere")).await.expect(201);
    let event = client.send(&json!({ "eventType": "order.paid" })).await;
    let stored = client.get(&format!("/events/{}", event["eventId"].as_str().unwrap())).await.expect(200).json();
    let sent = &stored["outcome"]["queue"][0];
    assert!(!sent["message_id"].as_str().unwrap().is_empty(), "{stored}");
    assert!(sent["sequence_number"].is_null());
}

// The words of the bus have no case, as in Service Bus (S003-25 writes `Subscriptions`).
#[tokio::test]
async fn the_case_of_subscriptions_and_dead_letters_does_not_count() {
    let server = TestServer::start().await;
    let client = server.client();
    let path = "/bus/domain-events-topic/Subscriptions/notifications-sub";
    client.get(path).await.expect(200);
    client.post(&format!("{path}/$DeadLetterQueue/receive"), &json!({})).await.expect(200);
    client.get(&format!("{path}/$DeadLetterQueue/peek?limit=5")).await.expect(200);
    client.get(&format!("{path}/$DeadLetterQueue/nothing")).await.problem(404);
    server.stranger().get(path).await.problem(401);
    client.get("/BUS/x").await.problem(404);
}

// A push subscription delivers each message as a message of the webhook channel.
#[tokio::test]
async fn a_push_subscription_makes_webhook_messages() {
    let server = TestServer::start().await;
    let client = server.client();
    client.put("/bus/t", &json!({ "kind": "topic" })).await.expect(201);
    let push = json!({ "push": { "url": "https://hooks.example.com/orders", "secret": "whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0" } });
    let made = client.put("/bus/t/subscriptions/hook", &push).await.expect(201).json();
    assert_eq!(made["push"]["secret"], "***");
    client
        .post_with("/bus/t/messages", &[("x-correlation-id", "c-9"), ("content-type", "text/plain")], "hello")
        .await
        .expect(201);
    let mut items = Value::Null;
    for _ in 0..5000 {
        items = client.get("/api/messages?message_type=bus_push").await.expect(200).json()["items"].clone();
        if items.as_array().is_some_and(|items| !items.is_empty()) {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(
        (items[0]["payload"]["body"].as_str(), items[0]["correlation_id"].as_str()),
        (Some("hello"), Some("c-9"))
    );
    // The path of many a webhook's address is its password.
    assert_eq!(items[0]["target"]["url"], "https://hooks.example.com/***");
    assert!(!items.to_string().contains("whsec_"));
    let bad = json!({ "push": { "url": "ftp://x", "secret": "" } });
    assert_eq!(client.put("/bus/t/subscriptions/hook", &bad).await.bad_fields(), ["push.url", "push.secret"]);
}

crate::support::on_dynamodb! {
    a_rule_puts_an_event_on_a_queue,
}

fn body_of(message: &Value) -> Value {
    serde_json::from_str(message["body"].as_str().unwrap()).unwrap()
}

// S003-70, S003-80: the largest event arrives whole and under its own id.
#[tokio::test]
async fn an_event_at_the_limit_arrives_as_it_is() {
    let server = TestServer::start().await;
    let client = server.client();
    client.put("/bus/orders", &json!({})).await.expect(201);
    client.put("/rules/to-orders", &rule("orders")).await.expect(201);
    let mut event = json!({ "eventId": "large", "eventType": "order.paid", "source": "shop", "data": { "text": "" } });
    let room = 262_144 - event.to_string().len();
    event["data"]["text"] = "x".repeat(room).into();
    client.send(&event).await;
    let got = receive_one(&client, "orders").await;
    assert_eq!((got["messageId"].as_str(), got["properties"]["source"].as_str()), (Some("large"), Some("shop")));
    assert_eq!(body_of(&got)["data"], event["data"]);
}

// SX-08: what comes again from the dead letters is what would have come at first, unless somebody changed it.
#[tokio::test]
async fn an_event_whose_queue_was_not_there_arrives_as_it_is() {
    let server = TestServer::start().await;
    let client = server.client();
    client.put("/rules/to-orders", &rule("orders")).await.expect(201);
    for id in ["e-1", "e-2"] {
        client.send(&json!({ "eventId": id, "eventType": "order.paid", "source": "shop", "data": { "n": 17 } })).await;
    }
    let deliver = async || Deliverer::new(&server.services, "queue").drain().await.unwrap();
    deliver().await;
    let letters = client.get("/dead-letters").await.expect(200).json()["items"].as_array().unwrap().clone();
    client.put("/bus/orders", &json!({})).await.expect(201);
    let of = |id: &str| letters.iter().find(|letter| letter["event_id"] == id).unwrap()["id"].as_str().unwrap();
    client.post(&format!("/dead-letters/{}/resubmit", of("e-1")), &json!({})).await.expect(201);
    let edit = json!({ "payload": { "title": "t", "text": "by hand" } });
    client.post(&format!("/dead-letters/{}/resubmit", of("e-2")), &edit).await.expect(201);
    deliver().await;
    let got = receive(&client, "orders", 9).await;
    assert_eq!(got.len(), 2);
    let whole = got.iter().find(|message| message["messageId"] == "e-1").expect("its own id");
    assert_eq!((&body_of(whole)["eventId"], &body_of(whole)["data"]), (&json!("e-1"), &json!({ "n": 17 })));
    assert_eq!((&whole["properties"]["eventVersion"], &whole["properties"]["source"]), (&json!("1.0"), &json!("shop")));
    let edited = got.iter().find(|message| message["messageId"] != "e-1").unwrap();
    assert_eq!(body_of(edited)["text"], "by hand");
}
