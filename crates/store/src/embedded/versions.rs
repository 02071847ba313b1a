//! The lists of tables, compared with their checksums before fjall reads them.
//!
//! Each keyspace has a file `current`, which names the list in force and its checksum. fjall 3.1 writes that
//! checksum but does not compare it: a flipped bit there is a panic, or a table that is silently left out.

use std::path::Path;

use xxhash_rust::xxh3::xxh3_128;

use crate::Error;

/// Fails if a keyspace's list of tables is not what was written.
pub fn check(database: &Path) -> Result<(), Error> {
    let keyspaces = database.join("keyspaces");
    let failed = |e| Error::failed(format!("cannot list {}", keyspaces.display()), e);
    for entry in std::fs::read_dir(&keyspaces).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() && !is_whole(&path) {
            return Err(Error::Corrupt(format!(
                "the list of tables in {} is damaged; restore the last backup into an empty directory",
                path.display()
            )));
        }
    }
    Ok(())
}

/// `current` holds the list's number, its checksum, and 0 for the kind of checksum.
fn is_whole(keyspace: &Path) -> bool {
    let compare = || {
        let current = std::fs::read(keyspace.join("current")).ok()?;
        let (number, rest) = current.split_first_chunk::<8>()?;
        let (checksum, kind) = rest.split_first_chunk::<16>()?;
        let list = std::fs::read(keyspace.join(format!("v{}", u64::from_le_bytes(*number)))).ok()?;
        Some(xxh3_128(&list) == u128::from_le_bytes(*checksum) && kind == [0])
    };
    compare().unwrap_or(false)
}
