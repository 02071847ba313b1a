use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn cron(text: &str, timezone: &str) -> Timing {
    let said = Said { cron: Some(text), timezone, every: None, at: None };
    Timing::read(said, Timestamp::UNIX_EPOCH).unwrap_or_else(|errors| panic!("{text}: {errors:?}"))
}

fn next(timing: &Timing, after: &str, most: usize) -> Vec<String> {
    timing.upcoming(at(after), most).iter().map(ToString::to_string).collect()
}

/// A night in Berlin: from 23:00 to 05:00 UTC, which holds either change of the clocks.
fn night(text: &str, evening: &str) -> Vec<String> {
    let (from, until) = (at(&format!("{evening}T22:59:59Z")), at(&format!("{evening}T23:00:00Z")));
    let until = until + jiff::SignedDuration::from_hours(6);
    let timing = cron(text, "Europe/Berlin");
    let forth: Vec<_> = timing.upcoming(from, 1000).into_iter().take_while(|run| *run <= until).collect();
    assert_eq!(timing.latest(from, until, 1000), forth, "{text}: back and forth");
    forth.iter().map(|run| run.to_string()[11..16].to_owned()).collect()
}

// S002-66: from 02:00 to 03:00 there is nothing on 2026-03-29 in Berlin. What falls there runs once, right after it.
#[test]
fn in_the_gap_fixed_times_run_once_right_after_it() {
    for (text, runs) in [
        ("30 2 * * *", &["01:00"][..]),
        ("15,45 2 * * *", &["01:00"]),
        ("0 2,3 * * *", &["01:00"]),
        ("0 1-4 * * *", &["00:00", "01:00", "02:00"]),
        ("30 1-3 * * *", &["00:30", "01:00", "01:30"]),
        ("0 0-6/2 * * *", &["23:00", "01:00", "02:00", "04:00"]),
        ("30,40 15,45 2 * * *", &["01:00"]),
        ("*/20 30 2 * * *", &["01:00"]),
        ("30 2 * 3 SUN#L", &["01:00"]),
        ("30 2 28 3 *", &[]),
        ("0 3 * * *", &["01:00"]),
    ] {
        assert_eq!(night(text, "2026-03-28"), runs, "{text}");
    }
    // The day before and the day after are as ever.
    let runs = next(&cron("15,45 2 * * *", "Europe/Berlin"), "2026-03-28T01:30:00Z", 3);
    assert_eq!(runs, ["2026-03-28T01:45:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:15:00Z"]);
    // A whole day was left out in Samoa, where 2011-12-30 never came.
    let runs = next(&cron("0 9,17 * * *", "Pacific/Apia"), "2011-12-29T19:00:00Z", 3);
    assert_eq!(runs, ["2011-12-30T03:00:00Z", "2011-12-30T10:00:00Z", "2011-12-30T19:00:00Z"]);
}

// S002-66: from 02:00 to 03:00 everything is twice on 2026-10-25 in Berlin.
#[test]
fn in_the_overlap_fixed_times_run_the_first_time_only() {
    for (text, runs) in [
        ("30 2 * * *", &["00:30"][..]),
        ("15,45 2 * * *", &["00:15", "00:45"]),
        ("0 2,3 * * *", &["00:00", "02:00"]),
        ("0 1-4 * * *", &["23:00", "00:00", "02:00", "03:00"]),
        ("0 0-6/2 * * *", &["00:00", "03:00", "05:00"]),
        ("0 3 * * *", &["02:00"]),
    ] {
        assert_eq!(night(text, "2026-10-24"), runs, "{text}");
    }
}

// S002-66: `*` and its steps follow the clock on the wall.
#[test]
fn what_is_not_fixed_follows_the_clock_on_the_wall() {
    for (text, spring, autumn) in [
        ("*/30 2 * * *", &[][..], &["00:00", "00:30", "01:00", "01:30"][..]),
        ("0 */2 * * *", &["23:00", "02:00", "04:00"], &["00:00", "01:00", "03:00", "05:00"]),
        (
            "@hourly",
            &["23:00", "00:00", "01:00", "02:00", "03:00", "04:00", "05:00"],
            &["23:00", "00:00", "01:00", "02:00", "03:00", "04:00", "05:00"],
        ),
    ] {
        assert_eq!(night(text, "2026-03-28"), spring, "{text}");
        assert_eq!(night(text, "2026-10-24"), autumn, "{text}");
    }
    for evening in ["2026-03-28", "2026-10-24"] {
        assert_eq!(night("*/15 * * * *", evening).len(), 25);
    }
    // Only an hour that is never there: it never comes.
    assert!(cron("*/15 2 * 3 SUN#L", "Europe/Berlin").next_after(at("2026-03-01T00:00:00Z")).is_none());
}

// What is told ahead is what comes, from whichever moment of the hours around a change it is told.
#[test]
fn from_every_minute_around_a_change_back_and_forth_agree() {
    for (zone, from) in [
        ("Europe/Berlin", "2027-03-27T22:00:05Z"),
        ("Europe/Berlin", "2027-10-30T22:00:05Z"),
        ("America/New_York", "2027-03-14T04:00:05Z"),
        ("America/New_York", "2027-11-07T03:00:05Z"),
        ("Australia/Lord_Howe", "2027-04-03T13:00:05Z"),
        ("Australia/Lord_Howe", "2027-10-02T13:00:05Z"),
        ("America/Havana", "2027-03-14T03:00:05Z"),
    ] {
        for text in [
            "30 1 * * *",
            "15,45 2 * * *",
            "0 1-4 * * *",
            "59 59 1,2 * * *",
            "0 0 * * *",
            "*/15 * * * *",
            "5 */2 * * *",
        ] {
            let timing = cron(text, zone);
            let begin = at(from);
            let runs = timing.upcoming(begin, 100);
            for minutes in 0..480 {
                let now = begin + jiff::SignedDuration::from_mins(minutes);
                let told = runs.iter().find(|run| **run > now).copied();
                assert_eq!(timing.next_after(now), told, "{text} {zone} after {now}");
                let last = runs.iter().rfind(|run| **run <= now).copied();
                let found = timing.last_until(now).filter(|run| *run > begin);
                assert_eq!(found, last, "{text} {zone} until {now}");
            }
            // At the very moment of a run, it is the last one and no longer the next.
            for pair in runs.windows(2) {
                assert_eq!(timing.last_until(pair[0]), Some(pair[0]), "{text} {zone}");
                assert_eq!(timing.next_after(pair[0]), Some(pair[1]), "{text} {zone}");
            }
        }
    }
}

#[test]
fn month_ends_leap_days_and_seconds() {
    assert_eq!(
        next(&cron("0 12 31 * *", "UTC"), "2026-01-31T12:00:00Z", 2),
        ["2026-03-31T12:00:00Z", "2026-05-31T12:00:00Z"]
    );
    assert_eq!(
        next(&cron("0 0 L * *", "UTC"), "2026-01-31T00:00:00Z", 2),
        ["2026-02-28T00:00:00Z", "2026-03-31T00:00:00Z"]
    );
    assert_eq!(next(&cron("0 0 29 2 *", "UTC"), "2026-01-01T00:00:00Z", 1), ["2028-02-29T00:00:00Z"]);
    assert_eq!(next(&cron("*/20 * * * * *", "UTC"), "2026-01-01T00:00:05.5Z", 1), ["2026-01-01T00:00:20Z"]);
    assert_eq!(next(&cron("@daily", "Asia/Kathmandu"), "2026-01-01T00:00:00Z", 1), ["2026-01-01T18:15:00Z"]);
}

/// Looking back must find what looking forward found: runs are made up for by looking back.
#[test]
fn back_and_forth_agree_over_a_year_with_its_clock_changes() {
    for (text, zone) in [
        ("30 2 * * *", "Europe/Berlin"),
        ("0 0 3 * * *", "Europe/Berlin"),
        ("*/30 * * * *", "Europe/Berlin"),
        ("15 1-3 * * *", "America/New_York"),
        ("15 * * * *", "America/New_York"),
        ("0 2,3 * * *", "Europe/Berlin"),
        ("0 */2 * * 1-5", "Australia/Lord_Howe"),
        ("0 0 * * *", "America/Sao_Paulo"),
        ("59 23 L * *", "UTC"),
    ] {
        let timing = cron(text, zone);
        let (from, until) = (at("2026-01-01T00:00:00Z"), at("2027-01-01T00:00:00Z"));
        let forth: Vec<_> = timing.upcoming(from, 20_000).into_iter().take_while(|run| *run <= until).collect();
        assert_eq!(timing.latest(from, until, 20_000), forth, "{text} {zone}");
    }
}

#[test]
fn intervals_are_counted_from_their_beginning() {
    let said = Said { cron: None, timezone: "UTC", every: Some("1h30m"), at: None };
    let timing = Timing::read(said, at("2026-01-01T00:10:00Z")).unwrap();
    assert_eq!(next(&timing, "2026-01-01T00:10:00Z", 2), ["2026-01-01T01:40:00Z", "2026-01-01T03:10:00Z"]);
    assert_eq!(timing.last_until(at("2026-01-01T01:39:59Z")), Some(at("2026-01-01T00:10:00Z")));
    assert_eq!(timing.last_until(at("2026-01-01T01:40:00Z")), Some(at("2026-01-01T01:40:00Z")));
    // S002-66: by a clock that was ahead when it was counted from there, it comes at the same pace before.
    assert_eq!(next(&timing, "2025-12-31T22:39:59Z", 2), ["2025-12-31T22:40:00Z", "2026-01-01T00:10:00Z"]);
    assert_eq!(next(&timing, "2025-12-31T22:40:00Z", 1), ["2026-01-01T00:10:00Z"]);
    assert_eq!(timing.last_until(at("2025-12-31T22:39:59.9Z")), Some(at("2025-12-31T21:10:00Z")));
    assert_eq!(timing.latest(at("2025-12-31T22:40:00Z"), at("2026-01-01T01:40:00Z"), 9).len(), 2);
}

#[test]
fn mistakes_are_named_by_field() {
    let read = |cron, timezone, every, instant| {
        let errors = Timing::read(Said { cron, timezone, every, at: instant }, Timestamp::UNIX_EPOCH).unwrap_err();
        errors.into_iter().map(|error| error.field).collect::<Vec<_>>()
    };
    assert_eq!(read(Some("61 * * * *"), "Mars/Olympus", None, None), ["cron", "timezone"]);
    assert_eq!(read(Some("* * * *"), "UTC", None, None), ["cron"]);
    assert_eq!(read(Some("0 0 0 1 1 * 2027"), "UTC", None, None), ["cron"]);
    assert_eq!(read(None, "UTC", Some("500ms"), None), ["every"]);
    assert_eq!(read(None, "UTC", Some("soon"), None), ["every"]);
    assert_eq!(read(None, "UTC", None, Some("tomorrow")), ["at"]);
    assert_eq!(read(None, "UTC", None, None), [""]);
    // The last instant there is, and what is after it.
    let why = |instant: &str| {
        let said = Said { cron: None, timezone: "UTC", every: None, at: Some(instant) };
        Timing::read(said, Timestamp::UNIX_EPOCH)
            .map_err(|errors| errors.into_iter().map(|e| e.message).collect::<String>())
    };
    assert!(why("9999-12-30T22:00:00Z").is_ok());
    for late in ["9999-12-30T22:00:01Z", "9999-12-31T23:59:59Z", "9999-12-31T00:00:00+01:00"] {
        assert!(why(late).unwrap_err().contains("must not be after 9999-12-30T22:00:00Z"), "{late}");
    }
    for wrong in ["9999-12-31", "9999-12-31T23:59:59", "9999-13-01T00:00:00Z", "10000-01-01T00:00:00Z"] {
        assert!(why(wrong).unwrap_err().contains("must be an instant like"), "{wrong}");
    }
    assert_eq!(read(None, "UTC", Some("1h"), Some("2027-01-01T00:00:00Z")), [""]);
}

// S002-66: a run has milliseconds, and so has what is said of it.
#[test]
fn an_instant_has_milliseconds() {
    for (said, kept) in [
        ("2027-01-01T08:00:00Z", "2027-01-01T08:00:00Z"),
        ("2027-01-01T09:00:00.123+01:00", "2027-01-01T09:00:00.123+01:00"),
        ("2027-01-01T08:00:00.123000000Z", "2027-01-01T08:00:00.123000000Z"),
        ("2027-01-01T09:00:00.1234+01:00", "2027-01-01T08:00:00.123Z"),
        ("2027-01-01T08:00:00.000000001Z", "2027-01-01T08:00:00.000Z"),
        ("9999-12-30T22:00:00.999999999Z", "9999-12-30T22:00:00.999Z"),
        ("1969-12-31T23:59:59.9995Z", "1969-12-31T23:59:59.999Z"),
        ("tomorrow", "tomorrow"),
    ] {
        assert_eq!(kept_instant(said.to_owned()), kept, "{said}");
        let said = Said { cron: None, timezone: "UTC", every: None, at: Some(said) };
        if let Ok(timing) = Timing::read(said, Timestamp::UNIX_EPOCH) {
            assert_eq!(timing.next_after(Timestamp::MIN), Some(at(kept)));
        }
    }
}

// S002-66: nothing between two commas is a slip, and not nothing.
#[test]
fn a_list_has_no_empty_place() {
    for text in ["1,2,,3 * * * *", ",1 * * * *", "1, * * * *", "0 0 1 * mon,,tue"] {
        let said = Said { cron: Some(text), timezone: "UTC", every: None, at: None };
        let errors = Timing::read(said, Timestamp::UNIX_EPOCH).unwrap_err();
        assert_eq!(errors.len(), 1, "{text}");
        assert_eq!(errors[0].field, "cron");
    }
}
