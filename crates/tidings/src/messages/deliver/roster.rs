//! Something for each destination, of which those that cannot be served for now are asleep: whoever looks for work sees
//! only the others, so that a hundred dead destinations cost the living ones nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use super::senders::Destination;

#[derive(Debug)]
pub struct Roster<T> {
    awake: BTreeMap<Destination, T>,
    asleep: BTreeMap<Destination, T>,
    /// When those wake by themselves that are left alone for a time. What has woken before may still be here: to wake
    /// it once more does no harm.
    wakes: BTreeSet<(Duration, Destination)>,
}

impl<T> Default for Roster<T> {
    fn default() -> Self {
        Self { awake: BTreeMap::new(), asleep: BTreeMap::new(), wakes: BTreeSet::new() }
    }
}

impl<T> Roster<T> {
    pub fn contains(&self, destination: &str) -> bool {
        self.awake.contains_key(destination) || self.asleep.contains_key(destination)
    }

    pub fn get_mut(&mut self, destination: &str) -> Option<&mut T> {
        match self.awake.get_mut(destination) {
            Some(known) => Some(known),
            None => self.asleep.get_mut(destination),
        }
    }

    /// Adds a destination that is not known yet; it is awake.
    pub fn insert(&mut self, destination: Destination, value: T) {
        self.awake.insert(destination, value);
    }

    pub fn remove(&mut self, destination: &str) -> Option<T> {
        self.awake.remove(destination).or_else(|| self.asleep.remove(destination))
    }

    /// The destinations that are awake.
    pub fn awake(&self) -> impl Iterator<Item = &str> {
        self.awake.keys().map(|destination| &**destination)
    }

    /// Goes over those that are awake, from the one behind `last` around to it.
    pub fn each_awake(&mut self, last: &str, mut each: impl FnMut(&Destination, &mut T)) {
        let behind = (Bound::Excluded(last), Bound::Unbounded);
        let before = (Bound::Unbounded, Bound::Included(last));
        for part in [behind, before] {
            self.awake.range_mut::<str, _>(part).for_each(|(destination, value)| each(destination, value));
        }
    }

    /// All of them, awake or not.
    pub fn iter(&self) -> impl Iterator<Item = (&Destination, &T)> {
        self.awake.iter().chain(&self.asleep)
    }

    /// All of them, awake or not.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&Destination, &mut T)> {
        self.awake.iter_mut().chain(&mut self.asleep)
    }

    /// Takes all of them out.
    pub fn drain(&mut self) -> impl Iterator<Item = T> + use<T> {
        self.wakes.clear();
        [&mut self.awake, &mut self.asleep].map(std::mem::take).into_iter().flat_map(BTreeMap::into_values)
    }

    /// Has a destination sleep until it is woken, or until that moment.
    pub fn rest(&mut self, destination: &str, until: Option<Duration>) {
        if let Some((destination, value)) = self.awake.remove_entry(destination) {
            self.wakes.extend(until.map(|until| (until, destination.clone())));
            self.asleep.insert(destination, value);
        }
    }

    pub fn wake(&mut self, destination: &str) {
        self.awake.extend(self.asleep.remove_entry(destination));
    }

    pub fn wake_all(&mut self) {
        self.wakes.clear();
        self.awake.append(&mut self.asleep);
    }

    /// Wakes those whose moment has come.
    pub fn wake_by(&mut self, now: Duration) {
        while self.next_wake().is_some_and(|until| until <= now) {
            if let Some((_, destination)) = self.wakes.pop_first() {
                self.wake(&destination);
            }
        }
    }

    /// The first moment at which somebody may wake by himself.
    pub fn next_wake(&self) -> Option<Duration> {
        self.wakes.first().map(|(until, _)| *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roster(names: &[&'static str]) -> Roster<u32> {
        let mut roster = Roster::default();
        for (name, value) in names.iter().zip(1..) {
            roster.insert((*name).into(), value);
        }
        roster
    }

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn who_sleeps_is_known_but_not_seen() {
        let mut roster = roster(&["a", "b", "c"]);
        roster.rest("b", None);
        roster.rest("nobody", Some(s(1)));
        assert!(roster.awake().eq(["a", "c"]) && roster.contains("b") && !roster.contains("nobody"));
        *roster.get_mut("b").unwrap() += 10;
        assert!(roster.iter().map(|(_, value)| *value).eq([1, 3, 12]));
        assert_eq!((roster.remove("b"), roster.remove("b"), roster.remove("a")), (Some(12), None, Some(1)));
        assert!(roster.drain().eq([3]) && roster.iter().next().is_none());
    }

    #[test]
    fn the_round_begins_behind_the_last() {
        let mut roster = roster(&["a", "b", "c", "d"]);
        roster.rest("d", None);
        for (last, round) in [("", "abc"), ("a", "bca"), ("bb", "cab"), ("d", "abc")] {
            let mut seen = String::new();
            roster.each_awake(last, |name, _| seen += name);
            assert_eq!(seen, round, "behind {last}");
        }
    }

    #[test]
    fn each_wakes_at_its_moment_or_when_woken() {
        let mut roster = roster(&["a", "b", "c"]);
        roster.rest("a", Some(s(3)));
        roster.rest("b", Some(s(5)));
        roster.rest("c", None);
        assert_eq!(roster.next_wake(), Some(s(3)));
        roster.wake_by(s(2));
        assert_eq!(roster.awake().count(), 0);
        roster.wake_by(s(3));
        assert!(roster.awake().eq(["a"]));
        roster.wake("b");
        roster.rest("b", Some(s(9)));
        roster.wake_by(s(5));
        assert!(roster.awake().eq(["a", "b"]), "a little early");
        roster.wake_all();
        assert!(roster.awake().eq(["a", "b", "c"]) && roster.next_wake().is_none());
    }
}
