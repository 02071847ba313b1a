//! Queries: a range of entries, walked in either direction, each led back to its item.

use fjall::{Database, Keyspace, Readable, Snapshot};

use super::keys;
use super::layout::TableIds;
use super::plan::same_sort;
use crate::codec;
use crate::item::Item;
use crate::query::{Page, Query, cursor_of};
use crate::table::{Index, Table};
use crate::{Error, limits};

pub struct Reader<'a> {
    pub db: &'a Database,
    pub items: &'a Keyspace,
    pub index: &'a Keyspace,
    pub now: i64,
}

impl Reader<'_> {
    pub fn query(&self, table: &Table, ids: &TableIds, query: &Query) -> Result<Page, Error> {
        let index = query.check(table)?;
        let id = match index {
            Some(index) => index_id(table, ids, index)?,
            None => ids.table,
        };
        let (mut low, mut high) = keys::range(id, &query.partition, &query.range);
        if let Some(cursor) = &query.after {
            let at = position(table, ids, index, cursor)?;
            if query.descending {
                high = high.min(at);
            } else {
                // The first bytes after exactly this key.
                low = low.max([at, vec![0]].concat());
            }
        }
        if low >= high {
            return Ok(Page::default());
        }
        let snapshot = self.db.snapshot();
        match index {
            None => self.pages(table, None, query, snapshot.range(self.items, low..high), |pair| {
                let (_, value) = pair.into_inner().map_err(read_failed)?;
                codec::decode(&value).map(Some)
            }),
            Some(index) => {
                let kinds: Vec<_> =
                    [Some(&index.partition), index.sort.as_ref()].into_iter().flatten().map(|part| part.1).collect();
                let entries = snapshot.range(self.index, low..high);
                self.pages(table, Some(index), query, entries, |pair| {
                    let entry = pair.key().map_err(read_failed)?;
                    let item_key = keys::item_of_index_entry(ids.table, &entry, &kinds, same_sort(table, index))
                        .ok_or_else(|| Error::Corrupt(format!("an entry of index {} cannot be read", index.name)))?;
                    self.item(&snapshot, &item_key, &index.name).map(Some)
                })
            }
        }
    }

    fn item(&self, snapshot: &Snapshot, item_key: &[u8], index: &str) -> Result<Item, Error> {
        match snapshot.get(self.items, item_key).map_err(read_failed)? {
            Some(bytes) => codec::decode(&bytes),
            None => Err(Error::Corrupt(format!("an entry of index {index} leads to no item"))),
        }
    }

    fn pages(
        &self,
        table: &Table,
        index: Option<&Index>,
        query: &Query,
        mut entries: fjall::Iter,
        read: impl Fn(fjall::Guard) -> Result<Option<Item>, Error>,
    ) -> Result<Page, Error> {
        let mut page = Page::default();
        let mut bytes = 0;
        while let Some(pair) = if query.descending { entries.next_back() } else { entries.next() } {
            let Some(item) = read(pair)? else { continue };
            if table.is_expired(&item, self.now) {
                continue;
            }
            bytes += item.size();
            page.items.push(item);
            if page.items.len() >= query.limit || bytes >= limits::PAGE_BYTES {
                page.next = page.items.last().map(|last| cursor_of(table, index, last));
                break;
            }
        }
        Ok(page)
    }
}

fn position(table: &Table, ids: &TableIds, index: Option<&Index>, cursor: &Item) -> Result<Vec<u8>, Error> {
    let own = table.key_of(cursor)?;
    let Some(index) = index else { return Ok(keys::item(ids.table, &own)) };
    let entry = table.index_key_of(index, cursor)?;
    let entry = entry.ok_or_else(|| Error::Invalid("the cursor lacks the index's keys".to_owned()))?;
    Ok(keys::index_entry(index_id(table, ids, index)?, &entry, &own, same_sort(table, index)))
}

fn index_id(table: &Table, ids: &TableIds, index: &Index) -> Result<u16, Error> {
    let place = table.indexes().iter().position(|known| known.name == index.name);
    let id = place.and_then(|place| ids.indexes.get(place));
    id.copied().ok_or_else(|| Error::Invalid(format!("index {} is not open", index.name)))
}

pub fn read_failed(e: fjall::Error) -> Error {
    Error::failed("cannot read", e)
}
