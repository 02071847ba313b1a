//! Whole numbers of a machine in the form in which all numbers are written, without a detour by way of their digits'
//! own place in memory: nearly all numbers are whole, and every item has some.

use super::decimal::{EXPONENTS, NEGATIVE, POSITIVE, ZERO};

/// Digits of the longest one.
const MOST: usize = 19;
/// Digits that surely fit.
const SURE: usize = 18;

/// The digits of a number whatever its sign, and how many of them count: not the zeros at the end.
pub struct Digits {
    pub bytes: [u8; MOST],
    pub places: usize,
    pub len: usize,
}

pub fn digits(value: i64) -> Digits {
    let mut rest = value.unsigned_abs();
    let places = rest.checked_ilog10().map_or(0, |places| places as usize + 1);
    let mut bytes = [0; MOST];
    let mut zeros = 0;
    // Two at a time: dividing is what takes long.
    for pair in bytes.get_mut(..places).unwrap_or_default().rchunks_mut(2) {
        let two = (rest % 100) as u8;
        rest /= 100;
        match pair {
            [tens, ones] => (*tens, *ones) = (two / 10, two % 10),
            others => others.fill(two),
        }
    }
    while zeros < places && bytes.get(places - zeros - 1) == Some(&0) {
        zeros += 1;
    }
    Digits { bytes, places, len: places - zeros }
}

/// The size DynamoDB charges.
pub fn size(value: i64) -> usize {
    let mut rest = value.unsigned_abs();
    while rest != 0 && rest.is_multiple_of(10) {
        rest /= 10;
    }
    let digits = rest.checked_ilog10().map_or(0, |places| places as usize + 1);
    digits.div_ceil(2) + 1 + usize::from(value < 0)
}

/// Appends what a number that is written digit by digit would be.
pub fn put_sortable(value: i64, out: &mut Vec<u8>) {
    if value == 0 {
        out.push(ZERO);
        return;
    }
    let Digits { bytes, places, len } = digits(value);
    let flip = if value < 0 { u8::MAX } else { 0 };
    let exponent = u8::try_from(places as i64 - EXPONENTS.start()).unwrap_or(u8::MAX);
    // All of it at once, and then no more than there is.
    let start = out.len();
    out.extend([POSITIVE ^ flip, exponent ^ flip]);
    out.extend(bytes.map(|digit| (digit + 1) ^ flip));
    out.truncate(start + 2 + len);
    out.push(flip);
}

/// Reads what [`put_sortable`] wrote, and how many bytes it took. `None` for any other number, and for one that is near
/// the largest.
pub fn from_sortable(bytes: &[u8]) -> Option<(i64, usize)> {
    let (first, rest) = bytes.split_first()?;
    let flip = match *first {
        ZERO => return Some((0, 1)),
        POSITIVE => 0,
        NEGATIVE => u8::MAX,
        _ => return None,
    };
    let (exponent, rest) = rest.split_first()?;
    let places =
        usize::try_from(i64::from(exponent ^ flip) + EXPONENTS.start()).ok().filter(|places| *places <= SURE)?;
    let (mut value, mut len) = (0_i64, 0);
    for byte in rest.iter().take(places + 1) {
        let Some(digit @ 0..=9) = (byte ^ flip).checked_sub(1) else { break };
        (value, len) = (value * 10 + i64::from(digit), len + 1);
    }
    if len > places || rest.get(len) != Some(&flip) {
        return None;
    }
    let value = value * 10_i64.pow(u32::try_from(places - len).ok()?);
    Some((if flip == 0 { value } else { -value }, len + 3))
}
