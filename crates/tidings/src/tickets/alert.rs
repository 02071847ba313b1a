//! Tickets that rules open: one for each dedup key while it is on somebody's desk; what comes later becomes a comment, so
//! that a storm of alerts is one ticket (S004-45). A message does so once, however often it is delivered.

use tidings_core::time::Timestamp;
use tidings_store::{Condition, Error, Item, Key, Write};
use uuid::Uuid;

use super::read::{COMMENT_CHARS, DESCRIPTION_CHARS};
use super::{
    NewTicket, Origin, Refused, TRIES, Ticket, Tickets, alerts_table, appending, commented_event, created_event, full,
    is_full, table,
};

/// How long a dedup key leads to its ticket without an alert.
const KEY_SECONDS: i64 = 400 * 86_400;

/// What a rule wants on record.
#[derive(Debug, Clone, Copy)]
pub struct Alert<'a> {
    /// Makes it the same alert when it comes again.
    pub message_id: &'a str,
    pub rule: &'a str,
    pub caller: &'a str,
    /// What makes two alerts one ticket.
    pub dedup_key: &'a str,
    pub title: &'a str,
    pub text: &'a str,
    pub correlation_id: &'a str,
    /// Until when the message is remembered, in seconds since 1970.
    pub remembered_until: i64,
}

/// Where an alert went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raised {
    pub ticket_id: String,
    /// `false`: it became a comment, or it had been raised before.
    pub new: bool,
}

impl Tickets {
    /// Puts an alert on record, in a new ticket or as a comment of the one it belongs to.
    pub async fn raise(&self, alert: Alert<'_>) -> Result<Raised, Refused> {
        self.permitted()?;
        let caller_id = self.callers.id(alert.caller).map_err(|why| Refused::Conflict(format!("the caller {why}")))?;
        let by = format!("rule:{}", alert.rule);
        let origin = Origin::new(&by, alert.correlation_id);
        let key = Uuid::new_v5(
            &Uuid::NAMESPACE_OID,
            format!("ticket\n{}\n{caller_id}\n{}", alert.rule, alert.dedup_key).as_bytes(),
        );
        let key = format!("key#{key}");
        let done = format!("message#{}", alert.message_id);
        for _ in 0..TRIES {
            if let Some(ticket_id) = self.noted(&done).await? {
                return Ok(Raised { ticket_id, new: false });
            }
            let known = self.noted(&key).await?;
            let active = match &known {
                Some(ticket_id) => self.active(ticket_id).await?,
                None => None,
            };
            let event_id = derived("event", alert.message_id);
            // No room for another comment: what comes then begins the next ticket.
            let noted = active.and_then(|(ticket, item)| {
                let text = self.clean(&cut(&words(alert), COMMENT_CHARS));
                let comment = self.next_comment(&ticket, text, &by);
                (!is_full(&item, &comment)).then_some((ticket, item, comment))
            });
            let (raised, event, writes) = match &noted {
                Some((ticket, item, comment)) => {
                    let raised = Raised { ticket_id: ticket.ticket_id.clone(), new: false };
                    let event = commented_event(ticket, comment, origin, event_id);
                    let mut writes = vec![appending(ticket, item, comment)];
                    writes.extend(self.found_by(ticket, origin, comment.added_at));
                    (raised, event, writes)
                }
                None => self.first(alert, &caller_id, origin, &key, known.as_deref()),
            };
            let mark = note(&done, &raised.ticket_id, alert.remembered_until).when(Condition::NotExists);
            let writes = [vec![mark], writes].concat();
            match self.accept(event, writes).await {
                Ok(receipt) if receipt.status == "accepted" => return Ok(raised),
                // The event is known: so is the message, and the next look finds where it went.
                Ok(_) | Err(Error::Conflict { .. }) => {}
                Err(Error::Invalid(why)) => match &noted {
                    // Others have filled the ticket since it was read; the next look sees that.
                    Some((ticket, item, _)) if self.has_changed(&ticket.ticket_id, item).await? => {}
                    _ => return Err(Refused::Conflict(format!("{} ({why})", full()))),
                },
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Throttled("the ticket is contended".to_owned()).into())
    }

    /// The ticket that an alert opens, its event, and the writes that make it and lead its key to it.
    fn first(
        &self,
        alert: Alert<'_>,
        caller_id: &str,
        origin: Origin<'_>,
        key: &str,
        known: Option<&str>,
    ) -> (Raised, tidings_core::envelope::Envelope, Vec<Write>) {
        let new =
            NewTicket { caller_id: caller_id.to_owned(), issue_description: cut(&words(alert), DESCRIPTION_CHARS) };
        let ticket = self.opened(derived("ticket", alert.message_id), new);
        let unmoved = match known {
            Some(ticket_id) => Condition::Equals("ticket_id".into(), ticket_id.into()),
            None => Condition::NotExists,
        };
        let until = key_until(ticket.created_at);
        let mut writes =
            vec![note(key, &ticket.ticket_id, until).when(unmoved), Write::insert(table(), ticket.to_item())];
        writes.extend(self.found_by(&ticket, origin, ticket.created_at));
        let event = created_event(&ticket, origin, derived("event", alert.message_id));
        (Raised { ticket_id: ticket.ticket_id, new: true }, event, writes)
    }

    /// The ticket that a note leads to.
    async fn noted(&self, id: &str) -> Result<Option<String>, Error> {
        let note = self.store.get(alerts_table(), &Key::new(id)).await?;
        Ok(note.and_then(|note| note.str("ticket_id").map(ToOwned::to_owned)))
    }

    async fn active(&self, ticket_id: &str) -> Result<Option<(Ticket, Item)>, Refused> {
        match self.present(ticket_id).await {
            Ok((ticket, item)) if ticket.status.is_active() => Ok(Some((ticket, item))),
            Ok(_) | Err(Refused::Unknown) => Ok(None),
            Err(refused) => Err(refused),
        }
    }
}

fn key_until(now: Timestamp) -> i64 {
    now.as_second().saturating_add(KEY_SECONDS)
}

fn note(id: &str, ticket_id: &str, until: i64) -> Write {
    Write::put(alerts_table(), Item::new().with("id", id).with("ticket_id", ticket_id).with("ttl", until))
}

/// Follows from the message, so that a second delivery writes the same.
fn derived(what: &str, message_id: &str) -> Uuid {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("ticket {what}\n{message_id}").as_bytes())
}

fn words(alert: Alert<'_>) -> String {
    let words =
        if alert.title == alert.text { alert.text.to_owned() } else { format!("{}\n\n{}", alert.title, alert.text) };
    words.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect::<String>().trim().to_owned()
}

fn cut(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}
