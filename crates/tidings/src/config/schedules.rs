//! `[[schedules]]`: messages that come by the clock. When they run is judged by `schedules::timing`.

use serde::{Deserialize, Serialize};
use tidings_core::envelope::FieldError;
use tidings_core::time::Timestamp;

use super::check::Check;
use super::json::JsonObject;
use crate::schedules::timing::{Said, Timing};

/// Exactly one of `cron`, `every` and `at`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Schedule {
    pub name: String,
    pub cron: Option<String>,
    /// IANA name, for `cron`.
    pub timezone: String,
    /// A duration: `15m`.
    pub every: Option<String>,
    /// An instant: `2027-01-01T08:00:00Z`.
    pub at: Option<String>,
    pub message_type: String,
    pub payload: JsonObject,
    pub enabled: bool,
    pub missed: Missed,
}

/// What happens to runs that fell into a time when nothing was running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Missed {
    Skip,
    /// One run for all of them.
    #[default]
    Once,
    All,
}

impl Default for Schedule {
    fn default() -> Self {
        Self {
            name: String::new(),
            cron: None,
            timezone: "UTC".to_owned(),
            every: None,
            at: None,
            message_type: String::new(),
            payload: JsonObject::default(),
            enabled: true,
            missed: Missed::Once,
        }
    }
}

/// The API's own judgement.
pub(super) fn name(name: &str) -> Result<(), String> {
    crate::schedules::read::check_new_name(name).map_err(|error| error.message)
}

impl Schedule {
    pub(super) fn check(&self, check: &mut Check<'_>) {
        let said = Said {
            cron: self.cron.as_deref(),
            timezone: &self.timezone,
            every: self.every.as_deref(),
            at: self.at.as_deref(),
        };
        // The scheduler's own judgement, so that nothing that passes here fails there.
        let errors = match Timing::read(said, Timestamp::UNIX_EPOCH) {
            Ok(timing) if self.cron.is_some() && timing.next_after(Timestamp::UNIX_EPOCH).is_none() => {
                vec![FieldError::new("cron", "never comes")]
            }
            Ok(_) => Vec::new(),
            Err(errors) => errors,
        };
        for error in errors {
            if !error.field.is_empty() {
                check.key(&error.field).problem(error.message);
            } else if !["cron", "every", "at"].iter().any(|key| check.key(key).is_faulty()) {
                // One that could not be read is there, and not missing.
                check.problem(error.message);
            }
        }
        check.key("message_type").name(&self.message_type);
    }
}
