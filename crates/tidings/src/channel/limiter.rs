//! One destination never slows another: so many attempts at a time each, and a circuit breaker that leaves a dead one
//! alone until a single probe got through. Pure; time is a monotonic argument.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Attempts at the same time to one destination.
    pub concurrency: u32,
    /// The same to one that has not answered well lately: it may be one that never answers.
    pub unknown: u32,
    /// Attempts at the same time to all of these together, so that those who answer always have the rest.
    pub unknown_in_all: usize,
    /// So many failures in a row open the breaker.
    pub failures: u32,
    /// How long it stays open; twice as long after each probe that failed …
    pub open_for: Duration,
    /// … up to this.
    pub open_at_most: Duration,
}

/// Destinations that are remembered because they answer well.
const KNOWN: usize = 10_000;

impl Default for Limits {
    fn default() -> Self {
        Self {
            concurrency: 8,
            unknown: u32::MAX,
            unknown_in_all: usize::MAX,
            failures: 5,
            open_for: Duration::from_secs(5),
            open_at_most: Duration::from_secs(300),
        }
    }
}

/// Whether an attempt may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Yes; its end must be reported with [`Limiter::end`].
    Go,
    /// The same, and something failed there before: what is tried now tells whether it fails for everybody.
    Probe,
    /// As many as may are under way; come back when one of them ended.
    Busy,
    /// Too many are under way to others of whom it is not known whether they answer; come back when any of them ended.
    Crowded,
    /// It is left alone until then.
    Open { until: Duration },
}

/// What an attempt's end says about its destination, not about the message: a refusal is a sign of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    Well,
    Ill,
    /// It asked to be left alone for so long, or as long as its message's policy allows.
    Throttled(Duration),
    /// Nothing was tried after all.
    Untried,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Closed,
    Open {
        until: Duration,
    },
    /// One probe is under way.
    HalfOpen,
}

#[derive(Clone, Debug, Default)]
struct Destination {
    state: State,
    in_flight: u32,
    failures: u32,
    /// How often in a row it was opened.
    openings: u32,
    /// Whether it took the last thing that it was asked to.
    answers: bool,
    last_used: Duration,
}

impl Destination {
    /// Attempts under way of which it is not known whether they are answered.
    const fn unknown(&self) -> usize {
        if self.answers { 0 } else { self.in_flight as usize }
    }
}

/// All destinations of a channel. Only those with something to remember are kept.
#[derive(Clone, Debug, Default)]
pub struct Limiter {
    limits: Limits,
    destinations: BTreeMap<String, Destination>,
    /// Attempts under way to those that have not answered well lately.
    unknown: usize,
    /// Those that are open, by the end of that, until somebody asks how many there are after it.
    open: BTreeSet<(Duration, String)>,
}

impl Limiter {
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Asks to start an attempt.
    pub fn admit(&mut self, destination: &str, now: Duration) -> Admission {
        let limits = self.limits;
        // Most are known, and their names need no copy.
        if !self.destinations.contains_key(destination) {
            self.destinations.insert(destination.to_owned(), Destination::default());
        }
        let Some(entry) = self.destinations.get_mut(destination) else { return Admission::Busy };
        entry.last_used = now;
        let at_once = if entry.answers { limits.concurrency } else { limits.concurrency.min(limits.unknown) };
        match entry.state {
            State::Open { until } if now < until => return Admission::Open { until },
            // What was under way when it opened has to end first: the probe is alone.
            State::Open { .. } if entry.in_flight > 0 => return Admission::Busy,
            State::HalfOpen => return Admission::Busy,
            State::Closed if entry.in_flight >= at_once.max(1) => return Admission::Busy,
            _ if !entry.answers && self.unknown >= limits.unknown_in_all => return Admission::Crowded,
            State::Open { .. } => entry.state = State::HalfOpen,
            State::Closed => {}
        }
        entry.in_flight += 1;
        self.unknown += usize::from(!entry.answers);
        if entry.failures > 0 { Admission::Probe } else { Admission::Go }
    }

    /// Reports the end of an attempt that was admitted.
    pub fn end(&mut self, destination: &str, health: Health, now: Duration) {
        let limits = self.limits;
        let Some(entry) = self.destinations.get_mut(destination) else { return };
        let (before, unknown) = (entry.state, entry.unknown());
        entry.in_flight = entry.in_flight.saturating_sub(1);
        match health {
            Health::Well => {
                // A straggler's good news does not close what was opened after it began; only the probe's does.
                if !matches!(entry.state, State::Open { .. }) {
                    (entry.state, entry.failures, entry.openings) = (State::Closed, 0, 0);
                    entry.answers = true;
                }
            }
            Health::Ill => {
                entry.failures = entry.failures.saturating_add(1);
                entry.answers = false;
                let probe_failed = entry.state == State::HalfOpen;
                if probe_failed || (entry.state == State::Closed && entry.failures >= limits.failures.max(1)) {
                    let doubled = limits.open_for.saturating_mul(2_u32.saturating_pow(entry.openings));
                    entry.openings = entry.openings.saturating_add(1);
                    entry.state = State::Open { until: now + doubled.min(limits.open_at_most) };
                }
            }
            Health::Untried => {
                // The probe is still to be made.
                if entry.state == State::HalfOpen {
                    entry.state = State::Open { until: now };
                }
            }
            Health::Throttled(wait) => {
                let asked = now.saturating_add(wait);
                let until = if let State::Open { until } = entry.state { until.max(asked) } else { asked };
                entry.state = State::Open { until };
            }
        }
        self.unknown = (self.unknown + entry.unknown()).saturating_sub(unknown);
        if before != entry.state {
            if let State::Open { until } = before {
                self.open.remove(&(until, destination.to_owned()));
            }
            if let State::Open { until } = entry.state {
                self.open.insert((until, destination.to_owned()));
            }
        }
        let is_idle = entry.in_flight == 0 && entry.state == State::Closed && entry.failures == 0;
        let answers = entry.answers;
        if is_idle && (!answers || self.destinations.len() > KNOWN) {
            self.destinations.remove(destination);
        }
    }

    /// Drops what nobody asked for lately, so that destinations that died and were removed take no room for ever.
    pub fn forget_idle(&mut self, now: Duration) {
        let keep = self.limits.open_at_most.saturating_mul(2);
        let is_left_alone = |entry: &Destination| matches!(entry.state, State::Open { until } if now < until);
        self.destinations.retain(|_, entry| {
            entry.in_flight > 0 || is_left_alone(entry) || now.saturating_sub(entry.last_used) <= keep
        });
    }

    /// How long a destination is left alone from now on; `None` if it is not.
    #[must_use]
    pub fn opens(&self, destination: &str, now: Duration) -> Option<Duration> {
        match self.destinations.get(destination)?.state {
            State::Open { until } => until.checked_sub(now).filter(|wait| !wait.is_zero()),
            _ => None,
        }
    }

    /// How many destinations are left alone at the moment.
    pub fn open(&mut self, now: Duration) -> usize {
        while self.open.first().is_some_and(|(until, _)| *until <= now) {
            self.open.pop_first();
        }
        self.open.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEAD: &str = "https://dead.example";

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn limiter() -> Limiter {
        let limits = Limits { concurrency: 2, failures: 3, open_for: s(10), open_at_most: s(25), ..Limits::default() };
        Limiter::new(limits)
    }

    fn fail(limiter: &mut Limiter, now: u64) {
        assert!(matches!(limiter.admit(DEAD, s(now)), Admission::Go | Admission::Probe));
        limiter.end(DEAD, Health::Ill, s(now));
    }

    #[test]
    fn a_destination_gets_so_many_at_a_time_and_others_do_not_care() {
        let mut limiter = limiter();
        assert_eq!([0; 3].map(|_| limiter.admit(DEAD, s(0))), [Admission::Go, Admission::Go, Admission::Busy]);
        assert_eq!(limiter.admit("https://other.example", s(0)), Admission::Go);
        limiter.end(DEAD, Health::Well, s(1));
        assert_eq!(limiter.admit(DEAD, s(1)), Admission::Go);
    }

    #[test]
    fn failures_in_a_row_open_it_and_one_probe_closes_it() {
        let mut limiter = limiter();
        for now in 0..3 {
            fail(&mut limiter, now);
        }
        assert_eq!(limiter.admit(DEAD, s(3)), Admission::Open { until: s(12) });
        assert_eq!([3, 11, 12].map(|now| limiter.open(s(now))), [1, 1, 0]);
        assert_eq!(limiter.admit(DEAD, s(12)), Admission::Probe);
        assert_eq!(limiter.admit(DEAD, s(12)), Admission::Busy, "only one probe");
        limiter.end(DEAD, Health::Well, s(13));
        assert_eq!([0; 2].map(|_| limiter.admit(DEAD, s(13))), [Admission::Go; 2]);
    }

    #[test]
    fn a_probe_that_was_not_made_is_still_to_be_made() {
        let mut limiter = limiter();
        for now in 0..3 {
            fail(&mut limiter, now);
        }
        for _ in 0..2 {
            assert_eq!(limiter.admit(DEAD, s(12)), Admission::Probe);
            limiter.end(DEAD, Health::Untried, s(12));
        }
    }

    #[test]
    fn failed_probes_double_the_wait_up_to_the_limit() {
        let mut limiter = limiter();
        for now in 0..3 {
            fail(&mut limiter, now);
        }
        for (probe, until) in [(12, 32), (32, 57), (57, 82)] {
            fail(&mut limiter, probe);
            assert_eq!(limiter.admit(DEAD, s(probe)), Admission::Open { until: s(until) });
        }
    }

    #[test]
    fn a_success_between_failures_starts_the_count_again() {
        let mut limiter = limiter();
        for now in 0..2 {
            fail(&mut limiter, now);
        }
        limiter.admit(DEAD, s(2));
        limiter.end(DEAD, Health::Well, s(2));
        for now in 3..5 {
            fail(&mut limiter, now);
        }
        assert_eq!(limiter.admit(DEAD, s(5)), Admission::Probe);
    }

    #[test]
    fn a_stragglers_success_does_not_close_it_and_the_probe_is_alone() {
        let mut limiter = limiter();
        assert_eq!(limiter.admit(DEAD, s(0)), Admission::Go);
        for now in 0..3 {
            fail(&mut limiter, now);
        }
        assert_eq!(limiter.admit(DEAD, s(20)), Admission::Busy);
        limiter.end(DEAD, Health::Well, s(21));
        assert_eq!(limiter.admit(DEAD, s(21)), Admission::Probe);
        assert_eq!(limiter.admit(DEAD, s(21)), Admission::Busy);
    }

    #[test]
    fn whoever_asks_to_be_left_alone_is() {
        let mut limiter = limiter();
        limiter.admit(DEAD, s(0));
        limiter.end(DEAD, Health::Throttled(s(20)), s(0));
        assert_eq!(limiter.admit(DEAD, s(19)), Admission::Open { until: s(20) });
        assert_eq!([19, 20].map(|now| limiter.open(s(now))), [1, 0]);
        assert_eq!(limiter.admit(DEAD, s(20)), Admission::Go);
    }

    #[test]
    fn whoever_asks_for_a_long_time_is_not_forgotten_meanwhile() {
        let mut limiter = limiter();
        for (destination, asked) in [(DEAD, s(1000)), ("https://never.example", Duration::MAX)] {
            limiter.admit(destination, s(7));
            limiter.end(destination, Health::Throttled(asked), s(7));
            limiter.forget_idle(s(999));
            assert_eq!(limiter.admit(destination, s(999)), Admission::Open { until: s(7).saturating_add(asked) });
        }
        assert_eq!(limiter.admit(DEAD, s(1007)), Admission::Go);
    }

    /// So that any number of those that never answer leaves room for the others.
    #[test]
    fn whoever_has_not_answered_has_one_at_a_time_and_all_of_them_a_part() {
        let mut limiter = limiter();
        (limiter.limits.unknown, limiter.limits.unknown_in_all) = (1, 3);
        limiter.admit(DEAD, s(0));
        limiter.end(DEAD, Health::Well, s(0));
        let silent = ["a", "b", "c", "d"];
        let go = Admission::Go;
        assert_eq!(silent.map(|name| limiter.admit(name, s(0))), [go, go, go, Admission::Crowded]);
        assert_eq!(limiter.admit("a", s(0)), Admission::Busy);
        // Who answers is none of them.
        assert_eq!([0; 3].map(|_| limiter.admit(DEAD, s(0))), [go, go, Admission::Busy]);
        limiter.end("a", Health::Well, s(1));
        assert_eq!(["d", "a", "a", "b"].map(|name| limiter.admit(name, s(1))), [go, go, go, Admission::Busy]);
        // One that answered and then fails is one of them, with all that is under way.
        limiter.end("a", Health::Ill, s(2));
        assert_eq!(limiter.unknown, 4);
        limiter.end("a", Health::Ill, s(2));
        assert_eq!(limiter.admit("a", s(2)), Admission::Crowded);
        limiter.end("b", Health::Untried, s(2));
        assert_eq!(["a", "b"].map(|name| limiter.admit(name, s(2))), [Admission::Probe, Admission::Crowded]);
        ["a", "c", "d"].into_iter().for_each(|name| limiter.end(name, Health::Ill, s(3)));
        assert_eq!(limiter.unknown, 0);
    }

    #[test]
    fn each_is_counted_once_while_it_is_left_alone() {
        let mut limiter = limiter();
        for (destination, waits) in [(DEAD, [5, 9, 7]), ("https://other.example", [1, 1, 20])] {
            // All were under way when the first of them was asked to wait.
            limiter.limits.concurrency = 3;
            assert_eq!([0; 3].map(|_| limiter.admit(destination, s(0))), [Admission::Go; 3]);
            waits.into_iter().for_each(|wait| limiter.end(destination, Health::Throttled(s(wait)), s(0)));
        }
        assert_eq!([0, 8, 9, 19, 20].map(|now| limiter.open(s(now))), [2, 2, 1, 1, 0]);
    }

    #[test]
    fn healthy_destinations_are_forgotten() {
        let mut limiter = limiter();
        for n in 0..1000 {
            let destination = format!("https://{n}.example");
            limiter.admit(&destination, s(n));
            limiter.end(&destination, Health::Well, s(n));
        }
        limiter.forget_idle(s(1050));
        assert!(limiter.destinations.is_empty());
        for n in 0..=KNOWN {
            let destination = format!("https://{n}.example");
            limiter.admit(&destination, s(0));
            limiter.end(&destination, Health::Well, s(0));
        }
        assert_eq!(limiter.destinations.len(), KNOWN, "no more than so many");
        limiter.forget_idle(s(1050));
        for now in 0..3 {
            fail(&mut limiter, now);
        }
        limiter.admit("https://busy.example", s(2));
        limiter.forget_idle(s(50));
        assert_eq!(limiter.destinations.len(), 2);
        limiter.forget_idle(s(53));
        assert_eq!(limiter.destinations.keys().collect::<Vec<_>>(), ["https://busy.example"]);
    }
}
