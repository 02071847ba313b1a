//! Numeric ranges: an interval tree over the fixed order of all doubles.
//!
//! A range is kept at the highest bit in which its two ends differ, under the bits above it, which it shares with every
//! number it holds. A number is looked up once for each bit in use. At such a place all ranges hold the middle, so for
//! a number below it only the low ends matter and above it only the high ends: what is called up is what holds.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::super::number::Num;
use super::super::predicate::{Bound, Range};
use super::{Guard, Posting, RuleId};

#[derive(Debug, Clone, Default)]
pub(super) struct Ranges {
    /// By the number of low bits that are free, and the bits above them.
    spots: FxHashMap<(u32, u64), Spot>,
    /// By the number of free bits: how many spots there are. At most 65 entries.
    sizes: BTreeMap<u32, u32>,
}

#[derive(Debug, Clone, Default)]
struct Spot {
    /// With each rule, whether the range is all that it asks.
    by_low: BTreeMap<(u64, RuleId), bool>,
    by_high: BTreeMap<(u64, RuleId), bool>,
}

impl Ranges {
    pub(super) fn add(&mut self, range: Range, posting: Posting) {
        let Posting { rule, whole, guard } = posting;
        let whole = whole && matches!(guard, Guard::None);
        let (low, high) = ends(range);
        let (free, above) = place(low, high);
        let spot = self.spots.entry((free, above)).or_insert_with(|| {
            *self.sizes.entry(free).or_default() += 1;
            Spot::default()
        });
        spot.by_low.insert((low, rule), whole);
        spot.by_high.insert((high, rule), whole);
    }

    pub(super) fn remove(&mut self, range: Range, rule: RuleId) {
        let (low, high) = ends(range);
        let place = place(low, high);
        let Some(spot) = self.spots.get_mut(&place) else { return };
        spot.by_low.remove(&(low, rule));
        spot.by_high.remove(&(high, rule));
        if !spot.by_low.is_empty() {
            return;
        }
        self.spots.remove(&place);
        if let Some(count) = self.sizes.get_mut(&place.0) {
            *count -= 1;
            if *count == 0 {
                self.sizes.remove(&place.0);
            }
        }
    }

    pub(super) fn look_up(&self, number: Num, call: &mut impl FnMut(&Posting)) {
        if self.spots.is_empty() {
            return;
        }
        let order = number.order();
        for &free in self.sizes.keys() {
            let Some(spot) = self.spots.get(&(free, bits_above(order, free))) else { continue };
            let mut call = |(&(_, rule), &whole): (&(u64, RuleId), &bool)| {
                call(&Posting { rule, whole, guard: Guard::None });
            };
            // The highest free bit tells which side of the middle the number is on.
            let upper = free > 0 && (order >> (free - 1)) & 1 == 1;
            if upper {
                spot.by_high.range((order, 0)..).for_each(&mut call);
            } else {
                spot.by_low.range(..=(order, RuleId::MAX)).for_each(&mut call);
            }
        }
    }
}

/// The first and the last place in the order of doubles that a range holds. The ends are small enough to be doubles
/// themselves, so what is beyond one that is not included begins with the next double.
pub(super) fn ends(range: Range) -> (u64, u64) {
    let beyond = |bound: Bound| u64::from(!bound.included);
    let low = range.low.map_or(0, |low| low.value.order().saturating_add(beyond(low)));
    let high = range.high.map_or(u64::MAX, |high| high.value.order().saturating_sub(beyond(high)));
    (low, high)
}

fn place(low: u64, high: u64) -> (u32, u64) {
    let free = 64 - (low ^ high).leading_zeros();
    (free, bits_above(low, free))
}

fn bits_above(order: u64, free: u32) -> u64 {
    order.checked_shr(free).unwrap_or(0)
}
