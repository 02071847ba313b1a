//! What came of one event up to now: what was stored with it, and what has become of that since.

use std::collections::BTreeMap;

use tidings_core::message::Status;
use tidings_store::{Error, Query};

use super::StoredEvent;
use crate::alerts;
use crate::app::Services;
use crate::business::{self, service_requests::notify};
use crate::http::Problem;
use crate::messages::Message;
use crate::rules::outcome::Sent;
use crate::rules::{Outcome, fanout};

/// Messages of one correlation id among which those are looked for that were sent again.
const LOOKED_AT: usize = 10_000;

/// What came of an event up to now.
pub async fn outcome(services: &Services, event: &StoredEvent) -> Result<Outcome, Problem> {
    let mut outcome = event.outcome();
    fanout::progress(&*services.store, &mut outcome).await?;
    handled(services, event, &mut outcome).await?;
    mailed(services, event, &mut outcome).await?;
    let mut again = Again { services, of_event: event.correlation_id().to_owned(), known: BTreeMap::new() };
    let mut added = 0;
    for list in [&mut outcome.messages, &mut outcome.queue, &mut outcome.tickets] {
        added += again.follow_up(list).await?;
    }
    outcome.totals.messages += added;
    Ok(outcome)
}

/// Adds what the handler of a business event told.
async fn handled(services: &Services, event: &StoredEvent, outcome: &mut Outcome) -> Result<(), Problem> {
    if business::Kind::of_type(event.event_type()) != Some(business::Kind::StatusChanged) {
        return Ok(());
    }
    let told = business::handled::outcome(&*services.store, notify::HANDLER, event.source(), &event.id()).await?;
    if let Some(told) = told {
        outcome.totals.notifications += told.totals.notifications;
        outcome.totals.messages += told.totals.messages;
        outcome.notifications.extend(told.notifications);
        outcome.messages.extend(told.messages);
    }
    Ok(())
}

/// Adds the mails about an alert that were made after it: one that tells of it together with others (S000-48), and those
/// that somebody sent by hand (S000-45).
async fn mailed(services: &Services, event: &StoredEvent, outcome: &mut Outcome) -> Result<(), Problem> {
    if event.source() != Some(alerts::SOURCE) {
        return Ok(());
    }
    for message_id in services.alerts.mails_of(&services.messages, &event.id()).await? {
        if !outcome.messages.iter().any(|known| known.message_id == message_id) {
            outcome.totals.messages += 1;
            outcome.messages.push(Sent { message_id, channel: "email".to_owned(), ..Sent::default() });
        }
    }
    Ok(())
}

/// Looks for messages that took the place of others. Only what failed is sent again, and with the same correlation id.
struct Again<'a> {
    services: &'a Services,
    of_event: String,
    /// Of each correlation id that was looked at, those messages that were sent again.
    known: BTreeMap<String, Vec<Message>>,
}

impl Again<'_> {
    /// Completes a list with what became of its messages, and with those that took their places; says how many.
    async fn follow_up(&mut self, list: &mut Vec<Sent>) -> Result<u64, Error> {
        let (mut place, mut added) = (0, 0);
        while let Some(sent) = list.get_mut(place) {
            place += 1;
            let stored = self.services.messages.get(&sent.message_id).await?;
            let correlation_id = match stored {
                Some(stored) => {
                    let message = stored.message;
                    let failed = message.delivery.status == Status::Failed;
                    show(sent, &message);
                    failed.then_some(message.correlation_id)
                }
                // It has expired, and its dead letter may have been sent again; what is on the bus is no message.
                None => sent.entity.is_none().then(|| self.of_event.clone()),
            };
            let Some(correlation_id) = correlation_id else { continue };
            let failed = sent.message_id.clone();
            let again = self.of(correlation_id).await?.iter();
            for message in again.filter(|message| message.retry_of.as_deref() == Some(&failed)) {
                let (rule, channel) = (message.rule.clone().unwrap_or_default(), message.channel.clone());
                let message_id = message.message_id.clone();
                if !list.iter().any(|known| known.message_id == message_id) {
                    added += 1;
                    list.push(Sent { message_id, rule, channel, ..Sent::default() });
                }
            }
        }
        Ok(added)
    }

    async fn of(&mut self, correlation_id: String) -> Result<&[Message], Error> {
        if !self.known.contains_key(&correlation_id) {
            let again = self.read(&correlation_id).await?;
            self.known.insert(correlation_id.clone(), again);
        }
        Ok(self.known.get(&correlation_id).map(Vec::as_slice).unwrap_or_default())
    }

    async fn read(&self, correlation_id: &str) -> Result<Vec<Message>, Error> {
        let (mut again, mut after, mut looked_at) = (Vec::new(), None, 0);
        loop {
            let query = Query::new(correlation_id).index("correlation-index").after(after);
            let page = self.services.store.query(&self.services.messages.table, &query.limit(1000)).await?;
            looked_at += page.items.len();
            for item in page.items.iter().filter(|item| item.str("retry_of").is_some()) {
                again.push(Message::from_item(item)?);
            }
            after = page.next;
            if after.is_none() || looked_at >= LOOKED_AT {
                return Ok(again);
            }
        }
    }
}

fn show(sent: &mut Sent, message: &Message) {
    let delivery = &message.delivery;
    sent.status = Some(delivery.status.as_str().to_owned());
    sent.ticket_id = delivery.notification_id.clone().filter(|_| sent.channel == "ticket");
    sent.attempts = Some(delivery.attempts.clone());
    sent.retry_of.clone_from(&message.retry_of);
}
