//! What Prometheus hears of sources.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::Trouble;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SourceLabels {
    source: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    source: String,
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    source: String,
    result: &'static str,
}

/// The figures of the sources that this server asks.
#[derive(Debug, Default)]
pub struct SourceMetrics {
    records: Family<ResultLabels, Counter>,
    errors: Family<KindLabels, Counter>,
    gaps: Family<SourceLabels, Counter>,
    lag: Family<SourceLabels, Gauge>,
    up: Family<SourceLabels, Gauge>,
}

fn of(source: &str) -> SourceLabels {
    SourceLabels { source: source.to_owned() }
}

impl SourceMetrics {
    pub fn register(&self, registry: &mut Registry) {
        registry.register("source_records", "Records of sources by what became of them", self.records.clone());
        registry.register("source_errors", "Failures to read a source, by what they are about", self.errors.clone());
        let help = "Places in a source where records were lost before they were read";
        registry.register("source_gaps", help, self.gaps.clone());
        let help = "How old the last record is that was read, while more is waiting; 0 at the source's end";
        registry.register_with_unit("source_lag", help, Unit::Seconds, self.lag.clone());
        registry.register("source_up", "1 while the source can be read", self.up.clone());
    }

    /// `accepted`, `duplicate`, `rejected`, `unknown` or `skipped`.
    pub fn records(&self, source: &str, result: &'static str, count: u64) {
        if count > 0 {
            self.records.get_or_create(&ResultLabels { source: source.to_owned(), result }).inc_by(count);
        }
    }

    pub fn failed(&self, source: &str, trouble: Trouble) {
        self.errors.get_or_create(&KindLabels { source: source.to_owned(), kind: trouble.as_str() }).inc();
    }

    pub fn gap(&self, source: &str) {
        self.gaps.get_or_create(&of(source)).inc();
    }

    pub fn lag(&self, source: &str, seconds: u64) {
        self.lag.get_or_create(&of(source)).set(i64::try_from(seconds).unwrap_or(i64::MAX));
    }

    /// Another node reads it.
    pub fn left(&self, source: &str) {
        self.up.remove(&of(source));
        self.lag.remove(&of(source));
    }

    pub fn is_up(&self, source: &str, up: bool) {
        self.up.get_or_create(&of(source)).set(i64::from(up));
        // From 0 on, so that the first gap is seen as a rise.
        self.gaps.get_or_create(&of(source)).inc_by(0);
    }
}
