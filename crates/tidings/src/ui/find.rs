//! From any id to its page.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use maud::html;

use super::door::{Page, Visitor, see_other};
use super::layout;
use super::parts::{self, page_of};
use crate::app::Services;
use crate::business::origin::path_id;
use crate::http::{Params, Problem};
use crate::schedules::http::find as find_schedule;
use crate::tokens::Scope;
use crate::trace::Trace;

pub fn pages() -> Vec<Page> {
    vec![Page::new("/ui/find", &[Scope::Read], get(find)).params(&["q"])]
}

async fn find(State(services): State<Services>, visitor: Visitor, params: Params) -> Result<Response, Problem> {
    let wanted = params.text("q").unwrap_or_default().trim().to_owned();
    // The store has no empty keys to ask for.
    if !wanted.is_empty()
        && let Some(place) = place(&services, &wanted).await?
    {
        return Ok(see_other(&place));
    }
    let hint = html! {
        "Look for the id of an event, message, ticket, incident, invoice, service request or transfer, for a correlation "
        "id, or for the name of a rule or schedule. Nothing is searched by parts: give all of it."
    };
    let what = if wanted.is_empty() {
        "Nothing to look for".to_owned()
    } else {
        format!("Nothing has the id or name “{wanted}”")
    };
    Ok(layout::page(&visitor, "", "Find", parts::empty(&what, hint)).into_response())
}

async fn place(services: &Services, wanted: &str) -> Result<Option<String>, Problem> {
    let page = |of: &str| Ok(Some(page_of(of, wanted)));
    if services.events.get(wanted, None).await?.is_some() {
        return page("events");
    }
    if services.messages.get(wanted).await?.is_some() {
        return page("messages");
    }
    if services.rules.book.get(wanted).is_some() {
        return page("rules");
    }
    if services.tickets.get(wanted).await?.is_some() {
        return page("tickets");
    }
    if find_schedule(services, wanted).await?.is_some() {
        return page("schedules");
    }
    if services.incidents.get(wanted).await?.is_some() {
        return page("incidents");
    }
    if let Some(correlation) = correlation_of(services, wanted).await? {
        return Ok(Some(page_of("trace", &correlation)));
    }
    if let Some(correlation) = services.bus.correlation_of(wanted).await? {
        return Ok(Some(page_of("trace", &correlation)));
    }
    let is_id = tidings_core::envelope::check_name(wanted, tidings_core::limits::CORRELATION_CHARS).is_ok();
    let trace = Trace { store: &*services.store, stage: services.config.stage.as_str(), bus: &services.bus };
    if is_id && !trace.page(wanted, 1, None).await?.0.is_empty() {
        return page("trace");
    }
    Ok(None)
}

/// What has no page of its own is told by its trace.
async fn correlation_of(services: &Services, wanted: &str) -> Result<Option<String>, Problem> {
    let Ok(id) = path_id("q", wanted) else { return Ok(None) };
    let business = &services.business;
    if let Some(invoice) = business.invoices.get(&id).await? {
        return Ok(Some(invoice.correlation_id));
    }
    if let Some(request) = business.service_requests.get(&id).await? {
        return Ok(Some(request.correlation_id));
    }
    Ok(business.transfers.get(&id).await?.map(|transfer| transfer.correlation_id))
}
