//! What several tests need.

use std::sync::Arc;

use tidings_core::time::ManualClock;

/// A clock that stands still at some moment.
pub fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new("2026-03-01T12:00:00Z".parse().expect("a moment")))
}
