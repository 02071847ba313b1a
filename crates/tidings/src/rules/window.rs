//! Windows in which a rule does not say the same again to the same: markers that expire.
//!
//! A window is for a rule, what it says, and whom it tells. All targets of a rule whose addresses are fixed are told
//! together or not at all, and share one window. What an event names itself has windows of its own: each user and each
//! address one, a product of the notification map one for all whom the map names.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde_json::Value;
use tidings_core::time::{self, Timestamp};
use tidings_store::{Item, KeyKind, Table, Write};
use uuid::Uuid;

use super::notice::{Notice, Occurrence};
use super::rule::Rule;
use crate::messages::Message;

/// Addresses of one message that have a window each; more of them share one, for a transaction has its limit.
const ADDRESSES_APART: usize = 20;

#[must_use]
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(|| Table::new("tidings-rule-windows", "id", KeyKind::S).ttl("ttl"));
    &TABLE
}

/// The windows of one rule for one notice.
pub struct Windows<'a> {
    rule: &'a Rule,
    /// Follows from the rule's name and from what it says.
    base: Uuid,
    expires_at: i64,
}

impl<'a> Windows<'a> {
    /// `None` for a rule that always repeats itself.
    #[must_use]
    pub fn of(rule: &'a Rule, notice: &Notice, event: &Occurrence<'_>) -> Option<Self> {
        if rule.dedupe_seconds == 0 {
            return None;
        }
        let key = rule.dedupe_key.as_ref().and_then(|key| key.text(&event.fields).ok());
        let key = key.unwrap_or_else(|| format!("{}\n{}", notice.title, notice.text));
        let base = Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("{}\n{key}", rule.name).as_bytes());
        Some(Self { rule, base, expires_at: expiry(event.received_at, rule.dedupe_seconds) })
    }

    /// That of the targets whose addresses are fixed. With another such target the rule has another window.
    #[must_use]
    pub fn fixed(&self) -> Uuid {
        Uuid::new_v5(&self.base, self.rule.fixed.as_bytes())
    }

    /// That of a user whom the event names.
    #[must_use]
    pub fn user(&self, user: &str) -> Uuid {
        self.one("user", user)
    }

    /// That of everybody on the notification map of a product.
    #[must_use]
    pub fn product(&self, product: &str, groups: &[String]) -> Uuid {
        self.one("map", &format!("{product}\n{}", groups.join("\n")))
    }

    /// Whether each of those whom a message goes to has a window.
    #[must_use]
    pub fn are_apart(message: &Message) -> bool {
        matches!(message.target.get("to"), Some(Value::Array(to)) if to.len() <= ADDRESSES_APART)
    }

    /// Those of whom a message goes to. Addresses whose window is open, says `is_open`, are taken out of the message;
    /// gives the windows of the others, and how many were taken out.
    pub fn message(&self, message: &mut Message, is_open: impl Fn(&Uuid) -> bool) -> (BTreeSet<Uuid>, u64) {
        let channel = message.channel.clone();
        let many = match message.target.get_mut("to") {
            Some(Value::Array(to)) if to.len() <= ADDRESSES_APART => to,
            _ => {
                let id = self.one(&channel, &Value::Object(message.target.clone()).to_string());
                return if is_open(&id) { (BTreeSet::new(), 1) } else { (BTreeSet::from([id]), 0) };
            }
        };
        let before = many.len();
        let mut ids = BTreeSet::new();
        many.retain(|address| {
            let id = self.one(&channel, &address.as_str().unwrap_or_default().to_lowercase());
            !is_open(&id) && {
                ids.insert(id);
                true
            }
        });
        let repeats = before - many.len();
        (ids, repeats as u64)
    }

    fn one(&self, channel: &str, address: &str) -> Uuid {
        Uuid::new_v5(&self.base, format!("{channel}\n{address}").as_bytes())
    }

    /// The write that opens a window; it fails while it is open.
    #[must_use]
    pub fn open(&self, id: Uuid) -> Write {
        let item = Item::new().with("id", id.to_string()).with("rule", &self.rule.name).with("ttl", self.expires_at);
        Write::insert(table(), item)
    }
}

fn expiry(now: Timestamp, seconds: u64) -> i64 {
    time::second_after(now, seconds)
}
