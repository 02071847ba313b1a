//! Figures of a line: what is in it, how long messages wait, how long they take (S003-100, S003-102).

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use tidings_core::time::Timestamp;

use super::layout::Place;
use super::line::Line;
use super::state::{Held, Taken};
use crate::figures::Counts;

/// From five milliseconds to an hour; 5 s is where the seed draws the line.
const SECONDS: [f64; 13] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 30.0, 300.0, 3600.0];

/// How long messages of a line take. Scheduled delay does not count: a message is enqueued when it is due.
#[derive(Debug)]
pub struct Watch {
    /// From enqueued to its first delivery.
    pub to_delivery: Histogram,
    /// From enqueued to completed.
    pub to_completion: Histogram,
    /// The first deliveries of the last minutes.
    recent: Recent,
    types: Arc<Types>,
    /// The type of the last message, which is often that of the next.
    last: Mutex<Option<Arc<TypeTimes>>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Labels {
    pub entity: String,
}

type Histograms = Family<Labels, Histogram, fn() -> Histogram>;

/// The same of every line, and of every type of message (S003-102).
#[derive(Debug, Clone)]
pub struct Times {
    pub to_delivery: Histograms,
    pub to_completion: Histograms,
    types: Arc<Types>,
}

impl Default for Times {
    fn default() -> Self {
        let histograms = || Histograms::new_with_constructor(|| Histogram::new(SECONDS));
        Self { to_delivery: histograms(), to_completion: histograms(), types: Arc::default() }
    }
}

impl Times {
    #[must_use]
    pub fn of(&self, path: &str) -> Watch {
        let labels = Labels { entity: path.to_owned() };
        Watch {
            to_delivery: self.to_delivery.get_or_create_owned(&labels),
            to_completion: self.to_completion.get_or_create_owned(&labels),
            recent: Recent::default(),
            types: Arc::clone(&self.types),
            last: Mutex::new(None),
        }
    }

    /// The times of every type of message, for Prometheus.
    #[must_use]
    pub fn by_type(&self) -> (TypeHistograms, TypeHistograms) {
        (self.types.to_delivery.clone(), self.types.to_completion.clone())
    }

    /// Times from accepted to first delivered of the last minutes, by type.
    #[must_use]
    pub fn lately(&self, now: Timestamp) -> Vec<(String, Lately)> {
        let types = self.types.known.lock().unwrap_or_else(PoisonError::into_inner);
        types.iter().map(|(kind, times)| (kind.clone(), times.recent.lately(now))).collect()
    }
}

/// Types whose times are kept; what comes after them counts together.
const TYPES: usize = 200;
const OTHER: &str = "other";
const UNTYPED: &str = "untyped";
/// Minutes over which the times of late are taken.
const MINUTES: i64 = 5;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct TypeLabels {
    pub r#type: String,
}

pub type TypeHistograms = Family<TypeLabels, Histogram, fn() -> Histogram>;

/// The types of messages there were.
#[derive(Debug)]
struct Types {
    to_delivery: TypeHistograms,
    to_completion: TypeHistograms,
    known: Mutex<BTreeMap<String, Arc<TypeTimes>>>,
}

impl Default for Types {
    fn default() -> Self {
        let histograms = || TypeHistograms::new_with_constructor(|| Histogram::new(SECONDS));
        Self { to_delivery: histograms(), to_completion: histograms(), known: Mutex::default() }
    }
}

/// How long messages of one type take.
#[derive(Debug)]
struct TypeTimes {
    kind: String,
    to_delivery: Histogram,
    to_completion: Histogram,
    recent: Recent,
}

/// Times of the last minutes, minute by minute.
#[derive(Debug, Default)]
struct Recent(Mutex<VecDeque<(i64, Lately)>>);

/// Times of some minutes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lately {
    pub counts: Counts,
    longest: Duration,
}

impl Types {
    fn of(&self, kind: &str) -> Arc<TypeTimes> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let kind = if known.contains_key(kind) || known.len() < TYPES { kind } else { OTHER };
        if let Some(times) = known.get(kind) {
            return Arc::clone(times);
        }
        let labels = TypeLabels { r#type: kind.to_owned() };
        let times = Arc::new(TypeTimes {
            kind: kind.to_owned(),
            to_delivery: self.to_delivery.get_or_create_owned(&labels),
            to_completion: self.to_completion.get_or_create_owned(&labels),
            recent: Recent::default(),
        });
        known.insert(kind.to_owned(), Arc::clone(&times));
        times
    }
}

impl Recent {
    fn took(&self, seconds: f64, now: Timestamp) {
        let minute = now.as_second().div_euclid(60);
        let mut minutes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while minutes.front().is_some_and(|(first, _)| *first <= minute - MINUTES) {
            minutes.pop_front();
        }
        if minutes.back().is_none_or(|(last, _)| *last != minute) {
            minutes.push_back((minute, Lately::default()));
        }
        if let Some((_, lately)) = minutes.back_mut() {
            let took = Duration::try_from_secs_f64(seconds).unwrap_or_default();
            lately.counts.took(took);
            lately.longest = lately.longest.max(took);
        }
    }

    fn lately(&self, now: Timestamp) -> Lately {
        let first = now.as_second().div_euclid(60) - MINUTES;
        let mut sum = Lately::default();
        let minutes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, lately) in minutes.iter().filter(|(minute, _)| *minute > first) {
            sum.counts.add(&lately.counts);
            sum.longest = sum.longest.max(lately.longest);
        }
        sum
    }
}

impl Lately {
    /// The time within which `share` of them were delivered: to the bucket, but never more than any of them took.
    #[must_use]
    pub fn quantile_seconds(&self, share: f64) -> Option<f64> {
        let quantile = self.counts.quantile_ms(share)? / 1000.0;
        Some(quantile.min(self.longest.as_secs_f64()))
    }
}

impl Watch {
    pub fn delivered(&self, taken: &[Taken], now: Timestamp) {
        let mut known = None;
        for Taken { held, .. } in taken.iter().filter(|taken| taken.held.deliveries == 1) {
            let took = seconds(held.message.enqueued_at, now);
            self.to_delivery.observe(took);
            self.recent.took(took, now);
            // A dead letter that somebody looks at says nothing about its type.
            if held.message.dead.is_none() {
                let times = self.of_type(held, &mut known);
                times.to_delivery.observe(took);
                times.recent.took(took, now);
            }
        }
    }

    /// Times from accepted to first delivered of the last minutes.
    #[must_use]
    pub fn lately(&self, now: Timestamp) -> Lately {
        self.recent.lately(now)
    }

    pub fn completed<'a>(&self, held: impl IntoIterator<Item = &'a Held>, now: Timestamp) {
        let mut known = None;
        for held in held.into_iter().filter(|held| matches!(held.place, Place::Lane(..))) {
            let took = seconds(held.message.enqueued_at, now);
            self.to_completion.observe(took);
            if held.message.dead.is_none() {
                self.of_type(held, &mut known).to_completion.observe(took);
            }
        }
    }

    /// The times of a message's type; `known` is the type of the one before.
    fn of_type<'a>(&self, held: &Held, known: &'a mut Option<Arc<TypeTimes>>) -> &'a TypeTimes {
        let kind = held.message.kind().filter(|kind| !kind.is_empty()).unwrap_or(UNTYPED);
        let times = known.take().filter(|times| times.kind == kind).unwrap_or_else(|| {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            match &*last {
                Some(times) if times.kind == kind => Arc::clone(times),
                _ => Arc::clone(last.insert(self.types.of(kind))),
            }
        });
        known.insert(times)
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
    pub dead_lettered_bytes: u64,
    /// Messages that ever came in, and that ever went out.
    pub incoming: u64,
    pub outgoing: u64,
    /// Age of the oldest message that waits or is locked.
    pub oldest_age: Option<Duration>,
}

impl Line {
    /// How much of the room for its dead letters is taken; `None` without a limit.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share needs no more than 53 bits")]
    pub fn dead_letter_share(&self) -> Option<f64> {
        let most = self.settings().dead_letter_bytes?;
        let bytes = self.dead()?.state().counts.bytes;
        Some(bytes.max(0) as f64 / most as f64)
    }

    /// Whether there is no more room for dead letters, so that nothing is taken in (S003-99).
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.dead_letter_share().is_some_and(|share| share >= 1.0)
    }

    #[must_use]
    pub fn figures(self: &Arc<Self>) -> Figures {
        self.tick();
        let now = self.now().wall;
        let dead = self.dead().map(|dead| dead.state().counts).unwrap_or_default();
        let state = self.state();
        let locked = state.locked();
        let count = |count: i64| u64::try_from(count).unwrap_or(0);
        Figures {
            active: count(state.counts.waiting).saturating_sub(locked as u64),
            scheduled: count(state.counts.scheduled),
            locked: locked as u64,
            deferred: count(state.counts.deferred),
            dead_lettered: count(dead.waiting + dead.deferred + dead.scheduled),
            dead_lettered_bytes: count(dead.bytes),
            incoming: count(state.counts.incoming),
            outgoing: count(state.counts.outgoing),
            oldest_age: state.oldest().map(|oldest| Duration::try_from(now.duration_since(oldest)).unwrap_or_default()),
        }
    }
}
