//! DynamoDB's numbers: decimal, up to 38 significant digits, compared by value.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use crate::limits::NUMBER_DIGITS;

/// A decimal number: `0.d₁d₂…dₙ × 10^exponent`, with no zero at either end of the digits; zero has no digits.
/// One value has one form, so equality and hashing are by value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Number {
    negative: bool,
    exponent: i16,
    digits: Digits,
}

/// Digits where they are: every event has a few numbers, and none of them is worth a place of its own in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Digits {
    len: u8,
    /// Zeros after `len`.
    bytes: [u8; NUMBER_DIGITS],
}

impl Digits {
    const NONE: Self = Self { len: 0, bytes: [0; NUMBER_DIGITS] };

    /// These digits; more than there can be are left out.
    fn of(digits: impl IntoIterator<Item = u8>) -> Self {
        let mut all = Self::NONE;
        for (place, digit) in all.bytes.iter_mut().zip(digits) {
            *place = digit;
            all.len += 1;
        }
        all
    }

    /// Without zeros at the end.
    fn trimmed(mut self) -> Self {
        while self.last() == Some(&0) {
            self.len -= 1;
        }
        self
    }
}

impl std::ops::Deref for Digits {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

impl fmt::Debug for Digits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// The largest and smallest magnitudes are below 10^126 and not below 10^-130.
const EXPONENTS: std::ops::RangeInclusive<i64> = -129..=126;

/// The lowest power of ten a digit can stand for: 38 of them in the smallest number.
const SUM_LOWEST: i64 = -167;
/// From there to the highest, and one more.
const SUM_PLACES: usize = 294;

/// The text is no number, or one that DynamoDB cannot hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotANumber(pub &'static str);

impl Number {
    #[must_use]
    pub fn to_i64(&self) -> Option<i64> {
        if self.digits.is_empty() {
            return Some(0);
        }
        let places =
            usize::try_from(self.exponent).ok().filter(|places| *places >= self.digits.len() && *places <= 19)?;
        let mut value: i64 = 0;
        for place in 0..places {
            let digit = i64::from(self.digits.get(place).copied().unwrap_or(0));
            let digit = if self.negative { -digit } else { digit };
            value = value.checked_mul(10)?.checked_add(digit)?;
        }
        Some(value)
    }

    /// The smallest whole number that is not below this one, as far as an `i64` goes.
    #[must_use]
    pub fn ceil(&self) -> i64 {
        let limit = if self.negative { i64::MIN } else { i64::MAX };
        let places = usize::try_from(self.exponent).unwrap_or(0);
        if places > 19 {
            return limit;
        }
        if self.digits.len() <= places {
            return self.to_i64().unwrap_or(limit);
        }
        // What is left of the point may end in zeros, which stand for themselves.
        let whole = Self { digits: Digits::of(self.digits.iter().take(places).copied()), ..self.clone() };
        let up = i64::from(!self.negative && self.digits.len() > places);
        whole.to_i64().and_then(|whole| whole.checked_add(up)).unwrap_or(limit)
    }

    /// The sum, if it can be held.
    pub fn checked_add(&self, other: &Self) -> Result<Self, NotANumber> {
        // Nearly all sums are those of counters.
        if let Some(sum) = self.to_i64().zip(other.to_i64()).and_then(|(a, b)| a.checked_add(b)) {
            return Ok(Self::from(sum));
        }
        // One digit for every power of ten that can occur, the lowest first, and room for a carry.
        let mut sum = [0_i8; SUM_PLACES];
        for number in [self, other] {
            let top = i64::from(number.exponent) - SUM_LOWEST;
            for (digit, place) in number.digits.iter().zip((0..top).rev()) {
                let slot = usize::try_from(place).ok().and_then(|place| sum.get_mut(place));
                let digit = i8::try_from(*digit).unwrap_or(0);
                *slot.ok_or(NotANumber("the number's magnitude is out of range"))? +=
                    if number.negative { -digit } else { digit };
            }
        }
        let negative = sum.iter().rev().find(|digit| **digit != 0).is_some_and(|highest| *highest < 0);
        let mut carry = 0;
        for digit in &mut sum {
            let value = carry + if negative { -*digit } else { *digit };
            (*digit, carry) = (value.rem_euclid(10), value.div_euclid(10));
        }
        let digits = sum.iter().rev().map(|digit| u8::try_from(*digit).unwrap_or(0)).collect();
        Self::from_parts(negative, digits, SUM_LOWEST + i64::try_from(SUM_PLACES).unwrap_or(0))
    }

    /// The nearest floating-point number.
    #[must_use]
    pub fn to_f64(&self) -> f64 {
        self.to_string().parse().unwrap_or(f64::NAN)
    }

    /// The size DynamoDB charges: about a byte for two digits, and one more.
    #[must_use]
    pub fn size(&self) -> usize {
        self.digits.len().div_ceil(2) + 1 + usize::from(self.negative)
    }

    /// Bytes whose order is the order of the numbers; no such form is the start of another's.
    #[must_use]
    pub fn to_sortable(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.digits.len() + 3);
        self.put_sortable(&mut out);
        out
    }

    /// Appends what [`Number::to_sortable`] gives.
    pub fn put_sortable(&self, out: &mut Vec<u8>) {
        if self.digits.is_empty() {
            out.push(0x80);
            return;
        }
        let flip = if self.negative { u8::MAX } else { 0 };
        let exponent = u8::try_from(i64::from(self.exponent) - EXPONENTS.start()).unwrap_or(u8::MAX);
        out.extend([0xC0 ^ flip, exponent ^ flip]);
        // Digits are shifted by one, so that the closing zero sorts a shorter number first.
        out.extend(self.digits.iter().map(|digit| (digit + 1) ^ flip));
        out.push(flip);
    }

    /// Reads what [`Number::to_sortable`] wrote; gives the number and how many bytes it took.
    #[must_use]
    pub fn from_sortable(bytes: &[u8]) -> Option<(Self, usize)> {
        let (&first, rest) = bytes.split_first()?;
        let negative = match first {
            0x80 => return Some((Self::from(0), 1)),
            0xC0 => false,
            0x3F => true,
            _ => return None,
        };
        let plain = |byte: u8| if negative { !byte } else { byte };
        let (&exponent, rest) = rest.split_first()?;
        let exponent = i16::try_from(i64::from(plain(exponent)) + EXPONENTS.start()).ok()?;
        let end = rest.iter().position(|byte| plain(*byte) == 0)?;
        // No byte of them is the closing zero, so each has a digit; what has too many was not written here.
        let digits = rest.get(..end).filter(|digits| digits.len() <= NUMBER_DIGITS)?;
        let digits = Digits::of(digits.iter().map(|byte| plain(*byte).wrapping_sub(1)));
        Some((Self { negative, exponent, digits }, end + 3))
    }

    fn from_parts(negative: bool, mut digits: Vec<u8>, exponent: i64) -> Result<Self, NotANumber> {
        let zeros = digits.iter().take_while(|digit| **digit == 0).count();
        digits.drain(..zeros);
        let exponent = exponent - i64::try_from(zeros).map_err(|_| NotANumber("the number is too long"))?;
        while digits.last() == Some(&0) {
            digits.pop();
        }
        if digits.is_empty() {
            return Ok(Self { negative: false, exponent: 0, digits: Digits::NONE });
        }
        if digits.len() > NUMBER_DIGITS {
            return Err(NotANumber("the number has more than 38 significant digits"));
        }
        if !EXPONENTS.contains(&exponent) {
            return Err(NotANumber("the number's magnitude is out of range"));
        }
        let exponent = i16::try_from(exponent).map_err(|_| NotANumber("the number's magnitude is out of range"))?;
        Ok(Self { negative, exponent, digits: Digits::of(digits) })
    }
}

impl From<i64> for Number {
    fn from(value: i64) -> Self {
        let mut rest = value.unsigned_abs();
        let len = rest.checked_ilog10().map_or(0, |places| places + 1);
        let mut digits = Digits { len: u8::try_from(len).unwrap_or(0), bytes: [0; NUMBER_DIGITS] };
        // Two at a time: every item has a few numbers, and dividing is what takes long.
        for pair in digits.bytes.get_mut(..usize::from(digits.len)).unwrap_or_default().rchunks_mut(2) {
            let two = u8::try_from(rest % 100).unwrap_or(0);
            rest /= 100;
            match pair {
                [tens, ones] => (*tens, *ones) = (two / 10, two % 10),
                others => others.fill(two),
            }
        }
        Self { negative: value < 0, exponent: i16::from(digits.len), digits: digits.trimmed() }
    }
}

impl FromStr for Number {
    type Err = NotANumber;

    fn from_str(text: &str) -> Result<Self, NotANumber> {
        const BAD: NotANumber = NotANumber("the text is not a number");
        let (negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().map_err(|_| BAD)?),
            None => (text, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        if whole.is_empty() && fraction.is_empty() {
            return Err(BAD);
        }
        let digits = whole.bytes().chain(fraction.bytes()).map(|byte| match byte {
            b'0'..=b'9' => Ok(byte - b'0'),
            _ => Err(BAD),
        });
        let digits = digits.collect::<Result<Vec<_>, _>>()?;
        let places = i64::try_from(whole.len()).map_err(|_| BAD)?;
        Self::from_parts(negative, digits, places + i64::from(exponent))
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.digits.is_empty() {
            return f.write_str("0");
        }
        if self.negative {
            f.write_str("-")?;
        }
        let digit = |place: i64| {
            let digit = usize::try_from(place).ok().and_then(|place| self.digits.get(place)).copied().unwrap_or(0);
            char::from(b'0' + digit)
        };
        let (exponent, len) = (i64::from(self.exponent), i64::try_from(self.digits.len()).unwrap_or(0));
        if exponent <= 0 {
            f.write_str("0")?;
        }
        (0..exponent.max(0)).try_for_each(|place| write!(f, "{}", digit(place)))?;
        if len > exponent {
            f.write_str(".")?;
            (exponent..len).try_for_each(|place| write!(f, "{}", digit(place)))?;
        }
        Ok(())
    }
}

impl Ord for Number {
    fn cmp(&self, other: &Self) -> Ordering {
        let sign = |n: &Self| i8::from(!n.digits.is_empty()) * if n.negative { -1 } else { 1 };
        sign(self).cmp(&sign(other)).then_with(|| {
            let magnitude = self.exponent.cmp(&other.exponent).then_with(|| self.digits.cmp(&*other.digits));
            if self.negative { magnitude.reverse() } else { magnitude }
        })
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
