//! Backup: every entry of a consistent view, in one file that carries its own checksum. Restore: the way back.

use std::io::{self, Read, Write};
use std::path::Path;

use fjall::{Database, PersistMode, Slice};
use xxhash_rust::xxh3::Xxh3;

use super::front::Space;
use super::view::View;
use super::{Embedded, Keyspaces, layout, log, open_database, read_sequence};
use crate::Error;

const MAGIC: &[u8] = b"tidings backup 3\n";
/// Written by stores that had no sheaves, and by those that kept no table apart; otherwise the same.
const MAGICS_BEFORE: [&[u8]; 2] = [b"tidings backup 2\n", b"tidings backup 1\n"];
const END: u8 = 0xFF;
/// No entry is longer: an item, its key, and room to spare.
const ENTRY_BYTES: u32 = 1024 * 1024;
/// Entries that a restore writes in one batch.
const BATCH: usize = 2000;

/// What a backup or a restore went over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupSummary {
    pub entries: u64,
    pub bytes: u64,
    /// The commit up to which it holds everything.
    pub sequence: u64,
}

impl Embedded {
    /// Writes a consistent copy of everything to `out` while the store goes on working.
    pub fn backup(&self, out: &mut dyn Write) -> Result<BackupSummary, Error> {
        // A copy of its own, which commits do not wait for.
        let front = self.shared.front().clone();
        let view = View::new(&front, &self.db, &self.spaces);
        let mut out = Hashing { inner: out, hash: Xxh3::new(), bytes: 0 };
        let failed = |e| Error::failed("cannot write the backup", e);
        out.write_all(MAGIC).map_err(failed)?;
        let mut entries = 0;
        for space in Space::NUMBERED {
            for pair in view.all(space) {
                let (key, value) = pair?;
                write_entry(&mut out, space.number(), &key, &value).map_err(failed)?;
                entries += 1;
            }
        }
        let mut end = || {
            out.write_all(&[END])?;
            out.write_all(&u64::to_be_bytes(entries))?;
            let digest = out.hash.digest128().to_be_bytes();
            out.inner.write_all(&digest)?;
            out.inner.flush()
        };
        end().map_err(failed)?;
        let sequence = view.get(Space::Items, &Slice::from(super::database::SEQUENCE_KEY))?;
        let sequence = sequence.and_then(|bytes| Some(u64::from_be_bytes(bytes.first_chunk().copied()?))).unwrap_or(0);
        Ok(BackupSummary { entries, bytes: out.bytes, sequence })
    }
}

/// Fills an empty directory from a backup, or one that holds nothing but a restore that was broken off. A backup that is
/// damaged or cut leaves the directory empty; a crash leaves it marked, so that half a store is not taken for a whole one,
/// nor none for a new one.
pub fn restore(input: &mut dyn Read, dir: &Path) -> Result<BackupSummary, Error> {
    // Looked at before the lock, so that nothing is left in a directory that is somebody's; and after, because then
    // nobody else can fill it.
    require_free(dir)?;
    let made = !dir.exists();
    layout::make_dir(dir)?;
    let _lock = layout::lock(dir)?;
    require_free(dir)?;
    layout::begin_restore(dir)?;
    let restored = layout::clear_restored(dir).and_then(|()| restore_into(input, dir));
    if restored.is_err() {
        // What cannot be removed stays marked.
        let _ = layout::leave_empty(dir, made);
    }
    restored
}

fn require_free(dir: &Path) -> Result<(), Error> {
    match layout::is_free(dir) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::Open(format!("{} is not empty; restore into an empty directory", dir.display()))),
        Err(e) => Err(Error::failed(format!("cannot restore into {}", dir.display()), e)),
    }
}

fn restore_into(input: &mut dyn Read, dir: &Path) -> Result<BackupSummary, Error> {
    layout::check_format(dir)?;
    let summary = layout::build(dir, |unfinished| fill(input, unfinished))?;
    layout::HighWater::of(dir).write(summary.sequence)?;
    layout::end_restore(dir)?;
    Ok(summary)
}

fn fill(input: &mut dyn Read, unfinished: &Path) -> Result<BackupSummary, Error> {
    let (db, spaces) = open_database(unfinished, 16 * 1024 * 1024)?;
    log::make(unfinished)?;
    let mut input = Hashing { inner: input, hash: Xxh3::new(), bytes: 0 };
    let mut magic = Vec::new();
    let most = u64::try_from(MAGIC.len()).unwrap_or(u64::MAX);
    input.by_ref().take(most).read_to_end(&mut magic).map_err(cut)?;
    // Cut so early, it is a backup still; of nothing at all nobody can tell.
    let mut known = std::iter::once(MAGIC).chain(MAGICS_BEFORE);
    let is_cut = !magic.is_empty() && known.clone().any(|known| known.starts_with(&magic));
    match magic.as_slice() {
        whole if known.any(|known| known == whole) => {}
        _ if is_cut => return Err(cut(io::ErrorKind::UnexpectedEof.into())),
        _ => return Err(Error::Open("the file is no tidings backup".to_owned())),
    }
    let entries = read_entries(&mut input, &db, &spaces)?;
    let digest = input.hash.digest128();
    let mut expected = [0; 16];
    input.inner.read_exact(&mut expected).map_err(cut)?;
    if digest.to_be_bytes() != expected {
        return Err(Error::Corrupt("the backup is damaged: its checksum does not fit".to_owned()));
    }
    require_end(input.inner)?;
    db.persist(PersistMode::SyncAll).map_err(|e| Error::failed("cannot finish the restore", e))?;
    let sequence = read_sequence(&spaces.items)?;
    Ok(BackupSummary { entries, bytes: input.bytes, sequence })
}

fn read_entries(input: &mut Hashing<&mut dyn Read>, db: &Database, spaces: &Keyspaces) -> Result<u64, Error> {
    let write = |batch: fjall::OwnedWriteBatch| batch.commit().map_err(|e| Error::failed("cannot write", e));
    let mut batch = db.batch();
    let mut entries = 0;
    loop {
        let mut tag = [0];
        input.read_exact(&mut tag).map_err(cut)?;
        let space = match tag {
            [END] => break,
            [number] => Space::numbered(number),
        };
        let space = space.ok_or_else(|| Error::Corrupt("the backup is damaged".to_owned()))?;
        let (key, value) = (read_bytes(input)?, read_bytes(input)?);
        batch.insert(spaces.of(space), key, value);
        entries += 1;
        if batch.len() >= BATCH {
            write(std::mem::replace(&mut batch, db.batch()))?;
        }
    }
    write(batch)?;
    let mut count = [0; 8];
    input.read_exact(&mut count).map_err(cut)?;
    if u64::from_be_bytes(count) != entries {
        return Err(Error::Corrupt("the backup is damaged: entries are missing".to_owned()));
    }
    Ok(entries)
}

fn write_entry(out: &mut impl Write, tag: u8, key: &[u8], value: &[u8]) -> io::Result<()> {
    out.write_all(&[tag])?;
    for bytes in [key, value] {
        out.write_all(&u32::try_from(bytes.len()).map_err(io::Error::other)?.to_be_bytes())?;
        out.write_all(bytes)?;
    }
    Ok(())
}

fn read_bytes(input: &mut impl Read) -> Result<Vec<u8>, Error> {
    let mut len = [0; 4];
    input.read_exact(&mut len).map_err(cut)?;
    let len = u32::from_be_bytes(len);
    if len > ENTRY_BYTES {
        return Err(Error::Corrupt("the backup is damaged: an entry is too long".to_owned()));
    }
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    input.read_exact(&mut bytes).map_err(cut)?;
    Ok(bytes)
}

/// What follows the end is not covered by the checksum: the file is not what was written.
fn require_end(input: &mut dyn Read) -> Result<(), Error> {
    match input.read_exact(&mut [0]) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
        Err(e) => Err(Error::failed("cannot read the backup", e)),
        Ok(()) => {
            Err(Error::Corrupt("the file goes on after the backup's end; it is not as it was written".to_owned()))
        }
    }
}

fn cut(e: io::Error) -> Error {
    match e.kind() {
        io::ErrorKind::UnexpectedEof => Error::Corrupt("the backup is cut short".to_owned()),
        _ => Error::failed("cannot read the backup", e),
    }
}

/// Passes bytes on and keeps their checksum and count.
struct Hashing<T> {
    inner: T,
    hash: Xxh3,
    bytes: u64,
}

impl<T> Hashing<T> {
    fn take_in(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.bytes += u64::try_from(bytes.len()).unwrap_or(0);
    }
}

impl Write for Hashing<&mut dyn Write> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = self.inner.write(bytes)?;
        self.take_in(bytes.get(..len).unwrap_or_default());
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl Read for Hashing<&mut dyn Read> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let len = self.inner.read(bytes)?;
        self.take_in(bytes.get(..len).unwrap_or_default());
        Ok(len)
    }
}
