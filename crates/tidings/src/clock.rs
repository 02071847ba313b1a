//! The real clock and the real source of randomness: the only file that asks the machine for either.

use std::time::{Duration, Instant};

use ring::rand::{SecureRandom, SystemRandom};
use tidings_core::ids::IdSource;
use tidings_core::time::{Clock, Timestamp};

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
}

impl Default for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    fn default() -> Self {
        Self { started: Instant::now() }
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }
}

/// The operating system's randomness.
#[derive(Debug)]
pub struct SystemIds {
    random: SystemRandom,
}

impl Default for SystemIds {
    fn default() -> Self {
        Self { random: SystemRandom::new() }
    }
}

impl IdSource for SystemIds {
    fn random(&self, bytes: &mut [u8]) {
        self.random.fill(bytes).expect("the operating system has randomness after boot");
    }
}
