//! Making messages, one or many.

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value};
use tidings_core::envelope::FieldError;
use tidings_core::time::Timestamp;

use super::read;
use super::shapes::{BatchAnswer, BatchItem};
use super::view::MessageView;
use crate::app::Services;
use crate::http::{CorrelationId, IdempotencySeed, Json, JsonText, Problem, RequestIds, json};
use crate::messages::transition::Made;
use crate::messages::{Message, Origin, Request};
use crate::tokens::Caller;

const MOST_CREATED: usize = 25;
/// Room for most messages as they are shown.
const SHOWN_BYTES: usize = 1024;

pub(super) type Seed = Option<Extension<IdempotencySeed>>;

pub(super) fn request_ids<'a>(services: &'a Services, seed: Seed) -> RequestIds<'a> {
    match seed {
        Some(Extension(seed)) => RequestIds::Seeded(seed),
        None => RequestIds::Fresh(&*services.ids, services.clock.now()),
    }
}

/// S002-04: who made a message is who called.
pub(super) fn created_by(caller: &Caller) -> String {
    let token = &caller.token;
    format!("user:{}", if token.name.is_empty() { &token.id } else { &token.name })
}

pub(super) async fn create(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    seed: Seed,
    body: JsonText,
) -> Result<Response, Problem> {
    let mut fields = body.object()?;
    let created_by = created_by(&caller);
    let origin = origin(&created_by, &correlation);
    let ids = request_ids(&services, seed);
    let made = compose(&services, &mut fields, origin, (&ids, 0), services.clock.now()).map_err(Problem::invalid)?;
    Ok(services.messages.create_one(made, created).await?)
}

fn origin<'a>(created_by: &'a str, correlation: &'a CorrelationId) -> Origin<'a> {
    let CorrelationId(correlation_id, beside) = correlation;
    Origin { created_by, correlation_id, trace_parent: beside.as_deref() }
}

/// The message that a body asks for, with the id that it has for its place; every field that is wrong.
fn compose(
    services: &Services,
    fields: &mut Map<String, Value>,
    origin: Origin<'_>,
    (ids, place): (&RequestIds<'_>, usize),
    now: Timestamp,
) -> Result<Made, Vec<FieldError>> {
    let request = read::request(fields);
    let key = read::cancel_key(fields);
    let correlation = read::correlation_id(fields);
    // What the body says of itself is more exact than what its request says.
    let origin = match &correlation {
        Ok(Some(correlation_id)) => Origin { correlation_id, ..origin },
        _ => origin,
    };
    let composed = match request {
        Ok(request) => {
            let cancel_key = key.as_ref().ok().cloned().flatten();
            let made = services.messages.compose(Request { cancel_key, ..request }, origin, ids.uuid(place), now);
            // A store over a network may carry a write out twice, and what became of it in between must stay.
            let is_new = ids.are_new() && services.embedded.is_some();
            made.map(|made| if is_new { made.of_new_id() } else { made })
        }
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
    match (composed, key, correlation) {
        (Ok(made), Ok(_), Ok(_)) => Ok(made),
        (composed, key, correlation) => {
            Err(composed.err().into_iter().flatten().chain(key.err()).chain(correlation.err()).collect())
        }
    }
}

pub(super) fn created(message: &Message) -> Response {
    let location = ["/api/messages/", &message.message_id].concat();
    let mut response = json(StatusCode::CREATED, &MessageView::from(message), SHOWN_BYTES);
    if let Ok(location) = HeaderValue::try_from(location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

pub(super) async fn create_batch(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    seed: Seed,
    body: JsonText,
) -> Result<Response, Problem> {
    let (list, mut entries) = read::batch(&body, "messages", MOST_CREATED)?;
    let (now, created_by) = (services.clock.now(), created_by(&caller));
    let origin = origin(&created_by, &correlation);
    let ids = request_ids(&services, seed);
    let (mut good, mut results) = (Vec::new(), Vec::new());
    for (place, entry) in entries.iter_mut().enumerate() {
        let fields = entry.as_object_mut().ok_or_else(|| vec![FieldError::new("", "must be an object")]);
        let composed = fields.and_then(|fields| compose(&services, fields, origin, (&ids, place), now));
        results.push(composed.map(|made| good.push(made)));
    }
    if good.is_empty() {
        return Err(all_refused(list, results));
    }
    let created = good.len();
    let made = services.messages.create_made(good, Message::clone).await?;
    let mut made = made.iter();
    let items: Vec<BatchItem<'_>> = results
        .into_iter()
        .map(|entry| match entry {
            Ok(()) => BatchItem { status: 201, message: made.next().map(MessageView::from), errors: Vec::new() },
            Err(errors) => BatchItem { status: 400, message: None, errors },
        })
        .collect();
    Ok(Json(StatusCode::CREATED, BatchAnswer { created, rejected: items.len() - created, items }).into_response())
}

fn all_refused(list: &str, results: Vec<Result<(), Vec<FieldError>>>) -> Problem {
    let errors = results.into_iter().enumerate().flat_map(|(place, entry)| {
        let dotted = move |error: FieldError| {
            let dot = if error.field.is_empty() { "" } else { "." };
            FieldError::new(format!("{list}[{place}]{dot}{}", error.field), error.message)
        };
        entry.err().into_iter().flatten().map(dotted)
    });
    Problem::invalid(errors.collect())
}
