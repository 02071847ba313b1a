//! Receiving and settling: one at a time in the Service Bus shape, and in batches.

use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use tidings_core::envelope::FieldError;
use tidings_core::{json, time};
use uuid::Uuid;

use super::view::MessageView;
use super::{Place, broker_properties, paths};
use crate::app::Services;
use crate::bus::line::LineError;
use crate::bus::message::REASON_CHARS;
use crate::bus::settle::{Settled, Settlement, Why};
use crate::http::{Json, JsonText, Param, Params, Problem, Route};
use crate::tokens::{Caller, Scope};

/// Seconds that a call may wait for a message.
pub const WAIT_SECONDS: usize = 300;
/// Messages that one call receives or settles.
pub const BATCH: usize = 256;
/// Seconds that an abandoned message may wait: a week.
const DELAY_SECONDS: usize = 604_800;

#[must_use]
pub fn routes() -> Vec<Route> {
    let mut routes = Vec::new();
    let wait: &'static [Param] = &[Param("timeout", "Seconds to wait for a message, 0 to 300, default 0")];
    for path in paths!("/messages/head") {
        routes.push(
            Route::new(Method::POST, path, "Receive a message under a lock (peek-lock)", peek_lock)
                .at_owner()
                .scopes(&[Scope::Consume])
                .params(wait)
                .answer_as::<String>(201, "The message; BrokerProperties and Location say the rest", "*/*")
                .answer_empty(204, "None came in time")
                .answer_empty(410, "There is no such entity"),
        );
        routes.push(
            Route::new(Method::DELETE, path, "Receive a message and delete it", receive_and_delete)
                .at_owner()
                .scopes(&[Scope::Consume])
                .params(wait)
                .answer_as::<String>(200, "The message, which is gone with that", "*/*")
                .answer_empty(204, "None came in time")
                .answer_empty(410, "There is no such entity"),
        );
    }
    for path in paths!("/messages/{message}/{lockToken}") {
        routes.push(
            Route::new(Method::DELETE, path, "Complete a message", complete)
                .at_owner()
                .scopes(&[Scope::Consume])
                .answer_empty(200, "It is done and deleted")
                .answer_empty(404, "The lock is lost or unknown"),
        );
        routes.push(
            Route::new(Method::PUT, path, "Abandon a message: it is received again", abandon)
                .at_owner()
                .scopes(&[Scope::Consume])
                .params(&[Param("delaySeconds", "Wait so long before the next delivery, 0 to 604800")])
                .body::<Map<String, Value>>()
                .answer_empty(200, "It is back")
                .answer_empty(404, "The lock is lost or unknown"),
        );
        routes.push(
            Route::new(Method::POST, path, "Renew a lock", renew)
                .at_owner()
                .scopes(&[Scope::Consume])
                .answer::<Renewed>(200, "The lock lasts longer")
                .answer_empty(404, "The lock is lost or unknown"),
        );
    }
    for path in paths!("/receive") {
        routes.push(
            Route::new(Method::POST, path, "Receive messages under locks", receive)
                .at_owner()
                .scopes(&[Scope::Consume])
                .body::<ReceiveBody>()
                .answer::<Received>(200, "The messages, if any came in time"),
        );
    }
    for path in paths!("/settle") {
        routes.push(
            Route::new(Method::POST, path, "Settle messages, each on its own", settle)
                .at_owner()
                .scopes(&[Scope::Consume])
                .body::<Vec<SettleBody>>()
                .answer::<SettledList>(200, "What came of each"),
        );
    }
    routes
}

#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "describes the body, which is read field by field to name every mistake")]
struct ReceiveBody {
    /// 1 to 256, default 1.
    max: Option<u32>,
    /// 0 to 300, default 0.
    wait_seconds: Option<u32>,
    /// Deferred messages by their numbers, instead of the next ones.
    sequence_numbers: Option<Vec<u64>>,
}

#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "describes the body, which is read field by field to name every mistake")]
struct SettleBody {
    lock_token: String,
    /// `complete`, `abandon`, `deadletter`, `defer` or `renew`.
    action: String,
    delay_seconds: Option<f64>,
    reason: Option<String>,
    description: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct Received {
    messages: Vec<MessageView>,
}

#[derive(Serialize, JsonSchema)]
struct SettledList {
    results: Vec<SettledView>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SettledView {
    lock_token: String,
    /// `ok`, `lost` (the lock is lost or unknown) or `failed`.
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    locked_until: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Renewed {
    locked_until: String,
}

fn wait(params: &mut Params) -> Duration {
    Duration::from_secs(params.number("timeout", 0..=WAIT_SECONDS, 0) as u64)
}

async fn peek_lock(
    State(services): State<Services>,
    caller: Caller,
    mut params: Params,
    place: Place,
) -> Result<Response, Problem> {
    let wait = wait(&mut params);
    params.finish()?;
    let (line, mut taken) = services.bus.receive(&place.path, 1, wait, Some(&caller.name()), false).await?;
    let Some(taken) = taken.pop() else { return Ok(StatusCode::NO_CONTENT.into_response()) };
    let mut headers = broker_properties::to_headers(&taken.held, Some(taken.token));
    let (url, path, number) = (&services.config.public_url, &line.path, taken.held.message.sequence);
    let location = format!("{}/bus/{path}/messages/{number}/{}", url.trim_end_matches('/'), taken.token);
    if let Ok(value) = HeaderValue::from_str(&location) {
        headers.insert(header::LOCATION, value);
    }
    Ok((StatusCode::CREATED, headers, taken.held.message.message.body.clone()).into_response())
}

async fn receive_and_delete(
    State(services): State<Services>,
    caller: Caller,
    mut params: Params,
    place: Place,
) -> Result<Response, Problem> {
    let wait = wait(&mut params);
    params.finish()?;
    let (_, mut taken) = services.bus.receive(&place.path, 1, wait, Some(&caller.name()), true).await?;
    let Some(taken) = taken.pop() else { return Ok(StatusCode::NO_CONTENT.into_response()) };
    let headers: HeaderMap = broker_properties::to_headers(&taken.held, None);
    Ok((StatusCode::OK, headers, taken.held.message.message.body.clone()).into_response())
}

async fn complete(State(services): State<Services>, place: Place) -> Result<Response, Problem> {
    settle_one(&services, &place, Settlement::Complete).await
}

async fn abandon(State(services): State<Services>, mut params: Params, place: Place) -> Result<Response, Problem> {
    let given = params.text("delaySeconds").is_some();
    let seconds = params.number("delaySeconds", 0..=DELAY_SECONDS, 0);
    params.finish()?;
    let delay = given.then(|| Duration::from_secs(seconds as u64));
    settle_one(&services, &place, Settlement::Abandon { delay, why: Why::default() }).await
}

async fn renew(State(services): State<Services>, place: Place) -> Result<Response, Problem> {
    settle_one(&services, &place, Settlement::Renew).await
}

async fn settle_one(services: &Services, place: &Place, settlement: Settlement) -> Result<Response, Problem> {
    let line = services.bus.line(&place.path)?;
    let token = Uuid::parse_str(place.part("lockToken")).map_err(|_| LineError::LockLost)?;
    // The lock must be on the message that is named.
    if !line.is_locked_as(&token, place.part("message")) {
        return Err(LineError::LockLost.into());
    }
    Ok(match line.settle_one(token, settlement).await? {
        Settled::Done => StatusCode::OK.into_response(),
        Settled::LockedUntil(until) => {
            Json(StatusCode::OK, Renewed { locked_until: time::iso_millis(until) }).into_response()
        }
    })
}

async fn receive(
    State(services): State<Services>,
    caller: Caller,
    place: Place,
    body: JsonText,
) -> Result<impl IntoResponse, Problem> {
    let fields = if body.0.is_empty() { Map::new() } else { body.object()? };
    let mut errors = Vec::new();
    let max = number(&fields, "max", 1..=BATCH as u64, 1, &mut errors);
    let wait = number(&fields, "waitSeconds", 0..=WAIT_SECONDS as u64, 0, &mut errors);
    let numbers = numbers(&fields, &mut errors);
    if !errors.is_empty() {
        return Err(Problem::invalid(errors));
    }
    let (consumer, bus) = (caller.name(), &services.bus);
    let (max, wait) = (usize::try_from(max).unwrap_or(1), Duration::from_secs(wait));
    let taken = match numbers {
        Some(numbers) => bus.line(&place.path)?.receive_deferred(&numbers, Some(&consumer)).await?,
        None => bus.receive(&place.path, max, wait, Some(&consumer), false).await?.1,
    };
    Ok(Json(StatusCode::OK, Received { messages: taken.iter().map(MessageView::from).collect() }))
}

fn number(
    fields: &Map<String, Value>,
    name: &str,
    range: std::ops::RangeInclusive<u64>,
    default: u64,
    errors: &mut Vec<FieldError>,
) -> u64 {
    match fields.get(name).filter(|value| !value.is_null()) {
        None => default,
        Some(value) => value.as_u64().filter(|number| range.contains(number)).unwrap_or_else(|| {
            let message = format!("must be a whole number from {} to {}", range.start(), range.end());
            errors.push(FieldError::new(name, message));
            default
        }),
    }
}

fn numbers(fields: &Map<String, Value>, errors: &mut Vec<FieldError>) -> Option<Vec<u64>> {
    let value = fields.get("sequenceNumbers").filter(|value| !value.is_null())?;
    let numbers: Option<Vec<u64>> = value.as_array().and_then(|list| list.iter().map(Value::as_u64).collect());
    if numbers.as_ref().is_none_or(|numbers| numbers.is_empty() || numbers.len() > BATCH) {
        errors.push(FieldError::new("sequenceNumbers", format!("must be a list of 1 to {BATCH} numbers")));
    }
    numbers
}

async fn settle(State(services): State<Services>, place: Place, body: JsonText) -> Result<impl IntoResponse, Problem> {
    let Value::Array(list) = json::parse::<Value>(body.text()?)? else {
        return Err(Problem::invalid_field("", "the body must be a list of settlements"));
    };
    if list.is_empty() || list.len() > BATCH {
        return Err(Problem::invalid_field("", format!("the list must have 1 to {BATCH} settlements")));
    }
    let mut errors = Vec::new();
    let mut settlements = Vec::with_capacity(list.len());
    for (place, value) in list.iter().enumerate() {
        match value {
            Value::Object(fields) => settlements.extend(settlement(fields, place, &mut errors)),
            _ => errors.push(FieldError::new(format!("[{place}]"), "must be an object")),
        }
    }
    if !errors.is_empty() {
        return Err(Problem::invalid(errors));
    }
    let line = services.bus.line(&place.path)?;
    let tokens: Vec<Uuid> = settlements.iter().map(|(token, _)| *token).collect();
    let outcomes = line.settle(settlements).await;
    let mut results = Vec::with_capacity(tokens.len());
    for (lock_token, outcome) in tokens.into_iter().zip(outcomes) {
        let (status, error, locked_until) = match outcome {
            Ok(Settled::Done) => ("ok", None, None),
            Ok(Settled::LockedUntil(until)) => ("ok", None, Some(time::iso_millis(until))),
            Err(error @ LineError::LockLost) => ("lost", Some(error.to_string()), None),
            Err(LineError::Gone) => return Err(LineError::Gone.into()),
            Err(error) => ("failed", Some(error.to_string()), None),
        };
        results.push(SettledView { lock_token: lock_token.to_string(), status, error, locked_until });
    }
    Ok(Json(StatusCode::OK, SettledList { results }))
}

fn settlement(fields: &Map<String, Value>, place: usize, errors: &mut Vec<FieldError>) -> Option<(Uuid, Settlement)> {
    let before = errors.len();
    let mut wrong = |name: &str, why: String| errors.push(FieldError::new(format!("[{place}].{name}"), why));
    let token = fields.get("lockToken").and_then(Value::as_str).and_then(|text| Uuid::parse_str(text).ok());
    if token.is_none() {
        wrong("lockToken", "must be the lockToken of a message that was received".to_owned());
    }
    let delay = match fields.get("delaySeconds").filter(|value| !value.is_null()) {
        None => None,
        Some(value) => {
            let most = DELAY_SECONDS as u64;
            let seconds = value.as_f64().filter(|seconds| (0.0..=604_800.0).contains(seconds));
            if seconds.is_none() {
                wrong("delaySeconds", format!("must be a number from 0 to {most}"));
            }
            seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        }
    };
    let mut text = |name: &str| match fields.get(name).filter(|value| !value.is_null()) {
        None => None,
        Some(Value::String(text)) if text.chars().count() <= REASON_CHARS => Some(text.clone()),
        Some(_) => {
            wrong(name, format!("must be a text of at most {REASON_CHARS} characters"));
            None
        }
    };
    let why = Why { reason: text("reason"), description: text("description") };
    let settlement = match fields.get("action").and_then(Value::as_str) {
        Some("complete") => Some(Settlement::Complete),
        Some("abandon") => Some(Settlement::Abandon { delay, why }),
        Some("deadletter") => Some(Settlement::DeadLetter(why)),
        Some("defer") => Some(Settlement::Defer),
        Some("renew") => Some(Settlement::Renew),
        _ => {
            wrong("action", "must be complete, abandon, deadletter, defer or renew".to_owned());
            None
        }
    };
    if errors.len() > before { None } else { token.zip(settlement) }
}
