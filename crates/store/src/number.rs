//! DynamoDB's numbers: decimal, up to 38 significant digits, compared by value.

mod decimal;
mod whole;

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use decimal::Decimal;

/// A decimal number. One value has one form, so equality and hashing are by value.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Number(Form);

/// Nearly all are times and counts, for which a machine has numbers of its own; the others are seldom, and elsewhere, so
/// that an item is small.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Form {
    Whole(i64),
    /// Never what `Whole` can say.
    Decimal(Box<Decimal>),
}

/// The text is no number, or one that DynamoDB cannot hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotANumber(pub &'static str);

impl Number {
    fn decimal(&self) -> Decimal {
        match &self.0 {
            Form::Whole(value) => Decimal::from(*value),
            Form::Decimal(decimal) => **decimal,
        }
    }

    #[must_use]
    pub const fn to_i64(&self) -> Option<i64> {
        match &self.0 {
            Form::Whole(value) => Some(*value),
            Form::Decimal(_) => None,
        }
    }

    /// The smallest whole number that is not below this one, as far as an `i64` goes.
    #[must_use]
    pub fn ceil(&self) -> i64 {
        match &self.0 {
            Form::Whole(value) => *value,
            Form::Decimal(decimal) => decimal.ceil(),
        }
    }

    /// The sum, if it can be held.
    pub fn checked_add(&self, other: &Self) -> Result<Self, NotANumber> {
        if let Some(sum) = self.to_i64().zip(other.to_i64()).and_then(|(a, b)| a.checked_add(b)) {
            return Ok(Self::from(sum));
        }
        self.decimal().checked_add(&other.decimal()).map(Self::from)
    }

    /// The nearest floating-point number.
    #[must_use]
    pub fn to_f64(&self) -> f64 {
        self.to_string().parse().unwrap_or(f64::NAN)
    }

    /// The size DynamoDB charges: about a byte for two digits, and one more.
    #[must_use]
    pub fn size(&self) -> usize {
        match &self.0 {
            Form::Whole(value) => whole::size(*value),
            Form::Decimal(decimal) => decimal.size(),
        }
    }

    /// Bytes whose order is the order of the numbers; no such form is the start of another's.
    #[must_use]
    pub fn to_sortable(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.put_sortable(&mut out);
        out
    }

    /// Appends what [`Number::to_sortable`] gives.
    pub fn put_sortable(&self, out: &mut Vec<u8>) {
        match &self.0 {
            Form::Whole(value) => whole::put_sortable(*value, out),
            Form::Decimal(decimal) => decimal.put_sortable(out),
        }
    }

    /// Reads what [`Number::to_sortable`] wrote; gives the number and how many bytes it took.
    #[must_use]
    pub fn from_sortable(bytes: &[u8]) -> Option<(Self, usize)> {
        if let Some((value, len)) = whole::from_sortable(bytes) {
            return Some((Self::from(value), len));
        }
        let (decimal, len) = Decimal::from_sortable(bytes)?;
        Some((decimal.into(), len))
    }

    /// How many bytes [`Number::from_sortable`] would take.
    #[must_use]
    pub fn sortable_len(bytes: &[u8]) -> Option<usize> {
        Decimal::sortable_len(bytes)
    }
}

impl From<i64> for Number {
    fn from(value: i64) -> Self {
        Self(Form::Whole(value))
    }
}

impl From<Decimal> for Number {
    fn from(decimal: Decimal) -> Self {
        Self(decimal.to_i64().map_or_else(|| Form::Decimal(Box::new(decimal)), Form::Whole))
    }
}

impl FromStr for Number {
    type Err = NotANumber;

    fn from_str(text: &str) -> Result<Self, NotANumber> {
        text.parse::<Decimal>().map(Self::from)
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Form::Whole(value) => value.fmt(f),
            Form::Decimal(decimal) => decimal.fmt(f),
        }
    }
}

impl fmt::Debug for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Ord for Number {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            (Form::Whole(a), Form::Whole(b)) => a.cmp(b),
            _ => self.decimal().cmp(&other.decimal()),
        }
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn n(text: &str) -> Number {
        text.parse().unwrap()
    }

    #[test]
    fn one_value_has_one_form() {
        for (text, shown) in [
            ("0", "0"),
            ("-0.00", "0"),
            ("300", "300"),
            ("3.0e2", "300"),
            ("+1.50", "1.5"),
            ("0.001", "0.001"),
            (".5", "0.5"),
            ("-12.030", "-12.03"),
            ("1E-5", "0.00001"),
            ("123456789012345678901234567890", "123456789012345678901234567890"),
        ] {
            assert_eq!(n(text).to_string(), shown);
            assert_eq!(n(shown), n(text));
        }
    }

    #[test]
    fn what_dynamodb_refuses_is_refused() {
        for text in ["", "-", ".", "1e", "abc", "1.2.3", "0x10", "1e400", "1e-131", &"1".repeat(39), " 1", "NaN"] {
            assert!(text.parse::<Number>().is_err(), "{text:?}");
        }
        for text in [&"9".repeat(38), "9.9999999999999999999999999999999999999E+125", "1E-130"] {
            assert!(text.parse::<Number>().is_ok(), "{text:?}");
        }
    }

    #[test]
    fn integers_go_there_and_back() {
        for value in [0, 1, -1, 10, 1_702_387_200, i64::MAX, i64::MIN] {
            assert_eq!(Number::from(value).to_i64(), Some(value));
            assert_eq!(Number::from(value), n(&value.to_string()));
        }
        assert_eq!(n("9223372036854775808").to_i64(), None);
        assert_eq!(n("1.5").to_i64(), None);
    }

    #[test]
    fn whole_numbers_and_others_have_one_order_and_one_form_in_bytes() {
        let sorted = ["-9223372036854775809", "-9223372036854775808", "-7.5", "-7", "0", "6.999", "7", "7.001", "1e18"];
        let sorted = sorted.into_iter().chain(["9223372036854775807", "9223372036854775808", "1e40"]).map(n);
        let sorted: Vec<Number> = sorted.collect();
        assert!(sorted.is_sorted_by(|a, b| a < b && a.to_sortable() < b.to_sortable()));
        for number in &sorted {
            let (again, _) = Number::from_sortable(&number.to_sortable()).unwrap();
            // The same in memory, too, whichever way it came.
            assert_eq!((&again, again.to_i64(), again.size()), (number, number.to_i64(), number.size()));
        }
        assert_eq!(n("9223372036854775807.0").to_i64(), Some(i64::MAX));
        assert!(size_of::<Number>() <= 16, "an item has several");
    }

    #[test]
    fn whole_numbers_are_written_and_read_as_digits_are() {
        let powers = (0..19).flat_map(|power| [-1, 0, 1].map(|by| 10_i64.pow(power).saturating_add(by)));
        let others = [0, 7, 1_702_387_200, 1_700_000_000_000_001, 120_300, i64::MAX, i64::MAX - 7];
        for value in powers.chain(others).flat_map(|value| [value, -value]).chain([i64::MIN]) {
            let (number, decimal) = (Number::from(value), value.to_string().parse::<Decimal>().unwrap());
            assert_eq!(Decimal::from(value), decimal);
            let mut bytes = b"before".to_vec();
            decimal.put_sortable(&mut bytes);
            let bytes = bytes.split_off(6);
            assert_eq!((number.to_sortable(), number.size()), (bytes.clone(), decimal.size()), "{value}");
            let more = [&*bytes, &[0, 255, 1]].concat();
            assert_eq!(Number::from_sortable(&more), Some((number, bytes.len())), "{value}");
            for cut in 0..bytes.len() {
                assert_eq!(Number::from_sortable(&bytes[..cut]), None, "{value}");
            }
        }
    }

    #[test]
    fn sums_are_exact_or_refused() {
        for (a, b, sum) in [
            ("1", "2", "3"),
            ("0.5", "0.5", "1"),
            ("-0.5", "3", "2.5"),
            ("3", "-3", "0"),
            ("1e20", "-1", "99999999999999999999"),
            ("9223372036854775807", "1", "9223372036854775808"),
            ("-1", "-9.99", "-10.99"),
            ("-1000", "999.999", "-0.001"),
            ("0", "-7", "-7"),
            ("1e-130", "-1e-130", "0"),
            ("-1e125", "0", "-1e125"),
        ] {
            assert_eq!(n(a).checked_add(&n(b)), Ok(n(sum)), "{a} + {b}");
            assert_eq!(n(b).checked_add(&n(a)), Ok(n(sum)), "{b} + {a}");
        }
        let most = n("9.9999999999999999999999999999999999999E+125");
        for (a, b) in [(n("1e125"), n("1")), (most.clone(), most), (n("1e-130"), n("1"))] {
            assert!(a.checked_add(&b).is_err(), "{a} + {b}");
        }
    }

    #[test]
    fn the_ceiling_is_the_next_whole_number() {
        for (text, ceiling) in [
            ("0", 0),
            ("7", 7),
            ("-7", -7),
            ("6.1", 7),
            ("-6.9", -6),
            ("0.001", 1),
            ("-0.001", 0),
            ("300", 300),
            ("1e30", i64::MAX),
            ("-1e30", i64::MIN),
            ("9223372036854775807", i64::MAX),
            ("9223372036854775806.5", i64::MAX),
            ("9223372036854775807.5", i64::MAX),
        ] {
            assert_eq!(n(text).ceil(), ceiling, "{text}");
        }
    }

    #[test]
    fn sortable_bytes_have_the_order_of_the_values() {
        let mut sorted =
            ["-1e100", "-12", "-11.5", "-2", "-0.5", "-1e-100", "0", "1e-100", "0.5", "1", "2", "10", "11.5", "1e100"]
                .map(n)
                .to_vec();
        sorted.sort_by_key(Number::to_sortable);
        assert!(sorted.is_sorted());
        for number in sorted {
            let mut bytes = number.to_sortable();
            let len = bytes.len();
            bytes.extend([1, 2, 3]);
            assert_eq!(Number::from_sortable(&bytes), Some((number, len)));
        }
    }
}
