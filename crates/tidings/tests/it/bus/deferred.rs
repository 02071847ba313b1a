//! Deferred messages: one holder, one fate, whoever asks when.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tidings_store::memory::Memory;
use tidings_store::{Error, Health, Item, Key, KeyValue, Page, Query, Store, Table, Write};
use tokio::sync::Notify;

use super::{counts, receive_one, send, settle, with_queue};
use crate::support::{Client, TestServer, server};

/// Sends a message and defers it; gives its number.
async fn defer(client: &Client, body: &str) -> Value {
    send(client, "q", body).await;
    let got = receive_one(client, "q").await;
    assert_eq!(settle(client, "q", &got, json!({ "action": "defer" })).await["status"], "ok");
    got["sequenceNumber"].clone()
}

async fn ask(client: &Client, number: &Value) -> Vec<Value> {
    let answer = client.post("/bus/q/receive", &json!({ "sequenceNumbers": [number] })).await.expect(200).json();
    answer["messages"].as_array().unwrap().clone()
}

async fn deferred(client: &Client) -> (u64, usize) {
    let peeked = client.get("/bus/q/peek?state=deferred").await.expect(200).json();
    (counts(client, "q").await["deferred"].as_u64().unwrap(), peeked["items"].as_array().unwrap().len())
}

// S003-93, S003-94: at most maxDeliveryCount deliveries fail, and one fate.
#[tokio::test]
async fn an_exhausted_one_is_a_dead_letter_and_nothing_else() {
    let server = with_queue("q", &json!({ "maxDeliveryCount": 1 })).await;
    let client = server.client();
    for n in 0..20 {
        let number = defer(&client, &n.to_string()).await;
        let second = ask(&client, &number).await.pop().unwrap();
        assert_eq!(second["deliveryCount"], 2);
        assert_eq!(settle(&client, "q", &second, json!({ "action": "abandon" })).await["status"], "ok");
        assert_eq!(ask(&client, &number).await, Vec::<Value>::new(), "{n} failed as often as it may");
        let wait = json!({ "waitSeconds": 10 });
        let dead = client.post("/bus/q/$deadletterqueue/receive", &wait).await.expect(200).json();
        let dead = &dead["messages"][0];
        assert_eq!((&dead["body"], &dead["deadLetter"]["deliveries"]), (&json!(n.to_string()), &json!(2)));
        assert_eq!(ask(&client, &number).await, Vec::<Value>::new());
        settle(&client, "q/$deadletterqueue", dead, json!({ "action": "complete" })).await;
    }
    let counts = counts(&client, "q").await;
    assert_eq!((&counts["outgoing"], &counts["deadLettered"]), (&json!(0), &json!(0)));
    assert_eq!(deferred(&client).await, (0, 0));
}

// S003-81: an abandoned one waits as long as was said, or as its queue says, wherever it is; also over a restart.
#[tokio::test]
async fn an_abandoned_one_waits_before_it_can_be_had_again() {
    let fixed = json!({ "strategy": "fixed", "baseSeconds": 30, "maxSeconds": 30, "jitter": false });
    let server = with_queue("q", &json!({ "retry": fixed, "maxDeliveryCount": 9 })).await;
    let number = defer(&server.client(), "a").await;
    let token = server.admin_token().to_owned();
    let got = ask(&server.client(), &number).await.pop().unwrap();
    let later = json!({ "action": "abandon", "delaySeconds": 60 });
    assert_eq!(settle(&server.client(), "q", &got, later).await["status"], "ok");
    let server = server.restart().await;
    let client = server.client_with(&token);
    server.clock.advance(Duration::from_secs(59));
    assert_eq!(ask(&client, &number).await, Vec::<Value>::new());
    server.clock.advance(Duration::from_secs(1));
    let got = ask(&client, &number).await.pop().unwrap();
    settle(&client, "q", &got, json!({ "action": "abandon", "reason": "Busy" })).await;
    server.clock.advance(Duration::from_secs(29));
    assert_eq!(ask(&client, &number).await, Vec::<Value>::new());
    server.clock.advance(Duration::from_secs(1));
    let got = ask(&client, &number).await.pop().unwrap();
    settle(&client, "q", &got, json!({ "action": "abandon", "delaySeconds": 0 })).await;
    let got = ask(&client, &number).await.pop().unwrap();
    assert_eq!((&got["deliveryCount"], &got["attempts"][2]["reason"]), (&json!(5), &json!("Busy")));
    assert_eq!(deferred(&client).await, (1, 1));
}

/// A store on which who reads a deferred message can be made to wait with what was read.
struct Slow {
    inner: Memory,
    is_slow: AtomicBool,
    has_read: Notify,
    go_on: Notify,
}

#[async_trait::async_trait]
impl Store for Slow {
    async fn get(&self, table: &Table, key: &Key) -> Result<Option<Item>, Error> {
        let item = self.inner.get(table, key).await;
        let is_deferred = matches!(&key.partition, KeyValue::S(partition) if partition.ends_with("/f"));
        if is_deferred && self.is_slow.load(Ordering::Acquire) {
            self.has_read.notify_one();
            self.go_on.notified().await;
        }
        item
    }

    async fn query(&self, table: &Table, query: &Query) -> Result<Page, Error> {
        self.inner.query(table, query).await
    }

    async fn transact(&self, writes: Vec<Write>) -> Result<(), Error> {
        self.inner.transact(writes).await
    }

    async fn transact_each(&self, transactions: Vec<Vec<Write>>) -> Vec<Result<(), Error>> {
        self.inner.transact_each(transactions).await
    }

    fn health(&self) -> Health {
        self.inner.health()
    }
}

async fn over_slow() -> (TestServer, Arc<Slow>) {
    let clock = server::clock();
    let slow = Arc::new(Slow {
        inner: Memory::new(clock.clone()),
        is_slow: AtomicBool::new(false),
        has_read: Notify::new(),
        go_on: Notify::new(),
    });
    let server = TestServer::over(Arc::clone(&slow) as Arc<dyn Store>, clock).await;
    server.client().put("/bus/q", &json!({})).await.expect(201);
    (server, slow)
}

// A completed message never comes again: not to one who asked while it was locked, either.
#[tokio::test]
async fn a_completed_one_does_not_come_back() {
    let (server, slow) = over_slow().await;
    let client = server.client();
    let number = defer(&client, "once").await;
    let held = ask(&client, &number).await.pop().unwrap();
    slow.is_slow.store(true, Ordering::Release);
    let mut asking = tokio::spawn({
        let (client, number) = (client.clone(), number.clone());
        async move { ask(&client, &number).await }
    });
    // It is answered at once, or has read what is about to go.
    let answered = tokio::select! {
        answer = &mut asking => Some(answer.unwrap()),
        () = slow.has_read.notified() => None,
    };
    assert_eq!(settle(&client, "q", &held, json!({ "action": "complete" })).await["status"], "ok");
    slow.is_slow.store(false, Ordering::Release);
    slow.go_on.notify_one();
    let answer = match answered {
        Some(answer) => answer,
        None => asking.await.unwrap(),
    };
    assert_eq!(answer, Vec::<Value>::new());
    assert_eq!(deferred(&client).await, (0, 0));
    assert_eq!(counts(&client, "q").await["outgoing"], 1);
}

// Of two who ask at the same time one gets it.
#[tokio::test]
async fn one_that_somebody_looks_up_is_nobody_elses() {
    let (server, slow) = over_slow().await;
    let client = server.client();
    let number = defer(&client, "one").await;
    slow.is_slow.store(true, Ordering::Release);
    let asking = tokio::spawn({
        let (client, number) = (client.clone(), number.clone());
        async move { ask(&client, &number).await }
    });
    slow.has_read.notified().await;
    slow.is_slow.store(false, Ordering::Release);
    assert_eq!(ask(&client, &number).await, Vec::<Value>::new());
    slow.go_on.notify_one();
    let got = asking.await.unwrap();
    assert_eq!(got.len(), 1);
    assert_eq!(settle(&client, "q", &got[0], json!({ "action": "complete" })).await["status"], "ok");
    assert_eq!(deferred(&client).await, (0, 0));
}

// S003-97: every attempt is kept, also of a message that is received by its number.
#[tokio::test]
async fn every_attempt_is_kept() {
    let server = with_queue("q", &json!({ "lockSeconds": 30 })).await;
    let client = server.client();
    let number = defer(&client, "later").await;
    let second = ask(&client, &number).await.pop().unwrap();
    settle(&client, "q", &second, json!({ "action": "abandon", "reason": "Busy" })).await;
    assert_eq!(ask(&client, &number).await.len(), 1);
    server.clock.advance(Duration::from_secs(30));
    server.services.bus.settle_time().await.unwrap();
    let fourth = ask(&client, &number).await.pop().unwrap();
    settle(&client, "q", &fourth, json!({ "action": "deadletter", "reason": "BadTotal" })).await;
    let dead = receive_one(&client, "q/$deadletterqueue").await;
    let attempts = dead["attempts"].as_array().unwrap();
    let seen: Vec<_> =
        attempts.iter().map(|one| (one["delivery"].as_u64().unwrap(), one["outcome"].as_str().unwrap())).collect();
    assert_eq!(seen, [(1, "deferred"), (2, "abandoned"), (3, "expired"), (4, "failed")]);
    assert_eq!(attempts[1]["reason"], "Busy");
}

// S003-103, S003-105, SX-08: what is among the dead letters stays there for the desk and the monitors.
#[tokio::test]
async fn a_dead_letter_cannot_be_deferred() {
    let server = with_queue("q", &json!({})).await;
    let client = server.client();
    send(&client, "q", "a").await;
    let got = receive_one(&client, "q").await;
    settle(&client, "q", &got, json!({ "action": "deadletter" })).await;
    let dead = receive_one(&client, "q/$deadletterqueue").await;
    let refused = settle(&client, "q/$deadletterqueue", &dead, json!({ "action": "defer" })).await;
    assert_eq!(refused["status"], "failed");
    assert!(refused["error"].as_str().unwrap().contains("cannot be deferred"), "{refused}");
    assert_eq!(counts(&client, "q").await["deadLettered"], 1);
    settle(&client, "q/$deadletterqueue", &dead, json!({ "action": "abandon" })).await;
    let back = client.post("/bus/q/$deadletterqueue/resubmit", &json!({ "all": true })).await.expect(200).json();
    assert_eq!(back["resubmitted"], 1);
}

// S003-93: "not yet" is no failure, however often it is said; only what fails is counted against maxDeliveryCount.
#[tokio::test]
async fn deferring_is_no_failed_delivery() {
    let server = with_queue("q", &json!({ "maxDeliveryCount": 1, "lockSeconds": 30 })).await;
    let client = server.client();
    let number = defer(&client, "patience").await;
    for round in 2..=20 {
        let got = ask(&client, &number).await.pop().unwrap_or_else(|| panic!("gone in round {round}"));
        assert_eq!(got["deliveryCount"], round);
        assert_eq!(settle(&client, "q", &got, json!({ "action": "defer" })).await["status"], "ok");
    }
    assert_eq!(deferred(&client).await, (1, 1));
    let got = ask(&client, &number).await.pop().unwrap();
    assert_eq!(settle(&client, "q", &got, json!({ "action": "complete" })).await["status"], "ok");
    // One whose lock runs out has failed.
    let number = defer(&client, "impatience").await;
    server.clock.advance(Duration::from_secs(1));
    assert_eq!(ask(&client, &number).await.len(), 1);
    server.clock.advance(Duration::from_secs(30));
    server.services.bus.settle_time().await.unwrap();
    let dead = receive_one(&client, "q/$deadletterqueue").await;
    assert_eq!((&dead["body"], &dead["deadLetter"]["deliveries"]), (&json!("impatience"), &json!(2)));
    let letter = &dead["deadLetter"];
    assert_eq!(letter["firstFailure"], letter["lastFailure"], "the deferral was none: {letter}");
    assert_eq!(deferred(&client).await, (0, 0));
}

// S003-83: one of a key at a time, whether it is received in its turn or by its number.
#[tokio::test]
async fn an_ordered_key_has_one_message_out_deferred_or_not() {
    let server = with_queue("q", &json!({ "ordered": true })).await;
    let client = server.client();
    for (body, session) in [("a0", "a"), ("a1", "a"), ("a2", "a"), ("b0", "b")] {
        let properties = json!({ "SessionId": session }).to_string();
        client.post_with("/bus/q/messages", &[("brokerproperties", &properties)], body).await.expect(201);
    }
    let first = receive_one(&client, "q").await;
    assert_eq!(settle(&client, "q", &first, json!({ "action": "defer" })).await["status"], "ok");
    let number = &first["sequenceNumber"];
    let second = receive_one(&client, "q").await;
    assert_eq!(second["body"], "a1");
    assert_eq!(ask(&client, number).await, Vec::<Value>::new(), "a1 is out");
    assert_eq!(settle(&client, "q", &second, json!({ "action": "complete" })).await["status"], "ok");
    let by_number = ask(&client, number).await.pop().unwrap();
    // Another key is free, this one is not until its deferred message is settled.
    let other = receive_one(&client, "q").await;
    assert_eq!(other["body"], "b0");
    assert_eq!(super::receive(&client, "q", 5).await, Vec::<Value>::new());
    assert_eq!(settle(&client, "q", &by_number, json!({ "action": "complete" })).await["status"], "ok");
    assert_eq!(receive_one(&client, "q").await["body"], "a2");
}
