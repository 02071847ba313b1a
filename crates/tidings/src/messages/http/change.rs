//! What people do to a message: send it again, or call it off.

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tidings_core::message::{Input, Status};
use tidings_store::{Error, Key, Write};
use uuid::Uuid;

use super::create::{Seed, created, created_by, request_ids};
use super::shapes::CancelAnswer;
use super::view::{MessageView, is_cancelled};
use super::{read, unknown};
use crate::app::Services;
use crate::audit::Action;
use crate::bus::letters::{self, Deed, LetterError};
use crate::bus::push;
use crate::http::{CorrelationId, Json, JsonText, Problem};
use crate::messages::Message;
use crate::messages::dead;
use crate::messages::transition::{Refused, Stored};
use crate::tokens::Caller;

/// Messages that one call by a key cancels, about; repeated, it goes on.
const MOST_CANCELLED: usize = 10_000;
/// Of those that were not cancelled, how many are named.
const MOST_NAMED: usize = 100;
/// How often a message that changes meanwhile is looked at.
const TRIES: usize = 5;

pub(super) async fn retry(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    seed: Seed,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let new_id: Uuid = request_ids(&services, seed).uuid(0);
    Ok(created(&send_again(&services, &caller, &correlation, &id, new_id).await?))
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
    // Only what an earlier version took leaves no room for the id of the one before.
    if again.to_item().and_then(|item| services.messages.table.check_item(&item)).is_err() {
        return Err(Problem::conflict("the message is too large to be sent again"));
    }
    let action = Action::new("message.retry", "message", &failed.message_id)
        .details(serde_json::json!({ "message_id": again.message_id }));
    let mut writes = services.messages.creation(std::slice::from_ref(&again))?;
    // Or whoever resubmits all dead letters would send it once more (SX-08).
    writes.push(Write::delete(dead::table(), Key::new(&failed.message_id)));
    let by = &caller.name();
    let commit = |more: Vec<Write>| {
        let (action, writes) = (action.clone(), writes.iter().cloned().chain(more).collect());
        async move { services.audit.record_with(by, &correlation.0, action, writes).await.map(drop) }
    };
    // The letter of one that stands for a message of the bus is there.
    let letter = match push::stands_for_another(&failed) {
        true => letters::of_pushed(&*services.store, &failed.message_id).await?,
        false => None,
    };
    let dealt = match &letter {
        Some(at) => services.bus.deal_with(at, &Deed::Remove, commit).await.map(drop),
        None => Err(LetterError::Gone),
    };
    let stored = match dealt {
        Ok(()) => Ok(()),
        Err(LetterError::Gone) => commit(Vec::new()).await,
        Err(error @ LetterError::Locked) => return Err(Problem::conflict(error.to_string())),
        Err(LetterError::Bus(error)) => return Err(error.into()),
    };
    match stored {
        Ok(()) => services.messages.signals.created([&again]),
        // The same request come again: it is made.
        Err(Error::Conflict { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let made = services.messages.get(&again.message_id).await?;
    Ok(made.map_or(again, |made| made.message))
}

pub(super) async fn cancel(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    seed: Seed,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    // The same request come again finds what it did.
    if seed.is_some_and(|Extension(seed)| seed.claim().is_again)
        && let Some(stored) = services.messages.get(&id).await?
        && is_cancelled(&stored.message)
    {
        return Ok(Json(StatusCode::OK, MessageView::from(&stored.message)).into_response());
    }
    let message = call_off(&services, &caller, &correlation, &id).await?;
    Ok(Json(StatusCode::OK, MessageView::from(&message)).into_response())
}

/// Does not send a message; gives it as it is then.
pub async fn call_off(
    services: &Services,
    caller: &Caller,
    correlation: &CorrelationId,
    id: &str,
) -> Result<Message, Problem> {
    let _hold = services.messages.holds.hold(id).await;
    let stored = services.messages.get(id).await?.ok_or_else(unknown)?;
    if is_cancelled(&stored.message) {
        return Err(Problem::conflict("the message is cancelled already"));
    }
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
pub(super) async fn cancel_by_key(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    body: JsonText,
) -> Result<impl IntoResponse, Problem> {
    let key = read::cancel_key(&body.object()?).map_err(|error| Problem::invalid(vec![error]))?;
    let key = key.ok_or_else(|| Problem::invalid_field("key", "is required"))?;
    let messages = &services.messages;
    let mut answer =
        CancelAnswer { cancelled: Vec::new(), already_cancelled: Vec::new(), too_late: Vec::new(), more: false };
    // Before what is cancelled now is among them.
    let (ended, _) = messages.of_key(&key, true, None).await?;
    let mut after = None;
    loop {
        let (page, next) = messages.of_key(&key, false, after).await?;
        for stored in page {
            let id = stored.message.message_id.clone();
            match cancel_one(&services, &caller, &correlation, &key, stored).await? {
                Called::Off => answer.cancelled.push(id),
                Called::Before => name(&mut answer.already_cancelled, id),
                Called::TooLate => name(&mut answer.too_late, id),
            }
        }
        after = next;
        answer.more = after.is_some() && answer.cancelled.len() >= MOST_CANCELLED;
        if after.is_none() || answer.more {
            break;
        }
    }
    for Stored { message, .. } in ended {
        let list = if is_cancelled(&message) { &mut answer.already_cancelled } else { &mut answer.too_late };
        name(list, message.message_id);
    }
    if answer.cancelled.is_empty() && answer.already_cancelled.is_empty() && answer.too_late.is_empty() {
        return Err(Problem::not_found("there is no message of this key, or it has expired"));
    }
    Ok(Json(StatusCode::OK, answer))
}

/// Of those that were not cancelled now, not all are named.
fn name(list: &mut Vec<String>, id: String) {
    if list.len() < MOST_NAMED {
        list.push(id);
    }
}

/// What came of calling a message off.
enum Called {
    Off,
    /// It was cancelled already.
    Before,
    TooLate,
}

async fn cancel_one(
    services: &Services,
    caller: &Caller,
    correlation: &CorrelationId,
    key: &str,
    stored: Stored,
) -> Result<Called, Problem> {
    let messages = &services.messages;
    let id = stored.message.message_id.clone();
    let _hold = messages.holds.hold(&id).await;
    let mut known = Some(stored);
    for _ in 0..TRIES {
        let Some(stored) = known else { return Ok(Called::TooLate) };
        if is_cancelled(&stored.message) {
            return Ok(Called::Before);
        }
        let transition = match messages.transition_of(Box::new(stored), Input::Cancelled, services.clock.now(), |_| {})
        {
            Ok(transition) => transition,
            Err(Refused::Conflict(_)) => return Ok(Called::TooLate),
            Err(Refused::Store(error)) => return Err(error.into()),
        };
        let action = Action::new("message.cancel", "message", &id).details(serde_json::json!({ "key": key }));
        let writes = transition.all_writes();
        match services.audit.record_with(&caller.name(), &correlation.0, action, writes).await {
            Ok(_) => {
                services.metrics.tally.failed();
                return Ok(Called::Off);
            }
            // It was put off, or in line: that is no reason to send it.
            Err(Error::Conflict { .. }) => known = messages.get(&id).await?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Called::TooLate)
}
