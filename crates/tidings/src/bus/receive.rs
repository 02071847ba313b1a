//! Receiving from a line: taking messages out of the window, counting their deliveries, reading what is not in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidings_core::time::Timestamp;
use tidings_store::{Error, Item, Query, Range, Write, limits};

use super::lane::Load;
use super::layout::{self, LaneId, Layout, Place};
use super::line::{Line, LineError};
use super::message::{ATTEMPTS, Attempt, Stored};
use super::prepared::Prepared;
use super::state::{Action, Taken};
use super::{Bus, BusError, Path};

/// Messages that are read at once.
const PAGE: usize = 256;

impl Bus {
    /// Up to `max` messages of a path, and the line they are from; waits up to `wait` for the first, also if everything is
    /// purged meanwhile. `delete`: they are gone with that, else under locks.
    pub async fn receive(
        &self,
        path: &Path,
        max: usize,
        wait: Duration,
        consumer: Option<&str>,
        delete: bool,
    ) -> Result<(Arc<Line>, Vec<Taken>), BusError> {
        // Most do not wait, and need no clock.
        let deadline = (!wait.is_zero()).then(|| tokio::time::Instant::now() + wait);
        loop {
            let line = self.line(path)?;
            let left = deadline.map_or(Duration::ZERO, |deadline| deadline.duration_since(tokio::time::Instant::now()));
            let taken = match delete {
                true => line.receive_and_delete(max, left, consumer).await,
                false => line.receive(max, left, consumer).await,
            };
            match taken {
                // Purged: another line has taken its place.
                Err(LineError::Gone) if !Arc::ptr_eq(&line, &self.line(path)?) => {}
                taken => return Ok((line, taken?)),
            }
        }
    }
}

impl Line {
    /// Up to `max` messages under locks; waits up to `wait` for the first.
    pub async fn receive(
        self: &Arc<Self>,
        max: usize,
        wait: Duration,
        consumer: Option<&str>,
    ) -> Result<Vec<Taken>, LineError> {
        let hands = self.next(max, wait, consumer).await?;
        if !hands.taken.is_empty() {
            self.keep_deliveries(&hands.taken).await?;
            self.handed_out(&hands.taken);
        }
        Ok(hands.open())
    }

    /// Up to `max` messages for the push endpoint, kept until somebody says what became of them. Their attempts are
    /// counted elsewhere.
    pub(super) async fn receive_to_push(self: &Arc<Self>, max: usize, wait: Duration) -> Result<Vec<Taken>, LineError> {
        let mut taken = self.next(max, wait, Some("push")).await?.open();
        taken.retain(|taken| self.keep(taken).is_some());
        if !taken.is_empty() {
            self.handed_out(&taken);
        }
        Ok(taken)
    }

    fn handed_out(self: &Arc<Self>, taken: &[Taken]) {
        self.watch.delivered(taken, self.shared.clock.now());
        self.read_ahead();
    }

    /// Up to `max` messages, which are gone with that.
    pub async fn receive_and_delete(
        self: &Arc<Self>,
        max: usize,
        wait: Duration,
        consumer: Option<&str>,
    ) -> Result<Vec<Taken>, LineError> {
        let taken = self.next(max, wait, consumer).await?.open();
        if !taken.is_empty() {
            let tokens = taken.iter().map(|taken| (taken.token, super::settle::Settlement::Complete)).collect();
            for outcome in self.settle_unrecorded(tokens).await {
                outcome?;
            }
            self.handed_out(&taken);
        }
        Ok(taken)
    }

    async fn next(
        self: &Arc<Self>,
        max: usize,
        wait: Duration,
        consumer: Option<&str>,
    ) -> Result<Hands<'_>, LineError> {
        // Most find something at once, and need not be ready to wait.
        let hands = self.take_open(max, consumer)?;
        if !hands.taken.is_empty() {
            return Ok(self.fill(hands, max, consumer).await);
        }
        let _waiting = Waiting::new(&self.waiting);
        let deadline = tokio::time::sleep(wait);
        tokio::pin!(deadline);
        let mut stopping = self.shared.stopping.clone();
        loop {
            let notified = self.ready.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            let hands = self.take_open(max, consumer)?;
            if !hands.taken.is_empty() {
                return Ok(self.fill(hands, max, consumer).await);
            }
            if (self.load().await? || self.take_in().await?) && self.hands_out() {
                continue;
            }
            if wait.is_zero() {
                return Ok(hands);
            }
            tokio::select! {
                () = notified => {}
                () = &mut deadline => return Ok(hands),
                () = crate::workers::turned_true(&mut stopping) => return Ok(hands),
            }
        }
    }

    /// What can be had at once of a line that is open, and ours.
    fn take_open(self: &Arc<Self>, max: usize, consumer: Option<&str>) -> Result<Hands<'_>, LineError> {
        if self.is_closed() {
            return Err(LineError::Gone);
        }
        if !self.is_ours() {
            return Err(LineError::Elsewhere);
        }
        Ok(Hands { line: self, taken: self.take(max, consumer) })
    }

    /// What came back may be in the window before the rest is.
    async fn fill<'a>(self: &'a Arc<Self>, mut hands: Hands<'a>, max: usize, consumer: Option<&str>) -> Hands<'a> {
        let left = max - hands.taken.len();
        if left > 0 && self.has_more() && self.load().await.is_ok_and(|ready| ready) {
            hands.taken.extend(self.take(left, consumer));
        }
        hands
    }

    /// Whether what is ready may be had: not from a line that is about to be another node's, nor while as much is out as
    /// may be. Whoever changes that wakes those who wait.
    fn hands_out(&self) -> bool {
        !self.fence.is_leaving() && self.state().has_room()
    }

    fn take(self: &Arc<Self>, max: usize, consumer: Option<&str>) -> Vec<Taken> {
        let (now, settings) = (self.now(), self.settings());
        let mut state = self.state();
        let (mut actions, freed) = state.tick(&settings, now, |deliveries| self.wait_after(&settings, deliveries));
        // What is about to be another node's is handed out by that one.
        let max = if self.fence.is_leaving() { 0 } else { max };
        let (taken, more) = state.take(max, &settings, consumer, now, || self.shared.ids.uuid(now.wall));
        let next = state.next_tick();
        drop(state);
        actions.extend(more);
        if freed > taken.len() {
            self.wake(freed - taken.len());
        }
        if !taken.is_empty() && next.is_some_and(|next| next < now.monotonic + super::worker::TICK) {
            self.shared.alarm.notify_one();
        }
        self.act(actions);
        taken
    }

    /// Writes down that these were delivered, before anybody has them: a message that ends the process is counted, too.
    async fn keep_deliveries(self: &Arc<Self>, taken: &[Taken]) -> Result<(), LineError> {
        let now = self.shared.clock.now();
        let mut writes: Vec<Write> = self.hand_out(taken, now).into_iter().collect();
        let first = writes.len();
        for Taken { held, .. } in taken.iter().filter(|taken| taken.held.deliveries > 1) {
            if let Place::Lane(lane, position) = held.place {
                let item = self.deliveries_item(lane, position, held.deliveries, &held.message.attempts);
                writes.push(Write::put(layout::table(), handed_to(item, now, held.consumer.as_deref())));
            }
        }
        let again = writes.len() > first;
        let (shared, epoch) = (self.fence.is_shared(), taken.first().map_or(0, |taken| taken.held.epoch));
        let room = limits::TRANSACTION_WRITES - usize::from(shared);
        let mut chunks = Vec::with_capacity(1);
        while !writes.is_empty() {
            let rest = writes.split_off(writes.len().min(room));
            chunks.push(std::mem::replace(&mut writes, rest));
        }
        let outcomes = if shared {
            let fenced = chunks.into_iter().map(|chunk| {
                let mut prepared = Prepared::default();
                chunk.into_iter().for_each(|write| prepared.write(write));
                prepared.fence(self, epoch);
                prepared
            });
            Prepared::run_each(&*self.shared.store, fenced.collect()).await
        } else {
            self.shared.store.transact_each(chunks).await
        };
        if let Some(error) = outcomes.into_iter().find_map(Result::err) {
            if matches!(error, Error::Conflict { .. }) {
                self.shared.doubt();
                return Err(LineError::Elsewhere);
            }
            return Err(error.into());
        }
        if again {
            self.counted_alone(taken);
        }
        Ok(())
    }

    /// Reads more while the receiver is busy with what it got.
    pub(super) fn read_ahead(self: &Arc<Self>) {
        if self.has_more() {
            let line = Arc::clone(self);
            drop(tokio::spawn(async move { line.load().await }));
        }
    }

    /// Whether reading would bring something.
    fn has_more(&self) -> bool {
        let ordered = self.settings().ordered;
        let state = self.state();
        state.epoch != 0 && state.wants_load(ordered)
    }

    /// Reads messages into a window that has room; says whether there is anything new in it.
    pub(super) async fn load(self: &Arc<Self>) -> Result<bool, Error> {
        // Whoever reads already may bring what we want.
        let _turn = self.loading.lock().await;
        self.recall().await?;
        for lane in [LaneId::Front, LaneId::Main] {
            let (started, epoch) = {
                let ordered = self.settings().ordered;
                let mut state = self.state();
                (state.start_load(lane, ordered), state.epoch)
            };
            if let Some(load) = started {
                self.load_lane(lane, load, epoch).await?;
            }
        }
        let ordered = self.settings().ordered;
        Ok(self.state().has_ready(ordered))
    }

    async fn load_lane(&self, lane: LaneId, load: Load, epoch: u64) -> Result<(), Error> {
        let guard = Loading { line: self, lane, epoch, done: false };
        let range = Range::Between(layout::digits(load.above + 1).into(), layout::digits(load.up_to).into());
        let query = Query::new(self.layout.partition(lane.letter())).range(range).limit(PAGE);
        let page = self.shared.store.query(layout::table(), &query).await?;
        let mut messages = Vec::with_capacity(page.items.len());
        for item in &page.items {
            let position =
                layout::number_of(item).ok_or_else(|| Error::Corrupt("a position is no number".to_owned()))?;
            messages.push((position, Stored::from_item(item)?));
        }
        let waits = self.add_deliveries(lane, &mut messages, !self.is_of_dead_letters()).await?;
        let messages: Vec<_> = messages.into_iter().map(|(position, stored)| (position, Arc::new(stored))).collect();
        let loaded = messages.len();
        guard.finish(load, messages, page.next.is_none(), &waits);
        if !waits.is_empty() {
            self.shared.alarm.notify_one();
        }
        self.wake(loaded);
        Ok(())
    }

    /// The record of a waiting message's deliveries.
    pub(super) fn deliveries_item(&self, lane: LaneId, position: u64, deliveries: u32, attempts: &[Attempt]) -> Item {
        let attempts = (!attempts.is_empty()).then(|| serde_json::to_string(attempts).unwrap_or_default());
        self.layout.deliveries_item(lane, position).with_some("attempts", attempts).with("n", deliveries)
    }

    /// Adds what is recorded of their deliveries, which nobody knows the end of if they are `lost`. Says which of them
    /// wait for their next one: position, key and until when.
    pub(super) async fn add_deliveries(
        &self,
        lane: LaneId,
        messages: &mut [(u64, Stored)],
        lost: bool,
    ) -> Result<Vec<(u64, String, Timestamp)>, Error> {
        let mut waits = Vec::new();
        let (Some(first), Some(last)) = (messages.first(), messages.last()) else { return Ok(waits) };
        let range = Layout::deliveries_range(lane, first.0, last.0);
        let mut query = Query::new(self.layout.partition("d")).range(range).limit(PAGE);
        loop {
            let page = self.shared.store.query(layout::table(), &query).await?;
            for item in &page.items {
                let position = layout::number_of(item);
                if let Some((at, stored)) = messages.iter_mut().find(|(at, _)| Some(*at) == position) {
                    read_deliveries(item, stored);
                    if lost {
                        note_lost(handed_at(item), item.str("by"), stored);
                    }
                    let due = item.int("due").and_then(|due| u64::try_from(due).ok());
                    waits.extend(due.map(|due| (*at, stored.message.order_key().to_owned(), layout::from_micros(due))));
                }
            }
            if page.next.is_none() {
                break;
            }
            query = query.after(page.next);
        }
        self.add_handouts(lane, messages, lost).await?;
        Ok(waits)
    }

    /// A message that was received waits again, as if nothing had been.
    pub(super) fn give_back(&self, taken: &Taken) {
        self.state().untake(&taken.token);
        self.wake(1);
    }

    /// Whether this lock is on the message of that id or number.
    #[must_use]
    pub fn is_locked_as(&self, token: &uuid::Uuid, name: &str) -> bool {
        self.state()
            .held(token)
            .is_some_and(|held| held.message.message.id == name || name.parse() == Ok(held.message.sequence))
    }

    /// Ends locks that are over; says when to look again.
    pub(super) fn tick(self: &Arc<Self>) -> Option<Duration> {
        let (actions, next) = self.end_locks();
        self.act(actions);
        next
    }

    /// The same; says what follows from it, too.
    pub(super) fn end_locks(self: &Arc<Self>) -> (Vec<Action>, Option<Duration>) {
        let (now, settings) = (self.now(), self.settings());
        let mut state = self.state();
        let (actions, freed) = state.tick(&settings, now, |deliveries| self.wait_after(&settings, deliveries));
        let next = state.next_tick();
        drop(state);
        if freed > 0 {
            self.wake(freed);
        }
        (actions, next.map(|next| next.saturating_sub(now.monotonic)))
    }

    pub(super) fn act(self: &Arc<Self>, actions: Vec<Action>) {
        if !actions.is_empty() {
            let line = Arc::clone(self);
            drop(tokio::spawn(async move { line.carry_out(actions).await }));
        }
    }
}

fn read_deliveries(item: &Item, stored: &mut Stored) {
    stored.deliveries = item.int("n").and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
    if let Some(attempts) = item.str("attempts").and_then(|text| serde_json::from_str::<Vec<Attempt>>(text).ok()) {
        stored.attempts = attempts;
    }
}

/// Notes when and to whom a message was handed out.
pub(super) fn handed_to(item: Item, at: Timestamp, consumer: Option<&str>) -> Item {
    item.with("t", i64::try_from(layout::micros(at)).unwrap_or(i64::MAX)).with_some("by", consumer)
}

/// When that was.
pub(super) fn handed_at(item: &Item) -> Option<Timestamp> {
    item.int("t").and_then(|at| u64::try_from(at).ok()).map(layout::from_micros)
}

/// Notes the deliveries of which nobody knows how they ended: the process that had the message is no more (S003-97).
pub(super) fn note_lost(at: Option<Timestamp>, by: Option<&str>, stored: &mut Stored) {
    let known = stored.attempts.last().map_or(0, |attempt| attempt.delivery);
    let kept = stored.deliveries.saturating_sub(u32::try_from(ATTEMPTS).unwrap_or(u32::MAX));
    for delivery in known.max(kept) + 1..=stored.deliveries {
        let last = delivery == stored.deliveries;
        stored.note(Attempt {
            delivery,
            at: at.unwrap_or(stored.enqueued_at),
            outcome: "lost".into(),
            consumer: by.filter(|_| last).map(ToOwned::to_owned),
            reason: Some("Lost".to_owned()),
            description: Some("how it ended was not stored, as when the process ends before that".to_owned()),
        });
    }
}

/// A load under way; one that is dropped has failed.
struct Loading<'a> {
    line: &'a Line,
    lane: LaneId,
    epoch: u64,
    done: bool,
}

impl Loading<'_> {
    fn finish(
        mut self,
        load: Load,
        messages: Vec<(u64, Arc<Stored>)>,
        whole: bool,
        waits: &[(u64, String, Timestamp)],
    ) {
        self.done = true;
        let (now, settings) = (self.line.now(), self.line.settings());
        let mut state = self.line.state();
        // What somebody else has taken over since is read anew when it comes back.
        if state.epoch == self.epoch {
            state.lane(self.lane).finish_load(load, messages, whole);
            state.go_on_waiting(self.lane, waits, &settings, now);
        }
    }
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        if !self.done {
            let mut state = self.line.state();
            if state.epoch == self.epoch {
                state.lane(self.lane).fail_load();
            }
            drop(state);
            self.line.wake(1);
        }
    }
}

/// Messages that were taken for somebody who does not have them yet. If he goes away before that, they wait again: nobody
/// else should have to wait until their locks run out.
struct Hands<'a> {
    line: &'a Line,
    taken: Vec<Taken>,
}

impl Hands<'_> {
    fn open(mut self) -> Vec<Taken> {
        std::mem::take(&mut self.taken)
    }
}

impl Drop for Hands<'_> {
    fn drop(&mut self) {
        if !self.taken.is_empty() {
            let mut state = self.line.state();
            self.taken.iter().for_each(|taken| state.untake(&taken.token));
            drop(state);
            self.line.wake(self.taken.len());
        }
    }
}

/// Counts who waits.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
