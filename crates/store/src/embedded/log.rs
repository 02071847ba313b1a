//! The log: every commit, on disk before anybody hears of it, until it is in tables.
//!
//! A segment is a file: a head with a number of its own, the salt, and then records, one for each commit. What is in one
//! sheet of the front is in one segment, so a segment is done with when its sheet is. It is then used again, because over
//! blocks that a file has already a sync takes half as long. What an earlier use left in it, and whatever bytes a client
//! may have sent, cannot pass for a record: the checksums depend on the salt.
//!
//! Each record is safe before the next is written, so only the last can be torn. If a whole record follows what cannot be
//! read, that is damage, and acknowledged commits would be lost: it is refused. What cannot be told from a torn end is
//! damage within the last record; the high-water mark refuses it, once it has been noted.

mod record;

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::front::{Op, Sheet, Space};
use super::layout::{numbered, sync_dir};
use crate::Error;
use record::{HEAD_BYTES, Salt};

/// Where the log is in the database's directory.
const DIR: &str = "log";
/// A segment that is ready to be used. Only whoever retires segments makes it, and only the committer takes it.
const SPARE: &str = "spare";
/// One that the committer makes, and one that is on its way to be the spare one.
const NEW: &str = "new";
const LEAVING: &str = "leaving";
/// Bytes of a segment that is worth keeping to be used again: one that is full, about.
const WORTH: std::ops::Range<u64> = 16 * 1024 * 1024..128 * 1024 * 1024;
/// Zeros written ahead of the end at a time: few enough not to be felt by who waits behind them.
const AHEAD: usize = 512 * 1024;
/// Bytes of a commit whose room is kept for the next: as much as a group has under load, about.
const KEPT: usize = 8 * 1024 * 1024;
/// A commit with more bytes is held up by its own bytes, not by what the file system notes of them.
const LARGE: usize = 128 * 1024;

/// One file of the log.
#[derive(Debug)]
pub struct Segment {
    path: PathBuf,
}

/// The log as the committer writes it.
pub struct Log {
    dir: PathBuf,
    segment: Arc<Segment>,
    number: u64,
    file: File,
    salt: Salt,
    /// Where the next record goes, and how far the file has blocks.
    end: u64,
    blocks_to: u64,
    buffer: Vec<u8>,
    zeros: Vec<u8>,
}

/// What a log held that is not in the tables.
pub struct Recovered {
    /// The commits in one sheet.
    pub sheet: Sheet,
    /// The last of them, or the last in the tables.
    pub sequence: u64,
    pub log: Log,
}

/// What there is of a log: read, and nothing changed yet.
pub struct Found {
    dir: PathBuf,
    is_there: bool,
    segments: Vec<Old>,
    /// The last commit in it.
    pub sequence: Option<u64>,
}

struct Old {
    path: PathBuf,
    number: u64,
    first: Option<u64>,
    last: Option<u64>,
}

/// Makes the directory of a new log, in a database that is being built.
pub fn make(database: &Path) -> Result<(), Error> {
    let dir = database.join(DIR);
    std::fs::create_dir_all(&dir).map_err(|e| cannot("make", &dir, e))
}

/// Looks at a log, and refuses a damaged one.
pub fn look(database: &Path) -> Result<Found, Error> {
    let dir = database.join(DIR);
    let mut found = Found { is_there: dir.exists(), segments: Vec::new(), sequence: None, dir };
    let segments = numbered(&found.dir, ".log")?;
    let count = segments.len();
    for (place, (number, path)) in segments.into_iter().enumerate() {
        let old = examine(number, path, found.sequence, place + 1 == count)?;
        found.sequence = old.last.or(found.sequence);
        found.segments.push(old);
    }
    Ok(found)
}

/// Reads a segment through, after those before it, which end at commit `before`.
fn examine(number: u64, path: PathBuf, before: Option<u64>, is_last: bool) -> Result<Old, Error> {
    let bytes = std::fs::read(&path).map_err(|e| cannot("read", &path, e))?;
    let salt = record::salt(&bytes).ok_or_else(|| damaged(&path, 0))?;
    let (mut end, mut first, mut last) = (HEAD_BYTES, None, before);
    while let Some(record) = bytes.get(end..).and_then(|rest| record::read(rest, salt)) {
        if last.is_some_and(|last| record.sequence != last + 1) {
            return Err(damaged(&path, end));
        }
        first = first.or(Some(record.sequence));
        last = Some(record.sequence);
        end += record.len;
    }
    let rest = bytes.get(end..).unwrap_or_default();
    let torn = record::begins(rest, salt);
    if torn && !is_last || record::is_anywhere(rest, salt) {
        return Err(damaged(&path, end));
    }
    if torn {
        tracing::warn!(log = %path.display(), end, "the last commit was torn by a crash and never acknowledged: left out");
    }
    let last = if first.is_some() { last } else { None };
    Ok(Old { path, number, first, last })
}

impl Found {
    /// Whether there is a log at all; a store of an earlier format has none.
    pub const fn is_there(&self) -> bool {
        self.is_there
    }

    /// Takes in what comes after commit `settled`, the last in the tables, and goes on behind it.
    pub fn recover(self, settled: u64) -> Result<Recovered, Error> {
        let mut sheet = Sheet::default();
        let mut sequence = settled;
        for old in &self.segments {
            let Some(last) = old.last.filter(|last| *last > sequence) else { continue };
            if old.first.is_none_or(|first| first > sequence + 1) {
                return Err(Error::Corrupt(format!(
                    "commits after {sequence} are missing in the log {}; restore the last backup into an empty directory",
                    self.dir.display()
                )));
            }
            take_in(&old.path, sequence, &mut sheet)?;
            sequence = last;
        }
        // They go with the sheet. Those with nothing in them that is not in tables go, too.
        sheet.segments = self.segments.iter().map(|old| Arc::new(Segment { path: old.path.clone() })).collect();
        let number = self.segments.last().map_or(0, |old| old.number + 1);
        let log = Log::begin(self.dir, number)?;
        Ok(Recovered { sheet, sequence, log })
    }
}

/// Puts the commits of a segment that come after `settled` into a sheet.
fn take_in(path: &Path, settled: u64, sheet: &mut Sheet) -> Result<(), Error> {
    let bytes = std::fs::read(path).map_err(|e| cannot("read", path, e))?;
    let salt = record::salt(&bytes).ok_or_else(|| damaged(path, 0))?;
    let mut end = HEAD_BYTES;
    while let Some(record) = bytes.get(end..).and_then(|rest| record::read(rest, salt)) {
        if record.sequence > settled {
            let ops = record.ops().ok_or_else(|| damaged(path, end))?;
            sheet.apply(ops.into_iter());
        }
        end += record.len;
    }
    Ok(())
}

impl Log {
    fn begin(dir: PathBuf, number: u64) -> Result<Self, Error> {
        let begin = || {
            std::fs::create_dir_all(&dir)?;
            // Whatever state it is in, it is made again when it is wanted.
            remove(&dir.join(SPARE))?;
            next_segment(&dir, number)
        };
        let (segment, file, salt, blocks_to) = begin().map_err(|e| cannot("begin", &dir, e))?;
        Ok(Self {
            dir,
            segment: Arc::new(segment),
            number,
            file,
            salt,
            end: HEAD_BYTES as u64,
            blocks_to,
            buffer: Vec::new(),
            zeros: vec![0; AHEAD],
        })
    }

    /// The segment that is written to.
    pub fn segment(&self) -> Arc<Segment> {
        Arc::clone(&self.segment)
    }

    /// Bytes in it.
    pub const fn bytes(&self) -> u64 {
        self.end
    }

    /// Writes one commit, and with `sync` makes it safe. After a failure nothing may be written any more: nobody knows
    /// what is on the disk.
    pub fn append(&mut self, sequence: u64, ops: &[Op], sync: bool) -> std::io::Result<()> {
        self.buffer.clear();
        record::write(&mut self.buffer, self.salt, sequence, ops)?;
        self.reach_ahead()?;
        self.file.write_all_at(&self.buffer, self.end)?;
        self.end += self.buffer.len() as u64;
        self.blocks_to = self.blocks_to.max(self.end);
        if self.buffer.capacity() > KEPT {
            self.buffer = Vec::new();
        }
        if sync { self.file.sync_data() } else { Ok(()) }
    }

    /// Writes zeros where the next records will be, so that a sync has nothing but data to write.
    fn reach_ahead(&mut self) -> std::io::Result<()> {
        let len = self.buffer.len();
        if len > LARGE || self.end + len as u64 <= self.blocks_to {
            return Ok(());
        }
        let from = self.blocks_to.max(self.end);
        self.file.write_all_at(&self.zeros, from)?;
        self.blocks_to = from + AHEAD as u64;
        Ok(())
    }

    /// Goes on in the next segment; everything so far is safe.
    pub fn next(&mut self) -> std::io::Result<Arc<Segment>> {
        let number = self.number + 1;
        let (segment, file, salt, blocks_to) = next_segment(&self.dir, number)?;
        (self.number, self.file, self.salt, self.blocks_to) = (number, file, salt, blocks_to);
        self.segment = Arc::new(segment);
        self.end = HEAD_BYTES as u64;
        Ok(self.segment())
    }
}

/// Makes a segment: the spare one, or a new one. Whoever retires segments may bring a spare one at any moment, so it is
/// taken by its name at once or not at all, and a new one is made under another name.
fn next_segment(dir: &Path, number: u64) -> std::io::Result<(Segment, File, Salt, u64)> {
    let path = dir.join(format!("{number}.log"));
    match std::fs::rename(dir.join(SPARE), &path) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let new = dir.join(NEW);
            prepare(File::options().write(true).create(true).truncate(true).open(&new)?)?;
            std::fs::rename(&new, &path)?;
        }
        Err(e) => return Err(e),
    }
    sync_dir(dir)?;
    let mut file = File::options().read(true).write(true).open(&path)?;
    let mut head = [0; HEAD_BYTES];
    file.read_exact(&mut head)?;
    let salt = record::salt(&head).ok_or_else(|| std::io::Error::other("a segment of the log has no head"))?;
    let blocks_to = file.metadata()?.len();
    Ok((Segment { path }, file, salt, blocks_to))
}

/// Gives a file a new head, after which nothing in it counts.
fn prepare(file: File) -> std::io::Result<()> {
    file.write_all_at(&record::head(), 0)?;
    file.sync_all()
}

impl Segment {
    #[cfg(test)]
    pub fn nowhere() -> Self {
        Self { path: PathBuf::new() }
    }

    /// Says that its commits are in tables: keeps the file to be used again, if there is none yet and it is not too large.
    pub fn retire(&self) -> std::io::Result<()> {
        let Some(dir) = self.path.parent() else { return Ok(()) };
        let spare = dir.join(SPARE);
        let len = std::fs::metadata(&self.path)?.len();
        if spare.exists() || !WORTH.contains(&len) {
            std::fs::remove_file(&self.path)?;
            return sync_dir(dir);
        }
        // It must have left its place for good before its head is changed, and have a head before it is the spare one.
        let leaving = dir.join(LEAVING);
        std::fs::rename(&self.path, &leaving)?;
        sync_dir(dir)?;
        prepare(File::options().write(true).open(&leaving)?)?;
        std::fs::rename(&leaving, &spare)?;
        sync_dir(dir)
    }
}

/// Bytes of a log on disk.
pub fn disk_bytes(database: &Path) -> u64 {
    let files = std::fs::read_dir(database.join(DIR)).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum()
}

fn remove(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn damaged(path: &Path, at: usize) -> Error {
    Error::Corrupt(format!(
        "the log {} is damaged at byte {at}, and acknowledged commits would be lost; restore the last backup into an \
         empty directory",
        path.display()
    ))
}

fn cannot(what: &str, path: &Path, e: std::io::Error) -> Error {
    Error::failed(format!("cannot {what} {}", path.display()), e)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    /// One thread goes on to the next segment while another retires one: what is written is where it is looked for.
    #[test]
    fn a_spare_segment_may_come_at_any_moment() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::begin(dir.path().join(DIR), 0).unwrap();
        let (retiring, retired) = std::sync::mpsc::channel::<Arc<Segment>>();
        let settler = std::thread::spawn(move || {
            for segment in retired {
                segment.retire().unwrap();
            }
        });
        for _ in 0..1000 {
            let full = log.segment();
            // As large as one that is worth keeping.
            log.file.set_len(WORTH.start).unwrap();
            log.next().unwrap();
            retiring.send(full).unwrap();
            let (written, named) = (log.file.metadata().unwrap(), std::fs::metadata(&log.segment.path).unwrap());
            assert_eq!((written.dev(), written.ino()), (named.dev(), named.ino()));
        }
        drop(retiring);
        settler.join().unwrap();
    }
}
