//! `tidings.example.toml` is the configuration's documentation; these tests keep it true and complete.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

use super::{good, variables};
use crate::config::amqp::SharedKey;
use crate::config::bus::{PushEndpoint, Queue, Retry, Subscription, SubscriptionRule, Topic};
use crate::config::delivery::{Override, QuietHours};
use crate::config::difference::AT_RUN_TIME;
use crate::config::message_types::MessageType;
use crate::config::monitors::Monitor;
use crate::config::push::Grant;
use crate::config::rules::{Rule, Target};
use crate::config::schedules::Schedule;
use crate::config::sources::Source;
use crate::config::{Config, tree};

const EXAMPLE: &str = include_str!("../../../../../tidings.example.toml");

/// The example with its optional settings switched on.
fn uncommented() -> String {
    let line = |line: &'static str| match line.strip_prefix('#') {
        Some(setting) if !setting.is_empty() && !setting.starts_with(' ') => setting,
        _ => line,
    };
    EXAMPLE.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// SX-23: what the example shows is what one gets without it.
#[test]
fn the_example_parses_and_equals_the_defaults() {
    assert_eq!(good(EXAMPLE), Config::default());
}

#[test]
fn the_optional_settings_of_the_example_are_valid_too() {
    // The accounts can come from one place only, and the files are not here.
    let text = uncommented().replace("\nssm_parameter", "\n#").replace("{ file = \"devops.token\" }", "\"t\"");
    let text = text.replace("\"notification-map.csv\"", "\"Cargo.toml\"");
    let env = variables(&[
        ("NTFY_TOKEN", "t"),
        ("SECRETS_KEY", "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE="),
        ("OLD_SECRETS_KEY", "QkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkI="),
        ("WEBHOOK_SECRET", "whsec_aHVzaC1odXNoLWh1c2gtaHVzaC1odXNoLWh1c2g="),
        ("SES_SECRET", "s"),
    ]);
    let config = Config::parse(&text, env).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(config.rules[0].targets.len(), 7);
    assert_eq!(config.queues[0].retry, Some(Retry::default()));
    assert_eq!((config.topics.len(), config.schedules.len(), config.monitors.len()), (1, 3, 1));
    assert_eq!((config.message_types.len(), config.sources.len()), (1, 3));
}

#[test]
fn the_example_mentions_every_key() {
    let root = tree::Node::from_toml(&uncommented()).unwrap_or_else(|problems| panic!("{problems:?}"));
    let mut shown = BTreeSet::new();
    paths(&root, &mut shown);
    // Keys of `amqp.keys`, `push.access` and `delivery.overrides` are shown in their comments, since the lists themselves have a default.
    assert!(EXAMPLE.contains("[{ token = \"phone\", topics = [\"ops\", \"alerts-*\"], allow = \"read\" }]"));
    assert!(EXAMPLE.contains("[{ channel = \"webhook\", max_retries = 8, cap_seconds = 600.0 }, { message_type = "));
    assert!(EXAMPLE.contains("[{ name = \"RootManageSharedAccessKey\", key = "));
    let of_list = |key: &str| key.starts_with("delivery.overrides.");
    let missing: Vec<String> = all_keys().into_iter().filter(|key| !shown.contains(key) && !of_list(key)).collect();
    assert_eq!(
        missing,
        ["amqp.keys.key", "amqp.keys.name", "push.access.allow", "push.access.token", "push.access.topics"]
    );
}

/// What the example marks as (live) is what a reload takes over.
#[test]
fn the_example_marks_what_a_reload_changes() {
    let (mut section, mut prose, mut after_setting) = (String::new(), String::new(), false);
    let mut marked = BTreeSet::new();
    for line in EXAMPLE.lines() {
        if line.starts_with("# ") || line == "#" {
            if std::mem::take(&mut after_setting) {
                prose.clear();
            }
            prose.push_str(line);
            continue;
        }
        let line = line.trim_start_matches('#');
        let is_live = prose.contains("(live)");
        if let Some(list) = line.strip_prefix("[[").and_then(|rest| rest.strip_suffix("]]")) {
            section = format!("[[{list}");
            marked.extend(is_live.then(|| list.to_owned()));
            prose.clear();
        } else if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = format!("{name}.");
            prose.clear();
        } else if let Some((key, _)) = line.split_once(" = ") {
            // Settings one after another share what is said of them.
            after_setting = true;
            marked.extend((is_live && !section.starts_with("[[")).then(|| format!("{section}{key}")));
        } else {
            prose.clear();
        }
    }
    assert_eq!(marked, AT_RUN_TIME.map(ToOwned::to_owned).into_iter().collect());
}

/// SX-23: lists are set as a whole, so the keys of their entries need no variable of their own.
#[test]
fn every_key_can_be_a_variable() {
    let mut keys = BTreeSet::new();
    add("", &Config::default(), &mut keys);
    assert!(keys.len() > 50);
    for key in keys {
        let name = format!("TIDINGS__{}", key.to_uppercase().replace('.', "__"));
        // A list of one number fits no key at all: the refusal proves that the variable reached its key.
        let report = Config::parse("", variables(&[(&name, "[-1]")])).expect_err(&key).to_string();
        assert!(report.starts_with(&format!("{name}: `{key}")), "{report}");
    }
}

fn paths(node: &tree::Node, into: &mut BTreeSet<String>) {
    let plain: String = node.path.split('[').map(|part| part.split_once(']').map_or(part, |(_, rest)| rest)).collect();
    into.insert(plain);
    match &node.value {
        tree::Value::Table(entries) => entries.iter().for_each(|entry| paths(&entry.node, into)),
        tree::Value::Array(items) => items.iter().for_each(|item| paths(item, into)),
        _ => {}
    }
}

/// The keys of every type, as serde writes them, under the path at which the type stands.
fn all_keys() -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    add("", &Config::default(), &mut keys);
    add("delivery.overrides.", &Override::default(), &mut keys);
    add("quiet_hours.", &QuietHours::default(), &mut keys);
    add("push.access.", &Grant::default(), &mut keys);
    add("amqp.keys.", &SharedKey::default(), &mut keys);
    add("rules.", &Rule::default(), &mut keys);
    add("rules.targets.", &Target::default(), &mut keys);
    add("queues.", &Queue::default(), &mut keys);
    add("topics.", &Topic::default(), &mut keys);
    add("topics.subscriptions.", &Subscription::default(), &mut keys);
    add("topics.subscriptions.rules.", &SubscriptionRule::default(), &mut keys);
    add("topics.subscriptions.push.", &PushEndpoint::default(), &mut keys);
    add("schedules.", &Schedule::default(), &mut keys);
    add("monitors.", &Monitor::default(), &mut keys);
    add("message_types.", &MessageType::default(), &mut keys);
    add("sources.", &Source::default(), &mut keys);
    keys
}

fn add(prefix: &str, value: &impl Serialize, keys: &mut BTreeSet<String>) {
    let Ok(Value::Object(fields)) = serde_json::to_value(value) else { panic!("{prefix} is a table") };
    for (key, value) in fields {
        if value.is_object() {
            add(&format!("{prefix}{key}."), &value, keys);
        }
        keys.insert(format!("{prefix}{key}"));
    }
}
