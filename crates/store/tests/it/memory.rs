//! The model keeps what the suite asks.

use std::sync::Arc;

use tidings_store::conformance::Suite;
use tidings_store::memory::Memory;

use crate::support::clock;

async fn setup() -> Suite {
    let clock = clock();
    Suite::with_manual_clock(Arc::new(Memory::new(clock.clone())), clock, "run")
}

tidings_store::conformance_tests!(setup);
