//! What the report found out, in relation to what is wanted.

use std::fmt::Write as _;
use std::time::Duration;

use crate::bench::output::Row;
use crate::bench::scenario::LIMIT;

/// A figure that was not measured.
const UNKNOWN: f64 = f64::NAN;

/// Everything that was measured.
#[derive(Debug)]
pub struct Figures {
    pub date: String,
    pub cores: usize,
    pub is_release: bool,
    /// `limit`, `ingest` and `ingest-batch` over several numbers of connections.
    pub empty: Vec<Row>,
    pub filled: Filled,
}

/// What was measured with many events stored.
#[derive(Debug)]
pub struct Filled {
    pub events: u64,
    /// `ingest` into an empty store, in turns with the one below.
    pub ingest_empty: Row,
    pub ingest: Row,
    pub page: Row,
    /// Bytes.
    pub memory: u64,
    pub memory_peak: u64,
    /// The longest time from a kill to being ready again.
    pub ready_again: Duration,
}

/// A figure and what it should be.
#[derive(Debug)]
struct Target {
    what: String,
    measured: f64,
    wanted: Wanted,
    unit: &'static str,
}

#[derive(Debug, Clone, Copy)]
enum Wanted {
    AtLeast(f64),
    AtMost(f64),
}

impl Target {
    fn is_met(&self) -> bool {
        // What was not measured is not a number, and compares as missed.
        match self.wanted {
            Wanted::AtLeast(bound) => self.measured >= bound,
            Wanted::AtMost(bound) => self.measured <= bound,
        }
    }

    fn line(&self) -> String {
        let (sign, bound) = match self.wanted {
            Wanted::AtLeast(bound) => ("≥", bound),
            Wanted::AtMost(bound) => ("≤", bound),
        };
        let verdict = if self.is_met() { "met" } else { "**missed**" };
        let Self { what, measured, unit, .. } = self;
        let measured = if measured.is_nan() { "not measured".to_owned() } else { format!("{measured:.2}{unit}") };
        format!("| {what} | {measured} | {sign} {bound}{unit} | {verdict} |\n")
    }
}

impl Figures {
    /// All rows, in the order of the report.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.empty.iter().chain([&self.filled.ingest_empty, &self.filled.ingest, &self.filled.page])
    }

    /// The section of the document.
    #[must_use]
    pub fn markdown(&self) -> String {
        let build = if self.is_release { "release build" } else { "**debug build: these figures say nothing**" };
        let mut text = format!(
            "Measured on {} with `tidings bench report` on a machine with {} cores, {build}.\n\n### Targets\n\n\
             | target | measured | wanted | |\n| --- | ---: | ---: | --- |\n",
            self.date, self.cores
        );
        for target in self.targets() {
            text += &target.line();
        }
        text += "\n### Empty store\n\n";
        text += &rates(self.empty.iter().map(|row| (row.name.to_owned(), row)));
        // Writing to a String cannot fail.
        let _ = write!(text, "\n### {} events stored\n\n", self.filled.events);
        text += &rates([
            ("`ingest`, empty store, same run".to_owned(), &self.filled.ingest_empty),
            ("`ingest`".to_owned(), &self.filled.ingest),
            ("a page of 50 from `GET /events`".to_owned(), &self.filled.page),
        ]);
        let _ = write!(
            text,
            "\nMemory (RSS) {:.0} MB, at its peak {:.0} MB. Ready again {:.2} s after a `kill -9` under load \
             (the longest of several).\n",
            megabytes(self.filled.memory),
            megabytes(self.filled.memory_peak),
            self.filled.ready_again.as_secs_f64()
        );
        text
    }

    fn targets(&self) -> Vec<Target> {
        let target = |what: &str, measured, wanted, unit| Target { what: what.to_owned(), measured, wanted, unit };
        let rate = |name, connections| self.figure(name, connections, |row| row.ops_per_s);
        let p99 = |name| self.figure(name, 16, |row| row.p99_ms);
        let filled = &self.filled;
        let events = filled.events;
        vec![
            target(
                "`ingest` / `limit`, 64 connections",
                rate("ingest", 64) / rate(LIMIT, 64),
                Wanted::AtLeast(0.5),
                "",
            ),
            target(
                "`ingest` / `limit`, 256 connections",
                rate("ingest", 256) / rate(LIMIT, 256),
                Wanted::AtLeast(0.5),
                "",
            ),
            target(
                "`ingest-batch` / `ingest` in events, 64 connections",
                rate("ingest-batch", 64) / rate("ingest", 64),
                Wanted::AtLeast(6.0),
                "",
            ),
            target(
                "p99 of `ingest` / p99 of `limit`, 16 connections",
                p99("ingest") / p99(LIMIT),
                Wanted::AtMost(3.0),
                "",
            ),
            target(
                &format!("`ingest` with {events} events stored / empty"),
                measured(&filled.ingest, |row| row.ops_per_s) / measured(&filled.ingest_empty, |row| row.ops_per_s),
                Wanted::AtLeast(0.8),
                "",
            ),
            target(
                &format!("memory (RSS) with {events} events stored"),
                megabytes(filled.memory),
                Wanted::AtMost(400.0),
                " MB",
            ),
            target(
                "ready again after `kill -9` under load",
                filled.ready_again.as_secs_f64(),
                Wanted::AtMost(2.0),
                " s",
            ),
            target(
                "p99 of a page of 50 from `GET /events`",
                measured(&filled.page, |row| row.p99_ms),
                Wanted::AtMost(10.0),
                " ms",
            ),
        ]
    }

    fn figure(&self, name: &str, connections: u32, of: impl Fn(&Row) -> f64) -> f64 {
        let row = self.empty.iter().find(|row| row.name == name && row.connections == connections);
        row.map_or(UNKNOWN, |row| measured(row, of))
    }
}

/// A figure of a row in which anything succeeded: where nothing did, a latency of zero would look good.
fn measured(row: &Row, of: impl Fn(&Row) -> f64) -> f64 {
    if row.ops_per_s > 0.0 { of(row) } else { UNKNOWN }
}

fn rates<'a>(rows: impl IntoIterator<Item = (String, &'a Row)>) -> String {
    let mut text = "| scenario | connections | batch | operations/s | p50 ms | p99 ms | errors | vs `limit` |\n\
                    | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
        .to_owned();
    for (name, row) in rows {
        let vs_limit = row.vs_limit.map_or_else(String::new, |ratio| format!("{ratio:.2}"));
        let Row { connections, batch, ops_per_s, p50_ms, p99_ms, errors, .. } = row;
        let _ = writeln!(
            text,
            "| {name} | {connections} | {batch} | {ops_per_s:.0} | {p50_ms:.2} | {p99_ms:.2} | {errors} | {vs_limit} |"
        );
    }
    text
}

#[expect(clippy::cast_precision_loss, reason = "2^52 bytes are more than any machine has")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::output::tests::sample;

    fn figures() -> Figures {
        Figures {
            date: "2026-11-15".into(),
            cores: 2,
            is_release: true,
            empty: vec![
                sample("limit", 16, 1000.0, 2.0),
                sample("ingest", 16, 900.0, 7.0),
                sample("limit", 64, 10_000.0, 4.0),
                sample("ingest", 64, 8000.0, 5.0),
                sample("ingest-batch", 64, 80_000.0, 50.0),
                sample("limit", 256, 20_000.0, 8.0),
            ],
            filled: Filled {
                events: 1_000_000,
                ingest_empty: sample("ingest", 64, 8000.0, 5.0),
                ingest: sample("ingest", 64, 7200.0, 5.5),
                page: sample("events-read", 1, 500.0, 3.0),
                memory: 300_000_000,
                memory_peak: 350_000_000,
                ready_again: Duration::from_millis(700),
            },
        }
    }

    #[test]
    fn targets_are_met_missed_or_unknown() {
        let targets = figures().targets();
        let met: Vec<bool> = targets.iter().map(Target::is_met).collect();
        // The second one was not measured, the fourth is 3.5.
        assert_eq!(met, [true, false, true, false, true, true, true, true]);
        assert_eq!(targets[0].line(), "| `ingest` / `limit`, 64 connections | 0.80 | ≥ 0.5 | met |\n");
        assert_eq!(
            targets[3].line(),
            "| p99 of `ingest` / p99 of `limit`, 16 connections | 3.50 | ≤ 3 | **missed** |\n"
        );
        assert_eq!(targets[1].line(), "| `ingest` / `limit`, 256 connections | not measured | ≥ 0.5 | **missed** |\n");
        assert_eq!(targets[5].line(), "| memory (RSS) with 1000000 events stored | 300.00 MB | ≤ 400 MB | met |\n");
    }

    #[test]
    fn failing_quickly_meets_no_target() {
        let mut figures = figures();
        figures.filled.page = sample("events-read", 1, 0.0, 0.0);
        assert!(!figures.targets()[7].is_met());
    }

    #[test]
    fn the_section_says_when_and_where() {
        let text = figures().markdown();
        assert!(
            text.starts_with("Measured on 2026-11-15 with `tidings bench report` on a machine with 2 cores"),
            "{text}"
        );
        assert!(text.contains("| ingest-batch | 64 | 1 | 80000 | 1.25 | 50.00 | 0 |  |\n"), "{text}");
        assert!(text.contains("Memory (RSS) 300 MB, at its peak 350 MB. Ready again 0.70 s"), "{text}");
        assert_eq!(figures().rows().count(), 9);
    }
}
