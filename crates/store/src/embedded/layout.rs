//! What a data directory is: the lock, the format version, the ids of tables and indexes, the high-water mark.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::Error;
use crate::table::Table;

/// The version this program writes. It reads 4 as well, in which all indexes of a table have lists or none, 3, which has no
/// sheaves, 2, which has no log of its own either, and 1, which has no lists of entries and no table apart.
pub const FORMAT: u32 = 5;
const OLDEST: u32 = 1;

/// The database inside a data directory.
pub const DATABASE: &str = "store";
/// Where a database is built until it is whole.
const UNFINISHED: &str = "store.new";
const FORMAT_FILE: &str = "FORMAT";
const LOCK_FILE: &str = "LOCK";
const HIGH_WATER_FILE: &str = "HIGH-WATER";
/// There from the beginning of a restore to its end, whatever ends the process.
const RESTORING_FILE: &str = "RESTORING";
/// All that a restore makes, but for its mark.
const RESTORED: [&str; 7] =
    [DATABASE, UNFINISHED, FORMAT_FILE, "FORMAT.new", HIGH_WATER_FILE, "HIGH-WATER.new", LOCK_FILE];

/// Holds the directory for one process; released by dropping it, or by the process's end.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Makes the data directory so that a power cut does not take it away again.
pub fn make_dir(dir: &Path) -> Result<(), Error> {
    let missing: Vec<_> = dir.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.exists()).collect();
    let make = || {
        fs::create_dir_all(dir)?;
        if !missing.is_empty() {
            close_to_others(dir)?;
        }
        missing.iter().filter_map(|path| path.parent()).try_for_each(sync_dir)
    };
    make().map_err(|e| Error::failed(format!("cannot make the data directory {}", dir.display()), e))
}

/// Lets nobody look into a directory but whoever runs the program: there are secrets in it.
pub fn close_to_others(dir: &Path) -> std::io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(dir)?.permissions().mode();
        if mode & 0o077 != 0 {
            fs::set_permissions(dir, fs::Permissions::from_mode(mode & 0o700))?;
        }
    }
    Ok(())
}

/// Builds the database under another name, and gives it its own when all of it is safe: one that is there is whole.
pub fn build<T>(dir: &Path, fill: impl FnOnce(&Path) -> Result<T, Error>) -> Result<T, Error> {
    let (unfinished, database) = (dir.join(UNFINISHED), dir.join(DATABASE));
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished).map_err(|e| cannot("remove", &unfinished, e))?;
    }
    let filled = fill(&unfinished)?;
    let publish = || {
        sync_dirs(&unfinished)?;
        fs::rename(&unfinished, &database)?;
        sync_dir(dir)
    };
    publish().map_err(|e| cannot("make", &database, e))?;
    Ok(filled)
}

/// Makes the names in a directory safe; an empty path is the working directory.
pub fn sync_dir(dir: &Path) -> std::io::Result<()> {
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    File::open(dir)?.sync_all()
}

fn sync_dirs(dir: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_dirs(&entry.path())?;
        }
    }
    sync_dir(dir)
}

/// The files of a directory whose names are a number and `suffix`, in the order of the numbers; none if there is no such
/// directory.
pub fn numbered(dir: &Path, suffix: &str) -> Result<Vec<(u64, PathBuf)>, Error> {
    let list = || {
        let mut found = Vec::new();
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            let number = path.file_name().and_then(|name| name.to_str()?.strip_suffix(suffix)?.parse::<u64>().ok());
            found.extend(number.map(|number| (number, path)));
        }
        found.sort();
        Ok(found)
    };
    match list() {
        Err(e) if std::io::Error::kind(&e) == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed.map_err(|e| cannot("list", dir, e)),
    }
}

/// Takes the directory for this process.
pub fn lock(dir: &Path) -> Result<Lock, Error> {
    let path = dir.join(LOCK_FILE);
    let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
    let mut file = open.map_err(|e| cannot("open", &path, e))?;
    take(&mut file, dir)?;
    // Only for the sentence of the next one; failing to write it does not matter.
    let _ = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
    Ok(Lock { _file: file })
}

/// Refuses a directory that another process has taken. Nothing is left in it, and it is not taken.
pub fn require_unlocked(dir: &Path) -> Result<(), Error> {
    match File::open(dir.join(LOCK_FILE)) {
        Ok(mut file) => take(&mut file, dir),
        Err(_) => Ok(()),
    }
}

fn take(file: &mut File, dir: &Path) -> Result<(), Error> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(fs::TryLockError::WouldBlock) => {
            let mut holder = String::new();
            let _ = file.read_to_string(&mut holder);
            let holder = if holder.trim().is_empty() { String::new() } else { format!(" (process {})", holder.trim()) };
            Err(Error::Open(format!(
                "another tidings{holder} is using the data directory {}; stop it, or choose another directory with --data",
                dir.display()
            )))
        }
        Err(fs::TryLockError::Error(e)) => Err(cannot("lock", &dir.join(LOCK_FILE), e)),
    }
}

/// Refuses a directory that a restore did not finish: what is there is not whole, and nothing at all looks like new.
pub fn check_restored(dir: &Path) -> Result<(), Error> {
    if !dir.join(RESTORING_FILE).exists() {
        return Ok(());
    }
    Err(Error::Open(format!(
        "a restore into {0} was broken off, and what is there is not whole; run it again: tidings restore FILE --data {0}",
        dir.display()
    )))
}

/// Whether a restore may fill the directory: there is nothing in it, or nothing but what an unfinished restore left.
pub fn is_free(dir: &Path) -> std::io::Result<bool> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(true),
        Err(e) => return Err(e),
    };
    let names = entries.map(|entry| Ok(entry?.file_name())).collect::<std::io::Result<Vec<_>>>()?;
    let unfinished = names.iter().any(|name| name == RESTORING_FILE);
    Ok(names.iter().all(|name| {
        // A lock alone is what is left of a restore that had not begun.
        name == LOCK_FILE || unfinished && (name == RESTORING_FILE || RESTORED.iter().any(|known| name == known))
    }))
}

/// Marks the directory as one that is being restored into, before anything else is in it.
pub fn begin_restore(dir: &Path) -> Result<(), Error> {
    let path = dir.join(RESTORING_FILE);
    let mark = || {
        File::create(&path)?.sync_all()?;
        sync_dir(dir)
    };
    mark().map_err(|e| cannot("write", &path, e))
}

/// Takes the mark away: all of it is there, and safe. Or none of it.
pub fn end_restore(dir: &Path) -> Result<(), Error> {
    let path = dir.join(RESTORING_FILE);
    let unmark = || {
        sync_dir(dir)?;
        fs::remove_file(&path)?;
        sync_dir(dir)
    };
    unmark().map_err(|e| cannot("remove", &path, e))
}

/// Removes what a restore has made so far, but for its mark and the lock.
pub fn clear_restored(dir: &Path) -> Result<(), Error> {
    for name in RESTORED.iter().filter(|name| **name != LOCK_FILE) {
        let path = dir.join(name);
        let removed = match fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => fs::remove_dir_all(&path),
            Ok(_) => fs::remove_file(&path),
            Err(_) => Ok(()),
        };
        removed.map_err(|e| cannot("remove", &path, e))?;
    }
    Ok(())
}

/// Leaves the directory as empty as a restore found it; one that it made goes, too.
pub fn leave_empty(dir: &Path, made: bool) -> Result<(), Error> {
    clear_restored(dir)?;
    end_restore(dir)?;
    let path = dir.join(LOCK_FILE);
    fs::remove_file(&path).map_err(|e| cannot("remove", &path, e))?;
    if made { fs::remove_dir(dir).map_err(|e| cannot("remove", dir, e)) } else { Ok(()) }
}

/// Checks the directory's format, or marks a new directory with ours.
pub fn check_format(dir: &Path) -> Result<(), Error> {
    let path = dir.join(FORMAT_FILE);
    match fs::read_to_string(&path) {
        Ok(text) => match text.trim().parse::<u32>() {
            Ok(FORMAT) => Ok(()),
            // What is there is read as it is; an older program could not read what will be added.
            Ok(OLDEST..FORMAT) => write_durably(&path, format!("{FORMAT}\n").as_bytes()),
            Ok(newer) if newer > FORMAT => Err(Error::Open(format!(
                "the data directory {} has format {newer}, and this tidings knows formats up to {FORMAT}; use a newer tidings",
                dir.display()
            ))),
            _ => Err(Error::Open(format!(
                "{} says {text:?}, which is no format this tidings can read; restore a backup into an empty directory",
                path.display()
            ))),
        },
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            if dir.join(DATABASE).exists() {
                return Err(Error::Open(format!(
                    "{} is missing although the directory holds a store; restore a backup into an empty directory",
                    path.display()
                )));
            }
            write_durably(&path, format!("{FORMAT}\n").as_bytes())
        }
        Err(e) => Err(cannot("read", &path, e)),
    }
}

/// The last sequence number that was known to be durable, and the place to note a later one.
#[derive(Debug)]
pub struct HighWater {
    path: PathBuf,
}

impl HighWater {
    pub fn of(dir: &Path) -> Self {
        Self { path: dir.join(HIGH_WATER_FILE) }
    }

    pub fn read(&self) -> Result<u64, Error> {
        match fs::read_to_string(&self.path) {
            Ok(text) => text.trim().parse().map_err(|_| {
                Error::Corrupt(format!(
                    "{} holds no number; restore a backup into an empty directory",
                    self.path.display()
                ))
            }),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(0),
            Err(e) => Err(cannot("read", &self.path, e)),
        }
    }

    /// Fails if the log was cut: the store must have everything up to the mark.
    pub fn check(&self, sequence: u64) -> Result<(), Error> {
        let mark = self.read()?;
        if sequence < mark {
            return Err(Error::Corrupt(format!(
                "the store ends at commit {sequence}, but commit {mark} was acknowledged: its log is cut or damaged; \
                 restore the last backup into an empty directory"
            )));
        }
        Ok(())
    }

    pub fn write(&self, sequence: u64) -> Result<(), Error> {
        write_durably(&self.path, format!("{sequence}\n").as_bytes())
    }
}

/// Replaces a small file so that a crash leaves the old or the new content.
fn write_durably(path: &Path, content: &[u8]) -> Result<(), Error> {
    let temporary = path.with_extension("new");
    let replace = || {
        let mut file = File::create(&temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        path.parent().map_or(Ok(()), sync_dir)
    };
    replace().map_err(|e| cannot("write", path, e))
}

/// What the operating system said, if that is why.
pub fn cause_of(error: &Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// Whether something was short that comes back: room on the disk, files that may be open, memory.
pub fn is_shortage(error: &Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<std::io::Error>());
    cause.is_some_and(|e| {
        let short = [Errno::NOSPC, Errno::DQUOT, Errno::MFILE, Errno::NFILE, Errno::NOMEM];
        Errno::from_io_error(e).is_some_and(|errno| short.contains(&errno))
    })
}

/// Whether the system would not let us read or write, which says nothing about what is there.
pub fn is_refusal(e: &std::io::Error) -> bool {
    let refused = [
        Errno::ACCESS,
        Errno::PERM,
        Errno::ROFS,
        Errno::IO,
        Errno::FBIG,
        Errno::NOSPC,
        Errno::DQUOT,
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOMEM,
    ];
    Errno::from_io_error(e).is_some_and(|errno| refused.contains(&errno))
}

fn cannot(what: &str, path: &Path, e: std::io::Error) -> Error {
    Error::failed(format!("cannot {what} {}", path.display()), e)
}

/// The ids of a table and its indexes, in the order of [`Table::indexes`].
#[derive(Debug, Clone)]
pub struct TableIds {
    pub table: u16,
    pub indexes: Vec<u16>,
    /// Whether the items are kept apart from those of other tables.
    pub apart: bool,
}

/// Ids by the name of a table, of an index as `table/index`, or of a table that is kept apart as `table/`, which says
/// so from its beginning: a table stays where it is.
pub type Record = BTreeMap<String, u16>;

/// Assigns ids to tables and indexes: those on record keep theirs, new ones get the next. Answers what to add
/// to the record. Ids start at 1; 0 is for our own entries.
pub fn assign_ids(record: &Record, tables: &[Table]) -> Result<(BTreeMap<String, TableIds>, Record), Error> {
    let mut next = record.values().max().copied().unwrap_or(0);
    let mut added = BTreeMap::new();
    let mut id_of = |name: String| -> Result<u16, Error> {
        if let Some(id) = record.get(&name).or_else(|| added.get(&name)) {
            return Ok(*id);
        }
        next =
            next.checked_add(1).filter(|id| *id < u16::MAX).ok_or_else(|| Error::Open("too many tables".to_owned()))?;
        added.insert(name, next);
        Ok(next)
    };
    let mut ids = BTreeMap::new();
    for table in tables {
        let is_new = !record.contains_key(table.name());
        let own = id_of(table.name().to_owned())?;
        let apart = format!("{}/", table.name());
        if is_new && table.is_ordered() {
            id_of(apart.clone())?;
        }
        let indexes = table.indexes().iter().map(|index| id_of(format!("{}/{}", table.name(), index.name)));
        let indexes = indexes.collect::<Result<Vec<_>, _>>()?;
        let apart = record.contains_key(&apart) || (is_new && table.is_ordered());
        ids.insert(table.name().to_owned(), TableIds { table: own, indexes, apart });
    }
    Ok((ids, added))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_that_finds_no_room_is_told_from_one_that_cannot_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let mark = HighWater::of(dir.path());
        mark.write(7).unwrap();
        let beside = dir.path().join(HIGH_WATER_FILE).with_extension("new");
        std::os::unix::fs::symlink("/dev/full", &beside).unwrap();
        assert!(is_shortage(&mark.write(8).unwrap_err()));
        assert_eq!(mark.read().unwrap(), 7, "the old one stays");
        fs::remove_file(&beside).unwrap();
        fs::create_dir(&beside).unwrap();
        assert!(!is_shortage(&mark.write(8).unwrap_err()));
    }
}
