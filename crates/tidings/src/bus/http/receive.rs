//! Receiving: one at a time in the Service Bus shape, and in batches.

use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use tidings_core::envelope::FieldError;
use tidings_core::json::{Borrowed, Object};
use uuid::Uuid;

use super::settle::{self, SettleBody, SettledView};
use super::view::{MessageView, Messages};
use super::{Place, broker_properties, paths};
use crate::app::Services;
use crate::bus::settle::Settlement;
use crate::http::{JsonText, Param, Params, Problem, Route, json};
use crate::tokens::{Caller, Scope};

/// Seconds that a call may wait for a message.
pub const WAIT_SECONDS: usize = 300;
/// Messages that one call receives or settles.
pub const BATCH: usize = 256;

#[must_use]
pub fn routes() -> Vec<Route> {
    let mut routes = Vec::new();
    let wait: &'static [Param] = &[Param("timeout", "Seconds to wait for a message, 0 to 300, default 0")];
    for path in paths!("/messages/head") {
        routes.push(
            Route::new(Method::POST, path, "Receive a message under a lock (peek-lock)", peek_lock)
                .at_owner()
                .waits()
                .scopes(&[Scope::Consume])
                .params(wait)
                .answer_as::<String>(201, "The message; BrokerProperties and Location say the rest", "*/*")
                .answer_empty(204, "None came in time")
                .answer_empty(410, "There is no such entity"),
        );
        routes.push(
            Route::new(Method::DELETE, path, "Receive a message and delete it", receive_and_delete)
                .at_owner()
                .waits()
                .scopes(&[Scope::Consume])
                .params(wait)
                .answer_as::<String>(200, "The message, which is gone with that", "*/*")
                .answer_empty(204, "None came in time")
                .answer_empty(410, "There is no such entity"),
        );
    }
    for path in paths!("/receive") {
        routes.push(
            Route::new(
                Method::POST,
                path,
                "Receive messages under locks; settle earlier ones in the same call",
                receive,
            )
            .at_owner()
            .waits()
            .scopes(&[Scope::Consume])
            .body::<ReceiveBody>()
            .answer::<Received>(200, "The messages, if any came in time"),
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
    /// What becomes of messages that were received before, as for `settle`: done whether or not more come. Up to 256.
    settle: Option<Vec<SettleBody>>,
}

#[derive(Serialize, JsonSchema)]
struct Received<'a> {
    #[schemars(with = "Vec<MessageView<'a>>")]
    messages: Messages<'a>,
    /// What came of each settlement, if there were any.
    #[serde(skip_serializing_if = "Option::is_none")]
    settled: Option<Vec<SettledView>>,
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

async fn receive(
    State(services): State<Services>,
    caller: Caller,
    place: Place,
    body: JsonText,
) -> Result<Response, Problem> {
    let fields = if body.0.is_empty() { Object::default() } else { body.borrowed()? };
    let mut errors = Vec::new();
    let max = number(&fields, "max", 1..=BATCH as u64, 1, &mut errors);
    let wait = number(&fields, "waitSeconds", 0..=WAIT_SECONDS as u64, 0, &mut errors);
    let numbers = numbers(&fields, &mut errors);
    let settlements = settlements(&fields, &mut errors);
    if !errors.is_empty() {
        return Err(Problem::invalid(errors));
    }
    let (consumer, bus) = (caller.name(), &services.bus);
    let (max, wait) = (usize::try_from(max).unwrap_or(1), Duration::from_secs(wait));
    let line = bus.line(&place.path)?;
    let is_complete = |(_, settlement): &(Uuid, Settlement)| *settlement == Settlement::Complete;
    let frees_others = line.settings().ordered || !settlements.iter().flatten().all(is_complete);
    let receiving = async {
        match numbers {
            Some(numbers) => Ok(line.receive_deferred(&numbers, Some(&consumer)).await?),
            None => bus.receive(&place.path, max, wait, Some(&consumer), false).await.map(|(_, taken)| taken),
        }
    };
    let settling = async {
        match settlements {
            Some(settlements) => settle::carry_out(&line, settlements).await.map(Some),
            None => Ok(None),
        }
    };
    // What is settled may be what comes next, or let it come. Where it cannot, one sync serves both.
    let (settled, taken) =
        if frees_others { (settling.await, receiving.await) } else { tokio::join!(settling, receiving) };
    let settled = settled?;
    let taken = match taken {
        // What is settled is settled, and whoever asks for more hears why there is none.
        Err(_) if settled.is_some() => Vec::new(),
        taken => taken?,
    };
    let messages = Messages(&taken);
    let bytes = messages.bytes() + settled.as_ref().map_or(0, Vec::len) * 80;
    Ok(json(StatusCode::OK, &Received { messages, settled }, bytes))
}

fn number(
    fields: &Object<'_>,
    name: &str,
    range: std::ops::RangeInclusive<u64>,
    default: u64,
    errors: &mut Vec<FieldError>,
) -> u64 {
    match fields.get(name) {
        None => default,
        Some(value) => value.as_u64().filter(|number| range.contains(number)).unwrap_or_else(|| {
            let message = format!("must be a whole number from {} to {}", range.start(), range.end());
            errors.push(FieldError::new(name, message));
            default
        }),
    }
}

fn numbers(fields: &Object<'_>, errors: &mut Vec<FieldError>) -> Option<Vec<u64>> {
    let numbers: Option<Vec<u64>> = match fields.get("sequenceNumbers")? {
        Borrowed::List(list) => list.iter().map(Borrowed::as_u64).collect(),
        _ => None,
    };
    if numbers.as_ref().is_none_or(|numbers| numbers.is_empty() || numbers.len() > BATCH) {
        errors.push(FieldError::new("sequenceNumbers", format!("must be a list of 1 to {BATCH} numbers")));
    }
    numbers
}

fn settlements(fields: &Object<'_>, errors: &mut Vec<FieldError>) -> Option<Vec<(Uuid, Settlement)>> {
    match fields.get("settle")? {
        Borrowed::List(list) if (1..=BATCH).contains(&list.len()) => Some(settle::read(list, "settle", errors)),
        _ => {
            errors.push(FieldError::new("settle", format!("must be a list of 1 to {BATCH} settlements")));
            None
        }
    }
}
