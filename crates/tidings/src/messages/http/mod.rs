//! `/api/messages`, `/api/metrics` and `/api/message-types`; `dead` has the dead letters, `channels` the test notices.

mod change;
mod channels;
mod create;
pub mod dead;
mod read;
mod shapes;
mod view;

use axum::extract::{Path, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use tidings_core::envelope::FieldError;
use tidings_core::message::Status;

pub use change::{call_off, send_again};
pub use view::MessageView;

use change::{cancel, cancel_by_key, retry};
use create::{create, create_batch};
use shapes::{
    BatchAnswer, BatchBody, BatchGetAnswer, CancelAnswer, CancelBody, IdsBody, MessageList, MetricsAnswer,
    NewMessageBody, TypeList, TypeView,
};

use super::list::{self, Filter};
use super::{Messages, counters};
use crate::app::Services;
use crate::events::http::name_param;
use crate::http::paging::Asked;
use crate::http::{End, Json, JsonText, Param, Params, Problem, Route, correlation_param};
use crate::tokens::{Caller, Scope};

const MOST_READ: usize = 100;
/// Of the latest messages in the metrics.
const RECENT: usize = 10;
/// Of the failed messages in the metrics.
const FAILED: usize = 100;

#[must_use]
pub fn routes() -> Vec<Route> {
    let mut routes = vec![
        Route::new(Method::POST, "/api/messages", "Make a message", create)
            .scopes(&[Scope::Ingest, Scope::Operate])
            .body::<NewMessageBody>()
            .answer::<MessageView<'static>>(201, "The message; it is on disk"),
        Route::new(Method::GET, "/api/messages", "Messages, newest first", page)
            .scopes(&[Scope::Read])
            .params(&[
                Param("stage", "dev, stage or prod; default the installation's"),
                Param("status", "created, queued, processing, completed or failed"),
                Param("message_type", "A type"),
                Param("correlation_id", "An id; GET /trace/{correlationId} has more"),
                Param("correlationId", "The same as `correlation_id`"),
                Param("from", "Not made before this date or time"),
                Param("to", "Not made after this date or time; a date means its whole day"),
                Param("limit", "1 to 100, default 50"),
                Param("cursor", "Where the page before ended"),
            ])
            .answer::<MessageList<'static>>(200, "A page of messages"),
        Route::new(Method::POST, "/api/messages/batch", "Make up to 25 messages, each on its own", create_batch)
            .scopes(&[Scope::Ingest, Scope::Operate])
            .body::<BatchBody>()
            .answer::<BatchAnswer<'static>>(201, "What became of each; at least one was made"),
        Route::new(Method::POST, "/api/messages/batch-get", "Up to 100 messages by their ids", get_batch)
            .scopes(&[Scope::Read])
            .body::<IdsBody>()
            .answer::<BatchGetAnswer<'static>>(200, "Those that exist, in the order of their ids"),
        Route::new(Method::GET, "/api/messages/{message_id}", "One message with its attempts", get)
            .scopes(&[Scope::Read])
            .answer::<MessageView<'static>>(200, "The message"),
        Route::new(
            Method::POST,
            "/api/messages/{message_id}/retry",
            "Send a failed message again, as a new one",
            retry,
        )
        .scopes(&[Scope::Operate])
        .at_owner()
        .answer::<MessageView<'static>>(201, "The new message, with `retry_of`")
        .answer_empty(409, "It is not failed"),
        Route::new(Method::POST, "/api/messages/{message_id}/cancel", "Do not send a message", cancel)
            .scopes(&[Scope::Operate])
            .answer::<MessageView<'static>>(200, "The message, failed as cancelled")
            .answer_empty(409, "It is being sent at this moment, or final"),
        Route::new(Method::POST, "/api/messages/cancel", "Do not send the messages of a key", cancel_by_key)
            .scopes(&[Scope::Operate])
            .body::<CancelBody>()
            .answer::<CancelAnswer>(200, "What became of each message of the key"),
        Route::new(Method::GET, "/api/metrics", "Messages by state, and how the last 24 hours went", metrics)
            .scopes(&[Scope::Read])
            .params(&[Param("stage", "dev, stage or prod; default the installation's")])
            .answer::<MetricsAnswer<'static>>(200, "The figures, kept and never counted by scanning"),
        Route::new(Method::GET, "/api/message-types", "The types of messages and their schemas", types)
            .scopes(&[Scope::Read, Scope::Operate, Scope::Ingest])
            .answer::<TypeList>(200, "All types"),
    ];
    routes.extend(dead::routes());
    routes.extend(channels::routes());
    routes
}

fn unknown() -> Problem {
    Problem::not_found("there is no message of this id, or it has expired")
}

async fn get(State(services): State<Services>, Path(id): Path<String>) -> Result<Response, Problem> {
    let stored = services.messages.get(&id).await?.ok_or_else(unknown)?;
    Ok(Json(StatusCode::OK, MessageView::from(&stored.message)).into_response())
}

async fn get_batch(State(services): State<Services>, body: JsonText) -> Result<Response, Problem> {
    let (list, entries) = read::batch(&body, "message_ids", MOST_READ)?;
    let mut errors = Vec::new();
    for (place, _) in entries.iter().enumerate().filter(|(_, entry)| !entry.is_string()) {
        errors.push(FieldError::new(format!("{list}[{place}]"), "must be a string"));
    }
    if !errors.is_empty() {
        return Err(Problem::invalid(errors));
    }
    let (mut found, mut not_found) = (Vec::new(), Vec::new());
    for id in entries.iter().filter_map(Value::as_str) {
        match services.messages.get(id).await? {
            Some(stored) => found.push(stored.message),
            None => not_found.push(id.to_owned()),
        }
    }
    let answer = BatchGetAnswer { items: found.iter().map(MessageView::from).collect(), not_found };
    Ok(Json(StatusCode::OK, answer).into_response())
}

fn stage_param(params: &mut Params, messages: &Messages) -> String {
    match params.text("stage") {
        None => messages.stage().to_owned(),
        Some(stage) if read::is_stage(stage) => stage.to_owned(),
        Some(_) => {
            params.refuse("stage", "must be dev, stage or prod");
            String::new()
        }
    }
}

async fn page(State(services): State<Services>, caller: Caller, mut params: Params) -> Result<Response, Problem> {
    let stage = stage_param(&mut params, &services.messages);
    let wanted = params.text("status").map(ToOwned::to_owned);
    let status = wanted.as_deref().and_then(|text| Status::ALL.into_iter().find(|status| status.as_str() == text));
    if wanted.is_some() && status.is_none() {
        params.refuse("status", "must be created, queued, processing, completed or failed");
    }
    let message_type = name_param(&mut params, "message_type");
    let correlation_id = correlation_param(&mut params);
    let (from, to) = (params.time("from", End::Start), params.time("to", End::Finish));
    if from.zip(to).is_some_and(|(from, to)| from > to) {
        params.refuse("from", "must not be after `to`");
    }
    let filter = Filter { stage, status, message_type, correlation_id, from, to };
    let mut asked = Asked::read(&services.sealer, &caller, "/api/messages", &filter, params)?;
    let (limit, after) = (asked.limit, asked.after.take());
    let (found, next) = list::page(&*services.store, &services.messages.table, &filter, limit, after).await?;
    let cursor = asked.cursor(&services.sealer, next.as_ref());
    Ok(Json(StatusCode::OK, MessageList { items: found.iter().map(MessageView::from).collect(), cursor })
        .into_response())
}

async fn metrics(State(services): State<Services>, mut params: Params) -> Result<Response, Problem> {
    let stage = stage_param(&mut params, &services.messages);
    params.finish()?;
    let store = &*services.store;
    let counts = counters::by_state(store, &stage).await?;
    let ended = counters::last_day(store, &stage, services.clock.now()).await?;
    let filter =
        Filter { stage: stage.clone(), status: None, message_type: None, correlation_id: None, from: None, to: None };
    let failed = Filter { status: Some(Status::Failed), ..filter.clone() };
    let (recent, _) = list::page(store, &services.messages.table, &filter, RECENT, None).await?;
    let (failed, _) = list::page(store, &services.messages.table, &failed, FAILED, None).await?;
    let all = ended.completed + ended.failed;
    #[expect(clippy::cast_precision_loss, reason = "a share needs no more than 53 bits")]
    let success_rate = (all > 0).then(|| ended.completed as f64 / all as f64);
    let answer = MetricsAnswer {
        stage,
        counts,
        completed_count: ended.completed,
        failed_count: ended.failed,
        success_rate,
        recent: recent.iter().map(MessageView::from).collect(),
        failed: failed.iter().map(MessageView::from).collect(),
    };
    Ok(Json(StatusCode::OK, answer).into_response())
}

async fn types(State(services): State<Services>) -> impl IntoResponse {
    let types = services.messages.types.list();
    let items = types.map(|(name, schema)| TypeView { name: name.to_owned(), schema: schema.clone() }).collect();
    Json(StatusCode::OK, TypeList { items, cursor: None })
}
