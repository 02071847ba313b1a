//! Every range, one below, at, and one above each of its ends.

use super::{bad, good};

fn check_range(key: &str, low: u64, high: u64) {
    let set = |value: u64| {
        let (section, name) = key.split_once('.').unwrap();
        format!("[{section}]\n{name} = {value}\n")
    };
    good(&set(low));
    good(&set(low + 1));
    good(&set(high - 1));
    good(&set(high));
    if low > 0 {
        refused(&set(low - 1), key);
    }
    refused(&set(high + 1), key);
}

fn refused(text: &str, key: &str) {
    let problems = bad(text);
    assert_eq!(problems.len(), 1, "{problems}");
    let problem = problems.iter().next().unwrap();
    assert_eq!((problem.key.as_str(), problem.line), (key, Some(2)), "{problems}");
    assert!(problem.message.contains("must be from"), "{problems}");
}

#[test]
fn ranges_end_where_they_say() {
    check_range("limits.body_bytes", 1024, 67_108_864);
    check_range("limits.upload_bytes", 1024, 1_073_741_824);
    check_range("limits.event_bytes", 1024, 389_120);
    check_range("limits.event_future_seconds", 0, 86_400);
    check_range("limits.batch_events", 1, 100_000);
    check_range("limits.header_timeout_seconds", 1, 300);
    check_range("limits.request_timeout_seconds", 1, 3600);
    check_range("limits.connections", 1, 1_000_000);
    check_range("limits.requests_per_second", 0, 1_000_000);
    check_range("limits.failed_auth_attempts", 0, 1_000_000);
    check_range("limits.failed_auth_window_seconds", 1, 86_400);
    check_range("retention.events_days", 1, 36_500);
    check_range("retention.alerts_days", 1, 36_500);
    check_range("retention.notifications_days", 1, 36_500);
    check_range("retention.messages_days", 1, 36_500);
    check_range("retention.tickets_days", 1, 36_500);
    check_range("retention.audit_days", 0, 36_500);
    check_range("retention.idempotency_hours", 1, 8760);
    check_range("retention.dedupe_hours", 1, 8760);
    check_range("store.cache_mb", 8, 1_048_576);
    check_range("store.reserve_mb", 0, 1_048_576);
    check_range("node.lease_seconds", 2, 300);
}

#[test]
fn authorized_accounts_are_1_to_100() {
    let accounts = |count: usize| {
        let list: Vec<String> = (0..count).map(|n| format!("\"a{n}\"")).collect();
        format!("process_alerts.authorized_accounts = [{}]", list.join(", "))
    };
    good(&accounts(1));
    good(&accounts(99));
    good(&accounts(100));
    for count in [0, 101] {
        assert!(bad(&accounts(count)).to_string().contains("1 to 100 accounts"));
    }
}

// What no message may name is no name for a type.
#[test]
fn names_of_message_types_are_1_to_128_characters() {
    for (length, fits) in [(0, false), (1, true), (127, true), (128, true), (129, false)] {
        let text = format!("[[message_types]]\nname = \"{}\"\nschema = {{}}", "t".repeat(length));
        assert_eq!(crate::config::Config::parse(&text, super::variables(&[])).is_ok(), fits, "{length}");
    }
}

#[test]
fn topics_are_1_to_64_characters() {
    for (length, fits) in [(0, false), (1, true), (63, true), (64, true), (65, false)] {
        let text = format!("ntfy.topic = \"{}\"", "t".repeat(length));
        assert_eq!(crate::config::Config::parse(&text, super::variables(&[])).is_ok(), fits, "{length}");
    }
}
