//! What an entity is: its settings as the API and the configuration give them, checked.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tidings_core::envelope::FieldError;
use tidings_core::retry::{Policy, Strategy};

use super::state::Settings;
use super::{filter, path};
use crate::channel::webhook::signature;
use crate::config::bus as configured;
use crate::config::{Secret, values};

/// Limits, which are Service Bus's where it has any.
pub const MAX_DELIVERIES: std::ops::RangeInclusive<u64> = 1..=2000;
pub const LOCK_SECONDS: std::ops::RangeInclusive<u64> = 5..=300;
pub const TTL_SECONDS: std::ops::RangeInclusive<u64> = 0..=3_153_600_000;
/// A tebibyte at the most.
pub const DEAD_LETTER_BYTES: std::ops::RangeInclusive<u64> = 0..=1 << 40;
pub const DUPLICATE_SECONDS: std::ops::RangeInclusive<u64> = 0..=604_800;
/// Rules of one subscription.
pub const RULES: usize = 100;
/// Characters of a rule's name.
const RULE_NAME_CHARS: usize = 50;
const URL_CHARS: usize = 2048;
/// Bytes of a definition as JSON: an item of the store has 400 KB, and the audit log's entry holds it, too.
pub const DEFINITION_BYTES: usize = 300 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Queue,
    Topic,
    Subscription,
}

/// An entity's settings. A topic uses only some of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Definition {
    pub kind: Kind,
    /// Deliveries before a message is dead-lettered: the first and its retries.
    pub max_delivery_count: u64,
    pub lock_seconds: u64,
    /// Waits between deliveries. Absent: an abandoned message can be received again at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// How long messages live that do not say so themselves, and at most. 0: for ever.
    pub default_ttl_seconds: u64,
    /// Whether messages that expire go to the dead letters; else they vanish.
    #[serde(default)]
    pub dead_letter_on_expiration: bool,
    /// Bytes of dead letters beyond which nothing more is taken in; they themselves never expire. 0: no limit.
    #[serde(default = "dead_letter_bytes")]
    pub dead_letter_max_bytes: u64,
    /// How long message ids are remembered. 0: no duplicate detection.
    pub duplicate_window_seconds: u64,
    /// One message of a session at a time, in order.
    pub ordered: bool,
    /// Whether what became of each message is kept, for `/trace`.
    #[serde(default = "yes")]
    pub history: bool,
    /// Of a subscription. None: it takes everything.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleDefinition>,
    /// Of a subscription: delivers each message to an HTTP endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push: Option<Push>,
}

const fn yes() -> bool {
    true
}

const fn dead_letter_bytes() -> u64 {
    configured::DEAD_LETTER_MAX_BYTES
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RuleDefinition {
    pub name: String,
    /// Over the properties: `sys.Label = 'paid' AND amount > 1000`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sql: Option<String>,
    /// Over the properties, which must be equal: `{"subject": "paid", "properties": {"region": "eu"}}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation: Option<Value>,
    /// Over the body alone, which must be a JSON object: an EventBridge pattern of its fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<Value>,
    /// Over the subject, else the property `eventType`: words between dots, `*` for one and `#` for any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// `SET …` and `REMOVE …` on each copy that the rule makes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Push {
    pub url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Retry {
    /// `exponential` or `fixed`.
    #[schemars(with = "String")]
    pub strategy: Strategy,
    pub base_seconds: f64,
    pub factor: f64,
    pub max_seconds: f64,
    pub jitter: bool,
}

impl Default for Retry {
    fn default() -> Self {
        Self::from(&configured::Retry::default())
    }
}

impl Definition {
    #[must_use]
    pub fn new(kind: Kind) -> Self {
        let default = configured::Queue::default();
        Self {
            kind,
            max_delivery_count: default.max_delivery_count.into(),
            lock_seconds: default.lock_seconds,
            retry: None,
            default_ttl_seconds: 0,
            dead_letter_on_expiration: false,
            dead_letter_max_bytes: default.dead_letter_max_bytes,
            duplicate_window_seconds: 0,
            ordered: false,
            history: true,
            rules: Vec::new(),
            push: None,
        }
    }

    /// How a line of this entity treats its messages.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let seconds = |seconds: u64| (seconds > 0).then(|| Duration::from_secs(seconds));
        Settings {
            max_deliveries: Some(u32::try_from(self.max_delivery_count).unwrap_or(u32::MAX)),
            lock: Duration::from_secs(self.lock_seconds),
            retry: self.retry.as_ref().map(Retry::policy),
            ttl: seconds(self.default_ttl_seconds),
            dead_letter_expired: self.dead_letter_on_expiration,
            ordered: self.ordered,
            history: self.history,
            dead_letter_bytes: Some(self.dead_letter_max_bytes).filter(|most| *most > 0),
        }
    }

    /// Reads a description; every field that is wrong is named. A secret given as `***` is the one it had
    /// before, for the same URL.
    pub fn read(kind: Kind, fields: &Map<String, Value>, before: Option<&Self>) -> Result<Self, Vec<FieldError>> {
        let mut reader = Reader { fields, errors: Vec::new() };
        let mut definition = Self::new(kind);
        let receives = kind != Kind::Topic;
        if receives {
            definition.max_delivery_count =
                reader.number("maxDeliveryCount", MAX_DELIVERIES, definition.max_delivery_count);
            definition.lock_seconds = reader.number("lockSeconds", LOCK_SECONDS, definition.lock_seconds);
            definition.retry = reader.retry();
            definition.dead_letter_on_expiration = reader.flag("deadLetterOnExpiration", false);
            definition.dead_letter_max_bytes =
                reader.number("deadLetterMaxBytes", DEAD_LETTER_BYTES, definition.dead_letter_max_bytes);
            definition.ordered = reader.flag("ordered", false);
            definition.history = reader.flag("history", true);
        }
        definition.default_ttl_seconds = reader.number("defaultTtlSeconds", TTL_SECONDS, 0);
        if kind == Kind::Subscription {
            definition.rules = reader.rules();
            definition.push = reader.push(before.and_then(|before| before.push.as_ref()));
        } else {
            definition.duplicate_window_seconds = reader.number("duplicateWindowSeconds", DUPLICATE_SECONDS, 0);
        }
        if let Some(before) = before
            && before.ordered != definition.ordered
        {
            reader.wrong("ordered", "is fixed when the entity is made");
        }
        // As it is stored, and as it was sent.
        let said = serde_json::to_string(fields).map_or(usize::MAX, |text| text.len());
        let bytes = serde_json::to_string(&definition).map_or(usize::MAX, |text| text.len()).max(said);
        if bytes > DEFINITION_BYTES {
            reader.wrong("", format!("has {bytes} bytes in all, at most {DEFINITION_BYTES} are allowed"));
        }
        if reader.errors.is_empty() { Ok(definition) } else { Err(reader.errors) }
    }
}

impl Retry {
    #[must_use]
    pub fn policy(&self) -> Policy {
        let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or_default();
        Policy {
            strategy: self.strategy,
            base: seconds(self.base_seconds),
            factor: self.factor,
            cap: seconds(self.max_seconds),
            jitter: self.jitter,
            ..Policy::default()
        }
    }
}

impl From<&configured::Retry> for Retry {
    fn from(retry: &configured::Retry) -> Self {
        let strategy = match retry.strategy {
            configured::Strategy::Exponential => Strategy::Exponential,
            configured::Strategy::Fixed => Strategy::Fixed,
        };
        let configured::Retry { base_seconds, factor, max_seconds, jitter, .. } = *retry;
        Self { strategy, base_seconds, factor, max_seconds, jitter }
    }
}

impl From<&configured::Queue> for Definition {
    fn from(queue: &configured::Queue) -> Self {
        Self {
            max_delivery_count: queue.max_delivery_count.into(),
            lock_seconds: queue.lock_seconds,
            retry: queue.retry.as_ref().map(Retry::from),
            default_ttl_seconds: queue.default_ttl_seconds,
            dead_letter_on_expiration: queue.dead_letter_on_expiration,
            dead_letter_max_bytes: queue.dead_letter_max_bytes,
            duplicate_window_seconds: queue.duplicate_window_seconds,
            ordered: queue.ordered,
            history: queue.history,
            ..Self::new(Kind::Queue)
        }
    }
}

impl From<&configured::Topic> for Definition {
    fn from(topic: &configured::Topic) -> Self {
        Self {
            default_ttl_seconds: topic.default_ttl_seconds,
            duplicate_window_seconds: topic.duplicate_window_seconds,
            ..Self::new(Kind::Topic)
        }
    }
}

impl From<&configured::Subscription> for Definition {
    fn from(subscription: &configured::Subscription) -> Self {
        Self {
            max_delivery_count: subscription.max_delivery_count.into(),
            lock_seconds: subscription.lock_seconds,
            retry: subscription.retry.as_ref().map(Retry::from),
            default_ttl_seconds: subscription.default_ttl_seconds,
            dead_letter_on_expiration: subscription.dead_letter_on_expiration,
            dead_letter_max_bytes: subscription.dead_letter_max_bytes,
            ordered: subscription.ordered,
            history: subscription.history,
            rules: subscription.rules.iter().map(RuleDefinition::from).collect(),
            push: subscription.push.as_ref().map(|push| Push {
                url: push.url.clone(),
                secret: push.secret.as_ref().map(|secret| secret.expose().to_owned()),
            }),
            ..Self::new(Kind::Subscription)
        }
    }
}

impl From<&configured::SubscriptionRule> for RuleDefinition {
    fn from(rule: &configured::SubscriptionRule) -> Self {
        Self {
            name: rule.name.clone(),
            sql: rule.sql.clone(),
            correlation: rule.correlation.as_ref().map(crate::config::JsonObject::to_value),
            pattern: rule.pattern.as_ref().map(crate::config::JsonObject::to_value),
            key: rule.key.clone(),
            action: rule.action.clone(),
        }
    }
}

struct Reader<'a> {
    fields: &'a Map<String, Value>,
    errors: Vec<FieldError>,
}

impl Reader<'_> {
    fn wrong(&mut self, field: &str, message: impl Into<String>) {
        self.errors.push(FieldError::new(field, message));
    }

    fn value(&self, name: &str) -> Option<&Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    fn number(&mut self, name: &str, range: std::ops::RangeInclusive<u64>, default: u64) -> u64 {
        let Some(value) = self.value(name) else { return default };
        if let Some(number) = value.as_u64().filter(|number| range.contains(number)) {
            return number;
        }
        self.wrong(name, format!("must be a whole number from {} to {}", range.start(), range.end()));
        default
    }

    fn flag(&mut self, name: &str, default: bool) -> bool {
        match self.value(name).map(Value::as_bool) {
            None => default,
            Some(Some(flag)) => flag,
            Some(None) => {
                self.wrong(name, "must be true or false");
                default
            }
        }
    }

    fn retry(&mut self) -> Option<Retry> {
        let value = self.value("retry")?.clone();
        let Value::Object(fields) = value else {
            self.wrong("retry", "must be an object");
            return None;
        };
        let mut retry = Retry::default();
        match fields.get("strategy").filter(|value| !value.is_null()).map(Value::as_str) {
            None | Some(Some("exponential")) => {}
            Some(Some("fixed")) => retry.strategy = Strategy::Fixed,
            Some(_) => self.wrong("retry.strategy", "must be exponential or fixed"),
        }
        let numbers: [(&str, &mut f64, f64, f64); 3] = [
            ("baseSeconds", &mut retry.base_seconds, 0.0, 86_400.0),
            ("factor", &mut retry.factor, 1.0, 100.0),
            ("maxSeconds", &mut retry.max_seconds, 0.0, 604_800.0),
        ];
        for (name, slot, least, most) in numbers {
            match fields.get(name).filter(|value| !value.is_null()).map(Value::as_f64) {
                None => {}
                Some(Some(number)) if (least..=most).contains(&number) => *slot = number,
                Some(_) => self.wrong(&format!("retry.{name}"), format!("must be a number from {least} to {most}")),
            }
        }
        match fields.get("jitter").filter(|value| !value.is_null()).map(Value::as_bool) {
            None => {}
            Some(Some(jitter)) => retry.jitter = jitter,
            Some(None) => self.wrong("retry.jitter", "must be true or false"),
        }
        if retry.max_seconds < retry.base_seconds {
            self.wrong("retry.maxSeconds", format!("must not be less than baseSeconds ({})", retry.base_seconds));
        }
        Some(retry)
    }

    fn rules(&mut self) -> Vec<RuleDefinition> {
        let Some(value) = self.value("rules").cloned() else { return Vec::new() };
        let Value::Array(list) = value else {
            self.wrong("rules", "must be a list of rules");
            return Vec::new();
        };
        if list.len() > RULES {
            self.wrong("rules", format!("has {} rules, at most {RULES} are allowed", list.len()));
            return Vec::new();
        }
        let mut rules: Vec<RuleDefinition> = Vec::new();
        for (place, value) in list.iter().enumerate() {
            let at = format!("rules[{place}]");
            let Value::Object(fields) = value else {
                self.wrong(&at, "must be an object");
                continue;
            };
            let rule = self.rule(&at, fields);
            if rules.iter().any(|known| known.name == rule.name) {
                self.wrong(&format!("{at}.name"), "is the name of another rule, too");
            }
            if let Err(errors) = filter::compile(&rule) {
                self.errors.extend(errors.into_iter().map(|error| {
                    let dot = if error.field.is_empty() { "" } else { "." };
                    FieldError::new(format!("{at}{dot}{}", error.field), error.message)
                }));
            }
            rules.push(rule);
        }
        rules
    }

    fn rule(&mut self, at: &str, fields: &Map<String, Value>) -> RuleDefinition {
        let mut text = |name: &str| match fields.get(name).filter(|value| !value.is_null()) {
            None => None,
            Some(Value::String(text)) => Some(text.clone()),
            Some(_) => {
                self.errors.push(FieldError::new(format!("{at}.{name}"), "must be a string"));
                None
            }
        };
        let rule = RuleDefinition {
            name: text("name").unwrap_or_default(),
            sql: text("sql"),
            key: text("key"),
            action: text("action"),
            correlation: fields.get("correlation").filter(|value| !value.is_null()).cloned(),
            pattern: fields.get("pattern").filter(|value| !value.is_null()).cloned(),
        };
        // `$Default` is the one that Service Bus makes.
        let name = rule.name.strip_prefix('$').unwrap_or(&rule.name);
        if let Err(why) = path::check_name(name, RULE_NAME_CHARS) {
            self.wrong(&format!("{at}.name"), why);
        }
        rule
    }

    fn push(&mut self, before: Option<&Push>) -> Option<Push> {
        let value = self.value("push")?.clone();
        let Value::Object(fields) = value else {
            self.wrong("push", "must be an object with a url");
            return None;
        };
        let url = fields.get("url").and_then(Value::as_str).unwrap_or_default();
        if url.len() > URL_CHARS {
            self.wrong("push.url", format!("must have at most {URL_CHARS} characters"));
        } else if let Err(why) = values::callable(url) {
            self.wrong("push.url", why);
        }
        let kept = || before.filter(|before| before.url == url)?.secret.as_deref().map(Secret::new);
        let secret = signature::given(fields.get("secret"), kept).unwrap_or_else(|why| {
            self.wrong("push.secret", why);
            None
        });
        Some(Push { url: url.to_owned(), secret: secret.map(|secret| secret.expose().to_owned()) })
    }
}
