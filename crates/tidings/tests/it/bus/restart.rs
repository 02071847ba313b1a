//! What survives a restart and a crash.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tidings::bus::definition::{Definition, Kind};
use tidings::bus::entity::Origin;
use tidings::bus::{Bus, Message, Path};
use tidings::clock::SystemIds;
use tidings_core::time::{Clock, ManualClock};
use tidings_store::Store;
use tidings_store::memory::Memory;
use tokio::sync::watch;

use super::{bodies, complete, counts, receive, receive_one, send, settle, with_queue};
use crate::support::server;

#[tokio::test]
async fn messages_counts_and_numbers_survive_a_restart() {
    let server = with_queue("q", &json!({ "lockSeconds": 30, "maxDeliveryCount": 3 })).await;
    let client = server.client();
    let mut numbers = Vec::new();
    for body in ["a", "b", "c", "d"] {
        numbers.push(send(&client, "q", body).await["messages"][0]["sequenceNumber"].as_u64().unwrap());
    }
    let got = receive(&client, "q", 3).await;
    complete(&client, "q", &got[0]).await;
    settle(&client, "q", &got[1], json!({ "action": "deadletter" })).await;
    let before = counts(&client, "q").await;
    let token = server.admin_token().to_owned();
    let server = server.restart().await;
    let client = server.client_with(&token);
    let after = counts(&client, "q").await;
    for name in ["deadLettered", "incoming", "outgoing", "scheduled", "deferred"] {
        assert_eq!(after[name], before[name], "{name}");
    }
    // The lock died with the process: its message waits again, and was delivered once.
    assert_eq!((after["active"].as_u64(), after["locked"].as_u64()), (Some(2), Some(0)));
    let got = receive(&client, "q", 10).await;
    assert_eq!(bodies(&got), ["c", "d"]);
    assert_eq!((got[0]["deliveryCount"].as_u64(), got[1]["deliveryCount"].as_u64()), (Some(2), Some(1)));
    let new = send(&client, "q", "e").await["messages"][0]["sequenceNumber"].as_u64().unwrap();
    assert!(new > numbers[3], "{new}");
    assert_eq!(client.get("/bus/q").await.json()["maxDeliveryCount"], 3);
}

/// A broker over a store, as a process that starts has it.
async fn broker(store: &Arc<dyn Store>, clock: &Arc<ManualClock>) -> Arc<Bus> {
    let clock = Arc::clone(clock) as Arc<dyn Clock>;
    // Nobody stops it: whoever could is kept for ever.
    let (stop, stopping) = watch::channel(false);
    std::mem::forget(stop);
    Bus::open(Arc::clone(store), clock, Arc::new(SystemIds::default()), stopping).await.unwrap()
}

// A task that is cancelled while the bus closes leaves its messages undecided, and nobody is there to decide them.
#[tokio::test]
async fn an_undecided_message_outlives_the_bus_quietly() {
    let clock = server::clock();
    let store: Arc<dyn Store> = Arc::new(Memory::new(clock.clone()));
    let bus = broker(&store, &clock).await;
    bus.declare(&[(Path::queue("q"), Definition::new(Kind::Queue), Origin::File)]).await.unwrap();
    let message = Message { id: "late".to_owned(), ..Message::default() };
    let prepared = bus.prepare("q", message.clone()).await.unwrap();
    let waiting = bus.prepare("q", message).await.unwrap();
    drop(waiting);
    drop(bus);
    drop(prepared);
    let line = broker(&store, &clock).await.line(&Path::queue("q")).unwrap();
    assert!(line.receive(1, Duration::ZERO, None).await.unwrap().is_empty(), "neither was written");
}

// A message that ends the process is counted, and ends among the dead letters (S003-93).
#[tokio::test]
async fn a_message_that_ends_the_process_is_dead_lettered_in_the_end() {
    let clock = server::clock();
    let store: Arc<dyn Store> = Arc::new(Memory::new(clock.clone()));
    let path = Path::queue("q");
    let bus = broker(&store, &clock).await;
    let definition = Definition { max_delivery_count: 3, ..Definition::new(Kind::Queue) };
    bus.declare(&[(path.clone(), definition, Origin::File)]).await.unwrap();
    bus.send("q", vec![Message { id: "deadly".to_owned(), ..Message::default() }]).await.unwrap();
    for delivery in 1..=3 {
        // A process that is killed settles nothing and keeps nothing else.
        let line = broker(&store, &clock).await.line(&path).unwrap();
        let taken = line.receive(1, Duration::ZERO, Some("worker")).await.unwrap();
        assert_eq!(taken[0].held.deliveries, delivery);
        clock.advance(Duration::from_secs(1));
    }
    let bus = broker(&store, &clock).await;
    assert!(bus.line(&path).unwrap().receive(1, Duration::ZERO, None).await.unwrap().is_empty());
    let dead = bus.line(&path.dead_letters()).unwrap();
    let taken = dead.receive(1, Duration::from_secs(10), None).await.unwrap();
    let letter = taken[0].held.message.dead.clone().unwrap();
    assert_eq!((letter.reason.as_str(), letter.deliveries), ("MaxDeliveryCountExceeded", 3));
    // S003-97, S003-98: what is known of deliveries that nobody ended.
    let attempts = &taken[0].held.message.attempts;
    let seen: Vec<_> = attempts.iter().map(|one| (one.delivery, &*one.outcome, one.at.to_string())).collect();
    let at = |second: u32| format!("2026-03-01T12:00:0{second}Z");
    assert_eq!(seen, [(1, "lost", at(0)), (2, "lost", at(1)), (3, "lost", at(2))]);
    assert_eq!(letter.first_failure.map(|at| at.to_string()), Some(at(0)));
    assert_eq!(letter.last_failure.map(|at| at.to_string()), Some(at(2)));
    assert_eq!(letter.last_consumer.as_deref(), Some("worker"));
}

#[tokio::test]
async fn the_head_is_found_again_behind_what_is_gone() {
    let server = with_queue("q", &json!({})).await;
    let client = server.client();
    let batch: Vec<Value> = (0..1000).map(|n| json!({ "Body": format!("{n}") })).collect();
    let text = Value::from(batch).to_string();
    for _ in 0..2 {
        client.post_as("/bus/q/messages", "application/vnd.microsoft.servicebus.json", text.clone()).await.expect(201);
    }
    for _ in 0..5 {
        let got = receive(&client, "q", 256).await;
        let done: Vec<Value> =
            got.iter().map(|m| json!({ "lockToken": m["lockToken"], "action": "complete" })).collect();
        client.post("/bus/q/settle", &done.into()).await.expect(200);
    }
    let token = server.admin_token().to_owned();
    let server = server.restart().await;
    let client = server.client_with(&token);
    assert_eq!(receive_one(&client, "q").await["body"], "280");
    assert_eq!(counts(&client, "q").await["active"], 719);
    server.clock.advance(Duration::from_secs(1));
}
