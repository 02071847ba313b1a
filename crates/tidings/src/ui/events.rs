//! Stored events, and one of them with everything that came of it.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use maud::{Markup, html};
use serde_json::Value;

use super::door::{Page, Visitor};
use super::parts::{
    self, Field, address, asked_for, badge, facts, message_link, rule_name, time, time_text, trace_link,
};
use super::{layout, live};
use crate::app::Services;
use crate::events::http::{name_param, outcome};
use crate::events::{Filter, StoredEvent};
use crate::http::{End, Params, Problem, paging};
use crate::rules::outcome::Sent;
use crate::rules::{Book, Outcome};
use crate::tokens::Scope;

const PAGE: usize = 50;

pub fn pages() -> Vec<Page> {
    vec![
        Page::new("/ui/events", &[Scope::Read], get(list)).params(&[
            "type",
            "source",
            "correlationId",
            "from",
            "to",
            "cursor",
        ]),
        Page::new("/ui/events/{eventId}", &[Scope::Read], get(show)).params(&["source"]),
        Page::new("/ui/by-id/events", &[Scope::Read], get(show)).params(&["id", "source"]),
    ]
}

async fn list(State(services): State<Services>, visitor: Visitor, mut params: Params) -> Result<Response, Problem> {
    let given = |params: &Params, name: &str| params.text(name).unwrap_or_default().to_owned();
    let (from, to) = (given(&params, "from"), given(&params, "to"));
    let filter = Filter {
        event_type: name_param(&mut params, "type"),
        source: name_param(&mut params, "source"),
        correlation_id: name_param(&mut params, "correlationId"),
        from: params.time("from", End::Start),
        to: params.time("to", End::Finish),
    };
    let cursor = params.text("cursor").map(ToOwned::to_owned);
    params.finish()?;
    let context = paging::context(visitor.caller(), "/ui/events", &filter);
    let after = paging::open(&services.sealer, &context, cursor.as_deref())?;
    let (events, next) = services.events.page(&filter, PAGE, after).await?;
    let next = paging::seal(&services.sealer, &context, next.as_ref());
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let (event_type, source, correlation) =
        (text(&filter.event_type), text(&filter.source), text(&filter.correlation_id));
    let query = [
        ("type", event_type.as_str()),
        ("source", &source),
        ("correlationId", &correlation),
        ("from", &from),
        ("to", &to),
    ];
    let fields = [
        Field { name: "type", label: "Type", value: &event_type, hint: "ticket.*" },
        Field { name: "source", label: "Source", value: &source, hint: "service-desk" },
        Field { name: "correlationId", label: "Correlation id", value: &correlation, hint: "" },
        Field { name: "from", label: "From", value: &from, hint: "2026-01-31" },
        Field { name: "to", label: "To", value: &to, hint: "2026-01-31" },
    ];
    let content = html! {
        (parts::filter("/ui/events", &fields, html! {}))
        @if events.is_empty() { (nothing(&query)) }
        @else {
            table.cards {
                thead { tr { th { "Time" } th { "Type" } th { "Source" } th { "Event" } th { "What became of it" } th { "Trace" } } }
                tbody { @for event in &events { (live::row_of(&event.json, Some(&event.outcome()))) } }
            }
            (parts::pager("/ui/events", &query, cursor.as_deref(), next))
        }
    };
    Ok(layout::page(&visitor, "/ui/events", "Events", content).into_response())
}

fn nothing(query: &[(&str, &str)]) -> Markup {
    if query.iter().any(|(_, value)| !value.is_empty()) {
        return parts::empty("No event fits the filter", html! { a href="/ui/events" { "Show all events" } });
    }
    let hint = html! { "Send one: " code { "echo '{\"eventType\":\"hello.world\"}' | tidings send -" } };
    parts::empty("No events yet", hint)
}

async fn show(
    State(services): State<Services>,
    visitor: Visitor,
    path: Option<Path<String>>,
    mut params: Params,
) -> Result<Response, Problem> {
    let event_id = asked_for(path, &params);
    let source = name_param(&mut params, "source");
    params.finish()?;
    let event = services.events.get(&event_id, source.as_deref()).await?;
    let event = event.ok_or_else(|| Problem::not_found("there is no event of this id, or it has expired"))?;
    let outcome = outcome(&services, &event).await?;
    let title = serde_json::from_str::<Value>(&event.json).ok();
    let title = title.and_then(|json| Some(json.get("eventType")?.as_str()?.to_owned())).unwrap_or_default();
    Ok(layout::page(&visitor, "/ui/events", &title, markup(&event, &outcome, &services.rules.book)).into_response())
}

fn markup(event: &StoredEvent, outcome: &Outcome, book: &Book) -> Markup {
    let json: Value = serde_json::from_str(&event.json).unwrap_or_default();
    let text = |name: &str| json.get(name).and_then(Value::as_str).unwrap_or_default();
    let mut rows = vec![
        ("Event id", html! { span.id { (text("eventId")) } }),
        ("Happened", time_text(text("eventTimestamp"))),
        ("Received", time(event.received_at)),
        ("Trace", trace_link(text("correlationId"))),
    ];
    if !text("source").is_empty() {
        let link = address("/ui/events", &[("source", text("source"))]);
        rows.push(("Source", html! { a href=(link) { (text("source")) } }));
    }
    if !text("subject").is_empty() {
        rows.push(("Subject", html! { (text("subject")) }));
    }
    rows.push(("Version", html! { (text("eventVersion")) }));
    html! {
        (facts(&rows))
        div.columns {
            section aria-labelledby="data" { h2 id="data" { "Data" } (parts::json(json.get("data").unwrap_or(&Value::Null))) }
            section aria-labelledby="outcome" { h2 id="outcome" { "What became of it" } (became(outcome, book)) }
        }
        details { summary { "The whole event" } (parts::json(&json)) }
    }
}

fn became(outcome: &Outcome, book: &Book) -> Markup {
    let totals = &outcome.totals;
    html! {
        @if totals.rules == 0 && totals.messages == 0 {
            p.faint { "No rule matched; it is stored. " a href="/ui/rules/new" { "Make a rule" } "." }
        }
        @if !outcome.rules.is_empty() {
            h3 { "Rules" }
            ul.plain { @for rule in &outcome.rules {
                li { (rule_name(book, &rule.name)) " " (badge(&rule.status))
                    @if rule.repeats > 0 { span.faint { " " (rule.repeats) " told already" } }
                    @if rule.served > 0 { span.faint { " " (rule.served) " served already" } }
                    @for error in &rule.errors { p.wrong { (error) } }
                }
            } }
        }
        @if !outcome.left_out.is_empty() {
            h3 { "Told by another rule" }
            ul.plain { @for one in &outcome.left_out {
                li { (one.recipient) span.faint { " (" (one.channel) ") not by " (rule_name(book, &one.rule)) ", told by " (rule_name(book, &one.by)) } }
            } }
        }
        @if totals.notifications > 0 {
            h3 { "Inbox entries" }
            ul.plain { @for entry in &outcome.notifications {
                li { (entry.user) span.faint { " by " (rule_name(book, &entry.rule)) } }
            } }
            (more(totals.notifications, outcome.notifications.len()))
        }
        (sent("Messages", &outcome.messages))
        (on_the_bus(&outcome.queue))
        (sent("Tickets", &outcome.tickets))
        @if let Some(fanout) = &outcome.fanout {
            h3 { "Fan-out" }
            p { (badge(if fanout.state == "done" { "done" } else { "open" })) " "
                (fanout.notifications) " inbox entries and " (fanout.messages) " messages so far"
                @if fanout.repeats > 0 { span.faint { ", " (fanout.repeats) " told already" } }
                @if fanout.served > 0 { span.faint { ", " (fanout.served) " served already" } } }
        }
    }
}

fn sent(title: &str, list: &[Sent]) -> Markup {
    html! {
        @if !list.is_empty() {
            h3 { (title) }
            ul.plain { @for sent in list {
                li {
                    (badge(sent.status.as_deref().unwrap_or("created"))) " " (sent.channel) " "
                    (message_link(&sent.message_id))
                    @if let Some(attempts) = sent.attempts.as_ref().filter(|attempts| attempts.len() > 1) {
                        span.faint { " " (attempts.len()) " attempts" }
                    }
                }
            } }
        }
    }
}

/// What was sent to queues and topics; what became of it there, the trace tells.
fn on_the_bus(list: &[Sent]) -> Markup {
    html! {
        @if !list.is_empty() {
            h3 { "To the bus" }
            ul.plain { @for sent in list {
                li {
                    @if let Some(entity) = &sent.entity {
                        a href=(address("/ui/bus/peek", &[("path", entity), ("state", "active")])) { (entity) } " "
                    }
                    span.id { (sent.message_id) }
                }
            } }
        }
    }
}

fn more(total: u64, shown: usize) -> Markup {
    html! { @if total > shown as u64 { p.faint { "and " (total - shown as u64) " more" } } }
}
