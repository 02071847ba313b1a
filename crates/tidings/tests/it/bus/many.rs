//! Topics with more subscriptions than one transaction has room for.

use std::sync::Arc;

use serde_json::{Value, json};
use tidings::bus::definition::{Definition, Kind};
use tidings::bus::entity::Origin;
use tidings::bus::{Bus, BusError, Message, Path};
use tidings::clock::SystemIds;
use tidings_core::time::{Clock, ManualClock};
use tidings_store::Store;
use tidings_store::memory::Memory;
use tokio::sync::watch;

use crate::support::process::{Running, tidings};
use crate::support::{Client, server};

async fn broker(store: &Arc<dyn Store>, clock: &Arc<ManualClock>) -> Arc<Bus> {
    let clock = Arc::clone(clock) as Arc<dyn Clock>;
    // Nobody stops it: whoever could is kept for ever.
    let (stop, stopping) = watch::channel(false);
    std::mem::forget(stop);
    Bus::open(Arc::clone(store), clock, Arc::new(SystemIds::default()), stopping).await.unwrap()
}

async fn put(bus: &Bus, path: &Path, kind: Kind) -> Result<(), BusError> {
    let planned = bus.plan_put(path, Definition::new(kind), Origin::Api, "test").await?;
    bus.shared.store.transact(planned.writes.clone()).await?;
    bus.carried_out(planned).await?;
    Ok(())
}

fn path(n: usize) -> Path {
    Path::subscription("t", format!("s{n:04}"))
}

async fn with_topic(subscriptions: usize) -> (Arc<dyn Store>, Arc<ManualClock>, Arc<Bus>) {
    let clock = server::clock();
    let store: Arc<dyn Store> = Arc::new(Memory::new(clock.clone()));
    let bus = broker(&store, &clock).await;
    put(&bus, &Path::queue("t"), Kind::Topic).await.unwrap();
    for n in 0..subscriptions {
        put(&bus, &path(n), Kind::Subscription).await.unwrap();
    }
    (store, clock, bus)
}

fn message(id: &str) -> Message {
    Message { id: id.to_owned(), correlation_id: Some("c".to_owned()), ..Message::default() }
}

/// The ids of the messages of a subscription, in order.
async fn ids(bus: &Bus, n: usize) -> Vec<String> {
    let line = bus.line(&path(n)).unwrap();
    let seen = line.peek(tidings::bus::desk::Which::Active, 0, 100).await.unwrap();
    seen.into_iter().map(|seen| seen.message.message.id).collect()
}

#[tokio::test]
async fn a_topic_has_at_most_2000_subscriptions_and_each_gets_a_copy() {
    let (_, _, bus) = with_topic(1999).await;
    put(&bus, &path(1999), Kind::Subscription).await.unwrap();
    let error = put(&bus, &path(2000), Kind::Subscription).await.unwrap_err();
    assert!(matches!(error, BusError::TooMany(_)), "{error}");
    // Changing one is still possible.
    put(&bus, &path(1999), Kind::Subscription).await.unwrap();
    let sent = bus.send("t", vec![message("a"), message("b")]).await.unwrap();
    assert_eq!(sent.iter().map(|sent| sent.path.as_str()).collect::<Vec<_>>(), ["t", "t"]);
    bus.copy_all().await.unwrap();
    for n in 0..2000 {
        let figures = bus.line(&path(n)).unwrap().figures();
        assert_eq!((figures.active, figures.incoming), (2, 2), "{n}");
    }
    for n in [0, 39, 40, 41, 1000, 1999] {
        assert_eq!(ids(&bus, n).await, ["a", "b"], "{n}");
    }
}

// What comes after a job waits for it, even if it would fit; and then comes directly again.
#[tokio::test]
async fn messages_of_a_topic_do_not_overtake_each_other() {
    let (_, _, bus) = with_topic(100).await;
    bus.send("t", vec![message("a")]).await.unwrap();
    for n in 30..100 {
        let planned = bus.plan_delete(&path(n)).unwrap();
        bus.shared.store.transact(planned.writes.clone()).await.unwrap();
        bus.carried_out(planned).await.unwrap();
    }
    let sent = bus.send("t", vec![message("b")]).await.unwrap();
    assert_eq!(sent.len(), 1, "a job, too");
    assert!(ids(&bus, 5).await.is_empty());
    bus.copy_all().await.unwrap();
    let sent = bus.send("t", vec![message("c")]).await.unwrap();
    assert_eq!(sent.len(), 30);
    for n in [0, 29] {
        assert_eq!(ids(&bus, n).await, ["a", "b", "c"]);
    }
}

// A process that ends in the middle leaves the rest to the next one, and nobody gets a second copy.
#[tokio::test]
async fn copying_goes_on_where_it_was_left() {
    let (store, clock, bus) = with_topic(1000).await;
    bus.send("t", vec![message("a"), message("b")]).await.unwrap();
    for _ in 0..3 {
        let bus = broker(&store, &clock).await;
        // A few steps, and then nobody waits for them any more.
        let copying = tokio::spawn(async move { bus.copy_some(1).await });
        copying.await.unwrap().unwrap();
    }
    let bus = broker(&store, &clock).await;
    let active = |n: usize| bus.line(&path(n)).unwrap().figures().active;
    assert!(active(0) > active(999), "the last one waits: {} {}", active(0), active(999));
    bus.send("t", vec![message("c")]).await.unwrap();
    bus.copy_all().await.unwrap();
    for n in 0..1000 {
        assert_eq!(ids(&bus, n).await, ["a", "b", "c"], "{n}");
        assert_eq!(bus.line(&path(n)).unwrap().figures().active, 3, "{n}");
    }
}

#[tokio::test]
async fn a_large_topic_is_deleted_with_all_that_belongs_to_it() {
    let (store, clock, bus) = with_topic(100).await;
    bus.send("t", vec![message("a")]).await.unwrap();
    bus.copy_all().await.unwrap();
    bus.send("t", vec![message("b")]).await.unwrap();
    let planned = bus.plan_delete(&Path::queue("t")).unwrap();
    assert!(planned.writes.len() < 20);
    store.transact(planned.writes.clone()).await.unwrap();
    bus.carried_out(planned).await.unwrap();
    assert!(matches!(bus.send("t", vec![message("c")]).await, Err(BusError::NoEntity(_))));
    // A new one of the same name has none of the old one's subscriptions, before and after a restart.
    put(&bus, &Path::queue("t"), Kind::Topic).await.unwrap();
    let bus = broker(&store, &clock).await;
    assert!(bus.send("t", vec![message("d")]).await.unwrap().is_empty());
    for _ in 0..1000 {
        if !bus.sweep().await.unwrap() {
            break;
        }
    }
    put(&bus, &path(7), Kind::Subscription).await.unwrap();
    let left = store.query(tidings::bus::table(), &tidings_store::Query::new("entities")).await.unwrap();
    let left: Vec<_> = left.items.iter().map(|item| item.str("at").unwrap().to_owned()).collect();
    assert_eq!(left, ["t", "t/subscriptions/s0007"]);
    bus.send("t", vec![message("e")]).await.unwrap();
    assert_eq!(ids(&bus, 7).await, ["e"]);
}

const SUBSCRIPTIONS: usize = 120;
const MESSAGES: usize = 20;

fn start(directory: &std::path::Path) -> (Running, String) {
    let mut running = Running::start(tidings(directory, &["serve", "--listen", "127.0.0.1:0"]));
    let line = running.wait_for("is listening on ");
    let url = line.split("is listening on ").nth(1).unwrap().trim().to_owned();
    (running, url)
}

// The real program, killed while it copies: each subscription has each message once.
#[test]
fn sigkill_in_the_middle_of_copying_loses_and_doubles_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (mut running, mut url) = start(directory.path());
    let token = std::fs::read_to_string(directory.path().join("tidings-data/admin.token")).unwrap().trim().to_owned();
    runtime.block_on(async {
        let client = Client::new(&url, Some(&token));
        client.put("/bus/t", &json!({ "kind": "topic" })).await.expect(201);
        for n in 0..SUBSCRIPTIONS {
            client.put(&format!("/bus/{}", path(n)), &json!({})).await.expect(201);
        }
    });
    let mut wanted: Vec<String> = Vec::new();
    for round in 0..3 {
        let ids: Vec<String> = (0..MESSAGES).map(|n| format!("{round}-{n}")).collect();
        let batch: Vec<Value> =
            ids.iter().map(|id| json!({ "Body": id, "BrokerProperties": { "MessageId": id } })).collect();
        runtime.block_on(async {
            let client = Client::new(&url, Some(&token));
            let content = "application/vnd.microsoft.servicebus.json";
            client.post_as("/bus/t/messages", content, Value::from(batch).to_string()).await.expect(201);
            // At different moments: at once, and when some have something.
            for _ in 0..round * 20 {
                client.get(&format!("/bus/{}", path(3))).await.expect(200);
            }
        });
        wanted.extend(ids);
        running.signal(rustix::process::Signal::KILL);
        drop(running);
        (running, url) = start(directory.path());
    }
    runtime.block_on(async {
        let client = Client::new(&url, Some(&token));
        for n in (0..SUBSCRIPTIONS).rev() {
            let mut found: Vec<String> = Vec::new();
            // The last one gets it last: whoever receives is woken when something comes.
            while found.len() < wanted.len() {
                let asked = json!({ "max": 100, "waitSeconds": 60 });
                let got = client.post(&format!("/bus/{}/receive", path(n)), &asked).await.expect(200).json();
                let got = got["messages"].as_array().unwrap();
                assert!(!got.is_empty(), "{n} has only {found:?}");
                found.extend(got.iter().map(|item| item["messageId"].as_str().unwrap().to_owned()));
            }
            assert_eq!(found, wanted, "{n}");
            let left = client.get(&format!("/bus/{}", path(n))).await.expect(200).json();
            assert_eq!(
                (&left["counts"]["active"], &left["counts"]["locked"]),
                (&json!(0), &json!(wanted.len())),
                "{n}"
            );
        }
    });
}
