//! Writes, the conditions they carry, and the rules every transaction must keep.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::Arc;

use crate::attributes::Attributes;
use crate::item::{Item, Key, Name, Value};
use crate::number::Number;
use crate::packed::Packed;
use crate::table::Table;
use crate::{Error, limits};

/// One part of a transaction.
#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    /// Stores the whole item in place of what is there.
    Put { table: Table, item: Item, condition: Condition },
    /// The same of an item that is bytes already.
    Packed { item: Packed, condition: Condition },
    /// Changes attributes (at least one); without an item under the key, starts from one that has just the key.
    Update { table: Table, key: Key, changes: Vec<Change>, condition: Condition },
    /// Removes the item; removing what is not there is no error.
    Delete { table: Table, key: Key, condition: Condition },
    /// Writes nothing; the transaction fails if the condition does not hold.
    Check { table: Table, key: Key, condition: Condition },
}

/// One change of an update. Key attributes cannot be changed.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    Set(Name, Value),
    Remove(Name),
    /// Adds to a number, whole or not; an absent one counts as 0. A sum that no number can hold is refused.
    Add(Name, i64),
    /// Puts values at the end of a list; an absent one counts as empty.
    Append(Name, Vec<Value>),
}

/// What must hold of the item as it is before the transaction.
#[derive(Debug, Clone, PartialEq)]
pub enum Condition {
    /// Nothing needs to hold.
    None,
    /// Nothing needs to hold, and the caller knows that no item has this key, so that none is looked for. With an
    /// item there after all, its index entries are left behind, and which of both is found is not said: only for keys that
    /// are made unique, such as random ones.
    Fresh,
    Exists,
    NotExists,
    /// The attribute is there and has this value.
    Equals(Name, Value),
    /// The attribute is absent or has another value.
    Differs(Name, Value),
    /// The attribute is there, of the same type (string, number or bytes), and smaller.
    Less(Name, Value),
    /// The attribute is there, of the same type (string, number or bytes), and larger.
    Greater(Name, Value),
    HasAttribute(Name),
    LacksAttribute(Name),
    All(Vec<Condition>),
    /// Shared: many writes of one request may be on the same condition.
    Any(Arc<[Condition]>),
}

impl Condition {
    #[must_use]
    pub fn any(conditions: Vec<Self>) -> Self {
        Self::Any(conditions.into())
    }

    /// Whether the condition holds of `item` (`None`: there is no such item).
    #[must_use]
    pub fn holds(&self, item: Option<&Item>) -> bool {
        self.holds_of(item.is_some(), &|name| item?.get(name).map(Cow::Borrowed))
    }

    /// The same of an item whose attributes are looked up by name, if it is there.
    pub(crate) fn holds_of<'a>(&self, is_there: bool, attribute: &dyn Fn(&str) -> Option<Cow<'a, Value>>) -> bool {
        match self {
            Self::None | Self::Fresh => true,
            Self::Exists => is_there,
            Self::NotExists => !is_there,
            Self::Equals(name, value) => attribute(name).as_deref() == Some(value),
            Self::Differs(name, value) => attribute(name).as_deref() != Some(value),
            Self::Less(name, value) => compare(attribute(name).as_deref(), value) == Some(Ordering::Less),
            Self::Greater(name, value) => compare(attribute(name).as_deref(), value) == Some(Ordering::Greater),
            Self::HasAttribute(name) => attribute(name).is_some(),
            Self::LacksAttribute(name) => attribute(name).is_none(),
            Self::All(all) => all.iter().all(|condition| condition.holds_of(is_there, attribute)),
            Self::Any(any) => any.iter().any(|condition| condition.holds_of(is_there, attribute)),
        }
    }
}

fn compare(left: Option<&Value>, right: &Value) -> Option<Ordering> {
    match (left?, right) {
        (Value::S(a), Value::S(b)) => Some(a.cmp(b)),
        (Value::N(a), Value::N(b)) => Some(a.cmp(b)),
        (Value::B(a), Value::B(b)) => Some(a.cmp(b)),
        _ => None,
    }
}

impl Write {
    /// A put without a condition.
    #[must_use]
    pub fn put(table: &Table, item: Item) -> Self {
        Self::Put { table: table.clone(), item, condition: Condition::None }
    }

    /// A put of an item that must not be there yet.
    #[must_use]
    pub fn insert(table: &Table, item: Item) -> Self {
        Self::Put { table: table.clone(), item, condition: Condition::NotExists }
    }

    /// The same of an item that is bytes already.
    #[must_use]
    pub const fn insert_packed(item: Packed) -> Self {
        Self::Packed { item, condition: Condition::NotExists }
    }

    #[must_use]
    pub fn update(table: &Table, key: Key, changes: Vec<Change>) -> Self {
        Self::Update { table: table.clone(), key, changes, condition: Condition::None }
    }

    #[must_use]
    pub fn delete(table: &Table, key: Key) -> Self {
        Self::Delete { table: table.clone(), key, condition: Condition::None }
    }

    #[must_use]
    pub fn check(table: &Table, key: Key, condition: Condition) -> Self {
        Self::Check { table: table.clone(), key, condition }
    }

    /// The same write with this condition.
    #[must_use]
    pub fn when(mut self, new: Condition) -> Self {
        let (Self::Put { condition, .. }
        | Self::Packed { condition, .. }
        | Self::Update { condition, .. }
        | Self::Delete { condition, .. }
        | Self::Check { condition, .. }) = &mut self;
        *condition = new;
        self
    }

    #[must_use]
    pub fn table(&self) -> &Table {
        match self {
            Self::Put { table, .. }
            | Self::Update { table, .. }
            | Self::Delete { table, .. }
            | Self::Check { table, .. } => table,
            Self::Packed { item, .. } => item.table(),
        }
    }

    #[must_use]
    pub fn condition(&self) -> &Condition {
        let (Self::Put { condition, .. }
        | Self::Packed { condition, .. }
        | Self::Update { condition, .. }
        | Self::Delete { condition, .. }
        | Self::Check { condition, .. }) = self;
        condition
    }

    /// The key of the item this write is about.
    pub fn key(&self) -> Result<Key, Error> {
        match self {
            Self::Put { table, item, .. } => table.key_of(item),
            Self::Packed { item, .. } => item.table().key_of(&item.item()?),
            Self::Update { key, .. } | Self::Delete { key, .. } | Self::Check { key, .. } => Ok(key.clone()),
        }
    }

    /// The item after this write, given the item before it; `None` where there is none afterwards.
    pub fn apply(&self, before: Option<Item>) -> Result<Option<Item>, Error> {
        match self {
            Self::Put { item, .. } => Ok(Some(item.clone())),
            Self::Packed { item, .. } => item.item().map(Some),
            Self::Delete { .. } => Ok(None),
            Self::Check { .. } => Ok(before),
            Self::Update { table, key, changes, .. } => updated(table, key, changes, before).map(Some),
        }
    }

    /// The size of a write that was found fit to be done.
    pub(crate) fn checked_size(&self) -> Result<usize, Error> {
        match self {
            Self::Put { table, item, .. } => return table.checked_size(item),
            Self::Packed { item, .. } => return Ok(item.size()),
            Self::Update { table, key, changes, .. } => {
                table.check_key(key)?;
                if changes.is_empty() {
                    return Err(Error::Invalid("an update needs at least one change".to_owned()));
                }
                for (n, change) in changes.iter().enumerate() {
                    let name = change.name();
                    let is_key = table.partition_attribute().0 == name
                        || table.sort_attribute().is_some_and(|(sort, _)| sort == name);
                    if is_key {
                        return Err(Error::Invalid(format!(
                            "key attribute {name} of {} cannot be changed",
                            table.name()
                        )));
                    }
                    // Few names are compared sooner than hashed, and an update has few changes.
                    if changes.iter().take(n).any(|earlier| earlier.name() == name) {
                        return Err(Error::Invalid(format!("attribute {name} is changed twice in one update")));
                    }
                }
                return Ok(changes.iter().map(Change::size).sum());
            }
            Self::Delete { table, key, .. } => table.check_key(key)?,
            Self::Check { table, key, condition } => {
                if matches!(condition, Condition::None | Condition::Fresh) {
                    return Err(Error::Invalid("a check needs a condition".to_owned()));
                }
                table.check_key(key)?;
            }
        }
        Ok(0)
    }
}

/// The item after these changes, given the item before them.
pub(crate) fn updated(table: &Table, key: &Key, changes: &[Change], before: Option<Item>) -> Result<Item, Error> {
    let mut item = before.unwrap_or_else(|| table.key_item(key));
    for change in changes {
        change.apply(&mut item.0)?;
    }
    table.check_item(&item)?;
    Ok(item)
}

impl Change {
    pub(crate) fn name(&self) -> &str {
        let (Self::Set(name, _) | Self::Remove(name) | Self::Add(name, _) | Self::Append(name, _)) = self;
        name
    }

    fn size(&self) -> usize {
        self.name().len()
            + match self {
                Self::Set(_, value) => value.size(),
                Self::Append(_, values) => values.iter().map(Value::size).sum(),
                Self::Remove(_) | Self::Add(..) => 0,
            }
    }

    fn apply(&self, attributes: &mut Attributes) -> Result<(), Error> {
        match self {
            Self::Set(name, value) => {
                attributes.insert(name.clone(), value.clone());
            }
            Self::Remove(name) => {
                attributes.remove(name);
            }
            Self::Add(name, by) => {
                let sum = match attributes.get(name) {
                    None => Ok(Number::from(*by)),
                    Some(Value::N(n)) => n.checked_add(&Number::from(*by)),
                    Some(_) => return Err(Error::Invalid(format!("attribute {name} is no number to add to"))),
                };
                let sum = sum.map_err(|why| Error::Invalid(format!("adding to attribute {name}: {why}")))?;
                attributes.insert(name.clone(), Value::N(sum));
            }
            Self::Append(name, values) => match attributes.get_or_insert(name, Value::L(Vec::new())) {
                Some(Value::L(list)) => list.extend(values.iter().cloned()),
                _ => return Err(Error::Invalid(format!("attribute {name} is no list to append to"))),
            },
        }
        Ok(())
    }
}

/// The table of an item that two of the writes are about.
fn named_twice<'a>(writes: &'a [Write], keys: &[Key]) -> Option<&'a Table> {
    // Few writes are compared sooner than hashed.
    const FEW: usize = 6;
    if writes.len() <= FEW {
        let named = || writes.iter().map(Write::table).zip(keys);
        let mut earlier = named().enumerate();
        return earlier.find_map(|(n, (table, key))| {
            named().take(n).any(|(other, known)| key == known && table.name() == other.name()).then_some(table)
        });
    }
    let mut seen = HashSet::with_capacity(writes.len());
    let mut named = writes.iter().map(Write::table).zip(keys);
    named.find(|(table, key)| !seen.insert((table.name(), *key))).map(|(table, _)| table)
}

/// The keys of a transaction's writes, after the checks every engine makes before it looks at any item.
pub fn check_transaction(writes: &[Write]) -> Result<Vec<Key>, Error> {
    check_count(writes)?;
    let mut keys = Vec::with_capacity(writes.len());
    let mut size = 0;
    for write in writes {
        size += write.checked_size()?;
        keys.push(write.key()?);
    }
    if let Some(twice) = named_twice(writes, &keys) {
        return Err(item_twice(twice));
    }
    check_total(size)?;
    Ok(keys)
}

/// The parts of [`check_transaction`], for an engine that has its own form of keys.
pub(crate) fn check_count(writes: &[Write]) -> Result<(), Error> {
    if writes.is_empty() || writes.len() > limits::TRANSACTION_WRITES {
        let (n, most) = (writes.len(), limits::TRANSACTION_WRITES);
        return Err(Error::Invalid(format!("a transaction has {n} writes, 1 to {most} are allowed")));
    }
    Ok(())
}

pub(crate) fn item_twice(table: &Table) -> Error {
    Error::Invalid(format!("a transaction names one item of {} twice", table.name()))
}

pub(crate) fn check_total(size: usize) -> Result<(), Error> {
    if size > limits::TRANSACTION_BYTES {
        let most = limits::TRANSACTION_BYTES;
        return Err(Error::Invalid(format!("a transaction has {size} bytes, at most {most} are allowed")));
    }
    Ok(())
}
