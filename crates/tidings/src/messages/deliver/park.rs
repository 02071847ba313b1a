//! Parked messages: those of a destination that takes no more for now, out of everybody's way.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::Duration;

use rustc_hash::FxHashSet;
use tidings_core::message::{Input, Status};
use tidings_core::time::Timestamp;
use tidings_store::{Change, Condition, Error, Store, Table, Write};

use super::lane::Lane;
use super::targets;
use super::window::Stub;
use crate::app::Services;
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
    lanes: BTreeMap<String, ParkedLane>,
}

struct ParkedLane {
    lane: Lane,
    ready: VecDeque<Stub>,
}

impl Parked {
    pub const fn new(channel: &'static str) -> Self {
        Self { channel, lanes: BTreeMap::new() }
    }

    pub fn has(&self, destination: &str) -> bool {
        self.lanes.contains_key(destination)
    }

    pub fn destinations(&self) -> impl Iterator<Item = &str> {
        self.lanes.keys().map(String::as_str)
    }

    pub fn lanes(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.values().map(|parked| &parked.lane)
    }

    /// Learns of what was parked before this process began, or by another.
    pub async fn load(&mut self, store: &dyn Store) -> Result<(), Error> {
        for (destination, _) in targets::parked(store, self.channel).await? {
            self.open(&destination).lane.rewind();
        }
        Ok(())
    }

    /// Moves messages to the partition of their destination, where they are `queued`. One that changed meanwhile stays
    /// where it is.
    pub async fn park(&mut self, services: &Services, stubs: &[Stub]) -> Result<(), Error> {
        let store = &*services.store;
        let mut by_destination: BTreeMap<&str, Vec<&Stub>> = BTreeMap::new();
        for stub in stubs {
            by_destination.entry(&stub.destination).or_default().push(stub);
        }
        for (destination, stubs) in by_destination {
            for stubs in stubs.chunks(MOVED_AT_ONCE) {
                match store.transact(self.moves(services, destination, stubs)).await {
                    Ok(()) => {}
                    Err(Error::Conflict { failed }) => {
                        let stale: HashSet<usize> = failed.iter().map(|failed| failed.write).collect();
                        let fresh = stubs.iter().enumerate().filter(|(place, _)| !stale.contains(&(place + 1)));
                        let fresh: Vec<&Stub> = fresh.map(|(_, stub)| *stub).collect();
                        match store.transact(self.moves(services, destination, &fresh)).await {
                            Ok(()) | Err(Error::Conflict { .. }) => {}
                            Err(error) => return Err(error),
                        }
                    }
                    Err(error) => return Err(error),
                }
            }
            // What comes in may be older than what was read.
            self.open(destination).lane.rewind();
        }
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

    fn moves(&self, services: &Services, destination: &str, stubs: &[&Stub]) -> Vec<Write> {
        let part = targets::parked_part(self.channel, destination);
        let mut tally = Tally::default();
        let mut writes = vec![targets::note_parked(self.channel, destination)];
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

    fn open(&mut self, destination: &str) -> &mut ParkedLane {
        let channel = self.channel;
        self.lanes.entry(destination.to_owned()).or_insert_with(|| ParkedLane {
            lane: Lane::new(targets::parked_part(channel, destination)),
            ready: VecDeque::new(),
        })
    }
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
