//! What was counted in the slices of one scenario.

use std::time::Duration;

use super::client::Response;
use super::histogram::Histogram;

/// Longer replies are cut when shown: one sentence is enough to see what is wrong.
const SHOWN_MAX: usize = 300;

/// Operations, errors and latencies of some time.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Operations completed within the measured time.
    pub operations: u64,
    pub errors: u64,
    /// The first thing that went wrong, in words.
    pub first_error: Option<String>,
    /// Of the requests that succeeded: a quick refusal must not look like a quick answer.
    pub latencies: Histogram,
    pub measured: Duration,
}

impl Tally {
    pub fn fail(&mut self, why: impl FnOnce() -> String) {
        self.errors += 1;
        self.first_error.get_or_insert_with(why);
    }

    /// Adds what others counted during the same time.
    pub fn merge(&mut self, other: Self) {
        self.operations += other.operations;
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
        self.latencies.merge(&other.latencies);
        self.measured += other.measured;
    }
}

/// A reply that was not wanted, in words.
#[must_use]
pub fn describe(response: Response<'_>) -> String {
    let text = String::from_utf8_lossy(response.body);
    let shown: String = text.chars().take(SHOWN_MAX).collect();
    let more = if shown.len() < text.len() { "…" } else { "" };
    format!("{} {shown}{more}", response.status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_is_kept() {
        let mut tally = Tally::default();
        tally.merge(Tally { operations: 2, ..Tally::default() });
        tally.fail(|| "first".into());
        tally.fail(|| "second".into());
        let mut other = Tally { measured: Duration::from_secs(1), ..Tally::default() };
        other.fail(|| "third".into());
        tally.merge(other);
        assert_eq!((tally.operations, tally.errors, tally.measured), (2, 3, Duration::from_secs(1)));
        assert_eq!(tally.first_error.as_deref(), Some("first"));
    }

    #[test]
    fn a_long_reply_is_cut() {
        let body = "é".repeat(1000);
        let shown = describe(Response { status: 400, body: body.as_bytes() });
        assert_eq!(shown, format!("400 {}…", "é".repeat(300)));
    }
}
