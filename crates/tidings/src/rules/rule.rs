//! A rule: which events become which notices, checked and compiled.

use serde_json::{Map, Value, json};
use tidings_core::pattern::Pattern;
use uuid::Uuid;

use super::template::Template;
use crate::config::Secret;
use crate::mask::{self, HIDDEN};
use crate::origin::Origin;

/// How a rule is written out.
#[derive(Clone, Copy)]
struct Shown {
    secret: fn(&Secret) -> String,
    url: fn(&str) -> String,
}

impl Shown {
    /// To whom it may concern: a URL often has a token in it.
    const MASKED: Self = Self { secret: |_| HIDDEN.to_owned(), url: mask::url };
    /// To whoever may write it.
    const WHOLE: Self = Self { secret: |_| HIDDEN.to_owned(), url: str::to_owned };
    const STORED: Self = Self { secret: |secret| secret.expose().to_owned(), url: str::to_owned };
    const UNSIGNED: Self = Self { secret: |_| String::new(), url: str::to_owned };
}

#[derive(Debug, Clone)]
pub struct Rule {
    pub name: String,
    pub enabled: bool,
    pub pattern: Pattern,
    /// The pattern as it was written.
    pub pattern_json: Map<String, Value>,
    pub targets: Vec<Target>,
    pub title: Template,
    pub text: Template,
    /// What its inbox entries link to; without it, what the configuration says (S001-109).
    pub link: Option<Template>,
    pub dedupe_seconds: u64,
    /// What makes two notices the same; without it, title and text do.
    pub dedupe_key: Option<Template>,
    /// Set in a rule that tells nobody, but keeps others from it.
    pub exclusion: Option<Exclusion>,
    /// Stands for the targets that lead to the same for every event.
    pub fixed: Uuid,
    pub origin: Origin,
}

/// What a matching exclude rule keeps back (SX-12).
#[derive(Debug, Clone)]
pub struct Exclusion {
    /// Recorded with everything that is kept back.
    pub reason: Template,
    /// Of these rules only; none: of all.
    pub rules: Vec<String>,
}

impl Exclusion {
    #[must_use]
    pub fn covers(&self, rule: &str) -> bool {
        self.rules.is_empty() || self.rules.iter().any(|name| name == rule)
    }
}

/// Where a notice goes.
#[derive(Debug, Clone)]
pub enum Target {
    Inbox(Recipients),
    Email {
        to: Vec<Template>,
    },
    /// Without a topic: the configured one.
    Ntfy {
        topic: Option<Template>,
    },
    Webhook {
        url: Template,
        secret: Option<Secret>,
    },
    Queue {
        entity: String,
    },
    Ticket {
        caller: Template,
    },
}

/// Whose inbox.
#[derive(Debug, Clone)]
pub enum Recipients {
    /// Names, or templates that give names.
    Users(Vec<Template>),
    /// Everybody whom the notification map names for a product; of these support groups only, if any are named.
    Map { product: Template, groups: Vec<String> },
}

impl Target {
    #[must_use]
    pub const fn channel(&self) -> &'static str {
        match self {
            Self::Inbox(_) => "inbox",
            Self::Email { .. } => "email",
            Self::Ntfy { .. } => "ntfy",
            Self::Webhook { .. } => "webhook",
            Self::Queue { .. } => "queue",
            Self::Ticket { .. } => "ticket",
        }
    }

    /// Whether it leads to the same for every event.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        match self {
            Self::Inbox(Recipients::Users(templates)) | Self::Email { to: templates } => {
                templates.iter().all(Template::is_fixed)
            }
            Self::Inbox(Recipients::Map { product: template, .. })
            | Self::Webhook { url: template, .. }
            | Self::Ticket { caller: template } => template.is_fixed(),
            Self::Ntfy { topic } => topic.as_ref().is_none_or(Template::is_fixed),
            Self::Queue { .. } => true,
        }
    }

    fn to_json(&self, show: Shown) -> Value {
        let sources = |list: &[Template]| list.iter().map(|t| Value::from(t.source())).collect::<Vec<_>>();
        let channel = self.channel();
        match self {
            Self::Inbox(Recipients::Users(users)) => json!({ "channel": channel, "users": sources(users) }),
            Self::Inbox(Recipients::Map { product, groups }) if groups.is_empty() => {
                json!({ "channel": channel, "map": { "product": product.source() } })
            }
            Self::Inbox(Recipients::Map { product, groups }) => {
                json!({ "channel": channel, "map": { "product": product.source(), "groups": groups } })
            }
            Self::Email { to } => json!({ "channel": channel, "to": sources(to) }),
            Self::Ntfy { topic: Some(topic) } => json!({ "channel": channel, "topic": topic.source() }),
            Self::Ntfy { topic: None } => json!({ "channel": channel }),
            Self::Webhook { url, secret: Some(secret) } => {
                json!({ "channel": channel, "url": (show.url)(url.source()), "secret": (show.secret)(secret) })
            }
            Self::Webhook { url, secret: None } => json!({ "channel": channel, "url": (show.url)(url.source()) }),
            Self::Queue { entity } => json!({ "channel": channel, "entity": entity }),
            Self::Ticket { caller } => json!({ "channel": channel, "caller": caller.source() }),
        }
    }
}

/// What stands for those of the targets that lead to the same for every event, whatever signs them.
#[must_use]
pub fn fixed(targets: &[Target]) -> Uuid {
    let fixed: Vec<Value> =
        targets.iter().filter(|target| target.is_fixed()).map(|target| target.to_json(Shown::UNSIGNED)).collect();
    Uuid::new_v5(&Uuid::NAMESPACE_OID, Value::from(fixed).to_string().as_bytes())
}

impl Rule {
    /// As it is shown: without secrets, and with whole URLs only to who may write it.
    #[must_use]
    pub fn view(&self, whole: bool) -> Map<String, Value> {
        let mut view = self.to_json(if whole { Shown::WHOLE } else { Shown::MASKED });
        view.insert("origin".to_owned(), self.origin.as_str().into());
        view
    }

    /// As it is stored: with secrets.
    #[must_use]
    pub fn stored(&self) -> String {
        Value::Object(self.to_json(Shown::STORED)).to_string()
    }

    fn to_json(&self, show: Shown) -> Map<String, Value> {
        let mut map = Map::new();
        map.insert("name".to_owned(), self.name.clone().into());
        map.insert("enabled".to_owned(), self.enabled.into());
        map.insert("pattern".to_owned(), self.pattern_json.clone().into());
        if let Some(exclusion) = &self.exclusion {
            map.insert("exclude".to_owned(), true.into());
            map.insert("reason".to_owned(), exclusion.reason.source().into());
            if !exclusion.rules.is_empty() {
                map.insert("rules".to_owned(), exclusion.rules.clone().into());
            }
            return map;
        }
        map.insert("targets".to_owned(), self.targets.iter().map(|target| target.to_json(show)).collect());
        map.insert("title".to_owned(), self.title.source().into());
        map.insert("text".to_owned(), self.text.source().into());
        if let Some(link) = &self.link {
            map.insert("link".to_owned(), link.source().into());
        }
        map.insert("dedupe_seconds".to_owned(), self.dedupe_seconds.into());
        if let Some(key) = &self.dedupe_key {
            map.insert("dedupe_key".to_owned(), key.source().into());
        }
        map
    }

    /// The secret of the webhook to that URL, if there is one.
    #[must_use]
    pub fn secret_of(&self, wanted: &str) -> Option<Secret> {
        self.targets.iter().find_map(|target| match target {
            Target::Webhook { url, secret } if url.source() == wanted => secret.clone(),
            _ => None,
        })
    }
}
