//! Cron in a time zone: `croner` finds times on a wall clock that nobody sets, and what a change of the clocks makes of
//! them is decided here. Pure.
//!
//! It is Vixie cron's way. If neither the minute nor the hour has a `*`, the times are fixed: one that a change leaves out
//! runs at the first moment after it, several of them once, and one that comes twice runs the first time. Else the
//! schedule follows the clock on the wall: what is left out does not run, and what comes twice runs twice.

use croner::Cron;
use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use tidings_core::time::Timestamp;

#[derive(Debug, Clone)]
pub struct Calendar {
    cron: Box<Cron>,
    zone: TimeZone,
    is_fixed: bool,
}

impl Calendar {
    pub fn new(cron: Cron, zone: TimeZone) -> Self {
        let is_fixed = !cron.pattern.minutes.from_wildcard && !cron.pattern.hours.from_wildcard;
        Self { cron: Box::new(cron), zone, is_fixed }
    }

    /// The first run after an instant.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let after = whole_second(after);
        if self.is_fixed { self.next_fixed(after) } else { self.next_on_the_wall(after) }
    }

    /// The last run at or before an instant.
    pub fn last_until(&self, until: Timestamp) -> Option<Timestamp> {
        let until = whole_second(until);
        if self.is_fixed { self.last_fixed(until) } else { self.last_on_the_wall(until) }
    }

    /// A later time on the wall never runs earlier, so the first that runs after the instant is the one.
    fn next_fixed(&self, after: Timestamp) -> Option<Timestamp> {
        let mut wall = self.zone.to_datetime(after);
        loop {
            wall = self.cron.find_next_occurrence(&wall, false).ok()?;
            let run = instant(&self.zone, wall)?;
            if run > after {
                return Some(run);
            }
        }
    }

    fn last_fixed(&self, until: Timestamp) -> Option<Timestamp> {
        let mut wall = self.zone.to_datetime(until);
        // In an hour that comes again, all of it has run, also what the wall has yet to show once more.
        if let AmbiguousOffset::Fold { before, after } = self.zone.to_ambiguous_timestamp(wall).offset()
            && self.zone.to_offset(until) == after
        {
            wall = wall.checked_add(before.duration_since(after)).ok()?;
        }
        let mut inclusive = true;
        loop {
            wall = self.cron.find_previous_occurrence(&wall, inclusive).ok()?;
            let run = instant(&self.zone, wall)?;
            if run <= until {
                return Some(run);
            }
            inclusive = false;
        }
    }

    /// Between two changes the wall clock runs evenly: one stretch after the other.
    fn next_on_the_wall(&self, after: Timestamp) -> Option<Timestamp> {
        let (mut from, mut inclusive) = (after, false);
        loop {
            let offset = self.zone.to_offset(from);
            let found = self.cron.find_next_occurrence(&offset.to_datetime(from), inclusive).ok()?;
            let run = offset.to_timestamp(found).ok()?;
            match self.zone.following(from).next().map(|change| change.timestamp()) {
                Some(change) if change <= run => (from, inclusive) = (change, true),
                _ => return Some(run),
            }
        }
    }

    fn last_on_the_wall(&self, until: Timestamp) -> Option<Timestamp> {
        const SECOND: SignedDuration = SignedDuration::from_secs(1);
        let mut until = until;
        loop {
            let offset = self.zone.to_offset(until);
            let found = self.cron.find_previous_occurrence(&offset.to_datetime(until), true).ok()?;
            let run = offset.to_timestamp(found).ok()?;
            // A change that is now is part of what is looked at.
            let next = until.checked_add(SECOND).ok()?;
            match self.zone.preceding(next).next().map(|change| change.timestamp()) {
                Some(change) if run < change => until = change.checked_sub(SECOND).ok()?,
                _ => return Some(run),
            }
        }
    }
}

fn whole_second(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_nanosecond().div_euclid(1_000_000_000).try_into().unwrap_or(0)).unwrap_or(at)
}

/// The moment of a time of day on a date. One that there is twice is the first; one that there is not, because clocks are
/// set forward, is the moment of that.
pub(crate) fn instant(zone: &TimeZone, wall: DateTime) -> Option<Timestamp> {
    match zone.to_ambiguous_timestamp(wall).offset() {
        AmbiguousOffset::Unambiguous { offset } | AmbiguousOffset::Fold { before: offset, .. } => {
            offset.to_timestamp(wall).ok()
        }
        AmbiguousOffset::Gap { after, .. } => {
            // By the clock of after the change, this is before it.
            let early = after.to_timestamp(wall).ok()?;
            let mut changes = zone.following(early);
            changes.find(|change| change.offset() == after).map(|change| change.timestamp())
        }
    }
}
