//! Removes expired items: from the expiry lists, oldest first, a bounded number at a time.

use fjall::Slice;

use super::commit::Request;
use super::front::Space;
use super::tables::Opened;
use super::view::View;
use super::{Embedded, codec, keys, sheaf};
use crate::{Error, Item, Table};

/// Items handled in one transaction of the committer, about: lists are taken whole.
const BATCH: usize = 500;

/// Who is shown expired items before they are removed.
pub trait Archive: Send + Sync {
    /// Whether it wants those of this table.
    fn wants(&self, table: &Table) -> bool;

    /// Keeps them for good: they are removed as soon as it returns, and stay if it fails. After a crash it may be shown
    /// some of them again.
    ///
    /// # Errors
    ///
    /// If they are not safely kept.
    fn keep(&self, items: &[(&Table, Item)]) -> Result<(), Error>;
}

impl Embedded {
    /// Removes items that have expired, at most about `most`; answers how many.
    pub async fn sweep(&self, most: usize) -> Result<usize, Error> {
        self.sweep_into(None, most).await
    }

    /// The same, and shows them to `archive` first.
    pub async fn sweep_into(&self, archive: Option<&dyn Archive>, most: usize) -> Result<usize, Error> {
        let mut swept = 0;
        while swept < most {
            let due = self.due(BATCH.min(most - swept))?;
            if due.is_empty() {
                break;
            }
            if let Some(archive) = archive {
                self.show(archive, &due)?;
            }
            swept += self.submit(|reply| Request::Sweep(due, reply)).await??;
        }
        Ok(swept)
    }

    fn show(&self, archive: &dyn Archive, due: &[(Slice, Slice)]) -> Result<(), Error> {
        let now = self.shared.clock.now().as_second();
        let mut items = Vec::new();
        for key in due.iter().flat_map(|(_, list)| keys::keys_of_list(list)) {
            let Some(opened) = self.shared.tables.of_item_key(key) else { continue };
            let table = &opened.table;
            if !archive.wants(table) {
                continue;
            }
            for item_key in self.item_keys(opened, key)? {
                let bytes = self.stored().item(opened, &item_key)?;
                let item = bytes.map(|bytes| codec::decode(&bytes)).transpose()?;
                // Nothing brings an expired item back but a write that gives it another expiry.
                items.extend(item.filter(|item| table.is_expired(item, now)).map(|item| (table, item)));
            }
        }
        if items.is_empty() { Ok(()) } else { archive.keep(&items) }
    }

    /// The keys of the items that a key in an expiry list stands for: its own, or those of a sheaf.
    fn item_keys(&self, opened: &Opened, key: &[u8]) -> Result<Vec<Slice>, Error> {
        if !opened.is_sheaf(key) {
            return Ok(vec![key.into()]);
        }
        let sheaf = self.stored().entry(Space::Apart, &key.into())?;
        let items = sheaf.map(|sheaf| sheaf::items(&sheaf)).transpose()?.unwrap_or_default();
        let shared = sheaf::shared_of(key).unwrap_or_default();
        Ok(items.iter().map(|(rest, _)| [shared, rest].concat().into()).collect())
    }

    /// The oldest lists that are due, with at least `items` items together if there are so many.
    fn due(&self, items: usize) -> Result<Vec<(Slice, Slice)>, Error> {
        let now = self.shared.clock.now().as_second();
        let (low, high) = (keys::expiry_bound(i64::MIN), keys::expiry_bound(now.saturating_add(1)));
        let front = self.shared.front();
        let view = View::new(&front, &self.db, &self.spaces);
        let (mut due, mut count) = (Vec::new(), 0);
        for pair in view.range(Space::Index, low, high, false) {
            if count >= items {
                break;
            }
            let (key, list) = pair?;
            count += keys::keys_of_list(&list).map(items_about).sum::<usize>();
            due.push((key, list));
        }
        Ok(due)
    }
}

/// How many items a key in an expiry list stands for, about.
fn items_about(key: &[u8]) -> usize {
    if sheaf::is_key(key) { 100 } else { 1 }
}
