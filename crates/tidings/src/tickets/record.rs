//! A ticket as it is stored: exactly the seed's attributes (S004-05 to S004-16).

use std::sync::LazyLock;

use tidings_core::time::{self, Timestamp};
use tidings_store::{Attributes, Error, Item, Key, KeyKind, Table, Value};

use super::status::Status;

pub const CALLERS: &str = "CallerIdIndex";
/// Only a closed ticket has it: the second at which it ceases to exist (S004-44).
pub const EXPIRY: &str = "expires_at";

/// The seed's table, with its keys and its index.
#[must_use]
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        Table::new("poc-itsm-tickets", "ticket_id", KeyKind::S)
            .index(CALLERS, ("caller_id".into(), KeyKind::S), Some(("created_at".into(), KeyKind::S)))
            .ttl(EXPIRY)
    });
    &TABLE
}

/// What rules remember of the tickets they made: which ticket a dedup key leads to, and which messages are done.
#[must_use]
pub fn alerts_table() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(|| Table::new("tidings-ticket-alerts", "id", KeyKind::S).ttl("ttl"));
    &TABLE
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    pub ticket_id: String,
    /// A session's id, or the keyed hash of a phone number.
    pub caller_id: String,
    pub issue_description: String,
    pub status: Status,
    pub created_at: Timestamp,
    /// Never before the last comment (S004-25).
    pub updated_at: Timestamp,
    pub comments: Vec<Comment>,
    /// Set when it is closed.
    pub expires_at: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comment {
    pub comment_text: String,
    pub added_at: Timestamp,
    /// Whose credential it was; what others put into the table has none (S004-15).
    pub author: Option<String>,
}

#[must_use]
pub fn key(ticket_id: &str) -> Key {
    Key::new(ticket_id)
}

/// A moment as tickets keep it: microseconds count, no more.
#[must_use]
pub fn to_micros(at: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(at.as_microsecond()).unwrap_or(at)
}

impl Comment {
    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut fields = Attributes::from([
            ("comment_text".into(), Value::from(&self.comment_text)),
            ("added_at".into(), Value::from(time::iso_micros(self.added_at))),
        ]);
        if let Some(author) = &self.author {
            fields.insert("author", author);
        }
        Value::M(fields)
    }

    fn read(value: &Value) -> Option<Self> {
        let Value::M(fields) = value else { return None };
        let text = |name: &str| fields.get(name).and_then(Value::as_str);
        Some(Self {
            comment_text: text("comment_text")?.to_owned(),
            added_at: text("added_at")?.parse().ok().map(to_micros)?,
            author: text("author").map(ToOwned::to_owned),
        })
    }
}

impl Ticket {
    #[must_use]
    pub fn to_item(&self) -> Item {
        Item::new()
            .with("ticket_id", &self.ticket_id)
            .with("caller_id", &self.caller_id)
            .with("issue_description", &self.issue_description)
            .with("status", self.status.as_str())
            .with("created_at", time::iso_micros(self.created_at))
            .with("updated_at", time::iso_micros(self.updated_at))
            .with("comments", self.comments.iter().map(Comment::to_value).collect::<Vec<_>>())
            .with_some(EXPIRY, self.expires_at)
    }

    /// The ticket an item holds. What lacks a required attribute is none: a ghost, as a bare update leaves it (S004-23).
    pub fn from_item(item: &Item) -> Result<Option<Self>, Error> {
        if ["caller_id", "issue_description", "created_at"].iter().any(|name| item.get(name).is_none()) {
            return Ok(None);
        }
        read(item).map(Some).ok_or_else(|| Error::Corrupt("a stored ticket cannot be read".to_owned()))
    }
}

fn read(item: &Item) -> Option<Ticket> {
    let text = |name: &str| item.str(name).map(ToOwned::to_owned);
    // Others may have written with another precision (S004-26).
    let at = |name: &str| item.str(name).and_then(|text| text.parse().ok()).map(to_micros);
    let created_at = at("created_at")?;
    let comments = match item.get("comments") {
        None => Vec::new(),
        Some(Value::L(list)) => list.iter().map(Comment::read).collect::<Option<Vec<_>>>()?,
        Some(_) => return None,
    };
    let last = comments.iter().map(|comment| comment.added_at).max();
    let updated_at = at("updated_at").unwrap_or(created_at).max(last.unwrap_or(created_at));
    Some(Ticket {
        ticket_id: text("ticket_id")?,
        caller_id: text("caller_id")?,
        issue_description: text("issue_description")?,
        status: Status::parse(item.str("status").unwrap_or("open"))?,
        created_at,
        updated_at,
        comments,
        expires_at: item.int(EXPIRY),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sample() -> Item {
        let sample = json!({
            "ticket_id": "1d8d2fe2-4543-4e6d-aad0-9deed9d57070", "caller_id": "poc-user-001",
            "issue_description": "Email not working in Outlook", "status": "open",
            "created_at": "2026-02-09T12:32:57.917604Z", "updated_at": "2026-02-09T12:35:00.123456Z",
            "comments": [
                { "comment_text": "Tried restarting Outlook but still not working", "added_at": "2026-02-09T12:35:00.123456Z" },
                { "comment_text": "Checked internet connection - it's working fine", "added_at": "2026-02-09T12:36:30.789012Z" },
            ],
        });
        Item::from_record(&sample).unwrap()
    }

    // S004-31; S004-25: the sample's updated_at lies before its last comment, and is put right.
    #[test]
    fn the_seeds_sample_comes_back_as_it_is() {
        let ticket = Ticket::from_item(&sample()).unwrap().unwrap();
        let expected = sample().with("updated_at", "2026-02-09T12:36:30.789012Z");
        assert_eq!(ticket.to_item(), expected);
        table().check_item(&ticket.to_item()).unwrap();
    }

    // S004-39: the seed's attributes, no more.
    #[test]
    fn a_ticket_has_exactly_the_seeds_attributes() {
        let names: Vec<_> =
            Ticket::from_item(&sample()).unwrap().unwrap().to_item().0.into_iter().map(|(name, _)| name).collect();
        let seed = ["caller_id", "comments", "created_at", "issue_description", "status", "ticket_id", "updated_at"];
        assert_eq!(names, seed);
    }

    // S004-22, S004-26
    #[test]
    fn what_others_wrote_can_be_read() {
        let mut item = sample().with("created_at", "2026-02-09T12:32:57Z");
        item.0.remove("comments");
        let ticket = Ticket::from_item(&item).unwrap().unwrap();
        assert_eq!(ticket.to_item().str("created_at"), Some("2026-02-09T12:32:57.000000Z"));
        assert_eq!(ticket.comments, []);
    }

    // S004-23
    #[test]
    fn a_ghost_is_no_ticket() {
        let ghost = json!({
            "ticket_id": "1d8d2fe2-4543-4e6d-aad0-9deed9d57070", "updated_at": "2026-02-09T12:35:00Z",
            "comments": [{ "comment_text": "?", "added_at": "2026-02-09T12:35:00Z" }],
        });
        assert_eq!(Ticket::from_item(&Item::from_record(&ghost).unwrap()).unwrap(), None);
        let broken = sample().with("status", "elsewhere");
        assert!(Ticket::from_item(&broken).is_err());
    }
}
