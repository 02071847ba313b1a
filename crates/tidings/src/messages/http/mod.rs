//! `/api/messages`, `/api/metrics` and `/api/message-types`; `dead` has the dead letters, `channels` the test notices.

mod channels;
pub mod dead;
mod read;
mod view;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use tidings_core::envelope::FieldError;
use tidings_core::message::{Input, Status};
use tidings_core::time::Timestamp;
use tidings_store::Error;
use uuid::Uuid;

pub use view::MessageView;

use super::list::{self, Filter};
use super::transition::Refused;
use super::{Message, Messages, Origin, counters};
use crate::app::Services;
use crate::audit::Action;
use crate::events::http::name_param;
use crate::http::paging::Asked;
use crate::http::{CorrelationId, End, IdempotencySeed, Json, JsonText, Param, Params, Problem, RequestIds, Route};
use crate::tokens::{Caller, Scope};

const MOST_CREATED: usize = 25;
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
            .answer::<MessageView>(201, "The message; it is on disk"),
        Route::new(Method::GET, "/api/messages", "Messages, newest first", page)
            .scopes(&[Scope::Read])
            .params(&[
                Param("stage", "dev, stage or prod; default the installation's"),
                Param("status", "created, queued, processing, completed or failed"),
                Param("message_type", "A type"),
                Param("from", "Not made before this date or time"),
                Param("to", "Not made after this date or time; a date means its whole day"),
                Param("limit", "1 to 100, default 50"),
                Param("cursor", "Where the page before ended"),
            ])
            .answer::<MessageList>(200, "A page of messages"),
        Route::new(Method::POST, "/api/messages/batch", "Make up to 25 messages, each on its own", create_batch)
            .scopes(&[Scope::Ingest, Scope::Operate])
            .body::<BatchBody>()
            .answer::<BatchAnswer>(201, "What became of each; at least one was made"),
        Route::new(Method::POST, "/api/messages/batch-get", "Up to 100 messages by their ids", get_batch)
            .scopes(&[Scope::Read])
            .body::<IdsBody>()
            .answer::<BatchGetAnswer>(200, "Those that exist, in the order of their ids"),
        Route::new(Method::GET, "/api/messages/{message_id}", "One message with its attempts", get)
            .scopes(&[Scope::Read])
            .answer::<MessageView>(200, "The message"),
        Route::new(
            Method::POST,
            "/api/messages/{message_id}/retry",
            "Send a failed message again, as a new one",
            retry,
        )
        .scopes(&[Scope::Operate])
        .answer::<MessageView>(201, "The new message, with `retry_of`")
        .answer_empty(409, "It is not failed"),
        Route::new(Method::POST, "/api/messages/{message_id}/cancel", "Do not send a message", cancel)
            .scopes(&[Scope::Operate])
            .answer::<MessageView>(200, "The message, failed as cancelled")
            .answer_empty(409, "It is being sent at this moment, or final"),
        Route::new(Method::POST, "/api/messages/cancel", "Do not send the messages of a key", cancel_by_key)
            .scopes(&[Scope::Operate])
            .body::<CancelBody>()
            .answer::<CancelAnswer>(200, "What became of each message of the key"),
        Route::new(Method::GET, "/api/metrics", "Messages by state, and how the last 24 hours went", metrics)
            .scopes(&[Scope::Read])
            .params(&[Param("stage", "dev, stage or prod; default the installation's")])
            .answer::<MetricsAnswer>(200, "The figures, kept and never counted by scanning"),
        Route::new(Method::GET, "/api/message-types", "The types of messages and their schemas", types)
            .scopes(&[Scope::Read, Scope::Operate, Scope::Ingest])
            .answer::<TypeList>(200, "All types"),
    ];
    routes.extend(dead::routes());
    routes.extend(channels::routes());
    routes
}

/// A message to make.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "describes the body, which is read field by field to name every mistake")]
struct NewMessageBody {
    /// One of `GET /api/message-types`.
    message_type: String,
    /// What the type's schema says; `topic` names another ntfy topic than the configured one.
    payload: Map<String, Value>,
    /// `dev`, `stage` or `prod`; default the installation's.
    stage: Option<String>,
    /// Not before this time.
    deliver_at: Option<String>,
    /// By which it can be cancelled, with all others of the same key: 1 to 128 characters.
    key: Option<String>,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "describes the body, which is read field by field to name every mistake")]
struct CancelBody {
    key: String,
}

#[derive(Serialize, JsonSchema)]
struct CancelAnswer {
    /// Those that are not sent any more.
    cancelled: Vec<String>,
    /// Those that cannot be called back: sent, failed, or on their way this very moment.
    too_late: Vec<String>,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "describes the body, which may also be the list itself")]
struct BatchBody {
    messages: Vec<NewMessageBody>,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "describes the body, which may also be the list itself")]
struct IdsBody {
    message_ids: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
struct MessageList {
    items: Vec<MessageView>,
    cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct BatchAnswer {
    created: usize,
    rejected: usize,
    items: Vec<BatchItem>,
}

/// What became of one entry of a batch: its message, or what is wrong with it.
#[derive(Serialize, JsonSchema)]
struct BatchItem {
    /// 201 or 400.
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<MessageView>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<Value>")]
    errors: Vec<FieldError>,
}

#[derive(Serialize, JsonSchema)]
struct BatchGetAnswer {
    items: Vec<MessageView>,
    not_found: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
struct MetricsAnswer {
    stage: String,
    /// Messages in each state.
    counts: std::collections::BTreeMap<&'static str, i64>,
    /// Completed in the last 24 hours.
    #[serde(rename = "CompletedCount")]
    completed_count: i64,
    /// Failed in the last 24 hours.
    #[serde(rename = "FailedCount")]
    failed_count: i64,
    /// Completed of all that ended in the last 24 hours, from 0 to 1; null if nothing did.
    #[serde(rename = "SuccessRate")]
    success_rate: Option<f64>,
    /// The 10 latest.
    recent: Vec<MessageView>,
    /// Failed ones, the latest 100.
    failed: Vec<MessageView>,
}

#[derive(Serialize, JsonSchema)]
struct TypeList {
    items: Vec<TypeView>,
    cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct TypeView {
    name: String,
    schema: Value,
}

type Seed = Option<Extension<IdempotencySeed>>;

fn request_ids<'a>(services: &'a Services, seed: Seed) -> RequestIds<'a> {
    match seed {
        Some(Extension(seed)) => RequestIds::Seeded(seed),
        None => RequestIds::Fresh(&*services.ids, services.clock.now()),
    }
}

/// S002-04: who made a message is who called.
fn created_by(caller: &Caller) -> String {
    let token = &caller.token;
    format!("user:{}", if token.name.is_empty() { &token.id } else { &token.name })
}

async fn create(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    seed: Seed,
    body: JsonText,
) -> Result<Response, Problem> {
    let fields = body.object()?;
    let created_by = created_by(&caller);
    let origin = Origin { created_by: &created_by, correlation_id: &correlation.0 };
    let id = request_ids(&services, seed).uuid(0);
    let message = compose(&services, &fields, origin, id, services.clock.now()).map_err(Problem::invalid)?;
    let made = services.messages.create(vec![message]).await?;
    made.into_iter().next().map(created).ok_or_else(|| Problem::bad_request("no message was made"))
}

/// The message that a body asks for; every field that is wrong.
fn compose(
    services: &Services,
    fields: &Map<String, Value>,
    origin: Origin<'_>,
    id: Uuid,
    now: Timestamp,
) -> Result<Message, Vec<FieldError>> {
    let key = read::cancel_key(fields);
    let composed = match read::request(fields) {
        Ok(request) => services.messages.compose(request, origin, id, now),
        // What is wrong with one field does not keep another's mistakes back.
        Err(mut errors) => {
            let payload = fields.get("payload").and_then(Value::as_object);
            if let Some(name) = fields.get("message_type").and_then(Value::as_str).filter(|name| !name.is_empty()) {
                let more = services.messages.types.check(name, payload.unwrap_or(&Map::new()));
                errors.extend(more.into_iter().filter(|error| payload.is_some() || error.field == "message_type"));
            }
            Err(errors)
        }
    };
    match (composed, key) {
        (Ok(message), Ok(cancel_key)) => Ok(Message { cancel_key, ..message }),
        (composed, key) => Err(composed.err().into_iter().flatten().chain(key.err()).collect()),
    }
}

fn created(message: Message) -> Response {
    let location = format!("/api/messages/{}", message.message_id);
    let mut response = Json(StatusCode::CREATED, MessageView::from(message)).into_response();
    if let Ok(location) = location.parse() {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

async fn create_batch(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    seed: Seed,
    body: JsonText,
) -> Result<impl IntoResponse, Problem> {
    let entries = read::batch(&body, "messages", MOST_CREATED)?;
    let (now, created_by) = (services.clock.now(), created_by(&caller));
    let origin = Origin { created_by: &created_by, correlation_id: &correlation.0 };
    let ids = request_ids(&services, seed);
    let composed: Vec<Result<Message, Vec<FieldError>>> = entries
        .iter()
        .enumerate()
        .map(|(place, entry)| {
            let fields = entry.as_object().ok_or_else(|| vec![FieldError::new("", "must be an object")])?;
            compose(&services, fields, origin, ids.uuid(place), now)
        })
        .collect();
    let good = composed.iter().filter_map(|entry| entry.as_ref().ok()).cloned().collect::<Vec<_>>();
    if good.is_empty() {
        return Err(all_refused(composed));
    }
    let created = good.len();
    let mut made = services.messages.create(good).await?.into_iter();
    let items: Vec<BatchItem> = composed
        .into_iter()
        .map(|entry| match entry {
            Ok(_) => BatchItem { status: 201, message: made.next().map(MessageView::from), errors: Vec::new() },
            Err(errors) => BatchItem { status: 400, message: None, errors },
        })
        .collect();
    Ok(Json(StatusCode::CREATED, BatchAnswer { created, rejected: items.len() - created, items }))
}

fn all_refused(composed: Vec<Result<Message, Vec<FieldError>>>) -> Problem {
    let errors = composed.into_iter().enumerate().flat_map(|(place, entry)| {
        let dotted = move |error: FieldError| {
            let dot = if error.field.is_empty() { "" } else { "." };
            FieldError::new(format!("[{place}]{dot}{}", error.field), error.message)
        };
        entry.err().into_iter().flatten().map(dotted)
    });
    Problem::invalid(errors.collect())
}

fn unknown() -> Problem {
    Problem::not_found("there is no message of this id, or it has expired")
}

async fn get(State(services): State<Services>, Path(id): Path<String>) -> Result<impl IntoResponse, Problem> {
    let stored = services.messages.get(&id).await?.ok_or_else(unknown)?;
    Ok(Json(StatusCode::OK, MessageView::from(stored.message)))
}

async fn get_batch(State(services): State<Services>, body: JsonText) -> Result<impl IntoResponse, Problem> {
    let entries = read::batch(&body, "message_ids", MOST_READ)?;
    let mut errors = Vec::new();
    for (place, _) in entries.iter().enumerate().filter(|(_, entry)| !entry.is_string()) {
        errors.push(FieldError::new(format!("[{place}]"), "must be a string"));
    }
    if !errors.is_empty() {
        return Err(Problem::invalid(errors));
    }
    let mut answer = BatchGetAnswer { items: Vec::new(), not_found: Vec::new() };
    for id in entries.iter().filter_map(Value::as_str) {
        match services.messages.get(id).await? {
            Some(stored) => answer.items.push(stored.message.into()),
            None => answer.not_found.push(id.to_owned()),
        }
    }
    Ok(Json(StatusCode::OK, answer))
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

async fn page(
    State(services): State<Services>,
    caller: Caller,
    mut params: Params,
) -> Result<impl IntoResponse, Problem> {
    let stage = stage_param(&mut params, &services.messages);
    let wanted = params.text("status").map(ToOwned::to_owned);
    let status = wanted.as_deref().and_then(|text| Status::ALL.into_iter().find(|status| status.as_str() == text));
    if wanted.is_some() && status.is_none() {
        params.refuse("status", "must be created, queued, processing, completed or failed");
    }
    let message_type = name_param(&mut params, "message_type");
    let (from, to) = (params.time("from", End::Start), params.time("to", End::Finish));
    if from.zip(to).is_some_and(|(from, to)| from > to) {
        params.refuse("from", "must not be after `to`");
    }
    let filter = Filter { stage, status, message_type, from, to };
    let mut asked = Asked::read(&services.sealer, &caller, "/api/messages", &filter, params)?;
    let (limit, after) = (asked.limit, asked.after.take());
    let (found, next) = list::page(&*services.store, &services.messages.table, &filter, limit, after).await?;
    let cursor = asked.cursor(&services.sealer, next.as_ref());
    Ok(Json(StatusCode::OK, MessageList { items: found.into_iter().map(MessageView::from).collect(), cursor }))
}

async fn retry(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    seed: Seed,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let new_id: Uuid = request_ids(&services, seed).uuid(0);
    Ok(created(send_again(&services, &caller, &correlation, &id, new_id).await?))
}

/// Sends a failed message again as a new one of that id; gives the new one.
pub async fn send_again(
    services: &Services,
    caller: &Caller,
    correlation: &CorrelationId,
    id: &str,
    new_id: Uuid,
) -> Result<Message, Problem> {
    let failed = services.messages.get(id).await?.ok_or_else(unknown)?.message;
    let status = failed.delivery.status;
    if status != Status::Failed {
        let detail = format!("only a failed message can be sent again; this one is {}", status.as_str());
        return Err(Problem::conflict(detail));
    }
    let again = services.messages.again(&failed, created_by(caller), new_id, services.clock.now());
    let action = Action::new("message.retry", "message", &failed.message_id)
        .details(serde_json::json!({ "message_id": again.message_id }));
    let writes = services.messages.creation(std::slice::from_ref(&again))?;
    match services.audit.record_with(&caller.name(), &correlation.0, action, writes).await {
        Ok(_) => services.messages.signals.created([&again]),
        // The same request come again: it is made.
        Err(Error::Conflict { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let made = services.messages.get(&again.message_id).await?;
    Ok(made.map_or(again, |made| made.message))
}

async fn cancel(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    Path(id): Path<String>,
) -> Result<impl IntoResponse, Problem> {
    Ok(Json(StatusCode::OK, MessageView::from(call_off(&services, &caller, &correlation, &id).await?)))
}

/// Does not send a message; gives it as it is then.
pub async fn call_off(
    services: &Services,
    caller: &Caller,
    correlation: &CorrelationId,
    id: &str,
) -> Result<Message, Problem> {
    let stored = services.messages.get(id).await?.ok_or_else(unknown)?;
    let transition = services.messages.transition(&stored, Input::Cancelled, services.clock.now(), |_| {});
    let transition = transition.map_err(|refused| match refused {
        Refused::Conflict(conflict) => Problem::conflict(conflict.to_string()),
        Refused::Store(error) => error.into(),
    })?;
    let action = Action::new("message.cancel", "message", id);
    match services.audit.record_with(&caller.name(), &correlation.0, action, transition.all_writes()).await {
        Ok(_) => {
            services.metrics.tally.failed();
            Ok(transition.after.message)
        }
        Err(Error::Conflict { .. }) => Err(Problem::conflict("the message has just changed; look at it again")),
        Err(error) => Err(error.into()),
    }
}

/// Cancels what waits under a key, each message on its own (SX-16).
async fn cancel_by_key(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    body: JsonText,
) -> Result<impl IntoResponse, Problem> {
    let key = read::cancel_key(&body.object()?).map_err(|error| Problem::invalid(vec![error]))?;
    let key = key.ok_or_else(|| Problem::invalid_field("key", "is required"))?;
    let messages = &services.messages;
    let mut answer = CancelAnswer { cancelled: Vec::new(), too_late: Vec::new() };
    for stored in messages.of_key(&key).await? {
        let id = stored.message.message_id.clone();
        let cancelled = match messages.transition(&stored, Input::Cancelled, services.clock.now(), |_| {}) {
            Ok(transition) => {
                let action = Action::new("message.cancel", "message", &id).details(serde_json::json!({ "key": key }));
                let writes = transition.all_writes();
                match services.audit.record_with(&caller.name(), &correlation.0, action, writes).await {
                    Ok(_) => true,
                    Err(Error::Conflict { .. }) => false,
                    Err(error) => return Err(error.into()),
                }
            }
            Err(Refused::Conflict(_)) => false,
            Err(Refused::Store(error)) => return Err(error.into()),
        };
        if cancelled { answer.cancelled.push(id) } else { answer.too_late.push(id) }
    }
    if answer.cancelled.is_empty() && answer.too_late.is_empty() {
        return Err(Problem::not_found("there is no message of this key, or it has expired"));
    }
    Ok(Json(StatusCode::OK, answer))
}

async fn metrics(State(services): State<Services>, mut params: Params) -> Result<impl IntoResponse, Problem> {
    let stage = stage_param(&mut params, &services.messages);
    params.finish()?;
    let store = &*services.store;
    let counts = counters::by_state(store, &stage).await?;
    let ended = counters::last_day(store, &stage, services.clock.now()).await?;
    let filter = Filter { stage: stage.clone(), status: None, message_type: None, from: None, to: None };
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
        recent: recent.into_iter().map(MessageView::from).collect(),
        failed: failed.into_iter().map(MessageView::from).collect(),
    };
    Ok(Json(StatusCode::OK, answer))
}

async fn types(State(services): State<Services>) -> impl IntoResponse {
    let types = services.messages.types.list();
    let items = types.map(|(name, schema)| TypeView { name: name.to_owned(), schema: schema.clone() }).collect();
    Json(StatusCode::OK, TypeList { items, cursor: None })
}
