//! Queries: a range of entries, walked in either direction, each led back to its item.

use fjall::Slice;

use super::front::Space;
use super::keys;
use super::layout::TableIds;
use super::lists::{Entries, Found};
use super::plan::{list_bytes, same_sort};
use super::stored::SeenItems;
use super::tables::Opened;
use super::view::View;
use crate::codec;
use crate::item::Item;
use crate::query::{Page, Query, cursor_of};
use crate::table::{Index, Table};
use crate::{Error, limits};

pub struct Reader<'a> {
    pub view: &'a View<'a>,
    pub now: i64,
    /// Bytes that the page has already.
    pub bytes: usize,
}

impl Reader<'_> {
    pub fn query(&self, opened: &Opened, query: &Query) -> Result<Page, Error> {
        let Opened { table, ids, .. } = opened;
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
        let Some(index) = index else {
            let Some(start) = opened.sheaf_start() else {
                let found = self.view.range(Space::items(ids.apart), low, high, query.descending);
                return self.pages(table, None, query, found, |pair| codec::decode(&pair?.1).map(Some));
            };
            let found = Entries::of_sheaves(self.view, low, high, query.descending, start);
            let read = |found: Result<Found, Error>| found?.whole.map(|bytes| codec::decode(&bytes)).transpose();
            return self.pages(table, None, query, found, read);
        };
        let kinds: Vec<_> =
            [Some(&index.partition), index.sort.as_ref()].into_iter().flatten().map(|part| part.1).collect();
        let same_sort = same_sort(table, index);
        let lists = list_bytes(table, index).map(|bytes| (index.partition.1, bytes));
        let items = SeenItems::new(self.view, opened);
        let entries = Entries::new(self.view, low, high, query.descending, lists);
        self.pages(table, Some(index), query, entries, |found| {
            let Found { entry, in_list, whole } = found?;
            if let Some(bytes) = whole {
                return codec::decode(&bytes).map(Some);
            }
            let item_key = keys::item_of_index_entry(ids.table, &entry, &kinds, same_sort)
                .ok_or_else(|| Error::Corrupt(format!("an entry of index {} cannot be read", index.name)))?;
            let item_key = Slice::from(item_key);
            let item = items.item(&item_key)?.map(|bytes| codec::decode(&bytes)).transpose()?;
            match item {
                Some(item) if !in_list => Ok(Some(item)),
                // An entry stays in its list when its item goes or gets another place.
                Some(item) => {
                    let present = keys::OwnKey::new(table, &item_key)
                        .and_then(|own| keys::index_entry_of_item(id, index, &item, &own, same_sort));
                    Ok(present.is_some_and(|present| present == entry).then_some(item))
                }
                None if in_list => Ok(None),
                None => Err(Error::Corrupt(format!("an entry of index {} leads to no item", index.name))),
            }
        })
    }

    fn pages<T>(
        &self,
        table: &Table,
        index: Option<&Index>,
        query: &Query,
        entries: impl Iterator<Item = T>,
        read: impl Fn(T) -> Result<Option<Item>, Error>,
    ) -> Result<Page, Error> {
        let mut page = Page::default();
        let mut bytes = self.bytes;
        for entry in entries {
            let Some(item) = read(entry)? else { continue };
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
    let Some(index) = index else { return Ok(keys::item(ids.table, &own).to_vec()) };
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
