//! What is due now, given how far a schedule has come and what to do about what was missed. Pure.

use jiff::SignedDuration;
use tidings_core::time::Timestamp;

use super::timing::Timing;
use crate::config::schedules::Missed;

/// A run that is not later than this was not missed: the scheduler looks at least every 30 s.
pub const ON_TIME: SignedDuration = SignedDuration::from_secs(60);
/// Missed runs that `all` makes up for; the latest ones.
pub const MOST_MISSED: usize = 100;
/// Runs within [`ON_TIME`] there can be.
const MOST_ON_TIME: usize = 60;

/// One run that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tick {
    pub at: Timestamp,
    pub action: Action,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Fire,
    /// It fell into a time when nothing was running, and is made up for.
    MakeUp,
    /// It, and every missed one before it, is left out.
    Skip,
}

/// What to do now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Due {
    Ticks(Vec<Tick>),
    /// The clock was set back. What it comes by again is not lost, and is not doubled either, because a run's message has
    /// an id that follows from its time.
    GoBack,
}

/// The runs after `done_until` that are due at `now`, in order. Those before `since`, when this process began to run,
/// fell into a time when nothing was running.
#[must_use]
pub fn due(timing: &Timing, missed: Missed, done_until: Timestamp, since: Timestamp, now: Timestamp) -> Due {
    if now <= done_until {
        // A few seconds are a clock being set right, and no reason to write anything.
        let far = done_until.duration_since(now) > ON_TIME;
        return if far { Due::GoBack } else { Due::Ticks(Vec::new()) };
    }
    let on_time_after = now.checked_sub(ON_TIME).unwrap_or(Timestamp::MIN).max(since).max(done_until);
    let most = if missed == Missed::All { MOST_MISSED } else { 1 };
    let action = if missed == Missed::Skip { Action::Skip } else { Action::MakeUp };
    let late = timing.latest(done_until, on_time_after, most).into_iter().map(|at| Tick { at, action });
    let on_time = timing.latest(on_time_after, now, MOST_ON_TIME).into_iter();
    Due::Ticks(late.chain(on_time.map(|at| Tick { at, action: Action::Fire })).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedules::timing::Said;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn timing(every: &str) -> Timing {
        let said = Said { cron: None, timezone: "UTC", every: Some(every), at: None };
        Timing::read(said, at("2026-03-01T00:00:00Z")).unwrap()
    }

    fn ticks(missed: Missed, done_until: &str, now: &str) -> Vec<(String, Action)> {
        match due(&timing("15m"), missed, at(done_until), Timestamp::MIN, at(now)) {
            Due::Ticks(ticks) => ticks.iter().map(|tick| (tick.at.to_string(), tick.action)).collect(),
            Due::GoBack => panic!("back"),
        }
    }

    // S002-66
    #[test]
    fn a_run_on_time_is_run_whatever_the_policy() {
        for missed in [Missed::Skip, Missed::Once, Missed::All] {
            let due = ticks(missed, "2026-03-01T12:00:00Z", "2026-03-01T12:15:20Z");
            assert_eq!(due, [("2026-03-01T12:15:00Z".to_owned(), Action::Fire)]);
            assert_eq!(ticks(missed, "2026-03-01T12:15:00Z", "2026-03-01T12:15:20Z"), []);
            assert_eq!(ticks(missed, "2026-03-01T12:00:00Z", "2026-03-01T12:14:59Z"), []);
        }
    }

    // S002-66
    #[test]
    fn missed_runs_follow_the_policy() {
        let due = |missed| ticks(missed, "2026-03-01T12:00:00Z", "2026-03-01T13:00:10Z");
        let fire = ("2026-03-01T13:00:00Z".to_owned(), Action::Fire);
        assert_eq!(due(Missed::Skip), [("2026-03-01T12:45:00Z".to_owned(), Action::Skip), fire.clone()]);
        assert_eq!(due(Missed::Once), [("2026-03-01T12:45:00Z".to_owned(), Action::MakeUp), fire.clone()]);
        let all = due(Missed::All);
        assert_eq!(all.len(), 4);
        assert_eq!((all[0].0.as_str(), &all[3]), ("2026-03-01T12:15:00Z", &fire));
        // Thirty days are 2880 runs; the latest hundred of them.
        let all = ticks(Missed::All, "2026-03-01T12:00:00Z", "2026-03-31T12:05:00Z");
        assert_eq!((all.len(), all[99].0.as_str()), (MOST_MISSED, "2026-03-31T12:00:00Z"));
    }

    // S002-66: what is made up for is what would have run, once for each.
    #[test]
    fn what_was_missed_over_a_change_of_the_clocks_is_what_would_have_run() {
        let runs = |cron, missed, done_until: &str, now: &str| {
            let said = Said { cron: Some(cron), timezone: "Europe/Berlin", every: None, at: None };
            let timing = Timing::read(said, Timestamp::UNIX_EPOCH).unwrap();
            match due(&timing, missed, at(done_until), Timestamp::MIN, at(now)) {
                Due::Ticks(ticks) => ticks.iter().map(|tick| tick.at.to_string()).collect::<Vec<_>>(),
                Due::GoBack => panic!("back"),
            }
        };
        let spring = |cron, missed| runs(cron, missed, "2026-03-28T12:00:00Z", "2026-03-29T12:00:00Z");
        let autumn = |cron, missed| runs(cron, missed, "2026-10-24T12:00:00Z", "2026-10-25T12:00:00Z");
        assert_eq!(spring("15,45 2 * * *", Missed::All), ["2026-03-29T01:00:00Z"]);
        assert_eq!(spring("0 2,3 * * *", Missed::All), ["2026-03-29T01:00:00Z"]);
        assert_eq!(spring("15,45 2 * * *", Missed::Once), ["2026-03-29T01:00:00Z"]);
        assert_eq!(autumn("15,45 2 * * *", Missed::All), ["2026-10-25T00:15:00Z", "2026-10-25T00:45:00Z"]);
        assert_eq!(autumn("0 2,3 * * *", Missed::All), ["2026-10-25T00:00:00Z", "2026-10-25T02:00:00Z"]);
        assert_eq!(autumn("15,45 2 * * *", Missed::Once), ["2026-10-25T00:45:00Z"]);
        // While the hour comes for the second time, nothing is due.
        assert!(runs("15,45 2 * * *", Missed::All, "2026-10-25T00:45:00Z", "2026-10-25T01:15:20Z").is_empty());
    }

    #[test]
    fn a_clock_that_goes_back_far_takes_the_schedule_along() {
        let due = |now| due(&timing("15m"), Missed::Once, at("2026-03-01T12:00:00Z"), Timestamp::MIN, at(now));
        assert_eq!(due("2026-03-01T10:00:00Z"), Due::GoBack);
        assert_eq!(due("2026-03-01T11:59:30Z"), Due::Ticks(Vec::new()));
        assert_eq!(due("2026-03-01T12:00:00Z"), Due::Ticks(Vec::new()));
    }

    #[test]
    fn an_instant_is_due_once() {
        let said = Said { cron: None, timezone: "UTC", every: None, at: Some("2026-03-01T12:00:00Z") };
        let timing = Timing::read(said, at("2026-03-01T00:00:00Z")).unwrap();
        let due = |done: &str, now: &str| due(&timing, Missed::Once, at(done), Timestamp::MIN, at(now));
        let fire = Tick { at: at("2026-03-01T12:00:00Z"), action: Action::Fire };
        assert_eq!(due("2026-03-01T11:00:00Z", "2026-03-01T12:00:00Z"), Due::Ticks(vec![fire]));
        assert_eq!(due("2026-03-01T12:00:00Z", "2026-03-01T12:00:01Z"), Due::Ticks(Vec::new()));
        assert_eq!(timing.upcoming(at("2026-03-01T12:00:00Z"), 5), []);
    }
}
