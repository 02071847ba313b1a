//! What a table looks like: its keys, its indexes, its expiry attribute.

use std::sync::Arc;

use crate::Error;
use crate::item::{Item, Key, KeyValue, Name, Value};
use crate::limits;
use crate::write::Change;

/// The type of a key attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    S,
    N,
    B,
}

/// A key attribute: name and type.
pub type KeyAttribute = (Name, KeyKind);

/// The description of a table; cheap to clone.
#[derive(Debug, Clone)]
pub struct Table(Shared);

#[derive(Debug, Clone)]
enum Shared {
    Counted(Arc<Spec>),
    /// For as long as the program runs, so that nobody counts who has it.
    Kept(&'static Spec),
}

impl std::ops::Deref for Shared {
    type Target = Spec;

    fn deref(&self) -> &Spec {
        match self {
            Self::Counted(spec) => spec,
            Self::Kept(spec) => spec,
        }
    }
}

impl PartialEq for Table {
    fn eq(&self, other: &Self) -> bool {
        self.is(other) || *self.0 == *other.0
    }
}

#[derive(Debug, Clone, PartialEq)]
struct Spec {
    name: String,
    partition: KeyAttribute,
    sort: Option<KeyAttribute>,
    indexes: Vec<Index>,
    ttl: Option<Name>,
    ordered: bool,
    lists: Option<usize>,
    mostly_new: bool,
    /// What must hold of the attributes that are part of a key.
    parts: Vec<KeyPart>,
}

/// An attribute that is part of a key of the table, or of an index, where it may be absent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct KeyPart {
    pub attribute: KeyAttribute,
    pub most: usize,
    pub required: bool,
}

/// A secondary index. An item without its key attributes is simply not in it.
#[derive(Debug, Clone, PartialEq)]
pub struct Index {
    pub name: String,
    pub partition: KeyAttribute,
    pub sort: Option<KeyAttribute>,
    /// Shares the table's partition key (a "local" index on DynamoDB).
    pub local: bool,
    /// See [`Table::read_whole`].
    pub whole_bytes: usize,
    /// See [`Table::lists_in`].
    pub lists: Option<usize>,
}

impl Table {
    /// A table with a partition key alone; the other methods add to it.
    pub fn new(name: impl Into<String>, partition: impl Into<Name>, kind: KeyKind) -> Self {
        let spec = Spec {
            name: name.into(),
            partition: (partition.into(), kind),
            sort: None,
            indexes: Vec::new(),
            ttl: None,
            ordered: false,
            lists: None,
            mostly_new: false,
            parts: Vec::new(),
        };
        Self(Shared::Counted(Arc::new(spec))).change(|_| ())
    }

    #[must_use]
    pub fn sort(self, name: impl Into<Name>, kind: KeyKind) -> Self {
        self.change(|spec| spec.sort = Some((name.into(), kind)))
    }

    /// Adds a global index.
    #[must_use]
    pub fn index(self, name: impl Into<String>, partition: KeyAttribute, sort: Option<KeyAttribute>) -> Self {
        self.change(|spec| {
            spec.indexes.push(Index { name: name.into(), partition, sort, local: false, whole_bytes: 0, lists: None })
        })
    }

    /// Adds an index over the items of each partition, in another order.
    #[must_use]
    pub fn local_index(self, name: impl Into<String>, sort: KeyAttribute) -> Self {
        self.change(|spec| {
            let partition = spec.partition.clone();
            let sort = Some(sort);
            let (local, whole_bytes, lists) = (true, 0, None);
            spec.indexes.push(Index { name: name.into(), partition, sort, local, whole_bytes, lists });
        })
    }

    /// Says that long stretches of an index are read. An engine may keep items of up to `bytes` bytes beside their
    /// entries in it, so that none has to be looked for; it means nothing else.
    #[must_use]
    pub fn read_whole(self, index: &str, bytes: usize) -> Self {
        self.change(|spec| {
            for known in spec.indexes.iter_mut().filter(|known| known.name == index) {
                known.whole_bytes = bytes;
            }
        })
    }

    /// Names the attribute that holds the second (since 1970) at which an item ceases to exist.
    #[must_use]
    pub fn ttl(self, name: impl Into<Name>) -> Self {
        self.change(|spec| spec.ttl = Some(name.into()))
    }

    /// Says that most items come in the order of their keys, as those of a log do. An engine may keep such a table
    /// apart, where nothing has to be sorted in; it means nothing else.
    #[must_use]
    pub fn ordered(self) -> Self {
        self.change(|spec| spec.ordered = true)
    }

    /// Says that items come in crowds: entries of an index that come together, and whose sort keys start with the same
    /// `bytes` bytes, may be kept in one list, and so may the items of an ordered table. An engine that gains nothing from it need not; it means nothing else.
    #[must_use]
    pub fn lists(self, bytes: usize) -> Self {
        self.change(|spec| spec.lists = Some(bytes))
    }

    /// The same of one index alone: one that leads to each item for as long as that is there. Where items come and go, what
    /// led to those that have gone would have to be passed over.
    #[must_use]
    pub fn lists_in(self, index: &str, bytes: usize) -> Self {
        self.change(|spec| {
            for known in spec.indexes.iter_mut().filter(|known| known.name == index) {
                known.lists = Some(bytes);
            }
        })
    }

    /// Says that what is written is mostly new, and is asked whether it is. An engine may keep in memory what tells it
    /// so; it means nothing else.
    #[must_use]
    pub fn mostly_new(self) -> Self {
        self.change(|spec| spec.mostly_new = true)
    }

    /// Keeps the description for as long as the program runs. To clone it then touches no memory, which threads that all
    /// write to the table would take from each other's processors.
    #[must_use]
    pub fn kept(self) -> Self {
        match self.0 {
            Shared::Counted(spec) => Self(Shared::Kept(Box::leak(Box::new(Arc::unwrap_or_clone(spec))))),
            Shared::Kept(_) => self,
        }
    }

    /// Whether this is the very same description; an equal one may be another.
    pub(crate) fn is(&self, other: &Self) -> bool {
        std::ptr::eq(&raw const *self.0, &raw const *other.0)
    }

    #[must_use]
    pub fn is_mostly_new(&self) -> bool {
        self.0.mostly_new
    }

    #[must_use]
    pub fn is_ordered(&self) -> bool {
        self.0.ordered
    }

    /// See [`Table::lists`].
    #[must_use]
    pub fn list_bytes(&self) -> Option<usize> {
        self.0.lists
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    #[must_use]
    pub fn partition_attribute(&self) -> &KeyAttribute {
        &self.0.partition
    }

    #[must_use]
    pub fn sort_attribute(&self) -> Option<&KeyAttribute> {
        self.0.sort.as_ref()
    }

    #[must_use]
    pub fn indexes(&self) -> &[Index] {
        &self.0.indexes
    }

    #[must_use]
    pub fn ttl_attribute(&self) -> Option<&str> {
        self.0.ttl.as_deref()
    }

    pub(crate) fn key_parts(&self) -> &[KeyPart] {
        &self.0.parts
    }

    /// The index of that name, or the error that there is none.
    pub fn index_named(&self, name: &str) -> Result<&Index, Error> {
        let found = self.indexes().iter().find(|index| index.name == name);
        found.ok_or_else(|| Error::Invalid(format!("table {} has no index {name}", self.name())))
    }

    /// The key of an item of this table, checked for presence, type, emptiness and size.
    pub fn key_of(&self, item: &Item) -> Result<Key, Error> {
        let partition = self.key_attribute(item, &self.0.partition, limits::PARTITION_KEY_BYTES)?;
        let sort = match &self.0.sort {
            Some(attribute) => Some(self.key_attribute(item, attribute, limits::SORT_KEY_BYTES)?),
            None => None,
        };
        Ok(Key { partition, sort })
    }

    /// The key of an item in an index, or `None` if the item is not in it.
    ///
    /// As on DynamoDB, a key attribute that is there must be fit for the index even if the other is not there.
    pub fn index_key_of(&self, index: &Index, item: &Item) -> Result<Option<Key>, Error> {
        let value = |attribute: &KeyAttribute, most| {
            item.get(&attribute.0).map(|_| self.key_attribute(item, attribute, most)).transpose()
        };
        let partition = value(&index.partition, limits::PARTITION_KEY_BYTES)?;
        let sort = index.sort.as_ref().map(|sort| value(sort, limits::SORT_KEY_BYTES)).transpose()?;
        Ok(match (partition, sort) {
            (None, _) | (_, Some(None)) => None,
            (Some(partition), sort) => Some(Key { partition, sort: sort.flatten() }),
        })
    }

    /// Checks that a key given for a `get` or a write fits this table.
    pub fn check_key(&self, key: &Key) -> Result<(), Error> {
        self.check_key_value(&self.0.partition, &key.partition, limits::PARTITION_KEY_BYTES)?;
        match (&self.0.sort, &key.sort) {
            (Some(attribute), Some(value)) => self.check_key_value(attribute, value, limits::SORT_KEY_BYTES),
            (None, None) => Ok(()),
            (Some(_), None) => Err(Error::Invalid(format!("table {} needs a sort key", self.name()))),
            (None, Some(_)) => Err(Error::Invalid(format!("table {} has no sort key", self.name()))),
        }
    }

    /// Checks one key value against the attribute it stands for.
    pub fn check_key_value(&self, attribute: &KeyAttribute, value: &KeyValue, most: usize) -> Result<(), Error> {
        let kind = match value {
            KeyValue::S(_) => KeyKind::S,
            KeyValue::N(_) => KeyKind::N,
            KeyValue::B(_) => KeyKind::B,
        };
        self.check_key_part(attribute, kind, value.size(), most)
    }

    /// Checks a value of that type and size against the attribute it stands for.
    pub(crate) fn check_key_part(
        &self,
        attribute: &KeyAttribute,
        kind: KeyKind,
        size: usize,
        most: usize,
    ) -> Result<(), Error> {
        let (name, wanted) = attribute;
        let problem = if kind != *wanted {
            format!("must be of type {wanted:?}")
        } else if size == 0 {
            "must not be empty".to_owned()
        } else if size > most {
            format!("has {size} bytes, at most {most} are allowed")
        } else {
            return Ok(());
        };
        Err(Error::Invalid(format!("key attribute {name} of table {} {problem}", self.name())))
    }

    /// An item that holds just the key attributes: the start of an update that creates.
    #[must_use]
    pub fn key_item(&self, key: &Key) -> Item {
        let item = Item::new().with(self.0.partition.0.clone(), key.partition.clone());
        match (&self.0.sort, &key.sort) {
            (Some((name, _)), Some(value)) => item.with(name.clone(), value.clone()),
            _ => item,
        }
    }

    /// The second at which the item expires, if it does; of a fraction, the first second not before it.
    #[must_use]
    pub fn expiry_of(&self, item: &Item) -> Option<i64> {
        match self.ttl_attribute().and_then(|name| item.get(name)) {
            Some(Value::N(at)) => Some(at.ceil()),
            _ => None,
        }
    }

    /// Whether the item has ceased to exist by `now` (seconds since 1970).
    #[must_use]
    pub fn is_expired(&self, item: &Item, now: i64) -> bool {
        self.expiry_of(item).is_some_and(|at| at <= now)
    }

    /// Everything DynamoDB checks of an item before it stores it.
    pub fn check_item(&self, item: &Item) -> Result<(), Error> {
        self.checked_size(item).map(drop)
    }

    /// The size of an item that was found fit to be stored. Each attribute is looked at once: this is done for every
    /// item of every event.
    pub fn checked_size(&self, item: &Item) -> Result<usize, Error> {
        for KeyPart { attribute, most, required } in &self.0.parts {
            match item.get(&attribute.0) {
                None if !required => {}
                value => self.check_value(attribute, value, *most)?,
            }
        }
        let (mut size, mut too_deep, mut nameless) = (0, false, false);
        for (name, value) in &item.0 {
            size += name.len() + value.size();
            // The item itself is the first level.
            too_deep |= value.depth() >= limits::NESTING;
            nameless |= name.is_empty() || value.has_empty_name_inside();
        }
        if size > limits::ITEM_BYTES {
            let most = limits::ITEM_BYTES;
            return Err(Error::Invalid(format!(
                "an item of {} has {size} bytes, at most {most} are allowed",
                self.name()
            )));
        }
        if too_deep {
            return Err(Error::Invalid(format!("an item of {} is nested too deep", self.name())));
        }
        if nameless {
            return Err(Error::Invalid(format!("an item of {} has an attribute without a name", self.name())));
        }
        Ok(size)
    }

    /// Whether a change leaves any item of the table fit to be stored, and says by itself what keys will have of it. What
    /// the item's size and a sum will be is not part of that.
    pub(crate) fn allows(&self, change: &Change) -> bool {
        let mut parts = self.0.parts.iter().filter(|part| part.attribute.0 == change.name());
        match change {
            Change::Set(name, value) => {
                let fits = |part: &KeyPart| self.check_value(&part.attribute, Some(value), part.most).is_ok();
                let is_sound = !name.is_empty() && value.depth() < limits::NESTING && !value.has_empty_name_inside();
                is_sound && parts.all(fits)
            }
            Change::Add(name, _) => !name.is_empty() && parts.next().is_none(),
            Change::Remove(_) => true,
            Change::Append(..) => false,
        }
    }

    /// Checks a key attribute where it stands; most items are only checked, and nothing needs a copy for that.
    fn check_value(&self, attribute: &KeyAttribute, value: Option<&Value>, most: usize) -> Result<(), Error> {
        let kind = match value {
            Some(Value::S(_)) => KeyKind::S,
            Some(Value::N(_)) => KeyKind::N,
            Some(Value::B(_)) => KeyKind::B,
            _ => {
                let (name, table) = (&attribute.0, self.name());
                return Err(Error::Invalid(format!(
                    "key attribute {name} of table {table} is missing or of no key type"
                )));
            }
        };
        self.check_key_part(attribute, kind, value.map_or(0, Value::size), most)
    }

    fn key_attribute(&self, item: &Item, attribute: &KeyAttribute, most: usize) -> Result<KeyValue, Error> {
        let value = item.get(&attribute.0);
        self.check_value(attribute, value, most)?;
        value
            .and_then(KeyValue::from_value)
            .ok_or_else(|| Error::Invalid(format!("key attribute {} is missing", attribute.0)))
    }

    fn change(self, change: impl FnOnce(&mut Spec)) -> Self {
        let mut spec = match self.0 {
            Shared::Counted(spec) => Arc::unwrap_or_clone(spec),
            Shared::Kept(spec) => spec.clone(),
        };
        change(&mut spec);
        spec.parts = spec.key_parts();
        Self(Shared::Counted(Arc::new(spec)))
    }
}

impl Spec {
    fn key_parts(&self) -> Vec<KeyPart> {
        let mut parts: Vec<KeyPart> = Vec::new();
        let mut add = |attribute: Option<&KeyAttribute>, most, required| {
            let known = |part: &KeyPart| Some(&part.attribute) == attribute && part.most == most;
            if let Some(attribute) = attribute.filter(|_| !parts.iter().any(known)) {
                parts.push(KeyPart { attribute: attribute.clone(), most, required });
            }
        };
        add(Some(&self.partition), limits::PARTITION_KEY_BYTES, true);
        add(self.sort.as_ref(), limits::SORT_KEY_BYTES, true);
        for index in &self.indexes {
            add(Some(&index.partition), limits::PARTITION_KEY_BYTES, false);
            add(index.sort.as_ref(), limits::SORT_KEY_BYTES, false);
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::Attributes;

    #[test]
    fn a_table_allows_what_leaves_any_item_fit() {
        let own = |name: &'static str, kind| (Name::from(name), kind);
        let table = Table::new("t", "id", KeyKind::S).index("i", own("at", KeyKind::S), Some(own("n", KeyKind::N)));
        let set = |name: &'static str, value: Value| Change::Set(name.into(), value);
        let deep = |levels| (0..levels).fold(Value::Null, |value, _| Value::L(vec![value]));
        let long = |bytes| Value::S("x".repeat(bytes));
        let nameless = Value::M(Attributes::from([(Name::from(""), Value::Null)]));
        for allowed in [
            set("x", deep(limits::NESTING - 1)),
            set("at", long(limits::PARTITION_KEY_BYTES)),
            set("n", 1_i64.into()),
            Change::Add("m".into(), 1),
            Change::Remove("at".into()),
        ] {
            assert!(table.allows(&allowed), "{allowed:?}");
        }
        for other in [
            set("x", deep(limits::NESTING)),
            set("x", nameless),
            set("", Value::Null),
            set("at", long(limits::PARTITION_KEY_BYTES + 1)),
            set("at", "".into()),
            set("at", 1_i64.into()),
            set("n", "1".into()),
            Change::Add("n".into(), 1),
            Change::Add("".into(), 1),
            Change::Append("l".into(), vec![]),
        ] {
            assert!(!table.allows(&other), "{other:?}");
        }
    }
}
