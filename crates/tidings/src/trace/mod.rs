//! What became of an event: the timeline of a correlation id over every table that knows it.

pub mod http;
mod nodes;

pub(crate) use nodes::live_here;

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tidings_core::time;
use tidings_store::query::cursor_of;
use tidings_store::{Error, Item, Query, Store, Table, Value as Attribute};

use crate::alerts;
use crate::audit;
use crate::bus::Bus;
use crate::bus::history::{self, Fate};
use crate::business;
use crate::events::{StoredEvent, record};
use crate::messages::http::MessageView;
use crate::messages::{self, Message};

/// One thing that happened.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Step {
    pub time: String,
    /// `event`, `rule`, `notification`, `message`, `bus` or `audit`.
    pub kind: &'static str,
    pub id: String,
    #[schemars(with = "serde_json::Value")]
    pub details: Box<RawValue>,
}

/// What an item tells, if anything, and when it happened.
type Told = Result<(String, Option<Step>), Error>;

/// One item of a source: where to go on after it, and what it tells.
struct Row {
    cursor: Item,
    time: String,
    step: Option<Step>,
}

/// A source as it is read: rows that are next, and where to ask for more.
struct Line<'a> {
    source: &'a Source,
    rows: VecDeque<Row>,
    from: Option<Item>,
    ended: bool,
}

impl<'a> Line<'a> {
    fn new(source: &'a Source, after: &Item) -> Self {
        let from = match after.get(source.kind) {
            Some(Attribute::M(cursor)) => Some(Item(cursor.clone())),
            _ => None,
        };
        Self { source, rows: VecDeque::new(), from, ended: false }
    }

    /// Reads on, if there is nothing left of what was read.
    async fn fill(&mut self, store: &dyn Store, correlation_id: &str, limit: usize) -> Result<(), Error> {
        let source = self.source;
        while self.rows.is_empty() && !self.ended {
            let query = Query::new(correlation_id).limit(limit + 1).after(self.from.take());
            let query = source.index.into_iter().fold(query, Query::index);
            let page = store.query(&source.table, &query).await?;
            let index = source.index.map(|name| source.table.index_named(name)).transpose()?;
            for item in page.items {
                let cursor = cursor_of(&source.table, index, &item);
                let (time, step) = (source.step)(item)?;
                self.rows.push_back(Row { cursor, time, step });
            }
            self.ended = page.next.is_none();
            self.from = page.next;
        }
        Ok(())
    }
}

/// A table whose items are found by correlation id in the order of time: by its key, or by an index.
struct Source {
    kind: &'static str,
    table: Table,
    index: Option<&'static str>,
    step: fn(Item) -> Told,
}

pub struct Trace<'a> {
    pub store: &'a dyn Store,
    pub stage: &'a str,
    pub bus: &'a Bus,
    /// Messages that wait or are locked on other nodes.
    pub elsewhere: Vec<Fate>,
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
        let mut next = after.unwrap_or_default();
        let mut lines: Vec<Line<'_>> = sources.iter().map(|source| Line::new(source, &next)).collect();
        let mut steps: Vec<Step> = Vec::with_capacity(limit.min(100));
        // Not every row is a step; a page is full when it has as many steps as were asked for, and the last one only if
        // no step comes after it.
        let more = loop {
            for line in &mut lines {
                line.fill(self.store, correlation_id, limit).await?;
            }
            let earliest = |(_, line): &(usize, &mut Line<'_>)| line.rows.front().map(|row| row.time.clone());
            let waiting = lines.iter_mut().enumerate().filter(|(_, line)| !line.rows.is_empty());
            let Some((_, line)) = waiting.min_by_key(|line| (earliest(line), line.0)) else { break false };
            if steps.len() >= limit && line.rows.front().is_some_and(|row| row.step.is_some()) {
                break true;
            }
            if let Some(row) = line.rows.pop_front() {
                next = next.with(line.source.kind, row.cursor);
                let mut step = row.step;
                // A message keeps milliseconds, and stands behind what caused it: it shows no earlier time than that.
                if let (Some(step), Some(last)) = (&mut step, steps.last())
                    && step.time < last.time
                {
                    step.time.clone_from(&last.time);
                }
                steps.extend(step);
            }
        };
        self.add_digests(correlation_id, &mut steps).await?;
        self.add_live(correlation_id, &mut steps, more).await?;
        Ok((steps, more.then_some(next)))
    }

    /// The mails that tell of these events together with others, which have an id of their own.
    async fn add_digests(&self, correlation_id: &str, steps: &mut Vec<Step>) -> Result<(), Error> {
        let is_alert = |step: &&Step| step.kind == "event" && step.details.get().contains(alerts::SOURCE);
        let events: Vec<String> = steps.iter().filter(is_alert).map(|step| step.id.clone()).collect();
        for event_id in events {
            let Some(id) = alerts::digest::told_by(self.store, &event_id).await? else { continue };
            let key = messages::record::key(&id);
            let Some(item) = self.store.get(&messages::record::table(self.stage), &key).await? else { continue };
            // With the same id it is there by itself.
            let known = item.str("correlation_id") == Some(correlation_id)
                || steps.iter().any(|step| step.kind == "message" && step.id == id);
            if let (_, Some(step)) = message_step(item)?
                && !known
            {
                let at = steps.partition_point(|known| known.time <= step.time);
                steps.insert(at, step);
            }
        }
        Ok(())
    }

    /// Messages of the bus that wait or are locked. One that waited before, for its time, has a row, which says so no
    /// longer; the others have none, and come with the last page.
    async fn add_live(&self, correlation_id: &str, steps: &mut Vec<Step>, more: bool) -> Result<(), Error> {
        let mut live = self.bus.live(correlation_id);
        live.extend(self.elsewhere.iter().cloned());
        live.sort_by_cached_key(Fate::place);
        for fate in live {
            let step = bus_step_of(&fate);
            let row = steps.iter_mut().find(|known| known.kind == BUS && is_of(known, &fate));
            if let Some(row) = row {
                *row = step;
            } else if !more && !self.bus.has_row(correlation_id, &fate.place()).await? {
                let at = steps.partition_point(|known| known.time <= step.time);
                steps.insert(at, step);
            }
        }
        Ok(())
    }
}

const BUS: &str = "bus";

fn sources(stage: &str) -> Vec<Source> {
    let index = Some("correlation-index");
    let of_events = |kind, step| Source { kind, table: record::table().clone(), index, step };
    vec![
        of_events("event", event_step),
        of_events("rule", rule_step),
        of_events("notification", notification_step),
        Source { kind: "handled", table: business::handled::table().clone(), index, step: handled_step },
        Source { kind: "message", table: messages::record::table(stage), index, step: message_step },
        Source { kind: BUS, table: history::table().clone(), index: None, step: bus_step },
        Source { kind: "audit", table: audit::table().clone(), index, step: audit_step },
    ]
}

/// What became of a message of the bus (S003-84).
fn bus_step(item: Item) -> Told {
    let step = bus_step_of(&Fate::from_item(&item)?);
    Ok((step.time.clone(), Some(step)))
}

fn bus_step_of(fate: &Fate) -> Step {
    let details = serde_json::to_value(fate).unwrap_or_default();
    Step { time: fate.sent_at.clone(), kind: BUS, id: fate.message_id.clone(), details: raw(&details) }
}

/// Whether a step is about this message.
fn is_of(step: &Step, fate: &Fate) -> bool {
    let details: Value = serde_json::from_str(step.details.get()).unwrap_or_default();
    step.id == fate.message_id
        && step.time == fate.sent_at
        && details.get("path").and_then(Value::as_str) == Some(&fate.path)
        && details.get("sequenceNumber").and_then(Value::as_u64) == Some(fate.sequence_number)
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
        "suppressed": outcome.suppressed, "left_out": outcome.left_out,
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

/// What a handler of a business event put into inboxes. Its messages are messages like others.
fn handled_step(item: Item) -> Told {
    let text = |name: &str| item.str(name).unwrap_or_default().to_owned();
    let outcome = business::handled::outcome_of(&item).unwrap_or_default();
    let details = json!({
        "handler": text("handler"), "notifications": outcome.notifications, "total": outcome.totals.notifications,
    });
    let step = Step { time: text("at"), kind: "notification", id: text("event_id"), details: raw(&details) };
    Ok((text("at"), Some(step)))
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
    let details = serde_json::to_value(MessageView::from(&message)).unwrap_or_default();
    let step = Step { time: at, kind: "message", id: message.message_id, details: raw(&details) };
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
