//! A number digit by digit: the form of those that are not whole or too large for a machine's number, and the form in
//! which all of them are written.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use super::{NotANumber, whole};
use crate::limits::NUMBER_DIGITS;

/// A decimal number: `0.d₁d₂…dₙ × 10^exponent`, with no zero at either end of the digits; zero has no digits.
/// One value has one form, so equality and hashing are by value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Decimal {
    negative: bool,
    exponent: i16,
    digits: Digits,
}

/// Digits where they are, without a place of their own in memory.
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
pub const EXPONENTS: std::ops::RangeInclusive<i64> = -129..=126;

/// How the sortable form of a number begins; of a negative one all bytes are turned round.
pub const ZERO: u8 = 0x80;
pub const POSITIVE: u8 = 0xC0;
pub const NEGATIVE: u8 = !POSITIVE;

/// The lowest power of ten a digit can stand for: 38 of them in the smallest number.
const SUM_LOWEST: i64 = -167;
/// From there to the highest, and one more.
const SUM_PLACES: usize = 294;

impl Decimal {
    pub fn to_i64(self) -> Option<i64> {
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
        let whole = Self { digits: Digits::of(self.digits.iter().take(places).copied()), ..*self };
        let up = i64::from(!self.negative && self.digits.len() > places);
        whole.to_i64().and_then(|whole| whole.checked_add(up)).unwrap_or(limit)
    }

    /// The sum, if it can be held.
    pub fn checked_add(&self, other: &Self) -> Result<Self, NotANumber> {
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

    /// The size DynamoDB charges: about a byte for two digits, and one more.
    pub fn size(&self) -> usize {
        self.digits.len().div_ceil(2) + 1 + usize::from(self.negative)
    }

    /// Appends bytes whose order is the order of the numbers; no such form is the start of another's.
    pub fn put_sortable(&self, out: &mut Vec<u8>) {
        if self.digits.is_empty() {
            out.push(ZERO);
            return;
        }
        let flip = if self.negative { u8::MAX } else { 0 };
        let exponent = u8::try_from(i64::from(self.exponent) - EXPONENTS.start()).unwrap_or(u8::MAX);
        out.extend([POSITIVE ^ flip, exponent ^ flip]);
        // Digits are shifted by one, so that the closing zero sorts a shorter number first.
        out.extend(self.digits.iter().map(|digit| (digit + 1) ^ flip));
        out.push(flip);
    }

    /// Reads what [`Decimal::put_sortable`] wrote; gives the number and how many bytes it took.
    pub fn from_sortable(bytes: &[u8]) -> Option<(Self, usize)> {
        let len = Self::sortable_len(bytes)?;
        let [first, exponent, digits @ .., _] = bytes.get(..len)? else { return Some((Self::from(0), len)) };
        let negative = *first == NEGATIVE;
        let plain = |byte: u8| if negative { !byte } else { byte };
        let exponent = i16::try_from(i64::from(plain(*exponent)) + EXPONENTS.start()).ok()?;
        // No byte of them is the closing zero, so each has a digit; what has too many was not written here.
        let digits = Some(digits).filter(|digits| digits.len() <= NUMBER_DIGITS)?;
        let digits = Digits::of(digits.iter().map(|byte| plain(*byte).wrapping_sub(1)));
        Some((Self { negative, exponent, digits }, len))
    }

    /// How many bytes of these are a number.
    pub fn sortable_len(bytes: &[u8]) -> Option<usize> {
        let (first, rest) = bytes.split_first()?;
        let end = match *first {
            ZERO => return Some(1),
            POSITIVE => 0,
            NEGATIVE => u8::MAX,
            _ => return None,
        };
        let (_, digits) = rest.split_first()?;
        digits.iter().position(|byte| *byte == end).map(|digits| digits + 3)
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

impl From<i64> for Decimal {
    fn from(value: i64) -> Self {
        let whole::Digits { bytes, places, len } = whole::digits(value);
        let digits = Digits::of(bytes.into_iter().take(len));
        Self { negative: value < 0, exponent: i16::try_from(places).unwrap_or(0), digits }
    }
}

impl FromStr for Decimal {
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

impl fmt::Display for Decimal {
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

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        let sign = |n: &Self| i8::from(!n.digits.is_empty()) * if n.negative { -1 } else { 1 };
        sign(self).cmp(&sign(other)).then_with(|| {
            let magnitude = self.exponent.cmp(&other.exponent).then_with(|| self.digits.cmp(&*other.digits));
            if self.negative { magnitude.reverse() } else { magnitude }
        })
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
