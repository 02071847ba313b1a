//! `/dead-letters`: what was given up and why; sending it again, as it was or changed, and throwing it away (SX-08).

pub mod many;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tidings_core::message::Attempt;
use tidings_store::Error;
use uuid::Uuid;

use super::MessageView;
use super::create::{created, created_by, request_ids};
use super::view::shown;
use crate::app::Services;
use crate::audit::Action;
use crate::events::http::name_param;
use crate::http::paging::Asked;
use crate::http::{CorrelationId, End, IdempotencySeed, Json, JsonText, Param, Params, Problem, Route};
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
                Param("channel", "email, ntfy, webhook, queue or ticket"),
                Param("message_type", "A type"),
                Param("from", "Not given up before this date or time"),
                Param("to", "Not given up after this date or time; a date means its whole day"),
                Param("limit", "1 to 100, default 50"),
                Param("cursor", "Where the page before ended"),
            ])
            .answer::<DeadLetterList>(200, "A page of dead letters"),
        Route::new(Method::GET, "/dead-letters/{id}", "One dead letter, by its message's id", get)
            .scopes(&[Scope::Read])
            .answer::<DeadLetterView>(200, "The dead letter with every attempt"),
        Route::new(Method::POST, "/dead-letters/{id}/resubmit", "Send a dead letter again, as a new message", resubmit)
            .scopes(&[Scope::Operate])
            .body::<EditBody>()
            .answer::<MessageView>(201, "The new message, with `retry_of`; the letter is gone"),
        Route::new(Method::DELETE, "/dead-letters/{id}", "Throw a dead letter away; its message stays failed", discard)
            .scopes(&[Scope::Operate])
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
}

#[derive(Serialize, JsonSchema)]
struct DeadLetterList {
    items: Vec<DeadLetterView>,
    cursor: Option<String>,
}

/// A message that was given up.
#[derive(Serialize, JsonSchema)]
pub struct DeadLetterView {
    /// The message's.
    id: String,
    /// `message`.
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
    /// Every attempt, the last one last.
    #[schemars(with = "Vec<Value>")]
    attempts: Vec<Attempt>,
    ttl: i64,
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
            target: message.map(|message| shown(message.target)),
            id: letter.id,
            time: letter.time,
            reason: letter.reason,
            channel: letter.channel,
            message_type: letter.message_type,
            stage: letter.stage,
            correlation_id: letter.correlation_id,
            attempts: letter.attempts,
            ttl: letter.ttl,
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
    let channel = params.text("channel").map(ToOwned::to_owned);
    if channel.as_deref().is_some_and(|channel| !CHANNELS.contains(&channel)) {
        params.refuse("channel", format!("must be one of {}", CHANNELS.join(", ")));
    }
    let message_type = name_param(&mut params, "message_type");
    let (from, to) = (params.time("from", End::Start), params.time("to", End::Finish));
    if from.zip(to).is_some_and(|(from, to)| from > to) {
        params.refuse("from", "must not be after `to`");
    }
    let filter = Filter { channel, message_type, from, to };
    let mut asked = Asked::read(&services.sealer, &caller, "/dead-letters", &filter, params)?;
    let (items, next) = dead::page(&*services.store, &filter, asked.limit, asked.after.take()).await?;
    let cursor = asked.cursor(&services.sealer, next.as_ref());
    Ok(Json(StatusCode::OK, DeadLetterList { items: items.into_iter().map(Into::into).collect(), cursor }))
}

async fn get(State(services): State<Services>, Path(id): Path<String>) -> Result<impl IntoResponse, Problem> {
    let letter = dead::get(&*services.store, &id).await?.ok_or_else(unknown)?;
    Ok(Json(StatusCode::OK, DeadLetterView::from(letter)))
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
    let new_id = request_ids(&services, seed).uuid(0);
    Ok(created(resubmit_one(&services, &caller, &correlation, &id, &edit, new_id).await?))
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
    let parts = [("payload", edit.payload.is_some()), ("target", edit.target.is_some())];
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
    let details = json!({ "reason": letter.reason, "channel": letter.channel });
    let action = Action::new("dead_letter.discard", "dead_letter", &letter.id).details(details);
    match services.audit.record_with(&caller.name(), &correlation.0, action, vec![dead::discard(&letter.id)]).await {
        Ok(_) => Ok(()),
        Err(Error::Conflict { .. }) => Err(unknown()),
        Err(error) => Err(error.into()),
    }
}
