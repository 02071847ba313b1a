//! Every problem, at its line. SX-23.

use super::{bad, check, good, variables};
use crate::config::Config;
use crate::outbound::MAX_URL_BYTES;

#[test]
fn an_empty_file_is_the_default() {
    assert_eq!(good(""), Config::default());
    assert_eq!(good("\u{feff}# only a comment\r\n"), Config::default());
}

#[test]
fn all_problems_are_reported_with_their_lines() {
    check(
        r#"lisen = "127.0.0.1:1"
stage = "test"
[limits]
body_bytes = "many"
connections = 0
batch_evnts = 5
[store]
engine = "dynamo"
cache_mb = -1
[email]
from = "nobody"
"#,
        &[
            "tidings.toml:1: unknown key `lisen`; did you mean `listen`?",
            "tidings.toml:2: `stage` must be \"dev\", \"stage\" or \"prod\", not \"test\"",
            "tidings.toml:4: `limits.body_bytes` must be a whole number, 0 or more, not \"many\"",
            "tidings.toml:5: `limits.connections` must be from 1 to 1000000, not 0",
            "tidings.toml:6: unknown key `limits.batch_evnts`; did you mean `limits.batch_events`?",
            "tidings.toml:8: `store.engine` must be \"embedded\" or \"dynamodb\", not \"dynamo\"; did you mean \"dynamodb\"?",
            "tidings.toml:9: `store.cache_mb` must be a whole number, 0 or more, not -1",
            "tidings.toml:11: `email.from` must be an e-mail address like `ops@example.com`, not \"nobody\"",
        ],
    );
}

// What every call would be refused for is said when the file is checked.
#[test]
fn a_push_server_has_an_address_that_can_be_called() {
    for (server, why) in [
        ("http://u:p@h/", "must not hold a user or password"),
        ("http://256.1.1.1/", "cannot be read"),
        (&format!("http://h/{}", "x".repeat(MAX_URL_BYTES - 8)), "is too long"),
    ] {
        let problems = bad(&format!("[ntfy]\nserver = \"{server}\""));
        assert_eq!(problems.to_string(), format!("tidings.toml:2: `ntfy.server` {why}"));
    }
    good(&format!("[ntfy]\nserver = \"http://h/{}\"", "x".repeat(MAX_URL_BYTES - 9)));
}

#[test]
fn syntax_errors_have_line_and_column() {
    let problems = bad("listen = \"127.0.0.1:1\"\nstage = \n[store\n");
    let places: Vec<_> = problems.iter().map(|problem| (problem.line, problem.column)).collect();
    assert_eq!(places, [(Some(2), Some(9)), (Some(3), Some(7))], "{problems}");
    assert!(problems.iter().all(|problem| problem.message.starts_with("not valid TOML: ")), "{problems}");
    let twice = bad("stage = \"dev\"\nstage = \"prod\"\n");
    assert_eq!(twice.to_string(), "tidings.toml:2: not valid TOML: duplicate key");
}

#[test]
fn columns_count_characters() {
    let problems = bad("[notification_center]\n  link = \"ä\" \n[outbound]\nallow = [\"äöü.b\", \"10.1.0\"]");
    let places: Vec<_> = problems.iter().map(|problem| (problem.line, problem.column)).collect();
    assert_eq!(places, [(Some(2), Some(10)), (Some(4), Some(10)), (Some(4), Some(19))], "{problems}");
    assert_eq!(problems.problems[2].key, "outbound.allow[1]");
}

#[test]
fn lines_are_right_inside_arrays_of_tables_and_inline_tables() {
    check(
        r#"
[[rules]]
name = "a"
pattern = { eventType = ["x"] }
targets = [
  { channel = "email", to = ["a@b.c"] },
  { channel = "fax" },
  { channel = "email", too = ["a@b.c"], to = [
     "d@e.f",
     7,
     "g",
  ] },
]

[[rules]]
name = "a"
enabled = "yes"
pattern = "{"
[[rules.targets]]
channel = "webhook"
[[rules.targets]]
channel = "inbox"
users = ["u"]
topic = "t"
"#,
        &[
            "tidings.toml:7: `rules[0].targets[1].channel` must be \"inbox\", \"email\", \"ntfy\", \"webhook\", \"queue\" \
             or \"ticket\", not \"fax\"",
            "tidings.toml:8: unknown key `rules[0].targets[2].too`; did you mean `rules[0].targets[2].to`?",
            "tidings.toml:10: `rules[0].targets[2].to[1]` must be a string, not 7",
            "tidings.toml:11: `rules[0].targets[2].to[2]` must be an e-mail address like `ops@example.com`, not \"g\"",
            "tidings.toml:16: `rules[1].name` is \"a\", which another one has already",
            "tidings.toml:17: `rules[1].enabled` must be true or false, not \"yes\"",
            "tidings.toml:18: `rules[1].pattern` is not valid JSON: EOF while parsing an object at line 1 column 1",
            "tidings.toml:19: `rules[1].targets[0].url` is missing",
            "tidings.toml:24: `rules[1].targets[1].topic` means nothing to the channel \"inbox\"",
        ],
    );
}

#[test]
fn dotted_keys_and_whole_sections_of_the_wrong_type_are_placed() {
    check(
        "store.cache_mb = 1\nlimits = 3\nrules = \"none\"\n[[email]]\nfrom = \"x\"\n",
        &[
            "tidings.toml:1: `store.cache_mb` must be from 8 to 1048576, not 1",
            "tidings.toml:2: `limits` must be a table, not 3",
            "tidings.toml:3: `rules` must be a list, not \"none\"",
            "tidings.toml:4: `email` must be a table, not a list",
        ],
    );
}

#[test]
fn missing_things_are_placed_where_they_should_be() {
    check(
        "stage = \"prod\"\n[email]\ntransport = \"smtp\"\n\n[amqp]\nlisten = \"127.0.0.1:5672\"\n\n[[monitors]]\n[[sources]]\nname = \"s\"\n",
        &[
            "tidings.toml:2: `email.smtp_url` is missing, and `email.transport` = \"smtp\" needs it",
            "tidings.toml:6: `amqp.listen` must be \"\": AMQP is not there yet; use the bus over HTTP, `/bus` (docs/bus.md)",
            "tidings.toml:8: `monitors[0].name` is missing",
            "tidings.toml:8: `monitors[0].metric` is missing; it is \"dead_letters\", \"active_messages\", \"latency_p99_seconds\" or \"dead_letter_share\"",
            "tidings.toml:9: `sources[0].kind` is missing; it is \"azure-devops\" or \"dynamodb-stream\"",
        ],
    );
}

#[test]
fn addresses_and_urls_are_judged() {
    check(
        r#"listen = ":8787"
public_url = "localhost:8787"
[store]
endpoint = "ftp://x"
region = "US East"
[push]
listen = "127.0.0.1:99999"
[ntfy]
topic = "a/b"
server = "http://ntfy:0"
[notification_center]
link = "https://x/{{ a }"
"#,
        &[
            "tidings.toml:1: `listen` must be an IP address and a port like \"127.0.0.1:8787\" or \"[::]:8787\", not \
             \":8787\"; for every interface write \"0.0.0.0:8787\"",
            "tidings.toml:2: `public_url` must be a URL that begins with http:// or https://",
            "tidings.toml:4: `store.endpoint` must be a URL that begins with http:// or https://",
            "tidings.toml:5: `store.region` must be an AWS region like \"us-east-1\", not \"US East\"",
            "tidings.toml:7: `push.listen` must be an IP address and a port like \"127.0.0.1:8787\" or \"[::]:8787\", \
             not \"127.0.0.1:99999\"",
            "tidings.toml:9: `ntfy.topic` must be 1 to 64 letters, digits, `_` or `-`, not \"a/b\"",
            "tidings.toml:10: `ntfy.server` must have a port from 1 to 65535",
            "tidings.toml:12: `notification_center.link` has a `{{` without its `}}`",
        ],
    );
}

// The beginning of topics is no topic: others than the reserved one begin so.
#[test]
fn what_topics_begin_with_may_be_a_reserved_name() {
    let access = |topics: &str| {
        format!("[push]\nopen_topics = {topics}\n[[push.access]]\ntoken = \"phone\"\ntopics = {topics}\n")
    };
    good(&access(r#"["app*", "docs*", "v1*", "*", "ops"]"#));
    let kept = "must not be a name that ntfy servers keep for themselves";
    let odd = "must be 1 to 64 letters, digits, `_` or `-`, not \"a b\"";
    check(
        &access(r#"["app", "a b*"]"#),
        &[
            &format!("tidings.toml:2: `push.open_topics[0]` {kept}"),
            &format!("tidings.toml:2: `push.open_topics[1]` {odd}"),
            &format!("tidings.toml:5: `push.access[0].topics[0]` {kept}"),
            &format!("tidings.toml:5: `push.access[0].topics[1]` {odd}"),
        ],
    );
}

// What is not there must not be accepted in silence, however it is configured; off it stays.
#[test]
fn amqp_cannot_be_switched_on_yet() {
    check(
        "[amqp]\nkeys = [{ name = \"a\", key = \"b\" }]\nlisten = \"127.0.0.1:15672\"\n",
        &[
            "tidings.toml:3: `amqp.listen` must be \"\": AMQP is not there yet; use the bus over HTTP, `/bus` (docs/bus.md)",
        ],
    );
    good("[amqp]\nlisten = \"\"\nkeys = [{ name = \"a\", key = \"b\" }]\n");
}

#[test]
fn listeners_may_not_share_an_address() {
    check(
        "[push]\nlisten = \"127.0.0.1:8787\"\n",
        &["tidings.toml:2: `push.listen` is 127.0.0.1:8787, which `listen` has already"],
    );
    check(
        "listen = \"0.0.0.0:8788\"\n",
        &["tidings.toml: `push.listen` is 127.0.0.1:8788, which `listen` has already"],
    );
    good("listen = \"127.0.0.1:0\"\n[push]\nlisten = \"127.0.0.1:0\"\n");
    assert_eq!(good("push.listen = \"\"").push.listen.address(), None);
}

#[test]
fn a_key_in_the_wrong_section_is_suggested_where_it_belongs() {
    check(
        "body_bytes = 1\n[queue]\n[[queues]]\nname = \"q\"\nmax_delivery_count = 1\nfoo = 1\n",
        &[
            "tidings.toml:1: unknown key `body_bytes`; did you mean `limits.body_bytes`?",
            "tidings.toml:2: unknown key `queue`; did you mean `queues`?",
            "tidings.toml:5: unknown key `queues[0].max_delivery_count`; did you mean `queues[0].maxDeliveryCount`?",
            "tidings.toml:6: unknown key `queues[0].foo`",
        ],
    );
}

#[test]
fn numbers_beyond_64_bits_and_infinity_are_refused() {
    check(
        "limits.body_bytes = 99999999999999999999\nmonitors = [{ name = \"m\", metric = \"dead_letters\", above = inf }]\n",
        &[
            "tidings.toml:1: `limits.body_bytes` must fit into 64 bits, and 99999999999999999999 does not",
            "tidings.toml:2: `monitors[0].above` must be a finite number",
        ],
    );
}

#[test]
fn problems_serialise_for_machines() {
    let problems = bad("lisen = 1\n");
    let json = serde_json::to_value(&problems).unwrap();
    let expected = serde_json::json!({"file": "tidings.toml", "problems": [{
        "line": 1, "column": 1, "key": "lisen", "suggestion": "listen",
        "message": "unknown key `lisen`; did you mean `listen`?",
    }]});
    assert_eq!(json, expected);
}

#[test]
fn a_file_that_cannot_be_read_is_a_problem() {
    let path = std::path::Path::new("/nonexistent/tidings.toml");
    let report = Config::load(Some(path), variables(&[])).unwrap_err().to_string();
    assert!(report.starts_with("/nonexistent/tidings.toml: cannot be read: "), "{report}");
    assert_eq!(Config::load(None, variables(&[])), Ok(Config::default()));
}

#[test]
fn public_url_follows_listen_unless_given() {
    assert_eq!(good("listen = \"0.0.0.0:9000\"").public_url, "http://127.0.0.1:9000");
    assert_eq!(good("listen = \"[::]:9000\"").public_url, "http://[::1]:9000");
    let mut config = good("listen = \"localhost:9000\"\npublic_url = \"https://x.example\"");
    config.set_listen("127.0.0.1:9001".parse().unwrap());
    assert_eq!(config.public_url, "https://x.example");
    let mut config = Config::default();
    config.set_listen("127.0.0.1:9001".parse().unwrap());
    assert_eq!(config.public_url, "http://127.0.0.1:9001");
}

#[test]
fn thousands_of_mistakes_are_all_reported() {
    let text: String = (0..500).map(|n| format!("k{n} = 1\n[[queues]]\nname = {n}\n")).collect();
    // Only the first `k` stands above a header; the others are keys of queues.
    assert_eq!(bad(&text).len(), 1000);
}

/// Any bytes of the example may be missing, doubled or replaced: the answer is a sentence, never a panic.
#[test]
fn mutilated_files_never_panic() {
    const EXAMPLE: &str = include_str!("../../../../../tidings.example.toml");
    let whole = EXAMPLE.lines().map(|line| if line.starts_with("# ") { "" } else { line.trim_start_matches('#') });
    let whole: Vec<char> = whole.collect::<Vec<_>>().join("\n").chars().collect();
    // A linear congruential generator, so that every run tries the same.
    let mut state: u64 = 1;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    for _ in 0..400 {
        let mut text = whole.clone();
        let at = random(text.len());
        match random(4) {
            0 => drop(text.remove(at)),
            1 => text.insert(at, ['"', '[', '{', '=', '\n', '.', '\0', 'é'][random(8)]),
            2 => drop(text.drain(at..(at + random(40)).min(whole.len()))),
            _ => text.swap(at, (at + 1) % whole.len()),
        }
        let text: String = text.into_iter().collect();
        if let Err(problems) = Config::parse(&text, variables(&[])) {
            assert!(!problems.is_empty());
            let lines = text.split('\n').count();
            assert!(problems.iter().all(|problem| problem.line.is_none_or(|line| (1..=lines).contains(&line))));
        }
    }
}

#[test]
fn deep_nesting_is_refused_without_harm() {
    let deep = format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000));
    let report = bad(&format!("schedules = {deep}")).to_string();
    assert!(report.starts_with("tidings.toml:1: not valid TOML: "), "{report}");
    let name = "TIDINGS__SCHEDULES";
    let report = Config::parse("", variables(&[(name, &deep)])).unwrap_err().to_string();
    assert!(report.starts_with("TIDINGS__SCHEDULES: `schedules` must be a list, not "), "{report}");
    assert!(report.len() < 200, "long values are cut");
}

// What can only fail once it runs is refused before, with its line.
#[test]
fn what_can_only_fail_is_a_problem() {
    check(
        r#"public_url = "https://x.example/base?z=1#q"
[email]
transport = "smtp"
smtp_url = "smtps://mail.example?tls=none"
[ntfy]
token = "a\nb"
[[schedules]]
name = "never"
cron = "0 0 30 2 *"
message_type = "reminder"
payload = { text = "x" }
[[schedules]]
name = "nowhere"
every = "1h"
timezone = "zzz"
message_type = "reminder"
payload = { text = "x" }
[[monitors]]
name = "nothing"
metric = "active_messages"
entity = ""
[[monitors]]
name = "no-metric"
"#,
        &[
            "tidings.toml:1: `public_url` must have neither `?` nor `#`, for links are made by adding a path to it",
            "tidings.toml:4: `email.smtp_url` has smtps://, which is always encrypted: only `tls=required` fits it",
            "tidings.toml:6: `ntfy.token` must be on one line and have no control characters",
            "tidings.toml:9: `schedules[0].cron` never comes",
            "tidings.toml:15: `schedules[1].timezone` must be an IANA time zone like \"Europe/Berlin\"",
            "tidings.toml:21: `monitors[0].entity` is missing",
            "tidings.toml:22: `monitors[1].metric` is missing; it is \"dead_letters\", \"active_messages\", \"latency_p99_seconds\" or \"dead_letter_share\"",
        ],
    );
    good("[email]\nsmtp_url = \"smtps://mail.example?tls=required\"\n[[message_types]]\nname = \"any\"\nschema = {}\n");
}

// S002-65
#[test]
fn a_scheduled_message_of_an_unknown_type_is_a_matter_of_the_setting() {
    let schedule =
        "[[schedules]]\nname = \"s\"\nevery = \"1h\"\nmessage_type = \"brand_new\"\npayload = { text = \"x\" }\n";
    assert!(bad(schedule).to_string().contains("schedules[0].message_type"));
    assert!(good(&format!("allow_unknown_types = true\n{schedule}")).allow_unknown_types);
}
