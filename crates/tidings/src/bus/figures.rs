//! Figures of a line: what is in it, how long messages wait, how long they take (S003-100, S003-102).

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use tidings_core::time::Timestamp;

use super::layout::Place;
use super::line::Line;
use super::state::{Held, Taken};

/// From five milliseconds to an hour; 5 s is where the seed draws the line.
const SECONDS: [f64; 13] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 30.0, 300.0, 3600.0];

/// How long messages of a line take. Scheduled delay does not count: a message is enqueued when it is due.
#[derive(Debug, Clone)]
pub struct Watch {
    /// From enqueued to its first delivery.
    pub to_delivery: Histogram,
    /// From enqueued to completed.
    pub to_completion: Histogram,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Labels {
    pub entity: String,
}

type Histograms = Family<Labels, Histogram, fn() -> Histogram>;

/// The same of every line.
#[derive(Debug, Clone)]
pub struct Times {
    pub to_delivery: Histograms,
    pub to_completion: Histograms,
}

impl Default for Times {
    fn default() -> Self {
        let histograms = || Histograms::new_with_constructor(|| Histogram::new(SECONDS));
        Self { to_delivery: histograms(), to_completion: histograms() }
    }
}

impl Times {
    #[must_use]
    pub fn of(&self, path: &str) -> Watch {
        let labels = Labels { entity: path.to_owned() };
        Watch {
            to_delivery: self.to_delivery.get_or_create_owned(&labels),
            to_completion: self.to_completion.get_or_create_owned(&labels),
        }
    }
}

impl Watch {
    pub fn delivered(&self, taken: &[Taken], now: Timestamp) {
        for Taken { held, .. } in taken.iter().filter(|taken| taken.held.deliveries == 1) {
            self.to_delivery.observe(seconds(held.message.enqueued_at, now));
        }
    }

    pub fn completed(&self, held: &Held, now: Timestamp) {
        if matches!(held.place, Place::Lane(..)) {
            self.to_completion.observe(seconds(held.message.enqueued_at, now));
        }
    }
}

fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    Duration::try_from(to.duration_since(from)).unwrap_or_default().as_secs_f64()
}

/// What is in a line now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Waiting to be received.
    pub active: u64,
    pub scheduled: u64,
    pub locked: u64,
    pub deferred: u64,
    /// In the line's dead letters.
    pub dead_lettered: u64,
    /// Messages that ever came in, and that ever went out.
    pub incoming: u64,
    pub outgoing: u64,
    /// Age of the oldest message that waits or is locked.
    pub oldest_age: Option<Duration>,
}

impl Line {
    #[must_use]
    pub fn figures(self: &Arc<Self>) -> Figures {
        self.tick();
        let now = self.now().wall;
        let dead_lettered = self.dead().map_or(0, |dead| dead.state().counts.waiting);
        let state = self.state();
        let locked = state.locked();
        let count = |count: i64| u64::try_from(count).unwrap_or(0);
        Figures {
            active: count(state.counts.waiting).saturating_sub(locked as u64),
            scheduled: count(state.counts.scheduled),
            locked: locked as u64,
            deferred: count(state.counts.deferred),
            dead_lettered: count(dead_lettered),
            incoming: count(state.counts.incoming),
            outgoing: count(state.counts.outgoing),
            oldest_age: state.oldest().map(|oldest| Duration::try_from(now.duration_since(oldest)).unwrap_or_default()),
        }
    }
}
