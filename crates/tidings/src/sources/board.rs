//! How every source fares, as the node that asks it knows.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use schemars::JsonSchema;
use serde::Serialize;
use tidings_core::time::{self, Timestamp};

use super::Failed;

/// What is known of the sources that this node asks.
#[derive(Debug, Default)]
pub struct Board(Mutex<BTreeMap<String, State>>);

/// Of one source.
#[derive(Debug, Clone, Default)]
pub struct State {
    /// When it was last read without a failure.
    pub read_at: Option<String>,
    pub error: Option<Error>,
    pub shards: Option<Shards>,
    /// How far behind the newest record is that was read while more is waiting.
    pub lag_seconds: Option<u64>,
    pub records: u64,
    pub gaps: u64,
}

/// The last failure, until a turn goes well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Error {
    pub at: String,
    /// `throttled`, `unreachable`, `denied`, `missing`, `refused`, `unreadable` or `store`.
    pub kind: &'static str,
    pub message: String,
    /// Turns that failed in a row.
    pub failures: u32,
}

/// The shards of a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Shards {
    /// Those that are being read.
    pub reading: u64,
    /// Those whose parent is not read to its end yet.
    pub waiting: u64,
    /// Those that are read to their end.
    pub finished: u64,
}

impl Board {
    fn states(&self) -> MutexGuard<'_, BTreeMap<String, State>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes something of a source.
    pub fn note(&self, source: &str, change: impl FnOnce(&mut State)) {
        change(self.states().entry(source.to_owned()).or_default());
    }

    pub fn went_well(&self, source: &str, now: Timestamp) {
        self.note(source, |state| {
            state.read_at = Some(time::iso_millis(now));
            state.error = None;
        });
    }

    pub fn failed(&self, source: &str, now: Timestamp, failures: u32, failed: &Failed) {
        let error =
            Error { at: time::iso_millis(now), kind: failed.trouble.as_str(), message: failed.why.clone(), failures };
        self.note(source, |state| state.error = Some(error));
    }

    #[must_use]
    pub fn get(&self, source: &str) -> State {
        self.states().get(source).cloned().unwrap_or_default()
    }
}
