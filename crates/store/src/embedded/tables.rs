//! The open tables, by name and by id.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::absent::Absent;
use super::front::{Sheet, Space};
use super::layout::TableIds;
use super::{keys, sheaf};
use crate::Error;
use crate::table::{KeyKind, Table};

/// A table that is open.
pub struct Opened {
    pub table: Table,
    pub ids: TableIds,
    /// What is certainly not in it, if that is kept.
    pub absent: Option<Arc<Absent>>,
}

impl Opened {
    /// The type of the partition key and the bytes of the sort key that the items of a sheaf share, if the table has sheaves.
    pub fn sheaf_start(&self) -> Option<(KeyKind, usize)> {
        let is_text = self.table.sort_attribute().is_some_and(|(_, kind)| *kind == KeyKind::S);
        // A sheaf goes when its items expire; and whose keys are noted, they are noted one by one.
        let may_have = self.ids.apart && is_text && self.table.ttl_attribute().is_some() && self.absent.is_none();
        self.table.list_bytes().filter(|_| may_have).map(|bytes| (self.table.partition_attribute().1, bytes))
    }

    /// Whether an entry among the items is a sheaf of them.
    pub fn is_sheaf(&self, key: &[u8]) -> bool {
        self.sheaf_start().is_some() && sheaf::is_key(key)
    }

    /// What the keys of all items start with that may be in a sheaf with the item of this key.
    pub fn sheaf_start_of<'a>(&self, item_key: &'a [u8]) -> Option<&'a [u8]> {
        let (partition, bytes) = self.sheaf_start()?;
        keys::shared_len(item_key, partition, bytes).and_then(|len| item_key.get(..len))
    }
}

/// All of them. Whatever goes from thread to thread names one by its place: a count of who uses it, which they would all
/// change, would be handed to and fro between the processors.
pub struct Tables {
    all: Vec<Opened>,
    by_name: BTreeMap<String, usize>,
    by_id: BTreeMap<u16, usize>,
    indexes: BTreeSet<u16>,
}

impl Tables {
    pub fn new(tables: &[Table], mut ids: BTreeMap<String, TableIds>) -> Self {
        let mut open = Self {
            all: Vec::with_capacity(tables.len()),
            by_name: BTreeMap::new(),
            by_id: BTreeMap::new(),
            indexes: BTreeSet::new(),
        };
        for table in tables {
            let Some(ids) = ids.remove(table.name()) else { continue };
            let place = open.all.len();
            open.indexes.extend(&ids.indexes);
            open.by_id.insert(ids.table, place);
            open.by_name.insert(table.name().to_owned(), place);
            let absent = table.is_mostly_new().then(|| Arc::new(Absent::new()));
            open.all.push(Opened { table: table.clone(), ids, absent });
        }
        open
    }

    pub fn all(&self) -> &[Opened] {
        &self.all
    }

    pub fn is_open(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// The place of a table.
    pub fn place(&self, table: &Table) -> Result<usize, Error> {
        let place = self.by_name.get(table.name()).copied();
        place.ok_or_else(|| Error::Invalid(format!("there is no table {}", table.name())))
    }

    /// The table of a place that [`Tables::place`] gave.
    pub fn at(&self, place: usize) -> Result<&Opened, Error> {
        self.all.get(place).ok_or_else(|| Error::Invalid(format!("there is no table at place {place}")))
    }

    pub fn opened(&self, table: &Table) -> Result<&Opened, Error> {
        self.place(table).and_then(|place| self.at(place))
    }

    /// The table whose item has this key.
    pub fn of_item_key(&self, item_key: &[u8]) -> Option<&Opened> {
        let id = u16::from_be_bytes(item_key.first_chunk().copied()?);
        self.by_id.get(&id).and_then(|place| self.all.get(*place))
    }

    /// Notes the items of a sheet where it is noted what is there.
    pub fn note_present(&self, sheet: &Sheet) {
        for (key, _) in sheet.all(Space::Items).chain(sheet.all(Space::Apart)) {
            if let Some(absent) = self.of_item_key(key).and_then(|opened| opened.absent.as_ref()) {
                absent.note(key);
            }
        }
    }

    /// Whether this is the key of a list of index entries.
    pub fn is_entry_list(&self, key: &[u8]) -> bool {
        key.first_chunk().is_some_and(|id| self.indexes.contains(&u16::from_be_bytes(*id)))
    }
}
