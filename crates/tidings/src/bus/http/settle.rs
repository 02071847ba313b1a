//! Settling what was received: one at a time in the Service Bus shape, in batches, and along with receiving more.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use tidings_core::envelope::FieldError;
use tidings_core::json::{self, Borrowed, Object};
use tidings_core::time;
use uuid::Uuid;

use super::receive::BATCH;
use super::view::Token;
use super::{Place, paths};
use crate::app::Services;
use crate::bus::line::{Line, LineError};
use crate::bus::message::REASON_CHARS;
use crate::bus::settle::{Settled, Settlement, Why};
use crate::http::{Json, JsonText, Param, Params, Problem, Route};
use crate::tokens::Scope;

/// Seconds that an abandoned message may wait: a week.
const DELAY_SECONDS: usize = 604_800;

#[must_use]
pub fn routes() -> Vec<Route> {
    let mut routes = Vec::new();
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
pub(super) struct SettleBody {
    lock_token: String,
    /// `complete`, `abandon`, `deadletter`, `defer` or `renew`.
    action: String,
    delay_seconds: Option<f64>,
    reason: Option<String>,
    description: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct SettledList {
    results: Vec<SettledView>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct SettledView {
    #[schemars(with = "String")]
    lock_token: Token,
    /// `ok`, `lost` (the lock is lost or unknown) or `failed`: not done, or not known yet, as `error` says.
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

async fn settle(State(services): State<Services>, place: Place, body: JsonText) -> Result<impl IntoResponse, Problem> {
    let Borrowed::List(list) = json::parse(body.text()?)? else {
        return Err(Problem::invalid_field("", "the body must be a list of settlements"));
    };
    if list.is_empty() || list.len() > BATCH {
        return Err(Problem::invalid_field("", format!("the list must have 1 to {BATCH} settlements")));
    }
    let mut errors = Vec::new();
    let settlements = read(&list, "", &mut errors);
    if !errors.is_empty() {
        return Err(Problem::invalid(errors));
    }
    let results = carry_out(&services.bus.line(&place.path)?, settlements).await?;
    Ok(Json(StatusCode::OK, SettledList { results }))
}

/// The settlements of a list, whose place in the body is `within`; notes every mistake.
pub(super) fn read(list: &[Borrowed<'_>], within: &str, errors: &mut Vec<FieldError>) -> Vec<(Uuid, Settlement)> {
    let mut settlements = Vec::with_capacity(list.len());
    for (place, value) in list.iter().enumerate() {
        let name = || format!("{within}[{place}]");
        match value {
            Borrowed::Object(fields) => settlements.extend(settlement(fields, &name, errors)),
            _ => errors.push(FieldError::new(name(), "must be an object")),
        }
    }
    settlements
}

/// Settles each, and says what came of it.
///
/// # Errors
///
/// If there is no such queue or subscription any more.
pub(super) async fn carry_out(
    line: &Arc<Line>,
    settlements: Vec<(Uuid, Settlement)>,
) -> Result<Vec<SettledView>, LineError> {
    let tokens: Vec<Uuid> = settlements.iter().map(|(token, _)| *token).collect();
    let outcomes = line.settle(settlements).await;
    let mut results = Vec::with_capacity(tokens.len());
    for (lock_token, outcome) in tokens.into_iter().zip(outcomes) {
        let (status, error, locked_until) = match outcome {
            Ok(Settled::Done) => ("ok", None, None),
            Ok(Settled::LockedUntil(until)) => ("ok", None, Some(time::iso_millis(until))),
            Err(error @ LineError::LockLost) => ("lost", Some(error.to_string()), None),
            Err(LineError::Gone) => return Err(LineError::Gone),
            Err(error) => ("failed", Some(error.to_string()), None),
        };
        results.push(SettledView { lock_token: Token(lock_token), status, error, locked_until });
    }
    Ok(results)
}

fn settlement(
    fields: &Object<'_>,
    place: &dyn Fn() -> String,
    errors: &mut Vec<FieldError>,
) -> Option<(Uuid, Settlement)> {
    let before = errors.len();
    let mut wrong = |name: &str, why: String| errors.push(FieldError::new(format!("{}.{name}", place()), why));
    let token = fields.get("lockToken").and_then(Borrowed::as_str).and_then(|text| Uuid::parse_str(text).ok());
    if token.is_none() {
        wrong("lockToken", "must be the lockToken of a message that was received".to_owned());
    }
    let delay = match fields.get("delaySeconds") {
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
    let mut text = |name: &str| match fields.get(name) {
        None => None,
        Some(Borrowed::Text(text)) if text.chars().count() <= REASON_CHARS => Some(text.clone().into_owned()),
        Some(_) => {
            wrong(name, format!("must be a text of at most {REASON_CHARS} characters"));
            None
        }
    };
    let why = Why { reason: text("reason"), description: text("description") };
    let settlement = match fields.get("action").and_then(Borrowed::as_str) {
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
