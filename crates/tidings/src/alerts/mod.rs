//! Process change alerts (seed 000): "who changed our process template?"
//!
//! `shapes` finds audit events in requests, `entry` reads one, `receive` stores it with its record (`record`) and its
//! mail (`mail`) in the event's own transaction; `bury` keeps what cannot be taken; `follow` keeps the record in step with the mail. `digest` tells many in one mail. `history` reads them
//! back, `poller` asks Azure DevOps for what nobody sends, `accounts` knows whose changes are expected.

pub mod accounts;
pub mod actions;
mod bury;
pub mod digest;
mod entry;
mod export;
pub mod follow;
pub mod history;
pub mod http;
pub mod limits;
mod mail;
pub mod parameter;
pub mod poller;
mod receive;
pub mod record;
pub mod resend;
pub mod sample;
pub mod shapes;
pub mod view;

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tidings_core::time::Clock;
use tidings_store::Store;

pub use accounts::Accounts;
pub use bury::Refused;
pub use receive::{Receipt, SOURCE};

use crate::config::Config;
use crate::config::process_alerts::ProcessAlerts;
use mail::{Letterhead, Templates};

const DAY_SECONDS: i64 = 86_400;

/// The alerts of this installation.
pub struct Alerts {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    pub accounts: Accounts,
    /// As the last reload left them, and the templates among them.
    settings: RwLock<(Arc<ProcessAlerts>, Templates)>,
    public_url: String,
    stage: String,
    /// How long an alert is kept.
    keep_seconds: i64,
    messages_seconds: i64,
    /// How far ahead of us an event's time may be.
    future: Duration,
}

impl Alerts {
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, config: &Config) -> Self {
        let seconds = |days: u64| i64::try_from(days).unwrap_or(i64::MAX).saturating_mul(DAY_SECONDS);
        Self {
            accounts: Accounts::new(Arc::clone(&store)),
            store,
            clock,
            settings: RwLock::new(known(&config.process_alerts)),
            public_url: config.public_url.clone(),
            stage: config.stage.as_str().to_owned(),
            keep_seconds: seconds(config.retention.alerts_days),
            messages_seconds: seconds(config.retention.messages_days),
            future: Duration::from_secs(config.limits.event_future_seconds),
        }
    }

    /// What of a new configuration counts at once.
    pub fn take_over(&self, new: &ProcessAlerts) {
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = known(new);
    }

    fn settings(&self) -> Arc<ProcessAlerts> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner).0)
    }

    fn letterhead(&self) -> Letterhead {
        let known = self.settings.read().unwrap_or_else(PoisonError::into_inner);
        let (settings, templates) = &*known;
        Letterhead {
            recipients: settings.recipients.clone(),
            templates: templates.clone(),
            public_url: self.public_url.clone(),
            stage: self.stage.clone(),
            keep_seconds: self.messages_seconds,
        }
    }
}

fn known(settings: &ProcessAlerts) -> (Arc<ProcessAlerts>, Templates) {
    (Arc::new(settings.clone()), Templates::of(settings))
}

impl crate::app::Services {
    /// The configuration file's list of authorised accounts, if it says something new.
    pub async fn take_authorized_accounts(&self, settings: &ProcessAlerts) -> Result<(), tidings_store::Error> {
        let correlation = self.ids.uuid(self.clock.now()).to_string();
        let offered = settings.authorized_accounts.clone();
        self.alerts.accounts.offer(&self.audit, accounts::Origin::File, offered, &correlation).await.map(drop)
    }
}
