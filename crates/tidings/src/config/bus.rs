//! `[[queues]]` and `[[topics]]`: entities of the bus that exist from the start.
//!
//! Their keys are written as in the API (`maxDeliveryCount`), so that one description serves both.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Config;
use super::check::Check;
use super::json::JsonObject;
use super::problem;
use super::secret::Secret;
use crate::bus::declared;
use crate::bus::definition::{self, Definition};
use crate::bus::manage::{ENTITIES, SUBSCRIPTIONS};
use crate::bus::path::{self, Path};

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
        check_delivery(self.max_delivery_count, self.lock_seconds, self.retry.as_ref(), check);
        check.key("deadLetterMaxBytes").range(self.dead_letter_max_bytes, definition::DEAD_LETTER_BYTES);
        check_times(self.default_ttl_seconds, self.duplicate_window_seconds, check);
    }
}

impl Topic {
    pub(super) fn check(&self, check: &mut Check<'_>) {
        check_times(self.default_ttl_seconds, self.duplicate_window_seconds, check);
        let mut subscriptions = check.key("subscriptions");
        let names = self.subscriptions.iter().map(|subscription| subscription.name.as_str());
        subscriptions.names(names, |name| path::check_name(name, path::SUBSCRIPTION_CHARS));
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
        check_delivery(self.max_delivery_count, self.lock_seconds, self.retry.as_ref(), check);
        check.key("deadLetterMaxBytes").range(self.dead_letter_max_bytes, definition::DEAD_LETTER_BYTES);
        check_times(self.default_ttl_seconds, 0, check);
        // What is more than a number is judged as the API judges it.
        let judged = Definition::read(definition::Kind::Subscription, &self.to_json(), None);
        for error in judged.err().into_iter().flatten() {
            let ours = error.field.is_empty() || error.field.starts_with("rules") || error.field.starts_with("push");
            if ours {
                check.problem_at(&error.field, &error.message);
            }
        }
    }

    /// The subscription as the API would be given it, its secret included.
    fn to_json(&self) -> Map<String, Value> {
        match serde_json::to_value(Definition::from(self)) {
            Ok(Value::Object(fields)) => fields,
            _ => Map::new(),
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

fn check_delivery(max_delivery_count: u32, lock_seconds: u64, retry: Option<&Retry>, check: &mut Check<'_>) {
    check.key("maxDeliveryCount").range(max_delivery_count.into(), definition::MAX_DELIVERIES);
    check.key("lockSeconds").range(lock_seconds, definition::LOCK_SECONDS);
    if let Some(retry) = retry {
        retry.check(&mut check.key("retry"));
    }
}

fn check_times(default_ttl_seconds: u64, duplicate_window_seconds: u64, check: &mut Check<'_>) {
    check.key("defaultTtlSeconds").range(default_ttl_seconds, definition::TTL_SECONDS);
    check.key("duplicateWindowSeconds").range(duplicate_window_seconds, definition::DUPLICATE_SECONDS);
}

/// Names are parts of paths: `/bus/topic/subscriptions/sub/$deadletterqueue`.
pub(super) fn entity_name(name: &str) -> Result<(), String> {
    path::check_name(name, path::NAME_CHARS)
}

/// What comes with Tidings is of a kind, which the file cannot change: its handlers rely on it.
pub(super) fn check_kinds(config: &Config, check: &mut Check<'_>) {
    let seed = |name: &str| declared::seeds().into_iter().find(|(path, _)| *path == Path::queue(name));
    let queues = config.queues.iter().map(|queue| &queue.name).enumerate();
    let topics = config.topics.iter().map(|topic| &topic.name).enumerate();
    let queues = queues.map(|(place, name)| ("queues", definition::Kind::Queue, place, name));
    let topics = topics.map(|(place, name)| ("topics", definition::Kind::Topic, place, name));
    for (list, kind, place, name) in queues.chain(topics) {
        if let Some((_, seed)) = seed(name).filter(|(_, seed)| seed.kind != kind) {
            let is = if seed.kind == definition::Kind::Queue { "queue" } else { "topic" };
            let name = problem::quote(name);
            let mut list = check.key(list);
            list.item(place).key("name").problem(format_args!("is {name}, a {is} that comes with Tidings"));
        }
    }
}

/// More than there can be would be left out at the start. What comes with Tidings counts.
pub(super) fn check_counts(config: &Config, check: &mut Check<'_>) {
    let declared = declared::all(config);
    let (subscriptions, entities): (Vec<_>, Vec<_>) =
        declared.iter().map(|(path, ..)| path).partition(|path| path.subscription.is_some());
    if entities.len() > ENTITIES {
        let (queues, topics) = (config.queues.len(), config.topics.len());
        let own = entities.len() - queues - topics;
        let key = if queues > topics { "queues" } else { "topics" };
        check.key(key).problem(format_args!(
            "are too many: {queues} queues and {topics} topics, and {own} that come with Tidings, are more than {ENTITIES}"
        ));
    }
    let mut topics = check.key("topics");
    for (index, topic) in config.topics.iter().enumerate() {
        let count = subscriptions.iter().filter(|path| path.entity == topic.name).count();
        if count > SUBSCRIPTIONS {
            topics.item(index).key("subscriptions").problem(format_args!(
                "are too many: {count}, those that come with Tidings included, are more than {SUBSCRIPTIONS}"
            ));
        }
    }
}
