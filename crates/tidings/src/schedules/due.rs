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

/// How far a schedule has come.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// When its timing became what it is.
    pub made: Timestamp,
    /// Runs up to here are done with.
    pub done_until: Timestamp,
}

/// The runs that are not done with and are due at `now`, in order. Those before `since`, when this process began to run, fell
/// into a time when nothing was running.
#[must_use]
pub fn due(timing: &Timing, missed: Missed, progress: Progress, since: Timestamp, now: Timestamp) -> Due {
    let Progress { made, done_until } = progress;
    if now <= done_until {
        // A few seconds are a clock being set right, and no reason to write anything.
        let far = done_until.duration_since(now) > ON_TIME;
        return if far { Due::GoBack } else { Due::Ticks(Vec::new()) };
    }
    let on_time_after = now.checked_sub(ON_TIME).unwrap_or(Timestamp::MIN).max(since).max(done_until);
    let most = if missed == Missed::All { MOST_MISSED } else { 1 };
    let action = if missed == Missed::Skip { Action::Skip } else { Action::MakeUp };
    // A clock that was behind has taken the schedule along to before it was made: nothing was missed there. If it was made by
    // a clock that was ahead, that time has yet to come.
    let missed_after = if made <= now { done_until.max(made) } else { done_until };
    let late = timing.latest(missed_after, on_time_after, most).into_iter().map(|at| Tick { at, action });
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

    fn done(until: &str) -> Progress {
        Progress { made: at("2026-03-01T00:00:00Z"), done_until: at(until) }
    }

    fn timing(every: &str) -> Timing {
        let said = Said { cron: None, timezone: "UTC", every: Some(every), at: None };
        Timing::read(said, at("2026-03-01T00:00:00Z")).unwrap()
    }

    fn ticks(missed: Missed, done_until: &str, now: &str) -> Vec<(String, Action)> {
        match due(&timing("15m"), missed, done(done_until), Timestamp::MIN, at(now)) {
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
            match due(&timing, missed, done(done_until), Timestamp::MIN, at(now)) {
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
        let due = |now| due(&timing("15m"), Missed::Once, done("2026-03-01T12:00:00Z"), Timestamp::MIN, at(now));
        assert_eq!(due("2026-03-01T10:00:00Z"), Due::GoBack);
        assert_eq!(due("2026-03-01T11:59:30Z"), Due::Ticks(Vec::new()));
        assert_eq!(due("2026-03-01T12:00:00Z"), Due::Ticks(Vec::new()));
    }

    // S002-66: back at a time at which the schedule was there, nothing from before it is made up for.
    #[test]
    fn what_was_before_a_schedule_was_made_is_not_missed() {
        let due = |made: &str, now: &str| {
            let progress = Progress { made: at(made), done_until: at("2026-03-01T10:00:00Z") };
            match due(&timing("15m"), Missed::All, progress, at(now), at(now)) {
                Due::Ticks(ticks) => {
                    ticks.iter().map(|tick| tick.at.to_string()[11..16].to_owned()).collect::<Vec<_>>()
                }
                Due::GoBack => panic!("back"),
            }
        };
        assert_eq!(due("2026-03-01T11:35:00Z", "2026-03-01T12:05:00Z"), ["11:45", "12:00"]);
        assert_eq!(due("2026-03-01T12:05:00Z", "2026-03-01T12:05:00Z"), [""; 0]);
        // It was made by a clock that was ahead.
        assert_eq!(due("2026-03-31T12:00:00Z", "2026-03-01T10:50:00Z"), ["10:15", "10:30", "10:45"]);
    }

    #[test]
    fn an_instant_is_due_once() {
        let said = Said { cron: None, timezone: "UTC", every: None, at: Some("2026-03-01T12:00:00Z") };
        let timing = Timing::read(said, at("2026-03-01T00:00:00Z")).unwrap();
        let due = |until: &str, now: &str| due(&timing, Missed::Once, done(until), Timestamp::MIN, at(now));
        let fire = Tick { at: at("2026-03-01T12:00:00Z"), action: Action::Fire };
        assert_eq!(due("2026-03-01T11:00:00Z", "2026-03-01T12:00:00Z"), Due::Ticks(vec![fire]));
        assert_eq!(due("2026-03-01T12:00:00Z", "2026-03-01T12:00:01Z"), Due::Ticks(Vec::new()));
        assert_eq!(timing.upcoming(at("2026-03-01T12:00:00Z"), 5), []);
    }
}
