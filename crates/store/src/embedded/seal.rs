//! Seals memtables before fjall takes them for full.
//!
//! fjall's worker is told by a queue of a thousand messages what to do, and puts one there itself when it has sealed a
//! memtable. Every commit that finds a memtable full asks for that. While the worker merges tables those questions fill the
//! queue; then it waits for room in a queue that nobody but itself empties, and no table is written any more. So nobody
//! asks: a thread of ours seals them a little earlier.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use fjall::{AbstractTree, Keyspace};

use super::{Keyspaces, spawn};
use crate::Error;

const MIB: u64 = 1024 * 1024;
/// Bytes in memory at which fjall takes a memtable for full. A store keeps those it was made with.
pub const ITEMS: u64 = 24 * MIB;
pub const APART: u64 = 32 * MIB;
pub const INDEX: u64 = 16 * MIB;

/// Looks after each commit whether something is to be sealed.
pub struct Sealer {
    memtables: [Memtable; 3],
    /// One word is enough, however often it is said.
    full: SyncSender<()>,
}

#[derive(Clone)]
struct Memtable {
    keyspace: Keyspace,
    most: u64,
}

impl Memtable {
    fn is_full(&self) -> bool {
        self.keyspace.tree.active_memtable().size() > self.most
    }
}

impl Sealer {
    /// Starts the thread, which ends when the sealer goes.
    pub fn start(spaces: &Keyspaces) -> Result<(Self, JoinHandle<()>), Error> {
        // Early enough that fjall never finds one full, but for the largest of groups.
        let memtable = |keyspace: &Keyspace, full: u64| Memtable { keyspace: keyspace.clone(), most: full / 8 * 7 };
        let memtables =
            [memtable(&spaces.items, ITEMS), memtable(&spaces.apart, APART), memtable(&spaces.index, INDEX)];
        let (full, told) = sync_channel(1);
        let its_memtables = memtables.clone();
        let thread = spawn("sealer", move || {
            for () in told {
                for memtable in its_memtables.iter().filter(|memtable| memtable.is_full()) {
                    // What keeps it from being sealed will keep the next commit from being made, which says so.
                    if let Err(error) = memtable.keyspace.rotate_memtable() {
                        tracing::warn!(%error, "a memtable cannot be sealed");
                    }
                }
            }
        })?;
        Ok((Self { memtables, full }, thread))
    }

    pub fn look(&self) {
        if self.memtables.iter().any(Memtable::is_full) {
            let _ = self.full.try_send(());
        }
    }
}
