//! Values by name, in the order of their names.
//!
//! An item has a dozen attributes, and is built, read and thrown away many thousand times a second. One piece of memory
//! for all of them, looked through from its start, costs less than a tree.

use crate::item::{Name, Value};

/// Attributes that most items have room for from the start.
const ROOM: usize = 10;

/// The attributes of an item, or the entries of a map inside it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Attributes(Vec<(Name, Value)>);

impl Attributes {
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Room for so many.
    #[must_use]
    pub fn with_capacity(count: usize) -> Self {
        Self(Vec::with_capacity(count))
    }

    /// These in their order; of those with one name the last. However many there are: somebody else may have named them.
    pub(crate) fn from_vec(mut entries: Vec<(Name, Value)>) -> Self {
        if !entries.is_sorted_by(|(a, _), (b, _)| a < b) {
            entries.sort_by(|(a, _), (b, _)| a.cmp(b));
            entries.dedup_by(|later, kept| {
                let same = later.0 == kept.0;
                if same {
                    std::mem::swap(later, kept);
                }
                same
            });
        }
        Self(entries)
    }

    /// These and others; of those with one name, the other.
    #[must_use]
    pub fn joined(self, others: impl IntoIterator<Item = (Name, Value)>) -> Self {
        Self::of_two(self, others)
    }

    /// What two lists have; of those with one name, that of the second.
    #[must_use]
    pub fn of_two(
        first: impl IntoIterator<Item = (Name, Value)>,
        second: impl IntoIterator<Item = (Name, Value)>,
    ) -> Self {
        let (own, others) = (first.into_iter(), second.into_iter());
        let most = |(least, most): (usize, Option<usize>)| most.unwrap_or(least);
        let mut all = Vec::with_capacity(most(own.size_hint()) + most(others.size_hint()));
        // Both are mostly in their order, and then so is what they are together.
        let mut own = own.peekable();
        for other in others {
            while let Some(before) = own.next_if(|(name, _)| *name <= other.0) {
                all.push(before);
            }
            all.push(other);
        }
        all.extend(own);
        Self::from_vec(all)
    }

    fn place(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| (**known).cmp(name))
    }

    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        // Names of another length are told apart at once; to halve the range would compare their letters.
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    #[must_use]
    pub fn contains_key(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Sets a value, and gives the one that was there.
    pub fn insert(&mut self, name: impl Into<Name>, value: impl Into<Value>) -> Option<Value> {
        let (name, value) = (name.into(), value.into());
        // Who names them in their order is done at once.
        if self.0.last().is_none_or(|(last, _)| **last < *name) {
            if self.0.capacity() == 0 {
                self.0.reserve_exact(ROOM);
            }
            self.0.push((name, value));
            return None;
        }
        match self.place(&name) {
            Ok(place) => self.0.get_mut(place).map(|(_, old)| std::mem::replace(old, value)),
            Err(place) => {
                self.0.insert(place, (name, value));
                None
            }
        }
    }

    /// The value of that name, made if it is not there.
    pub fn get_or_insert(&mut self, name: &Name, new: Value) -> Option<&mut Value> {
        if let Err(place) = self.place(name) {
            self.0.insert(place, (name.clone(), new));
        }
        self.0.iter_mut().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    pub fn remove(&mut self, name: &str) -> Option<Value> {
        self.place(name).ok().map(|place| self.0.remove(place).1)
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> Iter<'_> {
        self.0.iter().map(|(name, value)| (name, value))
    }

    pub fn keys(&self) -> impl Iterator<Item = &Name> {
        self.0.iter().map(|(name, _)| name)
    }

    pub fn values(&self) -> impl Iterator<Item = &Value> {
        self.0.iter().map(|(_, value)| value)
    }
}

/// Names and values in their order.
pub type Iter<'a> = std::iter::Map<std::slice::Iter<'a, (Name, Value)>, fn(&(Name, Value)) -> (&Name, &Value)>;

impl<'a> IntoIterator for &'a Attributes {
    type Item = (&'a Name, &'a Value);
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl IntoIterator for Attributes {
    type Item = (Name, Value);
    type IntoIter = std::vec::IntoIter<(Name, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl Extend<(Name, Value)> for Attributes {
    fn extend<T: IntoIterator<Item = (Name, Value)>>(&mut self, entries: T) {
        for (name, value) in entries {
            self.insert(name, value);
        }
    }
}

impl FromIterator<(Name, Value)> for Attributes {
    fn from_iter<T: IntoIterator<Item = (Name, Value)>>(entries: T) -> Self {
        Self::from_vec(entries.into_iter().collect())
    }
}

impl<const N: usize> From<[(Name, Value); N]> for Attributes {
    fn from(entries: [(Name, Value); N]) -> Self {
        entries.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The same as a tree, whatever is done in whatever order.
        #[test]
        fn attributes_are_a_map(steps in prop::collection::vec(("[a-d]{0,3}", any::<Option<i64>>()), 0..40)) {
            let (mut ours, mut tree) = (Attributes::new(), BTreeMap::new());
            for (name, value) in steps {
                let name = Name::from(name);
                match value {
                    Some(value) => {
                        prop_assert_eq!(ours.insert(name.clone(), value), tree.insert(name, Value::from(value)));
                    }
                    None => prop_assert_eq!(ours.remove(&name), tree.remove(&name)),
                }
                prop_assert_eq!(ours.len(), tree.len());
                prop_assert!(ours.iter().eq(tree.iter()));
                prop_assert!(tree.keys().all(|name| ours.get(name) == tree.get(name)));
            }
            let mut backwards: Vec<_> = tree.clone().into_iter().collect();
            prop_assert_eq!(&Attributes::from_vec(backwards.clone()), &ours);
            backwards.reverse();
            prop_assert_eq!(&Attributes::from_vec(backwards.clone()), &ours);
            // What stands twice: the last one counts.
            let first: Attributes = backwards.iter().map(|(name, _)| (name.clone(), Value::Null)).collect();
            prop_assert_eq!(&first.clone().into_iter().chain(backwards.clone()).collect::<Attributes>(), &ours);
            prop_assert_eq!(&first.joined(backwards), &ours);
        }
    }

    #[test]
    fn what_is_missing_is_made_once() {
        let mut all = Attributes::from([("b".into(), Value::from(1))]);
        assert_eq!(all.get_or_insert(&"a".into(), Value::Null), Some(&mut Value::Null));
        assert_eq!(all.get_or_insert(&"b".into(), Value::Null), Some(&mut Value::from(1)));
        assert_eq!(all.keys().collect::<Vec<_>>(), ["a", "b"]);
    }
}
