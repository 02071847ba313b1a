//! Secrets come from where they are, and are never shown.

use super::{check, good, variables};
use crate::config::{Config, Secret};

#[test]
fn secrets_come_from_text_variable_or_file() {
    let directory = std::env::temp_dir().join(format!("tidings-secret-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("key");
    std::fs::write(&path, "from file\n").unwrap();
    let text = format!(
        "[ntfy]\ntoken = {{ env = \"NTFY_TOKEN\" }}\n[amqp]\nkeys = [{{ name = \"a\", key = {{ file = {path:?} }} }}, {{ name = \"b\", key = \"plain\" }}]"
    );
    let config = Config::parse(&text, variables(&[("NTFY_TOKEN", "from variable")])).unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    assert_eq!(config.ntfy.token.as_ref().unwrap().expose(), "from variable");
    let keys: Vec<&str> = config.amqp.keys.iter().map(|key| key.key.as_ref().unwrap().expose()).collect();
    assert_eq!(keys, ["from file", "plain"]);
}

#[test]
fn missing_secrets_are_problems() {
    check(
        r#"[ntfy]
token = { env = "NOT_SET" }
[amqp]
keys = [
  { name = "a", key = { file = "/nonexistent/key" } },
  { name = "b", key = "" },
  { name = "c" },
]
"#,
        &[
            "tidings.toml:2: `ntfy.token` needs the environment variable `NOT_SET`, which is not set",
            "tidings.toml:5: `amqp.keys[0].key` needs the file `/nonexistent/key`, which cannot be read: No such file or \
             directory (os error 2)",
            "tidings.toml:6: `amqp.keys[1].key` is empty",
            "tidings.toml:7: `amqp.keys[2].key` is missing",
        ],
    );
}

// SX-23: what is said of a secret that nobody knows would be false.
#[test]
fn a_missing_secret_is_one_problem() {
    check(
        r#"[ntfy]
token = { env = "A" }
[email]
transport = "smtp"
smtp_url = { env = "B" }
[[topics]]
name = "t"
[[topics.subscriptions]]
name = "s"
push = { url = "https://example.com/", secret = { env = "C" } }
[[rules]]
name = "r"
pattern = { eventType = ["a"] }
targets = [{ channel = "webhook", url = "https://example.com/", secret = { env = "D" } }]
[[monitors]]
name = "m"
metric = "dead_letters"
targets = [{ channel = "webhook", url = "https://example.com/", secret = { env = "E" } }]
"#,
        &[
            "tidings.toml:2: `ntfy.token` needs the environment variable `A`, which is not set",
            "tidings.toml:5: `email.smtp_url` needs the environment variable `B`, which is not set",
            "tidings.toml:10: `topics[0].subscriptions[0].push.secret` needs the environment variable `C`, which is not set",
            "tidings.toml:14: `rules[0].targets[0].secret` needs the environment variable `D`, which is not set",
            "tidings.toml:18: `monitors[0].targets[0].secret` needs the environment variable `E`, which is not set",
        ],
    );
}

#[test]
fn malformed_references_are_one_problem_each() {
    check(
        r#"[ntfy]
token = { evn = "X" }
[email]
smtp_url = { env = 5 }
[amqp]
keys = [{ name = "a", key = { env = "X", file = "Y" } }, { name = "b", key = {} }]
"#,
        &[
            "tidings.toml:2: `ntfy.token.evn` is unknown; its table may have \"env\" or \"file\"",
            "tidings.toml:4: `email.smtp_url.env` must be a string, not 5",
            "tidings.toml:6: `amqp.keys[0].key` must have either `env` or `file`",
            "tidings.toml:6: `amqp.keys[1].key` must have either `env` or `file`",
        ],
    );
}

#[test]
fn no_report_and_no_rendering_shows_a_secret() {
    let secret = "hunter2";
    let config = good(&format!(
        "[ntfy]\ntoken = \"{secret}\"\n[email]\nsmtp_url = \"smtp://u:{secret}@h\"\n[amqp]\nkeys = [{{ name = \"a\", key = \"{secret}\" }}]\n"
    ));
    assert!(!format!("{config:?}").contains(secret));
    assert!(!serde_json::to_string(&config).unwrap().contains(secret));
    assert_eq!(format!("{:?}", Secret::new(secret)), "\"***\"");
    for text in [
        "[ntfy]\ntoken = 4242\n",
        "[ntfy]\ntoken = 42.42\n",
        "[email]\nsmtp_url = \"smtp://u:4242@h:x\"\n",
        "[email]\nsmtp_url = \"http://u:4242@h\"\n",
        "[email]\nsmtp_url = \"smtp://u:4242@h?tls=4242\"\n",
        "[ntfy]\ntoken = \"4242\n",
    ] {
        let problems = super::bad(text);
        assert!(!problems.to_string().contains("42"), "{problems}");
        assert!(!serde_json::to_string(&problems).unwrap().contains("42"));
    }
}

#[test]
fn a_key_for_secrets_has_32_bytes() {
    for bytes in [31, 32, 33] {
        let key = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, vec![7; bytes]);
        let parsed = Config::parse(&format!("\nsecrets_key = {key:?}"), variables(&[]));
        assert_eq!(parsed.is_ok(), bytes == 32, "{bytes}");
    }
    let form = "must be 32 bytes in base64, as `openssl rand -base64 32` makes them";
    check(
        "secrets_key = \"no key at all\"\nprevious_secrets_key = \"\"\n",
        &[&format!("tidings.toml:1: `secrets_key` {form}"), "tidings.toml:2: `previous_secrets_key` is empty"],
    );
}
