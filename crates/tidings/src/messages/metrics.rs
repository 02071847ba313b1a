//! What Prometheus hears of deliveries (SX-22).

use std::sync::OnceLock;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use tidings_core::message::Status;
use tidings_core::time::Timestamp;

use super::record::{CHANNELS, Message};
use crate::channel::Outcome;

/// From a millisecond to the longest attempt.
const ATTEMPT_SECONDS: [f64; 11] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0, 300.0];
/// From a millisecond to a day.
const WHOLE_SECONDS: [f64; 13] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 300.0, 3600.0, 86_400.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ChannelLabels {
    channel: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    channel: &'static str,
    outcome: &'static str,
}

/// The figures of one server's deliveries.
#[derive(Debug)]
pub struct DeliveryMetrics {
    attempts: Family<OutcomeLabels, Counter>,
    attempt_seconds: Family<ChannelLabels, Histogram, fn() -> Histogram>,
    messages: Family<OutcomeLabels, Counter>,
    message_seconds: Family<ChannelLabels, Histogram, fn() -> Histogram>,
    retries: Family<ChannelLabels, Counter>,
    dead_letters: Family<ChannelLabels, Counter>,
    window: Family<ChannelLabels, Gauge>,
    in_flight: Family<ChannelLabels, Gauge>,
    open_breakers: Family<ChannelLabels, Gauge>,
    usual: [Usual; CHANNELS.len()],
    /// There is nobody who sends over any other.
    other: Usual,
}

/// Of one channel, the figures that nearly every message changes, looked up once. Each is made when it is first needed: what
/// never happened is not shown.
#[derive(Debug)]
struct Usual {
    channel: &'static str,
    delivered: OnceLock<Counter>,
    attempt_seconds: OnceLock<Histogram>,
    completed: OnceLock<Counter>,
    message_seconds: OnceLock<Histogram>,
    /// Who waits, who is under way, and which destinations are left alone.
    standing: OnceLock<[Gauge; 3]>,
}

impl Usual {
    const fn new(channel: &'static str) -> Self {
        Self {
            channel,
            delivered: OnceLock::new(),
            attempt_seconds: OnceLock::new(),
            completed: OnceLock::new(),
            message_seconds: OnceLock::new(),
            standing: OnceLock::new(),
        }
    }

    const fn labels(&self) -> ChannelLabels {
        ChannelLabels { channel: self.channel }
    }

    const fn with(&self, outcome: &'static str) -> OutcomeLabels {
        OutcomeLabels { channel: self.channel, outcome }
    }
}

impl Default for DeliveryMetrics {
    fn default() -> Self {
        Self {
            attempts: Family::default(),
            attempt_seconds: Family::new_with_constructor(|| Histogram::new(ATTEMPT_SECONDS)),
            messages: Family::default(),
            message_seconds: Family::new_with_constructor(|| Histogram::new(WHOLE_SECONDS)),
            retries: Family::default(),
            dead_letters: Family::default(),
            window: Family::default(),
            in_flight: Family::default(),
            open_breakers: Family::default(),
            usual: CHANNELS.map(Usual::new),
            other: Usual::new("other"),
        }
    }
}

impl DeliveryMetrics {
    pub fn register(&self, registry: &mut Registry) {
        registry.register("delivery_attempts", "Attempts by channel and what came of them", self.attempts.clone());
        let help = "Time that an attempt took";
        registry.register_with_unit("delivery_attempt", help, Unit::Seconds, self.attempt_seconds.clone());
        registry.register("deliveries", "Messages by channel and how they ended", self.messages.clone());
        let help = "Time from a message's creation to its completion";
        registry.register_with_unit("delivery", help, Unit::Seconds, self.message_seconds.clone());
        registry.register("delivery_retries", "Attempts that are to be made again", self.retries.clone());
        registry.register("dead_letters", "Messages that were given up", self.dead_letters.clone());
        registry.register("delivery_window", "Messages that wait in memory for their attempt", self.window.clone());
        registry.register("delivery_in_flight", "Attempts under way", self.in_flight.clone());
        let help = "Destinations that are left alone because they fail";
        registry.register("delivery_open_breakers", help, self.open_breakers.clone());
    }

    /// An attempt ended.
    pub fn attempted(&self, channel: &str, outcome: &Outcome, took: Duration) {
        let usual = self.usual(channel);
        let attempts = |outcome| self.attempts.get_or_create(&usual.with(outcome)).clone();
        match outcome {
            Outcome::Delivered { .. } => usual.delivered.get_or_init(|| attempts("delivered")).inc(),
            Outcome::Retry { .. } => attempts("transient").inc(),
            Outcome::Reject { .. } => attempts("permanent").inc(),
        };
        let seconds = || self.attempt_seconds.get_or_create(&usual.labels()).clone();
        usual.attempt_seconds.get_or_init(seconds).observe(took.as_secs_f64());
    }

    /// What came of an attempt is on record.
    pub fn recorded(&self, message: &Message, now: Timestamp) {
        match message.delivery.status {
            Status::Completed => {
                let usual = self.usual(&message.channel);
                usual.completed.get_or_init(|| self.messages.get_or_create(&usual.with("completed")).clone()).inc();
                let took = now.duration_since(message.created_date).as_secs_f64();
                let seconds = || self.message_seconds.get_or_create(&usual.labels()).clone();
                usual.message_seconds.get_or_init(seconds).observe(took.max(0.0));
            }
            Status::Failed => self.given_up(&message.channel),
            _ => {
                self.retries.get_or_create(&self.usual(&message.channel).labels()).inc();
            }
        }
    }

    /// A message has failed and has a dead letter.
    pub fn given_up(&self, channel: &str) {
        let usual = self.usual(channel);
        self.messages.get_or_create(&usual.with("failed")).inc();
        self.dead_letters.get_or_create(&usual.labels()).inc();
    }

    /// How things stand on a channel.
    pub fn seen(&self, channel: &str, window: usize, in_flight: usize, open: usize) {
        let usual = self.usual(channel);
        let gauges = [&self.window, &self.in_flight, &self.open_breakers];
        let standing = usual.standing.get_or_init(|| gauges.map(|gauge| gauge.get_or_create(&usual.labels()).clone()));
        for (gauge, value) in standing.iter().zip([window, in_flight, open]) {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        }
    }

    fn usual(&self, channel: &str) -> &Usual {
        self.usual.iter().find(|usual| usual.channel == channel).unwrap_or(&self.other)
    }
}
