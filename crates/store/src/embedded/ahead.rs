//! Zeros ahead of the journal's end, so that a sync has nothing but data to write.
//!
//! fjall gives a new journal its length but no blocks. Whoever then appends and syncs also waits for the file system to
//! find blocks and to note them; over zeros that are on the disk already, a sync takes half as long. So every now and
//! then the committer, between two commits, writes the next zeros itself.
//!
//! This is safe because of three things. Only the committer's thread writes to the journal, and it is here now. What has
//! been written is data from the start of the file on, so the first hole lies behind all of it. And nothing is written
//! past the file's end: a journal that is appended to has no hole before it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rustix::fs::SeekFrom;

use super::journal;

/// Zeros written at a time: few enough not to be felt by who waits behind them.
const PIECE: usize = 512 * 1024;
/// A group with more bytes is held up by its own bytes, not by what is noted of them.
const LARGE_GROUP: usize = 128 * 1024;
/// What the journal needs for a group besides the bytes of its items, at the most likely.
const OVERHEAD: u64 = 2;

pub struct Ahead {
    database: PathBuf,
    /// Zeros that are likely left.
    left: u64,
    zeros: Vec<u8>,
}

impl Ahead {
    pub fn of(database: PathBuf) -> Self {
        Self { database, left: 0, zeros: vec![0; PIECE] }
    }

    /// To be called after a commit of so many bytes, by the thread that commits. Nothing comes of a failure: the next
    /// commit will meet the same disk and say what is wrong with it.
    pub fn committed(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes as u64 * OVERHEAD);
        if self.left == 0 && bytes <= LARGE_GROUP {
            // Where there is no room for zeros, it is not looked for after every commit.
            self.left = PIECE as u64;
            let _ = self.write();
        }
    }

    fn write(&self) -> std::io::Result<()> {
        let Some(path) = journal::paths(&self.database).ok().and_then(|mut paths| paths.pop()) else { return Ok(()) };
        let file = File::options().write(true).open(path)?;
        let end = file.metadata()?.len();
        let hole = rustix::fs::seek(&file, SeekFrom::Hole(0))?;
        let room = usize::try_from(end.saturating_sub(hole)).unwrap_or(PIECE);
        let zeros = self.zeros.get(..room).unwrap_or(&self.zeros);
        file.write_all_at(zeros, hole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks_to(path: &std::path::Path) -> u64 {
        rustix::fs::seek(File::open(path).unwrap(), SeekFrom::Hole(0)).unwrap()
    }

    #[test]
    fn zeros_follow_what_is_written_and_end_with_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (dir.path().join("9.jnl"), dir.path().join("10.jnl"));
        for path in [&old, &new] {
            let file = File::create_new(path).unwrap();
            file.set_len(PIECE as u64 * 2).unwrap();
            file.write_all_at(&[7; 5000], 0).unwrap();
        }
        let mut ahead = Ahead::of(dir.path().to_owned());
        ahead.committed(1);
        let first = blocks_to(&new);
        assert!((PIECE as u64 + 5000..PIECE as u64 * 2).contains(&first), "{first}");
        ahead.committed(1);
        assert_eq!(blocks_to(&new), first, "there are enough");
        ahead.committed(LARGE_GROUP + 1);
        ahead.left = 0;
        ahead.committed(LARGE_GROUP + 1);
        assert_eq!(blocks_to(&new), first, "a large group needs none");
        ahead.committed(LARGE_GROUP);
        assert_eq!(blocks_to(&new), PIECE as u64 * 2);
        ahead.left = 0;
        ahead.committed(1);
        let bytes = std::fs::read(&new).unwrap();
        assert_eq!(bytes.len(), PIECE * 2, "nothing past the end");
        assert!(bytes.starts_with(&[7; 5000]) && bytes[5000..].iter().all(|byte| *byte == 0));
        assert!(blocks_to(&old) < PIECE as u64, "only the last journal is written to");
    }

    #[test]
    fn a_journal_that_is_appended_to_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.jnl");
        std::fs::write(&path, [7; 5000]).unwrap();
        Ahead::of(dir.path().to_owned()).committed(1);
        assert_eq!(std::fs::read(&path).unwrap(), [7; 5000]);
        Ahead::of(dir.path().join("nowhere")).committed(1);
    }
}
