//! The bus: its entities with what is in them, looking at messages without taking them, and the desk for dead letters.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use maud::{Markup, html};
use serde_json::{Map, Value, json};
use tidings_core::envelope::FieldError;

use super::door::{Form, Page, Visitor, see_other};
use super::layout;
use super::parts::{
    self, FIRST_LINE_END, address, badge, choice, duration_ms, facts, form_token, number, short, time_text, trace_link,
};
use crate::app::Services;
use crate::bus::desk::{Seen, Which};
use crate::bus::http::desk::empty;
use crate::bus::http::resubmit::{read, send_back};
use crate::bus::http::view::MessageView;
use crate::bus::path::Path;
use crate::http::{CorrelationId, Params, Problem};
use crate::tokens::Scope;

const PAGE: usize = 20;

pub fn pages() -> Vec<Page> {
    vec![
        Page::new("/ui/bus", &[Scope::Read], get(list)),
        Page::new("/ui/bus/peek", &[Scope::Read], get(peek)).params(&["path", "state", "from", "done"]),
        Page::new("/ui/bus/resubmit", &[Scope::Operate], post(resubmit)).at_owner(),
        Page::new("/ui/bus/purge", &[Scope::Operate], post(purge)).at_owner(),
    ]
}

fn peek_address(path: &Path, state: &str) -> String {
    address("/ui/bus/peek", &[("path", &path.to_string()), ("state", state)])
}

async fn list(State(services): State<Services>, visitor: Visitor) -> Result<Response, Problem> {
    let records = services.bus.records();
    let content = html! {
        @if records.is_empty() {
            (parts::empty("No queues or topics", html! { "They are made by " code { "PUT /bus/{entity}" } " or in the configuration file." }))
        } @else {
            table.cards {
                thead { tr { th { "Path" } th { "Active" } th { "Locked" } th { "Scheduled" } th { "Deferred" } th { "Dead letters" } th { "In" } th { "Out" } th { "Oldest" } } }
                tbody { @for record in &records { (row(&services, &record.path)) } }
            }
        }
    };
    Ok(layout::page(&visitor, "/ui/bus", "Bus", content).into_response())
}

fn row(services: &Services, text: &str) -> Markup {
    let path = Path::parse(text);
    let line = path.as_ref().and_then(|path| services.bus.line(path).ok());
    let (Some(path), Some(line)) = (path, line) else {
        // A topic holds nothing itself.
        return html! { tr { td data-label="Path" { strong { (text) } " " span.tag { "topic" } } @for _ in 0..8 { td {} } } };
    };
    let figures = line.figures();
    let oldest = figures.oldest_age.map(|age| duration_ms(i64::try_from(age.as_millis()).unwrap_or(i64::MAX)));
    let dead = path.clone().dead_letters();
    html! {
        tr {
            td data-label="Path" { a href=(peek_address(&path, "active")) { (text) } }
            td.number data-label="Active" { (number(figures.active)) }
            td.number data-label="Locked" { (number(figures.locked)) }
            td.number data-label="Scheduled" { a href=(peek_address(&path, "scheduled")) { (number(figures.scheduled)) } }
            td.number data-label="Deferred" { a href=(peek_address(&path, "deferred")) { (number(figures.deferred)) } }
            td.number data-label="Dead letters" {
                a href=(peek_address(&dead, "active")) {
                    @if figures.dead_lettered > 0 { span.badge.bad { (number(figures.dead_lettered)) } } @else { "0" }
                }
            }
            td.number data-label="In" { (number(figures.incoming)) }
            td.number data-label="Out" { (number(figures.outgoing)) }
            td data-label="Oldest" { (oldest.unwrap_or_else(|| "–".to_owned())) }
        }
    }
}

fn path_of(text: &str) -> Result<Path, Problem> {
    if text.trim_matches('/').is_empty() {
        return Err(Problem::invalid_field("path", "is missing; it names a queue or a subscription"));
    }
    Path::parse(text).ok_or_else(|| Problem::invalid_field("path", "is no path of the bus"))
}

async fn peek(State(services): State<Services>, visitor: Visitor, mut params: Params) -> Result<Response, Problem> {
    let path = path_of(params.text("path").unwrap_or_default())?;
    let state = params.text("state").unwrap_or("active").to_owned();
    let which = match state.as_str() {
        "active" => Which::Active,
        "scheduled" => Which::Scheduled,
        "deferred" => Which::Deferred,
        _ => return Err(Problem::invalid_field("state", "must be active, scheduled or deferred")),
    };
    let from = params.number("from", 0..=usize::MAX, 0) as u64;
    let said = params.text("done").map(ToOwned::to_owned);
    params.finish()?;
    let said = said.map(|said| format!("Done: {}.", short(&said, 60)));
    Ok(layout::page(
        &visitor,
        "/ui/bus",
        &path.to_string(),
        look(&services, &visitor, &path, &state, (which, from), said, &[]).await?,
    )
    .into_response())
}

async fn look(
    services: &Services,
    visitor: &Visitor,
    path: &Path,
    state: &str,
    (which, from): (Which, u64),
    said: Option<String>,
    wrong: &[FieldError],
) -> Result<Markup, Problem> {
    let line = services.bus.line(path)?;
    let mut seen = line.peek(which, from, PAGE + 1).await?;
    let next = seen.get(PAGE).filter(|_| which != Which::Scheduled).map(|next| next.message.sequence.to_string());
    seen.truncate(PAGE);
    let figures = line.figures();
    let text = path.to_string();
    let states = [("active", "active"), ("scheduled", "scheduled"), ("deferred", "deferred")];
    Ok(html! {
        (parts::notice(said.as_deref()))
        (parts::wrong("Not done:", wrong))
        (facts(&[
            ("Active", html! { (number(figures.active)) }),
            ("Locked", html! { (number(figures.locked)) }),
            ("Scheduled", html! { (number(figures.scheduled)) }),
            ("Deferred", html! { (number(figures.deferred)) }),
        ]))
        @if path.dead {
            p { "These were given up. " a href=(peek_address(&Path { dead: false, ..path.clone() }, "active")) { "What waits in the queue itself" } "." }
        } @else {
            form.filter method="get" action="/ui/bus/peek" role="search" aria-label="In this queue" {
                input type="hidden" name="path" value=(text);
                (choice("state", "Which", state, &states))
                div.buttons { button type="submit" { "Show" } a href=(peek_address(&path.clone().dead_letters(), "active")) { "Dead letters" } }
            }
        }
        @if seen.is_empty() { (parts::empty("No messages", html! { "Nothing is here at this moment." })) }
        @for message in &seen { (card(visitor, path, message)) }
        @if let Some(next) = next {
            nav.pager aria-label="More of this list" { a href=(address("/ui/bus/peek", &[("path", &text), ("state", state), ("from", &next)])) rel="next" { "More →" } }
        }
        @if visitor.operates() && !seen.is_empty() {
            @if path.dead { (for_many(visitor, &text)) }
            div.actions {
                details.confirm { summary { "Delete all of them…" }
                    form method="post" action="/ui/bus/purge" {
                        (form_token(visitor)) input type="hidden" name="path" value=(text);
                        p { "Every message here is deleted, active, locked, scheduled and deferred. This cannot be undone." }
                        button.danger type="submit" { "Delete all of them" }
                    } }
            }
        }
    })
}

fn card(visitor: &Visitor, path: &Path, seen: &Seen) -> Markup {
    let view = serde_json::to_value(MessageView::from(&seen.message)).unwrap_or_default();
    let text = |name: &str| view.get(name).and_then(Value::as_str).unwrap_or_default();
    let body = text("body");
    let body = serde_json::from_str::<Value>(body).map_or_else(|_| body.to_owned(), |value| parts::pretty(&value));
    let dead = view.get("deadLetter");
    html! {
        article.message {
            div.line {
                strong { "#" (seen.message.sequence) }
                @if !text("subject").is_empty() { span { (text("subject")) } }
                span.id { (short(text("messageId"), 60)) }
                span.faint { (time_text(text("enqueuedAt"))) }
                @if seen.message.deliveries > 0 { span.faint { (seen.message.deliveries) " deliveries" } }
                @if let Some(due) = seen.due { span.faint { "due " (parts::time(due)) } }
                @if !text("correlationId").is_empty() { (trace_link(text("correlationId"))) }
            }
            @if let Some(dead) = dead {
                p { span.error { (dead.get("reason").and_then(Value::as_str).unwrap_or_default()) }
                    span.faint { " " (dead.get("description").and_then(Value::as_str).unwrap_or_default()) } }
            }
            (attempts(&view))
            (parts::code_within(&body, parts::PIECE_BYTES))
            @if path.dead && visitor.operates() {
                details { summary { "Send back, as it is or edited" }
                    form.editor method="post" action="/ui/bus/resubmit" {
                        (form_token(visitor))
                        input type="hidden" name="path" value=(path.to_string());
                        input type="hidden" name="id" value=(seen.message.sequence);
                        @if parts::within(text("body"), parts::PIECE_BYTES) == text("body") {
                            input type="hidden" name="before" value=(text("body"));
                            label { span { "Body" } textarea.code name="body" rows="6" spellcheck="false" { (FIRST_LINE_END) (text("body")) } }
                        } @else { p.faint { "It is too long to be edited here, and goes back as it is." } }
                        div.actions { button type="submit" { "Send back" } }
                    }
                }
            }
        }
    }
}

/// How earlier deliveries ended.
pub fn attempts(view: &Value) -> Markup {
    let attempts = view.get("attempts").and_then(Value::as_array).cloned().unwrap_or_default();
    let text = |attempt: &Value, name: &str| attempt.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    html! {
        @if !attempts.is_empty() {
            ol.attempts { @for attempt in &attempts {
                li { (badge(&text(attempt, "outcome"))) " " (time_text(&text(attempt, "at"))) " " span.faint { (text(attempt, "consumer")) }
                    @if !text(attempt, "reason").is_empty() { span.error { (text(attempt, "reason")) " " (text(attempt, "description")) } } }
            } }
        }
    }
}

fn for_many(visitor: &Visitor, path: &str) -> Markup {
    html! {
        section aria-labelledby="many" {
            h2 id="many" { "Many at once" }
            form.editor method="post" action="/ui/bus/resubmit" {
                (form_token(visitor))
                input type="hidden" name="path" value=(path);
                label { span { "Those that fit this pattern " span.faint { "over messageId, subject, properties, deadLetter, body; empty: all" } }
                    textarea.code name="where" rows="2" spellcheck="false" placeholder="{\"deadLetter\": {\"reason\": [\"MaxDeliveryCountExceeded\"]}}" {} }
                div.actions { button type="submit" { "Send them back" } }
            }
        }
    }
}

async fn resubmit(
    State(services): State<Services>,
    visitor: Visitor,
    correlation: CorrelationId,
    form: Form,
) -> Result<Response, Problem> {
    let path = path_of(form.text("path"))?;
    let fields = asked(&form);
    let done = match fields.and_then(|fields| read(&fields).map(|what| (fields, what))) {
        Ok((fields, what)) => send_back(&services, visitor.caller(), &correlation, &path, &fields, &what).await?,
        Err(wrong) => {
            let content = look(&services, &visitor, &path, "active", (Which::Active, 0), None, &wrong).await?;
            let page = layout::page(&visitor, "/ui/bus", &path.to_string(), content);
            return Ok((axum::http::StatusCode::BAD_REQUEST, page).into_response());
        }
    };
    let said = format!("{} sent back, {} locked and left", done.resubmitted, done.locked);
    Ok(see_other(&address("/ui/bus/peek", &[("path", &path.to_string()), ("done", &said)])))
}

/// The body of the API's call that a form stands for.
fn asked(form: &Form) -> Result<Map<String, Value>, Vec<FieldError>> {
    let text = form.text("where").trim();
    let fields = match form.text("id") {
        "" if text.is_empty() => json!({ "all": true }),
        "" => {
            let parsed = tidings_core::json::parse::<Value>(text);
            json!({ "where": parsed.map_err(|bad| vec![FieldError::new("where", bad.0)])? })
        }
        id => {
            let lines = |text: &str| text.replace("\r\n", "\n");
            let (before, body) = (lines(form.text("before")), lines(form.text("body")));
            let body = if body == before { Value::Null } else { Value::from(body) };
            // The page names a letter by its number, which may be another one's message id.
            let id = id.parse::<u64>().map_or_else(|_| Value::from(id), Value::from);
            json!({ "ids": [id], "body": body })
        }
    };
    Ok(fields.as_object().cloned().unwrap_or_default())
}

async fn purge(
    State(services): State<Services>,
    visitor: Visitor,
    correlation: CorrelationId,
    form: Form,
) -> Result<Response, Problem> {
    let path = path_of(form.text("path"))?;
    let purged = empty(&services, visitor.caller(), &correlation, &path).await?;
    let said = format!("{purged} deleted");
    Ok(see_other(&address("/ui/bus/peek", &[("path", &path.to_string()), ("done", &said)])))
}
