//! The entries of an index in their order, whether they stand alone or in lists; and the items of a table, whether they stand
//! alone or in sheaves.
//!
//! What holds a crowd of entries that start alike stands right before them, if it is a list, or right behind them, if it is a
//! sheaf. So the crowds of one start are read together, sorted, and merged with the entries that stand alone.

use std::collections::BTreeMap;

use fjall::Slice;

use super::front::Space;
use super::stored::items_of;
use super::view::{Merged, View};
use super::{binding, keys, sheaf};
use crate::Error;
use crate::table::KeyKind;

/// An entry.
pub struct Found {
    pub entry: Vec<u8>,
    /// Whether it comes from a list; then its item may have gone since.
    pub in_list: bool,
    /// The item, if it stands beside its entry, or is it; of items none is a hole.
    pub whole: Option<Slice>,
}

pub struct Entries<'a> {
    view: &'a View<'a>,
    space: Space,
    low: Vec<u8>,
    high: Vec<u8>,
    descending: bool,
    /// The type of the partition key and the bytes of the sort key that a crowd shares, if there are crowds.
    crowds: Option<(KeyKind, usize)>,
    stream: Merged<'a>,
    /// The next entry that stands alone.
    alone: Option<(Vec<u8>, Slice)>,
    /// Entries of crowds that were read and not given yet; of items, what they are.
    crowded: BTreeMap<Vec<u8>, Slice>,
    /// Whose crowds were read last.
    shared: Vec<u8>,
    /// Whose crowds come next, once those that were read are given.
    ahead: Option<Vec<u8>>,
}

impl<'a> Entries<'a> {
    /// The entries of an index from `low` up to and without `high`.
    pub fn new(
        view: &'a View<'a>,
        low: Vec<u8>,
        high: Vec<u8>,
        descending: bool,
        lists: Option<(KeyKind, usize)>,
    ) -> Self {
        // A list that holds the lowest entries may itself stand below them.
        let first = lists.and_then(|(kind, bytes)| low.get(..keys::start_len(&low, kind, bytes)?)).unwrap_or(&low);
        let stream = view.range(Space::Index, first.to_vec(), high.clone(), descending);
        Self::over(view, Space::Index, (low, high), descending, lists, stream)
    }

    /// The items of a table that has sheaves, in the same way.
    pub fn of_sheaves(
        view: &'a View<'a>,
        low: Vec<u8>,
        high: Vec<u8>,
        descending: bool,
        (kind, bytes): (KeyKind, usize),
    ) -> Self {
        // A sheaf that holds the highest items stands above them.
        let shared = keys::start_len(&high, kind, bytes).and_then(|len| high.get(..len));
        let last = shared.map_or_else(|| high.clone(), |shared| keys::after_prefix(sheaf::sheaves_of(shared)));
        let stream = view.range(Space::Apart, low.clone(), last.max(high.clone()), descending);
        Self::over(view, Space::Apart, (low, high), descending, Some((kind, bytes)), stream)
    }

    fn over(
        view: &'a View<'a>,
        space: Space,
        (low, high): (Vec<u8>, Vec<u8>),
        descending: bool,
        crowds: Option<(KeyKind, usize)>,
        stream: Merged<'a>,
    ) -> Self {
        let (alone, crowded, shared, ahead) = (None, BTreeMap::new(), Vec::new(), None);
        Self { view, space, low, high, descending, crowds, stream, alone, crowded, shared, ahead }
    }

    fn found(&mut self) -> Result<Option<Found>, Error> {
        self.look_ahead()?;
        let first = if self.descending { self.crowded.last_key_value() } else { self.crowded.first_key_value() };
        let is_next = |entry: &Vec<u8>, (alone, _): &(Vec<u8>, Slice)| {
            if self.descending { entry > alone } else { entry < alone }
        };
        if first.is_some_and(|(entry, _)| self.alone.as_ref().is_none_or(|alone| is_next(entry, alone))) {
            let found = if self.descending { self.crowded.pop_last() } else { self.crowded.pop_first() };
            return Ok(found.map(|(entry, item)| Found { entry, in_list: true, whole: beside(item) }));
        }
        let Some((entry, whole)) = self.alone.take() else { return Ok(None) };
        // An item that was written again may stand in both places.
        self.crowded.remove(&entry);
        Ok(Some(Found { entry, in_list: false, whole: beside(whole) }))
    }

    /// Reads up to the next entry that stands alone, and the crowds on the way to it.
    fn look_ahead(&mut self) -> Result<(), Error> {
        // Lists stand below their entries and are met first going up, sheaves going down; else they must be looked for.
        let are_met_first = self.descending == (self.space == Space::Apart);
        while self.alone.is_none() {
            // No further than one start ahead: there may be nothing but crowds.
            if let Some(shared) = self.ahead.take_if(|_| self.crowded.is_empty()) {
                self.read_crowds(shared)?;
            }
            if self.ahead.is_some() {
                break;
            }
            let Some(pair) = self.stream.next() else { break };
            let (key, value) = pair?;
            if self.is_crowd(&key, &value) {
                // Both kinds of keys end with as many bytes of their own.
                let shared = keys::shared_of_list(&key).filter(|shared| *shared != self.shared);
                self.ahead = shared.map(<[u8]>::to_vec);
                continue;
            }
            if let (Some((kind, bytes)), false) = (self.crowds, are_met_first) {
                let shared = keys::start_len(&key, kind, bytes).and_then(|len| key.get(..len));
                if let Some(shared) = shared.filter(|shared| *shared != self.shared) {
                    self.read_crowds(shared.to_vec())?;
                }
            }
            self.alone = (*key >= *self.low && *key < *self.high).then(|| (key.to_vec(), value));
        }
        Ok(())
    }

    fn is_crowd(&self, key: &[u8], value: &[u8]) -> bool {
        self.crowds.is_some() && if self.space == Space::Apart { sheaf::is_key(key) } else { !value.is_empty() }
    }

    /// Takes in the entries of all crowds that share a start.
    fn read_crowds(&mut self, shared: Vec<u8>) -> Result<(), Error> {
        let mut found = Vec::new();
        let mut take_in = |rest: &[u8], item: Slice| {
            let entry = [&shared, rest].concat();
            if entry >= self.low && entry < self.high {
                found.push((entry, item));
            }
        };
        if self.space == Space::Apart {
            items_of(self.view, &shared)?.into_iter().for_each(|(rest, item)| take_in(&rest, item));
        } else {
            for pair in self.view.prefix(self.space, &keys::lists_of(&shared)) {
                let (_, list) = pair?;
                match binding::sheaf_of_list(&list) {
                    Some(sheaf_key) => self.led_to(sheaf_key)?.iter().for_each(|rest| take_in(rest, Slice::default())),
                    None => keys::keys_of_list(&list).for_each(|rest| take_in(rest, Slice::default())),
                }
            }
        }
        // Sorted once: to find the place of each among the others takes longer.
        self.crowded.append(&mut found.into_iter().collect());
        self.shared = shared;
        Ok(())
    }

    /// The rests of the entries that lead to the items of a sheaf.
    fn led_to(&self, sheaf_key: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        let (start, bytes) = (sheaf::shared_of(sheaf_key), self.crowds.map(|(_, bytes)| bytes));
        let (Some(start), Some(bytes)) = (start, bytes) else { return Ok(Vec::new()) };
        // It may have gone since, and the list not yet.
        let sheaf = self.view.get(Space::Apart, &Slice::from(sheaf_key))?;
        let items = sheaf.map(|sheaf| sheaf::items(&sheaf)).transpose()?.unwrap_or_default();
        Ok(items.iter().filter_map(|(rest, _)| binding::entry_rest(start, bytes, rest)).collect())
    }
}

/// What stands beside an entry, if anything does.
fn beside(whole: Slice) -> Option<Slice> {
    (!whole.is_empty()).then_some(whole)
}

impl Iterator for Entries<'_> {
    type Item = Result<Found, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.found().transpose()
    }
}
