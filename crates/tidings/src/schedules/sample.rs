//! The sample that a new store begins with: hello world, once a day (S002-66, S002-70). It is a schedule like any other, to
//! be changed or deleted; a mark beside it says that it was there once, so that it does not come back.

use serde_json::{Value, json};
use tidings_core::time::Timestamp;
use tidings_store::{Error, Item, Write};

use super::{Definition, Origin, Schedules, table};
use crate::config::schedules::Missed;

pub const NAME: &str = "daily-hello";
/// The partition of the mark.
const SAMPLE: &str = "sample";

impl Schedules {
    /// The writes that make the sample, none if a schedule of its name is there. They fail where it was made before.
    /// It is switched off where there is nowhere to send it to: nothing fails that nobody asked for.
    pub async fn sample(&self, by: &str, has_destination: bool, now: Timestamp) -> Result<Vec<Write>, Error> {
        if self.get(NAME).await?.is_some() {
            return Ok(Vec::new());
        }
        let payload = json!({ "text": "hello world", "priority": "default", "tags": ["scheduled", "daily"] });
        let definition = Definition {
            cron: Some("0 9 * * *".to_owned()),
            timezone: "UTC".to_owned(),
            every: None,
            at: None,
            message_type: "scheduled_hello".to_owned(),
            payload: payload.as_object().cloned().unwrap_or_default(),
            enabled: has_destination,
            missed: Missed::default(),
        };
        let (_, write) = self.writing(NAME, definition, Origin::Api, by, None, now)?;
        let mark = Item::new().with("kind", SAMPLE).with("id", NAME).with("made_at", now.to_string());
        Ok(vec![write, Write::insert(table(), mark)])
    }
}

/// What the audit log has of it.
#[must_use]
pub fn details(has_destination: bool) -> Value {
    json!({ "sample": true, "enabled": has_destination })
}
