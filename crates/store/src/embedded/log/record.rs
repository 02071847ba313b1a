//! One commit as bytes, and the head of a segment.
//!
//! Record: mark, length of the body, number of the commit, checksum, body. Body: for each change a byte that says where
//! and whether it removes, the lengths of key and value, key and value.

use std::hash::{BuildHasher, Hasher, RandomState};

use fjall::Slice;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::{Op, Space};

/// Bytes before a segment's first record.
pub const HEAD_BYTES: usize = 24;
const MAGIC: &[u8; 8] = b"tidlog 1";
/// Bytes of a record before its body.
const RECORD_HEAD: usize = 24;
/// What its checksum covers besides the body.
const COVERED_HEAD: usize = 16;
const REMOVES: u8 = 0x80;

/// What tells the records of one use of a segment from all other bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Salt(u64);

impl Salt {
    /// What each record begins with.
    fn mark(self) -> [u8; 4] {
        let [a, b, c, d, ..] = xxh3_64(&self.0.to_le_bytes()).to_le_bytes();
        [a, b, c, d]
    }
}

/// A head with a salt that nobody can guess.
pub fn head() -> [u8; HEAD_BYTES] {
    // Every RandomState has keys of its own, so the hash of nothing is a random number.
    let salt = RandomState::new().build_hasher().finish().to_le_bytes();
    let mut head = [0; HEAD_BYTES];
    let fields = MAGIC.iter().chain(&salt).copied();
    head.iter_mut().zip(fields).for_each(|(place, byte)| *place = byte);
    let sum = xxh3_64(head.get(..16).unwrap_or_default()).to_le_bytes();
    head.iter_mut().skip(16).zip(sum).for_each(|(place, byte)| *place = byte);
    head
}

/// The salt of a segment, if its head is whole.
pub fn salt(bytes: &[u8]) -> Option<Salt> {
    let (head, _) = bytes.split_first_chunk::<HEAD_BYTES>()?;
    let (fields, sum) = head.split_at(16);
    let salt = fields.strip_prefix(MAGIC)?;
    (sum == xxh3_64(fields).to_le_bytes()).then(|| salt.try_into().ok().map(|salt| Salt(u64::from_le_bytes(salt))))?
}

pub fn write(out: &mut Vec<u8>, salt: Salt, sequence: u64, ops: &[Op]) -> std::io::Result<()> {
    let too_long = |_| std::io::Error::other("a commit is too long for the log");
    let body: usize = ops.iter().map(|op| 7 + op.key.len() + op.value.as_ref().map_or(0, |value| value.len())).sum();
    out.reserve(RECORD_HEAD + body);
    let start = out.len();
    out.extend_from_slice(&salt.mark());
    out.extend_from_slice(&u32::try_from(body).map_err(too_long)?.to_le_bytes());
    out.extend_from_slice(&sequence.to_le_bytes());
    out.extend_from_slice(&[0; 8]);
    for op in ops {
        let value = op.value.as_deref();
        out.push(op.space.number() | if value.is_none() { REMOVES } else { 0 });
        out.extend_from_slice(&u16::try_from(op.key.len()).map_err(too_long)?.to_le_bytes());
        out.extend_from_slice(&u32::try_from(value.map_or(0, <[u8]>::len)).map_err(too_long)?.to_le_bytes());
        out.extend_from_slice(&op.key);
        out.extend_from_slice(value.unwrap_or_default());
    }
    let record = out.get_mut(start..).unwrap_or_default();
    if let Some((head, body)) = record.split_at_mut_checked(RECORD_HEAD) {
        let (covered, sum) = head.split_at_mut(COVERED_HEAD);
        sum.copy_from_slice(&checksum(salt, covered, body).to_le_bytes());
    }
    Ok(())
}

fn checksum(salt: Salt, covered: &[u8], body: &[u8]) -> u64 {
    xxh3_64_with_seed(body, xxh3_64_with_seed(covered, salt.0))
}

/// A record that is whole.
pub struct Record<'a> {
    pub sequence: u64,
    /// Bytes it takes.
    pub len: usize,
    body: &'a [u8],
}

/// The record at the start of these bytes, if it is whole and its checksum fits.
pub fn read(bytes: &[u8], salt: Salt) -> Option<Record<'_>> {
    let (head, rest) = bytes.split_first_chunk::<RECORD_HEAD>()?;
    let (covered, sum) = head.split_at(COVERED_HEAD);
    let (mark, fields) = covered.split_first_chunk::<4>()?;
    if *mark != salt.mark() {
        return None;
    }
    let (len, sequence) = fields.split_first_chunk::<4>()?;
    let body = rest.get(..usize::try_from(u32::from_le_bytes(*len)).ok()?)?;
    let fits = sum == checksum(salt, covered, body).to_le_bytes();
    let sequence = u64::from_le_bytes(sequence.try_into().ok()?);
    fits.then_some(Record { sequence, len: RECORD_HEAD + body.len(), body })
}

/// Whether a record begins here, be it torn.
pub fn begins(bytes: &[u8], salt: Salt) -> bool {
    bytes.starts_with(&salt.mark())
}

/// Whether a whole record stands anywhere in these bytes.
pub fn is_anywhere(bytes: &[u8], salt: Salt) -> bool {
    let mark = salt.mark();
    let marks = bytes.windows(mark.len()).enumerate().filter(|(_, window)| *window == mark);
    marks.into_iter().any(|(at, _)| bytes.get(at..).and_then(|rest| read(rest, salt)).is_some())
}

impl Record<'_> {
    /// The changes of the commit.
    pub fn ops(&self) -> Option<Vec<Op>> {
        let mut rest = self.body;
        let mut ops = Vec::new();
        while let Some((head, after)) = rest.split_first_chunk::<7>() {
            let [kind, a, b, c, d, e, f] = *head;
            let space = Space::numbered(kind & !REMOVES)?;
            let (key, after) = after.split_at_checked(usize::from(u16::from_le_bytes([a, b])))?;
            let (value, after) = after.split_at_checked(usize::try_from(u32::from_le_bytes([c, d, e, f])).ok()?)?;
            let value = (kind & REMOVES == 0).then(|| Slice::from(value));
            ops.push(Op { space, key: Slice::from(key), value, is_new: false });
            rest = after;
        }
        rest.is_empty().then_some(ops)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ops() -> Vec<Op> {
        let op = |space, key: &str, value: Option<&str>| {
            let (key, value) = (Slice::from(key), value.map(Slice::from));
            Op { space, key, value, is_new: true }
        };
        vec![op(Space::Items, "a", Some("1")), op(Space::Index, "", Some("")), op(Space::Apart, "long key", None)]
    }

    #[test]
    fn what_was_written_is_read() {
        let salt = salt(&head()).unwrap();
        let mut bytes = Vec::new();
        write(&mut bytes, salt, 7, &ops()).unwrap();
        let len = bytes.len();
        write(&mut bytes, salt, 8, &[]).unwrap();
        let record = read(&bytes, salt).unwrap();
        assert_eq!((record.sequence, record.len), (7, len));
        let shown =
            |ops: &[Op]| ops.iter().map(|op| format!("{:?} {:?} {:?}", op.space, op.key, op.value)).collect::<Vec<_>>();
        assert_eq!(shown(&record.ops().unwrap()), shown(&ops()));
        let record = read(&bytes[len..], salt).unwrap();
        assert_eq!((record.sequence, record.ops().unwrap().len()), (8, 0));
    }

    #[test]
    fn nothing_that_was_changed_passes_for_a_record() {
        let (salt, other) = (salt(&head()).unwrap(), salt(&head()).unwrap());
        assert_ne!(salt, other);
        let mut bytes = Vec::new();
        write(&mut bytes, salt, 7, &ops()).unwrap();
        assert!(read(&bytes, other).is_none() && !is_anywhere(&bytes, other));
        let moved = [&[0; 5], &*bytes].concat();
        assert!(is_anywhere(&moved, salt) && !begins(&moved, salt) && begins(&bytes, salt));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&flipped, salt).is_none(), "{bit}");
        }
        for len in 0..bytes.len() {
            assert!(read(&bytes[..len], salt).is_none(), "{len}");
        }
    }

    #[test]
    fn a_head_is_whole_or_none() {
        let head = head();
        for bit in 0..head.len() * 8 {
            let mut flipped = head;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(salt(&flipped).is_none(), "{bit}");
        }
    }
}
