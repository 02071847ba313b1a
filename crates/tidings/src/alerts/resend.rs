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
        while let Some(earlier) = messages.get(&message_id(partition, sort, number).to_string()).await? {
            if !earlier.message.delivery.status.is_final() {
                return conflict("the alert's message is still being sent; wait for its outcome");
            }
            number += 1;
            if number >= MOST {
                return conflict("the alert was sent again too often");
            }
        }
        let now = self.clock.now();
        let Some(message) = self.letterhead().message(&record, event_id(&record), number, now) else {
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

/// The id of the event that an alert is about, if the event says it.
fn event_id(record: &Item) -> Option<&str> {
    // Without an escape in it, an id stands in the raw event as it is.
    let raw = record.str("RawEventJson")?;
    let fields: tidings_core::json::Fields<'_> = serde_json::from_str(raw).ok()?;
    let (_, id) = fields.0.iter().find(|(name, _)| name.eq_ignore_ascii_case("id"))?;
    serde_json::from_str::<&str>(id.get()).ok()
}
