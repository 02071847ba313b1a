//! An alert's `AlertSent`, `AlertFailed` and `RetryCount` follow its message, in the message's own transaction.

use serde_json::Value;
use tidings_core::message::Status;
use tidings_store::{Change, Write};

use super::digest::ABOUT_MANY;
use super::mail::ABOUT;
use super::record;
use crate::messages::{Follower, Message};

pub struct AlertFollower;

impl Follower for AlertFollower {
    /// S000-43, S000-44: a retry follows an attempt that failed.
    fn retried(&self, message: &Message, by: u32) -> Vec<Write> {
        if !may_be_about_alerts(message) {
            return Vec::new();
        }
        let changes =
            vec![Change::Set("AlertFailed".into(), true.into()), Change::Add("RetryCount".into(), i64::from(by))];
        update(message, &changes)
    }

    /// S000-42, S000-45: what was sent has not failed, however long it took. `RetryCount` stays.
    fn ended(&self, message: &Message) -> Vec<Write> {
        if !may_be_about_alerts(message) {
            return Vec::new();
        }
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
        update(message, &changes)
    }
}

/// Only we make e-mail messages with these fields: those of rules and of the API have other payloads, other channels.
fn may_be_about_alerts(message: &Message) -> bool {
    message.channel == "email" && message.rule.is_none()
}

/// The updates of the alerts that a message is about, if it is about any: of one, or of all those in a digest (S000-48).
fn update(message: &Message, changes: &[Change]) -> Vec<Write> {
    let many = message.payload.get(ABOUT_MANY).and_then(Value::as_array);
    let about = message.payload.get(ABOUT).into_iter().chain(many.into_iter().flatten());
    about.filter_map(|about| update_one(about, changes)).collect()
}

fn update_one(about: &Value, changes: &[Change]) -> Option<Write> {
    let text = |name: &str| about.get(name).and_then(Value::as_str);
    let key = record::key(text("PartitionKey")?, text("SortKey")?);
    // No condition: an alert that has expired must not keep its message from ending. With its own expiry, what the
    // update would leave behind in its place is expired as well.
    let ttl = Change::Set("TTL".into(), about.get("TTL")?.as_i64()?.into());
    Some(Write::update(record::table(), key, changes.iter().cloned().chain([ttl]).collect()))
}
