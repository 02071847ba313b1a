//! Removes expired items: from the expiry lists, oldest first, a bounded number at a time.

use fjall::Slice;

use super::commit::Request;
use super::{Embedded, keys, read_failed};
use crate::Error;

/// Items handled in one transaction of the committer, about: lists are taken whole.
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
            swept += self.submit(|reply| Request::Sweep(due, reply)).await??;
        }
        Ok(swept)
    }

    /// The oldest lists that are due, with at least `items` items together if there are so many.
    fn due(&self, items: usize) -> Result<Vec<(Slice, Slice)>, Error> {
        let now = self.shared.clock.now().as_second();
        let range = keys::expiry_bound(i64::MIN)..keys::expiry_bound(now.saturating_add(1));
        let (mut due, mut count) = (Vec::new(), 0);
        for pair in self.spaces.index.range(range) {
            if count >= items {
                break;
            }
            let (key, list) = pair.into_inner().map_err(read_failed)?;
            count += keys::keys_of_list(&list).count();
            due.push((key, list));
        }
        Ok(due)
    }
}
