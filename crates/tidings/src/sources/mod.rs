//! Places that are asked for events (`[[sources]]`), as opposed to those that send them: the audit log of Azure DevOps
//! (`alerts::poller`) and the stream of a DynamoDB table (`stream`).
//!
//! Here is what they have in common: one node asks for all, a turn that fails is made again, later and later, and how
//! each of them fares can be seen (`board`, `metrics`).

pub mod board;
pub mod http;
pub mod metrics;
pub mod stream;

use std::time::Duration;

use tidings_core::ids::IdSource;
use tidings_store::{Error, Write};
use tokio::sync::watch;

use crate::alerts::poller::Poller;
use crate::app::Services;
use crate::config::sources::{Kind, Source as Settings};
use crate::sources::stream::Reader;
use crate::workers::turned_true;

/// One place that is asked.
pub trait Source: Send + 'static {
    /// The longest wait after failures in a row, unless turns are further apart anyway.
    const LONGEST_WAIT: Duration;

    /// Reads what there is, within bounds.
    fn look(&mut self) -> impl Future<Output = Result<Turn, Failed>> + Send;

    /// Another node works here: what is kept in memory will be wrong.
    fn forget(&mut self) {}
}

/// What a turn came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Turn {
    /// When to come again, if that is sooner than usual.
    pub sooner: Option<Duration>,
    /// What kept a part of the source from being read, while the rest was.
    pub trouble: Option<Failed>,
}

/// What a failure is about; the names are those of the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Too much at once, or the other side is ill.
    Throttled,
    Unreachable,
    /// We may not.
    Denied,
    /// What is to be read is not there.
    Missing,
    /// They do not take what we ask.
    Refused,
    /// The answer is not what it should be.
    Unreadable,
    /// Our own store.
    Store,
    /// Another node has taken over: nothing is wrong.
    Superseded,
}

impl Trouble {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Throttled => "throttled",
            Self::Unreachable => "unreachable",
            Self::Denied => "denied",
            Self::Missing => "missing",
            Self::Refused => "refused",
            Self::Unreadable => "unreadable",
            Self::Store => "store",
            Self::Superseded => "superseded",
        }
    }
}

/// Why a turn failed, and how long the other side wants us to wait.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Failed {
    pub trouble: Trouble,
    pub why: String,
    pub after: Option<Duration>,
}

impl Failed {
    pub fn new(trouble: Trouble, why: impl Into<String>) -> Self {
        Self { trouble, why: why.into(), after: None }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        let trouble = if matches!(error, Error::Conflict { .. }) { Trouble::Superseded } else { Trouble::Store };
        Self::new(trouble, error.to_string())
    }
}

/// Asks one source, turn after turn.
pub struct Asker<S> {
    services: Services,
    name: String,
    pause: Duration,
    /// Turns that failed in a row.
    failures: u32,
    source: S,
}

impl<S: Source> Asker<S> {
    pub fn new(services: &Services, settings: &Settings, source: S) -> Self {
        let pause = Duration::from_secs(settings.poll_seconds);
        Self { services: services.clone(), name: settings.name.clone(), pause, failures: 0, source }
    }

    /// Asks until the server stops; among several nodes, while this one is to do it.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let work = work(&self.name);
        self.services.offer(&work);
        loop {
            let wait = if self.services.does(&work) {
                self.turn().await
            } else {
                self.source.forget();
                self.services.metrics.sources.left(&self.name);
                self.pause
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = turned_true(&mut stop) => return,
            }
        }
    }

    /// One turn, and the wait until the next.
    pub async fn turn(&mut self) -> Duration {
        let (source, now) = (self.name.as_str(), self.services.clock.now());
        match self.source.look().await {
            Ok(Turn { sooner, trouble: Some(trouble) }) => {
                self.failures = 0;
                self.services.sources.failed(source, now, 1, &trouble);
                self.services.metrics.sources.failed(source, trouble.trouble);
                let kind = trouble.trouble.as_str();
                tracing::warn!(source, kind, error = %trouble, "a part of the source cannot be read; it will be tried again");
                sooner.unwrap_or(self.pause).min(self.pause)
            }
            Ok(Turn { sooner, trouble: None }) => {
                if self.failures > 0 {
                    tracing::info!(source, failures = self.failures, "the source can be read again");
                }
                self.failures = 0;
                self.services.sources.went_well(source, now);
                self.services.metrics.sources.is_up(source, true);
                sooner.unwrap_or(self.pause).min(self.pause)
            }
            Err(failed) if failed.trouble == Trouble::Superseded => {
                tracing::info!(source, "another node reads the source");
                self.source.forget();
                self.pause
            }
            Err(failed) => {
                self.failures = self.failures.saturating_add(1);
                self.services.sources.failed(source, now, self.failures, &failed);
                self.services.metrics.sources.is_up(source, false);
                self.services.metrics.sources.failed(source, failed.trouble);
                let most = S::LONGEST_WAIT.max(self.pause);
                let wait = backoff(self.pause, self.failures, most, &*self.services.ids);
                let wait = wait.max(failed.after.unwrap_or_default());
                let (kind, seconds) = (failed.trouble.as_str(), wait.as_secs());
                tracing::warn!(source, kind, error = %failed, seconds, "the source cannot be read; it will be tried again");
                wait
            }
        }
    }

    #[must_use]
    pub const fn source(&self) -> &S {
        &self.source
    }
}

/// Twice as long after each failure in a row, up to `most`; of that, something between half and all, so that what failed
/// together does not come back together.
#[must_use]
pub fn backoff(first: Duration, failures: u32, most: Duration, ids: &dyn IdSource) -> Duration {
    let whole = first.saturating_mul(2_u32.saturating_pow(failures.min(16))).min(most);
    let mut random = [0; 4];
    ids.random(&mut random);
    whole.mul_f64(0.5 + f64::from(u32::from_be_bytes(random)) / f64::from(u32::MAX) / 2.0)
}

/// What the nodes call the work of asking a source.
#[must_use]
pub fn work(source: &str) -> String {
    format!("source/{source}")
}

impl Services {
    /// What a write of a source must come with, so that a node that was replaced writes nothing.
    #[must_use]
    pub fn fence_of_source(&self, name: &str) -> Option<Write> {
        self.nodes.as_ref().and_then(|nodes| nodes.fence(&work(name)))
    }

    /// Starts asking every source that the configuration names.
    pub(crate) fn start_sources(&self) {
        for settings in self.config.sources.iter().filter(|source| source.enabled) {
            let stop = self.workers.stopping();
            let started = match settings.kind {
                None => continue,
                Some(Kind::AzureDevOps) => Poller::new(self, settings.clone())
                    .map(|poller| self.workers.run("audit-log", Asker::new(self, settings, poller).run(stop))),
                Some(Kind::DynamoDbStream) => Reader::new(self, settings)
                    .map(|reader| self.workers.run("stream", Asker::new(self, settings, reader).run(stop))),
            };
            if let Err(error) = started {
                tracing::error!(source = settings.name, error, "a source cannot be asked");
                let failed = Failed::new(Trouble::Unreachable, error);
                self.sources.failed(&settings.name, self.clock.now(), 1, &failed);
            }
        }
    }
}
