//! fjall's journals, read before fjall does: a tail that a power cut tore is cut off, damage is refused.
//!
//! Commits stand in them in stores of format 2 and before; since then only what is noted at an opening.
//!
//! fjall takes the first thing it cannot read for the end of a journal and cuts the file there, whatever follows;
//! and a last batch whose middle never reached the disk it refuses for good. Both are wrong for us. A batch is
//! written only when the one before it is safe, so only the very last batch can be torn: if a whole batch follows
//! what cannot be read, that is damage, and acknowledged commits would be lost. Nothing is changed before
//! everything was looked at. fjall's checksum leaves out a batch's number, so the order of numbers is checked
//! too, and that no commit of ours is missing.
//!
//! What cannot be told from a torn tail, and is cut off like one: damage within the last batch of the last
//! journal. The high-water mark refuses it, once it has been noted.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use xxhash_rust::xxh3::xxh3_64;

use super::database::SEQUENCE_KEY;
use super::layout::numbered;
use crate::Error;

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const TRAILER: &[u8] = b"FJL\x03";
/// fjall's numbers grow by a few from batch to batch; more at once is damage, and so is one that no store reaches.
const NUMBER_STEP: u64 = 1 << 32;
const NUMBER_MOST: u64 = 1 << 56;

/// What the journals say, once they are known to be whole.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Journals {
    /// Our last commit in them, if there is one.
    pub sequence: Option<u64>,
    /// fjall's number of the last batch.
    number: Option<u64>,
    torn: Option<(PathBuf, u64)>,
}

/// Reads all journals of a database; changes nothing.
pub fn check(database: &Path) -> Result<Journals, Error> {
    let mut journals = Journals::default();
    let paths = paths(database)?;
    for (place, path) in paths.iter().enumerate() {
        let bytes = read(path).map_err(|e| Error::failed(format!("cannot read {}", path.display()), e))?;
        journals.follow(path, &bytes, place + 1 == paths.len())?;
    }
    Ok(journals)
}

impl Journals {
    /// Cuts off what a power cut left of a last batch.
    pub fn mend(&self) -> Result<(), Error> {
        let Some((path, end)) = &self.torn else { return Ok(()) };
        tracing::warn!(journal = %path.display(), end, "the last commit was torn by a crash and never acknowledged: cut off");
        let cut = || {
            let file = File::options().write(true).open(path)?;
            file.set_len(*end)?;
            file.sync_all()
        };
        cut().map_err(|e| Error::failed(format!("cannot cut {}", path.display()), e))
    }

    /// Fails if the opened store did not take in all of the journals.
    pub fn agree_with(&self, sequence: u64) -> Result<(), Error> {
        match self.sequence {
            Some(last) if last > sequence => Err(Error::Corrupt(format!(
                "the journal ends at commit {last}, but the store at commit {sequence}; restore the last backup into an \
                 empty directory"
            ))),
            _ => Ok(()),
        }
    }

    fn follow(&mut self, path: &Path, bytes: &[u8], is_last: bool) -> Result<(), Error> {
        let mut end = 0;
        while let Some(batch) = bytes.get(end..).and_then(read_batch) {
            if !self.take(&batch) {
                return Err(damaged(path, end));
            }
            end += batch.len;
        }
        let rest = bytes.get(end..).unwrap_or_default();
        if rest.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        if !is_last || holds_a_batch(rest) {
            return Err(damaged(path, end));
        }
        self.torn = Some((path.to_owned(), end as u64));
        Ok(())
    }

    /// Whether a batch can follow what came before it.
    fn take(&mut self, batch: &Batch) -> bool {
        let in_order = match self.number {
            Some(last) => batch.number > last && batch.number - last < NUMBER_STEP,
            None => batch.number < NUMBER_MOST,
        };
        let complete = match (self.sequence, batch.sequence) {
            (Some(last), Some(sequence)) => sequence == last + 1,
            _ => true,
        };
        self.number = Some(batch.number);
        self.sequence = batch.sequence.or(self.sequence);
        in_order && complete
    }
}

fn damaged(path: &Path, at: usize) -> Error {
    Error::Corrupt(format!(
        "the journal {} is damaged at byte {at}, and acknowledged commits would be lost; restore the last backup into \
         an empty directory",
        path.display()
    ))
}

/// The journals, the oldest first.
fn paths(database: &Path) -> Result<Vec<PathBuf>, Error> {
    Ok(numbered(database, ".jnl")?.into_iter().map(|(_, path)| path).collect())
}

/// A journal up to its last byte; the length it was given in advance beyond that is not read.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let mut end = 0;
    loop {
        let data = match rustix::fs::seek(&file, SeekFrom::Data(end)) {
            Ok(data) => data,
            Err(Errno::NXIO) => break,
            Err(e) => return Err(e.into()),
        };
        end = rustix::fs::seek(&file, SeekFrom::Hole(data))?;
    }
    let mut bytes = vec![0; usize::try_from(end).map_err(std::io::Error::other)?];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// Whether a whole batch stands anywhere in these bytes.
fn holds_a_batch(bytes: &[u8]) -> bool {
    (0..bytes.len()).any(|at| bytes.get(at..).and_then(read_batch).is_some())
}

struct Batch {
    number: u64,
    sequence: Option<u64>,
    len: usize,
}

/// The batch at the start of these bytes, if it is whole and its checksum fits.
fn read_batch(bytes: &[u8]) -> Option<Batch> {
    let (head, _) = bytes.split_first_chunk::<13>()?;
    let [START, a, b, c, d, number @ ..] = *head else { return None };
    let (items, number) = (u32::from_le_bytes([a, b, c, d]), u64::from_le_bytes(number));
    let (mut at, mut sequence) = (head.len(), None);
    for _ in 0..items {
        let item = read_item(bytes.get(at..)?)?;
        if item.key == SEQUENCE_KEY {
            sequence = Some(u64::from_be_bytes(item.value.try_into().ok()?));
        }
        at += item.len;
    }
    let content = bytes.get(head.len()..at)?;
    let (end, _) = bytes.get(at..)?.split_first_chunk::<13>()?;
    let (checksum, trailer) = end.get(1..)?.split_first_chunk::<8>()?;
    let whole = items > 0
        && end.first() == Some(&END)
        && trailer == TRAILER
        && u64::from_le_bytes(*checksum) == xxh3_64(content);
    whole.then_some(Batch { number, sequence, len: at + end.len() })
}

struct Entry<'a> {
    key: &'a [u8],
    value: &'a [u8],
    len: usize,
}

/// Tag, kind, compression, keyspace, the lengths of key, value and stored value, then key and stored value.
fn read_item(bytes: &[u8]) -> Option<Entry<'_>> {
    let (head, rest) = bytes.split_first_chunk::<21>()?;
    if head.first() != Some(&ITEM) {
        return None;
    }
    let key_len = usize::from(u16::from_le_bytes(*head.get(11..)?.first_chunk()?));
    let value_len = usize::try_from(u32::from_le_bytes(*head.get(17..)?.first_chunk()?)).ok()?;
    let (key, rest) = rest.split_at_checked(key_len)?;
    let (value, _) = rest.split_at_checked(value_len)?;
    Some(Entry { key, value, len: head.len() + key_len + value_len })
}
