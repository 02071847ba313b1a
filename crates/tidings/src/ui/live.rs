//! Events as they come, with what became of each.

use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use maud::{Markup, html};
use serde_json::Value;

use super::door::{Page, Visitor};
use super::layout;
use super::parts::{self, Field, address, event_link, short, time_text, trace_link};
use crate::app::Services;
use crate::events::Filter;
use crate::events::http::{Heard, live, name_param};
use crate::http::{Params, Problem};
use crate::rules::Outcome;
use crate::tokens::Scope;

/// Events on the page before the first new one.
const SHOWN: usize = 50;

pub fn pages() -> Vec<Page> {
    vec![
        Page::new("/ui/live", &[Scope::Read], get(show)).params(&["type"]),
        Page::new("/ui/live/stream", &[Scope::Read], get(stream)).params(&["type"]),
    ]
}

async fn show(State(services): State<Services>, visitor: Visitor, mut params: Params) -> Result<Response, Problem> {
    let event_type = name_param(&mut params, "type");
    params.finish()?;
    let wanted = event_type.clone().unwrap_or_default();
    let filter = Filter { event_type, ..Filter::default() };
    let (events, _) = services.events.page(&filter, SHOWN, None).await?;
    let rows = events.iter().map(|event| row_of(&event.json, Some(&event.outcome()))).collect::<Vec<_>>();
    let fields = [Field { name: "type", label: "Type", value: &wanted, hint: "ticket.*" }];
    let content = html! {
        (parts::filter("/ui/live", &fields, html! {}))
        p.live-state id="live-state" role="status" { "Reload the page to see newer events." }
        (frame_of(&rows, Some(&address("/ui/live/stream", &[("type", &wanted)]))))
        @if rows.is_empty() { (nothing()) }
    };
    Ok(layout::page(&visitor, "/ui/live", "Live", content).into_response())
}

fn nothing() -> Markup {
    parts::empty(
        "No events yet",
        html! { "Send one: " code { "echo '{\"eventType\":\"hello.world\"}' | tidings send -" } },
    )
}

/// The latest events as a table.
pub async fn table(services: &Services, most: usize) -> Result<Markup, Problem> {
    let (events, _) = services.events.page(&Filter::default(), most, None).await?;
    let rows: Vec<_> = events.iter().map(|event| row_of(&event.json, Some(&event.outcome()))).collect();
    Ok(if rows.is_empty() { nothing() } else { frame_of(&rows, None) })
}

fn frame_of(rows: &[Markup], stream: Option<&str>) -> Markup {
    html! {
        table.cards id=[stream.map(|_| "live")] data-stream=[stream] {
            thead { tr { th { "Time" } th { "Type" } th { "Source" } th { "Event" } th { "What became of it" } th { "Trace" } } }
            tbody { @for row in rows { (row) } }
        }
    }
}

/// An event's row; `json` is its envelope, with its outcome inside it unless it is given.
#[must_use]
pub fn row_of(json: &str, outcome: Option<&Outcome>) -> Markup {
    let event: Value = serde_json::from_str(json).unwrap_or_default();
    let text = |name: &str| event.get(name).and_then(Value::as_str).unwrap_or_default();
    let inside = || event.get("outcome").and_then(|inside| serde_json::from_value(inside.clone()).ok());
    let outcome = outcome.cloned().or_else(inside).unwrap_or_default();
    html! {
        tr {
            td data-label="Time" { (time_text(text("eventTimestamp"))) }
            td data-label="Type" { a href=(address("/ui/events", &[("type", text("eventType"))])) { (short(text("eventType"), 60)) } }
            td data-label="Source" { (short(text("source"), 40)) }
            td data-label="Event" { (event_link(text("eventId"))) }
            td data-label="What became of it" { (summary(&outcome)) }
            td data-label="Trace" { (trace_link(text("correlationId"))) }
        }
    }
}

/// An outcome in a few words.
#[must_use]
pub fn summary(outcome: &Outcome) -> Markup {
    let totals = &outcome.totals;
    let count = |n: u64, one: &str, many: &str| match n {
        1 => format!("1 {one}"),
        n => format!("{n} {many}"),
    };
    html! {
        @if totals.rules == 0 && totals.messages == 0 { span.faint { "stored" } }
        @else {
            span.tags {
                @if totals.rules > 0 { span.tag { (count(totals.rules, "rule", "rules")) } }
                @if totals.notifications > 0 { span.tag { (count(totals.notifications, "inbox entry", "inbox entries")) } }
                @if totals.messages > 0 { span.tag { (count(totals.messages, "message", "messages")) } }
                @if outcome.fanout.is_some() { span.tag { "fan-out" } }
                @if !outcome.no_recipients.is_empty() { span.tag.warn { "nobody to tell" } }
                @if !outcome.deduplicated.is_empty() { span.tag { "not repeated" } }
            }
        }
    }
}

/// A frame of a stream: an event's name and its lines.
#[must_use]
pub fn frame(name: &str, text: &str) -> String {
    let lines: String = text.split(['\n', '\r']).map(|line| format!("data: {line}\n")).collect();
    format!("event: {name}\n{lines}\n")
}

async fn stream(
    State(services): State<Services>,
    visitor: Visitor,
    uri: Uri,
    headers: HeaderMap,
    params: Params,
) -> Result<Response, Problem> {
    live(services, &visitor.session.caller, &uri, &headers, params, |heard| match heard {
        Heard::Event(event) => frame("row", &row_of(&event.json, None).into_string()),
        Heard::Gap(missed) => frame("gap", &missed.to_string()),
    })
    .await
}
