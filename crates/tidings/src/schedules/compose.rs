//! From a run to its message: the one place where schedules meet messages.

use tidings_core::envelope::FieldError;
use tidings_core::time::{self, Timestamp};
use uuid::Uuid;

use super::record::Definition;
use crate::messages::{Message, Messages, Origin, Request};

/// The root of the ids of scheduled messages.
const NAMESPACE: Uuid = Uuid::from_u128(0x7d1b_5a0e_3c52_4f0c_9e0a_5c9d_1f6b_2e47);

/// The message of one run. Its id follows from the schedule's name and the time of the run, so that whoever is second
/// finds it there. The payload is judged as the API judges it (S002-60).
pub fn compose(
    messages: &Messages,
    name: &str,
    definition: &Definition,
    at: Timestamp,
    now: Timestamp,
) -> Result<Message, Vec<FieldError>> {
    let message_id = message_id(name, at);
    let request = Request {
        message_type: definition.message_type.clone(),
        payload: definition.payload.clone(),
        stage: None,
        deliver_at: None,
        cancel_key: None,
    };
    let origin = Origin { created_by: "scheduler", correlation_id: &message_id.to_string(), trace_parent: None };
    messages.compose(request, origin, message_id, now).map(|made| made.message)
}

/// The id of the message of a run.
#[must_use]
pub fn message_id(name: &str, at: Timestamp) -> Uuid {
    Uuid::new_v5(&NAMESPACE, format!("{name}\n{}", time::iso_millis(at)).as_bytes())
}
