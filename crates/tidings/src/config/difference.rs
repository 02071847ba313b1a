//! What a reload changes at once, and what it cannot.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use super::Config;
use super::process_alerts::ProcessAlerts;
use super::tree::join;

/// Keys that `reload` takes over; everything else is read once, at the start.
pub(super) const AT_RUN_TIME: [&str; 19] = [
    "rules",
    "schedules",
    "monitors",
    "process_alerts.recipients",
    "process_alerts.authorized_accounts",
    "process_alerts.keep_from_arrival",
    "process_alerts.process_name_fields",
    "process_alerts.work_item_type_fields",
    "process_alerts.field_reference_name_fields",
    "process_alerts.state_name_fields",
    "process_alerts.subject",
    "process_alerts.text",
    "process_alerts.html",
    "process_alerts.digest_seconds",
    "notification_center.map_file",
    "limits.body_bytes",
    "limits.event_bytes",
    "limits.batch_events",
    "limits.request_timeout_seconds",
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

/// Puts into `current`, the configuration in force, what `new` changes at once; the rest stays as it is in force.
pub(super) fn take_over(current: &mut Config, new: Config) {
    current.rules = new.rules;
    current.schedules = new.schedules;
    current.monitors = new.monitors;
    let alerts = &mut current.process_alerts;
    *alerts = ProcessAlerts {
        ssm_parameter: alerts.ssm_parameter.take(),
        region: alerts.region.take(),
        endpoint: alerts.endpoint.take(),
        refresh_seconds: alerts.refresh_seconds,
        ..new.process_alerts
    };
    current.notification_center.map_file = new.notification_center.map_file;
    let (limits, new) = (&mut current.limits, new.limits);
    limits.body_bytes = new.body_bytes;
    limits.event_bytes = new.event_bytes;
    limits.batch_events = new.batch_events;
    limits.request_timeout_seconds = new.request_timeout_seconds;
}

fn needs_restart(key: &str) -> bool {
    !AT_RUN_TIME.contains(&key)
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
