//! `POST /ingest/azure-devops`, and the two handshakes of those who deliver there.

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;

use crate::alerts::shapes::{self, Request};
use crate::alerts::{Receipt, Refused};
use crate::app::Services;
use crate::http::collector::{self, Said};
use crate::http::{CorrelationId, Json, OneOrMany, Param, Problem, Route};
use crate::tokens::Scope;

const PATH: &str = "/ingest/azure-devops";
const KEY: Param = Param("key", "The token, for callers that can send no header; `aeg-sas-key` takes it as well");

pub fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::POST, PATH, "Send Azure DevOps audit events, bare or as their carriers wrap them", send)
            .scopes(&[Scope::Ingest])
            .key_in_url()
            .params(&[KEY])
            .body::<OneOrMany<AuditBody>>()
            .answer::<SendAnswer>(202, "What became of each event; accepted and suppressed ones are on disk")
            .answer::<ValidationAnswer>(200, "The answer to Event Grid's question whether we want its events"),
        Route::new(Method::OPTIONS, PATH, "Consent to CloudEvents deliveries", consent)
            .scopes(&[Scope::Ingest])
            .key_in_url()
            .params(&[KEY])
            .answer_empty(200, "WebHook-Allowed-Origin and WebHook-Allowed-Rate say yes"),
        collector_route("/services/collector/event"),
        collector_route("/services/collector"),
    ]
}

/// Splunk's HTTP event collector, to which Azure DevOps can stream its audit log: events one after the other, each in
/// `event`, and the token in `Authorization: Splunk TOKEN`.
fn collector_route(path: &'static str) -> Route {
    Route::new(Method::POST, path, "Send audit events as to Splunk's HTTP event collector", collect)
        .scopes(&[Scope::Ingest])
        .key_in_url()
        .as_collector()
        .params(&[Param("channel", "Splunk's channel; not needed"), KEY])
        .body::<CollectorEvent>()
        .answer::<Said>(200, "Taken: text `Success`, code 0")
}

/// One of the events of a body.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "describes the body, which is read without building a tree")]
struct CollectorEvent {
    /// Seconds since 1970; the event's own time counts.
    time: Option<f64>,
    host: Option<String>,
    source: Option<String>,
    sourcetype: Option<String>,
    /// The audit event.
    event: serde_json::Map<String, serde_json::Value>,
}

/// An audit event, or what carries it.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes the body")]
enum AuditBody {
    Event(Box<AuditEvent>),
    Carrier(serde_json::Map<String, serde_json::Value>),
}

/// One audit event as Azure DevOps writes it. Also taken: an array of them, `{"decoratedAuditLogEntries": […]}`, Event
/// Grid's array and CloudEvents with it in `data`, EventBridge's envelope with it in `detail`, Splunk's with it in
/// `event`. Fields beyond these are kept in `RawEventJson`.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[expect(dead_code, reason = "describes the body, which is read without building a tree")]
struct AuditEvent {
    /// Recognises an event that comes again.
    id: Option<String>,
    correlation_id: Option<String>,
    /// ISO 8601, or seconds since 1970.
    timestamp: String,
    actor_user_id: String,
    #[schemars(rename = "actorUPN")]
    actor_upn: Option<String>,
    actor_display_name: String,
    ip_address: Option<String>,
    action_id: String,
    area: Option<String>,
    category: Option<String>,
    details: String,
    data: Option<serde_json::Map<String, serde_json::Value>>,
}

#[derive(Serialize, JsonSchema)]
struct SendAnswer {
    accepted: usize,
    duplicates: usize,
    ignored: usize,
    suppressed: usize,
    expired: usize,
    rejected: usize,
    events: Vec<Receipt>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ValidationAnswer {
    validation_response: String,
}

async fn send(
    State(services): State<Services>,
    correlation: CorrelationId,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Problem> {
    let (single, found) = match shapes::read(&headers, &body, services.limits.batch_events())? {
        Request::Handshake(code) => {
            return Ok(Json(StatusCode::OK, ValidationAnswer { validation_response: code }).into_response());
        }
        Request::One(found) => (true, vec![found]),
        Request::Many(found) => (false, found),
    };
    // Event Grid reads no answer beyond its status.
    let receipts = services.alerts.receive(&services.ingest, found, &correlation.0, Refused::KeptAmongOthers).await?;
    answer(receipts, single)
}

/// What is good is taken, also beside what is not: a sender of streams can do nothing about a bad event, which is kept as
/// a dead letter.
async fn collect(
    State(services): State<Services>,
    correlation: CorrelationId,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Problem> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "no-data", "there is no event in the body"));
    }
    let found = match shapes::read(&headers, &body, services.limits.batch_events())? {
        Request::Handshake(_) => return Err(Problem::bad_request("this is Event Grid's question, not Splunk's")),
        Request::One(found) => vec![found],
        Request::Many(found) => found,
    };
    let receipts = services.alerts.receive(&services.ingest, found, &correlation.0, Refused::KeptAmongOthers).await?;
    answer(receipts, false)?;
    Ok(Json(StatusCode::OK, collector::success()).into_response())
}

fn answer(receipts: Vec<Receipt>, single: bool) -> Result<Response, Problem> {
    let count = |status: &str| receipts.iter().filter(|receipt| receipt.status == status).count();
    let rejected = count("rejected");
    if rejected > 0 && rejected == receipts.len() {
        return Err(refusal(receipts, single));
    }
    let answer = SendAnswer {
        accepted: count("accepted"),
        duplicates: count("duplicate"),
        ignored: count("ignored"),
        suppressed: count("suppressed"),
        expired: count("expired"),
        rejected,
        events: receipts,
    };
    Ok(Json(StatusCode::ACCEPTED, answer).into_response())
}

/// Nothing was taken: the problem names every field of every event. Too large is only what would be so alone.
fn refusal(receipts: Vec<Receipt>, single: bool) -> Problem {
    let too_large = receipts.iter().all(|receipt| receipt.too_large);
    let mut errors = Vec::new();
    for (place, receipt) in receipts.into_iter().enumerate() {
        for mut error in receipt.errors {
            if !single {
                let dot = if error.field.is_empty() { "" } else { "." };
                error.field = format!("[{place}]{dot}{}", error.field);
            }
            errors.push(error);
        }
    }
    let problem = Problem::invalid(errors);
    if too_large { Problem { status: StatusCode::PAYLOAD_TOO_LARGE, kind: "too-large", ..problem } } else { problem }
}

/// The CloudEvents webhook's question: who wants to send must name itself, and may ask for a rate.
async fn consent(headers: HeaderMap) -> Result<Response, Problem> {
    let Some(origin) = headers.get("webhook-request-origin") else {
        return Err(Problem::invalid_field("WebHook-Request-Origin", "is required: it names who wants to send"));
    };
    let rate = headers.get("webhook-request-rate");
    let well_formed = |rate: &HeaderValue| rate.to_str().is_ok_and(|rate| rate.parse::<u64>().is_ok_and(|n| n > 0));
    if rate.is_some_and(|rate| !well_formed(rate)) {
        return Err(Problem::invalid_field("WebHook-Request-Rate", "must be requests per minute, a whole number"));
    }
    let mut response = StatusCode::OK.into_response();
    let answer = response.headers_mut();
    answer.insert("webhook-allowed-origin", origin.clone());
    answer.insert("webhook-allowed-rate", rate.cloned().unwrap_or(HeaderValue::from_static("*")));
    answer.insert("allow", HeaderValue::from_static("POST"));
    Ok(response)
}
