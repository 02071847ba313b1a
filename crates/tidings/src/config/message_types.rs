//! `[[message_types]]`: message types besides the built-in ones.

use serde::{Deserialize, Serialize};
use tidings_core::envelope::check_name;

use super::check::{Check, plain_name};
use super::json::JsonObject;
use crate::messages::types::TYPE_CHARS;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MessageType {
    pub name: String,
    /// JSON Schema of the payload.
    pub schema: JsonObject,
}

/// What no message may name is no name for a type.
pub(super) fn name(name: &str) -> Result<(), String> {
    plain_name(name)?;
    check_name(name, TYPE_CHARS)
}

impl MessageType {
    pub(super) fn check(&self, check: &mut Check<'_>) {
        // An empty one is a schema that everything fits.
        if self.schema.is_empty() && !check.key("schema").is_written() {
            check.key("schema").problem("is missing; it is the JSON Schema of the payload");
        } else if let Err(why) = crate::messages::types::check_schema(self.schema.as_map()) {
            check.key("schema").problem(why);
        }
    }
}
