//! What is in a line and yet not to be had: deferred messages that somebody is at, and messages that wait for their next
//! delivery where they are. Pure, as `state` is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tidings_core::time::Timestamp;
use uuid::Uuid;

use super::layout::{LaneId, Place};
use super::message::Stored;
use super::state::{Now, Return, Settings, State};

/// Positions of the main lane whose messages wait, each until when. The messages stay in the store: there may be many.
#[derive(Debug, Default)]
pub struct Resting {
    until: BTreeMap<u64, Duration>,
    order: BTreeSet<(Duration, u64)>,
}

impl Resting {
    fn insert(&mut self, position: u64, until: Duration) {
        self.remove(position);
        self.until.insert(position, until);
        self.order.insert((until, position));
    }

    fn remove(&mut self, position: u64) -> Option<Duration> {
        let until = self.until.remove(&position)?;
        self.order.remove(&(until, position));
        Some(until)
    }

    pub(super) fn first(&self) -> Option<Duration> {
        self.order.first().map(|(until, _)| *until)
    }
}

/// A dead letter that the desk has taken, and how it was before.
#[derive(Debug)]
pub struct Claim {
    /// It was in the window.
    message: Option<Arc<Stored>>,
    /// It waited for its next delivery.
    rest: Option<Duration>,
}

impl State {
    /// Sets a deferred message aside for who asks; false: somebody else is at it.
    pub fn set_aside(&mut self, number: u64) -> bool {
        self.aside.insert(number)
    }

    /// Nobody is at it any more.
    pub fn free(&mut self, place: Place) {
        if let Place::Deferred(number) = place {
            self.aside.remove(&number);
        }
    }

    /// That a delivery failed is stored, at the wish of who has the message.
    pub fn given_back(&mut self, token: &Uuid, message: Arc<Stored>, until: Duration, settings: &Settings) {
        if let Some(held) = self.forget(token) {
            self.wait_at(held.place, message, until, settings, true);
        }
    }

    /// The same of a message whose lock is gone already. `stored`: it could be stored.
    pub fn returned(&mut self, back: Return, settings: &Settings, stored: bool) {
        // What somebody else has taken over since is read anew.
        if back.epoch != self.epoch {
            return;
        }
        if settings.ordered && matches!(back.place, Place::Lane(..)) {
            self.disengage(back.message.message.order_key());
        }
        self.free(back.place);
        self.wait_at(back.place, back.message, back.until, settings, stored);
    }

    fn wait_at(&mut self, place: Place, message: Arc<Stored>, until: Duration, settings: &Settings, stored: bool) {
        let Place::Lane(lane, position) = place else { return };
        if settings.ordered {
            self.paused.insert(message.message.order_key().to_owned(), until);
            self.lane(lane).put_back(position, message);
        } else if settings.keeps_place() {
            self.resting.insert(position, until);
        } else if stored {
            self.lane(lane).gone(position);
        } else {
            self.lane(lane).put_back(position, message);
        }
    }

    /// Messages were read whose time has not come: they go on waiting, as before the restart.
    pub fn go_on_waiting(&mut self, lane: LaneId, waits: &[(u64, String, Timestamp)], settings: &Settings, now: Now) {
        for (position, key, due) in waits {
            let Ok(left) = Duration::try_from(due.duration_since(now.wall)) else { continue };
            let until = now.monotonic + left;
            if left.is_zero() {
                continue;
            }
            if settings.ordered {
                self.paused.entry(key.clone()).or_insert(until);
            } else if settings.keeps_place() && lane == LaneId::Main && self.main.take(*position).is_some() {
                self.resting.insert(*position, until);
            }
        }
    }

    /// Those whose time has come are read again; says how many.
    pub(super) fn end_rests(&mut self, now: Now) -> usize {
        let mut ended = 0;
        // A page that is being read must not have the ground taken from under it.
        while let Some((until, position)) = self.resting.order.first().copied()
            && until <= now.monotonic
            && self.main.come_back_to(position)
        {
            self.resting.remove(position);
            ended += 1;
        }
        ended
    }

    /// Takes a dead letter for the desk, out of the window if it is in it; `None`: somebody has it.
    pub fn claim(&mut self, position: u64) -> Option<Claim> {
        if let Some(rest) = self.resting.remove(position) {
            return Some(Claim { message: None, rest: Some(rest) });
        }
        if self.main.is_out(position) {
            return None;
        }
        Some(Claim { message: self.main.take(position), rest: None })
    }

    /// The desk did nothing after all.
    pub fn unclaim(&mut self, position: u64, claim: Claim) {
        match claim {
            Claim { rest: Some(until), .. } => self.resting.insert(position, until),
            Claim { message: Some(message), .. } => self.main.put_back(position, message),
            Claim { .. } => {}
        }
    }
}
