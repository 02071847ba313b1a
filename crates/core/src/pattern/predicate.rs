//! What a pattern asks of one field, and whether one value satisfies it.

use std::net::IpAddr;

use super::number::Num;
use super::wildcard::Wildcard;

/// A leaf of an event: what is neither object nor array.
#[derive(Debug, Clone, Copy)]
pub(super) enum Scalar<'a> {
    Null,
    Bool(bool),
    Number(Num),
    Text(&'a str),
}

/// One field of a pattern with all its alternatives. Kept apart by kind, so that long lists are searched, not scanned.
#[derive(Debug, Default)]
pub(super) struct Field {
    pub(super) path: Box<[Box<str>]>,
    /// Sorted.
    pub(super) texts: Box<[Box<str>]>,
    /// Sorted.
    pub(super) numbers: Box<[Num]>,
    pub(super) tests: Box<[Test]>,
    pub(super) changed: Option<Box<Changed>>,
    pub(super) null: bool,
    pub(super) yes: bool,
    pub(super) no: bool,
    /// `{"exists": true}`
    pub(super) present: bool,
    /// `{"exists": false}`
    pub(super) absent: bool,
}

/// `{"changed": …}`: the same field under the other image, and which answers are wanted.
#[derive(Debug)]
pub(super) struct Changed {
    pub(super) other: Box<[Box<str>]>,
    pub(super) differs: bool,
    pub(super) same: bool,
}

#[derive(Debug)]
pub(super) enum Test {
    Prefix(Box<str>),
    Suffix(Box<str>),
    /// The three below hold lower case.
    Folded(Box<str>),
    FoldedPrefix(Box<str>),
    FoldedSuffix(Box<str>),
    Wildcard(Wildcard),
    Range(Range),
    Net(Net),
    AnythingBut(AnythingBut),
}

/// Everything that `anything-but` excludes.
#[derive(Debug, Default)]
pub(super) struct AnythingBut {
    /// Sorted.
    pub(super) texts: Box<[Box<str>]>,
    /// Sorted.
    pub(super) numbers: Box<[Num]>,
    pub(super) tests: Box<[Test]>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Range {
    pub(super) low: Option<Bound>,
    pub(super) high: Option<Bound>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Bound {
    pub(super) value: Num,
    pub(super) included: bool,
}

/// A block of addresses: those that agree with `base` in the first `bits` bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Net {
    pub(super) v6: bool,
    pub(super) bits: u8,
    pub(super) base: u128,
}

impl Field {
    /// Whether a value at this field's path satisfies one of the alternatives that look at one value.
    /// `absent` and `changed` look at the whole event and are asked elsewhere.
    pub(super) fn accepts(&self, value: Scalar<'_>) -> bool {
        if self.present {
            return true;
        }
        let listed = match value {
            Scalar::Null => self.null,
            Scalar::Bool(true) => self.yes,
            Scalar::Bool(false) => self.no,
            Scalar::Number(number) => contains_number(&self.numbers, number),
            Scalar::Text(text) => contains_text(&self.texts, text),
        };
        listed || self.tests.iter().any(|test| test.accepts(value))
    }

    /// Whether values have to be looked at one by one, or `changed` says it all.
    pub(super) fn reads_values(&self) -> bool {
        self.changed.is_none()
            || self.present
            || self.absent
            || self.null
            || self.yes
            || self.no
            || !(self.texts.is_empty() && self.numbers.is_empty() && self.tests.is_empty())
    }
}

impl Test {
    pub(super) fn accepts(&self, value: Scalar<'_>) -> bool {
        match (self, value) {
            (Test::AnythingBut(excluded), _) => !excluded.holds(value),
            (Test::Range(range), Scalar::Number(number)) => range.holds(number),
            (Test::Prefix(prefix), Scalar::Text(text)) => text.starts_with(&**prefix),
            (Test::Suffix(suffix), Scalar::Text(text)) => text.ends_with(&**suffix),
            (Test::Folded(folded), Scalar::Text(text)) => lower(text).eq(folded.chars()),
            (Test::FoldedPrefix(folded), Scalar::Text(text)) => starts_with(lower(text), folded.chars()),
            (Test::FoldedSuffix(folded), Scalar::Text(text)) => {
                starts_with(lower_backwards(text), folded.chars().rev())
            }
            (Test::Wildcard(wildcard), Scalar::Text(text)) => wildcard.matches(text),
            (Test::Net(net), Scalar::Text(text)) => text.parse().is_ok_and(|address| net.holds(address)),
            _ => false,
        }
    }
}

impl AnythingBut {
    fn holds(&self, value: Scalar<'_>) -> bool {
        let listed = match value {
            Scalar::Number(number) => contains_number(&self.numbers, number),
            Scalar::Text(text) => contains_text(&self.texts, text),
            Scalar::Null | Scalar::Bool(_) => false,
        };
        listed || self.tests.iter().any(|test| test.accepts(value))
    }
}

impl Range {
    fn holds(&self, number: Num) -> bool {
        let above = self.low.is_none_or(|low| number > low.value || (low.included && number == low.value));
        let below = self.high.is_none_or(|high| number < high.value || (high.included && number == high.value));
        above && below
    }
}

impl Net {
    /// The block of `bits` bits around an address. `None` if the address has fewer bits.
    pub(super) fn around(address: IpAddr, bits: u8) -> Option<Net> {
        let (v6, width, value) = match address {
            IpAddr::V4(v4) => (false, 32, u128::from(v4.to_bits())),
            IpAddr::V6(v6) => (true, 128, v6.to_bits()),
        };
        let host_bits = u32::from(u8::checked_sub(width, bits)?);
        let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
        Some(Net { v6, bits, base: value & mask })
    }

    fn holds(&self, address: IpAddr) -> bool {
        Net::around(address, self.bits) == Some(*self)
    }
}

/// Lower case, character by character: what `equals-ignore-case` compares.
pub(super) fn lower(text: &str) -> impl Iterator<Item = char> {
    text.chars().flat_map(char::to_lowercase)
}

fn lower_backwards(text: &str) -> impl Iterator<Item = char> {
    text.chars().rev().flat_map(|c| c.to_lowercase().rev())
}

fn starts_with(mut text: impl Iterator<Item = char>, mut start: impl Iterator<Item = char>) -> bool {
    start.all(|c| text.next() == Some(c))
}

fn contains_text(sorted: &[Box<str>], text: &str) -> bool {
    match sorted {
        [] => false,
        [only] => &**only == text,
        many => many.binary_search_by(|one| (**one).cmp(text)).is_ok(),
    }
}

fn contains_number(sorted: &[Num], number: Num) -> bool {
    match sorted {
        [] => false,
        [only] => *only == number,
        many => many.binary_search(&number).is_ok(),
    }
}
