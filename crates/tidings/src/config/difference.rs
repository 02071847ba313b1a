//! What a reload changes at once, and what it cannot.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use super::Config;
use super::tree::join;

/// Keys that are read once, at the start: sockets, directories, the store and its stage.
const NEEDS_RESTART: [&str; 11] = [
    "listen",
    "data_dir",
    "stage",
    "store",
    "push.listen",
    "push.keep_hours",
    "amqp.listen",
    "limits.connections",
    "limits.header_timeout_seconds",
    "log.format",
    "sources",
];

/// The keys in which two configurations differ. Lists count as one key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Take effect with the reload.
    pub changed: Vec<String>,
    /// Keep their old value until the next start.
    pub needs_restart: Vec<String>,
}

pub(super) fn difference(old: &Config, new: &Config) -> Difference {
    let (before, after) = (flatten(old), flatten(new));
    let mut keys: BTreeSet<String> =
        after.iter().filter(|(key, value)| before.get(*key) != Some(value)).map(|(key, _)| key.clone()).collect();
    // Secrets all look alike when serialised, so they are compared on their own.
    let (before, after) = (secrets(old), secrets(new));
    let secret_keys = before.keys().chain(after.keys()).filter(|key| before.get(*key) != after.get(*key));
    keys.extend(secret_keys.map(|key| key.split('[').next().unwrap_or(key).to_owned()));
    let (needs_restart, changed) = keys.into_iter().partition(|key| needs_restart(key));
    Difference { changed, needs_restart }
}

fn needs_restart(key: &str) -> bool {
    NEEDS_RESTART
        .iter()
        .any(|fixed| key.strip_prefix(fixed).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
}

fn flatten(config: &Config) -> BTreeMap<String, Value> {
    let mut keys = BTreeMap::new();
    if let Ok(Value::Object(sections)) = serde_json::to_value(config) {
        for (section, value) in sections {
            match value {
                Value::Object(fields) => {
                    keys.extend(fields.into_iter().map(|(field, value)| (join(&section, &field), value)));
                }
                value => {
                    keys.insert(section, value);
                }
            }
        }
    }
    keys
}

fn secrets(config: &Config) -> BTreeMap<String, String> {
    let mut config = config.clone();
    config.secrets().into_iter().map(|(path, secret)| (path, secret.expose().to_owned())).collect()
}
