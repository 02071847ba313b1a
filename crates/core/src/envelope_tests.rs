//! What an envelope takes, refuses and fills in.

use super::*;

fn defaults_read(text: &str) -> Result<Envelope, Vec<FieldError>> {
    let now = "2026-11-15T12:00:00Z".parse().unwrap();
    read(text, &Defaults { now, correlation_id: "c-1", event_id: &|| "made".to_owned() })
}

fn fields_of(text: &str) -> Vec<String> {
    defaults_read(text).unwrap_err().into_iter().map(|error| error.field).collect()
}

// S003-56, S003-57, SX-01
#[test]
fn absent_fields_get_their_defaults() {
    let event = defaults_read(r#"{"eventType":"a.b"}"#).unwrap();
    assert_eq!(
        event.to_json(),
        r#"{"eventId":"made","eventType":"a.b","eventVersion":"1.0","eventTimestamp":"2026-11-15T12:00:00.000000Z","correlationId":"c-1","data":{}}"#
    );
    assert_eq!(
        defaults_read(r#"{"eventType":"a","eventId":null,"source":null,"data":null}"#).unwrap().event_id,
        "made"
    );
}

// S003-62: unknown fields, inside the payload and beside it, are kept to the letter.
#[test]
fn unknown_fields_are_kept() {
    let text = r#"{"zone":"eu","eventType":"a","data":{"n":1.50,"x":{"y":[1, 2]}},"eventId":"e \"1\"","extra":[null]}"#;
    let event = defaults_read(text).unwrap();
    assert_eq!(event.extensions, [("zone".to_owned(), "\"eu\"".to_owned()), ("extra".to_owned(), "[null]".to_owned())]);
    let json = event.to_json();
    assert!(json.contains(r#""data":{"n":1.50,"x":{"y":[1, 2]}},"zone":"eu","extra":[null]}"#), "{json}");
    assert_eq!(defaults_read(&json).unwrap(), event, "the stored form reads back as the same event");
}

// SX-03, S003-68
#[test]
fn a_correlation_id_has_many_names() {
    for name in ["correlationId", "correlation_id", "CorrelationId"] {
        let event = defaults_read(&format!(r#"{{"eventType":"a","{name}":"mine"}}"#)).unwrap();
        assert_eq!(event.correlation_id, "mine");
    }
}

// SX-24: every failing field is named, not only the first.
#[test]
fn every_failing_field_is_named() {
    let text = r#"{"eventId":7,"eventType":" ","eventVersion":"one","eventTimestamp":"soon","correlationId":[],"source":"","subject":"a\u0000","data":[]}"#;
    let expected =
        ["eventId", "eventType", "eventVersion", "eventTimestamp", "correlationId", "source", "subject", "data"];
    assert_eq!(fields_of(text), expected);
    assert_eq!(fields_of(r#"{"data":"x"}"#), ["eventType", "data"]);
    assert_eq!(fields_of("[]"), [""]);
    assert_eq!(fields_of("{"), [""]);
}

// S003-58, S001-40
#[test]
fn times_are_iso_8601_or_an_epoch_by_magnitude() {
    for json in [
        "\"2023-12-12T13:20:00Z\"",
        "\"2023-12-12T15:20:00+02:00\"",
        "1702387200",
        "1702387200000",
        "1702387200000000",
        "1702387200000000000",
        "1702387200.0",
    ] {
        assert_eq!(read_time(json).unwrap().as_second(), 1_702_387_200, "{json}");
    }
    for json in
        ["\"\"", "\"2023-13-01T00:00:00Z\"", "\"tomorrow\"", "true", "{}", "1e30", "-1", "\"1969-12-31T23:59:59Z\""]
    {
        assert!(read_time(json).is_err(), "{json}");
    }
}

// S003-63: both forms of a version.
#[test]
fn versions_have_up_to_three_numbers() {
    for (version, good) in [
        ("1", true),
        ("1.0", true),
        ("1.0.0", true),
        ("2.10.3", true),
        ("1.0.0.0", false),
        ("v1", false),
        ("1.", false),
    ] {
        let read = defaults_read(&format!(r#"{{"eventType":"a","eventVersion":"{version}"}}"#));
        assert_eq!(read.is_ok(), good, "{version}");
    }
}

// SX-27: names at n-1, n, n+1.
#[test]
fn names_are_limited() {
    for (chars, good) in [(NAME_CHARS - 1, true), (NAME_CHARS, true), (NAME_CHARS + 1, false)] {
        let read = defaults_read(&format!(r#"{{"eventType":"{}"}}"#, "é".repeat(chars)));
        assert_eq!(read.is_ok(), good, "{chars}");
    }
}
