//! The desk: peeking, cancelling, purging, resubmitting.

use axum::extract::State;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use tidings_core::time;
use tidings_store::Error;

use super::view::MessageView;
use super::{Place, paths};
use crate::app::Services;
use crate::audit::Action;
use crate::bus::desk::Which;
use crate::bus::entity::Body;
use crate::bus::history::Fate;
use crate::bus::line::Line;
use crate::bus::path::Path;
use crate::bus::prepared::Prepared;
use crate::http::{CorrelationId, Json, Param, Params, Problem, Route, paging};
use crate::tokens::{Caller, Scope};

const PEEK: usize = 1000;
const PEEK_DEFAULT: usize = 50;

#[must_use]
pub fn routes() -> Vec<Route> {
    let mut routes = Vec::new();
    for path in paths!("/peek") {
        routes.push(
            Route::new(Method::GET, path, "Look at messages without taking them", peek)
                .scopes(&[Scope::Read])
                .params(&[
                    Param("state", "active (default; locked ones, too), scheduled or deferred"),
                    Param("from", "The lowest number to show"),
                    Param("cursor", "The cursor of the page before"),
                    Param("limit", "1 to 1000, default 50"),
                ])
                .answer::<Peeked>(200, "The messages, in the order of their numbers; scheduled ones in that of time"),
        );
    }
    for path in ["/bus/{entity}/history", "/bus/{entity}/subscriptions/{subscription}/history"] {
        routes.push(
            Route::new(Method::GET, path, "What became of a message", history)
                .scopes(&[Scope::Read])
                .params(&[Param("messageId", "The message's id")])
                .answer::<Fates>(200, "Messages of this id that ended or wait for their time, the latest first"),
        );
    }
    for path in paths!("/purge") {
        routes.push(
            Route::new(Method::POST, path, "Delete every message: active, locked, scheduled and deferred", purge)
                .at_owner()
                .scopes(&[Scope::Operate])
                .answer::<Purged>(200, "They are gone"),
        );
    }
    for path in [
        "/bus/{entity}/scheduled/{sequenceNumber}",
        "/bus/{entity}/subscriptions/{subscription}/scheduled/{sequenceNumber}",
    ] {
        routes.push(
            Route::new(Method::DELETE, path, "Cancel a scheduled message by its number", cancel)
                .scopes(&[Scope::Ingest, Scope::Operate])
                .answer_empty(204, "It will not come")
                .answer_empty(404, "None is scheduled under that number"),
        );
    }
    for path in ["/bus/{entity}/scheduled", "/bus/{entity}/subscriptions/{subscription}/scheduled"] {
        routes.push(
            Route::new(Method::DELETE, path, "Cancel scheduled messages by business key or message id", cancel_by_key)
                .scopes(&[Scope::Ingest, Scope::Operate])
                .params(&[Param("key", "The business key (Key), or the message's id")])
                .answer::<Cancelled>(200, "How many will not come")
                .answer_empty(404, "None is scheduled under that key"),
        );
    }
    routes
}

#[derive(Serialize, JsonSchema)]
struct Peeked<'a> {
    items: Vec<MessageView<'a>>,
    cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct Fates {
    items: Vec<Fate>,
    cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct Purged {
    purged: u64,
}

#[derive(Serialize, JsonSchema)]
struct Cancelled {
    cancelled: usize,
}

async fn peek(
    State(services): State<Services>,
    caller: Caller,
    mut params: Params,
    place: Place,
) -> Result<Response, Problem> {
    let which = match params.text("state") {
        None | Some("active") => Which::Active,
        Some("scheduled") => Which::Scheduled,
        Some("deferred") => Which::Deferred,
        Some(_) => {
            params.refuse("state", "must be active, scheduled or deferred");
            Which::Active
        }
    };
    let from = params.number("from", 0..=usize::MAX, 0) as u64;
    let limit = params.number("limit", 1..=PEEK, PEEK_DEFAULT);
    let state = params.text("state").unwrap_or("active").to_owned();
    let after = params.text("cursor").map(ToOwned::to_owned);
    params.finish()?;
    let line = services.bus.line(&place.path)?;
    let context = paging::context(&caller, "bus-peek", &(&line.path, state, from));
    let after = after.map(|after| services.sealer.open("cursor", &context, &after)).transpose()?;
    let after = after.map(|after| String::from_utf8_lossy(&after).into_owned());
    let (seen, end) = if which == Which::Scheduled {
        line.peek_scheduled(after.as_deref(), from, limit).await?
    } else {
        let from = after.and_then(|after| after.parse().ok()).unwrap_or(from);
        let mut seen = line.peek(which, from, limit + 1).await?;
        let next = seen.get(limit).map(|next| next.message.sequence.to_string());
        seen.truncate(limit);
        (seen, next)
    };
    let cursor = end.map(|end| services.sealer.seal(&context, end.as_bytes()));
    let items = seen.iter().map(|seen| {
        let mut view = MessageView::from(&seen.message);
        view.scheduled_for = seen.due.map(time::IsoMillis);
        view
    });
    Ok(Json(StatusCode::OK, Peeked { items: items.collect(), cursor }).into_response())
}

async fn history(State(services): State<Services>, params: Params, place: Place) -> Result<impl IntoResponse, Problem> {
    let id = params.text("messageId").map(ToOwned::to_owned);
    params.finish()?;
    let id = id.filter(|id| (1..=1024).contains(&id.len()));
    let id =
        id.ok_or_else(|| Problem::invalid_field("messageId", "is missing, or too long for the id of a message"))?;
    let line = services.bus.line(&place.path)?;
    let items = services.bus.fates(&line.path, &id, PEEK).await?;
    Ok(Json(StatusCode::OK, Fates { items, cursor: None }))
}

async fn purge(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    place: Place,
) -> Result<impl IntoResponse, Problem> {
    Ok(Json(StatusCode::OK, Purged { purged: empty(&services, &caller, &correlation, &place.path).await? }))
}

/// Deletes every message; says how many there were.
pub async fn empty(
    services: &Services,
    caller: &Caller,
    correlation: &CorrelationId,
    path: &Path,
) -> Result<u64, Problem> {
    for _ in 0..5 {
        let (planned, purged) = services.bus.purge(path).await?;
        let action = Action::new("bus.purge", "entity", path.to_string()).details(json!({ "purged": purged }));
        match services.audit.record_with(&caller.name(), &correlation.0, action, planned.writes.clone()).await {
            Ok(_) => {
                services.bus.carried_out(planned).await?;
                return Ok(purged);
            }
            Err(Error::Conflict { .. }) => services.bus.sync_entities().await?,
            Err(error) => return Err(error.into()),
        }
    }
    Err(Error::Throttled("the entity is contended".to_owned()).into())
}

async fn cancel(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    place: Place,
) -> Result<impl IntoResponse, Problem> {
    if place.path.subscription.is_none() && matches!(services.bus.entity(&place.path.entity)?.body, Body::Topic(_)) {
        let name = &place.path.entity;
        return Err(Problem::bad_request(format!(
            "{name} is a topic: its subscriptions have the copies, each under a number of its own. Cancel all of them by \
             message id or business key (DELETE /bus/{name}/scheduled?key=), or one under its subscription"
        )));
    }
    let line = services.bus.line(&place.path)?;
    let none = || Problem::not_found("no message is scheduled under this number");
    let number: u64 = place.part("sequenceNumber").parse().map_err(|_| none())?;
    let prepared = line.prepare_cancel_of(number).await?;
    if prepared.is_empty() {
        return Err(none());
    }
    let action = Action::new("bus.cancel", "entity", &line.path).details(json!({ "sequenceNumber": number }));
    match carry_out(&services, &caller, &correlation, action, prepared).await {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        // It came due just now.
        Err(Error::Conflict { .. }) => Err(none()),
        Err(error) => Err(error.into()),
    }
}

/// Carries out what is prepared together with the audit entry.
async fn carry_out(
    services: &Services,
    caller: &Caller,
    correlation: &CorrelationId,
    action: Action,
    prepared: Prepared,
) -> Result<(), Error> {
    let outcome = services.audit.record_with(&caller.name(), &correlation.0, action, prepared.writes()).await.map(drop);
    prepared.resolve(&outcome);
    outcome
}

async fn cancel_by_key(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    params: Params,
    place: Place,
) -> Result<impl IntoResponse, Problem> {
    let Some(key) = params.text("key").map(ToOwned::to_owned) else {
        return Err(Problem::invalid_field("key", "is missing; it says which messages are meant"));
    };
    params.finish()?;
    // A message that was sent to a topic is scheduled in each of its subscriptions.
    let lines = match services.bus.entity(&place.path.entity)?.body.clone() {
        Body::Topic(subscriptions) if place.path.subscription.is_none() => {
            // What is yet to be copied to them is scheduled there, too.
            services.bus.copy_all().await?;
            subscriptions.values().map(|subscription| subscription.pair.main.clone()).collect()
        }
        _ => vec![services.bus.line(&place.path)?],
    };
    let mut cancelled = 0;
    for line in &lines {
        cancelled += cancel_all(line, &key, &services, &caller, &correlation).await?;
    }
    match cancelled {
        0 => Err(Problem::not_found("no message is scheduled under this key")),
        cancelled => Ok(Json(StatusCode::OK, Cancelled { cancelled })),
    }
}

async fn cancel_all(
    line: &std::sync::Arc<Line>,
    key: &str,
    services: &Services,
    caller: &Caller,
    correlation: &CorrelationId,
) -> Result<usize, Problem> {
    let mut cancelled = 0;
    loop {
        let (prepared, count) = line.prepare_cancel(key).await?;
        if count == 0 {
            return Ok(cancelled);
        }
        let details = json!({ "key": key, "cancelled": count });
        let action = Action::new("bus.cancel", "entity", &line.path).details(details);
        match carry_out(services, caller, correlation, action, prepared).await {
            Ok(()) => cancelled += count,
            // One of them came due just now; look again.
            Err(Error::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
