//! First deliveries, which are counted together: what single messages come to, and what a crash leaves.

use std::sync::Arc;
use std::time::Duration;

use tidings::bus::definition::{Definition, Kind};
use tidings::bus::desk::Which;
use tidings::bus::entity::Origin;
use tidings::bus::layout::{self, LaneId, Place};
use tidings::bus::line::Line;
use tidings::bus::settle::Settlement;
use tidings::bus::state::Taken;
use tidings::bus::{Bus, Message, Path};
use tidings::clock::SystemIds;
use tidings_core::time::{Clock, ManualClock};
use tidings_store::memory::Memory;
use tidings_store::{Query, Store, Write};
use tokio::sync::watch;

use crate::support::server;

struct World {
    clock: Arc<ManualClock>,
    store: Arc<dyn Store>,
}

impl World {
    /// A queue with messages that are named by letters.
    async fn with(messages: &str) -> (Self, Arc<Bus>, Arc<Line>) {
        let clock = server::clock();
        let world = Self { store: Arc::new(Memory::new(clock.clone())), clock };
        let (bus, _) = world.start(true).await;
        let message = |id: char| Message { id: id.to_string(), ..Message::default() };
        bus.send("q", messages.chars().map(message).collect()).await.unwrap();
        let line = bus.line(&Path::queue("q")).unwrap();
        (world, bus, line)
    }

    /// A process over the store, as the one before left it.
    async fn start(&self, declare: bool) -> (Arc<Bus>, Option<Arc<Line>>) {
        let (stop, stopping) = watch::channel(false);
        std::mem::forget(stop);
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let bus = Bus::open(Arc::clone(&self.store), clock, Arc::new(SystemIds::default()), stopping).await.unwrap();
        if declare {
            bus.declare(&[(Path::queue("q"), Definition::new(Kind::Queue), Origin::File)]).await.unwrap();
        }
        let line = bus.line(&Path::queue("q")).ok();
        (bus, line)
    }

    async fn again(&self) -> (Arc<Bus>, Arc<Line>) {
        self.clock.advance(Duration::from_secs(1));
        let (bus, line) = self.start(false).await;
        (bus, line.unwrap())
    }

    async fn records(&self, line: &Line, kind: &str) -> usize {
        let query = Query::new(line.layout.partition(kind)).limit(100);
        self.store.query(layout::table(), &query).await.unwrap().items.len()
    }
}

async fn receive(line: &Arc<Line>, max: usize) -> Vec<Taken> {
    line.receive(max, Duration::ZERO, Some("worker")).await.unwrap()
}

fn seen(taken: &[Taken]) -> String {
    let one = |taken: &Taken| format!("{}{}", taken.held.message.message.id, taken.held.deliveries);
    taken.iter().map(one).collect::<Vec<_>>().join(" ")
}

async fn settle(line: &Arc<Line>, taken: &Taken, settlement: Settlement) {
    line.settle_one(taken.token, settlement).await.unwrap();
}

async fn complete_all(line: &Arc<Line>, taken: &[Taken]) {
    for taken in taken {
        settle(line, taken, Settlement::Complete).await;
    }
}

#[tokio::test]
async fn each_message_of_a_call_is_counted_whatever_becomes_of_the_others() {
    let (world, bus, line) = World::with("abcdef").await;
    let taken = receive(&line, 4).await;
    assert_eq!((seen(&taken).as_str(), world.records(&line, "g").await), ("a1 b1 c1 d1", 1));
    settle(&line, &taken[0], Settlement::Complete).await;
    settle(&line, &taken[3], Settlement::dead_letter("Bad", "it is")).await;
    settle(&line, &taken[1], Settlement::abandon()).await;
    let looked: Vec<_> = line.peek(Which::Active, 1, 10).await.unwrap();
    let counts: Vec<_> =
        looked.iter().map(|seen| (seen.message.message.id.as_str(), seen.message.deliveries)).collect();
    assert_eq!(counts, [("b", 1), ("c", 1), ("e", 0), ("f", 0)]);
    assert_eq!(seen(&receive(&line, 1).await), "b2");
    bus.flush(false).await;
    assert_eq!((world.records(&line, "g").await, world.records(&line, "d").await), (1, 1), "c is still out");
    let (bus, line) = world.again().await;
    let taken = receive(&line, 10).await;
    assert_eq!(seen(&taken), "b3 c2 e1 f1");
    let lost = &taken[1].held.message.attempts;
    assert_eq!((lost.len(), &*lost[0].outcome, lost[0].consumer.as_deref()), (1, "lost", Some("worker")));
    assert_eq!(lost[0].at.to_string(), "2026-03-01T12:00:00Z");
    complete_all(&line, &taken).await;
    bus.flush(false).await;
    for kind in ["g", "d", "m", "r"] {
        assert_eq!(world.records(&line, kind).await, 0, "{kind}");
    }
    assert!(receive(&line, 10).await.is_empty());
}

// What a crash left of handouts that were over goes when the line is read again.
#[tokio::test]
async fn records_that_nobody_removed_go_after_a_restart() {
    let (world, _bus, line) = World::with("abc").await;
    let (one, two) = (receive(&line, 2).await, receive(&line, 1).await);
    complete_all(&line, &one).await;
    assert_eq!(world.records(&line, "g").await, 2);
    let (bus, line) = world.again().await;
    assert_eq!(seen(&receive(&line, 10).await), "c2");
    assert!(line.settle_one(two[0].token, Settlement::Complete).await.is_err(), "its lock died with the process");
    bus.flush(false).await;
    assert_eq!(world.records(&line, "g").await, 0, "c has a record of its own");
    assert_eq!(world.records(&line, "d").await, 1);
}

// A message of its own record, as they all were once.
#[tokio::test]
async fn a_record_of_an_earlier_version_counts() {
    let (world, _bus, line) = World::with("ab").await;
    let item = line.layout.deliveries_item(LaneId::Main, 1).with("n", 1).with("t", 0).with("by", "old");
    world.store.transact(vec![Write::put(layout::table(), item)]).await.unwrap();
    let (bus, line) = world.again().await;
    let taken = receive(&line, 2).await;
    assert_eq!((seen(&taken).as_str(), taken[0].held.place), ("a2 b1", Place::Lane(LaneId::Main, 1)));
    assert_eq!(taken[0].held.message.attempts[0].consumer.as_deref(), Some("old"));
    complete_all(&line, &taken).await;
    bus.flush(false).await;
    assert_eq!((world.records(&line, "g").await, world.records(&line, "d").await), (0, 0));
}
