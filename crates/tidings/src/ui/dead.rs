//! The desk for dead letters: what was given up and why, every attempt, sending again as it was or changed, one by one or
//! many at once with progress, and throwing away.

use axum::extract::{Path, State};
use axum::http::HeaderValue;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use maud::{Markup, html};
use serde_json::{Map, Value};
use tidings_core::envelope::FieldError;

use super::door::{Form, Page, Visitor, see_other};
use super::layout;
use super::parts::{
    self, FIRST_LINE_END, badge, choice, confirm, encode, event_link, facts, form_token, message_link, rule_name,
    short, time_text, trace_link,
};
use super::steps::{attempts_table, destination};
use crate::app::Services;
use crate::bus::letters::CHANNEL;
use crate::events::http::name_param;
use crate::http::{CorrelationId, Params, Problem, correlation_param, paging};
use crate::messages::dead::edit::Edit;
use crate::messages::dead::job::{self, Deed};
use crate::messages::dead::{self, Filter};
use crate::messages::http::dead::many::begin;
use crate::messages::http::dead::{
    DeadLetterView, discard_one, filter_params, path_param, resubmit_one, send_back_one, view,
};
use crate::messages::record::CHANNELS;
use crate::rules::read;
use crate::tokens::Scope;

const PAGE: usize = 50;

pub fn pages() -> Vec<Page> {
    vec![
        Page::new("/ui/dead-letters", &[Scope::Read], get(list)).params(&[
            "channel",
            "type",
            "path",
            "correlationId",
            "cursor",
            "done",
        ]),
        Page::new("/ui/dead-letters/many", &[Scope::Operate], post(many)),
        Page::new("/ui/dead-letters/jobs/{id}", &[Scope::Read, Scope::Operate], get(progress)),
        Page::new("/ui/dead-letters/{id}", &[Scope::Read], get(show)),
        Page::new("/ui/dead-letters/{id}/resubmit", &[Scope::Operate], post(resubmit)).at_owner(),
        Page::new("/ui/dead-letters/{id}/discard", &[Scope::Operate], post(discard)).at_owner(),
    ]
}

async fn list(State(services): State<Services>, visitor: Visitor, mut params: Params) -> Result<Response, Problem> {
    let channel = params.text("channel").unwrap_or_default().to_owned();
    if !channel.is_empty() && !CHANNELS.contains(&channel.as_str()) && channel != CHANNEL {
        params.refuse("channel", format!("must be one of {}, {CHANNEL}", CHANNELS.join(", ")));
    }
    let path = path_param(&mut params);
    let message_type = name_param(&mut params, "type");
    let correlation_id = correlation_param(&mut params);
    let cursor = params.text("cursor").map(ToOwned::to_owned);
    let said = params.text("done").map(|done| match done {
        "sent" => "It is back where it came from.",
        _ => "It is thrown away.",
    });
    params.finish()?;
    let wanted = message_type.clone().unwrap_or_default();
    let filter = Filter {
        channel: Some(channel.clone()).filter(|channel| !channel.is_empty()),
        message_type,
        path: path.clone(),
        correlation_id: correlation_id.clone(),
        ..Filter::default()
    };
    let context = paging::context(visitor.caller(), "/ui/dead-letters", &filter);
    let after = paging::open(&services.sealer, &context, cursor.as_deref())?;
    let (letters, next) = dead::page(&*services.store, &filter, PAGE, after).await?;
    let next = paging::seal(&services.sealer, &context, next.as_ref());
    let mut attempts = Vec::with_capacity(letters.len());
    for letter in &letters {
        // What the bus has given up, it keeps itself.
        attempts.push(match &letter.bus {
            Some(at) => services.bus.letter(at).await?.map_or(0, |message| message.attempts.len()),
            None => letter.attempts.len(),
        });
    }
    let (of_path, correlation) = (path.unwrap_or_default(), correlation_id.unwrap_or_default());
    let channels = CHANNELS.map(|channel| (channel, channel)).into_iter().chain([(CHANNEL, "bus")]);
    let options: Vec<(&str, &str)> = [("", "any")].into_iter().chain(channels).collect();
    let fields = [
        parts::Field { name: "type", label: "Type", value: &wanted, hint: "alert_notification" },
        parts::Field { name: "path", label: "Queue", value: &of_path, hint: "ocr-processing-queue" },
        parts::Field { name: "correlationId", label: "Correlation id", value: &correlation, hint: "" },
    ];
    let content = html! {
        (parts::notice(said))
        p { "Messages that were given up, with the reason. Open one to see every attempt, change it and send it again." }
        (parts::filter("/ui/dead-letters", &fields, choice("channel", "Channel", &channel, &options)))
        @if letters.is_empty() {
            (parts::empty("No dead letters", html! { "Nothing was given up." }))
        } @else {
            table.cards {
                thead { tr { th { "Given up" } th { "Channel" } th { "Why" } th { "Attempts" } th { "Letter" } th { "Trace" } } }
                tbody { @for (letter, attempts) in letters.iter().zip(attempts) {
                    tr {
                        td data-label="Given up" { (time_text(&letter.time)) }
                        td data-label="Channel" { (letter.channel) @if let Some(at) = &letter.bus { span.faint { " " (at.path) } } }
                        td data-label="Why" { span.error { (short(&letter.reason, 120)) } }
                        td.number data-label="Attempts" { (attempts) }
                        td data-label="Letter" { (parts::id_link(&format!("/ui/dead-letters/{}", encode(&letter.id)), &letter.id)) }
                        td data-label="Trace" { (trace_link(&letter.correlation_id)) }
                    }
                } }
            }
            (parts::pager("/ui/dead-letters", &[("channel", &channel), ("type", &wanted), ("path", &of_path), ("correlationId", &correlation)], cursor.as_deref(), next))
            @if visitor.operates() { (for_many(&visitor, &filter, "", &[])) }
        }
    };
    Ok(layout::page(&visitor, "/ui/messages", "Dead letters", content).into_response())
}

/// Sending again, or throwing away, all that fit a pattern, of those that the page's filter shows.
fn for_many(visitor: &Visitor, filter: &Filter, pattern: &str, wrong: &[FieldError]) -> Markup {
    let filters = [
        ("channel", &filter.channel),
        ("message_type", &filter.message_type),
        ("path", &filter.path),
        ("correlationId", &filter.correlation_id),
    ];
    let said: Vec<_> = filters.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?))).collect();
    html! {
        section aria-labelledby="many" {
            h2 id="many" { "Many at once" }
            form.editor method="post" action="/ui/dead-letters/many" {
                (form_token(visitor))
                (parts::wrong("Not done:", wrong))
                @for (name, value) in &said { input type="hidden" name=(name) value=(value); }
                @if !said.is_empty() {
                    p { "Only those of " @for (name, value) in &said { (name) " " strong { (value) } " " } }
                }
                label { span { "Those that fit this pattern " span.faint { "over channel, message_type, reason, code, rule, payload, target, of the bus path, subject, properties, body; empty: all" } }
                    textarea.code name="where" rows="3" spellcheck="false" placeholder="{\"channel\": [\"webhook\"], \"code\": [503]}" { (pattern) } }
                div.actions {
                    button type="submit" name="deed" value="resubmit" { "Send them again" }
                    details.confirm { summary { "Throw them away…" }
                        p { "Nobody will get them. This cannot be undone." }
                        button.danger type="submit" name="deed" value="purge" { "Throw them away" } }
                }
            }
        }
    }
}

async fn many(
    State(services): State<Services>,
    visitor: Visitor,
    correlation: CorrelationId,
    form: Form,
) -> Result<Response, Problem> {
    let deed = match form.text("deed") {
        "resubmit" => Deed::Resubmit,
        "purge" => Deed::Purge,
        _ => return Err(Problem::invalid_field("deed", "must be resubmit or purge")),
    };
    let named = ["channel", "message_type", "path", "correlationId"].map(|name| (name, form.text(name)));
    let mut params = Params::of(named.to_vec());
    let filter = filter_params(&mut params);
    params.finish()?;
    let text = form.text("where").trim();
    let pattern = if text.is_empty() {
        None
    } else {
        if let Err(errors) = read::pattern_text(text) {
            let page =
                layout::page(&visitor, "/ui/messages", "Dead letters", for_many(&visitor, &filter, text, &errors));
            return Ok((axum::http::StatusCode::BAD_REQUEST, page).into_response());
        }
        Some(text.to_owned())
    };
    let id = services.ids.uuid(services.clock.now());
    let (what, which) = ((deed, Edit::default()), (filter, pattern));
    let job = begin(&services, visitor.caller(), &correlation, what, which, id).await?;
    Ok(see_other(&format!("/ui/dead-letters/jobs/{}", encode(&job.id))))
}

/// How far a job has come; the browser looks again by itself until it is done.
async fn progress(
    State(services): State<Services>,
    visitor: Visitor,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let job = job::get(&*services.store, &id).await?;
    let job = job.ok_or_else(|| Problem::not_found("there is no such job, or it was done long ago"))?;
    let done = job.finished_at.is_some();
    let verb = if job.order.deed == Deed::Resubmit { "Sent again" } else { "Thrown away" };
    let content = html! {
        (facts(&[
            ("State", badge(if done { "done" } else { "processing" })),
            ("Looked at", html! { (job.seen) }),
            (verb, html! { (job.done) }),
            ("Left where they are", html! { (job.failed) }),
            ("Began", time_text(&job.created_at)),
        ]))
        @if let Some(error) = &job.error { p.error { "The first that was left: " (error) } }
        p { a href="/ui/dead-letters" { "Back to the dead letters" } }
    };
    let mut response = layout::page(&visitor, "/ui/messages", "Many dead letters", content).into_response();
    if !done {
        response.headers_mut().insert("refresh", HeaderValue::from_static("1"));
    }
    Ok(response)
}

fn unknown() -> Problem {
    Problem::not_found("there is no dead letter of this id, or it has expired")
}

async fn show(State(services): State<Services>, visitor: Visitor, Path(id): Path<String>) -> Result<Response, Problem> {
    let letter = dead::get(&*services.store, &id).await?.ok_or_else(unknown)?;
    let on_bus = letter.bus.is_some();
    let view = view(&services, letter).await?.ok_or_else(unknown)?;
    let view = serde_json::to_value(view).unwrap_or_default();
    if on_bus {
        let content = desk_of_bus(&visitor, &id, &view, None, &[]);
        return Ok(layout::page(&visitor, "/ui/messages", "Dead letter", content).into_response());
    }
    let payload = parts::pretty(view.get("payload").unwrap_or(&Value::Null));
    let content = desk(&services, &visitor, &view, &payload, "", &[]);
    Ok(layout::page(&visitor, "/ui/messages", "Dead letter", content).into_response())
}

fn desk(
    services: &Services,
    visitor: &Visitor,
    view: &Value,
    payload: &str,
    target: &str,
    wrong: &[FieldError],
) -> Markup {
    let text = |name: &str| view.get(name).and_then(Value::as_str).unwrap_or_default();
    let id = text("id");
    let path = format!("/ui/dead-letters/{}", encode(id));
    let mut rows = vec![
        ("Why", html! { span.error { (text("reason")) } }),
        ("Message", message_link(id)),
        ("Trace", trace_link(text("correlation_id"))),
        ("Given up", time_text(text("time"))),
        (
            "Channel",
            html! { (text("channel")) @let to = destination(view); @if !to.is_empty() { span.faint { " to " (to) } } },
        ),
        ("Type", html! { (text("message_type")) }),
    ];
    if !text("event_id").is_empty() {
        rows.push(("Event", event_link(text("event_id"))));
    }
    if !text("rule").is_empty() {
        rows.push(("Rule", rule_name(&services.rules.book, text("rule"))));
    }
    let attempts = view.get("attempts").and_then(Value::as_array).cloned().unwrap_or_default();
    html! {
        (facts(&rows))
        div.columns {
            section aria-labelledby="attempts" { h2 id="attempts" { "Attempts" } (attempts_table(&attempts)) }
            section aria-labelledby="again" {
                h2 id="again" { "Send again" }
                @if visitor.operates() {
                    form.editor method="post" action=(format!("{path}/resubmit")) {
                        (form_token(visitor))
                        (parts::wrong("Not sent:", wrong))
                        @if parts::is_editable(payload) {
                            label for="payload" { "Payload" }
                            textarea.code id="payload" name="payload" rows="8" spellcheck="false" { (payload) }
                        } @else { (parts::code_within(payload, parts::TEXT_BYTES)) p.faint { "It is too long to be edited here, and goes as it is." } }
                        label { span { "Another target " span.faint { "JSON in the channel's terms; empty: the same" } }
                            textarea.code name="target" rows="2" spellcheck="false" { (target) } }
                        div.actions { button type="submit" { "Send again" } }
                    }
                    div.actions { (confirm(visitor, &format!("{path}/discard"), "Throw away", "Nobody will get it. This cannot be undone.")) }
                } @else { (parts::json(view.get("payload").unwrap_or(&Value::Null))) }
            }
        }
    }
}

/// A letter of the bus: its body can be changed on its way back.
fn desk_of_bus(visitor: &Visitor, id: &str, view: &Value, edited: Option<&str>, wrong: &[FieldError]) -> Markup {
    let text = |name: &str| view.get(name).and_then(Value::as_str).unwrap_or_default();
    let message = view.get("message").cloned().unwrap_or_default();
    let of_message = |name: &str| message.get(name).and_then(Value::as_str).unwrap_or_default();
    let description = message.pointer("/deadLetter/description").and_then(Value::as_str).unwrap_or_default();
    let path = format!("/ui/dead-letters/{}", encode(id));
    let queue = parts::address("/ui/bus/peek", &[("path", &format!("{}/$deadletterqueue", text("path")))]);
    let body = of_message("body");
    html! {
        (facts(&[
            ("Why", html! { span.error { (text("reason")) } @if !description.is_empty() { span.faint { " " (description) } } }),
            ("Queue", html! { a href=(queue) { (text("path")) } }),
            ("Message", html! { span.id { (of_message("messageId")) } }),
            ("Type", html! { (text("message_type")) }),
            ("Trace", trace_link(text("correlation_id"))),
            ("Given up", time_text(text("time"))),
        ]))
        div.columns {
            section aria-labelledby="attempts" { h2 id="attempts" { "Deliveries" } (super::bus::attempts(&message)) }
            section aria-labelledby="again" {
                h2 id="again" { "Send back" }
                @if visitor.operates() {
                    form.editor method="post" action=(format!("{path}/resubmit")) {
                        (form_token(visitor))
                        (parts::wrong("Not sent:", wrong))
                        input type="hidden" name="before" value=(body);
                        label for="body" { "Body" }
                        textarea.code id="body" name="body" rows="8" spellcheck="false" { (FIRST_LINE_END) (edited.unwrap_or(body)) }
                        div.actions { button type="submit" { "Send back" } }
                    }
                    div.actions { (confirm(visitor, &format!("{path}/discard"), "Throw away", "Nobody will get it. This cannot be undone.")) }
                } @else { pre.json tabindex="0" { code { (body) } } }
            }
        }
    }
}

/// A field that is empty or holds an object.
fn object(name: &'static str, text: &str, errors: &mut Vec<FieldError>) -> Option<Map<String, Value>> {
    if text.trim().is_empty() {
        return None;
    }
    match tidings_core::json::parse::<Value>(text) {
        Ok(Value::Object(fields)) => Some(fields),
        Ok(_) => {
            errors.push(FieldError::new(name, "must be an object"));
            None
        }
        Err(bad) => {
            errors.push(FieldError::new(name, bad.0));
            None
        }
    }
}

async fn resubmit(
    State(services): State<Services>,
    visitor: Visitor,
    correlation: CorrelationId,
    Path(id): Path<String>,
    form: Form,
) -> Result<Response, Problem> {
    let letter = dead::get(&*services.store, &id).await?.ok_or_else(unknown)?;
    if letter.bus.is_some() {
        return send_back(&services, &visitor, &correlation, letter, &form).await;
    }
    let view = serde_json::to_value(DeadLetterView::from(letter)).unwrap_or_default();
    let mut wrong = Vec::new();
    let payload = object("payload", form.text("payload"), &mut wrong);
    // What was not changed is sent as it was: a payload that its type would no longer take, too.
    let payload = payload.filter(|payload| view.get("payload").and_then(Value::as_object) != Some(payload));
    let edit = Edit { payload, target: object("target", form.text("target"), &mut wrong), body: None };
    if wrong.is_empty() {
        let new_id = services.ids.uuid(services.clock.now());
        match resubmit_one(&services, visitor.caller(), &correlation, &id, &edit, new_id).await {
            Ok(made) => return Ok(see_other(&format!("/ui/messages/{}?done=retry", encode(&made.message_id)))),
            Err(problem) if !problem.errors.is_empty() => wrong = problem.errors,
            Err(problem) => return Err(problem),
        }
    }
    let content = desk(&services, &visitor, &view, form.text("payload"), form.text("target"), &wrong);
    let page = layout::page(&visitor, "/ui/messages", "Dead letter", content);
    Ok((axum::http::StatusCode::BAD_REQUEST, page).into_response())
}

async fn send_back(
    services: &Services,
    visitor: &Visitor,
    correlation: &CorrelationId,
    letter: dead::DeadLetter,
    form: &Form,
) -> Result<Response, Problem> {
    let lines = |text: &str| text.replace("\r\n", "\n");
    let (before, body) = (lines(form.text("before")), lines(form.text("body")));
    let edit = Edit { body: Some(body).filter(|body| *body != before), ..Edit::default() };
    match send_back_one(services, visitor.caller(), correlation, &letter, &edit).await {
        Ok(_) => Ok(see_other("/ui/dead-letters?done=sent")),
        Err(problem) if problem.status.is_client_error() && problem.status != axum::http::StatusCode::NOT_FOUND => {
            let id = letter.id.clone();
            let view = view(services, letter).await?.ok_or_else(unknown)?;
            let view = serde_json::to_value(view).unwrap_or_default();
            let wrong = [FieldError::new("", problem.detail.clone())];
            let content = desk_of_bus(visitor, &id, &view, Some(form.text("body")), &wrong);
            Ok((problem.status, layout::page(visitor, "/ui/messages", "Dead letter", content)).into_response())
        }
        Err(problem) => Err(problem),
    }
}

async fn discard(
    State(services): State<Services>,
    visitor: Visitor,
    correlation: CorrelationId,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    discard_one(&services, visitor.caller(), &correlation, &id).await?;
    Ok(see_other("/ui/dead-letters?done=discarded"))
}
