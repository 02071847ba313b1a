//! A lane: messages in the order of their positions, of which only a window is in memory.
//!
//! Pure bookkeeping; the store is read and written by `line`. Positions are given out in order but committed in any
//! order, and a reader must not step over one that is still under way. The rule: whatever is at or below `tail` is
//! known here or is still to announce itself; whatever is above is read from the store, but never beyond the lowest
//! position that is under way. So a page that was read is complete for good, and a message comes in exactly once.
//!
//! A line that keeps order may have more messages of blocked keys than the window has room for. Then those are passed
//! over: they leave the window, with a note where the first of each key was, and reading goes on behind them. When such
//! a key is free again, reading comes back to that place.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::handout::Handouts;
use super::message::Stored;

/// Messages in the window, and their bytes, beyond which no more are taken in. Senders and receivers of large batches keep
/// a few thousand under way between them; what does not fit is read and decoded again.
const WINDOW: usize = 2048;
const WINDOW_BYTES: usize = 2 * 1024 * 1024;
/// The window of a line that keeps order must see past the messages of keys that are busy: so many times as many, and
/// so many times their bytes.
const WIDE: usize = 8;
const WIDE_BYTES: usize = 32;

/// How much a window holds.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    messages: usize,
    bytes: usize,
    /// So many times as much, if nothing in it can be handed out.
    wide: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self { messages: WINDOW, bytes: WINDOW_BYTES, wide: WIDE }
    }
}

/// The window on one lane.
#[derive(Debug)]
pub struct Lane {
    /// Waiting to be received.
    ready: BTreeMap<u64, Arc<Stored>>,
    bytes: usize,
    /// Stored, but handed out or about to be moved away.
    out: BTreeSet<u64>,
    /// Given out, and not known yet whether anything is stored there.
    pending: BTreeSet<u64>,
    tail: u64,
    /// The highest position at which something unread may be.
    unread: u64,
    loading: bool,
    /// Keys that were passed over, each with the position of its first message that is not in the window. Not more than
    /// there are keys blocked at the same time.
    passed: BTreeMap<String, u64>,
    /// What went away while a page was being read, which may still hold it.
    gone: BTreeSet<u64>,
    /// Of messages that were delivered once, whether they are out or came back.
    pub(super) handouts: Handouts,
    room: Room,
}

/// What to read next: above the first, up to and including the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    pub above: u64,
    pub up_to: u64,
}

impl Lane {
    /// A lane whose messages lie from `head` up to and including `last`.
    #[must_use]
    pub fn new(head: u64, last: u64) -> Self {
        Self {
            ready: BTreeMap::new(),
            bytes: 0,
            out: BTreeSet::new(),
            pending: BTreeSet::new(),
            tail: head.saturating_sub(1),
            unread: last,
            loading: false,
            passed: BTreeMap::new(),
            gone: BTreeSet::new(),
            handouts: Handouts::default(),
            room: Room::default(),
        }
    }

    #[cfg(test)]
    #[must_use]
    pub fn with_room(self, messages: usize, wide: usize) -> Self {
        Self { room: Room { messages, wide, ..self.room }, ..self }
    }

    /// A message is on its way to `position`, which is higher than any before.
    pub fn begin(&mut self, position: u64) {
        self.pending.insert(position);
    }

    /// Nothing came to `position` after all.
    pub fn abort(&mut self, position: u64) {
        self.pending.remove(&position);
    }

    /// The message at `position` is stored; says whether it is in the window.
    pub fn commit(&mut self, position: u64, message: Arc<Stored>) -> bool {
        self.pending.remove(&position);
        if position > self.tail {
            if self.more() || !self.has_room() {
                self.unread = self.unread.max(position);
                return false;
            }
            self.tail = position;
        }
        self.insert(position, message);
        true
    }

    /// Whether there may be messages that are not in the window.
    #[must_use]
    pub fn more(&self) -> bool {
        self.unread > self.tail
    }

    /// What to read, if there is anything to read and room for it. `wide`: nothing in the window can be handed out.
    pub fn start_load(&mut self, last: u64, wide: bool) -> Option<Load> {
        let room = if wide { !self.is_full() } else { self.low() };
        if self.loading || !self.more() || !room {
            return None;
        }
        let up_to = self.pending.first().map_or(last, |lowest| lowest - 1);
        if up_to <= self.tail {
            return None;
        }
        self.loading = true;
        self.gone.clear();
        Some(Load { above: self.tail, up_to })
    }

    /// Whether reading would bring something.
    #[must_use]
    pub fn wants_load(&self, last: u64) -> bool {
        let up_to = self.pending.first().map_or(last, |lowest| lowest - 1);
        !self.loading && self.more() && self.low() && up_to > self.tail
    }

    /// What was read. `whole`: there is nothing else in the range.
    pub fn finish_load(&mut self, load: Load, messages: Vec<(u64, Arc<Stored>)>, whole: bool) {
        self.loading = false;
        let last = messages.last().map(|(position, _)| *position);
        self.tail = if whole { load.up_to } else { last.unwrap_or(load.above) };
        // What was handed out before and is not there was settled.
        let is_there = |position: u64| messages.binary_search_by_key(&position, |(at, _)| *at).is_ok();
        self.handouts.leave_all_but(load.above + 1, self.tail, is_there);
        for (position, message) in messages {
            if !self.gone.contains(&position) {
                self.insert(position, message);
            }
        }
    }

    /// Takes the messages of blocked keys out of the window, to see what is behind them.
    pub fn pass_over(&mut self, blocked: impl Fn(&str) -> bool) {
        let (passed, bytes) = (&mut self.passed, &mut self.bytes);
        self.ready.retain(|position, message| {
            let key = message.message.order_key();
            if !blocked(key) {
                return true;
            }
            *bytes = bytes.saturating_sub(message.bytes());
            if !passed.contains_key(key) {
                passed.insert(key.to_owned(), *position);
            }
            false
        });
    }

    /// Whether a key was passed over that is free now.
    #[must_use]
    pub fn must_come_back(&self, free: impl Fn(&str) -> bool) -> bool {
        self.passed.keys().any(|key| free(key))
    }

    /// Goes back to the first message of the keys that were passed over and are free now.
    pub fn come_back(&mut self, free: impl Fn(&str) -> bool) {
        // A page that is being read ends behind the tail it began with.
        if self.loading || self.passed.is_empty() {
            return;
        }
        let before = self.tail;
        let tail = &mut self.tail;
        self.passed.retain(|key, first| {
            let comes_back = free(key);
            if comes_back {
                *tail = (*tail).min(*first - 1);
            }
            !comes_back
        });
        if self.tail < before {
            self.unread = self.unread.max(before);
        }
    }

    /// Goes back to a message that was taken: it is read again. False while a page is being read.
    pub fn come_back_to(&mut self, position: u64) -> bool {
        if self.loading {
            return false;
        }
        self.out.remove(&position);
        self.unread = self.unread.max(self.tail).max(position);
        self.tail = self.tail.min(position.saturating_sub(1));
        true
    }

    #[must_use]
    pub fn is_full(&self) -> bool {
        self.ready.len() >= self.room.messages * self.room.wide || self.bytes >= self.room.bytes * WIDE_BYTES
    }

    pub fn fail_load(&mut self) {
        self.loading = false;
    }

    /// The messages that wait, in order.
    pub fn ready(&self) -> impl Iterator<Item = (u64, &Arc<Stored>)> {
        self.ready.iter().map(|(position, message)| (*position, message))
    }

    #[must_use]
    pub fn ready_len(&self) -> usize {
        self.ready.len()
    }

    /// Takes a message out of the window; it stays where it is in the store until [`Lane::gone`].
    pub fn take(&mut self, position: u64) -> Option<Arc<Stored>> {
        let message = self.ready.remove(&position)?;
        self.bytes = self.bytes.saturating_sub(message.bytes());
        self.out.insert(position);
        Some(message)
    }

    /// A message that was taken waits again.
    pub fn put_back(&mut self, position: u64, message: Arc<Stored>) {
        if self.out.remove(&position) {
            self.insert(position, message);
        }
    }

    /// A message that was taken is no longer stored here.
    pub fn gone(&mut self, position: u64) {
        self.out.remove(&position);
        self.handouts.leave(position);
        if self.loading {
            self.gone.insert(position);
        }
    }

    #[must_use]
    pub fn is_out(&self, position: u64) -> bool {
        self.out.contains(&position)
    }

    /// Whether a message at this position, if there is one, has not been read yet.
    #[must_use]
    pub fn is_unread(&self, position: u64) -> bool {
        position > self.tail || self.passed.values().any(|first| position >= *first)
    }

    /// Nothing is stored below this position.
    #[must_use]
    pub fn head(&self) -> u64 {
        let known = [self.ready.keys().next(), self.out.first(), self.pending.first(), self.passed.values().min()];
        known.into_iter().flatten().copied().fold(self.tail + 1, u64::min)
    }

    fn insert(&mut self, position: u64, message: Arc<Stored>) {
        if self.out.contains(&position) {
            return;
        }
        let passed = || self.passed.get(message.message.order_key());
        if !self.passed.is_empty() && passed().is_some_and(|first| position >= *first) {
            return;
        }
        if let Entry::Vacant(vacant) = self.ready.entry(position) {
            self.bytes += message.bytes();
            vacant.insert(message);
        }
    }

    fn has_room(&self) -> bool {
        self.ready.len() < self.room.messages && self.bytes < self.room.bytes
    }

    /// Reading pays when the window is half empty.
    fn low(&self) -> bool {
        self.ready.len() < self.room.messages / 2 && self.bytes < self.room.bytes / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(n: u64) -> Arc<Stored> {
        Arc::new(Stored { sequence: n, ..Stored::default() })
    }

    fn positions(lane: &Lane) -> Vec<u64> {
        lane.ready().map(|(position, _)| position).collect()
    }

    #[test]
    fn what_is_committed_late_is_not_stepped_over() {
        let mut lane = Lane::new(1, 0);
        for n in 1..=3 {
            lane.begin(n);
        }
        assert!(lane.commit(2, message(2)));
        assert!(lane.commit(3, message(3)));
        assert_eq!(lane.head(), 1);
        assert!(lane.commit(1, message(1)));
        assert_eq!(positions(&lane), [1, 2, 3]);
    }

    #[test]
    fn reading_stops_below_what_is_under_way() {
        let mut lane = Lane::new(1, 10);
        lane.begin(11);
        lane.begin(12);
        assert_eq!(lane.start_load(12, false), Some(Load { above: 0, up_to: 10 }));
        // Meanwhile 12 arrives, and it is left in the store: what comes before it has not been read.
        assert!(!lane.commit(12, message(12)));
        lane.finish_load(Load { above: 0, up_to: 10 }, vec![(4, message(4))], true);
        assert!(lane.more());
        assert_eq!(lane.start_load(12, false), None, "11 is under way");
        lane.abort(11);
        assert_eq!(lane.start_load(12, false), Some(Load { above: 10, up_to: 12 }));
        lane.finish_load(Load { above: 10, up_to: 12 }, vec![(12, message(12))], true);
        assert_eq!((positions(&lane), lane.more()), (vec![4, 12], false));
    }

    #[test]
    fn the_window_is_bounded_and_the_rest_is_read_later() {
        let (window, last) = (WINDOW as u64, 4 * WINDOW as u64);
        let mut lane = Lane::new(1, 0);
        for n in 1..=last {
            lane.begin(n);
            lane.commit(n, message(n));
        }
        assert_eq!(lane.ready_len(), WINDOW);
        assert_eq!(lane.start_load(last, false), None, "it is full");
        for n in 1..=window {
            lane.take(n).unwrap();
            lane.gone(n);
        }
        let load = Load { above: window, up_to: last };
        assert_eq!(lane.start_load(last, false), Some(load));
        lane.finish_load(load, (window + 1..=window + 256).map(|n| (n, message(n))).collect(), false);
        assert!(lane.more());
        assert_eq!(lane.head(), window + 1);
    }

    #[test]
    fn the_head_stays_below_everything_alive() {
        let mut lane = Lane::new(1, 0);
        for n in 1..=3 {
            lane.begin(n);
            lane.commit(n, message(n));
        }
        let taken = lane.take(1).unwrap();
        lane.take(2).unwrap();
        lane.gone(2);
        assert_eq!(lane.head(), 1);
        lane.put_back(1, taken);
        assert_eq!(positions(&lane), [1, 3]);
        for n in [1, 3] {
            lane.take(n).unwrap();
            lane.gone(n);
        }
        assert_eq!(lane.head(), 4);
    }
}
