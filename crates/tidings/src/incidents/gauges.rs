//! What monitors read.

use std::sync::Arc;

use async_trait::async_trait;
use tidings_store::Error;

use crate::bus::Bus;
use crate::bus::figures::Lately;
use crate::bus::line::Line;
use crate::config::monitors::Metric;
use crate::figures::{Counts, Figures, Span};

/// What the time from acceptance to delivery is read of: the whole installation.
pub const END_TO_END: &str = "end-to-end";
/// Minutes over which that time is taken.
const MINUTES: usize = 5;

/// One thing's figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    pub entity: String,
    pub value: f64,
    /// Only for monitors that name it; for the others something else says the same.
    pub if_named: bool,
}

impl Reading {
    fn new(entity: impl Into<String>, value: f64) -> Self {
        Self { entity: entity.into(), value, if_named: false }
    }

    /// Whether a monitor of this entity, or of any, reads it.
    #[must_use]
    pub fn is_for(&self, entity: Option<&str>) -> bool {
        entity.map_or(!self.if_named, |entity| entity == self.entity)
    }
}

/// Gives the figures that monitors are about.
#[async_trait]
pub trait Gauges: Send + Sync {
    async fn read(&self, metric: Metric) -> Result<Vec<Reading>, Error>;
}

/// The figures of this installation.
pub struct House {
    pub bus: Arc<Bus>,
    pub figures: Arc<Figures>,
}

#[async_trait]
impl Gauges for House {
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    async fn read(&self, metric: Metric) -> Result<Vec<Reading>, Error> {
        if metric == Metric::LatencyP99Seconds {
            let series = self.figures.series(Span::Hour).await?;
            let mut lately = Counts::default();
            series.points.iter().rev().take(MINUTES).for_each(|point| lately.add(&point.counts));
            let value = lately.quantile_ms(0.99).unwrap_or_default() / 1000.0;
            // S003-102: of the bus by type, from accepted to the first delivery.
            let now = self.bus.shared.clock.now();
            let by_type = self.bus.shared.times.lately(now);
            let p99 = |lately: &Lately| lately.quantile_seconds(0.99).unwrap_or_default();
            let mut readings = vec![Reading::new(END_TO_END, value)];
            readings.extend(by_type.iter().map(|(kind, lately)| Reading::new(format!("type {kind}"), p99(lately))));
            // The same messages by where they went.
            let lines = self.bus.lines();
            let main = lines.iter().filter(|line| !line.is_of_dead_letters());
            let of_line = |line: &Arc<Line>| Reading::new(line.path.as_str(), p99(&line.watch.lately(now)));
            readings.extend(main.map(|line| Reading { if_named: true, ..of_line(line) }));
            return Ok(readings);
        }
        let lines = self.bus.lines();
        let main = lines.iter().filter(|line| !line.is_of_dead_letters());
        if metric == Metric::DeadLetterShare {
            let share = |line: &Arc<Line>| Some((line.path.clone(), line.dead_letter_share()?));
            return Ok(main.filter_map(share).map(|(entity, value)| Reading::new(entity, value)).collect());
        }
        Ok(main
            .map(|line| {
                let figures = line.figures();
                let count = if metric == Metric::DeadLetters { figures.dead_lettered } else { figures.active };
                Reading::new(line.path.as_str(), count as f64)
            })
            .collect())
    }
}
