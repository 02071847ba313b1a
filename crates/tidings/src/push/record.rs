//! A push message: ntfy's JSON, which is also what is stored.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use tidings_store::{Condition, Error, Item, Key, KeyKind, Store, Table, Value, Write};

/// The partition of the highest number that may be in use: no topic's name.
const HEAD: &str = "#";

/// Messages by topic in the order of publishing.
#[must_use]
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        Table::new("tidings-push", "topic", KeyKind::S)
            .sort("seq", KeyKind::N)
            .index("id-index", ("id".into(), KeyKind::S), None)
            .ttl("ttl")
    });
    &TABLE
}

/// The highest number that may be in use.
pub async fn read_reserved(store: &dyn Store) -> Result<i64, Error> {
    let head = store.get(table(), &Key::with_sort(HEAD, 0_i64)).await?;
    Ok(head.and_then(|head| head.int("reserved")).unwrap_or(0))
}

/// Raises it.
#[must_use]
pub fn reservation(reserved: i64) -> Write {
    let head = Item::new().with("topic", HEAD).with("seq", 0_i64).with("reserved", reserved);
    let lower = Condition::Less("reserved".into(), Value::from(reserved));
    Write::put(table(), head).when(Condition::any(vec![Condition::NotExists, lower]))
}

/// A message as subscribers see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    pub id: String,
    /// Seconds since 1970.
    pub time: i64,
    /// When it is forgotten; absent if it was not to be kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<i64>,
    pub event: Event,
    pub topic: String,
    #[serde(flatten)]
    pub content: Content,
    /// Larger with each message of any topic. Not part of the protocol.
    #[serde(skip)]
    pub seq: i64,
    #[serde(skip)]
    pub correlation_id: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Event {
    Open,
    Keepalive,
    Message,
}

/// What the publisher says. Absent parts are left out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Content {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// 1 to 5; the default, 3, is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub click: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub icon: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attachment: Option<Attachment>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub content_type: String,
}

/// A file that lies somewhere else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    pub name: String,
    pub url: String,
}

impl Message {
    /// ntfy's JSON, on one line.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("strings, numbers and JSON are JSON")
    }

    #[must_use]
    pub fn to_item(&self) -> Item {
        Item::new()
            .with("topic", &self.topic)
            .with("seq", self.seq)
            .with("id", &self.id)
            .with("json", self.to_json())
            .with("correlationId", &self.correlation_id)
            .with_some("ttl", self.expires)
    }

    pub fn from_item(item: &Item) -> Result<Self, Error> {
        let read = || {
            let message: Self = serde_json::from_str(item.str("json")?).ok()?;
            let correlation_id = item.str("correlationId")?.to_owned();
            Some(Self { seq: item.int("seq")?, correlation_id, ..message })
        };
        read().ok_or_else(|| Error::Corrupt("a stored push message cannot be read".to_owned()))
    }
}

/// ntfy's own rule for topics.
#[must_use]
pub fn is_topic(topic: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=64).contains(&topic.len()) && topic.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_ntfys_json_and_comes_back_whole() {
        let message = Message {
            id: "hwQ2YpKdmgXK".to_owned(),
            time: 1_773_480_414,
            expires: Some(1_773_523_614),
            event: Event::Message,
            topic: "ops".to_owned(),
            content: Content { message: "Hi\nyou".to_owned(), priority: Some(4), ..Content::default() },
            seq: 7,
            correlation_id: "c-1".to_owned(),
        };
        assert_eq!(
            message.to_json(),
            r#"{"id":"hwQ2YpKdmgXK","time":1773480414,"expires":1773523614,"event":"message","topic":"ops","message":"Hi\nyou","priority":4}"#
        );
        let item = message.to_item();
        table().check_item(&item).unwrap();
        assert_eq!(Message::from_item(&item).unwrap(), message);
        assert!(Message::from_item(&Item::new()).is_err());
    }

    #[test]
    fn topics_follow_ntfys_rule() {
        for (topic, good) in [("ops", true), ("A-z_9", true), ("", false), ("a.b", false), ("ä", false), ("a/b", false)]
        {
            assert_eq!(is_topic(topic), good, "{topic}");
        }
        assert!(is_topic(&"x".repeat(64)) && !is_topic(&"x".repeat(65)));
    }
}
