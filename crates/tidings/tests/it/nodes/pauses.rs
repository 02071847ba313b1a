//! An owner that is paused, and wakes when its lease is over and another has taken its place: it changes nothing.
//!
//! `TIDINGS_TEST_PAUSES` makes it more than the 200 of every run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidings::bus::definition::{Definition, Kind};
use tidings::bus::entity::Origin;
use tidings::bus::line::LineError;
use tidings::bus::settle::Settlement;
use tidings::bus::{Bus, Message, Path};
use tidings::clock::SystemIds;
use tidings::nodes::Nodes;
use tidings_core::time::{Clock, ManualClock};
use tidings_store::memory::Memory;
use tidings_store::{Error, Store};
use tokio::sync::watch;

use super::witness::{Record, Witness};
use crate::support::server;

pub const LEASE: Duration = Duration::from_secs(10);

/// A node with a clock of its own: while it is paused, its clock stands still, and it believes what it believed.
pub struct Node {
    pub clock: Arc<ManualClock>,
    nodes: Arc<Nodes>,
    pub bus: Arc<Bus>,
}

impl Node {
    async fn start(store: &Arc<dyn Store>, record: &Arc<Record>, careless: bool) -> Self {
        Self::over(Arc::new(Witness { inner: Arc::clone(store), record: Arc::clone(record), careless })).await
    }

    /// With the store as it sees it.
    pub async fn over(store: Arc<dyn Store>) -> Self {
        let clock = server::clock();
        let ids = Arc::new(SystemIds::default());
        let nodes = Nodes::new(Arc::clone(&store), clock.clone(), &*ids, "http://nowhere".to_owned(), LEASE);
        nodes.look().await.unwrap();
        let (stop, stopping) = watch::channel(false);
        std::mem::forget(stop);
        let among = Some(Arc::clone(&nodes));
        let bus = Bus::open_among(store, clock.clone() as Arc<dyn Clock>, ids, stopping, among).await.unwrap();
        let queue = Definition { max_delivery_count: 1000, ..Definition::new(Kind::Queue) };
        bus.declare(&[(Path::queue("q"), queue, Origin::File)]).await.unwrap();
        Self { clock, nodes, bus }
    }

    pub async fn look(&self) {
        self.nodes.look().await.unwrap();
        self.bus.tend().await.unwrap();
    }

    pub fn line(&self) -> Arc<tidings::bus::line::Line> {
        self.bus.line(&Path::queue("q")).unwrap()
    }

    pub fn has_it(&self) -> bool {
        self.line().is_ours()
    }

    /// Waits until this node is to look again before its time.
    pub async fn doubts(&self) {
        self.nodes.doubt.notified().await;
    }

    pub async fn leave(&self) {
        self.bus.release_all().await;
        self.nodes.leave().await;
    }

    /// Lets more than a lease pass without a sign from anybody else.
    pub async fn outlast(&self) {
        for _ in 0..6 {
            self.clock.advance(LEASE / 4);
            self.look().await;
        }
    }
}

/// Lets both see each other, and the right one have the queue.
pub async fn settle(nodes: &[Node; 2]) {
    for node in nodes.iter().chain(nodes).chain(nodes) {
        node.look().await;
    }
}

pub fn message(id: String) -> Message {
    Message { body: id.clone().into(), id, ..Message::default() }
}

/// Pauses the owner again and again; gives what was received and completed, by id, and how often.
async fn pause(rounds: usize, careless: bool) -> (Arc<Record>, BTreeMap<String, usize>, usize) {
    let clock = server::clock();
    let store: Arc<dyn Store> = Arc::new(Memory::new(clock.clone()));
    let record: Arc<Record> = Arc::default();
    let mut nodes = [Node::start(&store, &record, careless).await, Node::start(&store, &record, careless).await];
    let mut completed: BTreeMap<String, usize> = BTreeMap::new();
    for round in 0..rounds {
        settle(&nodes).await;
        if !nodes[0].has_it() {
            nodes.swap(0, 1);
        }
        let [owner, other] = &nodes;
        assert!(owner.has_it() && !other.has_it(), "round {round}: one of them has it");
        let (old, kinds) = (owner.line(), ["complete", "dead-letter", "defer", "abandon"]);
        owner.bus.send("q", vec![message(format!("{round}-a")), message(format!("{round}-b"))]).await.unwrap();
        let taken = old.receive(1, Duration::ZERO, None).await.unwrap();
        // It sleeps here. The other one sees no sign of it, and takes over.
        other.outlast().await;
        assert!(other.has_it(), "round {round}: the other takes over");
        // It wakes, and goes on where it was: by its own clock no time has passed.
        assert!(owner.has_it(), "round {round}: it does not know yet");
        let settlement = match kinds[round % kinds.len()] {
            "complete" => Settlement::Complete,
            "dead-letter" => Settlement::dead_letter("test", "test"),
            "defer" => Settlement::Defer,
            _ => Settlement::Abandon { delay: Some(Duration::from_secs(1)), why: Default::default() },
        };
        let settled = old.settle_one(taken[0].token, settlement).await;
        let received = old.receive(1, Duration::ZERO, None).await;
        if !careless {
            // A dead letter needs a place first, and does not get one.
            let refused = matches!(settled, Err(LineError::Elsewhere | LineError::Store(Error::Throttled(_))));
            assert!(refused, "round {round}: {settled:?}");
            assert!(matches!(received, Err(LineError::Elsewhere)), "round {round}: {received:?}");
        }
        // What it is sent is not lost: it is posted to whoever has the queue.
        owner.bus.send("q", vec![message(format!("{round}-c"))]).await.unwrap();
        owner.bus.settle_time().await.unwrap();
        other.bus.settle_time().await.unwrap();
        // The new owner gets all three of them, once.
        let new = other.line();
        other.bus.collect_posts().await.unwrap();
        loop {
            let taken = new.receive(10, Duration::ZERO, None).await.unwrap();
            if taken.is_empty() {
                break;
            }
            for taken in taken {
                *completed.entry(taken.held.message.message.id.clone()).or_default() += 1;
                new.settle_one(taken.token, Settlement::Complete).await.unwrap();
            }
        }
        // The old one's clock catches up with the world, and it sees how things are.
        owner.clock.advance(LEASE * 2);
    }
    settle(&nodes).await;
    let figures = nodes.iter().find(|node| node.has_it()).unwrap();
    figures.bus.refresh().await.unwrap();
    let left = usize::try_from(figures.line().figures().active).unwrap();
    (record, completed, left)
}

#[tokio::test]
async fn a_paused_owner_that_wakes_too_late_changes_nothing() {
    let rounds = std::env::var("TIDINGS_TEST_PAUSES").ok().and_then(|n| n.parse().ok()).unwrap_or(200);
    let (record, completed, left) = pause(rounds, false).await;
    assert_eq!(record.stale.load(Ordering::Relaxed), 0, "stale writes");
    assert!(record.refused.load(Ordering::Relaxed) >= rounds as u64, "every pause was met by the fence");
    assert_eq!((completed.len(), left), (rounds * 3, 0), "nothing is lost");
    assert!(completed.values().all(|times| *times == 1), "nothing is completed twice");
}

// The negative control: without the condition the same test sees stale writes.
#[tokio::test]
async fn without_the_fence_a_paused_owner_does_harm() {
    let (record, ..) = pause(8, true).await;
    assert!(record.stale.load(Ordering::Relaxed) > 0);
}
