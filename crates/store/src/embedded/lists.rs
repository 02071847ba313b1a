//! The entries of an index in their order, whether they stand alone or in lists.
//!
//! A list's key sorts right before the entries that start as its own do. So the lists of one start are read together,
//! sorted, and merged with the entries that stand alone.

use std::collections::BTreeSet;

use fjall::Slice;

use super::front::Space;
use super::keys;
use super::view::{Merged, View};
use crate::Error;
use crate::table::KeyKind;

/// An index entry.
pub struct Found {
    pub entry: Vec<u8>,
    /// Whether it comes from a list; then its item may have gone since.
    pub in_list: bool,
    /// The item, if it stands beside its entry.
    pub whole: Option<Slice>,
}

pub struct Entries<'a> {
    view: &'a View<'a>,
    low: Vec<u8>,
    high: Vec<u8>,
    descending: bool,
    /// The type of the partition key and the bytes of the sort key that a list's entries share, if there are lists.
    lists: Option<(KeyKind, usize)>,
    stream: Merged<'a>,
    /// The next entry that stands alone.
    alone: Option<(Vec<u8>, Slice)>,
    /// Entries from lists that were read and not given yet.
    listed: BTreeSet<Vec<u8>>,
    /// Whose lists were read last.
    shared: Vec<u8>,
    /// Whose lists come next, once those that were read are given.
    ahead: Option<Vec<u8>>,
}

impl<'a> Entries<'a> {
    /// The entries from `low` up to and without `high`.
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
        let (alone, listed, shared) = (None, BTreeSet::new(), Vec::new());
        Self { view, low, high, descending, lists, stream, alone, listed, shared, ahead: None }
    }

    fn found(&mut self) -> Result<Option<Found>, Error> {
        while self.alone.is_none() {
            // No further than one start ahead: there may be nothing but lists.
            if let Some(shared) = self.ahead.take_if(|_| self.listed.is_empty()) {
                self.read_lists(shared)?;
            }
            if self.ahead.is_some() {
                break;
            }
            let Some(pair) = self.stream.next() else { break };
            let (key, value) = pair?;
            if !value.is_empty() && self.lists.is_some() {
                let shared = keys::shared_of_list(&key).filter(|shared| *shared != self.shared);
                self.ahead = shared.map(<[u8]>::to_vec);
                continue;
            }
            // Lists stand below their entries: going up they are met first, going down they must be looked for.
            if let (Some((kind, bytes)), true) = (self.lists, self.descending) {
                let shared = keys::start_len(&key, kind, bytes).and_then(|len| key.get(..len));
                if let Some(shared) = shared.filter(|shared| *shared != self.shared) {
                    self.read_lists(shared.to_vec())?;
                }
            }
            self.alone = (*key >= *self.low && *key < *self.high).then(|| (key.to_vec(), value));
        }
        let listed = if self.descending { self.listed.last() } else { self.listed.first() };
        let is_next = |listed: &Vec<u8>, (alone, _): &(Vec<u8>, Slice)| {
            if self.descending { listed > alone } else { listed < alone }
        };
        if listed.is_some_and(|listed| self.alone.as_ref().is_none_or(|alone| is_next(listed, alone))) {
            let entry = if self.descending { self.listed.pop_last() } else { self.listed.pop_first() };
            return Ok(entry.map(|entry| Found { entry, in_list: true, whole: None }));
        }
        let Some((entry, whole)) = self.alone.take() else { return Ok(None) };
        // An item that was written again may stand in both places.
        self.listed.remove(&entry);
        Ok(Some(Found { entry, in_list: false, whole: (!whole.is_empty()).then_some(whole) }))
    }

    /// Takes in the entries of all lists that share a start.
    fn read_lists(&mut self, shared: Vec<u8>) -> Result<(), Error> {
        for pair in self.view.prefix(Space::Index, &keys::lists_of(&shared)) {
            let (_, list) = pair?;
            for rest in keys::keys_of_list(&list) {
                let entry = [&shared, rest].concat();
                if entry >= self.low && entry < self.high {
                    self.listed.insert(entry);
                }
            }
        }
        self.shared = shared;
        Ok(())
    }
}

impl Iterator for Entries<'_> {
    type Item = Result<Found, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.found().transpose()
    }
}
