//! What one process knows of a line: the windows on its lanes, the locks, and who must wait. Pure; `line` does what it
//! decides.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use tidings_core::retry::Policy;
use tidings_core::time::Timestamp;
use uuid::Uuid;

use super::doubts::Doubts;
use super::lane::{Lane, Load};
use super::layout::{Delta, LaneId, Place};
use super::message::{Attempt, MAX_DELIVERIES, Stored};
use super::rest::Resting;

/// Messages that can be out under locks at the same time, and their bytes: a receiver that settles nothing gets no more,
/// and memory stays what it is.
const MOST_HELD: usize = 20_000;
const MOST_HELD_BYTES: usize = 256 * 1024 * 1024;

/// How a line treats its messages.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Deliveries after which a message is dead-lettered; none: it never is.
    pub max_deliveries: Option<u32>,
    pub lock: Duration,
    /// Waits between deliveries; none: an abandoned message waits for nothing.
    pub retry: Option<Policy>,
    /// How long messages live that do not say so themselves, and at most.
    pub ttl: Option<Duration>,
    pub dead_letter_expired: bool,
    /// One message of a key at a time, in order.
    pub ordered: bool,
    /// Whether a row is kept of what became of each message.
    pub history: bool,
    /// Bytes of dead letters beyond which nothing more is taken in.
    pub dead_letter_bytes: Option<u64>,
}

impl Settings {
    /// Those of dead letters: they stay until somebody deals with them (S003-99).
    #[must_use]
    pub fn of_dead_letters(lock: Duration, history: bool) -> Self {
        Self {
            max_deliveries: None,
            lock,
            retry: None,
            ttl: None,
            dead_letter_expired: false,
            ordered: false,
            history,
            dead_letter_bytes: None,
        }
    }

    /// Whether a message that waits for its next delivery stays where it is: in an ordered line for the order's sake, and
    /// among dead letters so that the desk finds it.
    #[must_use]
    pub const fn keeps_place(&self) -> bool {
        self.ordered || self.max_deliveries.is_none()
    }
}

/// Now, by both clocks.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    pub wall: Timestamp,
    pub monotonic: Duration,
}

/// A message that somebody has.
#[derive(Debug, Clone)]
pub struct Held {
    pub place: Place,
    pub message: Arc<Stored>,
    /// With this one.
    pub deliveries: u32,
    pub until: Duration,
    pub locked_until: Timestamp,
    pub consumer: Option<Arc<str>>,
    /// In which it was handed out.
    pub epoch: u64,
    /// A settlement is being written: the lock does not expire meanwhile.
    settling: bool,
}

/// What a line must do because time has passed.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    DeadLetter {
        place: Place,
        message: Arc<Stored>,
        reason: &'static str,
    },
    Expire {
        place: Place,
        message: Arc<Stored>,
    },
    /// A delivery has failed, and that must be stored before the next one.
    Return(Return),
}

/// A message after a delivery that failed: it waits until then, by both clocks.
#[derive(Debug, Clone, PartialEq)]
pub struct Return {
    pub place: Place,
    pub message: Arc<Stored>,
    pub due: Timestamp,
    pub until: Duration,
    pub epoch: u64,
}

/// A message that is handed out.
#[derive(Debug, Clone)]
pub struct Taken {
    pub token: Uuid,
    pub held: Held,
}

/// What is known of a line.
#[derive(Debug)]
pub struct State {
    /// In which this was read; 0: it is not ours.
    pub epoch: u64,
    pub front: Lane,
    pub main: Lane,
    /// By tokens that are made here, and that nobody else can choose.
    held: FxHashMap<Uuid, Held>,
    held_bytes: usize,
    expiries: BTreeSet<(Duration, Uuid)>,
    /// Keys of an ordered line that have a message out.
    busy: BTreeMap<String, usize>,
    /// Keys of an ordered line whose next message waits for its next delivery.
    pub(super) paused: BTreeMap<String, Duration>,
    /// Deferred messages that somebody looks up, has, or moves away: nobody else gets at them.
    pub(super) aside: BTreeSet<u64>,
    /// Dead letters that wait for their next delivery where they are.
    pub(super) resting: Resting,
    pub(super) doubts: Doubts,
    pub counts: Delta,
    /// The first number of this epoch, while the handouts of earlier ones have not been read.
    pub(super) unrecalled: Option<u64>,
    /// The next number to give out, and the first that may not be.
    pub next: u64,
    pub reserved: u64,
    /// When the first scheduled message is due, and when the first one expires.
    pub next_due: Option<Timestamp>,
    pub next_expiry: Option<Timestamp>,
}

impl State {
    #[must_use]
    pub fn new(front: Lane, main: Lane, counts: Delta, next: u64, epoch: u64) -> Self {
        Self {
            epoch,
            front,
            main,
            held: FxHashMap::default(),
            held_bytes: 0,
            expiries: BTreeSet::new(),
            busy: BTreeMap::new(),
            paused: BTreeMap::new(),
            aside: BTreeSet::new(),
            resting: Resting::default(),
            doubts: Doubts::default(),
            counts,
            unrecalled: Some(next),
            next,
            reserved: next,
            next_due: None,
            next_expiry: None,
        }
    }

    pub fn lane(&mut self, lane: LaneId) -> &mut Lane {
        match lane {
            LaneId::Front => &mut self.front,
            LaneId::Main => &mut self.main,
        }
    }

    /// The next number, if one is reserved.
    pub fn allocate(&mut self) -> Option<u64> {
        (self.next < self.reserved).then(|| {
            self.next += 1;
            self.next - 1
        })
    }

    /// Hands out up to `max` messages under locks.
    pub fn take(
        &mut self,
        max: usize,
        settings: &Settings,
        consumer: Option<&str>,
        now: Now,
        mut token: impl FnMut() -> Uuid,
    ) -> (Vec<Taken>, Vec<Action>) {
        let (mut taken, mut actions) = (Vec::new(), Vec::new());
        let consumer: Option<Arc<str>> = consumer.map(Arc::from);
        while taken.len() < max && self.has_room() {
            let Some((lane, position)) = self.first(settings.ordered) else { break };
            let Some(message) = self.lane(lane).take(position) else { break };
            let place = Place::Lane(lane, position);
            if message.is_expired(now.wall) {
                actions.push(Action::Expire { place, message });
                continue;
            }
            if message.is_exhausted(message.deliveries, settings.max_deliveries) {
                // It was delivered as often as it may be, and then the process ended.
                actions.push(Action::DeadLetter { place, message, reason: MAX_DELIVERIES });
                continue;
            }
            taken.push(self.hold(token(), place, message, settings, consumer.clone(), now));
        }
        (taken, actions)
    }

    /// Whether more may be out under locks.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.held.len() < MOST_HELD && self.held_bytes < MOST_HELD_BYTES
    }

    /// Puts a lock on a message that is out.
    pub fn hold(
        &mut self,
        token: Uuid,
        place: Place,
        message: Arc<Stored>,
        settings: &Settings,
        consumer: Option<Arc<str>>,
        now: Now,
    ) -> Taken {
        if settings.ordered {
            self.engage(message.message.order_key());
        }
        if let Place::Deferred(number) = place {
            self.aside.insert(number);
        }
        let held = Held {
            place,
            deliveries: message.deliveries.saturating_add(1),
            message,
            until: now.monotonic + settings.lock,
            locked_until: now.wall.saturating_add(settings.lock).unwrap_or(Timestamp::MAX),
            consumer,
            epoch: self.epoch,
            settling: false,
        };
        self.expiries.insert((held.until, token));
        self.held_bytes += held.message.bytes();
        self.held.insert(token, held.clone());
        Taken { token, held }
    }

    fn first(&self, ordered: bool) -> Option<(LaneId, u64)> {
        if !ordered {
            let front = self.front.ready().next().map(|(position, _)| (LaneId::Front, position));
            return front.or_else(|| self.main.ready().next().map(|(position, _)| (LaneId::Main, position)));
        }
        // Only the first of each key may go, and only if none of that key is out or waits.
        let mut seen = BTreeSet::new();
        let lanes = self.front.ready().map(|entry| (LaneId::Front, entry));
        let mut all = lanes.chain(self.main.ready().map(|entry| (LaneId::Main, entry)));
        all.find(|(_, (_, message))| {
            let key = message.message.order_key();
            seen.insert(key) && !self.busy.contains_key(key) && !self.paused.contains_key(key)
        })
        .map(|(lane, (position, _))| (lane, position))
    }

    /// Whether nothing in the window can be handed out although there is something.
    #[must_use]
    pub fn is_stuck(&self, ordered: bool) -> bool {
        ordered && self.main.ready_len() > 0 && self.first(true).is_none()
    }

    /// What to read of a lane. What stands in the way of everything else is passed over, and come back to later.
    pub fn start_load(&mut self, id: LaneId, ordered: bool) -> Option<Load> {
        let (last, stuck) = (self.next - 1, self.is_stuck(ordered));
        if ordered {
            let (busy, paused) = (&self.busy, &self.paused);
            let blocked = |key: &str| busy.contains_key(key) || paused.contains_key(key);
            let lane = match id {
                LaneId::Front => &mut self.front,
                LaneId::Main => &mut self.main,
            };
            lane.come_back(|key| !blocked(key));
            if stuck && lane.is_full() {
                lane.pass_over(blocked);
            }
        }
        self.lane(id).start_load(last, stuck)
    }

    /// Whether reading would bring something.
    #[must_use]
    pub fn wants_load(&self, ordered: bool) -> bool {
        let last = self.next - 1;
        let free = |key: &str| !self.busy.contains_key(key) && !self.paused.contains_key(key);
        [&self.front, &self.main]
            .into_iter()
            .any(|lane| lane.wants_load(last) || (ordered && lane.must_come_back(free)))
    }

    /// Whether something in the window can be handed out.
    #[must_use]
    pub fn has_ready(&self, ordered: bool) -> bool {
        self.first(ordered).is_some()
    }

    #[must_use]
    pub fn held(&self, token: &Uuid) -> Option<&Held> {
        self.held.get(token)
    }

    pub fn all_held(&self) -> impl Iterator<Item = &Held> {
        self.held.values()
    }

    #[must_use]
    pub fn held_len(&self) -> usize {
        self.held.len()
    }

    /// Begins to settle: from here on the lock neither expires nor can it be used again. `None`: it is lost.
    pub fn begin_settle(&mut self, token: &Uuid, now: Now) -> Option<Held> {
        let held = self.held.get_mut(token)?;
        if held.settling || held.until <= now.monotonic {
            return None;
        }
        held.settling = true;
        self.expiries.remove(&(held.until, *token));
        Some(held.clone())
    }

    /// The settlement is stored: the message is no longer where it was.
    pub fn settled(&mut self, token: &Uuid) {
        if let Some(held) = self.forget(token)
            && let Place::Lane(lane, position) = held.place
        {
            self.lane(lane).gone(position);
        }
    }

    /// The settlement could not be stored: the lock is as before.
    pub fn unsettled(&mut self, token: &Uuid) {
        if let Some(held) = self.held.get_mut(token) {
            held.settling = false;
            self.expiries.insert((held.until, *token));
        }
    }

    pub fn renew(&mut self, token: &Uuid, lock: Duration, now: Now) -> Option<Timestamp> {
        let held = self.held.get_mut(token)?;
        if held.settling || held.until <= now.monotonic {
            return None;
        }
        self.expiries.remove(&(held.until, *token));
        held.until = now.monotonic + lock;
        held.locked_until = now.wall.saturating_add(lock).unwrap_or(Timestamp::MAX);
        self.expiries.insert((held.until, *token));
        Some(held.locked_until)
    }

    /// A delivery failed: the message waits again, at once or after `wait`, or is to be moved away.
    pub fn release(
        &mut self,
        token: &Uuid,
        settings: &Settings,
        mut attempt: Attempt,
        wait: Duration,
        now: Now,
    ) -> Option<Action> {
        let held = self.forget(token)?;
        let Held { place, mut message, deliveries, consumer, epoch, .. } = held;
        attempt.delivery = deliveries;
        attempt.consumer = attempt.consumer.or_else(|| consumer.as_deref().map(ToOwned::to_owned));
        let stored = Arc::make_mut(&mut message);
        stored.deliveries = deliveries;
        stored.note(attempt);
        if let Place::Deferred(number) = place {
            // Until what follows is stored.
            self.aside.insert(number);
        }
        if message.is_exhausted(deliveries, settings.max_deliveries) {
            return Some(Action::DeadLetter { place, message, reason: MAX_DELIVERIES });
        }
        match place {
            Place::Lane(..) if message.is_expired(now.wall) => return Some(Action::Expire { place, message }),
            Place::Lane(lane, position) if wait.is_zero() => {
                self.lane(lane).put_back(position, message);
                return None;
            }
            // Nobody overtakes it meanwhile.
            Place::Lane(..) if settings.ordered => self.engage(message.message.order_key()),
            _ => {}
        }
        let due = now.wall.saturating_add(wait).unwrap_or(Timestamp::MAX);
        Some(Action::Return(Return { place, message, due, until: now.monotonic + wait, epoch }))
    }

    /// Ends the locks whose time is over; `wait` says how long a message waits after so many deliveries.
    pub fn tick(
        &mut self,
        settings: &Settings,
        now: Now,
        mut wait: impl FnMut(u32) -> Duration,
    ) -> (Vec<Action>, usize) {
        let mut actions = Vec::new();
        let mut freed = 0;
        while let Some((until, token)) = self.expiries.first().copied().filter(|(until, _)| *until <= now.monotonic) {
            self.expiries.remove(&(until, token));
            freed += 1;
            let attempt = Attempt {
                delivery: 0,
                at: now.wall,
                outcome: "expired".into(),
                consumer: None,
                reason: Some("LockLost".to_owned()),
                description: Some("the lock expired before the message was settled".to_owned()),
            };
            let wait = self.held.get(&token).map_or(Duration::ZERO, |held| wait(held.deliveries));
            actions.extend(self.release(&token, settings, attempt, wait, now));
        }
        let before = self.paused.len();
        self.paused.retain(|_, until| *until > now.monotonic);
        freed += before - self.paused.len() + self.end_rests(now);
        (actions, freed)
    }

    /// When something happens next by the monotonic clock.
    #[must_use]
    pub fn next_tick(&self) -> Option<Duration> {
        let expiry = self.expiries.first().map(|(until, _)| *until);
        expiry.into_iter().chain(self.paused.values().copied()).chain(self.resting.first()).min()
    }

    /// The oldest message that waits or is out, as far as is known.
    #[must_use]
    pub fn oldest(&self) -> Option<Timestamp> {
        let ready = self.front.ready().next().into_iter().chain(self.main.ready().next());
        let out = self.held.values().filter(|held| matches!(held.place, Place::Lane(..)));
        ready.map(|(_, message)| message.enqueued_at).chain(out.map(|held| held.message.enqueued_at)).min()
    }

    /// Locked messages of the lanes.
    #[must_use]
    pub fn locked(&self) -> usize {
        self.held.values().filter(|held| matches!(held.place, Place::Lane(..))).count()
    }

    pub(super) fn forget(&mut self, token: &Uuid) -> Option<Held> {
        let held = self.held.remove(token)?;
        self.held_bytes = self.held_bytes.saturating_sub(held.message.bytes());
        if !held.settling {
            self.expiries.remove(&(held.until, *token));
        }
        self.disengage(held.message.message.order_key());
        self.free(held.place);
        Some(held)
    }

    /// Whether a message of this key is out; only an ordered line knows.
    #[must_use]
    pub fn is_busy(&self, key: &str) -> bool {
        self.busy.contains_key(key)
    }

    fn engage(&mut self, key: &str) {
        *self.busy.entry(key.to_owned()).or_default() += 1;
    }

    pub(super) fn disengage(&mut self, key: &str) {
        if let Some(count) = self.busy.get_mut(key) {
            *count -= 1;
            if *count == 0 {
                self.busy.remove(key);
            }
        }
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
