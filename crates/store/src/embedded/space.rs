//! Watches the disk: writes stop while there is still room to finish what is under way.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long "there is room" is believed: far less than it takes to fill the reserve.
const BELIEVED: Duration = Duration::from_millis(20);

/// Refuses writes below a reserve of free bytes, so that a full disk never tears the log.
#[derive(Debug)]
pub struct Space {
    pub dir: PathBuf,
    pub reserve_bytes: u64,
    /// Until when (in µs of the monotonic clock) there is known to be room.
    pub room_until: AtomicU64,
}

impl Space {
    /// Why there is no room for a write at `now` (monotonic), if there is none.
    pub fn shortage(&self, now: Duration) -> Option<String> {
        let micros = |at: Duration| u64::try_from(at.as_micros()).unwrap_or(u64::MAX);
        if micros(now) < self.room_until.load(Ordering::Relaxed) {
            return None;
        }
        let shortage = self.look();
        if shortage.is_none() {
            self.room_until.store(micros(now + BELIEVED), Ordering::Relaxed);
        }
        shortage
    }

    fn look(&self) -> Option<String> {
        let stat = rustix::fs::statvfs(&self.dir).ok()?;
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        (free < self.reserve_bytes).then(|| {
            let mib = |bytes: u64| bytes / (1024 * 1024);
            format!(
                "{} MiB are free in {}, and {} MiB are kept in reserve (store.reserve_mb); make room, and writes go on",
                mib(free),
                self.dir.display(),
                mib(self.reserve_bytes)
            )
        })
    }
}
