//! Environment variables over the file. SX-23.

use super::variables;
use crate::config::email::Transport;
use crate::config::log::Level;
use crate::config::store::Engine;
use crate::config::{Config, Stage};

fn with(text: &str, list: &[(&str, &str)]) -> Config {
    Config::parse(text, variables(list)).unwrap_or_else(|problems| panic!("{problems}"))
}

fn report(text: &str, list: &[(&str, &str)]) -> String {
    Config::parse(text, variables(list)).expect_err("this should not pass").to_string()
}

#[test]
fn variables_win_over_the_file_and_the_file_over_defaults() {
    let config = with(
        "stage = \"stage\"\n[limits]\nbody_bytes = 2048\nbatch_events = 7\n[email]\ntransport = \"file\"\n",
        &[
            ("TIDINGS__LISTEN", "0.0.0.0:80"),
            ("tidings__Limits__Body_Bytes", "4096"),
            ("TIDINGS__STORE__ENGINE", "dynamodb"),
            ("TIDINGS__STORE__TABLE_PREFIX", "\"quoted-\""),
            ("TIDINGS__OUTBOUND__ALLOW", "[\"10.0.0.0/8\"]"),
            ("TIDINGS__PROCESS_ALERTS__RECIPIENTS", "[]"),
            ("TIDINGS__LOG__LEVEL", "debug"),
            ("PATH", "/bin"),
        ],
    );
    assert_eq!(config.listen.to_string(), "0.0.0.0:80");
    assert_eq!(config.public_url, "http://127.0.0.1:80");
    assert_eq!(config.stage, Stage::Stage);
    assert_eq!((config.limits.body_bytes, config.limits.batch_events), (4096, 7));
    assert_eq!(config.store.engine, Engine::DynamoDb);
    assert_eq!(config.store.table_prefix, "quoted-");
    assert_eq!(config.outbound.allow, ["10.0.0.0/8"]);
    assert_eq!(config.email.transport, Transport::File);
    assert_eq!(config.log.level, Level::Debug);
}

#[test]
fn a_string_key_takes_the_text_whatever_it_looks_like() {
    let config = with(
        "",
        &[
            ("TIDINGS__STORE__TABLE_PREFIX", "0x10"),
            ("TIDINGS__NTFY__TOPIC", "true"),
            ("TIDINGS__NTFY__TOKEN", "1_000"),
            ("TIDINGS__DATA_DIR", "2026-01-01"),
        ],
    );
    assert_eq!(config.store.table_prefix, "0x10");
    assert_eq!(config.ntfy.topic, "true");
    assert_eq!(config.ntfy.token.unwrap().expose(), "1_000");
    assert_eq!(config.data_dir.to_str(), Some("2026-01-01"));
}

#[test]
fn sections_and_lists_can_be_given_whole() {
    let config = with(
        "[store]\ncache_mb = 100\nreserve_mb = 100\n[[queues]]\nname = \"a\"\n",
        &[
            ("TIDINGS__STORE", "{ cache_mb = 200 }"),
            ("TIDINGS__STORE__RESERVE_MB", "300"),
            ("TIDINGS__QUEUES", "[{ name = \"b\" }, { name = \"c\" }]"),
        ],
    );
    assert_eq!((config.store.cache_mb, config.store.reserve_mb), (200, 300));
    assert_eq!(config.queues.iter().map(|queue| queue.name.as_str()).collect::<Vec<_>>(), ["b", "c"]);
}

#[test]
fn client_variables_are_not_ours() {
    assert_eq!(with("", &[("TIDINGS_URL", "x"), ("TIDINGS_TOKEN", "y")]), Config::default());
}

#[test]
fn problems_name_their_variable() {
    let report = report(
        "lisen = 1\n[[rules]]\nname = \"r\"\npattern = { a = [1] }\ntargets = [{ channel = \"ntfy\" }]\n",
        &[
            ("TIDINGS__LIMITS__BODY_BYTES", "lots"),
            ("TIDINGS__LIMITS__CONECTIONS", "1"),
            ("TIDINGS__LISTEN__PORT", "1"),
            ("TIDINGS__RULES__0__NAME", "x"),
            ("TIDINGS__", "x"),
            ("TIDINGS__LOG__LEVEL", "info"),
            ("tidings__log__level", "warn"),
            ("TIDINGS__QUEUES", "[{ name = \"q\", lockSeconds = 0 }]"),
        ],
    );
    let expected = [
        "tidings.toml:1: unknown key `lisen`; did you mean `listen`?",
        "TIDINGS__: names no key; variables look like `TIDINGS__SECTION__KEY`",
        "TIDINGS__LIMITS__BODY_BYTES: `limits.body_bytes` must be a whole number, 0 or more, not \"lots\"",
        "TIDINGS__LIMITS__CONECTIONS: unknown key `limits.conections`; did you mean `limits.connections`?",
        "TIDINGS__LISTEN__PORT: `listen` must be a string, not a table",
        "TIDINGS__QUEUES: `queues[0].lockSeconds` must be from 5 to 300, not 0",
        "TIDINGS__RULES__0__NAME: reaches into a list; set the list as a whole: `TIDINGS__RULES=[…]`",
        "tidings__log__level: sets the same key as `TIDINGS__LOG__LEVEL`; keep one of them",
    ];
    assert_eq!(report.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn a_value_is_not_a_section() {
    let report = report("listen = \"127.0.0.1:1\"\n", &[("TIDINGS__LISTEN__PORT", "1")]);
    assert_eq!(report, "TIDINGS__LISTEN__PORT: takes `listen` for a section, but it is a single value");
}
