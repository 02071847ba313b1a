//! Address blocks: an address is cut to each block size in use and looked up.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::super::predicate::Net;
use super::{Posting, Postings, RuleId};

#[derive(Debug, Clone, Default)]
pub(super) struct Nets {
    blocks: FxHashMap<Net, Postings>,
    /// Block sizes in use, with the number of blocks of each; at most 33 for v4 and 129 for v6.
    sizes: BTreeMap<u8, u32>,
}

impl Nets {
    pub(super) fn add(&mut self, net: Net, posting: Posting) {
        let postings = self.blocks.entry(net).or_default();
        if postings.is_empty() {
            *self.sizes.entry(net.bits).or_default() += 1;
        }
        postings.add(posting);
    }

    pub(super) fn remove(&mut self, net: Net, rule: RuleId) {
        if !self.blocks.get_mut(&net).is_some_and(|postings| postings.remove(rule)) {
            return;
        }
        self.blocks.remove(&net);
        if let Some(count) = self.sizes.get_mut(&net.bits) {
            *count -= 1;
            if *count == 0 {
                self.sizes.remove(&net.bits);
            }
        }
    }

    pub(super) fn look_up(&self, text: &str, call: &mut impl FnMut(&Posting)) {
        // The longest address has 45 characters; longer text need not be read.
        if self.blocks.is_empty() || text.len() > 45 {
            return;
        }
        let Ok(address) = text.parse() else { return };
        for &bits in self.sizes.keys() {
            if let Some(postings) = Net::around(address, bits).and_then(|net| self.blocks.get(&net)) {
                postings.each(call);
            }
        }
    }
}
