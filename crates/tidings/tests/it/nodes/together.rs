//! Two servers over one store, through HTTP: either answers, and work is done once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tidings::config::Config;
use tidings_core::time::ManualClock;
use tidings_store::Store;
use tidings_store::memory::Memory;

use crate::bus::{bodies, complete, counts, receive, send};
use crate::support::{Client, TestServer, engines, server};

pub struct Two {
    pub store: Arc<dyn Store>,
    pub clock: Arc<ManualClock>,
    pub a: TestServer,
    pub b: TestServer,
}

pub async fn two() -> Two {
    let clock = server::clock();
    let store = store(&clock).await;
    two_over(clock, (Arc::clone(&store), store), |_| {}).await
}

/// A store that several servers may share: in memory, or on DynamoDB Local.
pub async fn store(clock: &Arc<ManualClock>) -> Arc<dyn Store> {
    if engines::is_dynamodb() {
        // Only its name is needed, which is the tables' prefix.
        let directory = tempfile::tempdir().unwrap();
        return server::dynamodb(&server::config(directory.path()), clock).await;
    }
    Arc::new(Memory::new(clock.clone()))
}

/// Two servers, each with the store as it sees it.
pub async fn two_over(
    clock: Arc<ManualClock>,
    (first, second): (Arc<dyn Store>, Arc<dyn Store>),
    change: fn(&mut Config),
) -> Two {
    let a = TestServer::among_with(first, Arc::clone(&clock), None, change).await;
    let b = TestServer::among_with(Arc::clone(&second), Arc::clone(&clock), Some(&a), change).await;
    let two = Two { store: second, clock, a, b };
    two.settle().await;
    two
}

impl Two {
    /// Lets both see each other and divide the work.
    pub async fn settle(&self) {
        for _ in 0..3 {
            self.a.services.look_at_nodes().await.unwrap();
            self.b.services.look_at_nodes().await.unwrap();
        }
    }

    pub fn owner(&self, queue: &str) -> (&TestServer, &TestServer) {
        let has = |server: &TestServer| {
            server.services.bus.line(&tidings::bus::Path::queue(queue)).is_ok_and(|line| line.is_ours())
        };
        assert!(has(&self.a) != has(&self.b), "one of them has {queue}");
        if has(&self.a) { (&self.a, &self.b) } else { (&self.b, &self.a) }
    }
}

async fn all_of(client: &Client, path: &str) -> Vec<String> {
    let mut got = Vec::new();
    loop {
        let messages = receive(client, path, 50).await;
        if messages.is_empty() {
            return got;
        }
        for message in &messages {
            complete(client, path, message).await;
        }
        got.extend(bodies(&messages).into_iter().map(ToOwned::to_owned));
    }
}

#[tokio::test]
async fn entities_are_divided_and_either_node_answers_for_all() {
    let two = two().await;
    let (a, b) = (two.a.client(), two.b.client());
    for n in 0..16 {
        let client = if n % 2 == 0 { &a } else { &b };
        client.put(&format!("/bus/q{n}"), &json!({ "kind": "queue" })).await.expect(201);
    }
    two.settle().await;
    let owned = (0..16).filter(|n| two.owner(&format!("q{n}")).0.url == two.a.url).count();
    assert!((1..=15).contains(&owned), "both have some: {owned} of 16");
    for n in 0..16 {
        let queue = format!("q{n}");
        let (owner, other) = two.owner(&queue);
        // Sent to either, received and settled through the one that does not have it.
        send(&owner.client(), &queue, "straight").await;
        send(&other.client(), &queue, "posted").await;
        owner.services.bus.collect_posts().await.unwrap();
        let got: BTreeSet<String> = all_of(&other.client(), &queue).await.into_iter().collect();
        assert_eq!(got, BTreeSet::from(["posted".to_owned(), "straight".to_owned()]));
        let seen = counts(&other.client(), &queue).await;
        assert_eq!((seen["active"].as_u64(), seen["outgoing"].as_u64()), (Some(0), Some(2)), "{seen}");
    }
}

#[tokio::test]
async fn a_new_queue_can_be_sent_to_on_every_node_at_once() {
    let two = two().await;
    two.a.client().put("/bus/new", &json!({})).await.expect(201);
    send(&two.b.client(), "new", "hello").await;
    two.settle().await;
    two.owner("new").0.services.bus.collect_posts().await.unwrap();
    assert_eq!(all_of(&two.b.client(), "new").await, ["hello"]);
    two.b.client().post_as("/bus/none/messages", "text/plain", "x".to_owned()).await.expect(410);
}

#[tokio::test]
async fn a_change_of_an_entity_is_seen_on_the_other_node() {
    let two = two().await;
    let (a, b) = (two.a.client(), two.b.client());
    a.put("/bus/t", &json!({ "kind": "topic" })).await.expect(201);
    b.put("/bus/t/subscriptions/s", &json!({})).await.expect(201);
    two.settle().await;
    send(&a, "t", "one").await;
    send(&b, "t", "two").await;
    two.owner_of_topic().collect().await;
    assert_eq!(all_of(&a, "t/subscriptions/s").await.len(), 2);
    b.delete("/bus/t/subscriptions/s").await.expect(204);
    two.settle().await;
    a.get("/bus/t/subscriptions/s").await.expect(404);
    a.delete("/bus/t").await.expect(204);
    two.settle().await;
    b.post("/bus/t/subscriptions/s/receive", &json!({})).await.expect(410);
}

struct Collect<'a>(Vec<&'a TestServer>);

impl Collect<'_> {
    async fn collect(&self) {
        for server in &self.0 {
            server.services.bus.collect_posts().await.unwrap();
        }
    }
}

impl Two {
    fn owner_of_topic(&self) -> Collect<'_> {
        Collect(vec![&self.a, &self.b])
    }
}

#[tokio::test]
async fn a_node_that_ends_hands_over_and_one_that_dies_is_outlasted() {
    let mut two = two().await;
    let a = two.a.client();
    for n in 0..8 {
        a.put(&format!("/bus/q{n}"), &json!({ "lockSeconds": 30 })).await.expect(201);
        send(&a, &format!("q{n}"), "kept").await;
    }
    two.settle().await;
    two.b.services.bus.collect_posts().await.unwrap();
    two.a.services.bus.collect_posts().await.unwrap();
    // In order: the other has everything at once.
    two.b.stop().await;
    two.a.services.look_at_nodes().await.unwrap();
    for n in 0..8 {
        let got = receive(&a, &format!("q{n}"), 1).await;
        assert_eq!(bodies(&got), ["kept"], "q{n}");
    }
    // Without a word: a third one waits until the lease is over, and has everything then. What was locked comes again.
    let c = TestServer::among(Arc::clone(&two.store), Arc::clone(&two.clock), Some(&two.a)).await;
    let dead = std::mem::replace(&mut two.a, c);
    dead.services.nodes.as_ref().unwrap().pretend_to_be_dead();
    for _ in 0..6 {
        two.clock.advance(Duration::from_millis(2500));
        two.a.services.look_at_nodes().await.unwrap();
    }
    let client = two.a.client();
    for n in 0..8 {
        let got = receive(&client, &format!("q{n}"), 1).await;
        assert_eq!((bodies(&got), got[0]["deliveryCount"].as_u64()), (vec!["kept"], Some(2)), "q{n}");
        complete(&client, &format!("q{n}"), &got[0]).await;
    }
}

// Events, rules, tokens, inboxes: what is done on one node shows on the other.
#[tokio::test]
async fn rules_tokens_and_inboxes_are_the_same_on_both() {
    let two = two().await;
    let (a, b) = (two.a.client(), two.b.client());
    let rule = json!({ "pattern": { "eventType": ["order.placed"] },
        "title": "Order {{ data.id }}", "targets": [{ "channel": "inbox", "users": ["u1"] }] });
    a.put("/rules/orders", &rule).await.expect(201);
    two.b.services.rules.sync().await.unwrap();
    let event = json!({ "eventId": "e1", "eventType": "order.placed", "data": { "id": 7 } });
    b.send(&event).await;
    assert_eq!(a.post("/events", &event).await.json()["duplicates"], 1);
    let seen = a.get("/notifications?user=u1").await.expect(200).json();
    assert_eq!((seen["unread"].as_u64(), seen["items"][0]["title"].as_str()), (Some(1), Some("Order 7")), "{seen}");
    let made = a.post("/tokens", &json!({ "scopes": ["read"] })).await.expect(201).json();
    let reader = two.b.client_with(made["token"].as_str().unwrap());
    reader.get("/events").await.expect(200);
    a.delete(&format!("/tokens/{}", made["id"].as_str().unwrap())).await;
    two.clock.advance(Duration::from_secs(6));
    reader.get("/events").await.expect(401);
    let chain = b.get("/audit-log/verify").await.expect(200).json();
    assert_eq!(chain["ok"], true, "{chain}");
}

// S002-66: a tick is made by one of them.
#[tokio::test]
async fn a_schedule_fires_once() {
    let two = two().await;
    let schedule = json!({ "every": "15m", "message_type": "reminder", "payload": { "text": "again" } });
    let made = two.a.client().put("/api/schedules/s", &schedule).await;
    assert!(made.status < 300, "{}", made.text());
    for tick in 1..=8 {
        two.clock.advance(Duration::from_secs(15 * 60));
        let now = tidings_core::time::Clock::now(&*two.clock);
        let (one, other) = tokio::join!(two.a.services.schedules.activate(now), two.b.services.schedules.activate(now));
        // The servers' own workers hear of the time as well, and may have been faster than both.
        assert!(one.unwrap().fired + other.unwrap().fired <= 1);
        let list: Value = two.b.client().get("/api/messages?message_type=reminder").await.expect(200).json();
        assert_eq!(list["items"].as_array().unwrap().len(), tick);
    }
}

// Work that one node does for all is done by one of them, and by the other when that one is gone.
#[tokio::test]
async fn one_node_watches_the_monitors() {
    let mut two = two().await;
    let does = |server: &TestServer| server.services.does("monitors");
    // Both offer to, as soon as their workers have started.
    while !does(&two.a) && !does(&two.b) {
        tokio::task::yield_now().await;
        two.settle().await;
    }
    two.settle().await;
    assert!(does(&two.a) != does(&two.b));
    if does(&two.b) {
        std::mem::swap(&mut two.a, &mut two.b);
    }
    two.a.stop().await;
    two.b.services.look_at_nodes().await.unwrap();
    assert!(does(&two.b));
}

crate::support::on_dynamodb! {
    rules_tokens_and_inboxes_are_the_same_on_both,
    a_schedule_fires_once,
}
