//! What an action makes of a copy: at most what a sender may send, and never anybody else's failure.

use serde_json::{Value, json};

use super::{counts, receive, receive_one};
use crate::rules::entries;
use crate::support::{Client, TestServer};

const BATCH: &str = "application/vnd.microsoft.servicebus.json";

/// Doubles a text of 22 characters eleven times, and keeps it fourteen times: 44 KiB each.
fn fattening() -> String {
    let mut action = "SET a=eventType+eventType;".to_owned();
    for (from, to) in ('a'..='j').zip('b'..='k') {
        action += &format!("SET {to}={from}+{from};");
    }
    (0..14).for_each(|n| action += &format!("SET z{n}=k;"));
    action
}

async fn with_action(action: &str) -> TestServer {
    let server = TestServer::start().await;
    let client = server.client();
    client.put("/bus/t", &json!({ "kind": "topic" })).await.expect(201);
    let rules = json!({ "rules": [{ "name": "r", "sql": "1=1", "action": action }] });
    client.put("/bus/t/subscriptions/s", &rules).await.expect(201);
    client.put("/bus/t/subscriptions/other", &json!({})).await.expect(201);
    server
}

/// Sends one message; whether the action's copy was taken. The other subscription has its copy whatever the action does.
async fn is_taken(client: &Client, broker: Value, properties: Value, body: &str) -> bool {
    let list = json!([{ "Body": body, "BrokerProperties": broker, "UserProperties": properties }]);
    client.post_as("/bus/t/messages", BATCH, list.to_string()).await.expect(201);
    assert_eq!(receive(client, "t/subscriptions/other", 9).await.len(), 1);
    let (taken, dead) =
        (receive(client, "t/subscriptions/s", 9).await, receive(client, "t/subscriptions/s/$deadletterqueue", 9).await);
    assert_eq!(taken.len() + dead.len(), 1);
    if let Some(dead) = dead.first() {
        assert_eq!(dead["deadLetter"]["reason"], "FilterEvaluationException");
        assert_eq!(dead["body"], body, "the message as it was sent");
        let properties = dead["properties"].as_object().unwrap().len();
        assert_eq!(properties, list[0]["UserProperties"].as_object().unwrap().len() + 2);
    }
    dead.is_empty()
}

// S003-73, S003-78: events, rules and other subscriptions do not pay for one subscription's action.
#[tokio::test]
async fn a_copy_that_is_made_too_large_is_a_dead_letter_of_its_subscription_alone() {
    let server = with_action(&fattening()).await;
    let client = server.client();
    let targets = json!([{ "channel": "queue", "entity": "t" }, { "channel": "inbox", "users": ["ann"] }]);
    let pattern = json!({ "eventType": ["order.paid.in.full.now"] });
    client.put("/rules/r", &json!({ "pattern": pattern, "targets": targets })).await.expect(201);
    client.send(&json!({ "eventId": "e", "eventType": "order.paid.in.full.now" })).await;
    assert_eq!(receive_one(&client, "t/subscriptions/other").await["messageId"], "e");
    assert_eq!(entries(&*server.services.store, "ann").await.len(), 1);
    let dead = receive_one(&client, "t/subscriptions/s/$deadletterqueue").await;
    assert_eq!((&dead["messageId"], &dead["deadLetter"]["source"]), (&json!("e"), &json!("t/subscriptions/s")));
    let why = dead["deadLetter"]["description"].as_str().unwrap();
    assert!(why.contains("the action of rule r: its properties would have") && why.contains("65536"), "{why}");
    assert_eq!(counts(&client, "t/subscriptions/s").await["active"], 0);
}

// The same on a topic that the business calls write to.
#[tokio::test]
async fn a_business_call_does_not_fail_for_somebodys_action() {
    let server = TestServer::start().await;
    let client = server.client();
    let rules = json!({ "rules": [{ "name": "r", "sql": "1=1", "action": fattening() }] });
    client.put("/bus/domain-events-topic/subscriptions/fat", &rules).await.expect(201);
    let request = json!({ "userId": "7c9e6679-7425-40de-944b-e07fc1f90ae7", "description": "cold" });
    let request = client.post("/service-requests", &request).await.expect(201).json();
    let path = format!("/service-requests/{}", request["serviceRequestId"].as_str().unwrap());
    client.patch(&path, &json!({ "status": "closed" })).await.expect(200);
    assert_eq!(client.get(&path).await.expect(200).json()["status"], "closed");
    assert_eq!(counts(&client, "domain-events-topic/subscriptions/fat").await["deadLettered"], 1);
}

#[tokio::test]
async fn texts_and_names_of_a_copy_have_their_limits() {
    for (slot, most) in [("sys.Label", 128), ("sys.MessageId", 128), ("sys.SessionId", 128), ("sys.To", 1024)] {
        let server = with_action(&format!("SET {slot}=p")).await;
        for (chars, good) in [(most - 1, true), (most, true), (most + 1, false)] {
            let properties = json!({ "p": "é".repeat(chars) });
            let taken = is_taken(&server.client(), json!({ "MessageId": "m" }), properties, "x").await;
            assert_eq!(taken, good, "{slot} {chars}");
        }
    }
    let server = with_action("SET n=1").await;
    for (chars, good) in [(127, true), (128, true), (129, false)] {
        let rule = json!({ "name": "r", "sql": "1=1", "action": format!("SET {}=1", "n".repeat(chars)) });
        let answer = server.client().put("/bus/t/subscriptions/s", &json!({ "rules": [rule] })).await;
        assert_eq!(answer.status, if good { 200 } else { 400 }, "{chars}");
    }
    // A scheduled message is found by its id, which is part of a key.
    let server = with_action("SET sys.MessageId=p").await;
    let broker = json!({ "ScheduledEnqueueTimeUtc": "2027-01-01T00:00:00Z" });
    let list = json!([{ "Body": "x", "BrokerProperties": broker, "UserProperties": { "p": "x".repeat(2000) } }]);
    server.client().post_as("/bus/t/messages", BATCH, list.to_string()).await.expect(201);
    assert_eq!(counts(&server.client(), "t/subscriptions/s").await["deadLettered"], 1);
    assert_eq!(counts(&server.client(), "t/subscriptions/other").await["scheduled"], 1);
}

#[tokio::test]
async fn a_copy_has_as_many_properties_as_a_message_may_have() {
    let server = with_action("SET one=1;SET two=2").await;
    for (count, good) in [(253, true), (254, true), (255, false)] {
        let properties: serde_json::Map<_, _> = (0..count).map(|n| (format!("p{n}"), json!(n))).collect();
        assert_eq!(is_taken(&server.client(), json!({}), Value::Object(properties), "x").await, good, "{count}");
    }
}

#[tokio::test]
async fn a_copy_has_as_many_bytes_as_a_message_may_have() {
    let server = with_action("SET added=p").await;
    let client = server.client();
    let broker = json!({ "MessageId": "m", "CorrelationId": "c" });
    // The id and the correlation id, the names, and the text twice.
    let own = "mc".len() + "p".len() + "added".len();
    for (bytes, good) in [(65_534, true), (65_536, true), (65_538, false)] {
        let properties = json!({ "p": "x".repeat((bytes - own) / 2) });
        assert_eq!(is_taken(&client, broker.clone(), properties, "x").await, good, "{bytes}");
    }
    for (bytes, good) in [(262_143, true), (262_144, true), (262_145, false)] {
        let body = "x".repeat(bytes - own - 2);
        assert_eq!(is_taken(&client, broker.clone(), json!({ "p": "x" }), &body).await, good, "{bytes}");
    }
    // An action that adds nothing takes nothing away: the rule's name is ours.
    let server = with_action("SET p='y'").await;
    let body = "x".repeat(262_144 - "mcpx".len());
    assert!(is_taken(&server.client(), broker, json!({ "p": "x" }), &body).await);
}
