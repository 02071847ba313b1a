//! The tables themselves: create them, compare them with what is there, write them as a template.
//!
//! What a table must be comes from two sides: its keys, indexes and expiry from the [`Table`] the code works
//! with, and how it is kept (billing, encryption, backups, tags, stream) from [`Extras`]. Every index holds whole
//! items, because the store's queries give whole items.

mod check;
mod cloudformation;
mod create;
mod indexes;

pub use check::{Difference, Kind, check};
pub use cloudformation::cloudformation;
pub use create::{Created, create};

use std::collections::BTreeMap;

use tidings_store::table::KeyAttribute;
use tidings_store::{KeyKind, Table};

/// Tables that are made or looked at at the same time.
const AT_ONCE: usize = 10;

/// One table as it should be.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    pub table: Table,
    pub extras: Extras,
}

/// How a table is kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Extras {
    pub billing: Billing,
    /// Encrypted with the account's own key for DynamoDB in KMS; otherwise with one that AWS keeps.
    pub sse: bool,
    /// Can be restored as of any second of the last weeks.
    pub pitr: bool,
    /// Tags the table must have; it may have others.
    pub tags: Vec<(String, String)>,
    /// Has a stream of old and new items.
    pub stream: bool,
}

/// How a table is paid for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Billing {
    /// By request.
    #[default]
    OnDemand,
    /// By units per second, used or not; the same for each of its global indexes.
    Provisioned { read: i64, write: i64 },
}

impl From<Table> for Wanted {
    fn from(table: Table) -> Self {
        Self { table, extras: Extras::default() }
    }
}

/// Every attribute that is part of some key, once.
fn key_attributes(table: &Table) -> BTreeMap<&str, KeyKind> {
    let own = [Some(table.partition_attribute()), table.sort_attribute()];
    let indexes = table.indexes().iter().flat_map(|index| [Some(&index.partition), index.sort.as_ref()]);
    own.into_iter().chain(indexes).flatten().map(|(name, kind)| (name.as_ref(), *kind)).collect()
}

/// A key's attributes with the role of each.
fn roles<'k>(partition: &'k KeyAttribute, sort: Option<&'k KeyAttribute>) -> Vec<(&'k str, &'static str)> {
    let sort = sort.map(|(name, _)| (name.as_ref(), "RANGE"));
    std::iter::once((partition.0.as_ref(), "HASH")).chain(sort).collect()
}

fn letter(kind: KeyKind) -> &'static str {
    match kind {
        KeyKind::S => "S",
        KeyKind::N => "N",
        KeyKind::B => "B",
    }
}
