//! `[[queues]]` and `[[topics]]`: entities of the bus that exist from the start.
//!
//! Their keys are written as in the API (`maxDeliveryCount`), so that one description serves both.

use serde::{Deserialize, Serialize};

use super::check::Check;
use super::json::JsonObject;
use super::problem::quote;
use super::secret::Secret;
use super::values;
use crate::channel::webhook::signature::{Key, SECRET_FORM};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Queue {
    pub name: String,
    /// Deliveries before a message is dead-lettered: the first and its retries.
    pub max_delivery_count: u32,
    pub lock_seconds: u64,
    /// Absent: an abandoned message can be received again at once.
    pub retry: Option<Retry>,
    /// 0: messages do not expire.
    pub default_ttl_seconds: u64,
    /// Whether messages that expire go to the dead letters.
    pub dead_letter_on_expiration: bool,
    /// Bytes of dead letters beyond which nothing more is taken in; they never expire. 0: no limit.
    pub dead_letter_max_bytes: u64,
    /// How long message ids are remembered. 0: no duplicate detection.
    pub duplicate_window_seconds: u64,
    pub ordered: bool,
    /// Whether what became of each message is kept, for `/trace`.
    pub history: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Topic {
    pub name: String,
    pub default_ttl_seconds: u64,
    pub duplicate_window_seconds: u64,
    pub subscriptions: Vec<Subscription>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Subscription {
    pub name: String,
    pub max_delivery_count: u32,
    pub lock_seconds: u64,
    pub retry: Option<Retry>,
    pub default_ttl_seconds: u64,
    pub dead_letter_on_expiration: bool,
    pub dead_letter_max_bytes: u64,
    pub ordered: bool,
    pub history: bool,
    /// None: every message.
    pub rules: Vec<SubscriptionRule>,
    /// Delivers each message to an HTTP endpoint.
    pub push: Option<PushEndpoint>,
}

/// A filter: exactly one of `sql`, `correlation`, `pattern` and `key`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SubscriptionRule {
    pub name: String,
    pub sql: Option<String>,
    pub correlation: Option<JsonObject>,
    pub pattern: Option<JsonObject>,
    /// A routing key like `a.*.#`.
    pub key: Option<String>,
    /// `SET …` on each message that passes.
    pub action: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PushEndpoint {
    pub url: String,
    pub secret: Option<Secret>,
}

/// How long to wait between deliveries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Retry {
    pub strategy: Strategy,
    pub base_seconds: f64,
    /// Exponential: each wait is this many times the one before.
    pub factor: f64,
    pub max_seconds: f64,
    pub jitter: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    #[default]
    Exponential,
    Fixed,
}

/// One delivery and five retries.
const MAX_DELIVERY_COUNT: u32 = 6;
const LOCK_SECONDS: u64 = 60;
/// 1 GiB, as much as a queue of Service Bus has.
pub const DEAD_LETTER_MAX_BYTES: u64 = 1 << 30;

impl Default for Queue {
    fn default() -> Self {
        Self {
            name: String::new(),
            max_delivery_count: MAX_DELIVERY_COUNT,
            lock_seconds: LOCK_SECONDS,
            retry: None,
            default_ttl_seconds: 0,
            dead_letter_on_expiration: false,
            dead_letter_max_bytes: DEAD_LETTER_MAX_BYTES,
            duplicate_window_seconds: 0,
            ordered: false,
            history: true,
        }
    }
}

impl Default for Subscription {
    fn default() -> Self {
        Self {
            name: String::new(),
            max_delivery_count: MAX_DELIVERY_COUNT,
            lock_seconds: LOCK_SECONDS,
            retry: None,
            default_ttl_seconds: 0,
            dead_letter_on_expiration: false,
            dead_letter_max_bytes: DEAD_LETTER_MAX_BYTES,
            ordered: false,
            history: true,
            rules: Vec::new(),
            push: None,
        }
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self { strategy: Strategy::Exponential, base_seconds: 1.0, factor: 2.0, max_seconds: 3600.0, jitter: true }
    }
}

impl Queue {
    pub(super) fn check(&self, check: &mut Check<'_>) {
        check_entity_name(&self.name, check);
        check_delivery(self.max_delivery_count, self.lock_seconds, check);
        check.key("deadLetterMaxBytes").range(self.dead_letter_max_bytes, 0..=1 << 40);
        if let Some(retry) = &self.retry {
            retry.check(&mut check.key("retry"));
        }
        check_times(self.default_ttl_seconds, self.duplicate_window_seconds, check);
    }
}

impl Topic {
    pub(super) fn check(&self, check: &mut Check<'_>) {
        check_entity_name(&self.name, check);
        check_times(self.default_ttl_seconds, self.duplicate_window_seconds, check);
        let mut subscriptions = check.key("subscriptions");
        subscriptions.names(self.subscriptions.iter().map(|subscription| subscription.name.as_str()));
        for (index, subscription) in self.subscriptions.iter().enumerate() {
            subscription.check(&mut subscriptions.item(index));
        }
    }

    pub(super) fn secrets<'a>(&'a mut self, path: &str, secrets: &mut Vec<(String, &'a mut Secret)>) {
        for (index, subscription) in self.subscriptions.iter_mut().enumerate() {
            let secret = subscription.push.as_mut().and_then(|push| push.secret.as_mut());
            secrets.extend(secret.map(|secret| (format!("{path}.subscriptions[{index}].push.secret"), secret)));
        }
    }
}

impl Subscription {
    fn check(&self, check: &mut Check<'_>) {
        check_entity_name(&self.name, check);
        check_delivery(self.max_delivery_count, self.lock_seconds, check);
        check.key("deadLetterMaxBytes").range(self.dead_letter_max_bytes, 0..=1 << 40);
        if let Some(retry) = &self.retry {
            retry.check(&mut check.key("retry"));
        }
        check_times(self.default_ttl_seconds, 0, check);
        let mut rules = check.key("rules");
        rules.names(self.rules.iter().map(|rule| rule.name.as_str()));
        for (index, rule) in self.rules.iter().enumerate() {
            let filters = [rule.sql.is_some(), rule.correlation.is_some(), rule.pattern.is_some(), rule.key.is_some()];
            if filters.into_iter().filter(|given| *given).count() != 1 {
                rules.item(index).problem("needs exactly one of `sql`, `correlation`, `pattern` and `key`");
            } else if let Err(errors) = crate::bus::filter::compile(&rule.into()) {
                for error in errors {
                    rules.item(index).problem(format_args!("has a mistake at `{}`: {}", error.field, error.message));
                }
            }
        }
        if let Some(push) = &self.push {
            if let Err(why) = values::callable(&push.url) {
                check.key("push").key("url").problem(why);
            }
            if push.secret.as_ref().is_some_and(|secret| Key::parse(secret.expose()).is_err()) {
                check.key("push").key("secret").problem(SECRET_FORM);
            }
        }
    }
}

impl Retry {
    fn check(&self, check: &mut Check<'_>) {
        check.key("baseSeconds").range(self.base_seconds, 0.0..=86_400.0);
        check.key("factor").range(self.factor, 1.0..=100.0);
        check.key("maxSeconds").range(self.max_seconds, 0.0..=604_800.0);
        if self.max_seconds < self.base_seconds {
            check
                .key("maxSeconds")
                .problem(format_args!("must not be less than `baseSeconds` ({})", self.base_seconds));
        }
    }
}

fn check_delivery(max_delivery_count: u32, lock_seconds: u64, check: &mut Check<'_>) {
    check.key("maxDeliveryCount").range(max_delivery_count, 1..=2000);
    check.key("lockSeconds").range(lock_seconds, 5..=300);
}

fn check_times(default_ttl_seconds: u64, duplicate_window_seconds: u64, check: &mut Check<'_>) {
    check.key("defaultTtlSeconds").range(default_ttl_seconds, 0..=3_153_600_000);
    check.key("duplicateWindowSeconds").range(duplicate_window_seconds, 0..=604_800);
}

/// Names are parts of paths: `/bus/topic/subscriptions/sub/$deadletterqueue`.
fn check_entity_name(name: &str, check: &mut Check<'_>) {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if !name.chars().all(allowed) {
        check.key("name").problem(format_args!("may have letters, digits, `_`, `-` and `.` only, not {}", quote(name)));
    }
}
