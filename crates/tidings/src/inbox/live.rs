//! Who hears of new entries at once: `GET /notifications/stream`.
//!
//! An announcement says only whose inbox has something new, after it is stored. A stream then reads the store, from
//! where it stands: nothing is lost between reading and listening, nor while nobody listened.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use tidings_store::{Error, Item, Query, Range, Store};
use tokio::sync::Notify;

use super::record::{ALL, table};
use super::view;

/// Entries that a place in a stream remembers one by one. An entry is stored a little after the moment it is named for,
/// and one of a large fan-out even later; among this many, one that comes late is still recognised as new. Entries of one
/// instant are remembered all or none of them: nothing but chance orders them.
const REMEMBERED: usize = 64;
/// The same, where one instant has more than that.
const OF_ONE_INSTANT: usize = 10_000;
/// Entries named one by one in a frame's `id`; of more it has the number and what they come to together.
const NAMED: usize = 2 * REMEMBERED;
/// Entries sent at a time.
const PAGE: usize = 100;

/// Where new entries are announced.
#[derive(Default)]
pub struct Live {
    listening: AtomicUsize,
    users: Mutex<HashMap<String, (Arc<Notify>, usize)>>,
}

/// One who listens, until dropped.
pub struct Listener {
    live: Arc<Live>,
    user: String,
    news: Arc<Notify>,
}

impl Live {
    /// Says that these users have new entries. With nobody listening it costs nothing.
    pub fn announce<'a>(&self, users: impl IntoIterator<Item = &'a str>) {
        if self.listening.load(Ordering::Acquire) == 0 {
            return;
        }
        let listeners = self.users();
        for user in users {
            if let Some((news, _)) = listeners.get(user) {
                news.notify_waiters();
            }
        }
    }

    /// Listens for a user's news from now on.
    #[must_use]
    pub fn listen(self: &Arc<Self>, user: &str) -> Listener {
        let mut users = self.users();
        let (news, count) = users.entry(user.to_owned()).or_default();
        *count += 1;
        self.listening.fetch_add(1, Ordering::AcqRel);
        Listener { live: Arc::clone(self), user: user.to_owned(), news: Arc::clone(news) }
    }

    fn users(&self) -> std::sync::MutexGuard<'_, HashMap<String, (Arc<Notify>, usize)>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listener {
    /// Rung at every announcement; take `notified` before reading, so that none in between is missed.
    #[must_use]
    pub fn news(&self) -> &Notify {
        &self.news
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut users = self.live.users();
        if let Some((_, count)) = users.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                users.remove(&self.user);
            }
        }
        self.live.listening.fetch_sub(1, Ordering::AcqRel);
    }
}

/// How far a stream has come: every entry above `floor` that is not among `seen` is still to be sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Position {
    /// A time as in entries' keys; empty: from the first.
    floor: String,
    seen: BTreeSet<String>,
    /// What a client brought back of more than `NAMED`, until it is compared with what is stored.
    sum: Option<Sum>,
}

/// What stands for many entries that were sent.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sum {
    /// The last of them.
    last: String,
    count: u64,
    /// Their ties, each taken with the others.
    ties: u64,
}

impl Sum {
    fn of(times: &BTreeSet<String>) -> Self {
        let ties = times.iter().filter_map(|time| Mark::of(time)).fold(0, |ties, mark| ties ^ mark.tie());
        Self { last: times.last().cloned().unwrap_or_default(), count: times.len() as u64, ties }
    }
}

impl Position {
    /// Behind everything that is there.
    pub async fn at_end(store: &dyn Store, user: &str) -> Result<Self, Error> {
        let mut position = Self::default();
        let mut after = None;
        loop {
            let query = Query::new(user).prefix(ALL).descending().limit(REMEMBERED + 1).after(after);
            let page = store.query(table(), &query).await?;
            for time in page.items.iter().filter_map(view::time_of) {
                let oldest = position.seen.first();
                let one_instant = oldest.is_some_and(|oldest| instant(oldest) == instant(time));
                let enough = if one_instant { OF_ONE_INSTANT } else { REMEMBERED };
                if position.seen.len() >= enough {
                    position.floor = time.to_owned();
                    return Ok(position);
                }
                position.seen.insert(time.to_owned());
            }
            after = page.next;
            if after.is_none() {
                return Ok(position);
            }
        }
    }

    /// What a client that comes back sends as `Last-Event-ID`: an id of ours, or an entry's identifier.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(time) = text.strip_prefix(ALL) {
            return is_time(time).then(|| Self { floor: time.to_owned(), ..Self::default() });
        }
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
        let (marks, []) = bytes.as_chunks::<16>() else { return None };
        let (floor, marks) = marks.split_first()?;
        let floor = Some(Mark(*floor)).filter(|mark| mark.0 != [0; 16]).map(Mark::time).unwrap_or_default();
        if let [SUMMED, last, sum] = marks {
            let sum = u128::from_be_bytes(*sum);
            let ties = u64::try_from(sum & u128::from(u64::MAX)).ok()?;
            let sum = Sum { last: Mark(*last).time(), count: u64::try_from(sum >> 64).ok()?, ties };
            return Some(Self { floor, sum: Some(sum), ..Self::default() });
        }
        if marks.len() > NAMED {
            return None;
        }
        Some(Self { floor, seen: marks.iter().map(|mark| Mark(*mark).time()).collect(), sum: None })
    }

    /// Finds out which entries a sum stands for. If one was stored late meanwhile, all of them are sent again: better
    /// twice than never.
    pub async fn resolved(mut self, store: &dyn Store, user: &str) -> Result<Self, Error> {
        let Some(sum) = self.sum.take() else { return Ok(self) };
        let mut times = BTreeSet::new();
        let mut after = None;
        loop {
            let query = Query::new(user).range(self.above()).limit(1000).after(after);
            let page = store.query(table(), &query).await?;
            let known = page.items.iter().filter_map(view::time_of).take_while(|time| *time <= sum.last.as_str());
            times.extend(known.map(ToOwned::to_owned));
            after = page.next.filter(|next| view::time_of(next).is_some_and(|time| time <= sum.last.as_str()));
            if after.is_none() || times.len() > OF_ONE_INSTANT {
                break;
            }
        }
        if Sum::of(&times) == sum {
            self.seen = times;
        }
        Ok(self)
    }

    /// The `id` of a frame.
    #[must_use]
    pub fn id(&self) -> String {
        let mut bytes = Vec::with_capacity(16 * (self.seen.len().min(NAMED) + 1));
        bytes.extend(Mark::of(&self.floor).unwrap_or_default().0);
        if self.seen.len() > NAMED {
            let Sum { last, count, ties } = Sum::of(&self.seen);
            bytes.extend(SUMMED);
            bytes.extend(Mark::of(&last).unwrap_or_default().0);
            bytes.extend([count.to_be_bytes(), ties.to_be_bytes()].concat());
        } else {
            bytes.extend(self.seen.iter().filter_map(|time| Mark::of(time)).flat_map(|mark| mark.0));
        }
        BASE64_URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The next entries to be sent, oldest first; none if there are none.
    pub async fn next(&self, store: &dyn Store, user: &str) -> Result<Vec<Item>, Error> {
        let mut after = None;
        loop {
            let query = Query::new(user).range(self.above()).limit(PAGE + self.seen.len()).after(after);
            let page = store.query(table(), &query).await?;
            let is_new = |item: &Item| view::time_of(item).is_some_and(|time| !self.seen.contains(time));
            let new: Vec<Item> = page.items.into_iter().filter(is_new).collect();
            after = page.next;
            // A page may be full of what is known already.
            if !new.is_empty() || after.is_none() {
                return Ok(new);
            }
        }
    }

    /// Everything above the floor.
    fn above(&self) -> Range {
        match self.floor.as_str() {
            "" => Range::Prefix(ALL.to_owned()),
            // `all$` is the first text after everything that begins with `all#`.
            floor => Range::Between(format!("{ALL}{floor}~").into(), "all$".into()),
        }
    }

    /// Notes that an entry was sent.
    pub fn sent(&mut self, time: &str) {
        self.seen.insert(time.to_owned());
        while self.seen.len() > REMEMBERED {
            let oldest = self.seen.first().cloned().unwrap_or_default();
            let together = self.seen.iter().take_while(|time| instant(time) == instant(&oldest)).count();
            let count = match self.seen.len() {
                all if all - together >= REMEMBERED => together,
                all if all > OF_ONE_INSTANT => 1,
                _ => return,
            };
            for _ in 0..count {
                self.floor = self.floor.clone().max(self.seen.pop_first().unwrap_or_default());
            }
        }
    }
}

/// The nanosecond of a time.
fn instant(time: &str) -> &str {
    time.split_once('-').map_or(time, |(instant, _)| instant)
}

/// Stands before a sum, where no time can be.
const SUMMED: [u8; 16] = [0xFF; 16];

/// The time of an entry in 16 bytes: nanoseconds, and what tells events of one instant apart.
#[derive(Debug, Clone, Copy, Default)]
struct Mark([u8; 16]);

impl Mark {
    fn of(time: &str) -> Option<Self> {
        let (nanos, tie) = time.split_once('-')?;
        let (nanos, tie) = (nanos.parse::<u64>().ok()?, u64::from_str_radix(tie, 16).ok()?);
        let mut bytes = [0; 16];
        let (first, last) = bytes.split_at_mut(8);
        first.copy_from_slice(&nanos.to_be_bytes());
        last.copy_from_slice(&tie.to_be_bytes());
        Some(Self(bytes))
    }

    fn tie(self) -> u64 {
        let (_, tie) = self.0.split_at(8);
        tie.try_into().map_or(0, u64::from_be_bytes)
    }

    fn time(self) -> String {
        let both = u128::from_be_bytes(self.0);
        format!("{:020}-{:016x}", both >> 64, both & u128::from(u64::MAX))
    }
}

/// Whether text can be what follows `all#` in an identifier.
#[must_use]
pub fn is_time(text: &str) -> bool {
    text.len() == 37 && Mark::of(text).is_some_and(|mark| mark.time() == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(n: u64) -> String {
        Mark(u128::from_be_bytes([0; 16]).wrapping_add((u128::from(n) << 64) | 7).to_be_bytes()).time()
    }

    #[test]
    fn a_position_goes_there_and_back_and_remembers_so_many() {
        let mut position = Position::default();
        for n in 1..=200 {
            position.sent(&time(n));
            assert_eq!(Position::parse(&position.id()).unwrap(), position, "{n}");
        }
        assert_eq!((position.seen.len(), position.floor.clone()), (REMEMBERED, time(200 - REMEMBERED as u64)));
        assert!(position.id().len() < 1500);
        assert_eq!(Position::parse(&format!("all#{}", time(5))).unwrap().floor, time(5));
        for bad in ["", "x", "all#5", "all#", "!!", &"A".repeat(5000), &format!("all#{}x", time(5))] {
            assert_eq!(Position::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_instant_is_remembered_whole_until_enough_followed() {
        let at = |n: u64, tie: u64| format!("{n:020}-{tie:016x}");
        let mut position = Position::default();
        position.sent(&at(1, 5));
        for tie in 0..300 {
            position.sent(&at(2, tie));
            assert!(position.id().len() < 3000);
        }
        assert_eq!((position.seen.len(), position.floor.clone()), (300, at(1, 5)));
        let parsed = Position::parse(&position.id()).unwrap();
        assert_eq!((parsed.floor, parsed.sum), (at(1, 5), Some(Sum::of(&position.seen))));
        for n in 3..3 + REMEMBERED as u64 {
            position.sent(&at(n, 1));
        }
        assert_eq!((position.seen.len(), position.floor.clone()), (REMEMBERED, at(2, 299)));
    }
}
