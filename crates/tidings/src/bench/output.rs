//! The figures, as a table for people or as JSON lines for programs.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use serde::Serialize;

use super::runner::Job;
use super::scenario::LIMIT;
use super::tally::Tally;

/// What was found out about one job. The names are those of the JSON output, which programs rely on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    pub name: &'static str,
    pub ops_per_s: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub errors: u64,
    pub connections: u32,
    pub seconds: f64,
    pub batch: u32,
    /// Operations in relation to those of `limit` with as many connections; none if that was not measured.
    pub vs_limit: Option<f64>,
    #[serde(skip)]
    pub first_error: Option<String>,
}

/// The rows of finished jobs, compared with `limit` where it ran too.
#[must_use]
pub fn rows(jobs: &[Job]) -> Vec<Row> {
    let mut rows: Vec<Row> =
        jobs.iter().map(|job| row(job.scenario.name, &job.tally, job.connections, job.batch)).collect();
    let limits: Vec<(u32, f64)> =
        rows.iter().filter(|row| row.name == LIMIT).map(|row| (row.connections, row.ops_per_s)).collect();
    for row in &mut rows {
        let limit = limits.iter().find(|(connections, _)| *connections == row.connections);
        row.vs_limit = limit.filter(|(_, limit)| *limit > 0.0).map(|(_, limit)| round(row.ops_per_s / limit, 1000.0));
    }
    rows
}

/// What a tally says.
#[must_use]
pub fn row(name: &'static str, tally: &Tally, connections: u32, batch: u32) -> Row {
    let seconds = tally.measured.as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "2^52 operations are more than any run has")]
    let operations = tally.operations as f64;
    let ms = |share| round(tally.latencies.quantile(share).as_secs_f64() * 1000.0, 1000.0);
    Row {
        name,
        ops_per_s: if seconds > 0.0 { round(operations / seconds, 10.0) } else { 0.0 },
        p50_ms: ms(0.5),
        p99_ms: ms(0.99),
        errors: tally.errors,
        connections,
        seconds: round(seconds, 1000.0),
        batch,
        vs_limit: None,
        first_error: tally.first_error.clone(),
    }
}

/// More digits than that were not measured.
fn round(value: f64, parts: f64) -> f64 {
    (value * parts).round() / parts
}

/// One object per line.
#[must_use]
pub fn json(rows: &[Row]) -> String {
    rows.iter().filter_map(|row| serde_json::to_string(row).ok()).map(|line| line + "\n").collect()
}

/// A table with aligned columns, and below it the first error of every scenario that had any.
#[must_use]
pub fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "{:<14} {:>11} {:>6} {:>12} {:>9} {:>9} {:>7} {:>8}\n",
        "scenario", "connections", "batch", "ops/s", "p50 ms", "p99 ms", "errors", "vs limit"
    );
    for row in rows {
        let vs_limit = row.vs_limit.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{:<14} {:>11} {:>6} {:>12.0} {:>9.3} {:>9.3} {:>7} {:>8}",
            row.name, row.connections, row.batch, row.ops_per_s, row.p50_ms, row.p99_ms, row.errors, vs_limit
        );
    }
    text + &errors(rows)
}

/// A line for every scenario that had errors.
#[must_use]
pub fn errors(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows {
        if let Some(error) = &row.first_error {
            let _ = writeln!(text, "first of {} errors of {}: {error}", row.errors, row.name);
        }
    }
    text
}

/// The only place that writes to stdout: the figures, nothing else.
pub fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Remarks go to stderr, so that they never end up among the figures.
pub fn remark(text: &str) {
    if !text.is_empty() {
        // If stderr is gone, there is nobody to tell.
        let _ = writeln!(io::stderr(), "{}", text.trim_end());
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A row with the given figures, for the tests of the report as well.
    pub fn sample(name: &'static str, connections: u32, ops_per_s: f64, p99_ms: f64) -> Row {
        Row {
            name,
            ops_per_s,
            p50_ms: 1.25,
            p99_ms,
            errors: 0,
            connections,
            seconds: 5.0,
            batch: 1,
            vs_limit: None,
            first_error: None,
        }
    }

    #[test]
    fn json_has_the_fields_of_the_contract() {
        let mut row = sample("ingest", 64, 12345.6, 9.5);
        row.vs_limit = Some(0.75);
        row.first_error = Some("not shown".into());
        assert_eq!(
            json(&[row, sample("limit", 64, 1.0, 2.0)]),
            concat!(
                r#"{"name":"ingest","ops_per_s":12345.6,"p50_ms":1.25,"p99_ms":9.5,"errors":0,"connections":64,"#,
                r#""seconds":5.0,"batch":1,"vs_limit":0.75}"#,
                "\n",
                r#"{"name":"limit","ops_per_s":1.0,"p50_ms":1.25,"p99_ms":2.0,"errors":0,"connections":64,"#,
                r#""seconds":5.0,"batch":1,"vs_limit":null}"#,
                "\n"
            )
        );
    }

    #[test]
    fn the_table_is_aligned_and_shows_the_first_error() {
        let mut failed = sample("ingest-batch", 256, 123_456.7, 10.0);
        failed.errors = 7;
        failed.first_error = Some("503 busy".into());
        let text = table(&[Row { vs_limit: Some(1.0), ..sample("limit", 64, 9999.0, 2.0) }, failed]);
        let expected = "\
scenario       connections  batch        ops/s    p50 ms    p99 ms  errors vs limit
limit                   64      1         9999     1.250     2.000       0     1.00
ingest-batch           256      1       123457     1.250    10.000       7        -
first of 7 errors of ingest-batch: 503 busy
";
        assert_eq!(text, expected);
    }
}
