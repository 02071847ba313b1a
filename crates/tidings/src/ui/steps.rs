//! A step of a trace as a person reads it. A kind that is not known here is shown with its details as they are.

use maud::{Markup, html};
use serde_json::Value;
use tidings_core::time::Timestamp;

use super::parts::{self, PIECE_BYTES, badge, duration_ms, event_link, message_link, rule_name, time_text};
use crate::rules::Book;
use crate::trace::Step;

/// Characters of an attempt's error: there may be many.
const ERROR_CHARS: usize = 300;

/// One step, ready to be shown.
pub struct Shown {
    pub kind: &'static str,
    /// The kind in a word.
    pub label: String,
    pub at: Timestamp,
    /// When it was over, if it took time.
    pub until: Option<Timestamp>,
    pub state: Option<&'static str>,
    pub headline: Markup,
    pub body: Markup,
    /// How many things it stands for: rules, entries.
    pub count: u64,
    /// Tries within it: from, to, and whether it went well.
    pub tries: Vec<(Timestamp, Timestamp, bool)>,
}

impl Shown {
    /// Whether something is still to come of it.
    #[must_use]
    pub fn waits(&self) -> bool {
        matches!(self.state, Some("created" | "queued" | "processing"))
    }
}

#[must_use]
pub fn shown(step: &Step, now: Timestamp, book: &Book) -> Shown {
    let details: Value = serde_json::from_str(step.details.get()).unwrap_or_default();
    let at = step.time.parse().unwrap_or(Timestamp::MIN);
    let plain = |label: &str, headline: Markup, body: Markup| Shown {
        kind: step.kind,
        label: label.to_owned(),
        at,
        until: None,
        state: None,
        headline,
        body,
        count: 1,
        tries: Vec::new(),
    };
    let several = |shown: Shown, count: u64| Shown { count, ..shown };
    match step.kind {
        "event" => {
            let source = text(&details, "source");
            let headline = html! {
                strong { (text(&details, "eventType")) }
                @if !source.is_empty() { span.faint { " from " (source) } }
            };
            plain("Event", headline, event_body(&step.id, &details))
        }
        "rule" => {
            several(plain("Rules", rules_headline(&details, book), html! {}), list(&details, "rules").len() as u64)
        }
        "notification" => several(plain("Inbox", inbox_headline(&details), html! {}), total(&details)),
        "message" => message(step, &details, (at, now), book),
        "bus" => on_bus(&details, at),
        "audit" => {
            let headline = html! {
                strong { (text(&details, "action")) } span.faint { " on " (text(&details, "entity")) " "
                    (text(&details, "entityId")) " by " (text(&details, "user")) }
            };
            plain("Audit", headline, html! {})
        }
        kind => {
            let state = ["status", "state", "outcome"].iter().map(|name| text(&details, name)).find(|t| !t.is_empty());
            let headline = html! { strong.id { (step.id) } @if let Some(state) = state { " " (badge(state)) } };
            let body = html! { details { summary { "Details" } (parts::json_within(&details, PIECE_BYTES)) } };
            plain(&capital(kind), headline, body)
        }
    }
}

fn text<'a>(details: &'a Value, name: &str) -> &'a str {
    details.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(details: &'a Value, name: &str) -> &'a [Value] {
    details.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn capital(kind: &str) -> String {
    let mut letters = kind.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect::<String>().replace('_', " ")
}

fn event_body(id: &str, details: &Value) -> Markup {
    html! {
        p.meta { (event_link(id)) @let subject = text(details, "subject");
            @if !subject.is_empty() { span.faint { (about(subject)) } } }
        @if let Some(data) = details.get("data").filter(|data| data.as_object().is_some_and(|fields| !fields.is_empty())) {
            @match parts::pairs(data) {
                Some(pairs) => { p.meta { (pairs) } }
                None => { details { summary { "Data" } (parts::json_within(data, PIECE_BYTES)) } }
            }
        }
    }
}

fn rules_headline(details: &Value, book: &Book) -> Markup {
    html! {
        span.tags {
            @for rule in list(details, "rules") {
                span.tag { (rule_name(book, text(rule, "name")))
                    @if text(rule, "status") != "matched" { " " (badge(text(rule, "status"))) } }
            }
        }
    }
}

fn inbox_headline(details: &Value) -> Markup {
    let total = total(details);
    let entries = list(details, "notifications");
    html! {
        span.tags {
            @for entry in entries.iter().take(20) {
                @let inbox = parts::address("/ui/inbox", &[("user", text(entry, "user")), ("status", "all")]);
                span.tag { a href=(inbox) { (text(entry, "user")) } }
            }
            @if total > entries.len().min(20) as u64 { span.faint { "of " (total) } }
        }
    }
}

fn total(details: &Value) -> u64 {
    details.get("total").and_then(Value::as_u64).unwrap_or(0)
}

/// What an event is about: a link where there is a page for it.
fn about(subject: &str) -> Markup {
    match subject.split_once('/') {
        Some(("ticket", id)) => {
            html! { " about " a href=(format!("/ui/tickets/{}", parts::encode(id))) { "ticket " (parts::short(id, 8)) } }
        }
        _ => html! { " about " (subject) },
    }
}

fn message(step: &Step, details: &Value, (at, now): (Timestamp, Timestamp), book: &Book) -> Shown {
    let status = text(details, "status");
    let state = ["created", "queued", "processing", "completed", "failed"].into_iter().find(|known| *known == status);
    let moment = |value: &Value, name: &str| text(value, name).parse::<Timestamp>().ok();
    let attempts = list(details, "attempts");
    let tries = attempts.iter().filter_map(|attempt| {
        let began = moment(attempt, "started_at")?;
        let ended = moment(attempt, "ended_at").unwrap_or(now).max(began);
        Some((began, ended, matches!(text(attempt, "outcome"), "delivered" | "")))
    });
    let ended = moment(details, "processing_completed_at");
    let until = ended.or_else(|| attempts.iter().filter_map(|attempt| moment(attempt, "ended_at")).max());
    let target = destination(details);
    Shown {
        kind: "message",
        label: "Message".to_owned(),
        at,
        until,
        state,
        headline: html! {
            strong { (text(details, "channel")) }
            @if !target.is_empty() { span.faint { " to " (target) } }
        },
        body: html! {
            p.meta { (message_link(&step.id)) @let rule = text(details, "rule");
                @if !rule.is_empty() { span.faint { " by " (rule_name(book, rule)) } } }
            (attempts_table(attempts))
            @if let Some(next) = details.get("next_attempt_at").and_then(Value::as_str).filter(|_| !attempts.is_empty()) {
                p.meta { "Next attempt " (time_text(next)) }
            }
        },
        count: 1,
        tries: tries.collect(),
    }
}

/// A message of the bus: sent, delivered so often, and what came of it.
fn on_bus(details: &Value, at: Timestamp) -> Shown {
    let (state, path) = (text(details, "state"), text(details, "path"));
    let deliveries = details.get("deliveries").and_then(Value::as_u64).unwrap_or(0);
    let times = match deliveries {
        0 => "not delivered".to_owned(),
        1 => "delivered once".to_owned(),
        n => format!("delivered {n} times"),
    };
    let since = text(details, "since").parse().ok();
    Shown {
        kind: "bus",
        label: "Bus".to_owned(),
        at,
        until: since.filter(|_| state != "scheduled"),
        state: Some(match state {
            "completed" | "resubmitted" | "removed" => "completed",
            "dead-lettered" => "failed",
            "locked" => "processing",
            "waiting" | "scheduled" | "deferred" => "queued",
            _ => "cancelled",
        }),
        headline: html! {
            strong { a href=(parts::address("/ui/bus/peek", &[("path", path)])) { (path) } }
            @if !text(details, "subject").is_empty() { span.faint { " " (text(details, "subject")) } }
        },
        body: html! {
            p.meta { span.id { (text(details, "messageId")) } span.faint { " sent, " (times) ", " (state) }
                @if let Some(since) = since { " " (parts::time(since)) } }
            @if !text(details, "reason").is_empty() { p { span.error { (text(details, "reason")) } } }
        },
        count: 1,
        tries: Vec::new(),
    }
}

/// Where a message goes, in a few words.
#[must_use]
pub fn destination(details: &Value) -> String {
    let Some(target) = details.get("target") else { return String::new() };
    let many =
        |value: &Value| value.as_array().map(|all| all.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "));
    let named = ["url", "topic", "entity", "caller"].iter().map(|name| text(target, name)).find(|t| !t.is_empty());
    named.map(ToOwned::to_owned).or_else(|| target.get("to").and_then(many)).unwrap_or_default()
}

/// Every attempt with its outcome.
#[must_use]
pub fn attempts_table(attempts: &[Value]) -> Markup {
    html! {
        @if !attempts.is_empty() {
            ol.attempts {
                @for attempt in attempts {
                    li {
                        @let outcome = text(attempt, "outcome");
                        (badge(if outcome.is_empty() { "processing" } else { outcome }))
                        " " (time_text(text(attempt, "started_at")))
                        @if let Some(took) = took(attempt) { span.faint { " " (duration_ms(took)) } }
                        @if let Some(code) = attempt.get("code").and_then(Value::as_u64) { span.faint { " code " (code) } }
                        @if !text(attempt, "error").is_empty() { span.error { (parts::short(text(attempt, "error"), ERROR_CHARS)) } }
                    }
                }
            }
        }
    }
}

fn took(attempt: &Value) -> Option<i64> {
    let moment = |name: &str| text(attempt, name).parse::<Timestamp>().ok();
    Some(moment("ended_at")?.as_millisecond() - moment("started_at")?.as_millisecond())
}
