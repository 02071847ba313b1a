//! Parked messages: those of a destination that takes no more for now, out of everybody's way.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashSet;
use tidings_core::message::{Input, Status};
use tidings_core::time::Timestamp;
use tidings_store::{Change, Condition, Error, Store, Table, Write};
use tokio::task::{JoinError, JoinSet};

use super::lane::Lane;
use super::roster::Roster;
use super::window::Stub;
use super::{Deliverer, PAUSE, targets};
use crate::app::Services;
use crate::channel::limiter::{Admission, Health};
use crate::messages::counters::Tally;
use crate::messages::record;
use crate::messages::transition::Stored;

/// Of one destination in memory.
const READ_AHEAD: usize = 16;
/// Moved in one transaction; DynamoDB allows a hundred writes.
const MOVED_AT_ONCE: usize = 50;

/// The destinations of a channel that have parked messages.
pub struct Parked {
    channel: &'static str,
    lanes: Roster<ParkedLane>,
}

pub struct ParkedLane {
    lane: Lane,
    ready: VecDeque<Stub>,
}

/// Messages that are being parked.
#[derive(Default)]
pub struct Parking {
    stubs: Arc<Vec<Stub>>,
    task: JoinSet<Result<(), Error>>,
}

impl Parking {
    pub fn is_empty(&self) -> bool {
        self.task.is_empty()
    }

    /// Waits until all are where they belong; gives them, and what came of it. Without any, for ever.
    pub async fn ended(&mut self) -> (Arc<Vec<Stub>>, Result<(), Error>) {
        let Some(joined) = self.task.join_next().await else { return std::future::pending().await };
        let panicked = |error: JoinError| Error::Failed { context: "parking".to_owned(), source: error.into() };
        (std::mem::take(&mut self.stubs), joined.map_err(panicked).flatten())
    }
}

impl Parked {
    pub fn new(channel: &'static str) -> Self {
        Self { channel, lanes: Roster::default() }
    }

    pub fn has(&self, destination: &str) -> bool {
        self.lanes.contains(destination)
    }

    /// By destination.
    pub const fn lanes(&self) -> &Roster<ParkedLane> {
        &self.lanes
    }

    /// Those that may be served now.
    pub fn awake(&mut self, now: Duration) -> Vec<String> {
        self.lanes.wake_by(now);
        self.lanes.awake().map(ToOwned::to_owned).collect()
    }

    /// A destination is not asked about before that moment, or before it is woken.
    pub fn rest(&mut self, destination: &str, until: Option<Duration>) {
        self.lanes.rest(destination, until);
    }

    /// Messages of a destination are being parked: whoever comes later waits behind them.
    pub fn expect(&mut self, destination: &str) {
        self.open(destination);
        self.lanes.rest(destination, None);
    }

    /// A destination that had its hands full may be asked about again.
    pub fn wake(&mut self, destination: &str) {
        self.lanes.wake(destination);
    }

    /// Learns of what was parked before this process began, or by another.
    pub async fn load(&mut self, store: &dyn Store) -> Result<(), Error> {
        for (destination, _) in targets::parked(store, self.channel).await? {
            self.open(&destination).lane.rewind();
        }
        self.lanes.wake_all();
        Ok(())
    }

    /// The next message of a destination. Without one, the destination has nothing parked any more.
    pub async fn next(
        &mut self,
        destination: &str,
        store: &dyn Store,
        table: &Table,
        now: Timestamp,
        held: &mut FxHashSet<String>,
    ) -> Result<Option<Stub>, Error> {
        let parked = self.open(destination);
        while parked.ready.is_empty() {
            let (items, end) = parked.lane.read(store, table, now, READ_AHEAD).await?;
            for item in items {
                // There may be many destinations: what waits here is known by its id alone.
                let stub = Stub { stored: None, ..Stub::of(Box::new(Stored::read(item)?), Duration::ZERO) };
                if held.insert(stub.message_id.clone()) {
                    parked.ready.push_back(stub);
                }
            }
            if end {
                break;
            }
        }
        if let Some(stub) = parked.ready.pop_front() {
            return Ok(Some(stub));
        }
        self.close_if_empty(destination, store, table).await?;
        Ok(None)
    }

    async fn close_if_empty(&mut self, destination: &str, store: &dyn Store, table: &Table) -> Result<(), Error> {
        // In this order: whoever parks something after the first look makes the last step fail.
        let moves = targets::moves(store, self.channel, destination).await?;
        if !self.open(destination).lane.is_empty(store, table).await? {
            return Ok(());
        }
        if let Some(moves) = moves {
            match store.transact(vec![targets::forget_parked(self.channel, destination, moves)]).await {
                Ok(()) => {}
                Err(Error::Conflict { .. }) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.lanes.remove(destination);
        Ok(())
    }

    fn open(&mut self, destination: &str) -> &mut ParkedLane {
        if !self.has(destination) {
            let lane = Lane::new(targets::parked_part(self.channel, destination));
            self.lanes.insert(destination.to_owned().into(), ParkedLane { lane, ready: VecDeque::new() });
        }
        self.lanes.get_mut(destination).expect("it is there, or was put there")
    }
}

impl ParkedLane {
    pub const fn lane(&self) -> &Lane {
        &self.lane
    }
}

impl Deliverer {
    /// Parks everybody who is left in the window, while others go on; `true` if that made room.
    pub(super) fn park(&mut self) -> bool {
        // With one destination there is nobody to make room for; and who is being written must not be moved meanwhile.
        if !self.has_many_destinations() || !self.queueing.is_empty() || !self.parking.is_empty() {
            return false;
        }
        let stubs = Arc::new(self.window.clear());
        stubs.iter().for_each(|stub| self.parked.expect(&stub.destination));
        let (services, channel) = (self.services.clone(), self.channel);
        self.parking.stubs = Arc::clone(&stubs);
        self.parking.task.spawn(async move {
            let parked = park(&services, channel, &stubs).await;
            if parked.is_err() {
                // A store that fails is not to be asked again at once.
                tokio::time::sleep(PAUSE).await;
            }
            parked
        });
        true
    }

    /// What was parked is served from where it is now.
    pub(super) fn take_parked(&mut self, stubs: &[Stub], parked: Result<(), Error>) {
        if let Err(error) = parked {
            tracing::warn!(channel = self.channel, %error, "messages cannot be parked; it will be tried again");
            // Those that stayed where they were are found there.
            self.looked_again = None;
        }
        for stub in stubs {
            self.held.remove(&stub.message_id);
        }
        let destinations: BTreeSet<&str> = stubs.iter().map(|stub| &*stub.destination).collect();
        for destination in destinations {
            // What comes in may be older than what was read.
            self.parked.open(destination).lane.rewind();
            self.parked.wake(destination);
        }
    }

    /// Starts what is parked and may go.
    pub(super) async fn start_parked(&mut self, now: Timestamp, monotonic: Duration) -> Result<(), Error> {
        for destination in self.parked.awake(monotonic) {
            while self.running.len() < self.concurrency {
                match self.limiter.admit(&destination, monotonic) {
                    Admission::Go | Admission::Probe => {}
                    Admission::Crowded => break,
                    Admission::Busy => {
                        self.parked.rest(&destination, None);
                        break;
                    }
                    Admission::Open { until } => {
                        self.parked.rest(&destination, Some(until));
                        break;
                    }
                }
                let (store, table) = (&*self.services.store, &self.services.messages.table);
                let next = self.parked.next(&destination, store, table, now, &mut self.held).await;
                match next {
                    Ok(Some(stub)) => self.running.begin(stub),
                    other => {
                        self.limiter.end(&destination, Health::Untried, monotonic);
                        // Who waited behind may go.
                        self.window.wake(&destination);
                        other?;
                        break;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Moves messages to the partition of their destination, where they are `queued`. One that changed meanwhile stays where
/// it is.
async fn park(services: &Services, channel: &'static str, stubs: &[Stub]) -> Result<(), Error> {
    let mut by_destination: BTreeMap<&str, Vec<&Stub>> = BTreeMap::new();
    for stub in stubs {
        by_destination.entry(&stub.destination).or_default().push(stub);
    }
    let together = |(destination, stubs): (_, Vec<_>)| {
        let portions: Vec<_> = stubs.chunks(MOVED_AT_ONCE).map(|portion| (destination, portion.to_vec())).collect();
        portions
    };
    let mut portions: Vec<(&str, Vec<&Stub>)> = by_destination.into_iter().flat_map(together).collect();
    // The second time without those that were changed by somebody else.
    for is_last in [false, true] {
        let transactions = portions.iter().map(|(to, stubs)| moves(services, channel, to, stubs)).collect();
        let outcomes = services.store.transact_each(transactions).await;
        let mut again = Vec::new();
        for ((destination, stubs), outcome) in portions.into_iter().zip(outcomes) {
            match outcome {
                Ok(()) => {}
                Err(Error::Conflict { failed }) if !is_last => {
                    let stale: HashSet<usize> = failed.iter().map(|failed| failed.write).collect();
                    let fresh = stubs.into_iter().enumerate().filter(|(place, _)| !stale.contains(&(place + 1)));
                    again.push((destination, fresh.map(|(_, stub)| stub).collect()));
                }
                Err(Error::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        if again.is_empty() {
            break;
        }
        portions = again;
    }
    Ok(())
}

fn moves(services: &Services, channel: &str, destination: &str, stubs: &[&Stub]) -> Vec<Write> {
    let part = targets::parked_part(channel, destination);
    let mut tally = Tally::default();
    let mut writes = vec![targets::note_parked(channel, destination)];
    for stub in stubs {
        let mut changes = vec![Change::Set("due".into(), part.as_str().into())];
        changes.extend(queueing(services, stub, &mut tally));
        let unchanged = Condition::All(vec![
            Condition::Equals("revision".into(), stub.revision.into()),
            Condition::HasAttribute("due".into()),
        ]);
        let table = &services.messages.table;
        writes.push(Write::update(table, record::key(&stub.message_id), changes).when(unchanged));
    }
    writes.extend(tally.writes());
    writes
}

/// The changes that make a message `queued`, if it is not yet; a new revision in any case.
fn queueing(services: &Services, stub: &Stub, tally: &mut Tally) -> Vec<Change> {
    let stored = stub.stored.as_deref().filter(|stored| stored.message.delivery.status == Status::Created);
    let queued = stored
        .and_then(|stored| services.messages.transition(stored, Input::Queued, services.clock.now(), |_| {}).ok());
    let Some(mut queued) = queued else { return vec![Change::Add("revision".into(), 1)] };
    tally.merge(&queued.tally);
    match queued.writes.first_mut() {
        Some(Write::Update { changes, .. }) => std::mem::take(changes),
        _ => Vec::new(),
    }
}
