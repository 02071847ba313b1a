//! `POST /bus/{entity}/messages`: one message, or a batch.

use std::collections::BTreeMap;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use tidings_core::envelope::FieldError;
use tidings_core::json::{self, Borrowed, Object};

use super::{Place, broker_properties};
use crate::app::Services;
use crate::bus::once::{self, Mark};
use crate::bus::{Message, Sent};
use crate::http::{CorrelationId, IdempotencySeed, Json, Problem, RequestIds, Route, Whole, media_type};
use crate::tokens::Scope;

/// The content type of a batch.
const BATCH: &str = "application/vnd.microsoft.servicebus.json";
/// Messages in a batch.
pub const BATCH_MESSAGES: usize = 1000;

#[must_use]
pub fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::POST, "/bus/{entity}/messages", "Send a message or a batch to a queue or topic", send)
            .scopes(&[Scope::Ingest])
            .said_in_headers(broker_properties::is_custom)
            .body_as::<String>("application/octet-stream")
            .answer::<SentView>(201, "The messages are on disk")
            .answer_empty(403, "Its dead letters have reached deadLetterMaxBytes")
            .answer_empty(410, "There is no such queue or topic"),
    ]
}

/// What was sent. A message to a topic has a number in each subscription that takes it, and none where none does.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SentView {
    messages: Vec<SentMessage>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SentMessage {
    message_id: String,
    path: String,
    /// Absent where another node has the queue: that one gives the number.
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence_number: Option<u64>,
}

impl From<Sent> for SentMessage {
    fn from(sent: Sent) -> Self {
        let sequence_number = sent.number();
        Self { message_id: sent.message_id, path: sent.path, sequence_number }
    }
}

async fn send(
    State(services): State<Services>,
    correlation: CorrelationId,
    place: Place,
    seed: Option<Extension<IdempotencySeed>>,
    Whole { headers, body }: Whole,
) -> Result<Response, Problem> {
    // Whether it exists comes first: nobody should mend a message for nothing.
    services.bus.entity_anywhere(&place.path.entity).await?;
    let claim = seed.as_ref().map(|Extension(seed)| seed.claim());
    let ids = match seed {
        Some(Extension(seed)) => RequestIds::Seeded(seed),
        None => RequestIds::Fresh(&*services.ids, services.clock.now()),
    };
    let mut errors = Vec::new();
    let mut messages = match &*media_type(&headers) {
        BATCH => batch(&body, &mut errors)?,
        _ => vec![one(&headers, body, &mut errors)?],
    };
    if !errors.is_empty() {
        return Err(Problem::invalid(errors));
    }
    for (n, message) in messages.iter_mut().enumerate() {
        if message.id.is_empty() {
            message.id = ids.uuid(n).to_string();
        }
        message.correlation_id.get_or_insert_with(|| correlation.0.clone());
        message.mark = claim.as_ref().map(|claim| Box::new(Mark { claim: claim.id, place: n, until: claim.until }));
    }
    // What an earlier run has sent, whose answer was lost, is not sent again.
    let known = match claim.filter(|claim| claim.is_again) {
        Some(claim) => once::sent_before(&*services.store, &claim.id).await?,
        None => BTreeMap::new(),
    };
    let mut places = 0..;
    messages.retain(|_| places.next().is_none_or(|n: usize| !known.contains_key(&n)));
    let mut sent: Vec<Sent> = known.into_values().flatten().collect();
    if !messages.is_empty() {
        sent.extend(services.bus.send(&place.path.entity, messages).await?);
    }
    let messages = sent.into_iter().map(SentMessage::from).collect();
    Ok(Json(StatusCode::CREATED, SentView { messages }).into_response())
}

fn one(headers: &HeaderMap, body: Bytes, errors: &mut Vec<FieldError>) -> Result<Message, Problem> {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let mut message = Message { body, content_type: content_type.map(ToOwned::to_owned), ..Message::default() };
    if let Some(value) = headers.get(broker_properties::HEADER) {
        match json::text(value.as_bytes()).and_then(json::parse::<Value>) {
            Ok(Value::Object(fields)) => {
                broker_properties::read(&fields, &mut message, "BrokerProperties.", errors);
            }
            Ok(_) => errors.push(FieldError::new("BrokerProperties", "must be a JSON object")),
            Err(bad) => errors.push(FieldError::new("BrokerProperties", format!("must be a JSON object: {}", bad.0))),
        }
    }
    message.properties = broker_properties::from_headers(headers, errors);
    Ok(message)
}

fn batch(body: &Bytes, errors: &mut Vec<FieldError>) -> Result<Vec<Message>, Problem> {
    let Borrowed::List(list) = json::parse(json::text(body)?)? else {
        return Err(Problem::invalid_field("", "a batch must be a JSON list of messages"));
    };
    if list.is_empty() || list.len() > BATCH_MESSAGES {
        let why = format!("has {} messages, 1 to {BATCH_MESSAGES} are allowed", list.len());
        return Err(Problem::invalid_field("", format!("the batch {why}")));
    }
    let mut messages = Vec::with_capacity(list.len());
    for (place, value) in list.iter().enumerate() {
        match value {
            Borrowed::Object(fields) => messages.push(batched(fields, place, errors)),
            _ => errors.push(FieldError::new(format!("[{place}]"), "must be an object")),
        }
    }
    Ok(messages)
}

fn batched(fields: &Object<'_>, place: usize, errors: &mut Vec<FieldError>) -> Message {
    let mut message = Message::default();
    let at = |name: &str| format!("[{place}].{name}");
    let text = match fields.get("Body") {
        None => "",
        Some(Borrowed::Text(text)) => text,
        Some(_) => {
            errors.push(FieldError::new(at("Body"), "must be a string; JSON goes in as text"));
            ""
        }
    };
    message.body = match fields.get("IsBodyBase64") {
        None | Some(Borrowed::Bool(false)) => Bytes::copy_from_slice(text.as_bytes()),
        Some(Borrowed::Bool(true)) => match base64::prelude::BASE64_STANDARD.decode(text) {
            Ok(bytes) => Bytes::from(bytes),
            Err(_) => {
                errors.push(FieldError::new(at("Body"), "is not valid base64"));
                Bytes::new()
            }
        },
        Some(_) => {
            errors.push(FieldError::new(at("IsBodyBase64"), "must be true or false"));
            Bytes::new()
        }
    };
    let object = |name: &str, errors: &mut Vec<FieldError>| match fields.get(name) {
        None => None,
        Some(Borrowed::Object(object)) => Some(object.to_map()),
        Some(_) => {
            errors.push(FieldError::new(at(name), "must be an object"));
            None
        }
    };
    if let Some(properties) = object("BrokerProperties", errors) {
        broker_properties::read(&properties, &mut message, &at("BrokerProperties."), errors);
    }
    if let Some(properties) = object("UserProperties", errors) {
        message.properties = broker_properties::read_custom(&properties, &at("UserProperties"), errors);
    }
    message
}
