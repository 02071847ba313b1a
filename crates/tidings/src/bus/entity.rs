//! Queues, topics and subscriptions: as they are stored, and as they run.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidings_core::time::{self, Timestamp};
use tidings_store::{Condition, Error, Item, Key, Write};

use super::definition::{Definition, Kind};
use super::filter::{self, Rule};
use super::layout;
use super::line::Line;
use crate::mask::{self, HIDDEN};

/// Where an entity comes from, and so where it is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Declared from the start, by us.
    BuiltIn,
    File,
    Api,
}

impl Origin {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BuiltIn => "built-in",
            Self::File => "file",
            Self::Api => "api",
        }
    }

    fn parse(text: &str) -> Self {
        match text {
            "built-in" => Self::BuiltIn,
            "file" => Self::File,
            _ => Self::Api,
        }
    }
}

/// An entity as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// `orders`, `events/subscriptions/audit`.
    pub path: String,
    pub definition: Definition,
    pub origin: Origin,
    /// Under which its counts are kept. A subscription's are with its topic's.
    pub generation: String,
    /// Its line and its dead letters; a topic has neither.
    pub main: String,
    pub dead: String,
    /// Of a subscription: the generation of its topic.
    pub topic: Option<String>,
    pub updated_at: Timestamp,
    pub updated_by: String,
}

impl Record {
    #[must_use]
    pub fn key(path: &str) -> Key {
        Key::with_sort(layout::ENTITIES, path)
    }

    pub fn to_item(&self) -> Result<Item, Error> {
        let definition = serde_json::to_string(&self.definition)
            .map_err(|e| Error::Invalid(format!("a definition cannot be stored: {e}")))?;
        Ok(Item::new()
            .with("line", layout::ENTITIES)
            .with("at", &self.path)
            .with("definition", definition)
            .with("origin", self.origin.as_str())
            .with("generation", &self.generation)
            .with("main", &self.main)
            .with("dead", &self.dead)
            .with_some("topic", self.topic.as_ref())
            .with("updated_at", time::iso_micros(self.updated_at))
            .with("updated_by", &self.updated_by))
    }

    pub fn from_item(item: &Item) -> Result<Self, Error> {
        let corrupt = |what: &str| Error::Corrupt(format!("an entity of the bus has no {what}"));
        let text = |name: &'static str| item.str(name).ok_or_else(|| corrupt(name)).map(ToOwned::to_owned);
        Ok(Self {
            path: text("at")?,
            definition: serde_json::from_str(&text("definition")?)
                .map_err(|e| Error::Corrupt(format!("an entity of the bus cannot be read: {e}")))?,
            origin: Origin::parse(&text("origin")?),
            generation: text("generation")?,
            main: text("main")?,
            dead: text("dead")?,
            topic: item.str("topic").map(ToOwned::to_owned),
            updated_at: text("updated_at")?.parse().map_err(|_| corrupt("time"))?,
            updated_by: text("updated_by")?,
        })
    }

    /// The write that stores it if nobody came in between.
    pub fn write(&self, before: Option<&Self>) -> Result<Write, Error> {
        let condition = match before {
            None => Condition::NotExists,
            Some(before) => Condition::All(vec![
                Condition::Equals("main".into(), before.main.clone().into()),
                Condition::Equals("updated_at".into(), time::iso_micros(before.updated_at).into()),
            ]),
        };
        Ok(Write::put(layout::table(), self.to_item()?).when(condition))
    }

    /// The write that leaves its messages to be swept.
    #[must_use]
    pub fn trash(&self) -> Write {
        layout::trash_both(&self.main, &self.dead)
    }

    /// The definition with its secrets hidden, and with a whole URL only for who may write it.
    #[must_use]
    pub fn shown(&self, whole: bool) -> Definition {
        let mut definition = self.definition.clone();
        if let Some(push) = &mut definition.push {
            push.secret = push.secret.as_ref().map(|_| HIDDEN.to_owned());
            if !whole {
                push.url = mask::url(&push.url);
            }
        }
        definition
    }
}

/// What messages are received from, with its dead letters.
#[derive(Clone)]
pub struct Pair {
    pub main: Arc<Line>,
    pub dead: Arc<Line>,
}

/// A queue or topic as it runs. Replaced as a whole when it changes; its lines go on.
#[derive(Clone)]
pub struct Entity {
    pub record: Record,
    pub body: Body,
}

#[derive(Clone)]
pub enum Body {
    Queue(Pair),
    Topic(BTreeMap<String, Arc<Subscription>>),
}

#[derive(Clone)]
pub struct Subscription {
    pub record: Record,
    pub name: String,
    pub rules: Vec<Rule>,
    pub pair: Pair,
}

impl Subscription {
    /// A rule that cannot be read any more takes nothing, rather than everything.
    #[must_use]
    pub fn rules_of(definition: &Definition) -> Vec<Rule> {
        definition.rules.iter().filter_map(|rule| filter::compile(rule).ok()).collect()
    }
}

impl Entity {
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.record.definition.kind
    }

    pub fn lines(&self) -> impl Iterator<Item = &Arc<Line>> {
        let pairs: Vec<&Pair> = match &self.body {
            Body::Queue(pair) => vec![pair],
            Body::Topic(subscriptions) => subscriptions.values().map(|subscription| &subscription.pair).collect(),
        };
        pairs.into_iter().flat_map(|pair| [&pair.main, &pair.dead])
    }
}
