//! `[retention]`: how long things are kept.

use serde::{Deserialize, Serialize};

use super::check::Check;
use super::store::Engine;

/// A century; beyond it, say 0 where that means for ever.
const MAX_DAYS: u64 = 36_500;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Retention {
    /// Events and what became of them.
    pub events_days: u64,
    /// Process change alerts, from the event's own time.
    pub alerts_days: u64,
    /// Inbox entries, unread ones included.
    pub notifications_days: u64,
    /// Messages and their attempts, from their creation.
    pub messages_days: u64,
    /// Tickets, from their closing; open ones are kept.
    pub tickets_days: u64,
    /// The log of audited actions. 0: for ever.
    pub audit_days: u64,
    /// How long an `Idempotency-Key` replays its first answer.
    pub idempotency_hours: u64,
    /// How long an event id is remembered as a duplicate.
    pub dedupe_hours: u64,
    /// What is written to `archive/` in the data directory before it is removed.
    pub archive: Vec<String>,
}

/// What can be archived.
pub const ARCHIVED: [&str; 5] = ["events", "alerts", "notifications", "messages", "tickets"];

impl Default for Retention {
    fn default() -> Self {
        Self {
            events_days: 90,
            alerts_days: 90,
            notifications_days: 90,
            messages_days: 90,
            tickets_days: 90,
            audit_days: 0,
            idempotency_hours: 24,
            dedupe_hours: 24,
            archive: Vec::new(),
        }
    }
}

impl Retention {
    pub(super) fn check(&self, check: &mut Check<'_>, engine: Engine) {
        check.key("events_days").range(self.events_days, 1..=MAX_DAYS);
        check.key("alerts_days").range(self.alerts_days, 1..=MAX_DAYS);
        check.key("notifications_days").range(self.notifications_days, 1..=MAX_DAYS);
        check.key("messages_days").range(self.messages_days, 1..=MAX_DAYS);
        check.key("tickets_days").range(self.tickets_days, 1..=MAX_DAYS);
        check.key("audit_days").range(self.audit_days, 0..=MAX_DAYS);
        check.key("idempotency_hours").range(self.idempotency_hours, 1..=8760);
        check.key("dedupe_hours").range(self.dedupe_hours, 1..=8760);
        for name in self.archive.iter().filter(|name| !ARCHIVED.contains(&name.as_str())) {
            check.key("archive").problem(format!("has {name:?}; it can hold {}", ARCHIVED.join(", ")));
        }
        if engine == Engine::DynamoDb && !self.archive.is_empty() {
            check.key("archive").problem(
                "needs the embedded store: DynamoDB removes what has expired by itself; leave it out, and keep what you \
                 want to keep by the tables' own exports or streams",
            );
        }
    }
}
