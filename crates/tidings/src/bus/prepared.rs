//! Changes of the bus that are ready to be written: the writes, and what to tell the lines once they are durable.

use std::sync::Arc;

use tidings_core::time::Timestamp;
use tidings_store::{Condition, Error, Item, Key, Store, Write, limits};
use tokio::sync::OwnedMutexGuard;
use tokio::sync::mpsc::error::SendError;

use super::fanout::Fanout;
use super::fence::Fence;
use super::layout::{self, Delta, LaneId, Place};
use super::line::{Line, Shared};
use super::message::Stored;

/// Writes for a transaction, the caller's or our own. Exactly one of [`Prepared::committed`] and [`Prepared::aborted`]
/// says how that went. One that is dropped without either (its task was cancelled, or nobody knows how it went) is
/// looked up in the store.
#[must_use = "the writes go into a transaction, and then `committed` or `aborted` is called"]
#[derive(Default)]
pub struct Prepared {
    writes: Vec<Write>,
    /// Bytes of the writes.
    bytes: usize,
    counts: Vec<Counted>,
    arrivals: Vec<Arrival>,
    /// Each message's line and number, in the order they were given.
    pub sent: Vec<Sent>,
}

/// A message that will be somewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    pub message_id: String,
    pub path: String,
    pub sequence: u64,
}

impl Sent {
    /// Its number, unless another node is to give it one.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        Some(self.sequence).filter(|number| *number > 0)
    }
}

/// How a line's counts change, and in which epoch that was decided.
struct Counted {
    line: Arc<Line>,
    delta: Delta,
    /// None: anybody may, whoever has the line.
    epoch: Option<u64>,
}

/// What a transaction does to one entity's counts.
struct Changed<'a> {
    entity: &'a str,
    /// By the generation of the line.
    deltas: Vec<(&'a str, Delta)>,
    fence: Option<(&'a Fence, u64)>,
}

enum Arrival {
    /// With the epoch in which its place was given.
    Lane(Arc<Line>, u64, LaneId, u64, Arc<Stored>),
    Timed(Arc<Line>, Timestamp, u64),
    /// Whoever has the line takes it in.
    Posted(Arc<Line>, Key),
    /// A message that is to be copied to the subscriptions of its topic.
    Job(Arc<Shared>, Arc<Fanout>, u64),
}

impl Arrival {
    /// Whether it comes to the same line as that one, in the same epoch.
    fn is_beside(&self, line: &Arc<Line>, epoch: u64) -> bool {
        matches!(self, Self::Lane(other, known, ..) if Arc::ptr_eq(other, line) && *known == epoch)
    }

    fn shared(&self) -> &Shared {
        match self {
            Self::Lane(line, ..) | Self::Timed(line, ..) | Self::Posted(line, _) => &line.shared,
            Self::Job(shared, ..) => shared,
        }
    }

    fn key(&self) -> Key {
        match self {
            Self::Lane(line, _, lane, position, _) => line.layout.key(Place::Lane(*lane, *position)),
            Self::Timed(line, due, number) => line.layout.timed(*due, *number),
            Self::Posted(_, key) => key.clone(),
            Self::Job(_, fanout, number) => fanout.key(*number),
        }
    }
}

impl Prepared {
    pub(super) fn write(&mut self, write: Write) {
        self.bytes += size(&write);
        self.writes.push(write);
    }

    pub(super) fn write_first(&mut self, write: Write) {
        self.bytes += size(&write);
        self.writes.insert(0, write);
    }

    /// The first write is made only if this holds.
    pub(super) fn demand_first(&mut self, condition: Condition) {
        if let Some(write) = self.writes.first_mut() {
            *write = write.clone().when(condition);
        }
    }

    pub(super) fn count(&mut self, line: &Arc<Line>, delta: Delta) {
        let epoch = Some(line.epoch());
        self.add_count(Counted { line: Arc::clone(line), delta, epoch });
    }

    /// Counts whoever has the line.
    pub(super) fn count_anyhow(&mut self, line: &Arc<Line>, delta: Delta) {
        self.add_count(Counted { line: Arc::clone(line), delta, epoch: None });
    }

    /// A batch is mostly about one line, so there is one sum.
    fn add_count(&mut self, counted: Counted) {
        match self.counts.last_mut() {
            Some(last) if Arc::ptr_eq(&last.line, &counted.line) && last.epoch == counted.epoch => {
                last.delta.add(&counted.delta);
            }
            _ => self.counts.push(counted),
        }
    }

    /// Nothing is written unless the line is still ours as it was in that epoch.
    pub(super) fn fence(&mut self, line: &Arc<Line>, epoch: u64) {
        if line.fence.is_shared() {
            self.add_count(Counted { line: Arc::clone(line), delta: Delta::default(), epoch: Some(epoch) });
        }
    }

    /// A message for whoever has the line.
    pub(super) fn post(&mut self, line: &Arc<Line>, key: Key, stored: &Stored) -> Result<(), Error> {
        self.put(key.clone(), stored)?;
        self.arrivals.push(Arrival::Posted(Arc::clone(line), key));
        Ok(())
    }

    /// A message comes to a position that was begun.
    pub(super) fn arrive(
        &mut self,
        line: &Arc<Line>,
        lane: LaneId,
        position: u64,
        stored: Stored,
    ) -> Result<(), Error> {
        self.put(line.layout.key(Place::Lane(lane, position)), &stored)?;
        // Every position is given out once.
        if let Some(Write::Put { condition, .. }) = self.writes.last_mut() {
            *condition = Condition::Fresh;
        }
        if let Some(at) = stored.expires_at {
            self.write(layout::pointer(&line.layout.expiry(at, lane, position), at));
        }
        let epoch = line.epoch();
        self.arrivals.push(Arrival::Lane(Arc::clone(line), epoch, lane, position, Arc::new(stored)));
        Ok(())
    }

    /// Where the message goes that was the last to come to a lane: the line, and the position there.
    pub(super) fn last_arrival(&self) -> Option<(&Arc<Line>, u64)> {
        self.arrivals.iter().rev().find_map(|arrival| match arrival {
            Arrival::Lane(line, _, _, position, _) => Some((line, *position)),
            _ => None,
        })
    }

    /// A message waits for its time.
    pub(super) fn arrive_timed(
        &mut self,
        line: &Arc<Line>,
        due: Timestamp,
        number: u64,
        stored: &Stored,
    ) -> Result<(), Error> {
        self.put(line.layout.timed(due, number), stored)?;
        self.arrivals.push(Arrival::Timed(Arc::clone(line), due, number));
        Ok(())
    }

    /// A message waits to be copied.
    pub(super) fn arrive_job(&mut self, shared: Arc<Shared>, fanout: Arc<Fanout>, number: u64) {
        self.arrivals.push(Arrival::Job(shared, fanout, number));
    }

    pub(super) fn put(&mut self, key: Key, stored: &Stored) -> Result<(), Error> {
        self.put_with(key, stored, |item| item)
    }

    /// The same with more in its item.
    pub(super) fn put_with(&mut self, key: Key, stored: &Stored, more: impl FnOnce(Item) -> Item) -> Result<(), Error> {
        use tidings_store::KeyValue;
        let (KeyValue::S(line), Some(KeyValue::S(at))) = (key.partition, key.sort) else {
            return Err(Error::Invalid("keys of the bus are text".to_owned()));
        };
        self.write(Write::put(layout::table(), more(stored.to_item(line, at)?)));
        Ok(())
    }

    /// Nothing to write: the message was seen before, or nobody wants it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// How many writes [`Prepared::writes`] gives.
    #[must_use]
    pub fn len(&self) -> usize {
        let counted = if self.counts.len() < 2 { self.counts.len() } else { self.counted().len() };
        self.writes.len() + counted
    }

    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The writes, for exactly one transaction.
    #[must_use]
    pub fn writes(&self) -> Vec<Write> {
        let mut writes = self.writes.clone();
        self.add_count_writes(&mut writes);
        writes
    }

    fn take_writes(&mut self) -> Vec<Write> {
        let mut writes = std::mem::take(&mut self.writes);
        self.add_count_writes(&mut writes);
        writes
    }

    fn add_count_writes(&self, writes: &mut Vec<Write>) {
        // Most are about one line, and there is nothing to be brought together.
        if let [Counted { line, delta, epoch }] = &*self.counts {
            let fence = epoch.map(|epoch| (&*line.fence, epoch));
            writes.extend(count_write(&line.entity, [(line.layout.generation(), *delta)], fence));
            return;
        }
        let counted = self.counted().into_iter();
        writes.extend(counted.filter_map(|changed| count_write(changed.entity, changed.deltas, changed.fence)));
    }

    /// In the order of the entities, in which whoever needs several waits for them.
    fn counted(&self) -> Vec<Changed<'_>> {
        let mut counted: Vec<Changed<'_>> = Vec::with_capacity(1);
        for Counted { line, delta, epoch } in &self.counts {
            let generation = line.layout.generation();
            match counted.iter_mut().find(|changed| changed.entity == line.entity) {
                Some(entity) => {
                    match entity.deltas.iter_mut().find(|(known, _)| *known == generation) {
                        Some((_, sum)) => sum.add(delta),
                        None => entity.deltas.push((generation, *delta)),
                    }
                    if let Some(epoch) = *epoch {
                        // The earliest: what was decided in it is as old as that.
                        let earliest = entity.fence.map_or(epoch, |(_, known)| known.min(epoch));
                        entity.fence = Some((&line.fence, earliest));
                    }
                }
                None => counted.push(Changed {
                    entity: &line.entity,
                    deltas: vec![(generation, *delta)],
                    fence: epoch.map(|epoch| (&*line.fence, epoch)),
                }),
            }
        }
        counted.sort_by_key(|changed| changed.entity);
        counted
    }

    /// Our own transactions of one entity go one after the other; of others it does not matter.
    async fn turns(&self) -> Vec<OwnedMutexGuard<()>> {
        let mut turns = Vec::new();
        for changed in self.counted() {
            if let Some((fence, _)) = changed.fence.filter(|(fence, _)| fence.is_shared()) {
                turns.push(Arc::clone(&fence.turn).lock_owned().await);
            }
        }
        turns
    }

    /// Both together, for one transaction. Always join what goes into one transaction: an item may be written only
    /// once in it, and the counts of an entity are one item.
    pub fn and(mut self, mut other: Self) -> Self {
        self.take_in(&mut other);
        self
    }

    /// Takes everything over from another one, which has its room left for what comes next.
    fn take_in(&mut self, other: &mut Self) {
        self.bytes += std::mem::take(&mut other.bytes);
        self.writes.append(&mut other.writes);
        other.counts.drain(..).for_each(|counted| self.add_count(counted));
        self.arrivals.append(&mut other.arrivals);
        self.sent.append(&mut other.sent);
    }

    /// Adds what is prepared to the last of these transactions, or a new one if both do not fit in it; says whether it is
    /// a new one.
    pub(super) fn join(&mut self, transactions: &mut Vec<Self>) -> bool {
        match transactions.last_mut() {
            Some(last) if last.fits(self) => {
                last.take_in(self);
                false
            }
            _ => {
                transactions.push(std::mem::take(self));
                true
            }
        }
    }

    /// Whether both fit in one transaction.
    pub(super) fn fits(&self, other: &Self) -> bool {
        self.len() + other.len() <= limits::TRANSACTION_WRITES
            && self.bytes() + other.bytes() <= limits::TRANSACTION_BYTES / 2
    }

    /// The transaction is durable: receivers may have the messages now.
    pub fn committed(mut self) {
        self.settle(true);
    }

    /// The transaction was refused; nothing was written.
    pub fn aborted(mut self) {
        self.settle(false);
    }

    /// Says how the transaction went, as far as its outcome tells.
    pub fn resolve(self, outcome: &Result<(), Error>) {
        match outcome {
            Ok(()) => self.committed(),
            // Whether it was carried out is unknown; dropping finds out.
            Err(Error::Failed { .. } | Error::Unreachable(_) | Error::ReadOnly(_)) => drop(self),
            Err(_) => self.aborted(),
        }
    }

    /// Writes it in a transaction of its own.
    pub async fn run(mut self, store: &dyn Store) -> Result<Vec<Sent>, Error> {
        if self.is_empty() {
            return Ok(std::mem::take(&mut self.sent));
        }
        let sent = std::mem::take(&mut self.sent);
        let _turns = self.turns().await;
        let outcome = store.transact(self.take_writes()).await;
        self.resolve(&outcome);
        outcome.map(|()| sent)
    }

    /// Writes several, each in a transaction of its own, and says how each went.
    pub async fn run_each(store: &dyn Store, mut each: Vec<Self>) -> Vec<Result<(), Error>> {
        if each.is_empty() {
            return Vec::new();
        }
        if each.iter().flat_map(|prepared| &prepared.counts).any(|counted| counted.line.fence.is_shared()) {
            let mut outcomes = Vec::with_capacity(each.len());
            for prepared in each {
                outcomes.push(prepared.run(store).await.map(drop));
            }
            return outcomes;
        }
        let outcomes = store.transact_each(each.iter_mut().map(Self::take_writes).collect()).await;
        for (prepared, outcome) in each.into_iter().zip(&outcomes) {
            prepared.resolve(outcome);
        }
        outcomes
    }

    fn settle(&mut self, committed: bool) {
        if committed {
            for Counted { line, delta, epoch } in std::mem::take(&mut self.counts) {
                line.counted(&delta, epoch);
            }
        }
        self.counts.clear();
        let mut arrivals = std::mem::take(&mut self.arrivals).into_iter().peekable();
        while let Some(arrival) = arrivals.next() {
            match arrival {
                Arrival::Lane(line, epoch, lane, position, stored) if committed => {
                    let mut together = vec![(lane, position, stored)];
                    while let Some(Arrival::Lane(_, _, lane, position, stored)) =
                        arrivals.next_if(|next| next.is_beside(&line, epoch))
                    {
                        together.push((lane, position, stored));
                    }
                    line.arrived(epoch, together);
                }
                Arrival::Lane(line, epoch, lane, position, _) => line.aborted(epoch, lane, position),
                Arrival::Timed(line, due, _) if committed => line.due_at(due),
                Arrival::Posted(line, _) if committed => line.posted(),
                Arrival::Timed(..) | Arrival::Posted(..) => {}
                Arrival::Job(shared, fanout, _) if committed => {
                    fanout.committed();
                    shared.copying.notify_one();
                }
                Arrival::Job(_, fanout, _) => fanout.aborted(),
            }
        }
    }

    /// Finds out whether the transaction was carried out, and says so to the lines. The store decides transactions in
    /// the order they come, so one that was handed in before is not carried out after this.
    pub(super) async fn look_up(mut self, store: &dyn Store) -> Result<(), Self> {
        if let Some(Arrival::Posted(..)) = self.arrivals.first() {
            // Whoever looks finds it or not.
            self.settle(true);
            return Ok(());
        }
        let Some(key) = self.arrivals.first().map(Arrival::key) else { return Ok(()) };
        let check = Write::check(layout::table(), key, Condition::Exists);
        match store.transact(vec![check]).await {
            Ok(()) => self.settle(true),
            Err(Error::Conflict { .. }) => self.settle(false),
            Err(_) => return Err(self),
        }
        Ok(())
    }
}

/// The write that counts what changes in an entity, on the condition that it is still ours.
fn count_write<'a>(
    entity: &str,
    deltas: impl IntoIterator<Item = (&'a str, Delta)>,
    fence: Option<(&Fence, u64)>,
) -> Option<Write> {
    let write = layout::count(entity, deltas);
    let Some((fence, epoch)) = fence else { return write };
    match (write, fence.condition(epoch)) {
        (Some(write), Some(condition)) => Some(write.when(condition)),
        (Some(write), None) => Some(write),
        (None, _) => fence.check(epoch),
    }
}

/// About how many bytes a write has.
fn size(write: &Write) -> usize {
    if let Write::Put { item, .. } = write { item.size() } else { 64 }
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared").field("writes", &self.writes.len()).field("sent", &self.sent).finish()
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        if let Some(arrival) = self.arrivals.first() {
            let doubts = arrival.shared().doubts.clone();
            // Nobody listens any more: the bus is being closed, and its next start reads the store.
            if let Err(SendError(mut forgotten)) = doubts.send(std::mem::take(self)) {
                forgotten.arrivals.clear();
            }
        }
    }
}
