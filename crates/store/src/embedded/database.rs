//! fjall's part of a store: its keyspaces, and what is noted in them when a store is opened.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use fjall::compaction::Leveled;
use fjall::config::{CompressionPolicy, FilterPolicy, PartitioningPolicy, PinningPolicy};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode, Slice};

use super::front::{Sheet, Space};
use super::layout;
use super::read::read_failed;
use super::stored::alone_item;
use super::tables::{Opened, Tables};
use super::{plan, settle, sheaf};
use crate::Error;
use crate::codec;

/// Our own entries stand under table id 0.
pub const SEQUENCE_KEY: &[u8] = b"\0\0sequence";
const IDS_PREFIX: &[u8] = b"\0\0id/";

/// Where everything is.
#[derive(Clone)]
pub struct Keyspaces {
    pub items: Keyspace,
    /// Items of tables whose keys come in order: their files need no sorting in.
    pub apart: Keyspace,
    pub index: Keyspace,
}

impl Keyspaces {
    pub fn items(&self, apart: bool) -> &Keyspace {
        self.of(Space::items(apart))
    }

    pub fn of(&self, space: Space) -> &Keyspace {
        match space {
            Space::Items => &self.items,
            Space::Index => &self.index,
            Space::Apart => &self.apart,
        }
    }
}

pub fn open_database(path: &Path, cache_bytes: u64) -> Result<(Database, Keyspaces), Error> {
    const MIB: u64 = 1024 * 1024;
    let open = || {
        let db = Database::builder(path)
            .cache_size(cache_bytes)
            // Small journals: what a crash leaves to replay bounds the time to start again.
            .max_journaling_size(128 * MIB)
            // With more than one, fjall's first worker spins for as long as another compacts.
            .worker_threads(1)
            .open()?;
        // At every fourth table, as by default, merging is the largest part of the work of a fan-out; so late, a query has
        // some more tables to look into. What counts is this times the size of a sheet; with twice as much, looking costs
        // what merging saves. A store keeps what it was made with.
        let merging = || Arc::new(Leveled::default().with_l0_threshold(24));
        // Filters and indexes of tables in pieces, which come and go with the cache: whole and held for good, as fjall has
        // them for the upper levels, they grow with the store. To write one whole also holds a block for each of its keys.
        let options = || {
            KeyspaceCreateOptions::default()
                .compaction_strategy(merging())
                .index_block_partitioning_policy(PartitioningPolicy::all(true))
                .filter_block_partitioning_policy(PartitioningPolicy::all(true))
                .index_block_pinning_policy(PinningPolicy::disabled())
                .filter_block_pinning_policy(PinningPolicy::disabled())
        };
        // A filter says that a key is not in a table. Entries of an index are never asked for by their key, and where keys
        // come in order, what a table begins and ends with says as much.
        let unfiltered = || options().filter_policy(FilterPolicy::disabled());
        // These go where they stay at once, and would never meet the merge that packs what is old.
        let packed = || unfiltered().data_block_compression_policy(CompressionPolicy::all(fjall::CompressionType::Lz4));
        let spaces = Keyspaces {
            items: db.keyspace("items", options)?,
            apart: db.keyspace("apart", packed)?,
            index: db.keyspace("index", unfiltered)?,
        };
        Ok((db, spaces))
    };
    open().map_err(|e: fjall::Error| match e {
        fjall::Error::Io(e) => Error::failed(format!("cannot open the store in {}", path.display()), e),
        fjall::Error::Storage(fjall::LsmError::Io(e)) if layout::is_refusal(&e) => {
            Error::failed(format!("cannot open the store in {}", path.display()), e)
        }
        e => Error::Corrupt(format!(
            "cannot open the store in {}: {e}; restore the last backup into an empty directory",
            path.display()
        )),
    })
}

pub fn read_sequence(items: &Keyspace) -> Result<u64, Error> {
    let Some(bytes) = items.get(SEQUENCE_KEY).map_err(read_failed)? else { return Ok(0) };
    let bytes = <[u8; 8]>::try_from(&*bytes);
    bytes.map(u64::from_be_bytes).map_err(|_| Error::Corrupt("the commit sequence cannot be read".to_owned()))
}

pub fn read_ids(items: &Keyspace) -> Result<layout::Record, Error> {
    let mut record = BTreeMap::new();
    for pair in items.prefix(IDS_PREFIX) {
        let (key, value) = pair.into_inner().map_err(read_failed)?;
        let name = key.get(IDS_PREFIX.len()..).and_then(|name| std::str::from_utf8(name).ok());
        let id = <[u8; 2]>::try_from(&*value).map(u16::from_be_bytes);
        let (Some(name), Ok(id)) = (name, id) else {
            return Err(Error::Corrupt("the record of tables cannot be read".to_owned()));
        };
        record.insert(name.to_owned(), id);
    }
    Ok(record)
}

pub fn record_ids(db: &Database, items: &Keyspace, added: &layout::Record) -> Result<(), Error> {
    let mut batch = db.batch();
    for (name, id) in added {
        batch.insert(items, [IDS_PREFIX, name.as_bytes()].concat(), id.to_be_bytes().to_vec());
    }
    batch.durability(Some(PersistMode::SyncAll)).commit().map_err(|e| Error::failed("cannot record the tables", e))
}

/// Makes the entries of all tables that got a new index. What is in `sheet` is brought into tables for it.
pub fn build_new_indexes(
    db: &Database,
    spaces: &Keyspaces,
    tables: &Tables,
    added: &layout::Record,
    sheet: &Sheet,
) -> Result<(), Error> {
    let mut is_settled = false;
    for opened in tables.all() {
        let table = &opened.table;
        let is_new_table = added.contains_key(table.name());
        let is_new = |index: &str| added.contains_key(&format!("{}/{index}", table.name()));
        if !is_new_table && table.indexes().iter().any(|index| is_new(&index.name)) {
            if !std::mem::replace(&mut is_settled, true) {
                settle::into_tables(db, spaces, sheet)?;
            }
            build_indexes(db, spaces, opened)?;
        }
    }
    Ok(())
}

/// Makes the entries of a table that got a new index since it was last open.
fn build_indexes(db: &Database, spaces: &Keyspaces, opened: &Opened) -> Result<(), Error> {
    let Opened { table, ids, .. } = opened;
    let write = |batch: fjall::OwnedWriteBatch| {
        batch.durability(Some(PersistMode::SyncAll)).commit().map_err(|e| Error::failed("cannot build an index", e))
    };
    let items = spaces.items(ids.apart);
    let mut batch = db.batch();
    for pair in items.prefix(ids.table.to_be_bytes()) {
        let (key, value) = pair.into_inner().map_err(read_failed)?;
        let mut found = Vec::new();
        if opened.is_sheaf(&key) {
            let shared = sheaf::shared_of(&key).unwrap_or_default();
            for (rest, item) in sheaf::items(&value)? {
                let item_key = Slice::from([shared, &rest].concat());
                // One that stands alone as well is met there.
                if items.get(&item_key).map_err(read_failed)?.is_none() {
                    found.push((item_key, item));
                }
            }
        } else {
            found.extend(alone_item(value).map(|item| (key, item)));
        }
        for (item_key, item) in found {
            for entry in plan::stored(table, ids, &item_key, &codec::decode(&item)?)?.entries {
                batch.insert(&spaces.index, entry.key, entry.value);
            }
        }
        if batch.len() >= 10_000 {
            write(std::mem::replace(&mut batch, db.batch()))?;
        }
    }
    write(batch)
}
