//! What goes on beside the requests: the workers, and how often they look.

use std::sync::Arc;
use std::time::Duration;

use tidings_store::embedded::Archive;

use super::Services;
use crate::rules::fanout::Fanout;
use crate::rules::notice::Settings;
use crate::{alerts, archive, business, figures, messages, rules};

/// How often expired items are removed, and how many at once.
const SWEEP_EVERY: Duration = Duration::from_secs(30);
const SWEEP_MOST: usize = 20_000;
/// How often old entries of the audit log are removed, if they are.
const AUDIT_EVERY: Duration = Duration::from_secs(3600);
/// How often a node looks for work that another one left behind.
const FANOUT_EVERY: Duration = Duration::from_secs(2);

/// How often monitors read their figures.
const MONITOR_EVERY: Duration = Duration::from_secs(10);
/// The work of reading them, which one node does for all.
const MONITORS: &str = "monitors";

impl Services {
    pub(super) fn start_workers(&self) {
        let schedules = Arc::clone(&self.schedules).run(Arc::clone(&self.clock), self.workers.stopping());
        self.workers.run("schedules", schedules);
        self.start_looking_at_nodes();
        self.workers.run("bus", Arc::clone(&self.bus).run(self.workers.stopping()));
        self.workers.run("push", Arc::clone(&self.bus).push(Arc::clone(&self.messages), self.workers.stopping()));
        business::handlers::register(&self.bus, &self.business.handlers);
        if self.config.delivery.enabled {
            messages::deliver::start(self);
        }
        self.start_sources();
        alerts::digest::start(self);
        self.start_parameter_refresh();
        messages::dead::start(self);
        if let Some(embedded) = &self.embedded {
            let (embedded, metrics) = (Arc::clone(embedded), Arc::clone(&self.metrics));
            let archive = Arc::new(archive::Files::of(&self.config, &self.clock));
            self.workers.spawn("sweep", SWEEP_EVERY, move || {
                let (embedded, metrics, archive) = (Arc::clone(&embedded), Arc::clone(&metrics), Arc::clone(&archive));
                async move {
                    let archive = archive.as_ref().as_ref().map(|files| files as &dyn Archive);
                    let swept = embedded.sweep_into(archive, SWEEP_MOST).await.map_err(|e| e.to_string())?;
                    metrics.expired.inc_by(swept as u64);
                    Ok(())
                }
            });
        }
        let figures = Arc::clone(&self.figures);
        self.workers.spawn("figures", figures::FLUSH_EVERY, move || {
            let figures = Arc::clone(&figures);
            async move { figures.flush().await.map_err(|e| e.to_string()) }
        });
        if let Ok(days @ 1..) = u32::try_from(self.config.retention.audit_days) {
            let services = self.clone();
            self.workers.spawn("audit", AUDIT_EVERY, move || {
                let services = services.clone();
                let kept = Duration::from_secs(u64::from(days) * 86_400);
                async move {
                    let before = services.clock.now().saturating_sub(kept).map_err(|e| e.to_string())?;
                    services.audit.expire(before).await.map(drop).map_err(|e| e.to_string())
                }
            });
        }
        self.start_monitors();
        let services = self.clone();
        self.workers.spawn("rules", rules::SYNC_EVERY, move || {
            let services = services.clone();
            async move { services.rules.sync().await.map_err(|e| e.to_string()) }
        });
        let fanout = Arc::new(self.fanout());
        self.workers.spawn_woken("fan-out", FANOUT_EVERY, Arc::clone(&self.ingest.new_job), move || {
            let fanout = Arc::clone(&fanout);
            async move { fanout.activate().await.map_err(|e| e.to_string()) }
        });
    }

    fn start_monitors(&self) {
        let services = self.clone();
        self.offer(MONITORS);
        self.workers.spawn("monitors", MONITOR_EVERY, move || {
            let services = services.clone();
            async move {
                if !services.does(MONITORS) {
                    return Ok(());
                }
                services.bus.refresh().await.map_err(|e| e.to_string())?;
                services.incidents.evaluate().await.map_err(|e| e.to_string())
            }
        });
    }

    /// What carries on the work that events leave behind.
    #[must_use]
    pub fn fanout(&self) -> Fanout {
        Fanout {
            store: Arc::clone(&self.store),
            book: Arc::clone(&self.rules.book),
            metrics: Arc::clone(&self.metrics),
            settings: Settings::of(&self.config).with_callers(Arc::clone(self.tickets.callers())),
            signals: Arc::clone(&self.messages.signals),
            bus: Some(Arc::clone(&self.bus)),
            arrivals: Arc::clone(&self.inbox.live),
            traffic: Arc::clone(&self.ingest.traffic),
            stop: self.workers.stopping(),
        }
    }
}
