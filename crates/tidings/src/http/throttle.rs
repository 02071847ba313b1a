//! Limits on how often: unknown tokens by address, requests by token.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Addresses or tokens that are remembered at the most; then the memory starts anew.
const REMEMBERED: usize = 10_000;

/// Counts unknown tokens by address in windows; too many block the address until the window ends.
pub struct FailedLogins {
    most: u64,
    window: Duration,
    seen: Mutex<HashMap<IpAddr, (Duration, u64)>>,
}

impl FailedLogins {
    #[must_use]
    pub fn new(most: u64, window: Duration) -> Self {
        Self { most, window, seen: Mutex::default() }
    }

    /// For how many seconds the address is blocked, if it is.
    pub fn blocked(&self, peer: IpAddr, now: Duration) -> Option<u64> {
        let (started, count) = *lock(&self.seen).get(&peer)?;
        let end = started + self.window;
        (self.most > 0 && count >= self.most && now < end).then(|| (end - now).as_secs() + 1)
    }

    pub fn note(&self, peer: IpAddr, now: Duration) {
        let mut seen = lock(&self.seen);
        if seen.len() >= REMEMBERED {
            seen.clear();
        }
        let entry = seen.entry(peer).or_insert((now, 0));
        if now.saturating_sub(entry.0) >= self.window {
            *entry = (now, 0);
        }
        entry.1 += 1;
    }
}

/// Requests by token: `per_second` with a burst of twice that; 0 does not count.
pub struct Rates {
    per_second: u64,
    spent: Mutex<HashMap<String, (Duration, f64)>>,
}

impl Rates {
    #[must_use]
    pub fn new(per_second: u64) -> Self {
        Self { per_second, spent: Mutex::default() }
    }

    #[expect(clippy::cast_precision_loss, reason = "a rate is far below 2^52")]
    pub fn allow(&self, token: &str, now: Duration) -> bool {
        if self.per_second == 0 {
            return true;
        }
        let rate = self.per_second as f64;
        let mut spent = lock(&self.spent);
        if spent.len() >= REMEMBERED {
            spent.clear();
        }
        let (at, room) = spent.entry(token.to_owned()).or_insert((now, 2.0 * rate));
        *room = (*room + now.saturating_sub(*at).as_secs_f64() * rate).min(2.0 * rate);
        *at = now;
        let allowed = *room >= 1.0;
        if allowed {
            *room -= 1.0;
        }
        allowed
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    // SX-20: rate limits at n-1, n, n+1.
    #[test]
    fn an_address_with_too_many_unknown_tokens_waits() {
        let (logins, peer) = (FailedLogins::new(3, Duration::from_secs(60)), IpAddr::from([127, 0, 0, 1]));
        for failure in 1..=3 {
            assert_eq!(logins.blocked(peer, Duration::ZERO), None, "before failure {failure}");
            logins.note(peer, Duration::ZERO);
        }
        assert!(logins.blocked(peer, Duration::ZERO).is_some());
        assert_eq!(logins.blocked(IpAddr::from([127, 0, 0, 2]), Duration::ZERO), None);
        assert_eq!(logins.blocked(peer, Duration::from_secs(60)), None);
    }

    #[test]
    fn a_token_gets_its_rate_and_a_burst() {
        let rates = Rates::new(5);
        let allowed = |now| (0..100).filter(|_| rates.allow("t", now)).count();
        assert_eq!(allowed(Duration::ZERO), 10);
        assert_eq!(allowed(Duration::from_secs(1)), 5);
        assert_eq!((0..100).filter(|_| Rates::new(0).allow("t", Duration::ZERO)).count(), 100);
    }
}
