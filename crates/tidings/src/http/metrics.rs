//! Prometheus metrics (SX-22): one registry for each server, so that two in one process do not mix.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::figures::Tally;
use crate::messages::metrics::DeliveryMetrics;
use crate::sources::metrics::SourceMetrics;

/// From half a millisecond to about half a minute.
const SECONDS: [f64; 12] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];
const TRANSACTIONS: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 256.0, 1024.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    method: String,
    route: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabels {
    method: String,
    route: String,
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

/// Every figure of one server.
pub struct Metrics {
    registry: Registry,
    requests: Family<StatusLabels, Counter>,
    request_seconds: Family<RouteLabels, Histogram, fn() -> Histogram>,
    events: Family<ResultLabels, Counter>,
    rules: Family<ResultLabels, Counter>,
    /// Secrets that were kept out of tickets.
    pub redactions: Counter,
    commit_seconds: Histogram,
    commit_transactions: Histogram,
    commit_bytes: Counter,
    pub expired: Counter,
    pub store_ready: Gauge,
    pub store_sequence: Gauge,
    pub store_disk_bytes: Gauge,
    pub connections: Gauge,
    /// The same, for the figures that are kept.
    pub tally: Tally,
    pub delivery: DeliveryMetrics,
    pub sources: SourceMetrics,
}

/// The counters of one route, looked up once.
pub struct RouteMetrics {
    by_class: [Counter; 5],
    seconds: Histogram,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("tidings");
        let request_seconds = Family::new_with_constructor((|| Histogram::new(SECONDS)) as fn() -> Histogram);
        let metrics = Self {
            requests: Family::default(),
            request_seconds,
            events: Family::default(),
            rules: Family::default(),
            redactions: Counter::default(),
            commit_seconds: Histogram::new(SECONDS),
            commit_transactions: Histogram::new(TRANSACTIONS),
            commit_bytes: Counter::default(),
            expired: Counter::default(),
            store_ready: Gauge::default(),
            store_sequence: Gauge::default(),
            store_disk_bytes: Gauge::default(),
            connections: Gauge::default(),
            tally: Tally::default(),
            delivery: DeliveryMetrics::default(),
            sources: SourceMetrics::default(),
            registry: Registry::default(),
        };
        registry.register("http_requests", "HTTP requests by route and class of status", metrics.requests.clone());
        let help = "Time from the request's head to the answer";
        registry.register_with_unit("http_request", help, Unit::Seconds, metrics.request_seconds.clone());
        registry.register("events", "Events by what became of them at the door", metrics.events.clone());
        registry.register("rule_matches", "Rules that matched, by what came of it", metrics.rules.clone());
        registry.register("ticket_redactions", "Secrets kept out of tickets", metrics.redactions.clone());
        let help = "Time to write and fsync one group of transactions";
        registry.register_with_unit("store_commit", help, Unit::Seconds, metrics.commit_seconds.clone());
        registry.register(
            "store_commit_transactions",
            "Transactions in one group",
            metrics.commit_transactions.clone(),
        );
        registry.register_with_unit("store_commit", "Item bytes written", Unit::Bytes, metrics.commit_bytes.clone());
        registry.register("store_expired_items", "Expired items that were removed", metrics.expired.clone());
        registry.register("store_ready", "1 while the store takes writes", metrics.store_ready.clone());
        registry.register("store_sequence", "Number of the last durable commit", metrics.store_sequence.clone());
        registry.register_with_unit(
            "store_disk",
            "Space the store takes",
            Unit::Bytes,
            metrics.store_disk_bytes.clone(),
        );
        registry.register("http_connections", "Open HTTP connections", metrics.connections.clone());
        // A figure that begins with its first event shows no rise: alarms on a rise would miss that one.
        for result in EVENT_RESULTS {
            metrics.events.get_or_create(&ResultLabels { result }).inc_by(0);
        }
        for result in RULE_RESULTS {
            metrics.rules.get_or_create(&ResultLabels { result }).inc_by(0);
        }
        metrics.delivery.register(&mut registry);
        metrics.sources.register(&mut registry);
        Self { registry, ..metrics }
    }
}

/// What may become of an event at the door.
const EVENT_RESULTS: [&str; 3] = ["accepted", "duplicate", "rejected"];
/// What may become of a rule that an event matches.
const RULE_RESULTS: [&str; 8] =
    ["matched", "unmatched", "deduplicated", "served", "no_recipients", "fanout", "suppressed", "excluded"];

impl Metrics {
    /// The counters of a route.
    #[must_use]
    pub fn route(&self, method: &str, route: &str) -> RouteMetrics {
        let labels = |status| StatusLabels { method: method.to_owned(), route: route.to_owned(), status };
        let by_class =
            ["1xx", "2xx", "3xx", "4xx", "5xx"].map(|class| self.requests.get_or_create_owned(&labels(class)));
        let labels = RouteLabels { method: method.to_owned(), route: route.to_owned() };
        RouteMetrics { by_class, seconds: self.request_seconds.get_or_create_owned(&labels) }
    }

    /// Counts events by result: one of `EVENT_RESULTS`.
    pub fn events(&self, result: &'static str, count: u64) {
        if result == "accepted" {
            self.tally.events(count);
        }
        if count > 0 {
            self.events.get_or_create(&ResultLabels { result }).inc_by(count);
        }
    }

    /// Counts rules that matched by result: one of `RULE_RESULTS`.
    pub fn rules(&self, result: &'static str, count: u64) {
        if count > 0 {
            self.rules.get_or_create(&ResultLabels { result }).inc_by(count);
        }
    }

    /// The text that Prometheus reads; `more` is that of other parts, without its last line.
    #[must_use]
    pub fn render(&self, more: &str) -> String {
        let mut out = String::from(more);
        // Writing to a string cannot fail.
        let _ = text::encode(&mut out, &self.registry);
        out
    }
}

impl RouteMetrics {
    pub fn observe(&self, status: StatusCode, took: Duration) {
        let class = usize::from(status.as_u16() / 100).saturating_sub(1);
        if let Some(counter) = self.by_class.get(class) {
            counter.inc();
        }
        self.seconds.observe(took.as_secs_f64());
    }
}

/// Metrics in Prometheus' own text format, in which a counter is described by the name that its samples have.
#[must_use]
pub fn plain(open: &str) -> String {
    let mut out = String::with_capacity(open.len());
    let mut counters = HashSet::new();
    for line in open.lines().filter(|line| line.starts_with("# TYPE ") && line.ends_with(" counter")) {
        counters.extend(line.split(' ').nth(2));
    }
    for line in open.lines().filter(|line| *line != "# EOF" && !line.starts_with("# UNIT ")) {
        match line.strip_prefix("# ").and_then(|rest| rest.split_once(' ')?.1.split_once(' ')) {
            Some((name, rest)) if counters.contains(name) => {
                let kind = if line.starts_with("# TYPE ") { "TYPE" } else { "HELP" };
                out.push_str(&format!("# {kind} {name}_total {rest}\n"));
            }
            _ => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    out
}

/// The store's group commits, as metrics.
pub struct CommitMetrics(pub Arc<Metrics>);

impl tidings_store::embedded::Observer for CommitMetrics {
    #[expect(clippy::cast_precision_loss, reason = "a group has at most 1024 transactions")]
    fn committed(&self, transactions: usize, bytes: usize, took: Duration) {
        self.0.commit_seconds.observe(took.as_secs_f64());
        self.0.commit_transactions.observe(transactions as f64);
        self.0.commit_bytes.inc_by(bytes as u64);
    }
}
