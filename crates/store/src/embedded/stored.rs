//! One item, wherever it stands: alone or in a sheaf, in the front or in tables.

use std::cell::RefCell;
use std::collections::BTreeMap;

use fjall::{Database, Slice};

use super::front::Space;
use super::read::read_failed;
use super::tables::Opened;
use super::view::View;
use super::{Keyspaces, Shared, sheaf};
use crate::Error;

/// What is stored at this moment, for who looks for one item.
pub struct StoredItems<'a> {
    pub db: &'a Database,
    pub spaces: &'a Keyspaces,
    pub shared: &'a Shared,
}

impl StoredItems<'_> {
    /// What stands under a key.
    pub fn entry(&self, space: Space, key: &Slice) -> Result<Option<Slice>, Error> {
        let found = self.shared.front().get(space, key);
        match found {
            Some(found) => Ok(found),
            // What leaves the front is in the tables by then.
            None => self.spaces.of(space).get(key).map_err(read_failed),
        }
    }

    /// The bytes of an item.
    pub fn item(&self, opened: &Opened, item_key: &Slice) -> Result<Option<Slice>, Error> {
        match self.entry(Space::items(opened.ids.apart), item_key)? {
            Some(alone) => Ok(alone_item(alone)),
            None => self.in_sheaf(opened, item_key),
        }
    }

    /// Whether a sheaf has an item, be it that another one counts.
    pub fn is_in_sheaf(&self, opened: &Opened, item_key: &Slice) -> Result<bool, Error> {
        self.in_sheaf(opened, item_key).map(|found| found.is_some())
    }

    fn in_sheaf(&self, opened: &Opened, item_key: &Slice) -> Result<Option<Slice>, Error> {
        if opened.sheaf_start_of(item_key).is_none() {
            return Ok(None);
        }
        let front = self.shared.front();
        let view = View::new(&front, self.db, self.spaces);
        SeenItems::new(&view, opened).in_sheaf(item_key)
    }
}

/// The item that an entry of its own says there is; a hole says that there is none.
pub fn alone_item(alone: Slice) -> Option<Slice> {
    (!alone.is_empty()).then_some(alone)
}

/// The items of a table as a view has them, for who looks for many.
pub struct SeenItems<'a> {
    view: &'a View<'a>,
    opened: &'a Opened,
    /// Those of the sheaves that were read last, by the rest of their keys: who wants one of them mostly wants another.
    last: RefCell<Option<(Slice, BTreeMap<Slice, Slice>)>>,
}

impl<'a> SeenItems<'a> {
    pub fn new(view: &'a View<'a>, opened: &'a Opened) -> Self {
        Self { view, opened, last: RefCell::default() }
    }

    pub fn item(&self, item_key: &Slice) -> Result<Option<Slice>, Error> {
        match self.view.get(Space::items(self.opened.ids.apart), item_key)? {
            Some(alone) => Ok(alone_item(alone)),
            None => self.in_sheaf(item_key),
        }
    }

    fn in_sheaf(&self, item_key: &Slice) -> Result<Option<Slice>, Error> {
        let Some(shared) = self.opened.sheaf_start_of(item_key) else { return Ok(None) };
        let rest = item_key.get(shared.len()..).unwrap_or_default();
        let mut last = self.last.borrow_mut();
        let (_, items) = match &mut *last {
            Some(last) if *last.0 == *shared => last,
            last => last.insert((shared.into(), items_of(self.view, shared)?.into_iter().collect())),
        };
        Ok(items.get(rest).cloned())
    }
}

/// The items of all sheaves that share a start, with the rest of their keys.
pub fn items_of(view: &View<'_>, shared: &[u8]) -> Result<Vec<(Slice, Slice)>, Error> {
    let mut all = Vec::new();
    for pair in view.prefix(Space::Apart, &sheaf::sheaves_of(shared)) {
        all.extend(sheaf::items(&pair?.1)?);
    }
    Ok(all)
}
