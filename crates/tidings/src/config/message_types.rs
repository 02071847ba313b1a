//! `[[message_types]]`: message types besides the built-in ones.

use serde::{Deserialize, Serialize};

use super::check::Check;
use super::json::JsonObject;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MessageType {
    pub name: String,
    /// JSON Schema of the payload.
    pub schema: JsonObject,
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
