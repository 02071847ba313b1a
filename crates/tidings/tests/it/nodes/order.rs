//! What one client sends one after the other, each when the one before was answered, stays in order whichever node it
//! comes through; and what was answered on one node holds on the other.

use std::time::Duration;

use serde_json::{Value, json};

use super::together::{Two, two};
use crate::bus::{bodies, complete, receive, send};
use crate::support::{Client, TestServer};
use crate::ui::Visitor;

const MESSAGES: usize = 6;

async fn send_one(client: &Client, entity: &str, n: usize) -> Value {
    let properties = json!({ "SessionId": "s", "MessageId": format!("{entity}-{n}") }).to_string();
    let headers = [("content-type", "text/plain"), ("brokerproperties", properties.as_str())];
    client.post_with(&format!("/bus/{entity}/messages"), &headers, n.to_string()).await.expect(201).json()
}

/// Receives and completes one by one.
async fn one_by_one(two: &Two, path: &str) -> Vec<String> {
    let mut got = Vec::new();
    loop {
        for server in [&two.a, &two.b] {
            server.services.bus.collect_posts().await.unwrap();
        }
        let messages = receive(&two.a.client(), path, 1).await;
        let Some(message) = messages.first() else { return got };
        got.push(bodies(&messages)[0].to_owned());
        complete(&two.b.client(), path, message).await;
    }
}

// S003-83: the clock of these tests stands still, so no order comes from it.
#[tokio::test]
async fn messages_sent_through_two_nodes_in_turn_stay_in_order() {
    let two = two().await;
    for (n, settings) in [json!({ "ordered": true }), json!({})].iter().cycle().take(8).enumerate() {
        two.a.client().put(&format!("/bus/q{n}"), settings).await.expect(201);
    }
    two.a.client().put("/bus/t", &json!({ "kind": "topic" })).await.expect(201);
    for name in ["s1", "s2"] {
        two.b.client().put(&format!("/bus/t/subscriptions/{name}"), &json!({ "ordered": true })).await.expect(201);
    }
    two.settle().await;
    let expected: Vec<String> = (0..MESSAGES).map(|n| n.to_string()).collect();
    let owners: Vec<&str> = (0..8).map(|n| two.owner(&format!("q{n}")).0.url.as_str()).collect();
    assert!(owners.iter().any(|url| *url != owners[0]), "both have some");
    for n in 0..8 {
        let queue = format!("q{n}");
        for n in 0..MESSAGES {
            let server = if n % 2 == 0 { &two.a } else { &two.b };
            send_one(&server.client(), &queue, n).await;
        }
        assert_eq!(one_by_one(&two, &queue).await, expected, "{queue}");
    }
    // The other way round, and several at once: a batch is one after the other, too.
    for n in 0..MESSAGES {
        let server = if n % 2 == 0 { &two.b } else { &two.a };
        send_one(&server.client(), "t", n).await;
    }
    for name in ["s1", "s2"] {
        assert_eq!(one_by_one(&two, &format!("t/subscriptions/{name}")).await, expected, "{name}");
    }
}

// The same while the owner takes in and hands out: nothing is lost between the two ways.
#[tokio::test]
async fn every_message_is_there_once_while_both_nodes_send_at_the_same_time() {
    let two = two().await;
    two.a.client().put("/bus/q", &json!({})).await.expect(201);
    two.settle().await;
    let sending = |server: &TestServer, name: &'static str| {
        let client = server.client();
        async move {
            for n in 0..40 {
                send(&client, "q", &format!("{name}{n:02}")).await;
            }
        }
    };
    tokio::join!(sending(&two.a, "a"), sending(&two.b, "b"), sending(&two.a, "c"));
    let got = one_by_one(&two, "q").await;
    for name in ["a", "b", "c"] {
        let of: Vec<&String> = got.iter().filter(|body| body.starts_with(name)).collect();
        assert!(of.len() == 40 && of.is_sorted(), "{name}: {got:?}");
    }
}

// A topic without subscriptions drops what it gets: a subscription that was answered must be known everywhere.
#[tokio::test]
async fn what_was_answered_on_one_node_holds_for_what_is_sent_on_the_other() {
    let two = two().await;
    let (a, b) = (two.a.client(), two.b.client());
    for n in 0..3 {
        let topic = format!("t{n}");
        a.put(&format!("/bus/{topic}"), &json!({ "kind": "topic" })).await.expect(201);
        assert_eq!(send(&a, &topic, "nobody").await["messages"], json!([]));
        b.put(&format!("/bus/{topic}/subscriptions/s"), &json!({})).await.expect(201);
        let sent = send(&a, &topic, "heard").await;
        assert_eq!(sent["messages"].as_array().unwrap().len(), 1, "{sent}");
        b.delete(&format!("/bus/{topic}/subscriptions/s")).await.expect(204);
        assert_eq!(send(&a, &topic, "nobody again").await["messages"], json!([]));
    }
    a.put("/bus/q", &json!({})).await.expect(201);
    b.get("/bus/q").await.expect(200);
    b.put("/bus/q", &json!({ "duplicateWindowSeconds": 600, "lockSeconds": 7 })).await.expect(200);
    let seen = a.get("/bus/q").await.expect(200).json();
    assert_eq!(seen["lockSeconds"], 7, "{seen}");
    for client in [&a, &a, &b, &a] {
        send_one(client, "q", 1).await;
    }
    two.settle().await;
    assert_eq!(one_by_one(&two, "q").await, ["1"]);
}

// A purge that was answered is behind whatever is sent next, anywhere.
#[tokio::test]
async fn nothing_sent_after_a_purge_goes_with_it() {
    let two = two().await;
    let (a, b) = (two.a.client(), two.b.client());
    a.put("/bus/q", &json!({})).await.expect(201);
    two.settle().await;
    for (purging, sending) in [(&a, &b), (&b, &a)] {
        send(sending, "q", "old").await;
        one_look(&two).await;
        purging.post("/bus/q/purge", &json!({})).await.expect(200);
        send(sending, "q", "new").await;
        assert_eq!(one_by_one(&two, "q").await, ["new"]);
    }
}

async fn one_look(two: &Two) {
    for server in [&two.a, &two.b] {
        server.services.bus.collect_posts().await.unwrap();
    }
}

// S003-104: what waits is in the memory of one node, and shown by all of them.
#[tokio::test]
async fn a_trace_is_the_same_on_both_nodes() {
    let two = two().await;
    for n in 0..4 {
        two.a.client().put(&format!("/bus/q{n}"), &json!({ "lockSeconds": 60 })).await.expect(201);
    }
    two.settle().await;
    for n in 0..4 {
        let headers = [("content-type", "text/plain"), ("x-correlation-id", "together")];
        for _ in 0..2 {
            two.a.client().post_with(&format!("/bus/q{n}/messages"), &headers, "x").await.expect(201);
        }
    }
    one_look(&two).await;
    for n in 0..4 {
        // Asking for one brings the others into memory.
        assert_eq!(receive(&two.b.client(), &format!("q{n}"), 1).await.len(), 1);
    }
    let seen = [&two.a, &two.b].map(|server| server.client());
    let first = seen[0].get("/trace/together").await.expect(200).json();
    let second = seen[1].get("/trace/together").await.expect(200).json();
    assert_eq!(first, second);
    let states: Vec<&str> =
        first["items"].as_array().unwrap().iter().filter_map(|item| item["details"]["state"].as_str()).collect();
    let count = |state: &str| states.iter().filter(|known| **known == state).count();
    assert_eq!((count("locked"), count("waiting")), (4, 4), "{first}");
    // Another node is told what this one has, and no more.
    for server in [&two.a, &two.b] {
        let page = Visitor::admin(server).await.get("/ui/trace/together").await.expect(200).text();
        assert_eq!(page.matches("locked").count().min(4), 4, "{page}");
    }
}

// S002-66: a schedule of a node that is gone goes on at the other one's next look.
#[tokio::test]
async fn a_schedule_goes_on_when_the_node_that_made_it_is_gone() {
    let mut two = two().await;
    let schedule = json!({ "every": "15m", "message_type": "reminder", "payload": { "text": "again" } });
    // Its worker has looked and found nothing.
    assert_eq!(two.b.client().get("/api/schedules").await.expect(200).json()["items"], json!([]));
    two.a.client().put("/api/schedules/s", &schedule).await.expect(201);
    two.a.stop().await;
    two.clock.advance(Duration::from_secs(15 * 60));
    // Told to whoever would send it.
    let made = two.b.services.messages.signals.of("ntfy").unwrap().noted();
    tokio::time::timeout(Duration::from_secs(10), made).await.expect("within a few seconds, not half a minute");
    let list = two.b.client().get("/api/messages?message_type=reminder").await.expect(200).json();
    assert_eq!(list["items"].as_array().unwrap().len(), 1, "{list}");
}

crate::support::on_dynamodb! {
    messages_sent_through_two_nodes_in_turn_stay_in_order,
    what_was_answered_on_one_node_holds_for_what_is_sent_on_the_other,
    a_trace_is_the_same_on_both_nodes,
}
