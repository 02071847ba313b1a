//! `/dead-letters`: what was given up and why; sending it again, as it was or changed, and throwing it away (SX-08).

pub mod many;
mod on_bus;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tidings_store::Error;
use uuid::Uuid;

pub use on_bus::{of_bus, remove_one, send_back_one};

use super::MessageView;
use super::create::{created, created_by, request_ids};
use super::view::shown;
use crate::app::Services;
use crate::audit::Action;
use crate::bus::letters::CHANNEL;
use crate::events::http::name_param;
use crate::http::paging::Asked;
use crate::http::{
    CorrelationId, End, IdempotencySeed, Json, JsonText, Param, Params, Problem, Route, correlation_param,
};
use crate::messages::Message;
use crate::messages::dead::edit::Edit;
use crate::messages::dead::{self, DeadLetter, Filter};
use crate::messages::record::CHANNELS;
use crate::tokens::{Caller, Scope};

#[must_use]
pub fn routes() -> Vec<Route> {
    let mut routes = vec![
        Route::new(Method::GET, "/dead-letters", "What was given up, newest first", page)
            .scopes(&[Scope::Read])
            .params(&[
                Param(
                    "channel",
                    "email, ntfy, webhook, queue, ticket, dynamodb-stream or azure-devops; bus: messages of queues and \
                     subscriptions",
                ),
                Param("message_type", "A type; of a message of the bus its subject"),
                Param("path", "A queue or subscription of the bus: orders, events/subscriptions/audit"),
                Param("correlationId", "A correlation id; of a message of the bus without one its own id"),
                Param("correlation_id", "The same"),
                Param("from", "Not given up before this date or time"),
                Param("to", "Not given up after this date or time; a date means its whole day"),
                Param("limit", "1 to 100, default 50"),
                Param("cursor", "Where the page before ended"),
            ])
            .answer::<DeadLetterList>(200, "A page of dead letters"),
        Route::new(Method::GET, "/dead-letters/{id}", "One dead letter, by its id", get)
            .scopes(&[Scope::Read])
            .answer::<DeadLetterView>(200, "The dead letter with every attempt"),
        Route::new(Method::POST, "/dead-letters/{id}/resubmit", "Send a dead letter again, as a new message", resubmit)
            .scopes(&[Scope::Operate])
            .at_owner()
            .body::<EditBody>()
            .answer::<AgainView>(
                201,
                "The new message, with `retry_of`; of the bus, where it is now. The letter is gone",
            )
            .answer_empty(409, "Somebody has received it from the bus, or it has just gone"),
        Route::new(Method::DELETE, "/dead-letters/{id}", "Throw a dead letter away; its message stays failed", discard)
            .scopes(&[Scope::Operate])
            .at_owner()
            .answer_empty(204, "It is gone"),
    ];
    routes.extend(many::routes());
    routes
}

/// What is to be different; nothing: it is sent as it was.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "describes the body, which is read field by field to name every mistake")]
struct EditBody {
    /// Takes the old one's place; must fit the message's type.
    payload: Option<Map<String, Value>>,
    /// `to`, `topic`, `url` (and `secret`), `entity` or `caller`, as the channel has it.
    target: Option<Map<String, Value>>,
    /// Of a message of the bus: a text, or JSON, which becomes one.
    body: Option<Value>,
}

/// A message that was sent again: of a channel, or of the bus.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[expect(clippy::large_enum_variant, reason = "it lives for an answer")]
#[expect(dead_code, reason = "describes the answer, which is written by its parts")]
enum AgainView {
    Message(MessageView<'static>),
    Bus(on_bus::SentBack),
}

#[derive(Serialize, JsonSchema)]
struct DeadLetterList {
    items: Vec<DeadLetterView>,
    cursor: Option<String>,
}

/// A message that was given up.
#[derive(Serialize, JsonSchema)]
pub struct DeadLetterView {
    /// The message's; of a message of the bus, one of the letter's own.
    id: String,
    /// `message` or `bus`.
    source: &'static str,
    /// When it was given up.
    time: String,
    reason: String,
    channel: String,
    message_type: String,
    stage: String,
    correlation_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_by: Option<String>,
    payload: Option<Map<String, Value>>,
    /// Where it was to go; of a webhook only scheme, host and port.
    target: Option<Map<String, Value>>,
    /// Every attempt, the last one last; of the bus the last ten deliveries.
    attempts: Vec<Value>,
    /// When it is forgotten. 0: never, as on the bus.
    ttl: i64,
    /// Of a message of the bus: the message as it is shown there.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<crate::bus::http::view::MessageView<'static>>")]
    message: Option<Box<RawValue>>,
}

impl From<DeadLetter> for DeadLetterView {
    fn from(letter: DeadLetter) -> Self {
        let message = letter.message;
        let of = |name: fn(&crate::messages::Message) -> Option<String>| message.as_ref().and_then(name);
        Self {
            source: "message",
            event_id: of(|message| message.event_id.clone()),
            rule: of(|message| message.rule.clone()),
            created_by: of(|message| Some(message.created_by.clone())),
            payload: message.as_ref().map(|message| message.payload.clone()),
            target: message.map(|message| shown(&message.target).into_owned()),
            id: letter.id,
            time: letter.time,
            reason: letter.reason,
            channel: letter.channel,
            message_type: letter.message_type,
            stage: letter.stage,
            correlation_id: letter.correlation_id,
            attempts: letter.attempts.iter().filter_map(|attempt| serde_json::to_value(attempt).ok()).collect(),
            ttl: letter.ttl,
            path: None,
            message: None,
        }
    }
}

fn unknown() -> Problem {
    Problem::not_found("there is no dead letter of this id, or it has expired")
}

async fn page(
    State(services): State<Services>,
    caller: Caller,
    mut params: Params,
) -> Result<impl IntoResponse, Problem> {
    let filter = filter_params(&mut params);
    let mut asked = Asked::read(&services.sealer, &caller, "/dead-letters", &filter, params)?;
    let (items, next) = dead::page(&*services.store, &filter, asked.limit, asked.after.take()).await?;
    let cursor = asked.cursor(&services.sealer, next.as_ref());
    let items = views(&services, items).await?;
    Ok(Json(StatusCode::OK, DeadLetterList { items, cursor }))
}

/// Which letters somebody means, in a query or in a body.
pub fn filter_params(params: &mut Params) -> Filter {
    let channel = params.text("channel").map(ToOwned::to_owned);
    if channel.as_deref().is_some_and(|channel| !CHANNELS.contains(&channel) && channel != CHANNEL) {
        params.refuse("channel", format!("must be one of {}, {CHANNEL}", CHANNELS.join(", ")));
    }
    let path = path_param(params);
    let message_type = name_param(params, "message_type");
    let (from, to) = (params.time("from", End::Start), params.time("to", End::Finish));
    if from.zip(to).is_some_and(|(from, to)| from > to) {
        params.refuse("from", "must not be after `to`");
    }
    let correlation_id = correlation_param(params);
    Filter { channel, message_type, path, correlation_id, from, to }
}

/// The path of a queue or subscription as the bus spells it.
pub fn path_param(params: &mut Params) -> Option<String> {
    let text = params.text("path").filter(|text| !text.is_empty())?.to_owned();
    match crate::bus::Path::parse(&text) {
        Some(path) => Some(crate::bus::Path { dead: false, ..path }.to_string()),
        None => {
            params.refuse("path", "is no path of the bus");
            None
        }
    }
}

/// Letters as they are shown. One of the bus that has just gone is left out.
pub async fn views(services: &Services, letters: Vec<DeadLetter>) -> Result<Vec<DeadLetterView>, Problem> {
    let mut views = Vec::with_capacity(letters.len());
    for letter in letters {
        views.extend(view(services, letter).await?);
    }
    Ok(views)
}

pub async fn view(services: &Services, letter: DeadLetter) -> Result<Option<DeadLetterView>, Problem> {
    let Some(at) = letter.bus.clone() else { return Ok(Some(letter.into())) };
    let stored = services.bus.letter(&at).await?;
    Ok(stored.map(|stored| DeadLetterView::on_bus(letter, at.path, &stored)))
}

async fn get(State(services): State<Services>, Path(id): Path<String>) -> Result<impl IntoResponse, Problem> {
    let letter = dead::get(&*services.store, &id).await?.ok_or_else(unknown)?;
    Ok(Json(StatusCode::OK, view(&services, letter).await?.ok_or_else(unknown)?))
}

async fn resubmit(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    seed: Option<Extension<IdempotencySeed>>,
    Path(id): Path<String>,
    body: JsonText,
) -> Result<Response, Problem> {
    let fields = if body.0.is_empty() { Map::new() } else { body.object()? };
    let edit = Edit::read(&fields).map_err(Problem::invalid)?;
    if let Some(letter) = of_bus(&services, &id).await? {
        let back = send_back_one(&services, &caller, &correlation, &letter, &edit).await?;
        return Ok(Json(StatusCode::CREATED, back).into_response());
    }
    let new_id = request_ids(&services, seed).uuid(0);
    Ok(created(&resubmit_one(&services, &caller, &correlation, &id, &edit, new_id).await?))
}

/// Sends a dead letter again as a new message of that id, as it was or changed; gives the new one.
pub async fn resubmit_one(
    services: &Services,
    caller: &Caller,
    correlation: &CorrelationId,
    id: &str,
    edit: &Edit,
    new_id: Uuid,
) -> Result<Message, Problem> {
    let Some(letter) = dead::get(&*services.store, id).await? else {
        // The same request come again finds what it made the first time.
        let made = services.messages.get(&new_id.to_string()).await?;
        return made.map(|made| made.message).ok_or_else(unknown);
    };
    let messages = &services.messages;
    let now = services.clock.now();
    let again = messages.resubmission(&letter, edit, &created_by(caller), new_id, now).await?;
    let again = again.map_err(Problem::invalid)?;
    let mut writes = messages.creation(std::slice::from_ref(&again))?;
    writes.push(dead::discard(&letter.id));
    let details = json!({ "message_id": again.message_id, "edited": edited(edit) });
    let action = Action::new("dead_letter.resubmit", "dead_letter", &letter.id).details(details);
    match services.audit.record_with(&caller.name(), &correlation.0, action, writes).await {
        Ok(_) => {
            messages.signals.created([&again]);
            Ok(again)
        }
        Err(Error::Conflict { .. }) => Err(Problem::conflict("the dead letter has just gone; look again")),
        Err(error) => Err(error.into()),
    }
}

/// Which parts were changed: what they became may be nobody's business.
fn edited(edit: &Edit) -> Vec<&'static str> {
    let parts = [("payload", edit.payload.is_some()), ("target", edit.target.is_some()), ("body", edit.body.is_some())];
    parts.into_iter().filter(|(_, changed)| *changed).map(|(name, _)| name).collect()
}

async fn discard(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    Path(id): Path<String>,
) -> Result<impl IntoResponse, Problem> {
    discard_one(&services, &caller, &correlation, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Throws a dead letter away.
pub async fn discard_one(
    services: &Services,
    caller: &Caller,
    correlation: &CorrelationId,
    id: &str,
) -> Result<(), Problem> {
    let letter = dead::get(&*services.store, id).await?.ok_or_else(unknown)?;
    if letter.bus.is_some() {
        return remove_one(services, caller, correlation, &letter).await;
    }
    let details = json!({ "reason": letter.reason, "channel": letter.channel });
    let action = Action::new("dead_letter.discard", "dead_letter", &letter.id).details(details);
    match services.audit.record_with(&caller.name(), &correlation.0, action, vec![dead::discard(&letter.id)]).await {
        Ok(_) => Ok(()),
        Err(Error::Conflict { .. }) => Err(unknown()),
        Err(error) => Err(error.into()),
    }
}
