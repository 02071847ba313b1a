//! `[[monitors]]`: what raises an incident, and who hears of it.

use serde::{Deserialize, Serialize};

use super::check::Check;
use super::rules::{Target, check_targets, target_secrets};
use super::secret::Secret;

/// Raised when `metric` of `entity` stays above `above` for `for_seconds`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Monitor {
    pub name: String,
    pub enabled: bool,
    pub metric: Option<Metric>,
    /// A queue's or subscription's path; absent: any of them.
    pub entity: Option<String>,
    pub above: f64,
    pub for_seconds: u64,
    pub severity: Severity,
    /// Unacknowledged for this long, the incident escalates. 0: never.
    pub acknowledge_seconds: u64,
    /// Told when the incident is raised.
    pub targets: Vec<Target>,
    /// Told one after the other while it is not acknowledged, and the last one again and again.
    pub escalate: Vec<Target>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Messages in dead-letter queues.
    DeadLetters,
    /// Messages ready for delivery; scheduled ones do not count.
    ActiveMessages,
    /// From acceptance to the first delivery, in seconds.
    LatencyP99Seconds,
    /// How much of `deadLetterMaxBytes` the dead letters of a queue or subscription take, from 0 to 1.
    DeadLetterShare,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Info,
    #[default]
    Warning,
    Critical,
}

impl Default for Monitor {
    fn default() -> Self {
        Self {
            name: String::new(),
            enabled: true,
            metric: None,
            entity: None,
            above: 0.0,
            for_seconds: 300,
            severity: Severity::Warning,
            acknowledge_seconds: 3600,
            targets: Vec::new(),
            escalate: Vec::new(),
        }
    }
}

impl Monitor {
    pub(super) fn check(&self, check: &mut Check<'_>) {
        if self.metric.is_none() {
            check
                .key("metric")
                .problem("is missing; it is \"dead_letters\", \"active_messages\", \"latency_p99_seconds\" or \"dead_letter_share\"");
        }
        if let Some(entity) = &self.entity {
            check.key("entity").name(entity);
        }
        check.key("above").range(self.above, 0.0..=1e12);
        check.key("for_seconds").range(self.for_seconds, 0..=604_800);
        check.key("acknowledge_seconds").range(self.acknowledge_seconds, 0..=604_800);
        check_targets(&self.targets, &mut check.key("targets"));
        check_targets(&self.escalate, &mut check.key("escalate"));
    }

    pub(super) fn secrets<'a>(&'a mut self, path: &str, secrets: &mut Vec<(String, &'a mut Secret)>) {
        target_secrets(&mut self.targets, &format!("{path}.targets"), secrets);
        target_secrets(&mut self.escalate, &format!("{path}.escalate"), secrets);
    }
}
