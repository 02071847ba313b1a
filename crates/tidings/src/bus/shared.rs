//! What all lines share, and why a call on one does nothing.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tidings_core::ids::IdSource;
use tidings_core::time::Clock;
use tidings_store::{Error, Store};
use tokio::sync::{Notify, mpsc, watch};

use super::fence::{Fence, Fences};
use super::figures::Times;
use super::handler::Handlers;
use super::prepared::Prepared;
use crate::nodes::Nodes;

/// What all lines share.
pub struct Shared {
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<dyn IdSource>,
    /// Transactions of which nobody knows how they went.
    pub doubts: mpsc::UnboundedSender<Prepared>,
    /// Rung when something is due earlier than was known.
    pub alarm: Notify,
    /// Rung when a message is to be copied to the subscriptions of its topic.
    pub copying: Notify,
    pub stopping: watch::Receiver<bool>,
    pub times: Times,
    /// How many messages handlers of this process were done with: for those who wait for one.
    pub handled: watch::Sender<u64>,
    pub(super) handlers: Handlers,
    /// How long the history of messages is kept.
    history_seconds: AtomicI64,
    /// Who may send business events (S003-01); none: anybody.
    sources: OnceLock<Vec<String>>,
    /// Who else works on this store; none: nobody.
    pub nodes: Option<Arc<Nodes>>,
    pub(super) fences: Fences,
    /// Messages that this process has posted.
    pub(super) posts: AtomicU64,
}

/// Until the configuration says otherwise.
const HISTORY_DAYS: i64 = 90;
const DAY_SECONDS: i64 = 86_400;

impl Shared {
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
        doubts: mpsc::UnboundedSender<Prepared>,
        stopping: watch::Receiver<bool>,
        nodes: Option<Arc<Nodes>>,
    ) -> Self {
        let history_seconds = AtomicI64::new(HISTORY_DAYS * DAY_SECONDS);
        Self {
            store,
            clock,
            ids,
            doubts,
            alarm: Notify::new(),
            copying: Notify::new(),
            stopping,
            times: Times::default(),
            handled: watch::Sender::new(0),
            handlers: Handlers::default(),
            history_seconds,
            sources: OnceLock::new(),
            nodes,
            fences: Fences::default(),
            posts: AtomicU64::new(0),
        }
    }

    pub fn keep_history(&self, days: u64) {
        let days = i64::try_from(days).unwrap_or(i64::MAX);
        self.history_seconds.store(days.saturating_mul(DAY_SECONDS), Ordering::Relaxed);
    }

    /// Says once from whom business events are taken.
    pub fn take_from(&self, sources: &[String]) {
        self.sources.get_or_init(|| sources.to_vec());
    }

    pub(super) fn sources(&self) -> &[String] {
        self.sources.get().map_or(&[], Vec::as_slice)
    }

    pub(super) fn history_seconds(&self) -> i64 {
        self.history_seconds.load(Ordering::Relaxed)
    }

    pub(super) fn fence(&self, generation: &str) -> Arc<Fence> {
        self.fences.of(generation, self.nodes.is_some())
    }

    /// Something was refused that should not have been: perhaps another node has taken over.
    pub(super) fn doubt(&self) {
        if let Some(nodes) = &self.nodes {
            nodes.doubt.notify_one();
        }
    }
}

/// Why a call on a line does nothing.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    #[error("there is no such entity any more")]
    Gone,
    #[error("another node has it now")]
    Elsewhere,
    #[error("the lock is lost or unknown: it expired, was settled, or never was")]
    LockLost,
    #[error(
        "the store did not answer: whether it was done is not known yet; a message that was not settled is received again"
    )]
    Unknown,
    #[error("dead letters cannot be dead-lettered again")]
    AlreadyDead,
    #[error("dead letters cannot be deferred: complete, abandon or resubmit them")]
    NotDeferred,
    #[error(transparent)]
    Store(#[from] Error),
}
