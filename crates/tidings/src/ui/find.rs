//! From any id to its page.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use maud::html;

use super::door::{Page, Visitor, see_other};
use super::layout;
use super::parts::{self, encode};
use crate::app::Services;
use crate::http::{Params, Problem};
use crate::tokens::Scope;
use crate::trace::Trace;

pub fn pages() -> Vec<Page> {
    vec![Page::new("/ui/find", &[Scope::Read], get(find)).params(&["q"])]
}

async fn find(State(services): State<Services>, visitor: Visitor, params: Params) -> Result<Response, Problem> {
    let wanted = params.text("q").unwrap_or_default().trim().to_owned();
    if let Some(place) = place(&services, &wanted).await? {
        return Ok(see_other(&place));
    }
    let hint = html! { "Look for the id of an event or a message, a correlation id, or the name of a rule." };
    let what = if wanted.is_empty() { "Nothing to look for".to_owned() } else { format!("Nothing is called {wanted}") };
    Ok(layout::page(&visitor, "", "Find", parts::empty(&what, hint)).into_response())
}

async fn place(services: &Services, wanted: &str) -> Result<Option<String>, Problem> {
    if services.events.get(wanted, None).await?.is_some() {
        return Ok(Some(format!("/ui/events/{}", encode(wanted))));
    }
    if services.messages.get(wanted).await?.is_some() {
        return Ok(Some(format!("/ui/messages/{}", encode(wanted))));
    }
    if services.rules.book.get(wanted).is_some() {
        return Ok(Some(format!("/ui/rules/{}", encode(wanted))));
    }
    if services.tickets.get(wanted).await?.is_some() {
        return Ok(Some(format!("/ui/tickets/{}", encode(wanted))));
    }
    if let Some(correlation) = services.bus.correlation_of(wanted).await? {
        return Ok(Some(format!("/ui/trace/{}", encode(&correlation))));
    }
    let is_id = tidings_core::envelope::check_name(wanted, tidings_core::limits::CORRELATION_CHARS).is_ok();
    let trace = Trace { store: &*services.store, stage: services.config.stage.as_str(), bus: &services.bus };
    if is_id && !trace.page(wanted, 1, None).await?.0.is_empty() {
        return Ok(Some(format!("/ui/trace/{}", encode(wanted))));
    }
    Ok(None)
}
