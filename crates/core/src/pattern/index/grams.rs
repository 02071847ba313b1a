//! Literals inside wildcards, found by their last bytes.

use rustc_hash::FxHashMap;

use super::{Posting, Postings, RuleId};

/// Bytes of a literal that are looked up: enough to be rare, few enough to fit a word.
const WIDTH: usize = 8;

/// By the number of bytes, less one: shorter literals have tables of their own.
#[derive(Debug, Clone, Default)]
pub(super) struct Grams {
    by_width: [FxHashMap<u64, Postings>; WIDTH],
}

impl Grams {
    pub(super) fn add(&mut self, literal: &str, posting: Posting) {
        let (width, gram) = last_bytes(literal);
        if let Some(table) = self.by_width.get_mut(width - 1) {
            table.entry(gram).or_default().add(posting);
        }
    }

    pub(super) fn remove(&mut self, literal: &str, rule: RuleId) {
        let (width, gram) = last_bytes(literal);
        if let Some(table) = self.by_width.get_mut(width - 1)
            && table.get_mut(&gram).is_some_and(|postings| postings.remove(rule))
        {
            table.remove(&gram);
        }
    }

    pub(super) fn look_up(&self, text: &str, call: &mut impl FnMut(&Posting)) {
        for (table, width) in self.by_width.iter().zip(1..) {
            if table.is_empty() {
                continue;
            }
            for window in text.as_bytes().windows(width) {
                if let Some(postings) = table.get(&pack(window)) {
                    postings.each(call);
                }
            }
        }
    }
}

fn last_bytes(literal: &str) -> (usize, u64) {
    let width = literal.len().clamp(1, WIDTH);
    (width, pack(literal.as_bytes().last_chunk::<WIDTH>().map_or(literal.as_bytes(), |bytes| bytes)))
}

#[inline]
pub(super) fn pack(bytes: &[u8]) -> u64 {
    // The usual width in one step.
    if let Ok(whole) = <[u8; WIDTH]>::try_from(bytes) {
        return u64::from_be_bytes(whole);
    }
    bytes.iter().fold(0, |packed, &byte| (packed << 8) | u64::from(byte))
}
