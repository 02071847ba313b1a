//! The real clock and the real source of randomness: the only file that asks the machine for either.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use ring::rand::{SecureRandom, SystemRandom};
use tidings_core::ids::IdSource;
use tidings_core::time::{Clock, Timestamp};

const STOCK_BYTES: usize = 4096;

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

thread_local! {
    /// Random bytes that nobody has seen yet: one system call serves many ids. Each is handed out once.
    static STOCK: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl IdSource for SystemIds {
    fn random(&self, bytes: &mut [u8]) {
        STOCK.with_borrow_mut(|stock| {
            if stock.len() < bytes.len() {
                stock.resize(STOCK_BYTES.max(bytes.len()), 0);
                self.random.fill(stock).expect("the operating system has randomness after boot");
            }
            let rest = stock.len() - bytes.len();
            bytes.copy_from_slice(stock.get(rest..).unwrap_or_default());
            stock.truncate(rest);
        });
    }
}
