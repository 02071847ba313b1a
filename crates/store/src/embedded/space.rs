//! Watches the disk: writes stop while there is still room to finish what is under way.

use std::path::PathBuf;

/// Refuses writes below a reserve of free bytes, so that a full disk never tears the journal.
#[derive(Debug)]
pub struct Space {
    pub dir: PathBuf,
    pub reserve_bytes: u64,
}

impl Space {
    /// Why there is no room for a write, if there is none.
    pub fn shortage(&self) -> Option<String> {
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
