//! Numbers that compare by value, whatever way they were written.

use serde_json::Number;

/// A JSON number in a form that equality, order and hashing can use directly.
///
/// `order` is the nearest double, its bits rearranged so that unsigned order is numeric order; `rest` is what an
/// integer too large for a double has beyond it. Rounding keeps order, so comparing the two in turn is exact for every
/// integer of 64 bits. Everything else is a double, as JSON readers commonly have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Num {
    order: u64,
    rest: i32,
}

impl Num {
    pub(super) fn from_f64(value: f64) -> Num {
        Num { order: order_of(value), rest: 0 }
    }

    pub(super) fn from_integer(value: i128) -> Num {
        let nearest = value as f64;
        Num { order: order_of(nearest), rest: (value - nearest as i128) as i32 }
    }

    pub(super) fn from_json(number: &Number) -> Option<Num> {
        if let Some(value) = number.as_u64() {
            return Some(Num::from_integer(value.into()));
        }
        if let Some(value) = number.as_i64() {
            return Some(Num::from_integer(value.into()));
        }
        number.as_f64().filter(|value| value.is_finite()).map(Num::from_f64)
    }

    /// Reads a number's text. Short integers are read here; the rest goes to `serde_json`, so that an event read as
    /// text and an event read as a tree hold the very same numbers.
    pub(super) fn parse(text: &str) -> Option<Num> {
        short_integer(text).or_else(|| Num::from_json(&serde_json::from_str::<Number>(text).ok()?))
    }

    /// Whether no other number has the same nearest double: so it is below 2^53.
    pub(super) fn is_alone(self) -> bool {
        const LIMIT: f64 = 9_007_199_254_740_992.0;
        self.order > order_of(-LIMIT) && self.order < order_of(LIMIT)
    }

    /// The nearest double's place among all doubles. Equal places do not prove equal numbers.
    pub(super) fn order(self) -> u64 {
        self.order
    }
}

fn order_of(value: f64) -> u64 {
    // Adding zero turns -0.0 into 0.0: they are one number.
    let bits = (value + 0.0).to_bits();
    if bits >> 63 == 1 { !bits } else { bits | (1 << 63) }
}

/// At most 15 digits are exact in a double. A leading zero is left to the strict reader.
fn short_integer(text: &str) -> Option<Num> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    if digits.is_empty() || digits.len() > 15 || (digits.len() > 1 && digits.starts_with('0')) {
        return None;
    }
    let mut value = 0i64;
    for digit in digits.bytes() {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value * 10 + i64::from(digit - b'0');
    }
    Some(Num::from_f64(if negative { -value } else { value } as f64))
}
