//! Queries: one partition, a range of its sort keys, either direction, a page at a time.

use crate::Error;
use crate::item::{Item, Key, KeyValue};
use crate::limits;
use crate::table::{Index, KeyKind, Table};

/// Which items of a partition a query wants, by sort key.
#[derive(Debug, Clone, PartialEq)]
pub enum Range {
    All,
    Equal(KeyValue),
    /// Strings that start so; like any key, not empty.
    Prefix(String),
    /// From the first to the second, both included.
    Between(KeyValue, KeyValue),
    /// Strictly larger.
    Above(KeyValue),
    AtLeast(KeyValue),
    /// Strictly smaller.
    Below(KeyValue),
    AtMost(KeyValue),
}

/// One question to one partition.
#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    /// The index to ask; `None` asks the table itself.
    pub index: Option<String>,
    pub partition: KeyValue,
    pub range: Range,
    pub descending: bool,
    /// Items in a page, at least 1.
    pub limit: usize,
    /// Where the page before ended: its `Page::next`.
    pub after: Option<Item>,
}

/// Items in key order, and where to go on.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Page {
    pub items: Vec<Item>,
    /// The key attributes (of table and index) of the last item, or `None` at the end of the range.
    pub next: Option<Item>,
}

impl Query {
    /// Everything in a partition of the table, ascending, up to 100 a page; the methods narrow it.
    pub fn new(partition: impl Into<KeyValue>) -> Self {
        Self { index: None, partition: partition.into(), range: Range::All, descending: false, limit: 100, after: None }
    }

    #[must_use]
    pub fn index(mut self, name: impl Into<String>) -> Self {
        self.index = Some(name.into());
        self
    }

    #[must_use]
    pub fn range(mut self, range: Range) -> Self {
        self.range = range;
        self
    }

    #[must_use]
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        self.range(Range::Prefix(prefix.into()))
    }

    #[must_use]
    pub fn descending(mut self) -> Self {
        self.descending = true;
        self
    }

    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    #[must_use]
    pub fn after(mut self, cursor: Option<Item>) -> Self {
        self.after = cursor;
        self
    }

    /// The checks every engine makes first; gives the index the query is about.
    pub fn check<'t>(&self, table: &'t Table) -> Result<Option<&'t Index>, Error> {
        if self.limit == 0 {
            return Err(Error::Invalid("a query's limit must be at least 1".to_owned()));
        }
        let index = self.index.as_deref().map(|name| table.index_named(name)).transpose()?;
        let (partition, sort) = match index {
            Some(index) => (&index.partition, index.sort.as_ref()),
            None => (table.partition_attribute(), table.sort_attribute()),
        };
        table.check_key_value(partition, &self.partition, limits::PARTITION_KEY_BYTES)?;
        let prefix;
        let bounds: &[&KeyValue] = match &self.range {
            Range::All => return self.check_cursor(table, index),
            Range::Prefix(text) if sort.is_some_and(|(_, kind)| *kind == KeyKind::S) => {
                prefix = KeyValue::from(text);
                &[&prefix]
            }
            Range::Prefix(_) => {
                return Err(Error::Invalid(format!("table {} has no text sort key for a prefix", table.name())));
            }
            Range::Between(low, high) => &[low, high],
            Range::Equal(key) | Range::Above(key) | Range::AtLeast(key) | Range::Below(key) | Range::AtMost(key) => {
                &[key]
            }
        };
        let sort = sort.ok_or_else(|| Error::Invalid(format!("table {} has no sort key for a range", table.name())))?;
        for bound in bounds {
            table.check_key_value(sort, bound, limits::SORT_KEY_BYTES)?;
        }
        if let Range::Between(low, high) = &self.range
            && low > high
        {
            return Err(Error::Invalid("a range's upper bound must not be below its lower bound".to_owned()));
        }
        self.check_cursor(table, index)
    }

    fn check_cursor<'t>(&self, table: &Table, index: Option<&'t Index>) -> Result<Option<&'t Index>, Error> {
        if let Some(cursor) = &self.after {
            let own = table.key_of(cursor)?;
            let key = match index {
                Some(index) => table
                    .index_key_of(index, cursor)?
                    .ok_or_else(|| Error::Invalid("the cursor lacks the index's keys".to_owned()))?,
                None => own,
            };
            if key.partition != self.partition {
                return Err(Error::Invalid("the cursor belongs to another partition".to_owned()));
            }
            if !self.range.contains(key.sort.as_ref()) {
                return Err(Error::Invalid("the cursor lies outside the query's range".to_owned()));
            }
        }
        Ok(index)
    }
}

impl Range {
    /// Whether a sort key lies in the range (items without one are only in `All`).
    #[must_use]
    pub fn contains(&self, sort: Option<&KeyValue>) -> bool {
        let Some(key) = sort else { return *self == Self::All };
        match self {
            Self::All => true,
            Self::Equal(wanted) => key == wanted,
            Self::Prefix(prefix) => matches!(key, KeyValue::S(s) if s.starts_with(prefix.as_str())),
            Self::Between(low, high) => low <= key && key <= high,
            Self::Above(low) => key > low,
            Self::AtLeast(low) => key >= low,
            Self::Below(high) => key < high,
            Self::AtMost(high) => key <= high,
        }
    }
}

/// The cursor that stands for `item`: its key attributes in the table and in the index.
#[must_use]
pub fn cursor_of(table: &Table, index: Option<&Index>, item: &Item) -> Item {
    let mut names = vec![&table.partition_attribute().0];
    names.extend(table.sort_attribute().map(|(name, _)| name));
    if let Some(index) = index {
        names.push(&index.partition.0);
        names.extend(index.sort.as_ref().map(|(name, _)| name));
    }
    let attributes = names.into_iter().filter_map(|name| Some((name.clone(), item.get(name)?.clone())));
    Item(attributes.collect())
}

/// An item's place in the order of a query: the key in the index, then the key in the table.
#[must_use]
pub fn position(table: &Table, index: Option<&Index>, item: &Item) -> Option<(Key, Key)> {
    let own = table.key_of(item).ok()?;
    match index {
        Some(index) => Some((table.index_key_of(index, item).ok()??, own)),
        None => Some((own.clone(), own)),
    }
}
