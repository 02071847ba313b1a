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

// S002-66: 02:30 does not exist on 2026-03-29 in Berlin.
#[test]
fn in_the_gap_a_fixed_time_runs_once_right_after_it() {
    let daily = cron("30 2 * * *", "Europe/Berlin");
    let runs = next(&daily, "2026-03-28T00:00:00Z", 3);
    assert_eq!(runs, ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]);
}

// S002-66: 02:30 is twice on 2026-10-25 in Berlin.
#[test]
fn in_the_overlap_a_fixed_time_runs_the_first_time_only() {
    let daily = cron("30 2 * * *", "Europe/Berlin");
    let runs = next(&daily, "2026-10-24T12:00:00Z", 2);
    assert_eq!(runs, ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
    let quarterly = cron("*/30 * * * *", "Europe/Berlin");
    let runs = next(&quarterly, "2026-10-24T23:45:00Z", 6);
    assert_eq!(
        runs,
        [
            "2026-10-25T00:00:00Z",
            "2026-10-25T00:30:00Z",
            "2026-10-25T01:00:00Z",
            "2026-10-25T01:30:00Z",
            "2026-10-25T02:00:00Z",
            "2026-10-25T02:30:00Z"
        ]
    );
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
    assert_eq!(next(&timing, "2025-01-01T00:00:00Z", 1), ["2026-01-01T01:40:00Z"]);
    assert_eq!(timing.last_until(at("2026-01-01T01:39:59Z")), None);
    assert_eq!(timing.last_until(at("2026-01-01T01:40:00Z")), Some(at("2026-01-01T01:40:00Z")));
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
