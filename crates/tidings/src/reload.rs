//! Reading the configuration again (`SIGHUP`, `POST /admin/reload`): what can change at run time changes at once,
//! the rest is named and waits for the next start.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;
use tidings_core::envelope::FieldError;

use crate::app::Services;
use crate::audit::Action;
use crate::config::limits::Limits as ConfigLimits;
use crate::config::{Config, Difference, Problems};
use crate::http::Problem;
use crate::schedules::Told;

/// Reads the configuration as the start did.
pub type Source = Arc<dyn Fn() -> Result<Config, Problems> + Send + Sync>;

/// The limits on requests that a reload changes.
#[derive(Debug)]
pub struct RequestLimits {
    body_bytes: AtomicU64,
    event_bytes: AtomicU64,
    batch_events: AtomicU64,
    timeout_seconds: AtomicU64,
}

impl RequestLimits {
    #[must_use]
    pub fn of(limits: &ConfigLimits) -> Self {
        Self {
            body_bytes: limits.body_bytes.into(),
            event_bytes: limits.event_bytes.into(),
            batch_events: limits.batch_events.into(),
            timeout_seconds: limits.request_timeout_seconds.into(),
        }
    }

    fn take_over(&self, limits: &ConfigLimits) {
        self.body_bytes.store(limits.body_bytes, Ordering::Relaxed);
        self.event_bytes.store(limits.event_bytes, Ordering::Relaxed);
        self.batch_events.store(limits.batch_events, Ordering::Relaxed);
        self.timeout_seconds.store(limits.request_timeout_seconds, Ordering::Relaxed);
    }

    #[must_use]
    pub fn body_bytes(&self) -> usize {
        size(&self.body_bytes)
    }

    #[must_use]
    pub fn event_bytes(&self) -> usize {
        size(&self.event_bytes)
    }

    #[must_use]
    pub fn batch_events(&self) -> usize {
        size(&self.batch_events)
    }

    #[must_use]
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds.load(Ordering::Relaxed))
    }
}

fn size(value: &AtomicU64) -> usize {
    usize::try_from(value.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
}

/// The configuration in force, and where the next one comes from.
pub struct Reload {
    source: Option<Source>,
    current: Mutex<Config>,
}

impl Reload {
    #[must_use]
    pub fn new(source: Option<Source>, config: &Config) -> Self {
        Self { source, current: Mutex::new(config.clone()) }
    }
}

impl Services {
    /// Reads the configuration again and takes over what can change. A bad one changes nothing.
    pub async fn reload(&self, user: &str, correlation_id: &str) -> Result<Difference, Problem> {
        let Some(source) = &self.reload.source else {
            return Err(Problem::conflict("this server was started without a configuration that can be read again"));
        };
        let mut new = source().map_err(|problems| refused(&problems))?;
        let (schedules, process_alerts) = (new.schedules.clone(), new.process_alerts.clone());
        let map = crate::inbox::sync::wanted(&new).map_err(|bad| map_refused(&bad))?;
        let difference = {
            let mut current = self.reload.current.lock().unwrap_or_else(PoisonError::into_inner);
            if new.listen.port() == 0 {
                // Any port will do, and the one that was taken does.
                new.set_listen(current.listen);
            }
            if new.push.listen.address().is_some_and(|address| address.port() == 0) {
                new.push.listen = current.push.listen;
            }
            let difference = current.reloadable_difference(&new);
            self.rules.take_file_rules(&crate::app::file_rules(&new))?;
            self.incidents.take_over(&new.monitors);
            self.limits.take_over(&new.limits);
            self.alerts.take_over(&new.process_alerts);
            current.take_over(new);
            difference
        };
        let told = Told { audit: &self.audit, user, correlation_id };
        self.schedules.load(&schedules, told, self.clock.now()).await?;
        self.take_authorized_accounts(&process_alerts).await?;
        if let Some(map) = map {
            crate::inbox::sync::apply(self, map).await?;
        }
        let details = json!({ "changed": difference.changed, "needs_restart": difference.needs_restart });
        let action = Action::new("config.reload", "config", "file").details(details);
        self.audit.record_with(user, correlation_id, action, Vec::new()).await?;
        tracing::info!(changed = ?difference.changed, needs_restart = ?difference.needs_restart, "configuration reloaded");
        Ok(difference)
    }
}

fn map_refused(bad: &[crate::inbox::import::BadLine]) -> Problem {
    let errors = bad.iter().map(|bad| {
        let line = if bad.line == 0 { String::new() } else { format!(" (line {})", bad.line) };
        FieldError::new("notification_center.map_file", format!("{}{line}", bad.message))
    });
    Problem { detail: crate::inbox::sync::sentence(bad), ..Problem::invalid(errors.collect()) }
}

fn refused(problems: &Problems) -> Problem {
    let place = |line: Option<usize>| line.map(|line| format!(" (line {line})")).unwrap_or_default();
    let errors = problems.iter().map(|p| FieldError::new(&p.key, format!("{}{}", p.message, place(p.line))));
    Problem { detail: format!("the configuration is not changed: {problems}"), ..Problem::invalid(errors.collect()) }
}
