//! The lists: rules, queues, topics, schedules, monitors, message types, sources.

use super::{check, good};

#[test]
fn patterns_are_tables_or_json() {
    let config = good(
        r#"
[[rules]]
name = "table"
pattern = { eventType = [{ prefix = "ticket." }] }
targets = [{ channel = "ntfy" }]
[[rules]]
name = "json"
pattern = '{"eventType":[{"prefix":"ticket."}]}'
targets = [{ channel = "ntfy" }]
"#,
    );
    assert_eq!(config.rules[0].pattern, config.rules[1].pattern);
    assert_eq!(config.rules[0].pattern.to_value(), serde_json::json!({"eventType": [{"prefix": "ticket."}]}));
}

#[test]
fn rules_need_pattern_and_whole_targets() {
    check(
        r#"[[rules]]
name = "empty"
[[rules]]
name = "targets"
pattern = [1]
targets = [{}, { channel = "inbox" }, { channel = "email" }, { channel = "queue" }, { channel = "ticket" }]
[[rules]]
name = "both"
pattern = { eventType = "x" }
title = "{{"
"#,
        &[
            "tidings.toml:1: `rules[0].pattern` is missing; it says which events the rule is for",
            "tidings.toml:1: `rules[0].targets` must have at least one target; it says where the notice goes",
            "tidings.toml:5: `rules[1].pattern` must be a table, or a string that holds a JSON object",
            "tidings.toml:6: `rules[1].targets[0].channel` is missing; it is inbox, email, ntfy, webhook, queue or ticket",
            "tidings.toml:6: `rules[1].targets[1]` needs `users` with at least one user, or `map`",
            "tidings.toml:6: `rules[1].targets[2].to` must list at least one address",
            "tidings.toml:6: `rules[1].targets[3].entity` is missing",
            "tidings.toml:6: `rules[1].targets[4].caller` is missing",
            "tidings.toml:7: `rules[2].targets` must have at least one target; it says where the notice goes",
            "tidings.toml:9: `rules[2].pattern.eventType` must be an array of values or an object, not a string",
            "tidings.toml:10: `rules[2].title` is no template in line 1: unexpected end of input, expected expression",
        ],
    );
}

#[test]
fn schedules_run_by_one_clock() {
    check(
        r#"[[schedules]]
name = "none"
message_type = "reminder"
payload = { text = "x" }
[[schedules]]
name = "two"
message_type = "reminder"
payload = { text = "x" }
every = "15m"
at = 2027-01-01T00:00:00Z
[[schedules]]
name = "odd"
every = "soon"
[[schedules]]
name = "cron"
cron = "0 9 * *"
timezone = "Mars Olympus"
message_type = "reminder"
payload = { text = "x" }
missed = "never"
[[schedules]]
name = "local"
at = 2027-01-01T00:00:00
message_type = "reminder"
payload = { text = "x" }
"#,
        &[
            "tidings.toml:1: `schedules[0]` needs exactly one of `cron`, `every` and `at`",
            "tidings.toml:5: `schedules[1]` needs exactly one of `cron`, `every` and `at`",
            "tidings.toml:11: `schedules[2].message_type` is missing",
            "tidings.toml:13: `schedules[2].every` must be a duration: `soon` is not a duration; write one like `30d`, \
             `12h`, `15m`, `45s` or `1h30m`",
            "tidings.toml:16: `schedules[3].cron` must have 5 fields, or 6 with seconds, not 4",
            "tidings.toml:17: `schedules[3].timezone` must be an IANA time zone like \"Europe/Berlin\"",
            "tidings.toml:20: `schedules[3].missed` must be \"skip\", \"once\" or \"all\", not \"never\"",
            "tidings.toml:23: `schedules[4].at` must be an instant like \"2027-01-01T08:00:00Z\", not \"2027-01-01T00:00:00\"",
        ],
    );
}

#[test]
fn entities_of_the_bus_have_plain_unique_names_and_sane_retries() {
    check(
        r#"[[queues]]
name = "a"
[[queues]]
name = "a/b"
maxDeliveryCount = 0
retry = { baseSeconds = 10.0, maxSeconds = 5, factor = 0.5 }
[[topics]]
name = "a"
[[topics.subscriptions]]
name = "s"
lockSeconds = 301
rules = [{ name = "r" }, { name = "r", sql = "1=1", key = "a.#" }]
push = { url = "x" }
[[topics.subscriptions]]
name = "s"
"#,
        &[
            "tidings.toml:4: `queues[1].name` may have letters, digits, `_`, `-` and `.` only, not \"a/b\"",
            "tidings.toml:5: `queues[1].maxDeliveryCount` must be from 1 to 2000, not 0",
            "tidings.toml:6: `queues[1].retry.maxSeconds` must not be less than `baseSeconds` (10)",
            "tidings.toml:6: `queues[1].retry.factor` must be from 1 to 100, not 0.5",
            "tidings.toml:8: `topics[0].name` is \"a\", which a queue has already",
            "tidings.toml:11: `topics[0].subscriptions[0].lockSeconds` must be from 5 to 300, not 301",
            "tidings.toml:12: `topics[0].subscriptions[0].rules[0]` needs exactly one of `sql`, `correlation`, `pattern` \
             and `key`",
            "tidings.toml:12: `topics[0].subscriptions[0].rules[1]` needs exactly one of `sql`, `correlation`, `pattern` \
             and `key`",
            "tidings.toml:12: `topics[0].subscriptions[0].rules[1].name` is \"r\", which another one has already",
            "tidings.toml:13: `topics[0].subscriptions[0].push.url` must be a URL that begins with http:// or https://",
            "tidings.toml:15: `topics[0].subscriptions[1].name` is \"s\", which another one has already",
        ],
    );
}

#[test]
fn sources_need_what_their_kind_needs() {
    check(
        r#"[[sources]]
name = "a"
kind = "azure-devops"
[[sources]]
name = "b"
kind = "dynamodb-stream"
[[sources]]
name = "c"
kind = "dynamodb-streams"
[[message_types]]
name = "m"
[[sources]]
name = "d"
kind = "dynamodb-stream"
table = "a/b"
token = "x"
[[sources]]
name = "e"
kind = "dynamodb-stream"
table = "scores"
stream_arn = "arn:aws:dynamodb:us-east-1:123456789012:table/scores"
region = "Ireland"
poll_seconds = 0
endpoint = "streams"
[[sources]]
name = "f"
kind = "dynamodb-stream"
stream_arn = "arn:aws:dynamodb:us-east-1:123456789012:table/scores/stream/2026-01-01T00:00:00.000"
"#,
        &[
            "tidings.toml:1: `sources[0].organization` is missing",
            "tidings.toml:1: `sources[0].token` is missing; Azure DevOps shows its audit log to nobody without one",
            "tidings.toml:4: `sources[1]` needs either `table` or `stream_arn`",
            "tidings.toml:9: `sources[2].kind` must be \"azure-devops\" or \"dynamodb-stream\", not \
             \"dynamodb-streams\"; did you mean \"dynamodb-stream\"?",
            "tidings.toml:10: `message_types[0].schema` is missing; it is the JSON Schema of the payload",
            "tidings.toml:15: `sources[3].table` must be a table's name: 3 to 255 letters, digits, `_`, `-` or `.`",
            "tidings.toml:16: `sources[3].token` is not for a source of kind \"dynamodb-stream\"",
            "tidings.toml:17: `sources[4]` needs either `table` or `stream_arn`",
            "tidings.toml:21: `sources[4].stream_arn` must be a stream's like \
             \"arn:aws:dynamodb:us-east-1:123456789012:table/scores/stream/2026-01-01T00:00:00.000\", not \
             \"arn:aws:dynamodb:us-east-1:123456789012:table/scores\"",
            "tidings.toml:22: `sources[4].region` must be an AWS region like \"us-east-1\", not \"Ireland\"",
            "tidings.toml:23: `sources[4].poll_seconds` must be from 1 to 86400, not 0",
            "tidings.toml:24: `sources[4].endpoint` must be a URL that begins with http:// or https://",
        ],
    );
}

// S002-60: what the API would refuse is refused here.
#[test]
fn a_scheduled_payload_fits_its_type() {
    check(
        r#"[[schedules]]
name = "bad"
every = "15m"
message_type = "scheduled_hello"
payload = { priority = "loud" }
[[schedules]]
name = "unknown"
every = "15m"
message_type = "nonsense"
[[schedules]]
name = "own"
every = "15m"
message_type = "build"
payload = { build = 1 }
[[message_types]]
name = "build"
schema = { type = "object", properties = { build = { type = "string" } } }
"#,
        &[
            "tidings.toml:5: `schedules[0].payload` does not fit: `priority` must be min, low, default, high, max (or urgent), \
             or 1 to 5",
            "tidings.toml:5: `schedules[0].payload` does not fit: `text` is required",
            "tidings.toml:9: `schedules[1].message_type` is no known type; known are alert_notification, build, \
             deployment_notification, manual_notification, reminder, scheduled_hello",
            "tidings.toml:14: `schedules[2].payload` does not fit: `build` value is not of type \"string\"",
        ],
    );
}

// SX-27: the file has the API's limits, so that a server that starts can store what it was given.
#[test]
fn a_scheduled_payload_has_its_limits() {
    let schedule = |payload: serde_json::Value| {
        format!("[[schedules]]\nname = \"s\"\nevery = \"15m\"\nmessage_type = \"reminder\"\npayload = '{payload}'\n")
    };
    let of_levels = |levels: usize| {
        let inner = (1..levels).fold(serde_json::json!(1), |inner, _| serde_json::json!({ "a": inner }));
        schedule(serde_json::json!({ "text": "x", "z": inner }))
    };
    good(&of_levels(23));
    good(&of_levels(24));
    check(&of_levels(25), &["tidings.toml:5: `schedules[0].payload` is nested deeper than 24 levels"]);
    let of_bytes = |bytes: usize| schedule(serde_json::json!({ "text": "x", "z": "a".repeat(bytes - 19) }));
    good(&of_bytes(262_143));
    good(&of_bytes(262_144));
    check(&of_bytes(262_145), &["tidings.toml:5: `schedules[0].payload` has 262145 bytes, at most 262144 are allowed"]);
    let at = "[[schedules]]\nname = \"s\"\nat = \"2027-01-16T12:00:00+24:00\"\nmessage_type = \"reminder\"\npayload = { text = \"x\" }\n";
    check(
        at,
        &[
            "tidings.toml:3: `schedules[0].at` must have an offset from UTC of less than a day, not \"2027-01-16T12:00:00+24:00\"",
        ],
    );
}

// SX-06, SX-15
#[test]
fn overrides_and_quiet_hours_are_judged() {
    check(
        r#"[delivery]
overrides = [{ max_retries = 101 }, { channel = "pigeon", factor = 0.5, fail_on = [42] }, { channel = "ntfy" }, { channel = "ntfy" }]
[[quiet_hours]]
name = "night"
channels = ["ntfy", "owl"]
start = "22"
end = "07:00"
timezone = "Mars"
[[quiet_hours]]
name = "none"
start = "07:00"
end = "07:00"
[email]
access_key_id = "AKIA"
"#,
        &[
            "tidings.toml:2: `delivery.overrides[0]` needs a `channel`, a `message_type` or both",
            "tidings.toml:2: `delivery.overrides[0].max_retries` must be from 0 to 100, not 101",
            "tidings.toml:2: `delivery.overrides[1].channel` must be one of email, ntfy, webhook, queue, ticket, dynamodb-stream, azure-devops",
            "tidings.toml:2: `delivery.overrides[1].factor` must be from 1 to 100, not 0.5",
            "tidings.toml:2: `delivery.overrides[1].fail_on[0]` must be from 200 to 599, not 42",
            "tidings.toml:2: `delivery.overrides[3]` is for the same channel and message type as one before it",
            "tidings.toml:5: `quiet_hours[0].channels[1]` must be one of email, ntfy, webhook, queue, ticket, dynamodb-stream, azure-devops",
            "tidings.toml:6: `quiet_hours[0].start` must be a time of day like \"22:00\"",
            "tidings.toml:8: `quiet_hours[0].timezone` must be an IANA time zone like \"Europe/Berlin\"",
            "tidings.toml:12: `quiet_hours[1].end` is the same as `start`; a whole day is from \"00:00\" to \"24:00\"",
            "tidings.toml:14: `email.access_key_id` needs `email.secret_access_key` beside it",
        ],
    );
}
