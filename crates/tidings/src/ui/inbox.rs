//! One user's inbox: for the user with a `user:` token, and for those who may look at everybody's.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use maud::{Markup, html};
use serde_json::Value;
use tidings_core::time::Timestamp;

use super::door::{Form, Page, Visitor, see_other};
use super::login::is_ours;
use super::parts::{self, Field, address, form_token, time};
use super::{layout, live};
use crate::app::Services;
use crate::http::{Params, Problem, paging};
use crate::inbox::mark::Mark;
use crate::inbox::record::ALL;
use crate::inbox::{Filter, Place, Status};
use crate::rules::notice::is_user;
use crate::tokens::{ANY_USER, Scope, event_stream};
use crate::workers::turned_true;

const PAGE: usize = 20;
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const LOOKING: &[Scope] = &[Scope::Read, ANY_USER];
const CHANGING: &[Scope] = &[Scope::Operate, ANY_USER];

pub fn pages() -> Vec<Page> {
    vec![
        Page::new("/ui/inbox", LOOKING, get(show)).params(&["user", "status", "cursor"]),
        Page::new("/ui/inbox/stream", LOOKING, get(stream)).params(&["user", "status"]),
        Page::new("/ui/inbox/mark", CHANGING, post(mark)),
    ]
}

/// The users whose inbox a visitor may see because it is theirs.
fn own(visitor: &Visitor) -> Vec<&str> {
    let scopes = visitor.caller().token.scopes.iter();
    scopes.filter_map(|scope| if let Scope::User(user) = scope { Some(user.as_str()) } else { None }).collect()
}

/// Whose inbox is wanted, if that is said and allowed.
fn whose(visitor: &Visitor, wanted: Option<&str>, all: &[Scope]) -> Result<Option<String>, Problem> {
    let own = own(visitor);
    match wanted {
        None => Ok(own.first().map(ToString::to_string)),
        Some(user) if visitor.may(all) || own.contains(&user) => {
            if is_user(user) {
                return Ok(Some(user.to_owned()));
            }
            Err(Problem::invalid_field("user", "can be nobody's name"))
        }
        Some(_) => {
            Err(Problem::new(axum::http::StatusCode::FORBIDDEN, "forbidden", "your token opens your own inbox only"))
        }
    }
}

fn status_of(params: &mut Params) -> Option<Status> {
    match params.text("status") {
        None | Some("unread") => Some(Status::Unread),
        Some("all") => None,
        Some(_) => {
            params.refuse("status", "must be unread or all");
            None
        }
    }
}

async fn show(State(services): State<Services>, visitor: Visitor, mut params: Params) -> Result<Response, Problem> {
    let user = whose(&visitor, params.text("user"), &[Scope::Read])?;
    let status = status_of(&mut params);
    let cursor = params.text("cursor").map(ToOwned::to_owned);
    params.finish()?;
    let chooser = html! {
        @if visitor.reads() {
            @let value = user.clone().unwrap_or_default();
            (parts::filter("/ui/inbox", &[Field { name: "user", label: "Whose inbox", value: &value, hint: "a user's id" }], html! {}))
        }
    };
    let Some(user) = user else {
        let hint =
            html! { "Give the id of a user; with a token of scope " code { "user:ID" } " everybody sees their own." };
        let content = html! { (chooser) (parts::empty("Whose inbox?", hint)) };
        return Ok(layout::page(&visitor, "/ui/inbox", "Inbox", content).into_response());
    };
    let filter = Filter { user: user.clone(), status, ..Filter::default() };
    let context = paging::context(visitor.caller(), "/ui/inbox", &filter);
    let after = match &cursor {
        Some(cursor) => String::from_utf8(services.sealer.open("cursor", &context, cursor)?).ok(),
        None => None,
    };
    let first = after.is_none();
    let (page, count) = services.inbox.page(Place { filter, limit: PAGE, after }).await?;
    let next = page.next.as_ref().map(|next| services.sealer.seal(&context, next.as_bytes()));
    let which = if status.is_some() { "unread" } else { "all" };
    let query = [("user", user.as_str()), ("status", which)];
    let stream = first.then(|| address("/ui/inbox/stream", &query));
    let content = html! {
        (chooser)
        ul.tabs {
            @for (name, label) in [("unread", "Unread"), ("all", "All")] {
                li { a href=(address("/ui/inbox", &[("user", user.as_str()), ("status", name)])) aria-current=[(name == which).then_some("true")] {
                    (label) @if name == "unread" { " " span.faint { (count.unread) } } } }
            }
        }
        div data-refresh=[stream] { (entries(&visitor, &user, which, &page.items)) }
        (parts::pager("/ui/inbox", &query, cursor.as_deref(), next))
    };
    let title = if visitor.reads() { format!("Inbox of {user}") } else { "Inbox".to_owned() };
    Ok(layout::page(&visitor, "/ui/inbox", &title, content).into_response())
}

fn entries(visitor: &Visitor, user: &str, which: &str, items: &[u8]) -> Markup {
    let items: Vec<Value> = serde_json::from_slice(items).unwrap_or_default();
    let acts = visitor.may(&[Scope::Operate]) || own(visitor).contains(&user);
    html! {
        @if items.is_empty() {
            (parts::empty(if which == "unread" { "Nothing unread" } else { "Nothing here yet" },
                html! { "What rules have to say to " (user) " appears here by itself." }))
        } @else {
            @if acts && which == "unread" { (mark_all(visitor, user, which, &items)) }
            ol.inbox { @for item in &items { (entry(visitor, user, which, item, acts)) } }
        }
    }
}

fn text<'a>(item: &'a Value, name: &str) -> &'a str {
    item.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn entry(visitor: &Visitor, user: &str, which: &str, item: &Value, acts: bool) -> Markup {
    let id = text(item, "notification_identifier");
    let status = text(item, "status");
    let score = |name: &str| item.get(name).filter(|value| value.is_number()).map(ToString::to_string);
    html! {
        li class=(status) {
            div.line {
                strong { (parts::short(text(item, "title"), 300)) }
                span.tags {
                    @let kind = text(item, "type");
                    @if kind != "notice" { span.tag { (kind) } }
                    @for name in ["productid", "env"] { @if !text(item, name).is_empty() { span.tag { (text(item, name)) } } }
                    @if let (Some(old), Some(new)) = (score("old_score"), score("new_score")) { span.tag { (old) " → " (new) } }
                }
                span.faint { (arrived(id)) }
            }
            @if !text(item, "text").is_empty() { p.long { (parts::within(text(item, "text"), parts::PIECE_BYTES)) } }
            @if let Some(link) = web_address(text(item, "link")) { p { a href=(link) rel="noopener noreferrer" { (link) } } }
            @if acts {
                div.actions {
                    @if status == "unread" { (mark_button(visitor, user, which, id, "read", "Mark read")) }
                    @else { (mark_button(visitor, user, which, id, "unread", "Mark unread")) }
                    @if status != "archived" { (mark_button(visitor, user, which, id, "archive", "Archive")) }
                }
            }
        }
    }
}

/// When an entry came: its identifier begins with the nanosecond.
fn arrived(id: &str) -> Markup {
    let nanoseconds = id.strip_prefix(ALL).and_then(|time| time.split('-').next()?.parse::<i128>().ok());
    match nanoseconds.and_then(|nanoseconds| Timestamp::from_nanosecond(nanoseconds).ok()) {
        Some(at) => time(at),
        None => html! { (id) },
    }
}

/// An address that a browser may be sent to; whatever else was put there is no link.
fn web_address(link: &str) -> Option<&str> {
    ["https://", "http://"].iter().any(|start| link.starts_with(start)).then_some(link)
}

fn mark_button(visitor: &Visitor, user: &str, which: &str, id: &str, to: &str, label: &str) -> Markup {
    html! {
        form.act method="post" action="/ui/inbox/mark" {
            (form_token(visitor))
            input type="hidden" name="user" value=(user);
            input type="hidden" name="id" value=(id);
            input type="hidden" name="to" value=(to);
            input type="hidden" name="back" value=(address("/ui/inbox", &[("user", user), ("status", which)]));
            button.small type="submit" { (label) }
        }
    }
}

fn mark_all(visitor: &Visitor, user: &str, which: &str, items: &[Value]) -> Markup {
    html! {
        form.act method="post" action="/ui/inbox/mark" {
            (form_token(visitor))
            input type="hidden" name="user" value=(user);
            @for item in items { input type="hidden" name="id" value=(text(item, "notification_identifier")); }
            input type="hidden" name="to" value="read";
            input type="hidden" name="back" value=(address("/ui/inbox", &[("user", user), ("status", which)]));
            button.small type="submit" { "Mark these " (items.len()) " read" }
        }
    }
}

async fn mark(State(services): State<Services>, visitor: Visitor, form: Form) -> Result<Response, Problem> {
    let user = whose(&visitor, Some(form.text("user")), &[Scope::Operate])?;
    let user = user.ok_or_else(|| Problem::invalid_field("user", "is required"))?;
    let to = match form.text("to") {
        "read" => Status::Read,
        "unread" => Status::Unread,
        "archive" => Status::Archived,
        _ => return Err(Problem::invalid_field("to", "must be read, unread or archive")),
    };
    let ids = form.all("id");
    if ids.is_empty() || ids.len() > PAGE {
        return Err(Problem::invalid_field("id", format!("must be given 1 to {PAGE} times")));
    }
    let mut marks: Vec<Mark> = Vec::new();
    for id in ids {
        let Some(time) = id.strip_prefix(ALL) else {
            return Err(Problem::invalid_field("id", "is no notification's identifier"));
        };
        if !marks.iter().any(|mark| mark.time == time) {
            marks.push(Mark { user: user.clone(), time: time.to_owned(), to });
        }
    }
    services.inbox.mark(&marks).await?;
    let back = form.text("back");
    Ok(see_other(if is_ours(back) { back } else { "/ui/inbox" }))
}

/// The first page again whenever something new is in it.
async fn stream(State(services): State<Services>, visitor: Visitor, mut params: Params) -> Result<Response, Problem> {
    let user = whose(&visitor, params.text("user"), &[Scope::Read])?;
    let status = status_of(&mut params);
    params.finish()?;
    let user = user.ok_or_else(|| Problem::invalid_field("user", "is required"))?;
    let listener = services.inbox.live.listen(&user);
    let filter = Filter { user, status, ..Filter::default() };
    let stop = services.workers.stopping();
    let start = (services.clone(), visitor.clone(), listener, filter, stop);
    let frames = futures_util::stream::unfold(start, |(services, visitor, listener, filter, mut stop)| async move {
        let waited = tokio::select! {
            waited = tokio::time::timeout(KEEP_ALIVE, listener.news().notified()) => waited,
            () = turned_true(&mut stop) => return None,
        };
        let place = Place { filter: filter.clone(), limit: PAGE, after: None };
        let frame = match (waited, services.inbox.page(place).await) {
            (Ok(()), Ok((page, _))) => {
                let which = if filter.status.is_some() { "unread" } else { "all" };
                live::frame("figures", &entries(&visitor, &filter.user, which, &page.items).into_string())
            }
            _ => ": alive\n\n".to_owned(),
        };
        Some((Ok::<_, Infallible>(Bytes::from(frame)), (services, visitor, listener, filter, stop)))
    });
    Ok(event_stream(&services, &visitor.session.caller, frames))
}
