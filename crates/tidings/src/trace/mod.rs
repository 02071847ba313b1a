//! What became of an event: the timeline of a correlation id over every table that knows it.

pub mod http;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use tidings_core::time;
use tidings_store::query::cursor_of;
use tidings_store::{Error, Item, Query, Store, Table, Value};

use crate::audit;
use crate::events::{StoredEvent, record};
use crate::messages::Message;
use crate::messages::http::MessageView;

/// One thing that happened.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Step {
    pub time: String,
    /// `event`, `message` or `audit`.
    pub kind: &'static str,
    pub id: String,
    #[schemars(with = "serde_json::Value")]
    pub details: Box<RawValue>,
}

/// A table that has an index `correlation-index` over its items in the order of time.
struct Source {
    kind: &'static str,
    table: Table,
    step: fn(Item) -> Result<Step, Error>,
}

pub struct Trace<'a> {
    pub store: &'a dyn Store,
    /// The messages', which is named after the stage.
    pub messages: &'a Table,
}

impl Trace<'_> {
    /// One page of the timeline; the cursor holds where each source stands.
    pub async fn page(
        &self,
        correlation_id: &str,
        limit: usize,
        after: Option<Item>,
    ) -> Result<(Vec<Step>, Option<Item>), Error> {
        let sources = self.sources();
        let mut found = Vec::new();
        let mut next = after.unwrap_or_default();
        let mut more = false;
        for (place, source) in sources.iter().enumerate() {
            let from = match next.get(source.kind) {
                Some(Value::M(cursor)) => Some(Item(cursor.clone())),
                _ => None,
            };
            let query = Query::new(correlation_id).index("correlation-index").limit(limit).after(from);
            let page = self.store.query(&source.table, &query).await?;
            more |= page.next.is_some();
            for item in page.items {
                let index = source.table.index_named("correlation-index")?;
                let cursor = cursor_of(&source.table, Some(index), &item);
                found.push((place, cursor, (source.step)(item)?));
            }
        }
        found.sort_by(|a, b| a.2.time.cmp(&b.2.time).then(a.0.cmp(&b.0)));
        more |= found.len() > limit;
        found.truncate(limit);
        let mut steps = Vec::with_capacity(found.len());
        for (place, cursor, step) in found {
            if let Some(source) = sources.get(place) {
                next = next.with(source.kind, cursor);
            }
            steps.push(step);
        }
        Ok((steps, more.then_some(next)))
    }

    fn sources(&self) -> Vec<Source> {
        vec![
            Source { kind: "event", table: record::table().clone(), step: event_step },
            Source { kind: "message", table: self.messages.clone(), step: message_step },
            Source { kind: "audit", table: audit::table().clone(), step: audit_step },
        ]
    }
}

/// A message with its attempts.
fn message_step(item: Item) -> Result<Step, Error> {
    let message = Message::from_item(&item)?;
    let (time, id) = (time::iso_micros(message.created_date), message.message_id.clone());
    let details = serde_json::value::to_raw_value(&MessageView::from(message));
    Ok(Step { time, kind: "message", id, details: details.unwrap_or_else(|_| RawValue::NULL.to_owned()) })
}

fn event_step(item: Item) -> Result<Step, Error> {
    let event = StoredEvent::from_item(item)?;
    let at = event.at().split('#').next().unwrap_or_default().to_owned();
    #[derive(serde::Deserialize)]
    struct Id {
        #[serde(rename = "eventId")]
        event_id: String,
    }
    let id = serde_json::from_str::<Id>(&event.json).map(|id| id.event_id).unwrap_or_default();
    Ok(Step { time: at, kind: "event", id, details: event.raw()? })
}

fn audit_step(item: Item) -> Result<Step, Error> {
    let entry = audit::Entry::from_item(&item)?;
    let details = serde_json::json!({
        "action": entry.action, "user": entry.user, "entity": entry.entity, "entityId": entry.entity_id,
    });
    let details = RawValue::from_string(details.to_string()).unwrap_or_else(|_| RawValue::NULL.to_owned());
    Ok(Step { time: time::iso_micros(entry.at), kind: "audit", id: entry.seq.to_string(), details })
}
