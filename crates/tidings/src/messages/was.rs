//! A message as it was made, for its first change: what is stored of it follows from the message itself, and need not be
//! put together to be compared with what it becomes.

use tidings_core::message::Status;
use tidings_core::time::{Timestamp, iso_millis};
use tidings_store::{Change, Item};

use super::record::{Message, cancel_part};

/// Of a message that was just stored, what a change can touch.
#[derive(Debug, Clone, Copy)]
pub struct Was {
    pub revision: i64,
    retry_count: u32,
    ttl: i64,
    deliver_at: Timestamp,
    updated_date: Timestamp,
}

impl Was {
    /// Nothing has happened to it yet.
    pub const STATUS: Status = Status::Created;

    /// What there is to say of a message that waits for its first attempt, and nothing else has happened to. `None` if
    /// there is more.
    pub fn of(message: &Message) -> Option<Self> {
        let delivery = &message.delivery;
        let is_plain = delivery.status == Self::STATUS
            && delivery.next_attempt_at.is_none()
            && delivery.error_message.is_none()
            && delivery.notification_id.is_none()
            && delivery.attempts.is_empty()
            && message.recipients.is_empty()
            && message.lease.is_none()
            && message.put_off_by.is_none()
            && [message.processing_started_at, message.processing_completed_at, message.queued_at] == [None; 3];
        is_plain.then_some(Self {
            revision: message.revision,
            retry_count: delivery.retry_count,
            ttl: message.ttl,
            deliver_at: message.deliver_at,
            updated_date: message.updated_date,
        })
    }

    /// Those of the message's attributes that a change can touch, as they are stored.
    pub fn item(&self, message: &Message) -> Item {
        Item::new()
            .with_some("cancel_key", message.cancel_key.as_ref().map(|key| cancel_part(key, false)))
            .with_some("deliver_at", (self.deliver_at > message.created_date).then(|| iso_millis(self.deliver_at)))
            .with("due", message.due_part())
            .with("next_attempt_at", iso_millis(self.deliver_at))
            .with("retry_count", self.retry_count)
            .with("revision", self.revision)
            .with("status", Self::STATUS.as_str())
            .with("ttl", self.ttl)
            .with("updated_date", iso_millis(self.updated_date))
    }

    /// The changes that make of it a message that has ended, whose attributes are `new`: it is due no more.
    pub fn ended(&self, message: &Message, new: Item) -> Vec<Change> {
        debug_assert!(message.delivery.status.is_final() && message.deliver_at == self.deliver_at, "nobody put it off");
        let stays = |name: &str| match name {
            "deliver_at" => true,
            "retry_count" => message.delivery.retry_count == self.retry_count,
            "ttl" => message.ttl == self.ttl,
            "updated_date" => message.updated_date == self.updated_date,
            _ => false,
        };
        let mut changes = Vec::with_capacity(new.0.len() + 2);
        // In the order of their names, in which the store wants them.
        let mut gone = ["due", "next_attempt_at"].into_iter().peekable();
        for (name, value) in new.0.into_iter().filter(|(name, _)| !stays(name)) {
            while let Some(gone) = gone.next_if(|gone| *gone < &*name) {
                changes.push(Change::Remove(gone.into()));
            }
            changes.push(Change::Set(name, value));
        }
        changes.extend(gone.map(|name| Change::Remove(name.into())));
        changes
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use serde_json::{Map, json};
    use tidings_core::message::{Input, Verdict};
    use tidings_core::retry::Policy;
    use tidings_core::time::ManualClock;
    use tidings_store::memory::Memory;
    use tidings_store::{Store, Write};
    use uuid::Uuid;

    use super::*;
    use crate::messages::transition::Stored;
    use crate::messages::{NewMessage, record};

    fn message(deliver_at: Option<&str>) -> Message {
        let new = NewMessage {
            message_id: Uuid::from_u128(7),
            created_by: "scheduler".to_owned(),
            stage: "dev",
            message_type: "reminder",
            payload: Map::from_iter([("text".to_owned(), json!("x"))]),
            correlation_id: "c-1",
            channel: "ntfy",
            target: Map::new(),
            secret: None,
            event_id: None,
            rule: None,
            deliver_at: deliver_at.map(|at| at.parse().unwrap()),
            keep_seconds: 90 * 86_400,
        };
        Message::new(new, "2026-01-02T03:04:05.678Z".parse().unwrap())
    }

    #[test]
    fn what_was_made_has_the_attributes_that_are_stored() {
        for deliver_at in [None, Some("2026-01-02T05:00:00Z")] {
            for cancel_key in [None, Some("k".to_owned())] {
                let made = Message { cancel_key, ..message(deliver_at) };
                let was = Was::of(&made).unwrap();
                assert_eq!(was.item(&made), made.moving().unwrap());
                // Also once it has become something else.
                let mut later = Message { revision: 3, queued_at: Some(made.created_date), ..made.clone() };
                later.delivery.status = Status::Queued;
                assert_eq!(was.item(&later), made.moving().unwrap());
                assert!(Was::of(&later).is_none(), "more has happened to it");
            }
        }
    }

    /// What is stored of a message after its inputs, which come as one change.
    async fn stored_after(made: &Message, was_read: bool, inputs: &[Input]) -> Item {
        let table = record::table(&made.stage);
        let store = Memory::new(Arc::new(ManualClock::new(made.created_date)));
        store.transact(vec![Write::insert(&table, made.to_item().unwrap())]).await.unwrap();
        let key = record::key(&made.message_id);
        let stored = match was_read {
            true => Box::new(Stored::read(store.get(&table, &key).await.unwrap().unwrap()).unwrap()),
            false => Stored::just_made(made.clone()).unwrap(),
        };
        let later = made.deliver_at.saturating_add(Duration::from_secs(1)).unwrap();
        let inputs = inputs.iter().map(|input| (input.clone(), later));
        let transition = stored.transition(&table, &Policy::default(), inputs, &[], |_| {}).unwrap();
        let own = transition.writes.into_iter().find(|write| write.table().name() == table.name()).unwrap();
        store.transact(vec![own]).await.unwrap();
        store.get(&table, &key).await.unwrap().unwrap()
    }

    #[tokio::test]
    async fn whether_it_was_read_or_made_the_same_becomes_of_it() {
        let ended = |verdict| Input::Ended { verdict, random: 7 };
        let error = || "503".to_owned();
        let delivered = ended(Verdict::Delivered { notification_id: Some("n".to_owned()) });
        let retry = ended(Verdict::Retry { after: None, error: error(), code: None });
        let rejected = ended(Verdict::Reject { error: error(), code: Some(400) });
        for inputs in [
            vec![Input::TakenUp, delivered],
            vec![Input::TakenUp, retry],
            vec![Input::TakenUp, rejected],
            vec![Input::Queued],
            vec![Input::TakenUp],
            vec![Input::Expired],
            vec![Input::Cancelled],
        ] {
            for deliver_at in [None, Some("2026-01-02T05:00:00Z")] {
                for cancel_key in [None, Some("k".to_owned())] {
                    let made = Message { cancel_key, ..message(deliver_at) };
                    let after = stored_after(&made, false, &inputs).await;
                    assert_eq!(after, stored_after(&made, true, &inputs).await, "{inputs:?}");
                }
            }
        }
    }
}
