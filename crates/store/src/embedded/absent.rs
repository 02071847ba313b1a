//! What is certainly not there, told without a look at the tables on disk.
//!
//! Most ids of events are new, and to find that out takes as long as to store one. A Bloom filter over the keys of such
//! a table (`Table::mostly_new`) knows: the committer adds every key it writes, and a thread adds those that were there
//! when the store was opened. Until that is done, or where a store has too many, nothing is known.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fjall::Keyspace;
use xxhash_rust::xxh3::xxh3_64;

/// Items of a store at the most whose keys are gone through when it is opened.
const GONE_THROUGH: usize = 8_000_000;
/// One line of the processor's cache: whatever is asked about a key, one place in memory answers.
const BLOCK_WORDS: usize = 8;
/// 4 MiB: with two million keys few are taken for such as may be there, with more keys more. A power of two.
const BLOCKS: usize = 1 << 16;
/// Keys after which the thread rests, and how long: whoever comes first to a store that was just opened goes first.
const CHUNK: usize = 4096;
const REST: Duration = Duration::from_millis(1);

pub struct Absent {
    /// Locked for a moment by one of two threads, of which one is soon done. Memory that was never written to costs
    /// nothing, so a small store need not pay for a large one.
    words: Mutex<Vec<u64>>,
    complete: AtomicBool,
}

impl Absent {
    pub fn new() -> Self {
        Self { words: Mutex::new(vec![0; BLOCKS * BLOCK_WORDS]), complete: AtomicBool::new(false) }
    }

    /// Notes that there is, or may be, an item under this key.
    pub fn note(&self, item_key: &[u8]) {
        let (block, bits) = place(item_key);
        let mut words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        for (word, bit) in words.get_mut(block).unwrap_or_default().iter_mut().zip(bits) {
            *word |= bit;
        }
    }

    /// Whether there is certainly no item under this key.
    pub fn is_sure(&self, item_key: &[u8]) -> bool {
        if !self.complete.load(Ordering::Acquire) {
            return false;
        }
        let (block, bits) = place(item_key);
        let words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        words.get(block).unwrap_or_default().iter().zip(bits).any(|(word, bit)| word & bit == 0)
    }

    /// Notes everything that is in a table, unless it is told to stop or there is too much.
    pub fn go_through(&self, items: &Keyspace, table: u16, stopped: &Receiver<()>) {
        if items.approximate_len() > GONE_THROUGH {
            return;
        }
        for (n, pair) in items.prefix(table.to_be_bytes()).enumerate() {
            // A table that cannot be read is found out by whoever needs it.
            let Ok(key) = pair.key() else { return };
            self.note(&key);
            if n % CHUNK == 0 && !matches!(stopped.recv_timeout(REST), Err(RecvTimeoutError::Timeout)) {
                return;
            }
        }
        self.complete.store(true, Ordering::Release);
    }
}

/// The words of a key's block, and a bit for each of them.
fn place(item_key: &[u8]) -> (std::ops::Range<usize>, [u64; BLOCK_WORDS]) {
    let hash = xxh3_64(item_key);
    let start = usize::try_from(hash).unwrap_or(0) % BLOCKS * BLOCK_WORDS;
    // The upper bits, six for each word, have nothing to do with the block.
    let mut rest = hash >> 16;
    let bits = [(); BLOCK_WORDS].map(|()| {
        let bit = 1 << (rest & 63);
        rest >>= 6;
        bit
    });
    (start..start + BLOCK_WORDS, bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_is_never_taken_for_absent() {
        let absent = Absent::new();
        let key = |n: u32| format!("\0\u{7}{n:032x}").into_bytes();
        (0..200_000).for_each(|n| absent.note(&key(n)));
        assert!(!absent.is_sure(&key(1_000_000)), "nothing is sure before all is known");
        absent.complete.store(true, Ordering::Release);
        assert!((0..200_000).all(|n| !absent.is_sure(&key(n))));
        let sure = (1_000_000..1_100_000).filter(|n| absent.is_sure(&key(*n))).count();
        assert!(sure > 99_900, "{sure}");
    }
}
