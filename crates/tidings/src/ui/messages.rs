//! Messages: which, one with its attempts, retry and cancel; and the dead letters.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use maud::{Markup, html};
use serde_json::Value;
use tidings_core::message::Status;

use super::door::{Page, Visitor, see_other};
use super::layout;
use super::parts::{
    self, Field, act, badge, choice, confirm, encode, event_link, facts, message_link, rule_name, short, time,
    time_text, trace_link,
};
use super::steps::{attempts_table, destination};
use crate::app::Services;
use crate::events::http::name_param;
use crate::http::{CorrelationId, End, Params, Problem, paging};
use crate::messages::http::{MessageView, call_off, send_again};
use crate::messages::list::{self, Filter};
use crate::messages::{Message, counters};
use crate::rules::Book;
use crate::tokens::Scope;

const PAGE: usize = 50;

pub fn pages() -> Vec<Page> {
    vec![
        Page::new("/ui/messages", &[Scope::Read], get(page)).params(&[
            "status",
            "type",
            "correlationId",
            "from",
            "to",
            "cursor",
        ]),
        Page::new("/ui/messages/{id}", &[Scope::Read], get(show)).params(&["done"]),
        Page::new("/ui/messages/{id}/retry", &[Scope::Operate], post(retry)).at_owner(),
        Page::new("/ui/messages/{id}/cancel", &[Scope::Operate], post(cancel)),
    ]
}

async fn page(State(services): State<Services>, visitor: Visitor, mut params: Params) -> Result<Response, Problem> {
    let given = |params: &Params, name: &str| params.text(name).unwrap_or_default().to_owned();
    let (wanted, from, to) = (given(&params, "status"), given(&params, "from"), given(&params, "to"));
    let status = Status::ALL.into_iter().find(|status| status.as_str() == wanted);
    if !wanted.is_empty() && status.is_none() {
        params.refuse("status", "must be created, queued, processing, completed or failed");
    }
    let filter = Filter {
        stage: services.messages.stage().to_owned(),
        status,
        message_type: name_param(&mut params, "type"),
        correlation_id: name_param(&mut params, "correlationId"),
        from: params.time("from", End::Start),
        to: params.time("to", End::Finish),
    };
    let cursor = params.text("cursor").map(ToOwned::to_owned);
    params.finish()?;
    let context = paging::context(visitor.caller(), "/ui/messages", &filter);
    let after = paging::open(&services.sealer, &context, cursor.as_deref())?;
    let (found, next) = list::page(&*services.store, &services.messages.table, &filter, PAGE, after).await?;
    let next = paging::seal(&services.sealer, &context, next.as_ref());
    let counts = counters::by_state(&*services.store, services.messages.stage()).await?;
    let message_type = filter.message_type.clone().unwrap_or_default();
    let correlation = filter.correlation_id.clone().unwrap_or_default();
    let query = [
        ("status", wanted.as_str()),
        ("type", &message_type),
        ("correlationId", &correlation),
        ("from", &from),
        ("to", &to),
    ];
    let states: Vec<_> = Status::ALL.iter().map(|status| status.as_str()).collect();
    let options: Vec<(&str, &str)> =
        [("", "any")].into_iter().chain(states.iter().map(|state| (*state, *state))).collect();
    let fields = [
        Field { name: "type", label: "Type", value: &message_type, hint: "alert_notification" },
        Field { name: "correlationId", label: "Correlation id", value: &correlation, hint: "" },
        Field { name: "from", label: "From", value: &from, hint: "2026-01-31" },
        Field { name: "to", label: "To", value: &to, hint: "2026-01-31" },
    ];
    let content = html! {
        ul.tabs {
            (tab("All", "", &wanted, counts.values().sum()))
            @for state in &states { (tab(state, state, &wanted, counts.get(state).copied().unwrap_or(0))) }
            li { a href="/ui/dead-letters" { "dead letters" } }
        }
        (parts::filter("/ui/messages", &fields, choice("status", "Status", &wanted, &options)))
        @if found.is_empty() {
            (parts::empty("No messages here", html! {
                "Messages come of " a href="/ui/rules" { "rules" } ", of " a href="/ui/schedules" { "schedules" }
                ", and of " code { "POST /api/messages" } "."
            }))
        } @else {
            (table(&found))
            (parts::pager("/ui/messages", &query, cursor.as_deref(), next))
        }
    };
    Ok(layout::page(&visitor, "/ui/messages", "Messages", content).into_response())
}

fn tab(name: &str, state: &str, wanted: &str, count: i64) -> Markup {
    let to = parts::address("/ui/messages", &[("status", state)]);
    html! {
        li { a href=(to) aria-current=[(state == wanted).then_some("true")] { (name) " " span.faint { (count) } } }
    }
}

fn table(messages: &[Message]) -> Markup {
    html! {
        table.cards {
            thead { tr { th { "Created" } th { "Status" } th { "Channel" } th { "Text" } th { "Message" } th { "Attempts" } th { "Trace" } } }
            tbody {
                @for message in messages {
                    tr {
                        td data-label="Created" { (time(message.created_date)) }
                        td data-label="Status" { (badge(message.delivery.status.as_str())) }
                        td data-label="Channel" { (message.channel) }
                        td data-label="Text" { (short(&title(&message.payload), 60)) }
                        td data-label="Message" { (message_link(&message.message_id)) }
                        td.number data-label="Attempts" { (message.delivery.attempts.len()) }
                        td data-label="Trace" { (trace_link(&message.correlation_id)) }
                    }
                }
            }
        }
    }
}

/// What a payload says of itself.
fn title(payload: &serde_json::Map<String, Value>) -> String {
    let text = |name: &str| payload.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    text("title").or_else(|| text("text")).unwrap_or_default().to_owned()
}

async fn show(
    State(services): State<Services>,
    visitor: Visitor,
    Path(id): Path<String>,
    params: Params,
) -> Result<Response, Problem> {
    let done = params.text("done").map(ToOwned::to_owned);
    params.finish()?;
    let stored = services.messages.get(&id).await?;
    let message =
        stored.ok_or_else(|| Problem::not_found("there is no message of this id, or it has expired"))?.message;
    let status = message.delivery.status;
    let view = serde_json::to_value(MessageView::from(&message)).unwrap_or_default();
    let said = match done.as_deref() {
        Some("retry") => Some("A new message was made; this is it."),
        Some("cancel") => Some("The message is cancelled."),
        _ => None,
    };
    let content = html! {
        (parts::notice(said))
        (message_facts(&message, &view, &services.rules.book))
        @if visitor.operates() {
            div.actions {
                @if status == Status::Failed { (act(&visitor, &format!("/ui/messages/{}/retry", encode(&id)), "Send again")) }
                @if !status.is_final() {
                    (confirm(&visitor, &format!("/ui/messages/{}/cancel", encode(&id)), "Cancel",
                        "It will not be sent. This cannot be undone."))
                }
            }
        }
        div.columns {
            section aria-labelledby="attempts" {
                h2 id="attempts" { "Attempts" }
                @let attempts = view.get("attempts").and_then(Value::as_array).cloned().unwrap_or_default();
                @if attempts.is_empty() { p.faint { "None yet." } } @else { (attempts_table(&attempts)) }
                @if let Some(recipients) = view.get("recipients").and_then(Value::as_object) {
                    h3 { "Recipients" }
                    ul.plain { @for (who, what) in recipients {
                        li { (who) " " (badge(if what.get("delivered") == Some(&Value::Bool(true)) { "delivered" } else { "failed" }))
                            span.faint { " " (what.get("detail").and_then(Value::as_str).unwrap_or_default()) } }
                    } }
                }
            }
            section aria-labelledby="payload" {
                h2 id="payload" { "Payload" }
                (parts::json(view.get("payload").unwrap_or(&Value::Null)))
            }
        }
    };
    let heading = title(&message.payload);
    let heading = if heading.is_empty() { "Message" } else { heading.as_str() };
    Ok(layout::page(&visitor, "/ui/messages", &short(heading, 90), content).into_response())
}

fn message_facts(message: &Message, view: &Value, book: &Book) -> Markup {
    let mut rows = vec![
        ("Status", badge(message.delivery.status.as_str())),
        ("Message id", html! { span.id { (message.message_id) } }),
        ("Trace", trace_link(&message.correlation_id)),
        ("Type", html! { (message.message_type) }),
        (
            "Channel",
            html! { (message.channel) @let to = destination(view); @if !to.is_empty() { span.faint { " to " (to) } } },
        ),
        ("Created", html! { (time(message.created_date)) span.faint { " by " (message.created_by) } }),
    ];
    if let Some(at) = message.processing_completed_at {
        rows.push(("Ended", time(at)));
    }
    if let Some(next) = view.get("next_attempt_at").and_then(Value::as_str) {
        rows.push(("Next attempt", time_text(next)));
    }
    if let Some(event) = &message.event_id {
        rows.push(("Event", event_link(event)));
    }
    if let Some(rule) = &message.rule {
        rows.push(("Rule", rule_name(book, rule)));
    }
    if let Some(before) = &message.retry_of {
        rows.push(("Sent again for", message_link(before)));
    }
    if let Some(error) = &message.delivery.error_message {
        rows.push(("Error", html! { span.error { (error) } }));
    }
    facts(&rows)
}

async fn retry(
    State(services): State<Services>,
    visitor: Visitor,
    correlation: CorrelationId,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let new_id = services.ids.uuid(services.clock.now());
    let made = send_again(&services, visitor.caller(), &correlation, &id, new_id).await?;
    Ok(see_other(&format!("/ui/messages/{}?done=retry", encode(&made.message_id))))
}

async fn cancel(
    State(services): State<Services>,
    visitor: Visitor,
    correlation: CorrelationId,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let message = call_off(&services, visitor.caller(), &correlation, &id).await?;
    Ok(see_other(&format!("/ui/messages/{}?done=cancel", encode(&message.message_id))))
}
