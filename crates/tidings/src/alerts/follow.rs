//! An alert's `AlertSent`, `AlertFailed` and `RetryCount` follow its message, in the message's own transaction.

use tidings_core::message::Status;
use tidings_store::{Change, Write};

use super::mail::ABOUT;
use super::record;
use crate::messages::{Follower, Message};

pub struct AlertFollower;

impl Follower for AlertFollower {
    /// S000-43, S000-44: a retry follows an attempt that failed.
    fn retried(&self, message: &Message, by: u32) -> Vec<Write> {
        let changes =
            vec![Change::Set("AlertFailed".into(), true.into()), Change::Add("RetryCount".into(), i64::from(by))];
        update(message, changes).into_iter().collect()
    }

    /// S000-42, S000-45: what was sent has not failed, however long it took. `RetryCount` stays.
    fn ended(&self, message: &Message) -> Vec<Write> {
        let changes = if message.delivery.status == Status::Completed {
            let at = message.processing_completed_at.unwrap_or(message.updated_date);
            vec![
                Change::Set("AlertSent".into(), true.into()),
                Change::Set("AlertSentTimestamp".into(), at.as_second().into()),
                Change::Set("AlertFailed".into(), false.into()),
            ]
        } else {
            vec![Change::Set("AlertFailed".into(), true.into())]
        };
        update(message, changes).into_iter().collect()
    }
}

/// The update of the alert that a message is about, if it is about one.
fn update(message: &Message, mut changes: Vec<Change>) -> Option<Write> {
    // Only we make e-mail messages with this field: those of rules and of the API have other payloads, other channels.
    let about = message.payload.get(ABOUT).filter(|_| message.channel == "email" && message.rule.is_none())?;
    let text = |name: &str| about.get(name).and_then(serde_json::Value::as_str);
    let key = record::key(text("PartitionKey")?, text("SortKey")?);
    // No condition: an alert that has expired must not keep its message from ending. With its own expiry, what the
    // update would leave behind in its place is expired as well.
    changes.push(Change::Set("TTL".into(), about.get("TTL")?.as_i64()?.into()));
    Some(Write::update(record::table(), key, changes))
}
