//! What became of an event: the timeline of a correlation id over every table that knows it.

pub mod http;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tidings_core::time;
use tidings_store::query::cursor_of;
use tidings_store::{Error, Item, Query, Store, Table, Value as Attribute};

use crate::audit;
use crate::events::{StoredEvent, record};
use crate::messages::http::MessageView;
use crate::messages::{self, Message};

/// One thing that happened.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Step {
    pub time: String,
    /// `event`, `rule`, `notification`, `bus`, `message` or `audit`.
    pub kind: &'static str,
    pub id: String,
    #[schemars(with = "serde_json::Value")]
    pub details: Box<RawValue>,
}

/// What an item tells, if anything, and when it happened.
type Told = Result<(String, Option<Step>), Error>;

/// A table that has an index `correlation-index` over its items in the order of time.
struct Source {
    kind: &'static str,
    table: Table,
    step: fn(Item) -> Told,
}

pub struct Trace<'a> {
    pub store: &'a dyn Store,
    pub stage: &'a str,
}

impl Trace<'_> {
    /// One page of the timeline; the cursor holds where each source stands.
    pub async fn page(
        &self,
        correlation_id: &str,
        limit: usize,
        after: Option<Item>,
    ) -> Result<(Vec<Step>, Option<Item>), Error> {
        let sources = sources(self.stage);
        let mut found = Vec::new();
        let mut next = after.unwrap_or_default();
        let mut more = false;
        for (place, source) in sources.iter().enumerate() {
            let from = match next.get(source.kind) {
                Some(Attribute::M(cursor)) => Some(Item(cursor.clone())),
                _ => None,
            };
            let query = Query::new(correlation_id).index("correlation-index").limit(limit).after(from);
            let page = self.store.query(&source.table, &query).await?;
            more |= page.next.is_some();
            for item in page.items {
                let index = source.table.index_named("correlation-index")?;
                let cursor = cursor_of(&source.table, Some(index), &item);
                let (time, step) = (source.step)(item)?;
                found.push((place, cursor, time, step));
            }
        }
        found.sort_by(|a, b| a.2.cmp(&b.2).then(a.0.cmp(&b.0)));
        more |= found.len() > limit;
        found.truncate(limit);
        let mut steps = Vec::with_capacity(found.len());
        for (place, cursor, _, step) in found {
            if let Some(source) = sources.get(place) {
                next = next.with(source.kind, cursor);
            }
            steps.extend(step);
        }
        Ok((steps, more.then_some(next)))
    }
}

fn sources(stage: &str) -> Vec<Source> {
    let events = record::table();
    vec![
        Source { kind: "event", table: events.clone(), step: event_step },
        Source { kind: "rule", table: events.clone(), step: rule_step },
        Source { kind: "notification", table: events.clone(), step: notification_step },
        Source { kind: "bus", table: events.clone(), step: bus_step },
        Source { kind: "message", table: messages::record::table(stage), step: message_step },
        Source { kind: "audit", table: audit::table().clone(), step: audit_step },
    ]
}

fn event_step(item: Item) -> Told {
    let event = StoredEvent::from_item(item)?;
    let at = time_of(&event);
    let step = Step { time: at.clone(), kind: "event", id: event.id(), details: event.raw()? };
    Ok((at, Some(step)))
}

/// The rules that an event matched, if any.
fn rule_step(item: Item) -> Told {
    let event = StoredEvent::from_item(item)?;
    let outcome = event.outcome();
    let details = json!({
        "rules": outcome.rules, "no_recipients": outcome.no_recipients, "deduplicated": outcome.deduplicated,
        "suppressed": outcome.suppressed,
        "fanout": outcome.fanout.map(|fanout| fanout.job),
    });
    Ok(followed(&event, "rule", outcome.totals.rules, &details))
}

/// The inbox entries that came of an event, if any.
fn notification_step(item: Item) -> Told {
    let event = StoredEvent::from_item(item)?;
    let outcome = event.outcome();
    let details = json!({ "notifications": outcome.notifications, "total": outcome.totals.notifications });
    Ok(followed(&event, "notification", outcome.totals.notifications, &details))
}

/// The lines of the bus that an event went to by itself, if any: what rules send there are messages.
fn bus_step(item: Item) -> Told {
    let event = StoredEvent::from_item(item)?;
    let went: Vec<Value> = event
        .outcome()
        .queue
        .iter()
        .filter(|sent| sent.channel.starts_with("bus:"))
        .map(|sent| json!({ "entity": sent.entity, "sequence_number": sent.sequence_number, "message_id": sent.message_id }))
        .collect();
    Ok(followed(&event, "bus", went.len() as u64, &json!({ "messages": went })))
}

fn followed(event: &StoredEvent, kind: &'static str, count: u64, details: &Value) -> (String, Option<Step>) {
    let at = time_of(event);
    let step = (count > 0).then(|| Step { time: at.clone(), kind, id: event.id(), details: raw(details) });
    (at, step)
}

fn time_of(event: &StoredEvent) -> String {
    event.at().split('#').next().unwrap_or_default().to_owned()
}

fn message_step(item: Item) -> Told {
    let message = Message::from_item(&item)?;
    let at = time::iso_micros(message.created_date);
    // Messages keep milliseconds; at the end of theirs they come after the event that caused them.
    let end = message.created_date.saturating_add(std::time::Duration::from_micros(999));
    let place = time::iso_micros(end.unwrap_or(message.created_date));
    let id = message.message_id.clone();
    let details = serde_json::to_value(MessageView::from(message)).unwrap_or_default();
    let step = Step { time: at, kind: "message", id, details: raw(&details) };
    Ok((place, Some(step)))
}

fn audit_step(item: Item) -> Told {
    let entry = audit::Entry::from_item(&item)?;
    let details = json!({
        "action": entry.action, "user": entry.user, "entity": entry.entity, "entityId": entry.entity_id,
    });
    let at = time::iso_micros(entry.at);
    let step = Step { time: at.clone(), kind: "audit", id: entry.seq.to_string(), details: raw(&details) };
    Ok((at, Some(step)))
}

fn raw(details: &Value) -> Box<RawValue> {
    RawValue::from_string(details.to_string()).unwrap_or_else(|_| RawValue::NULL.to_owned())
}
