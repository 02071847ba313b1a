//! The same for dead letters of the bus: they go back to the queue or subscription they came from.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use serde_json::value::to_raw_value;
use tidings_core::envelope::FieldError;
use tidings_store::Write;

use super::{DeadLetterView, edited, unknown};
use crate::app::Services;
use crate::audit::Action;
use crate::bus::http::view::MessageView;
use crate::bus::letters::{CHANNEL, Deed, LetterError};
use crate::bus::message::Stored;
use crate::http::{CorrelationId, Problem};
use crate::messages::dead::edit::Edit;
use crate::messages::dead::{self, DeadLetter};
use crate::tokens::Caller;

/// Where a message is that was sent back.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SentBack {
    pub message_id: String,
    pub path: String,
    pub sequence_number: u64,
    /// The letter that it was.
    pub resubmitted_from: String,
}

impl DeadLetterView {
    pub(super) fn on_bus(letter: DeadLetter, path: String, stored: &Stored) -> Self {
        let message = to_raw_value(&MessageView::from(stored)).ok();
        let attempts = stored.attempts.iter().filter_map(|attempt| serde_json::to_value(attempt).ok()).collect();
        Self { source: CHANNEL, path: Some(path), message, attempts, ..Self::from(letter) }
    }
}

/// The letter of this id, if it is one of the bus.
pub async fn of_bus(services: &Services, id: &str) -> Result<Option<DeadLetter>, Problem> {
    Ok(dead::get(&*services.store, id).await?.filter(|letter| letter.bus.is_some()))
}

/// Sends a letter back, as it was or with another body, together with the audit entry.
pub async fn send_back_one(
    services: &Services,
    caller: &Caller,
    correlation: &CorrelationId,
    letter: &DeadLetter,
    edit: &Edit,
) -> Result<SentBack, Problem> {
    if edit.target.is_some() {
        let why = "cannot be changed of a message of the bus: it goes back to where it came from";
        return Err(Problem::invalid(vec![FieldError::new("target", why)]));
    }
    let at = letter.bus.as_ref().ok_or_else(unknown)?;
    let stored = services.bus.letter(at).await?.ok_or_else(unknown)?;
    let details = json!({ "path": at.path, "message_id": stored.message.id, "edited": edited(edit) });
    let action = Action::new("dead_letter.resubmit", "dead_letter", &letter.id).details(details);
    let deed = Deed::SendBack(edit.body());
    let number = deal(services, caller, correlation, letter, &deed, action).await?;
    Ok(SentBack {
        message_id: stored.message.id,
        path: at.path.clone(),
        sequence_number: number.unwrap_or_default(),
        resubmitted_from: letter.id.clone(),
    })
}

/// Throws a letter away, together with the audit entry.
pub async fn remove_one(
    services: &Services,
    caller: &Caller,
    correlation: &CorrelationId,
    letter: &DeadLetter,
) -> Result<(), Problem> {
    let details =
        json!({ "reason": letter.reason, "channel": letter.channel, "path": letter.bus.as_ref().map(|at| &at.path) });
    let action = Action::new("dead_letter.discard", "dead_letter", &letter.id).details(details);
    deal(services, caller, correlation, letter, &Deed::Remove, action).await.map(drop)
}

async fn deal(
    services: &Services,
    caller: &Caller,
    correlation: &CorrelationId,
    letter: &DeadLetter,
    deed: &Deed,
    action: Action,
) -> Result<Option<u64>, Problem> {
    let at = letter.bus.as_ref().ok_or_else(unknown)?;
    let by = caller.name();
    let commit =
        |writes: Vec<Write>| async { services.audit.record_with(&by, &correlation.0, action, writes).await.map(drop) };
    services.bus.deal_with(at, deed, commit).await.map_err(|error| match error {
        LetterError::Gone => unknown(),
        LetterError::Locked => Problem::conflict(error.to_string()),
        LetterError::Bus(error) => error.into(),
    })
}
