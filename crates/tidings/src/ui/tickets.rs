//! Tickets: the latest, a caller's, one with its comments, and its status.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use maud::{Markup, html};
use serde_json::{Value, json};
use tidings_core::envelope::FieldError;
use tidings_store::Item;

use super::door::{Form, Page, Visitor, see_other};
use super::forms::again;
use super::layout;
use super::parts::{self, FIRST_LINE_END, Field, act, badge, encode, facts, form_token, short, time};
use crate::app::Services;
use crate::events::Filter;
use crate::http::{CorrelationId, Params, Problem, correlation_param, paging};
use crate::tickets::{Origin, Refused, SOURCE, Status, Ticket, read};
use crate::tokens::Scope;

const PAGE: usize = 25;
/// Comments on a ticket's page, the latest.
const COMMENTS: usize = 25;

pub fn pages() -> Vec<Page> {
    vec![
        Page::new("/ui/tickets", &[Scope::Read, Scope::Tickets], get(list)).params(&[
            "caller",
            "correlationId",
            "cursor",
        ]),
        Page::new("/ui/tickets/new", &[Scope::Tickets], get(new).post(make)),
        Page::new("/ui/tickets/{id}", &[Scope::Read, Scope::Tickets], get(show)).params(&["done"]),
        Page::new("/ui/tickets/{id}/comment", &[Scope::Tickets], post(comment)),
        Page::new("/ui/tickets/{id}/status", &[Scope::Operate], post(status)).params(&["to"]),
    ]
}

async fn list(State(services): State<Services>, visitor: Visitor, mut params: Params) -> Result<Response, Problem> {
    let caller = params.text("caller").map(ToOwned::to_owned);
    let cursor = params.text("cursor").map(ToOwned::to_owned);
    let whose = caller.as_deref().and_then(|caller| match services.tickets.callers().id(caller) {
        Ok(id) => Some(id),
        Err(why) => {
            params.refuse("caller", why);
            None
        }
    });
    let correlation_id = correlation_param(&mut params);
    params.finish()?;
    let context = paging::context(visitor.caller(), "/ui/tickets", &(&whose, &correlation_id));
    let after = paging::open(&services.sealer, &context, cursor.as_deref())?;
    let read = |items: Vec<Item>| items.iter().map(Ticket::from_item).collect::<Result<Vec<_>, _>>();
    let (tickets, next) = match (&correlation_id, &whose) {
        (Some(id), whose) => {
            let (found, next) = services.tickets.of_correlation(id, whose.as_deref(), PAGE, after).await?;
            (read(found.into_iter().map(|found| found.item).collect())?.into_iter().flatten().collect(), next)
        }
        (None, Some(whose)) => {
            let (items, next) = services.tickets.of_caller(whose, PAGE, after).await?;
            (read(items)?.into_iter().flatten().collect(), next)
        }
        (None, None) if visitor.reads() => latest(&services, after).await?,
        // Whoever has the ticket calls alone sees one caller's at a time, as there.
        (None, None) => (Vec::new(), None),
    };
    let next = paging::seal(&services.sealer, &context, next.as_ref());
    let (given, correlation) = (caller.unwrap_or_default(), correlation_id.unwrap_or_default());
    let fields = [
        Field { name: "caller", label: "Caller", value: &given, hint: "a session's id or a phone number" },
        Field { name: "correlationId", label: "Correlation id", value: &correlation, hint: "" },
    ];
    let beside = html! { @if visitor.may(&[Scope::Tickets]) { a.button href="/ui/tickets/new" { "New ticket" } } };
    let content = html! {
        (parts::filter("/ui/tickets", &fields, html! {}))
        @if tickets.is_empty() {
            (parts::empty("No tickets here", html! {
                "Tickets are opened by " code { "POST /tickets" } " and by rules with a " code { "ticket" } " target."
            }))
        } @else {
            (table(&tickets))
            (parts::pager("/ui/tickets", &[("caller", given.as_str()), ("correlationId", &correlation)], cursor.as_deref(), next))
        }
    };
    Ok(layout::page_with(&visitor, "/ui/tickets", "Tickets", beside, content).into_response())
}

/// The latest tickets of all callers, found by the events of their opening: the seed's table has no index for it.
async fn latest(services: &Services, after: Option<Item>) -> Result<(Vec<Ticket>, Option<Item>), Problem> {
    let filter =
        Filter { event_type: Some("ticket.created".to_owned()), source: Some(SOURCE.to_owned()), ..Filter::default() };
    let (events, next) = services.events.page(&filter, PAGE, after).await?;
    let mut tickets = Vec::new();
    for event in events {
        let event: Value = serde_json::from_str(&event.json).unwrap_or_default();
        // Anybody may send an event of this type; the store has no empty keys to ask for.
        let id = event.pointer("/data/ticket_id").and_then(Value::as_str).filter(|id| !id.is_empty());
        if let Some(id) = id {
            tickets.extend(services.tickets.get(id).await?);
        }
    }
    Ok((tickets, next))
}

fn table(tickets: &[Ticket]) -> Markup {
    html! {
        table.cards {
            thead { tr { th { "Opened" } th { "Status" } th { "What is wrong" } th { "Caller" } th { "Comments" } th { "Changed" } } }
            tbody { @for ticket in tickets {
                tr {
                    td data-label="Opened" { (time(ticket.created_at)) }
                    td data-label="Status" { (badge(ticket.status.as_str())) }
                    td data-label="What is wrong" { a href=(format!("/ui/tickets/{}", encode(&ticket.ticket_id))) { (short(&ticket.issue_description, 80)) } }
                    td data-label="Caller" { a.id href=(parts::address("/ui/tickets", &[("caller", &ticket.caller_id)])) { (short(&ticket.caller_id, 24)) } }
                    td.number data-label="Comments" { (ticket.comments.len()) }
                    td data-label="Changed" { (time(ticket.updated_at)) }
                }
            } }
        }
    }
}

async fn show(
    State(services): State<Services>,
    visitor: Visitor,
    Path(id): Path<String>,
    params: Params,
) -> Result<Response, Problem> {
    let said = params.text("done").map(|_| "Saved.");
    let ticket = services.tickets.get(&id).await?.ok_or(Refused::Unknown)?;
    let content = page_of(&visitor, &ticket, said, "", &[]);
    Ok(layout::page(&visitor, "/ui/tickets", &short(&ticket.issue_description, 80), content).into_response())
}

/// A ticket with its comments, and the comment that somebody is about to add.
fn page_of(visitor: &Visitor, ticket: &Ticket, said: Option<&str>, draft: &str, wrong: &[FieldError]) -> Markup {
    let path = format!("/ui/tickets/{}", encode(&ticket.ticket_id));
    let events = parts::address("/ui/events", &[("source", SOURCE)]);
    html! {
        (parts::notice(said))
        (facts(&[
            ("Status", badge(ticket.status.as_str())),
            ("Ticket id", html! { span.id { (ticket.ticket_id) } }),
            ("Caller", html! { a.id href=(parts::address("/ui/tickets", &[("caller", &ticket.caller_id)])) { (ticket.caller_id) } }),
            ("Opened", time(ticket.created_at)),
            ("Changed", time(ticket.updated_at)),
        ]))
        @if visitor.operates() {
            div.actions { @for next in Status::ALL.into_iter().filter(|next| ticket.status.leads_to(*next)) {
                (act(visitor, &format!("{path}/status?to={}", next.as_str()), &format!("Mark {}", next.as_str().replace('_', " "))))
            } }
        }
        section aria-labelledby="issue" { h2 id="issue" { "What is wrong" } p.long { (parts::within(&ticket.issue_description, parts::TEXT_BYTES)) } }
        section aria-labelledby="comments" {
            h2 id="comments" { "Comments" }
            @if ticket.comments.is_empty() { p.faint { "None yet." } }
            @let earlier = ticket.comments.len().saturating_sub(COMMENTS);
            @if earlier > 0 { p.faint { (earlier) " earlier ones are not shown; " code { "GET /tickets/{ticket_id}" } " has all." } }
            ol.comments { @for comment in ticket.comments.iter().skip(earlier) {
                li { p.faint { (time(comment.added_at)) @if let Some(author) = &comment.author { " by " (author) } } p.long { (parts::within(&comment.comment_text, 2 * parts::PIECE_BYTES)) } }
            } }
            @if visitor.may(&[Scope::Tickets]) {
                form.editor method="post" action=(format!("{path}/comment")) {
                    (form_token(visitor))
                    (parts::wrong("Not added:", wrong))
                    label { span { "Add a comment" } textarea name="comment_text" rows="3" required maxlength="4000" { (FIRST_LINE_END) (draft) } }
                    div.actions { button type="submit" { "Add" } }
                }
            }
        }
        @if visitor.reads() { p { a href=(events) { "Events of tickets" } } }
    }
}

async fn new(visitor: Visitor) -> Response {
    layout::page(&visitor, "/ui/tickets", "New ticket", editor(&visitor, "", "", &[])).into_response()
}

fn editor(visitor: &Visitor, caller: &str, issue: &str, wrong: &[FieldError]) -> Markup {
    html! {
        form.editor method="post" action="/ui/tickets/new" {
            (form_token(visitor))
            (parts::wrong("Not opened:", wrong))
            label { span { "Caller " span.faint { "a session's id; a phone number is stored only as a hash" } }
                input name="caller_id" value=(caller) required autocomplete="off"; }
            label { span { "What is wrong" } textarea name="issue_description" rows="6" required maxlength="10000" { (issue) } }
            div.actions { button type="submit" { "Open the ticket" } }
        }
    }
}

async fn make(
    State(services): State<Services>,
    visitor: Visitor,
    correlation: CorrelationId,
    form: Form,
) -> Result<Response, Problem> {
    let (caller, issue) = (form.text("caller_id").trim(), form.text("issue_description").replace("\r\n", "\n"));
    let fields = json!({ "caller_id": caller, "issue_description": issue });
    match read::new_ticket(&fields.as_object().cloned().unwrap_or_default(), services.tickets.callers()) {
        Ok(new) => {
            let by = visitor.caller().name();
            let origin = Origin::of(&by, &correlation);
            let now = services.clock.now();
            let ticket = services.tickets.create(new, origin, (services.ids.uuid(now), services.ids.uuid(now))).await?;
            Ok(see_other(&format!("/ui/tickets/{}", encode(&ticket.ticket_id))))
        }
        Err(wrong) => Ok(again(&visitor, "/ui/tickets", "New ticket", editor(&visitor, caller, &issue, &wrong))),
    }
}

async fn comment(
    State(services): State<Services>,
    visitor: Visitor,
    correlation: CorrelationId,
    Path(id): Path<String>,
    form: Form,
) -> Result<Response, Problem> {
    let draft = form.text("comment_text").replace("\r\n", "\n");
    let fields = json!({ "comment_text": draft });
    let by = visitor.caller().name();
    let origin = Origin::of(&by, &correlation);
    let wrong = match read::comment(&fields.as_object().cloned().unwrap_or_default()) {
        Ok(text) => match services.tickets.comment(&id, &text, origin, services.ids.uuid(services.clock.now())).await {
            Ok(_) => return Ok(see_other(&format!("/ui/tickets/{}?done=comment", encode(&id)))),
            Err(refused) => {
                let problem = Problem::from(refused);
                if problem.status != StatusCode::CONFLICT {
                    return Err(problem);
                }
                vec![FieldError::new("", problem.detail)]
            }
        },
        Err(wrong) => wrong,
    };
    // What was written stays, whatever is wrong with it.
    let ticket = services.tickets.get(&id).await?.ok_or(Refused::Unknown)?;
    let content = page_of(&visitor, &ticket, None, &draft, &wrong);
    Ok(again(&visitor, "/ui/tickets", &short(&ticket.issue_description, 80), content))
}

async fn status(
    State(services): State<Services>,
    visitor: Visitor,
    correlation: CorrelationId,
    Path(id): Path<String>,
    params: Params,
) -> Result<Response, Problem> {
    let wanted = Status::parse(params.text("to").unwrap_or_default());
    let wanted = wanted.ok_or_else(|| Problem::invalid_field("to", "must be open, in_progress, resolved or closed"))?;
    let by = visitor.caller().name();
    let origin = Origin::of(&by, &correlation);
    services.tickets.set_status(&services.audit, &id, wanted, origin).await?;
    Ok(see_other(&format!("/ui/tickets/{}?done=status", encode(&id))))
}
