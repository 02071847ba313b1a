//! The lists: rules, queues, topics, schedules, monitors, message types, sources.

use super::{bad, check, good};

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

// One mistake hides no other.
#[test]
fn every_key_of_a_target_is_judged() {
    check(
        r#"[[rules]]
name = "empty"
pattern = {}
targets = [{ channel = "webhook", url = "x", secret = "short" }, { channel = "fax" }, { channel = "ntfy", topic = "a b" }]
title = "{{"
[[schedules]]
name = "twice"
cron = "61 * * * *"
timezone = "Mars/Olympus"
message_type = "reminder"
payload = { text = "x" }
"#,
        &[
            "tidings.toml:3: `rules[0].pattern` is empty; it says which events the rule is for",
            "tidings.toml:4: `rules[0].targets[0].url` must be a URL that begins with http:// or https://",
            "tidings.toml:4: `rules[0].targets[0].secret` must be `whsec_` and the base64 of 24 to 64 bytes, as `echo whsec_$(openssl rand -base64 32)` makes one",
            "tidings.toml:4: `rules[0].targets[1].channel` must be \"inbox\", \"email\", \"ntfy\", \"webhook\", \"queue\" \
             or \"ticket\", not \"fax\"",
            "tidings.toml:4: `rules[0].targets[2].topic` must be 1 to 64 letters, digits, `_` or `-`, not \"a b\"",
            "tidings.toml:5: `rules[0].title` is no template in line 1: unexpected end of input, expected expression",
            "tidings.toml:8: `schedules[0].cron` must be a cron expression: Component error: Number out of bounds.",
            "tidings.toml:9: `schedules[0].timezone` must be an IANA time zone like \"Europe/Berlin\"",
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

// What is there and cannot be read is not missing.
#[test]
fn a_timing_of_the_wrong_kind_is_said_once() {
    for (timing, why) in [
        ("every = 60", "`schedules[0].every` must be a string, not 60"),
        ("cron = 5", "`schedules[0].cron` must be a string, not 5"),
        ("at = true", "`schedules[0].at` must be a string, not true"),
    ] {
        check(
            &format!(
                "[[schedules]]\nname = \"s\"\n{timing}\nmessage_type = \"reminder\"\npayload = {{ text = \"x\" }}\n"
            ),
            &[&format!("tidings.toml:3: {why}")],
        );
    }
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
            "tidings.toml:4: `queues[1].name` must be 1 to 260 letters, digits, `_`, `-` or `.`, and not dots alone",
            "tidings.toml:5: `queues[1].maxDeliveryCount` must be from 1 to 2000, not 0",
            "tidings.toml:6: `queues[1].retry.maxSeconds` must not be less than `baseSeconds` (10)",
            "tidings.toml:6: `queues[1].retry.factor` must be from 1 to 100, not 0.5",
            "tidings.toml:8: `topics[0].name` is \"a\", which a queue has already",
            "tidings.toml:11: `topics[0].subscriptions[0].lockSeconds` must be from 5 to 300, not 301",
            "tidings.toml:12: `topics[0].subscriptions[0].rules[0]` needs exactly one of `sql`, `correlation`, `pattern` \
             and `key`",
            "tidings.toml:12: `topics[0].subscriptions[0].rules[1]` needs exactly one of `sql`, `correlation`, `pattern` \
             and `key`",
            "tidings.toml:12: `topics[0].subscriptions[0].rules[1].name` is the name of another rule, too",
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
            "tidings.toml:2: `delivery.overrides[1].fail_on[0]` must be from 300 to 599, not 42",
            "tidings.toml:2: `delivery.overrides[3]` is for the same channel and message type as one before it",
            "tidings.toml:5: `quiet_hours[0].channels[1]` must be one of email, ntfy, webhook, queue, ticket, dynamodb-stream, azure-devops",
            "tidings.toml:6: `quiet_hours[0].start` must be a time of day like \"22:00\"",
            "tidings.toml:8: `quiet_hours[0].timezone` must be an IANA time zone like \"Europe/Berlin\"",
            "tidings.toml:12: `quiet_hours[1].end` is the same as `start`; a whole day is from \"00:00\" to \"24:00\"",
            "tidings.toml:14: `email.access_key_id` needs `email.secret_access_key` beside it",
        ],
    );
}

/// What is wrong with one queue, subscription and schedule of this name.
fn names(name: &str) -> Vec<String> {
    // A string of JSON is one of TOML.
    let name = serde_json::Value::from(name);
    let text = format!(
        "[[queues]]\nname = {name}\n[[topics]]\nname = \"t\"\nsubscriptions = [{{ name = {name} }}]\n\
         [[schedules]]\nname = {name}\nevery = \"1h\"\nmessage_type = \"reminder\"\npayload = {{ text = \"x\" }}\n"
    );
    match crate::config::Config::parse(&text, super::variables(&[])) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.iter().map(|problem| problem.key.clone()).collect(),
    }
}

// What the API refuses, the file does not bring in, and what it takes, the file does, too.
#[test]
fn names_are_judged_as_the_api_judges_them() {
    const QUEUE: &str = "queues[0].name";
    const SUBSCRIPTION: &str = "topics[0].subscriptions[0].name";
    const SCHEDULE: &str = "schedules[0].name";
    for (name, wrong) in [
        ("a".repeat(49), &[][..]),
        ("a".repeat(50), &[]),
        ("a".repeat(51), &[SUBSCRIPTION]),
        ("a".repeat(128), &[SUBSCRIPTION]),
        ("a".repeat(129), &[SUBSCRIPTION, SCHEDULE]),
        ("a".repeat(260), &[SUBSCRIPTION, SCHEDULE]),
        ("a".repeat(261), &[QUEUE, SUBSCRIPTION, SCHEDULE]),
        (".".to_owned(), &[QUEUE, SUBSCRIPTION, SCHEDULE]),
        ("..".to_owned(), &[QUEUE, SUBSCRIPTION, SCHEDULE]),
        ("...".to_owned(), &[QUEUE, SUBSCRIPTION]),
        ("a/b".to_owned(), &[QUEUE, SUBSCRIPTION, SCHEDULE]),
        ("a?b".to_owned(), &[QUEUE, SUBSCRIPTION, SCHEDULE]),
        ("new".to_owned(), &[SCHEDULE]),
        // Characters, not bytes.
        ("\u{1F600}".repeat(128), &[QUEUE, SUBSCRIPTION]),
        ("\u{1F600}".repeat(129), &[QUEUE, SUBSCRIPTION, SCHEDULE]),
        (" a".to_owned(), &[QUEUE, SUBSCRIPTION]),
    ] {
        assert_eq!(names(&name), wrong, "{name}");
    }
    let rule = |name: &str, caller: &str| {
        format!(
            "[[rules]]\nname = \"{name}\"\npattern = {{ a = [1] }}\ntargets = [{{ channel = \"ticket\", caller = \"{caller}\" }}]"
        )
    };
    for (chars, fits) in [(127, true), (128, true), (129, false)] {
        let text = rule(&"\u{1F600}".repeat(chars), "me");
        assert_eq!(crate::config::Config::parse(&text, super::variables(&[])).is_ok(), fits, "{chars}");
    }
    good(&rule("r", &"\u{1F600}".repeat(128)));
}

#[test]
fn rules_and_pushes_of_a_subscription_are_judged_as_the_api_judges_them() {
    let with = |more: &str| {
        let text = format!("[[topics]]\nname = \"t\"\n[[topics.subscriptions]]\nname = \"s\"\n{more}");
        match crate::config::Config::parse(&text, super::variables(&[])) {
            Ok(_) => Vec::new(),
            Err(problems) => problems
                .iter()
                .map(|problem| {
                    format!("{} {}", problem.line.unwrap_or(0), problem.key.replace("topics[0].subscriptions[0]", ""))
                })
                .collect(),
        }
    };
    let rule = |name: &str| format!("{{ name = \"{name}\", sql = \"1=1\" }}");
    for (name, good) in [
        ("a".repeat(49), true),
        ("a".repeat(50), true),
        ("a".repeat(51), false),
        ("é".to_owned(), false),
        ("$Default".to_owned(), true),
    ] {
        let wrong = if good { vec![] } else { vec!["5 .rules[0].name".to_owned()] };
        assert_eq!(with(&format!("rules = [{}]", rule(&name))), wrong, "{name}");
    }
    for (count, good) in [(99, true), (100, true), (101, false)] {
        let rules: Vec<_> = (0..count).map(|n| rule(&format!("r{n}"))).collect();
        let wrong = if good { vec![] } else { vec!["5 .rules".to_owned()] };
        assert_eq!(with(&format!("rules = [{}]", rules.join(", "))), wrong, "{count}");
    }
    for (chars, good) in [(2047, true), (2048, true), (2049, false)] {
        let url = format!("https://a.example/{}", "x".repeat(chars - 18));
        let wrong = if good { vec![] } else { vec!["5 .push.url".to_owned()] };
        assert_eq!(with(&format!("push = {{ url = \"{url}\" }}")), wrong, "{chars}");
    }
    // As a whole: an item of the store has room for it, and the line is named.
    let large = |bytes: usize| {
        let rule = |n: usize| format!("{{ name = \"r{n}\", pattern = {{ a = [\"{}\"] }} }}", "x".repeat(bytes));
        with(&format!("rules = [{}]", (0..100).map(rule).collect::<Vec<_>>().join(", ")))
    };
    assert_eq!(large(3_000), [""; 0]);
    assert_eq!(large(3_100), ["3 "]);
}

// S003-110: handlers wait at what comes with Tidings, so it stays what it is.
#[test]
fn what_comes_with_tidings_is_of_its_kind() {
    let topic = "[[topics]]\nname = \"t\"\n[[topics]]\nname = \"ocr-processing-queue\"\n";
    let problem = bad(topic).iter().next().map(|problem| (problem.key.clone(), problem.message.clone())).unwrap();
    assert_eq!(problem.0, "topics[1].name");
    assert!(problem.1.contains("a queue that comes with Tidings"), "{}", problem.1);
    let queue = bad("[[queues]]\nname = \"system-events-topic\"\n").to_string();
    assert!(queue.contains("a topic that comes with Tidings"), "{queue}");
}

// Those that come with Tidings have their place whatever the file has.
#[test]
fn queues_topics_and_schedules_are_counted() {
    let parse = |text: &str| crate::config::Config::parse(text, super::variables(&[]));
    let queues = |count: usize| (0..count).map(|n| format!("[[queues]]\nname = \"q{n}\"\n")).collect::<String>();
    for (count, more, fits) in [
        (995, "", true),
        (996, "", true),
        (997, "", false),
        (996, "[[queues]]\nname = \"ocr-processing-queue\"\n", true),
        (996, "[[topics]]\nname = \"t\"\n", false),
    ] {
        let text = queues(count) + more;
        assert_eq!(parse(&text).is_ok(), fits, "{count} {more}");
        if !fits {
            let problems = bad(&text);
            let problem = problems.iter().next().unwrap();
            assert_eq!((problems.len(), problem.key.as_str()), (1, "queues"), "{problems}");
            assert!(problem.message.contains("4 that come with Tidings"), "{problems}");
        }
    }
    for (topic, most) in [("t", 2000), ("domain-events-topic", 1999)] {
        for (count, fits) in [(most - 1, true), (most, true), (most + 1, false)] {
            let subscriptions: Vec<_> = (0..count).map(|n| format!("{{ name = \"s{n}\" }}")).collect();
            let text = format!("[[topics]]\nname = \"{topic}\"\nsubscriptions = [{}]", subscriptions.join(", "));
            assert_eq!(parse(&text).is_ok(), fits, "{topic} {count}");
        }
    }
    let schedule = |n: usize| {
        format!(
            "[[schedules]]\nname = \"s{n}\"\nevery = \"1h\"\nmessage_type = \"reminder\"\npayload = {{ text = \"x\" }}\n"
        )
    };
    for (count, fits) in [(999, true), (1000, true), (1001, false)] {
        assert_eq!(parse(&(0..count).map(schedule).collect::<String>()).is_ok(), fits, "{count}");
    }
}
