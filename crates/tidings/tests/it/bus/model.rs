//! The broker against a simple model: random sends, receives, settlements, waits, crashes and restarts. After each step:
//! nothing is lost, nothing is completed twice, nothing is under two locks, order is kept where it is promised, and the
//! counts are those of what is stored.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tidings::bus::definition::{Definition, Kind};
use tidings::bus::entity::Origin;
use tidings::bus::layout;
use tidings::bus::line::Line;
use tidings::bus::settle::{Settlement, Why};
use tidings::bus::{Bus, Message, Path};
use tidings::clock::SystemIds;
use tidings_core::time::{Clock, ManualClock, Timestamp};
use tidings_store::memory::Memory;
use tidings_store::{Query, Store};
use tokio::sync::watch;
use uuid::Uuid;

use crate::support::server;

const LOCK_SECONDS: u64 = 10;
const MAX_DELIVERIES: u32 = 3;

#[derive(Debug, Clone)]
enum Step {
    Send {
        count: usize,
        key: u8,
        delay: u64,
    },
    Receive {
        max: usize,
    },
    Settle {
        which: usize,
        how: How,
    },
    ReceiveDeferred {
        which: usize,
    },
    Wait {
        seconds: u64,
    },
    /// The process ends at once, and another begins.
    Crash,
    /// It ends in order.
    Restart,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum How {
    Complete,
    Abandon { delay: u64 },
    DeadLetter,
    Defer,
    Renew,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Waiting,
    Scheduled(Timestamp),
    Deferred,
    Dead,
    Done,
}

#[derive(Debug, Clone)]
struct Known {
    at: At,
    deliveries: u32,
    /// Deliveries that ended with it deferred, which is no failure.
    deferrals: u32,
    key: String,
    /// The order in which they came to wait.
    order: u64,
    sequence: u64,
}

impl Known {
    /// Whether it failed as often as it may.
    fn is_doomed(&self) -> bool {
        self.deliveries - self.deferrals >= MAX_DELIVERIES
    }
}

struct Lock {
    id: String,
    until: Timestamp,
}

struct World {
    store: Arc<dyn Store>,
    clock: Arc<ManualClock>,
    bus: Arc<Bus>,
    ordered: bool,
    messages: BTreeMap<String, Known>,
    locks: HashMap<Uuid, Lock>,
    /// On an ordered line: keys that wait for their next delivery.
    paused: BTreeMap<String, Timestamp>,
    next: u64,
}

fn step() -> impl Strategy<Value = Step> {
    let how = prop_oneof![
        4 => Just(How::Complete),
        2 => (0_u64..8).prop_map(|delay| How::Abandon { delay }),
        1 => Just(How::DeadLetter),
        1 => Just(How::Defer),
        1 => Just(How::Renew),
    ];
    prop_oneof![
        5 => (1_usize..6, 0_u8..3, prop_oneof![4 => Just(0_u64), 1 => 1_u64..30])
            .prop_map(|(count, key, delay)| Step::Send { count, key, delay }),
        5 => (1_usize..5).prop_map(|max| Step::Receive { max }),
        6 => (0_usize..20, how).prop_map(|(which, how)| Step::Settle { which, how }),
        1 => (0_usize..5).prop_map(|which| Step::ReceiveDeferred { which }),
        3 => (1_u64..12).prop_map(|seconds| Step::Wait { seconds }),
        1 => Just(Step::Crash),
        1 => Just(Step::Restart),
    ]
}

async fn open(store: &Arc<dyn Store>, clock: &Arc<ManualClock>) -> Arc<Bus> {
    let clock = Arc::clone(clock) as Arc<dyn Clock>;
    let (_, stopping) = watch::channel(false);
    Bus::open(Arc::clone(store), clock, Arc::new(SystemIds::default()), stopping).await.unwrap()
}

/// Lets tasks that were started come to their end.
async fn quiet() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

impl World {
    async fn new(ordered: bool) -> Self {
        let clock = server::clock();
        let store: Arc<dyn Store> = Arc::new(Memory::new(clock.clone()));
        let bus = open(&store, &clock).await;
        let definition = Definition {
            lock_seconds: LOCK_SECONDS,
            max_delivery_count: MAX_DELIVERIES.into(),
            ordered,
            ..Definition::new(Kind::Queue)
        };
        bus.declare(&[(Path::queue("q"), definition, Origin::File)]).await.unwrap();
        let (messages, locks, paused) = (BTreeMap::new(), HashMap::new(), BTreeMap::new());
        Self { store, clock, bus, ordered, messages, locks, paused, next: 0 }
    }

    fn line(&self) -> Arc<Line> {
        self.bus.line(&Path::queue("q")).unwrap()
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn later(&self, seconds: u64) -> Timestamp {
        self.now().saturating_add(Duration::from_secs(seconds)).unwrap()
    }

    fn locked(&self) -> BTreeSet<&str> {
        self.locks.values().map(|lock| lock.id.as_str()).collect()
    }

    /// The keys of which one is out, deferred ones included.
    fn busy(&self) -> BTreeSet<&str> {
        self.locks.values().map(|lock| self.messages[&lock.id].key.as_str()).collect()
    }

    /// Messages that wait, in the order in which they came.
    fn waiting(&self) -> Vec<(&String, &Known)> {
        let mut waiting: Vec<_> = self.messages.iter().filter(|(_, known)| known.at == At::Waiting).collect();
        waiting.sort_by_key(|(_, known)| known.order);
        waiting
    }

    /// What a receiver could have now: all that wait, or the first of each key that is free.
    fn available(&self) -> Vec<String> {
        let locked = self.locked();
        let busy = self.busy();
        let mut keys = BTreeSet::new();
        let mut available = Vec::new();
        for (id, known) in self.waiting() {
            let is_locked = locked.contains(id.as_str());
            if !is_locked && known.is_doomed() {
                // Delivered too often before a crash: it is dead-lettered instead, and holds nobody up.
                continue;
            }
            let free = match self.ordered {
                false => !is_locked,
                true => {
                    keys.insert(known.key.clone())
                        && !busy.contains(known.key.as_str())
                        && !self.paused.contains_key(&known.key)
                }
            };
            if free {
                available.push(id.clone());
            }
        }
        available
    }

    async fn take(&mut self, step: &Step) {
        match step {
            Step::Send { count, key, delay } => self.send(*count, *key, *delay).await,
            Step::Receive { max } => self.receive(*max).await,
            Step::Settle { which, how } => self.settle(*which, *how).await,
            Step::ReceiveDeferred { which } => self.receive_deferred(*which).await,
            Step::Wait { seconds } => self.wait(*seconds).await,
            Step::Crash => self.restart().await,
            Step::Restart => {
                self.bus.flush(true).await;
                self.restart().await;
            }
        }
        quiet().await;
        self.learn_of_doomed().await;
        self.check().await;
    }

    async fn send(&mut self, count: usize, key: u8, delay: u64) {
        let deliver_at = (delay > 0).then(|| self.later(delay));
        let mut messages = Vec::new();
        for _ in 0..count {
            self.next += 1;
            let (id, key) = (format!("{:05}", self.next), format!("k{key}"));
            messages.push(Message { id, session_id: Some(key), deliver_at, ..Message::default() });
        }
        let sent = self.bus.send("q", messages.clone()).await.unwrap();
        assert_eq!(sent.len(), count);
        for (message, sent) in messages.into_iter().zip(sent) {
            self.next += 1;
            let known = Known {
                at: deliver_at.map_or(At::Waiting, At::Scheduled),
                deliveries: 0,
                deferrals: 0,
                key: message.session_id.unwrap(),
                order: self.next,
                sequence: sent.sequence,
            };
            self.messages.insert(message.id, known);
        }
    }

    async fn receive(&mut self, max: usize) {
        let available = self.available();
        let taken = self.line().receive(max, Duration::ZERO, None).await.unwrap();
        assert_eq!(taken.len(), available.len().min(max), "available: {available:?}");
        for taken in taken {
            let id = taken.held.message.message.id.clone();
            assert!(available.contains(&id), "{id} was not to be had: {available:?}");
            assert!(!self.locked().contains(id.as_str()), "{id} is under two locks");
            let until = self.later(LOCK_SECONDS);
            let known = self.messages.get_mut(&id).unwrap();
            known.deliveries += 1;
            // A scheduled message gets its number when it is due.
            known.sequence = taken.held.message.sequence;
            assert_eq!(taken.held.deliveries, known.deliveries, "{id}");
            assert_eq!(taken.held.locked_until, until);
            self.locks.insert(taken.token, Lock { id, until });
        }
    }

    async fn receive_deferred(&mut self, which: usize) {
        let deferred: Vec<_> = self.messages.iter().filter(|(_, known)| known.at == At::Deferred).collect();
        let Some((id, known)) = deferred.get(which % deferred.len().max(1)) else { return };
        let (id, sequence) = ((*id).clone(), known.sequence);
        let taken_already = match self.ordered {
            false => self.locked().contains(id.as_str()),
            true => self.busy().contains(known.key.as_str()),
        };
        // It failed too often, the last time with a crash: it is dead-lettered instead.
        let doomed = known.is_doomed() && !self.locked().contains(id.as_str());
        let taken = self.line().receive_deferred(&[sequence], None).await.unwrap();
        assert_eq!(taken.len(), usize::from(!taken_already && !doomed), "{id}");
        let until = self.later(LOCK_SECONDS);
        for taken in taken {
            let known = self.messages.get_mut(&id).unwrap();
            known.deliveries += 1;
            assert_eq!((&taken.held.message.message.id, taken.held.deliveries), (&id, known.deliveries));
            self.locks.insert(taken.token, Lock { id: id.clone(), until });
        }
    }

    async fn settle(&mut self, which: usize, how: How) {
        let mut tokens: Vec<_> = self.locks.keys().copied().collect();
        tokens.sort();
        let Some(token) = tokens.get(which % tokens.len().max(1)).copied() else {
            // A lock that never was.
            let outcome = self.line().settle_one(Uuid::from_u128(7), Settlement::Complete).await;
            assert!(outcome.is_err());
            return;
        };
        let settlement = match how {
            How::Complete => Settlement::Complete,
            How::Abandon { delay } => {
                Settlement::Abandon { delay: Some(Duration::from_secs(delay)), why: Why::default() }
            }
            How::DeadLetter => Settlement::DeadLetter(Why::default()),
            How::Defer => Settlement::Defer,
            How::Renew => Settlement::Renew,
        };
        self.line().settle_one(token, settlement.clone()).await.unwrap();
        if how == How::Renew {
            let until = self.later(LOCK_SECONDS);
            self.locks.get_mut(&token).unwrap().until = until;
            return;
        }
        let again = self.line().settle_one(token, settlement).await;
        assert!(again.is_err(), "a lock serves once");
        let lock = self.locks.remove(&token).unwrap();
        let due = self.now();
        match how {
            How::Complete => self.messages.get_mut(&lock.id).unwrap().at = At::Done,
            How::DeadLetter => self.messages.get_mut(&lock.id).unwrap().at = At::Dead,
            How::Defer => {
                let known = self.messages.get_mut(&lock.id).unwrap();
                (known.at, known.deferrals) = (At::Deferred, known.deferrals + 1);
            }
            How::Abandon { delay } => self.fail(&lock.id, delay, due),
            How::Renew => {}
        }
    }

    /// A delivery failed.
    fn fail(&mut self, id: &str, delay: u64, now: Timestamp) {
        let due = now.saturating_add(Duration::from_secs(delay)).unwrap();
        let known = self.messages.get_mut(id).unwrap();
        if known.is_doomed() {
            known.at = At::Dead;
        } else if known.at == At::Deferred || delay == 0 {
            // It stays where it is.
        } else if self.ordered {
            self.paused.insert(known.key.clone(), due);
        } else {
            known.at = At::Scheduled(due);
        }
    }

    async fn wait(&mut self, seconds: u64) {
        // Second by second, as the clock of the bus would.
        for _ in 0..seconds {
            self.clock.advance(Duration::from_secs(1));
            let now = self.now();
            let over: Vec<Uuid> =
                self.locks.iter().filter(|(_, lock)| lock.until <= now).map(|(token, _)| *token).collect();
            for token in over {
                let lock = self.locks.remove(&token).unwrap();
                self.fail(&lock.id, 0, now);
            }
            self.paused.retain(|_, until| *until > now);
            self.bus.settle_time().await.unwrap();
            quiet().await;
            let mut due: Vec<_> = self
                .messages
                .iter()
                .filter_map(|(id, known)| match known.at {
                    At::Scheduled(at) if at <= now => Some((at, known.sequence, id.clone())),
                    _ => None,
                })
                .collect();
            due.sort();
            for (_, _, id) in due {
                self.next += 1;
                let order = self.next;
                let known = self.messages.get_mut(&id).unwrap();
                (known.at, known.order) = (At::Waiting, order);
            }
        }
    }

    async fn restart(&mut self) {
        self.bus = open(&self.store, &self.clock).await;
        // Locks end with the process, waits do not.
        self.locks.clear();
    }

    /// What had been delivered too often when the process ended is dead-lettered when somebody comes by.
    async fn learn_of_doomed(&mut self) {
        let dead = self.stored("dead").await;
        for (id, known) in &mut self.messages {
            if matches!(known.at, At::Waiting | At::Deferred) && known.is_doomed() && dead.contains(id) {
                known.at = At::Dead;
            }
        }
    }

    /// The ids that the store has in one of its places.
    async fn stored(&self, what: &str) -> BTreeSet<String> {
        let record = self.bus.record(&Path::queue("q")).unwrap();
        let partitions: &[(&str, &str)] = match what {
            "waiting" => &[("main", "m"), ("main", "r")],
            "scheduled" => &[("main", "s")],
            "deferred" => &[("main", "f")],
            _ => &[("dead", "m"), ("dead", "r")],
        };
        let mut ids = BTreeSet::new();
        for (line, kind) in partitions {
            let generation = if *line == "main" { &record.main } else { &record.dead };
            let query = Query::new(format!("{generation}/{kind}")).limit(10_000);
            for item in self.store.query(layout::table(), &query).await.unwrap().items {
                let stored = tidings::bus::message::Stored::from_item(&item).unwrap();
                assert!(ids.insert(stored.message.id.clone()), "{} is there twice", stored.message.id);
            }
        }
        ids
    }

    async fn check(&self) {
        let ids = |wanted: fn(At) -> bool| -> BTreeSet<String> {
            self.messages.iter().filter(|(_, known)| wanted(known.at)).map(|(id, _)| id.clone()).collect()
        };
        let waiting = ids(|at| at == At::Waiting);
        let scheduled = ids(|at| matches!(at, At::Scheduled(_)));
        let deferred = ids(|at| at == At::Deferred);
        let dead = ids(|at| at == At::Dead);
        assert_eq!(self.stored("waiting").await, waiting);
        assert_eq!(self.stored("scheduled").await, scheduled);
        assert_eq!(self.stored("deferred").await, deferred);
        assert_eq!(self.stored("dead").await, dead);
        let figures = self.line().figures();
        let locked = self.locks.values().filter(|lock| self.messages[&lock.id].at == At::Waiting).count() as u64;
        assert_eq!(figures.locked, locked);
        assert_eq!(figures.active, waiting.len() as u64 - locked);
        assert_eq!(figures.scheduled, scheduled.len() as u64);
        assert_eq!(figures.deferred, deferred.len() as u64);
        assert_eq!(figures.dead_lettered, dead.len() as u64);
        assert_eq!(figures.incoming, self.messages.len() as u64);
        assert_eq!(figures.outgoing, ids(|at| at == At::Done).len() as u64);
    }
}

fn run(ordered: bool, steps: &[Step]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let mut world = World::new(ordered).await;
        for step in steps {
            world.take(step).await;
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]

    // S003-72, S003-79, S003-93
    #[test]
    fn a_queue_behaves_as_its_model(steps in proptest::collection::vec(step(), 1..40)) {
        run(false, &steps);
    }

    // S003-83
    #[test]
    fn an_ordered_queue_behaves_as_its_model(steps in proptest::collection::vec(step(), 1..40)) {
        run(true, &steps);
    }
}
