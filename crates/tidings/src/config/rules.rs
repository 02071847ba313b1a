//! `[[rules]]`: which events become which messages. Patterns and templates are judged by their owner, `crate::rules`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::check::Check;
use super::json::JsonObject;
use super::ntfy::check_topic;
use super::secret::Secret;
use crate::bus::path::{NAME_CHARS, check_name};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rule {
    pub name: String,
    pub enabled: bool,
    /// An EventBridge pattern over the envelope.
    pub pattern: JsonObject,
    pub targets: Vec<Target>,
    /// Templates over the envelope.
    pub title: String,
    pub text: String,
    /// A template over the inbox entry: what it links to. Empty: `notification_center.link`.
    pub link: String,
    /// The same notice to the same target is not repeated within this time. 0: always repeated.
    pub dedupe_seconds: u64,
    /// A template: what makes two notices the same. Empty: title and text do.
    pub dedupe_key: String,
    /// Where this rule matches, others tell nobody.
    pub exclude: bool,
    /// A template: why.
    pub reason: String,
    /// The rules that it keeps back; none: all.
    pub rules: Vec<String>,
    /// Not written by anybody: it follows from a monitor.
    #[serde(skip)]
    pub of_monitor: bool,
}

impl Default for Rule {
    fn default() -> Self {
        Self {
            name: String::new(),
            enabled: true,
            pattern: JsonObject::default(),
            targets: Vec::new(),
            title: String::new(),
            text: String::new(),
            link: String::new(),
            dedupe_seconds: 0,
            dedupe_key: String::new(),
            exclude: false,
            reason: String::new(),
            rules: Vec::new(),
            of_monitor: false,
        }
    }
}

/// Where a message goes. One flat table, so that each key's place is known; `channel` says which keys count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Target {
    pub channel: Option<Channel>,
    /// inbox: these users …
    pub users: Vec<String>,
    /// … or those whom the notification map names.
    pub map: MapTarget,
    /// email
    pub to: Vec<String>,
    /// ntfy; absent: `ntfy.topic`.
    pub topic: Option<String>,
    /// webhook
    pub url: Option<String>,
    /// webhook: signs each call.
    pub secret: Option<Secret>,
    /// queue: a queue's or topic's name.
    pub entity: Option<String>,
    /// ticket: on whose behalf.
    pub caller: Option<String>,
}

/// Users by the notification map.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MapTarget {
    /// A template.
    pub product: String,
    /// Of these support groups only; none: of all.
    pub groups: Vec<String>,
}

impl MapTarget {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Channel {
    Inbox,
    Email,
    Ntfy,
    Webhook,
    Queue,
    Ticket,
}

impl Channel {
    /// The keys that mean something for this channel, besides `channel`.
    const fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Inbox => &["users", "map"],
            Self::Email => &["to"],
            Self::Ntfy => &["topic"],
            Self::Webhook => &["url", "secret"],
            Self::Queue => &["entity"],
            Self::Ticket => &["caller"],
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Inbox => "inbox",
            Self::Email => "email",
            Self::Ntfy => "ntfy",
            Self::Webhook => "webhook",
            Self::Queue => "queue",
            Self::Ticket => "ticket",
        }
    }
}

impl Rule {
    pub(super) fn check(&self, check: &mut Check<'_>) {
        let before = check.count();
        if self.pattern.is_empty() {
            let mut pattern = check.key("pattern");
            let what = if pattern.is_written() { "is empty" } else { "is missing" };
            pattern.problem(format_args!("{what}; it says which events the rule is for"));
        }
        if self.targets.is_empty() && !self.exclude {
            check.key("targets").problem("must have at least one target; it says where the notice goes");
        }
        check_targets(&self.targets, &mut check.key("targets"));
        for error in crate::rules::check(&self.name, &self.to_json()) {
            // What has no shape yet cannot be compiled; saying so twice would be noise.
            if error.field.is_empty() || !check.said_of(&error.field, before) {
                check.problem_at(&error.field, &error.message);
            }
        }
    }

    /// The rule as the API would be given it, secrets included.
    #[must_use]
    pub fn to_json(&self) -> Map<String, Value> {
        let mut map = Map::new();
        map.insert("enabled".to_owned(), self.enabled.into());
        map.insert("pattern".to_owned(), self.pattern.to_value());
        map.insert("targets".to_owned(), self.targets.iter().map(Target::to_json).collect());
        map.insert("title".to_owned(), self.title.clone().into());
        map.insert("text".to_owned(), self.text.clone().into());
        map.insert("link".to_owned(), self.link.clone().into());
        map.insert("dedupe_seconds".to_owned(), self.dedupe_seconds.into());
        map.insert("dedupe_key".to_owned(), self.dedupe_key.clone().into());
        map.insert("exclude".to_owned(), self.exclude.into());
        map.insert("reason".to_owned(), self.reason.clone().into());
        map.insert("rules".to_owned(), self.rules.clone().into());
        map
    }

    pub(super) fn secrets<'a>(&'a mut self, path: &str, secrets: &mut Vec<(String, &'a mut Secret)>) {
        target_secrets(&mut self.targets, &format!("{path}.targets"), secrets);
    }
}

pub(super) fn check_targets(targets: &[Target], check: &mut Check<'_>) {
    for (index, target) in targets.iter().enumerate() {
        target.check(&mut check.item(index));
    }
}

pub(super) fn target_secrets<'a>(targets: &'a mut [Target], path: &str, secrets: &mut Vec<(String, &'a mut Secret)>) {
    for (index, target) in targets.iter_mut().enumerate() {
        secrets.extend(target.secret.as_mut().map(|secret| (format!("{path}[{index}].secret"), secret)));
    }
}

impl Target {
    fn to_json(&self) -> Value {
        let mut target = match self.channel {
            Some(Channel::Inbox) if self.map.is_empty() => json!({ "users": self.users }),
            Some(Channel::Inbox) => json!({ "map": { "product": self.map.product, "groups": self.map.groups } }),
            Some(Channel::Email) => json!({ "to": self.to }),
            Some(Channel::Ntfy) => json!({ "topic": self.topic }),
            Some(Channel::Webhook) => json!({ "url": self.url, "secret": self.secret.as_ref().map(Secret::expose) }),
            Some(Channel::Queue) => json!({ "entity": self.entity }),
            Some(Channel::Ticket) => json!({ "caller": self.caller }),
            None => json!({}),
        };
        if let (Some(target), Some(channel)) = (target.as_object_mut(), self.channel) {
            target.insert("channel".to_owned(), channel.as_str().into());
        }
        target
    }

    fn check(&self, check: &mut Check<'_>) {
        let Some(channel) = self.channel else {
            check.key("channel").problem("is missing; it is inbox, email, ntfy, webhook, queue or ticket");
            return;
        };
        for (key, _) in self.given().iter().filter(|(key, given)| *given && !channel.keys().contains(key)) {
            check.key(key).problem(format_args!("means nothing to the channel \"{}\"", channel.as_str()));
        }
        match channel {
            Channel::Inbox => {
                match (self.users.is_empty(), self.map.is_empty()) {
                    (true, true) => check.problem("needs `users` with at least one user, or `map`"),
                    (false, false) => check.problem("needs either `users` or `map`, not both"),
                    _ => {}
                }
                check.key("users").not_blank(&self.users);
            }
            Channel::Email => {
                if self.to.is_empty() {
                    check.key("to").problem("must list at least one address");
                }
                check.key("to").mailboxes(&self.to);
            }
            Channel::Ntfy => {
                if let Some(topic) = self.topic.as_ref().filter(|topic| !topic.contains("{{")) {
                    check_topic(topic, &mut check.key("topic"));
                }
            }
            Channel::Webhook => match &self.url {
                Some(url) => check.key("url").url_template(url, &["http", "https"]),
                None => check.key("url").problem("is missing"),
            },
            Channel::Queue => {
                let entity = self.entity.as_deref().unwrap_or_default();
                match check_name(entity, NAME_CHARS) {
                    Err(_) if entity.is_empty() => check.key("entity").problem("is missing"),
                    Err(why) => check.key("entity").problem(why),
                    Ok(()) => {}
                }
            }
            Channel::Ticket => {
                if self.caller.as_deref().unwrap_or_default().is_empty() {
                    check.key("caller").problem("is missing");
                }
            }
        }
    }

    fn given(&self) -> [(&'static str, bool); 8] {
        [
            ("users", !self.users.is_empty()),
            ("map", !self.map.is_empty()),
            ("to", !self.to.is_empty()),
            ("topic", self.topic.is_some()),
            ("url", self.url.is_some()),
            ("secret", self.secret.is_some()),
            ("entity", self.entity.is_some()),
            ("caller", self.caller.is_some()),
        ]
    }
}
