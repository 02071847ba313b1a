//! Figures over time, for the dashboard: how many events, notices and failures, and how long delivery took.
//!
//! `tally` counts in memory; every few seconds what it counted is added to the store in one transaction, to a slot of a
//! minute, one of ten minutes and one of an hour. Nodes add to the same slots. Reading a chart reads at most 168 small
//! items, however many events there were. What a crash loses is the last few seconds of the figures, nothing else.

mod tally;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tidings_core::time::{Clock, Timestamp, iso_millis};
use tidings_store::{Change, Error, Item, Key, KeyKind, Query, Range, Store, Table, Write};
use tokio::sync::Mutex;

use tally::BOUNDS_MS;
pub use tally::{BUCKETS, Counts, Latency, Tally};

use crate::http::Metrics;
use crate::messages::Signals;

/// How often the figures are added to the store.
pub const FLUSH_EVERY: Duration = Duration::from_secs(5);

#[must_use]
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> =
        LazyLock::new(|| Table::new("tidings-figures", "width", KeyKind::S).sort("slot", KeyKind::S).ttl("ttl"));
    &TABLE
}

/// How far back a chart looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    Hour,
    Day,
    Week,
}

impl Span {
    pub const ALL: [Self; 3] = [Self::Hour, Self::Day, Self::Week];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hour => "1h",
            Self::Day => "24h",
            Self::Week => "7d",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|span| span.name() == text)
    }

    /// Seconds of one slot.
    #[must_use]
    pub const fn slot_seconds(self) -> i64 {
        match self {
            Self::Hour => 60,
            Self::Day => 600,
            Self::Week => 3600,
        }
    }

    /// Slots of one chart.
    #[must_use]
    pub const fn slots(self) -> usize {
        match self {
            Self::Hour => 60,
            Self::Day => 144,
            Self::Week => 168,
        }
    }

    const fn partition(self) -> &'static str {
        match self {
            Self::Hour => "1m",
            Self::Day => "10m",
            Self::Week => "1h",
        }
    }

    /// Twice as long as a chart needs it, so that a clock that is a little off loses nothing.
    const fn kept_seconds(self) -> i64 {
        match self {
            Self::Hour => 2 * 3600,
            Self::Day => 2 * 86_400,
            Self::Week => 14 * 86_400,
        }
    }

    fn start_of(self, at: Timestamp) -> i64 {
        at.as_second().div_euclid(self.slot_seconds()) * self.slot_seconds()
    }
}

/// What happened in one slot.
#[derive(Debug, Clone)]
pub struct Point {
    pub start: Timestamp,
    pub counts: Counts,
}

/// A chart's points, oldest first; the last one is the slot under way.
#[derive(Debug, Clone)]
pub struct Series {
    pub span: Span,
    pub points: Vec<Point>,
    pub total: Counts,
}

/// The figures of this installation.
pub struct Figures {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    signals: Arc<Signals>,
    /// Counted, and not yet in the store.
    pending: Mutex<Counts>,
}

impl Figures {
    #[must_use]
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, metrics: Arc<Metrics>, signals: Arc<Signals>) -> Self {
        Self { store, clock, metrics, signals, pending: Mutex::default() }
    }

    fn gather(&self, pending: &mut Counts) {
        pending.add(&self.metrics.tally.take());
        pending.notices += self.signals.take_made();
    }

    /// Adds what was counted to the store; what cannot be added now is added with the next.
    pub async fn flush(&self) -> Result<(), Error> {
        let mut pending = self.pending.lock().await;
        self.gather(&mut pending);
        if pending.is_empty() {
            return Ok(());
        }
        let now = self.clock.now();
        let writes = Span::ALL.into_iter().map(|span| addition(span, &pending, now)).collect();
        self.store.transact(writes).await?;
        *pending = Counts::default();
        Ok(())
    }

    pub async fn series(&self, span: Span) -> Result<Series, Error> {
        let now = self.clock.now();
        let last = span.start_of(now);
        let first = last - (i64::try_from(span.slots()).unwrap_or(i64::MAX) - 1) * span.slot_seconds();
        let slots = (0..span.slots()).zip((first..).step_by(usize::try_from(span.slot_seconds()).unwrap_or(60)));
        let mut points: Vec<Point> =
            slots.map(|(_, second)| Point { start: moment(second), counts: Counts::default() }).collect();
        let query = Query::new(span.partition()).range(Range::AtLeast(slot_text(first).into())).limit(span.slots() + 1);
        for item in self.store.query(table(), &query).await?.items {
            let start = item.str("slot").and_then(|text| text.parse::<Timestamp>().ok());
            let place = start.map(|start| (start.as_second() - first).div_euclid(span.slot_seconds()));
            if let Some(point) = place.and_then(|place| points.get_mut(usize::try_from(place).ok()?)) {
                point.counts.add(&read(&item));
            }
        }
        let mut pending = self.pending.lock().await;
        self.gather(&mut pending);
        if let Some(point) = points.last_mut() {
            point.counts.add(&pending);
        }
        drop(pending);
        let mut total = Counts::default();
        points.iter().for_each(|point| total.add(&point.counts));
        Ok(Series { span, points, total })
    }
}

impl Series {
    /// How many a second right now: over the slot under way and as much of the one before as makes a whole one.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub fn rate(&self, now: Timestamp, of: impl Fn(&Counts) -> u64) -> f64 {
        let width = self.span.slot_seconds() as f64;
        let mut latest = self.points.iter().rev();
        let (Some(current), before) = (latest.next(), latest.next()) else { return 0.0 };
        let passed = (now.as_millisecond() - current.start.as_millisecond()) as f64 / 1000.0;
        let left = (1.0 - passed / width).clamp(0.0, 1.0);
        let before = before.map_or(0.0, |point| of(&point.counts) as f64);
        (of(&current.counts) as f64 + before * left) / width
    }
}

fn addition(span: Span, counts: &Counts, now: Timestamp) -> Write {
    let start = span.start_of(now);
    let mut changes = Vec::new();
    for (name, count) in named(counts) {
        if count > 0 {
            changes.push(Change::Add(name.into(), i64::try_from(count).unwrap_or(i64::MAX)));
        }
    }
    changes.push(Change::Set("ttl".into(), (start + span.kept_seconds()).into()));
    Write::update(table(), Key::with_sort(span.partition(), slot_text(start)), changes)
}

fn named(counts: &Counts) -> impl Iterator<Item = (String, u64)> {
    let Counts { events, notices, completed, failed, latency } = counts.clone();
    let plain = [("events", events), ("notices", notices), ("completed", completed), ("failed", failed)];
    let plain = plain.into_iter().map(|(name, count)| (name.to_owned(), count));
    plain.chain(BUCKET_NAMES.iter().cloned().zip(latency.0))
}

/// After the milliseconds that they end at.
static BUCKET_NAMES: LazyLock<Vec<String>> =
    LazyLock::new(|| BOUNDS_MS.iter().map(|ms| format!("t{ms}")).chain(["more".to_owned()]).collect());

fn read(item: &Item) -> Counts {
    let number = |name: &str| item.int(name).and_then(|count| u64::try_from(count).ok()).unwrap_or(0);
    let mut latency = Latency::default();
    for (count, name) in latency.0.iter_mut().zip(BUCKET_NAMES.iter()) {
        *count = number(name);
    }
    Counts {
        events: number("events"),
        notices: number("notices"),
        completed: number("completed"),
        failed: number("failed"),
        latency,
    }
}

fn moment(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap_or(Timestamp::MIN)
}

fn slot_text(second: i64) -> String {
    iso_millis(moment(second))
}

#[cfg(test)]
mod tests {
    use tidings_core::time::ManualClock;
    use tidings_store::memory::Memory;

    use super::*;

    fn figures() -> (Figures, Arc<ManualClock>, Arc<Metrics>) {
        let clock = Arc::new(ManualClock::new("2026-03-01T12:00:30Z".parse().unwrap()));
        let store = Memory::new(Arc::clone(&clock) as Arc<dyn Clock>);
        let metrics = Arc::new(Metrics::default());
        let figures = Figures::new(Arc::new(store), Arc::clone(&clock) as _, Arc::clone(&metrics), Arc::default());
        (figures, clock, metrics)
    }

    #[tokio::test]
    async fn what_is_counted_shows_at_once_and_stays_in_its_slot() {
        let (figures, clock, metrics) = figures();
        metrics.events("accepted", 6);
        metrics.events("duplicate", 5);
        assert_eq!(figures.series(Span::Hour).await.unwrap().total.events, 6);
        figures.flush().await.unwrap();
        clock.advance(Duration::from_secs(60));
        metrics.events("accepted", 3);
        metrics.tally.failed();
        figures.flush().await.unwrap();
        for span in Span::ALL {
            let series = figures.series(span).await.unwrap();
            assert_eq!(series.points.len(), span.slots());
            assert_eq!((series.total.events, series.total.failed), (9, 1), "{span:?}");
        }
        let series = figures.series(Span::Hour).await.unwrap();
        let events: Vec<u64> = series.points.iter().rev().take(2).map(|point| point.counts.events).collect();
        assert_eq!(events, [3, 6]);
        // Half of the minute under way and half of the one before: 3 + 6 / 2 in 60 seconds.
        assert!((series.rate(clock.now(), |counts| counts.events) - 0.1).abs() < 1e-9);
        clock.advance(Duration::from_secs(3600));
        assert_eq!(figures.series(Span::Hour).await.unwrap().total.events, 0);
        assert_eq!(figures.series(Span::Week).await.unwrap().total.events, 9);
    }
}
