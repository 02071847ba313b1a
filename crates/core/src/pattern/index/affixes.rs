//! Prefixes by hash and length; suffixes too, read backwards.
//!
//! The hash grows byte by byte, so one pass over a text gives the hashes of all its beginnings. Texts are not kept: two
//! with the same hash only call up each other's rules, which are verified anyway.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::{Posting, Postings, RuleId};

#[derive(Debug, Clone, Default)]
pub(super) struct Affixes {
    /// By hash and length.
    by_hash: FxHashMap<(u64, usize), Postings>,
    /// The lengths in use, and how many hashes there are of each.
    lengths: BTreeMap<usize, u32>,
}

/// FNV-1a's start and factor.
const START: u64 = 0xcbf2_9ce4_8422_2325;
const FACTOR: u64 = 0x0000_0100_0000_01b3;

impl Affixes {
    pub(super) fn is_empty(&self) -> bool {
        self.by_hash.is_empty()
    }

    pub(super) fn add(&mut self, affix: impl ExactSizeIterator<Item = u8>, posting: Posting) {
        let length = affix.len();
        let postings = self.by_hash.entry((grow(START, affix), length)).or_default();
        if postings.is_empty() {
            *self.lengths.entry(length).or_default() += 1;
        }
        postings.add(posting);
    }

    pub(super) fn remove(&mut self, affix: impl ExactSizeIterator<Item = u8>, rule: RuleId) {
        let length = affix.len();
        let key = (grow(START, affix), length);
        if !self.by_hash.get_mut(&key).is_some_and(|postings| postings.remove(rule)) {
            return;
        }
        self.by_hash.remove(&key);
        if let Some(count) = self.lengths.get_mut(&length) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&length);
            }
        }
    }

    /// Calls up the rules of every affix that the text starts with.
    pub(super) fn look_up(&self, mut text: impl ExactSizeIterator<Item = u8>, call: &mut impl FnMut(&Posting)) {
        let total = text.len();
        let (mut hash, mut read) = (START, 0);
        for (&length, _) in self.lengths.range(..=total) {
            hash = grow(hash, text.by_ref().take(length - read));
            read = length;
            if let Some(postings) = self.by_hash.get(&(hash, length)) {
                postings.each(call);
            }
        }
    }
}

#[inline]
fn grow(hash: u64, bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(FACTOR))
}
