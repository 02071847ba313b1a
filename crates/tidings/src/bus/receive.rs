//! Receiving from a line: taking messages out of the window, counting their deliveries, reading what is not in it.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidings_store::{Error, Item, Query, Range, Write, limits};

use super::lane::Load;
use super::layout::{self, LaneId, Layout, Place};
use super::line::{Line, LineError};
use super::message::{Attempt, Stored};
use super::prepared::Prepared;
use super::state::{Action, Taken};

/// Messages that are read at once.
const PAGE: usize = 256;

impl Line {
    /// Up to `max` messages under locks; waits up to `wait` for the first.
    pub async fn receive(
        self: &Arc<Self>,
        max: usize,
        wait: Duration,
        consumer: Option<&str>,
    ) -> Result<Vec<Taken>, LineError> {
        let taken = self.next(max, wait, consumer).await?;
        if !taken.is_empty() {
            self.keep_deliveries(&taken).await?;
            self.handed_out(&taken);
        }
        Ok(taken)
    }

    fn handed_out(self: &Arc<Self>, taken: &[Taken]) {
        self.watch.delivered(taken, self.now().wall);
        self.read_ahead();
    }

    /// Up to `max` messages, which are gone with that.
    pub async fn receive_and_delete(
        self: &Arc<Self>,
        max: usize,
        wait: Duration,
        consumer: Option<&str>,
    ) -> Result<Vec<Taken>, LineError> {
        let taken = self.next(max, wait, consumer).await?;
        if !taken.is_empty() {
            let tokens = taken.iter().map(|taken| (taken.token, super::settle::Settlement::Complete)).collect();
            for outcome in self.settle(tokens).await {
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
    ) -> Result<Vec<Taken>, LineError> {
        let _waiting = Waiting::new(&self.waiting);
        let deadline = tokio::time::sleep(wait);
        tokio::pin!(deadline);
        let mut stopping = self.shared.stopping.clone();
        loop {
            let notified = self.ready.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if self.is_closed() {
                return Err(LineError::Gone);
            }
            let taken = self.take(max, consumer);
            if !taken.is_empty() {
                return Ok(taken);
            }
            if self.load().await? {
                continue;
            }
            if wait.is_zero() {
                return Ok(taken);
            }
            tokio::select! {
                () = notified => {}
                () = &mut deadline => return Ok(Vec::new()),
                () = crate::workers::turned_true(&mut stopping) => return Ok(Vec::new()),
            }
        }
    }

    fn take(self: &Arc<Self>, max: usize, consumer: Option<&str>) -> Vec<Taken> {
        let (now, settings) = (self.now(), self.settings());
        let mut state = self.state();
        let (mut actions, freed) = state.tick(&settings, now);
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
    async fn keep_deliveries(&self, taken: &[Taken]) -> Result<(), LineError> {
        let mut writes = Vec::with_capacity(taken.len());
        for Taken { held, .. } in taken {
            match held.place {
                Place::Lane(lane, position) => {
                    let item = layout::table().key_item(&self.layout.deliveries(lane, position));
                    let attempts = &held.message.attempts;
                    let attempts = (!attempts.is_empty()).then(|| serde_json::to_string(attempts).unwrap_or_default());
                    let item = item.with("n", held.deliveries).with_some("attempts", attempts);
                    writes.push(Write::put(layout::table(), item));
                }
                Place::Deferred(number) => {
                    let stored = Stored { deliveries: held.deliveries, ..Stored::clone(&held.message) };
                    let mut prepared = Prepared::default();
                    prepared.put(&self.layout.key(Place::Deferred(number)), &stored)?;
                    writes.extend(prepared.writes());
                }
            }
        }
        let chunks: Vec<_> = writes.chunks(limits::TRANSACTION_WRITES).map(<[Write]>::to_vec).collect();
        let outcomes = self.shared.store.transact_each(chunks).await;
        if let Some(error) = outcomes.into_iter().find_map(Result::err) {
            let mut state = self.state();
            taken.iter().for_each(|taken| state.untake(&taken.token));
            drop(state);
            self.wake(taken.len());
            return Err(error.into());
        }
        Ok(())
    }

    /// Reads more while the receiver is busy with what it got.
    pub(super) fn read_ahead(self: &Arc<Self>) {
        let ordered = self.settings().ordered;
        let wanted = self.state().wants_load(ordered);
        if wanted {
            let line = Arc::clone(self);
            drop(tokio::spawn(async move { line.load().await }));
        }
    }

    /// Reads messages into a window that has room; says whether there is anything new in it.
    pub(super) async fn load(self: &Arc<Self>) -> Result<bool, Error> {
        // Whoever reads already may bring what we want.
        let _turn = self.loading.lock().await;
        for lane in [LaneId::Front, LaneId::Main] {
            let started = {
                let ordered = self.settings().ordered;
                self.state().start_load(lane, ordered)
            };
            if let Some(load) = started {
                self.load_lane(lane, load).await?;
            }
        }
        let ordered = self.settings().ordered;
        Ok(self.state().has_ready(ordered))
    }

    async fn load_lane(&self, lane: LaneId, load: Load) -> Result<(), Error> {
        let guard = Loading { line: self, lane, done: false };
        let range = Range::Between(layout::digits(load.above + 1).into(), layout::digits(load.up_to).into());
        let query = Query::new(self.layout.partition(lane.letter())).range(range).limit(PAGE);
        let page = self.shared.store.query(layout::table(), &query).await?;
        let mut messages = Vec::with_capacity(page.items.len());
        for item in &page.items {
            let position =
                layout::number_of(item).ok_or_else(|| Error::Corrupt("a position is no number".to_owned()))?;
            messages.push((position, Stored::from_item(item)?));
        }
        self.add_deliveries(lane, &mut messages).await?;
        let messages: Vec<_> = messages.into_iter().map(|(position, stored)| (position, Arc::new(stored))).collect();
        let loaded = messages.len();
        guard.finish(load, messages, page.next.is_none());
        self.wake(loaded);
        Ok(())
    }

    pub(super) async fn add_deliveries(&self, lane: LaneId, messages: &mut [(u64, Stored)]) -> Result<(), Error> {
        let (Some(first), Some(last)) = (messages.first(), messages.last()) else { return Ok(()) };
        let range = Layout::deliveries_range(lane, first.0, last.0);
        let mut query = Query::new(self.layout.partition("d")).range(range).limit(PAGE);
        loop {
            let page = self.shared.store.query(layout::table(), &query).await?;
            for item in &page.items {
                let position = layout::number_of(item);
                if let Some((_, stored)) = messages.iter_mut().find(|(at, _)| Some(*at) == position) {
                    read_deliveries(item, stored);
                }
            }
            if page.next.is_none() {
                return Ok(());
            }
            query = query.after(page.next);
        }
    }

    /// Locks deferred messages by their numbers; those that are not there, or that somebody has, are left out.
    pub async fn receive_deferred(
        self: &Arc<Self>,
        numbers: &[u64],
        consumer: Option<&str>,
    ) -> Result<Vec<Taken>, LineError> {
        if self.is_closed() {
            return Err(LineError::Gone);
        }
        let mut taken = Vec::new();
        let mut asked = HashSet::new();
        for number in numbers.iter().filter(|number| asked.insert(**number)) {
            let place = Place::Deferred(*number);
            let Some(item) = self.shared.store.get(layout::table(), &self.layout.key(place)).await? else { continue };
            let message = Arc::new(Stored::from_item(&item)?);
            let (now, settings) = (self.now(), self.settings());
            let mut state = self.state();
            if !state.is_held(place) {
                let token = self.shared.ids.uuid(now.wall);
                taken.push(state.hold(token, place, message, &settings, consumer, now));
            }
        }
        if !taken.is_empty() {
            self.keep_deliveries(&taken).await?;
        }
        Ok(taken)
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
        let (now, settings) = (self.now(), self.settings());
        let mut state = self.state();
        let (actions, freed) = state.tick(&settings, now);
        let next = state.next_tick();
        drop(state);
        if freed > 0 {
            self.wake(freed);
        }
        self.act(actions);
        next.map(|next| next.saturating_sub(now.monotonic))
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

/// A load under way; one that is dropped has failed.
struct Loading<'a> {
    line: &'a Line,
    lane: LaneId,
    done: bool,
}

impl Loading<'_> {
    fn finish(mut self, load: Load, messages: Vec<(u64, Arc<Stored>)>, whole: bool) {
        self.done = true;
        self.line.state().lane(self.lane).finish_load(load, messages, whole);
    }
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.line.state().lane(self.lane).fail_load();
            self.line.wake(1);
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
