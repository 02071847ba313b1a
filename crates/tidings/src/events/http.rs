//! `/events`: send, list, look at one, listen.

use std::convert::Infallible;
use std::time::Duration;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use tidings_core::json::is_plain;
use tidings_core::limits::NAME_CHARS;
use tidings_core::time;
use tokio::sync::broadcast::error::RecvError;

pub use super::outcome::outcome;
use super::{Filter, LiveEvent, StoredEvent};
use crate::app::Services;
use crate::http::{
    CORRELATION_ALIAS, CorrelationId, End, IdempotencySeed, Json, OneOrMany, Param, Params, Problem, RequestIds, Route,
    Whole, correlation_param, json, json_text, paging,
};
use crate::ingest::{self, Receipt, Received};
use crate::rules::Outcome;
use crate::tokens::{Caller, Scope, event_stream};
use crate::workers::turned_true;

/// How often a silent stream shows that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

#[must_use]
pub fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::POST, "/events", "Send one event, a JSON array, NDJSON, or CloudEvents", send)
            .scopes(&[Scope::Ingest])
            .body::<OneOrMany<EnvelopeBody>>()
            .or_body_as::<String>("application/x-ndjson")
            .or_body_as::<CloudEventBody>("application/cloudevents+json")
            .or_body_as::<Vec<CloudEventBody>>("application/cloudevents-batch+json")
            .answer::<SendAnswer>(202, "What became of each event; accepted ones are on disk"),
        Route::new(Method::GET, "/events", "Stored events, newest first", list)
            .scopes(&[Scope::Read])
            .params(&[
                Param("type", "A type, or the start of one followed by *"),
                Param("source", "A source"),
                Param("correlationId", "A correlation id"),
                CORRELATION_ALIAS,
                Param("from", "Not before this date or time (eventTimestamp)"),
                Param("to", "Not after this date or time (eventTimestamp); a date means its whole day"),
                Param("limit", "1 to 1000, default 50"),
                Param("cursor", "Where the page before ended"),
            ])
            .answer::<EventList>(200, "A page of events"),
        Route::new(Method::GET, "/events/stream", "Accepted events as they come, as Server-Sent Events", stream)
            .scopes(&[Scope::Read])
            .params(&[Param("type", "A type, or the start of one followed by *")])
            .answer_as::<String>(200, "A stream without end", "text/event-stream"),
        Route::new(Method::GET, "/events/{eventId}", "One event and what came of it", get)
            .scopes(&[Scope::Read])
            .params(&[Param("source", "Which source's, if several use the id; else the newest")])
            .answer::<EventView>(200, "The event"),
    ]
}

/// An event to send. Fields beyond these are kept.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[expect(dead_code, reason = "describes the body, which is read without building a tree")]
struct EnvelopeBody {
    /// Made if absent. The same id from the same source within 24 h is a duplicate.
    event_id: Option<String>,
    #[schemars(length(min = 1, max = 256))]
    event_type: String,
    /// Default "1.0".
    event_version: Option<String>,
    /// ISO 8601, or seconds since 1970; default now.
    event_timestamp: Option<Moment>,
    correlation_id: Option<String>,
    source: Option<String>,
    subject: Option<String>,
    data: Option<serde_json::Map<String, serde_json::Value>>,
}

/// A CloudEvent 1.0. In binary mode its attributes are headers (`ce-id`, `ce-source`, …) and the body is its data.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "describes the body, which is read without building a tree")]
struct CloudEventBody {
    /// "1.0"
    specversion: String,
    id: String,
    source: String,
    r#type: String,
    subject: Option<String>,
    time: Option<String>,
    datacontenttype: Option<String>,
    data: Option<serde_json::Value>,
    data_base64: Option<String>,
}

#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes the body")]
enum Moment {
    Text(String),
    Seconds(f64),
}

#[derive(Serialize, JsonSchema)]
struct SendAnswer {
    accepted: usize,
    duplicates: usize,
    rejected: usize,
    events: Vec<Receipt>,
}

/// The envelope's own fields, and what Tidings knows besides.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct EventView {
    #[serde(flatten)]
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    envelope: std::collections::BTreeMap<String, Box<RawValue>>,
    received_at: String,
    outcome: Outcome,
}

#[derive(Serialize, JsonSchema)]
struct EventList {
    items: Vec<EventView>,
    cursor: Option<String>,
}

impl EventView {
    fn of(event: &StoredEvent) -> Result<Self, Problem> {
        let mut envelope: std::collections::BTreeMap<String, _> = serde_json::from_str(&event.json)
            .map_err(|_| tidings_store::Error::Corrupt("a stored event is no JSON object".to_owned()))?;
        // A sender's fields of these names stay in the event itself; here they would stand twice.
        for ours in ["receivedAt", "outcome"] {
            envelope.remove(ours);
        }
        Ok(Self { envelope, received_at: time::iso_micros(event.received_at), outcome: event.outcome() })
    }
}

async fn send(
    State(services): State<Services>,
    correlation: CorrelationId,
    seed: Option<Extension<IdempotencySeed>>,
    Whole { headers, body }: Whole,
) -> Result<Response, Problem> {
    let now = services.clock.now();
    let ids = match seed {
        Some(Extension(seed)) => RequestIds::Seeded(seed),
        None => RequestIds::Fresh(&*services.ids, now),
    };
    let limits = ingest::Limits {
        events: services.limits.batch_events(),
        event_bytes: services.limits.event_bytes(),
        sources: services.config.limits.event_sources.clone(),
    };
    let received = ingest::read_events(&headers, &body, &correlation.0, &ids, now, &limits)?;
    let (single, drafts) = match received {
        Received::One(draft) => (true, vec![*draft]),
        Received::Many(drafts) => (false, drafts),
    };
    let receipts = services.ingest.accept(drafts).await?;
    answer(receipts, single)
}

fn answer(receipts: Vec<Receipt>, single: bool) -> Result<Response, Problem> {
    let count = |status: &str| receipts.iter().filter(|receipt| receipt.status == status).count();
    let (accepted, duplicates, rejected) = (count("accepted"), count("duplicate"), count("rejected"));
    // A batch of none has nothing to refuse.
    if accepted + duplicates == 0 && rejected > 0 {
        return Err(refusal(receipts, single));
    }
    // Most of a receipt are its two ids, and most of these are UUIDs.
    let mut body = String::with_capacity(64 + 144 * receipts.len());
    body.push_str(&format!(r#"{{"accepted":{accepted},"duplicates":{duplicates},"rejected":{rejected},"events":["#));
    for (place, receipt) in receipts.iter().enumerate() {
        if place > 0 {
            body.push(',');
        }
        if !push_receipt(&mut body, receipt) {
            let answer = SendAnswer { accepted, duplicates, rejected, events: receipts };
            return Ok(json(StatusCode::ACCEPTED, &answer, body.capacity()));
        }
    }
    body.push_str("]}");
    Ok(json_text(StatusCode::ACCEPTED, body))
}

/// Appends the JSON of a receipt, if it needs no more than to be put together, as those of accepted events.
fn push_receipt(body: &mut String, receipt: &Receipt) -> bool {
    let (Some(event_id), Some(correlation_id)) = (&receipt.event_id, &receipt.correlation_id) else { return false };
    if !receipt.errors.is_empty() || !is_plain(event_id) || !is_plain(correlation_id) {
        return false;
    }
    for part in [r#"{"eventId":""#, event_id, r#"","correlationId":""#, correlation_id, r#"","status":""#] {
        body.push_str(part);
    }
    body.push_str(receipt.status);
    body.push_str("\"}");
    true
}

/// Nothing was accepted: the problem names every field of every event.
fn refusal(receipts: Vec<Receipt>, single: bool) -> Problem {
    let too_large = single && receipts.iter().any(|receipt| receipt.too_large);
    let mut errors = Vec::new();
    for (place, receipt) in receipts.into_iter().enumerate() {
        for mut error in receipt.errors {
            // NDJSON names its lines itself.
            if !single && !error.field.starts_with("line ") {
                let dot = if error.field.is_empty() { "" } else { "." };
                error.field = format!("[{place}]{dot}{}", error.field);
            }
            errors.push(error);
        }
    }
    let problem = Problem::invalid(errors);
    if too_large { Problem { status: StatusCode::PAYLOAD_TOO_LARGE, kind: "too-large", ..problem } } else { problem }
}

async fn list(
    State(services): State<Services>,
    caller: Caller,
    mut params: Params,
) -> Result<impl IntoResponse, Problem> {
    let filter = Filter {
        event_type: name_param(&mut params, "type"),
        source: name_param(&mut params, "source"),
        correlation_id: correlation_param(&mut params),
        from: params.time("from", End::Start),
        to: params.time("to", End::Finish),
    };
    if let (Some(from), Some(to)) = (filter.from, filter.to)
        && from > to
    {
        params.refuse("from", "must not be after `to`");
    }
    let limit = params.number("limit", 1..=1000, 50);
    let cursor = params.text("cursor").map(ToOwned::to_owned);
    params.finish()?;
    let context = paging::context(&caller, "/events", &filter);
    let after = paging::open(&services.sealer, &context, cursor.as_deref())?;
    let (events, next) = services.events.page(&filter, limit, after).await?;
    let items = events.iter().map(EventView::of).collect::<Result<_, _>>()?;
    let cursor = paging::seal(&services.sealer, &context, next.as_ref());
    Ok(Json(StatusCode::OK, EventList { items, cursor }))
}

/// A parameter that must be able to be a name; it becomes part of a key.
pub(crate) fn name_param(params: &mut Params, name: &str) -> Option<String> {
    let text = params.text(name)?.to_owned();
    match tidings_core::envelope::check_name(&text, NAME_CHARS + 1) {
        Ok(()) => Some(text),
        Err(why) => {
            params.refuse(name, why);
            None
        }
    }
}

async fn get(
    State(services): State<Services>,
    Path(event_id): Path<String>,
    mut params: Params,
) -> Result<impl IntoResponse, Problem> {
    let source = name_param(&mut params, "source");
    params.finish()?;
    let event = services.events.get(&event_id, source.as_deref()).await?;
    let event = event.ok_or_else(|| Problem::not_found("there is no event of this id, or it has expired"))?;
    let mut view = EventView::of(&event)?;
    view.outcome = outcome(&services, &event).await?;
    Ok(Json(StatusCode::OK, view))
}

async fn stream(
    State(services): State<Services>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
    params: Params,
) -> Result<Response, Problem> {
    live(services, &caller, &uri, &headers, params, |heard| match heard {
        // Line breaks in JSON are white space; in a frame they would end it.
        Heard::Event(event) => format!("event: event\ndata: {}\n\n", event.json.replace(['\n', '\r'], " ")),
        Heard::Gap(missed) => format!("event: gap\ndata: {{\"missed\":{missed}}}\n\n"),
    })
    .await
}

/// What a listener is told.
pub enum Heard<'a> {
    Event(&'a LiveEvent),
    /// So many were too much at once.
    Gap(u64),
}

/// Accepted events of all nodes as they come, each as `show` puts it into a frame.
pub async fn live(
    services: Services,
    caller: &Caller,
    uri: &Uri,
    headers: &HeaderMap,
    mut params: Params,
    show: fn(Heard<'_>) -> String,
) -> Result<Response, Problem> {
    let filter = Filter { event_type: name_param(&mut params, "type"), ..Filter::default() };
    params.finish()?;
    let start = (services.live.listen(), filter, services.workers.stopping());
    let frames = futures_util::stream::unfold(start, move |(mut listener, filter, mut stop)| async move {
        loop {
            let received = tokio::select! {
                received = tokio::time::timeout(KEEP_ALIVE, listener.recv()) => received,
                () = turned_true(&mut stop) => return None,
            };
            let frame = match received {
                Ok(Ok(event)) if !filter.type_fits(&event.event_type) => continue,
                Ok(Ok(event)) => show(Heard::Event(&event)),
                Ok(Err(RecvError::Lagged(missed))) => show(Heard::Gap(missed)),
                Ok(Err(RecvError::Closed)) => return None,
                Err(_) => ": alive\n\n".to_owned(),
            };
            return Some((Ok::<_, Infallible>(Bytes::from(frame)), (listener, filter, stop)));
        }
    });
    let frames = services.with_other_nodes(frames, uri, headers).await;
    Ok(event_stream(&services, caller, frames))
}
