//! The figures of every line in Prometheus's text form (S003-100): figures of each subscription, too.

use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::Bus;
use super::figures::Labels;
use super::path::DEAD_LETTERS;

impl Bus {
    /// The figures, without the line that ends a whole answer.
    #[must_use]
    pub fn metrics(&self) -> String {
        let mut registry = Registry::with_prefix("tidings_bus");
        let gauge = || Family::<Labels, Gauge>::default();
        let gauges = [
            ("active_messages", "Messages that can be received", gauge()),
            ("scheduled_messages", "Messages that wait for their time or their next delivery", gauge()),
            ("locked_messages", "Messages that are received and not settled", gauge()),
            ("deferred_messages", "Messages that are received by number only", gauge()),
            ("dead_lettered_messages", "Messages among the dead letters", gauge()),
            ("dead_lettered_bytes", "Bytes of the dead letters", gauge()),
        ];
        let counters = [
            ("incoming_messages", "Messages that came in", Family::<Labels, Counter>::default()),
            ("outgoing_messages", "Messages that were completed", Family::default()),
        ];
        let age = Family::<Labels, Gauge<f64, std::sync::atomic::AtomicU64>>::default();
        for line in self.lines().iter().filter(|line| !line.path.ends_with(DEAD_LETTERS)) {
            let labels = Labels { entity: line.path.clone() };
            let figures = line.figures();
            let values = [
                figures.active,
                figures.scheduled,
                figures.locked,
                figures.deferred,
                figures.dead_lettered,
                figures.dead_lettered_bytes,
            ];
            for ((_, _, family), value) in gauges.iter().zip(values) {
                family.get_or_create(&labels).set(i64::try_from(value).unwrap_or(i64::MAX));
            }
            for ((_, _, family), value) in counters.iter().zip([figures.incoming, figures.outgoing]) {
                family.get_or_create(&labels).inc_by(value);
            }
            age.get_or_create(&labels).set(figures.oldest_age.unwrap_or_default().as_secs_f64());
        }
        for (name, help, family) in gauges {
            registry.register(name, help, family);
        }
        for (name, help, family) in counters {
            registry.register(name, help, family);
        }
        registry.register_with_unit("oldest_message_age", "Age of the oldest message", Unit::Seconds, age);
        let times = &self.shared.times;
        registry.register_with_unit(
            "delivery",
            "Time from enqueued to first delivered",
            Unit::Seconds,
            times.to_delivery.clone(),
        );
        registry.register_with_unit(
            "completion",
            "Time from enqueued to completed",
            Unit::Seconds,
            times.to_completion.clone(),
        );
        let (to_delivery, to_completion) = times.by_type();
        registry.register_with_unit(
            "type_delivery",
            "Time from accepted, or due, to first delivered, by type of message",
            Unit::Seconds,
            to_delivery,
        );
        registry.register_with_unit(
            "type_completion",
            "Time from accepted, or due, to completed, by type of message",
            Unit::Seconds,
            to_completion,
        );
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = text::encode(&mut out, &registry);
        out.trim_end().trim_end_matches("# EOF").to_owned()
    }
}
