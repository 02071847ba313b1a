//! The lists of tables, compared with their checksums before fjall reads them.
//!
//! Each keyspace has a file `current`, which names the list in force and its checksum. fjall 3.1 writes that
//! checksum but does not compare it: a flipped bit there is a panic, or a table that is silently left out.

use std::io::{ErrorKind, Result as Read};
use std::path::Path;

use xxhash_rust::xxh3::xxh3_128;

use crate::Error;

/// Fails if a keyspace's list of tables is not what was written.
pub fn check(database: &Path) -> Result<(), Error> {
    let keyspaces = database.join("keyspaces");
    let failed = |e| Error::failed(format!("cannot list {}", keyspaces.display()), e);
    for entry in std::fs::read_dir(&keyspaces).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let unread = |e| Error::failed(format!("cannot read the list of tables in {}", path.display()), e);
        if path.is_dir() && !is_whole(&path).map_err(unread)? && !is_unfinished(&path).map_err(unread)? {
            return Err(Error::Corrupt(format!(
                "the list of tables in {} is damaged; restore the last backup into an empty directory",
                path.display()
            )));
        }
    }
    Ok(())
}

/// `current` holds the list's number, its checksum, and 0 for the kind of checksum.
fn is_whole(keyspace: &Path) -> Read<bool> {
    let Some(current) = found(std::fs::read(keyspace.join("current")))? else { return Ok(false) };
    let named = || {
        let (number, rest) = current.split_first_chunk::<8>()?;
        let (checksum, kind) = rest.split_first_chunk::<16>()?;
        (kind == [0]).then_some((u64::from_le_bytes(*number), u128::from_le_bytes(*checksum)))
    };
    let Some((number, checksum)) = named() else { return Ok(false) };
    let list = found(std::fs::read(keyspace.join(format!("v{number}"))))?;
    Ok(list.is_some_and(|list| xxh3_128(&list) == checksum))
}

/// Whether the process died while it made the keyspace, which then has no `current` and no tables yet. fjall makes it anew.
fn is_unfinished(keyspace: &Path) -> Read<bool> {
    for entry in std::fs::read_dir(keyspace)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_early = match name.to_string_lossy().as_ref() {
            "tables" => std::fs::read_dir(entry.path())?.next().is_none(),
            "v0" => true,
            // What becomes `v0` or `current`.
            name => name.starts_with(".tmp"),
        };
        if !is_early {
            return Ok(false);
        }
    }
    Ok(true)
}

fn found<T>(read: Read<T>) -> Read<Option<T>> {
    match read {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}
