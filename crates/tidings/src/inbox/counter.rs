//! How many entries of a user are unread, and how often anything changed: one item beside the entries.
//!
//! The unread are counted by the day on which they expire (`record::expiry`). A day that has passed no longer counts,
//! so the number is right although nobody subtracts what expires; reading it is one `get`, whatever the inbox holds.
//! `rev` rises with every change of an entry: what was read at a revision is still true while the revision is.

use tidings_core::time::Timestamp;
use tidings_store::{Change, Item, Key, Write};

use super::record::table;

/// The sort key of a user's counter. Entries begin with `all#`.
const COUNTER: &str = "count";
const DAY_SECONDS: i64 = 86_400;
/// A counter outlives its last entry by so long: the time that entries are kept may have been longer once.
const KEPT_SECONDS: i64 = 400 * DAY_SECONDS;

/// The key of a user's counter.
#[must_use]
pub fn key(user: &str) -> Key {
    Key::with_sort(user, COUNTER)
}

/// What a counter says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    pub unread: u64,
    pub revision: i64,
}

impl Count {
    /// What the stored counter says now; without one, nothing has ever come.
    #[must_use]
    pub fn of(item: Option<&Item>, now: Timestamp) -> Self {
        let Some(item) = item else { return Self::default() };
        let now = now.as_second();
        let days = item
            .0
            .keys()
            .filter_map(|name| if day_of(name)?.saturating_mul(DAY_SECONDS) > now { item.int(name) } else { None });
        let unread: i64 = days.sum();
        Self { unread: u64::try_from(unread).unwrap_or(0), revision: item.int("rev").unwrap_or(0) }
    }
}

/// Counts one more unread entry that expires at `ttl`; belongs into the transaction that stores it.
#[must_use]
pub fn one_more(user: &str, ttl: i64, now: Timestamp) -> Write {
    Write::update(table(), key(user), more(ttl, now))
}

/// What changes in any user's counter then. The day that has just passed is cleared away, so that the counter of a user who
/// hears of something every day has one number for each day kept.
#[must_use]
pub fn more(ttl: i64, now: Timestamp) -> Vec<Change> {
    let mut changes = Vec::with_capacity(4);
    changes.push(Change::Remove(name_of(now.as_second()).into()));
    add(&mut changes, &[(ttl, 1)]);
    changes
}

/// Tells that entries have changed, and by how much the unread among those that expire at each `ttl` have, if only by 0;
/// belongs into the transaction that changes them. `present` is the counter as it is, of which all that has passed is
/// cleared away.
#[must_use]
pub fn changed(user: &str, by_ttl: &[(i64, i64)], present: Option<&Item>, now: Timestamp) -> Write {
    let passed = present.into_iter().flat_map(|item| item.0.keys());
    let passed =
        passed.filter(|name| day_of(name).is_some_and(|day| day.saturating_mul(DAY_SECONDS) <= now.as_second()));
    let mut changes: Vec<Change> = passed.map(|name| Change::Remove(name.clone())).collect();
    add(&mut changes, by_ttl);
    Write::update(table(), key(user), changes)
}

fn add(changes: &mut Vec<Change>, by_ttl: &[(i64, i64)]) {
    let mut last = i64::MIN;
    for (ttl, by) in by_ttl {
        last = last.max(*ttl);
        changes.push(Change::Add(name_of(*ttl).into(), *by));
    }
    changes.push(Change::Add("rev".into(), 1));
    changes.push(Change::Set("ttl".into(), last.saturating_add(KEPT_SECONDS).into()));
}

/// The number of the unread that expire on the day of that second.
fn name_of(second: i64) -> String {
    format!("u{}", second.div_euclid(DAY_SECONDS))
}

fn day_of(name: &str) -> Option<i64> {
    name.strip_prefix('u')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn apply(write: &Write, item: Option<Item>) -> Option<Item> {
        write.apply(item).unwrap()
    }

    // S001-71, S001-92: the count follows what expires, without a word from anybody.
    #[test]
    fn what_has_expired_counts_no_more() {
        let (first, second) = (10 * DAY_SECONDS, 11 * DAY_SECONDS);
        let mut item = None;
        for ttl in [first, first, second] {
            item = apply(&one_more("u1", ttl, at(5)), item);
        }
        let count = |now: i64| Count::of(item.as_ref(), at(now)).unread;
        assert_eq!((count(0), count(first - 1), count(first), count(second - 1), count(second)), (3, 3, 1, 1, 0));
        assert_eq!(Count::of(item.as_ref(), at(0)).revision, 3);
        assert_eq!(Count::of(None, at(0)), Count::default());
        // A change clears away what has passed.
        let later = apply(&changed("u1", &[(second, -1)], item.as_ref(), at(first)), item.clone()).unwrap();
        assert_eq!((later.get("u10"), later.int("u11"), later.int("rev")), (None, Some(0), Some(4)));
        let later = apply(&one_more("u1", 99 * DAY_SECONDS, at(first + 7)), item).unwrap();
        assert_eq!((later.get("u10"), later.int("u99")), (None, Some(1)));
    }
}
