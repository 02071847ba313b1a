//! `[[schedules]]`: messages that come by the clock. The cron expression and the time zone are judged by the scheduler.

use serde::{Deserialize, Serialize};
use tidings_core::time::Timestamp;

use super::check::Check;
use super::duration;
use super::json::JsonObject;
use super::problem::quote;

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

impl Schedule {
    pub(super) fn check(&self, check: &mut Check<'_>) {
        let given = [self.cron.is_some(), self.every.is_some(), self.at.is_some()];
        if given.into_iter().filter(|given| *given).count() != 1 {
            check.problem("needs exactly one of `cron`, `every` and `at`");
        }
        if let Some(cron) = &self.cron {
            let fields = cron.split_whitespace().count();
            if !(5..=6).contains(&fields) && !cron.starts_with('@') {
                check.key("cron").problem(format_args!("must have 5 fields, or 6 with seconds, not {fields}"));
            }
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '+' | '/');
        if self.timezone.is_empty() || !self.timezone.chars().all(allowed) {
            check.key("timezone").problem("must be an IANA time zone like \"Europe/Berlin\"");
        }
        if let Some(every) = &self.every {
            match duration::parse(every) {
                Ok(every) if every.as_secs() >= 1 => {}
                Ok(_) => check.key("every").problem("must be at least 1s"),
                Err(error) => check.key("every").problem(format_args!("must be a duration: {error}")),
            }
        }
        if let Some(at) = &self.at
            && at.parse::<Timestamp>().is_err()
        {
            check
                .key("at")
                .problem(format_args!("must be an instant like \"2027-01-01T08:00:00Z\", not {}", quote(at)));
        }
        check.key("message_type").name(&self.message_type);
    }
}
