//! Writes closed sheets of the front into fjall's tables, and gives back their part of the log.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use fjall::{Database, PersistMode};

use super::front::{Sheet, Space};
use super::layout::cause_of;
use super::{Keyspaces, Shared, spawn};
use crate::Error;

/// Closed sheets that may wait; then commits wait for them. Each more is as much memory, and what was needed once at the
/// height of a load is long in coming back.
pub const WAITING: usize = 1;

/// Entries that are taken hold of together. They lie all over the memory, and to wait for many of them at the same time
/// takes no longer than to wait for one.
const AT_ONCE: usize = 64;

/// Takes closed sheets, in the order in which they were closed.
pub struct Settler {
    closed: Sender<Arc<Sheet>>,
    /// Held by the thread for as long as it is at work.
    at_work: Weak<()>,
}

impl Settler {
    /// Starts the thread, which ends when the settler goes. What it has not done by then is in the log.
    pub fn start(db: &Database, spaces: &Keyspaces, shared: &Arc<Shared>) -> Result<(Self, JoinHandle<()>), Error> {
        let (closed, waiting) = channel();
        let (db, spaces, shared) = (db.clone(), spaces.clone(), Arc::downgrade(shared));
        let held = Arc::new(());
        let at_work = Arc::downgrade(&held);
        let thread = spawn("settler", move || {
            let _held = held;
            for sheet in waiting {
                let Some(shared) = shared.upgrade().filter(|shared| shared.broken().is_none()) else { return };
                if let Err(error) = settle(&db, &spaces, &shared, &sheet) {
                    drop(shared.break_down(&cause_of(&error)));
                }
            }
        })?;
        Ok((Self { closed, at_work }, thread))
    }

    pub fn settle(&self, sheet: Arc<Sheet>) {
        // Only a store that has broken down takes none.
        let _ = self.closed.send(sheet);
    }

    /// Whether sheets are still being written; not, where the thread has failed.
    pub fn is_at_work(&self) -> bool {
        self.at_work.strong_count() > 0
    }
}

/// Writes the oldest closed sheet into tables; from then on these answer for it.
fn settle(db: &Database, spaces: &Keyspaces, shared: &Shared, sheet: &Arc<Sheet>) -> Result<(), Error> {
    into_tables(db, spaces, sheet)?;
    shared.front_mut().closed.retain(|closed| !Arc::ptr_eq(closed, sheet));
    for segment in &sheet.segments {
        segment.retire().map_err(|e| Error::failed("cannot use a part of the log again", e))?;
    }
    Ok(())
}

/// Writes a sheet into tables, which are safe when this returns.
pub fn into_tables(db: &Database, spaces: &Keyspaces, sheet: &Sheet) -> Result<(), Error> {
    let write = |space: Space| {
        let mut entries = sheet.all(space).peekable();
        if entries.peek().is_none() {
            return Ok(());
        }
        let mut tables = spaces.of(space).start_ingestion()?;
        let mut next = Vec::with_capacity(AT_ONCE);
        while entries.peek().is_some() {
            next.extend(entries.by_ref().take(AT_ONCE).map(|(key, value)| (key.clone(), value.cloned())));
            for (key, value) in next.drain(..) {
                match value {
                    Some(value) => tables.write(key, value)?,
                    None => tables.write_tombstone(key)?,
                }
            }
        }
        tables.finish()
    };
    Space::SETTLED.into_iter().try_for_each(write).map_err(failed)?;
    // Says whether fjall's worker is still at work.
    db.persist(PersistMode::Buffer).map_err(failed)
}

fn failed(error: fjall::Error) -> Error {
    match error {
        fjall::Error::Io(e) | fjall::Error::Storage(fjall::LsmError::Io(e)) => Error::failed("cannot write tables", e),
        e => Error::failed("cannot write tables", e),
    }
}
