//! Deferred messages, which are received by their numbers. One is set aside before it is looked up and until what became
//! of it is stored, so that two never have it, and nobody has one that is gone.

use std::collections::HashSet;
use std::sync::Arc;

use tidings_store::{Condition, Error};

use super::layout::{self, Place};
use super::line::{Line, LineError};
use super::message::{MAX_DELIVERIES, Stored};
use super::prepared::Prepared;
use super::receive::{handed_at, handed_to, note_lost};
use super::state::{Action, Taken};

impl Line {
    /// Locks deferred messages by their numbers; those that are not there, that somebody has, or that wait for their next
    /// delivery are left out, and so are those of an ordered line's key of which another one is out.
    pub async fn receive_deferred(
        self: &Arc<Self>,
        numbers: &[u64],
        consumer: Option<&str>,
    ) -> Result<Vec<Taken>, LineError> {
        if self.is_closed() {
            return Err(LineError::Gone);
        }
        if !self.is_ours() {
            return Err(LineError::Elsewhere);
        }
        let mut taken = Vec::new();
        let mut asked = HashSet::new();
        for number in numbers.iter().filter(|number| asked.insert(**number)) {
            match self.take_deferred(*number, consumer).await {
                Ok(one) => taken.extend(one),
                // What is locked already is handed out; who asks again hears the same of the rest.
                Err(_) if !taken.is_empty() => break,
                Err(error) => return Err(error.into()),
            }
        }
        self.keep_deferred(taken).await
    }

    async fn take_deferred(self: &Arc<Self>, number: u64, consumer: Option<&str>) -> Result<Option<Taken>, Error> {
        let place = Place::Deferred(number);
        let Some(aside) = Aside::new(self, number) else { return Ok(None) };
        let Some(item) = self.shared.store.get(layout::table(), &self.layout.key(place)).await? else {
            return Ok(None);
        };
        let mut message = Stored::from_item(&item)?;
        if !self.is_of_dead_letters() {
            note_lost(handed_at(&item), item.str("by"), &mut message);
        }
        if message.not_before.take().is_some_and(|due| due > self.now().wall) {
            return Ok(None);
        }
        let message = Arc::new(message);
        let (now, settings) = (self.now(), self.settings());
        if message.is_exhausted(message.deliveries, settings.max_deliveries) {
            // It failed as often as it may, the last time with the end of the process.
            aside.keep();
            self.act(vec![Action::DeadLetter { place, message, reason: MAX_DELIVERIES }]);
            return Ok(None);
        }
        let mut state = self.state();
        let busy = state.is_busy(message.message.order_key());
        if state.epoch != aside.epoch || busy || !state.has_room() {
            drop(state);
            return Ok(None);
        }
        let consumer = consumer.map(Arc::from);
        let taken = state.hold(self.shared.ids.uuid(now.wall), place, message, &settings, consumer, now);
        drop(state);
        aside.keep();
        Ok(Some(taken))
    }

    /// Writes down that these were delivered; those that are gone after all are left out.
    async fn keep_deferred(self: &Arc<Self>, taken: Vec<Taken>) -> Result<Vec<Taken>, LineError> {
        let mut each = Vec::with_capacity(taken.len());
        let now = self.now().wall;
        for Taken { held, .. } in &taken {
            let stored = Stored { deliveries: held.deliveries, ..Stored::clone(&held.message) };
            let mut prepared = Prepared::default();
            let consumer = held.consumer.as_deref();
            prepared.put_with(self.layout.key(held.place), &stored, |item| handed_to(item, now, consumer))?;
            // What is gone does not come back.
            prepared.demand_first(Condition::Exists);
            prepared.fence(self, held.epoch);
            each.push(prepared);
        }
        let outcomes = Prepared::run_each(&*self.shared.store, each).await;
        let (mut kept, mut failed) = (Vec::with_capacity(taken.len()), None);
        for (taken, outcome) in taken.into_iter().zip(outcomes) {
            let Err(error) = outcome else {
                kept.push(taken);
                continue;
            };
            self.state().untake(&taken.token);
            // On an ordered line its key is free.
            self.wake(1);
            match error {
                error if error.conflict_on(0).is_some() => {}
                Error::Conflict { .. } => {
                    self.shared.doubt();
                    failed = Some(LineError::Elsewhere);
                }
                error => failed = Some(error.into()),
            }
        }
        match failed {
            Some(error) if kept.is_empty() => Err(error),
            _ => Ok(kept),
        }
    }
}

/// A deferred message that is set aside until this is dropped, or kept.
struct Aside<'a> {
    line: &'a Line,
    number: u64,
    epoch: u64,
    kept: bool,
}

impl<'a> Aside<'a> {
    /// `None`: somebody else is at it.
    fn new(line: &'a Line, number: u64) -> Option<Self> {
        let mut state = line.state();
        let epoch = state.epoch;
        state.set_aside(number).then(|| Self { line, number, epoch, kept: false })
    }

    /// Somebody else sees to it from here on.
    fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Aside<'_> {
    fn drop(&mut self) {
        if !self.kept {
            let mut state = self.line.state();
            if state.epoch == self.epoch {
                state.free(Place::Deferred(self.number));
            }
        }
    }
}
