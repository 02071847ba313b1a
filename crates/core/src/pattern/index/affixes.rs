//! Prefixes in byte order; suffixes too, turned around.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::{Postings, RuleId};

#[derive(Debug, Default)]
pub(super) struct Affixes {
    sorted: BTreeMap<Box<[u8]>, Postings>,
}

impl Affixes {
    pub(super) fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    pub(super) fn add(&mut self, affix: impl Iterator<Item = u8>, rule: RuleId) {
        self.sorted.entry(affix.collect()).or_default().add(rule);
    }

    pub(super) fn remove(&mut self, affix: impl Iterator<Item = u8>, rule: RuleId) {
        let affix: Box<[u8]> = affix.collect();
        if self.sorted.get_mut(&affix).is_some_and(|postings| postings.remove(rule)) {
            self.sorted.remove(&affix);
        }
    }

    /// Calls up the rules of every affix that `text` starts with.
    ///
    /// The greatest affix not above the text shares some first bytes with it. A longer affix of the text would sort
    /// between the two, so none exists, and the search goes on with the shared bytes alone: each step shortens the text.
    pub(super) fn look_up(&self, text: &[u8], call: &mut impl FnMut(RuleId)) {
        let mut bound = Bound::Included(text);
        while let Some((affix, postings)) = self.sorted.range::<[u8], _>((Bound::Unbounded, bound)).next_back() {
            let shared = affix.iter().zip(text).take_while(|(a, b)| a == b).count();
            if shared == affix.len() {
                postings.each(call);
                bound = Bound::Excluded(affix);
            } else {
                bound = Bound::Included(text.get(..shared).unwrap_or(&[]));
            }
        }
    }
}
