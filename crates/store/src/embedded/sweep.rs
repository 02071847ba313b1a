//! Removes expired items: from the expiry entries, oldest first, a bounded batch a transaction.

use super::commit::Request;
use super::{Embedded, keys, read_failed};
use crate::Error;

/// Expiry entries handled in one transaction of the committer.
const BATCH: usize = 500;

impl Embedded {
    /// Removes items that have expired, at most about `most`; answers how many.
    pub async fn sweep(&self, most: usize) -> Result<usize, Error> {
        let mut swept = 0;
        while swept < most {
            let due = self.due(BATCH.min(most - swept))?;
            if due.is_empty() {
                break;
            }
            let removed = self.submit(|reply| Request::Sweep(due, reply)).await?;
            if removed == 0 {
                break;
            }
            swept += removed;
        }
        Ok(swept)
    }

    fn due(&self, most: usize) -> Result<Vec<fjall::Slice>, Error> {
        let now = self.shared.clock.now().as_second();
        let range = keys::expiry_bound(i64::MIN)..keys::expiry_bound(now.saturating_add(1));
        self.index.range(range).take(most).map(|entry| entry.key().map_err(read_failed)).collect()
    }
}
