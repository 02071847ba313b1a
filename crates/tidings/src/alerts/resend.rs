//! Sending an alert's mail again, by hand (S000-45).

use tidings_store::{Condition, Error, Item, Write};

use super::mail::message_id;
use super::{Alerts, record};
use crate::audit::{Action, Audit};
use crate::messages::{Message, Messages};

/// Nobody presses the button more often.
const MOST: u32 = 1000;

/// Why there is nothing to send.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error("there is no alert of this key, or it has expired")]
    Unknown,
    #[error("{0}")]
    Conflict(String),
    #[error(transparent)]
    Store(#[from] Error),
}

/// On whose behalf.
#[derive(Debug, Clone, Copy)]
pub struct By<'a> {
    pub user: &'a str,
    pub correlation_id: &'a str,
}

impl Alerts {
    /// A new message about an alert whose mail has not been sent, to those who are to be told now. Of two who ask at
    /// once one makes it: its id follows from the alert and the number of messages before it (S000-46).
    pub async fn resend(
        &self,
        messages: &Messages,
        audit: &Audit,
        partition: &str,
        sort: &str,
        by: By<'_>,
    ) -> Result<Message, Refused> {
        let record = self.alert(partition, sort).await?.ok_or(Refused::Unknown)?;
        let conflict = |why: &str| Err(Refused::Conflict(why.to_owned()));
        if let Some(account) = record.str(record::SUPPRESSED_BY) {
            return conflict(&format!("the change is by the authorised account {account}, which is never alerted"));
        }
        if record.get("AlertSent") == Some(&true.into()) {
            return conflict("the alert was sent already");
        }
        if record.str(record::DIGEST_PLACE).is_some() {
            return conflict("the alert is told with the next digest; wait for it");
        }
        let digest = match record.str(record::DELIVERY_ID) {
            Some(id) => messages.get(id).await?,
            None => None,
        };
        if digest.is_some_and(|digest| !digest.message.delivery.status.is_final()) {
            return conflict("the alert's digest is still being sent; wait for its outcome");
        }
        let mut number = 0;
        let mut event = event_id(&record);
        while let Some(earlier) = messages.get(&message_id(partition, sort, number).to_string()).await? {
            if !earlier.message.delivery.status.is_final() {
                return conflict("the alert's message is still being sent; wait for its outcome");
            }
            event = event.or(earlier.message.event_id);
            number += 1;
            if number >= MOST {
                return conflict("the alert was sent again too often");
            }
        }
        let now = self.clock.now();
        let Some(message) = self.letterhead().message(&record, event.as_deref(), number, now) else {
            return conflict("nobody is to be told: set process_alerts.recipients first");
        };
        let unsent = Condition::Equals("AlertSent".into(), false.into());
        let mut writes = vec![Write::check(record::table(), record::key(partition, sort), unsent)];
        writes.extend(messages.creation(std::slice::from_ref(&message))?);
        let details =
            serde_json::json!({ "message_id": message.message_id, "recipients": self.letterhead().recipients });
        let action = Action::new("alert.resend", "alert", format!("{partition}/{sort}")).details(details);
        match audit.record_with(by.user, by.correlation_id, action, writes).await {
            Ok(_) => {
                messages.signals.created([&message]);
                Ok(message)
            }
            Err(Error::Conflict { .. }) => conflict("somebody else is sending it again at this moment"),
            Err(error) => Err(error.into()),
        }
    }

    /// The ids of all mails about the alert that an event is, in the order in which they were made.
    pub async fn mails_of(&self, messages: &Messages, event_id: &str) -> Result<Vec<String>, Error> {
        let Some((partition, sort)) = record::place_of(&*self.store, event_id).await? else { return Ok(Vec::new()) };
        let alert = self.store.get(record::table(), &record::key(&partition, &sort)).await?;
        let digest = alert.and_then(|alert| alert.str(record::DELIVERY_ID).map(ToOwned::to_owned));
        let mut mails = Vec::from_iter(digest);
        for number in 0..MOST {
            let id = message_id(&partition, &sort, number).to_string();
            if messages.get(&id).await?.is_none() {
                break;
            }
            mails.push(id);
        }
        Ok(mails)
    }

    /// One alert, whole.
    pub async fn alert(&self, partition: &str, sort: &str) -> Result<Option<Item>, Error> {
        let key = record::key(partition, sort);
        if record::table().check_key(&key).is_err() {
            return Ok(None);
        }
        let Some(mut item) = self.store.get(record::table(), &key).await? else { return Ok(None) };
        super::history::complete(&*self.store, &mut item).await?;
        Ok(Some(item))
    }
}

/// The id of the event that an alert is about, if the record or the event itself says it.
fn event_id(record: &Item) -> Option<String> {
    if let Some(id) = record.str(record::EVENT_ID) {
        return Some(id.to_owned());
    }
    let raw = record.str("RawEventJson")?;
    let fields: tidings_core::json::Fields<'_> = serde_json::from_str(raw).ok()?;
    // As it was read when it came: the last one of a name counts, and `null` is none.
    let text = |name: &str| {
        let found = fields.0.iter().rev().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.and_then(|(_, value)| serde_json::from_str::<String>(value.get()).ok())
    };
    text("id").or_else(|| text("eventId"))
}
