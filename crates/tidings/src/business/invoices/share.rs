//! Files where several nodes work on one store: the node that reads one need not be the one that received it, so their
//! pieces are in the store, too, and whoever needs a file keeps a copy on its disk.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use tidings_store::{Error, Item, KeyKind, Query, Store, Table, Value, Write};

use super::files::Files;

/// Pieces of files, by the file's SHA-256.
#[must_use]
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> =
        LazyLock::new(|| Table::new("tidings-files", "hash", KeyKind::S).sort("part", KeyKind::N));
    &TABLE
}

/// Bytes of a piece; an item has 400 KB, and ten of them are a transaction.
const PIECE: usize = 300 * 1024;
const PIECES: usize = 10;

/// Puts a file that is on disk into the store. The same file again changes nothing.
pub async fn put(store: &dyn Store, path: &Path, hash: &str) -> Result<(), Error> {
    let unread = |error: std::io::Error| Error::failed("a file cannot be read", error);
    let bytes = tokio::fs::read(path).await.map_err(unread)?;
    let pieces: Vec<&[u8]> = bytes.chunks(PIECE).collect();
    let count = i64::try_from(pieces.len()).unwrap_or(i64::MAX);
    // The last piece comes last: with it the file is whole.
    for (round, some) in pieces.chunks(PIECES).enumerate() {
        let write = |(place, piece): (usize, &&[u8])| {
            let part = i64::try_from(round * PIECES + place).unwrap_or(i64::MAX);
            let item = Item::new().with("hash", hash).with("part", part).with("of", count);
            Write::put(table(), item.with("bytes", piece.to_vec()))
        };
        store.transact(some.iter().enumerate().map(write).collect()).await?;
    }
    Ok(())
}

/// The path of a file that another node received, once it is here; `None` if the store does not have all of it.
pub async fn fetch(store: &dyn Store, files: &Files, hash: &str) -> Result<Option<PathBuf>, Error> {
    let here = |error: std::io::Error| Error::failed("a file cannot be written", error);
    let mut incoming = files.receive().map_err(here)?;
    let (mut parts, mut of) = (0, -1);
    let mut query = Query::new(hash).limit(4);
    loop {
        let page = store.query(table(), &query).await?;
        for item in &page.items {
            let (Some(part), Some(Value::B(bytes))) = (item.int("part"), item.get("bytes")) else { return Ok(None) };
            if part != parts {
                return Ok(None);
            }
            (parts, of) = (parts + 1, item.int("of").unwrap_or(-1));
            incoming.write(bytes).map_err(here)?;
        }
        if page.next.is_none() {
            break;
        }
        query = query.after(page.next);
    }
    if parts != of {
        return Ok(None);
    }
    let kept = tokio::task::spawn_blocking(move || incoming.keep()).await;
    let kept = kept.map_err(|error| Error::failed("a file cannot be written", error))?.map_err(here)?;
    // What does not hash to its name is not the file.
    Ok(files.path(&kept.hash).filter(|_| kept.hash == hash))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tidings_core::time::ManualClock;
    use tidings_store::memory::Memory;

    use super::*;

    #[tokio::test]
    async fn a_file_comes_whole_to_another_node_or_not_at_all() {
        let clock = Arc::new(ManualClock::new("2026-03-01T12:00:00Z".parse().unwrap()));
        let store = Memory::new(clock);
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (here, there) = (Files::new(one.path()), Files::new(other.path()));
        for size in [1, PIECE - 1, PIECE, PIECE + 1, PIECE * PIECES, PIECE * PIECES + 1] {
            let bytes: Vec<u8> = (0..size).map(|n| (n % 251) as u8).collect();
            let mut incoming = here.receive().unwrap();
            incoming.write(&bytes).unwrap();
            let kept = incoming.keep().unwrap();
            assert_eq!(fetch(&store, &there, &kept.hash).await.unwrap(), None, "it is not there yet");
            put(&store, &here.path(&kept.hash).unwrap(), &kept.hash).await.unwrap();
            let path = fetch(&store, &there, &kept.hash).await.unwrap().unwrap();
            assert!(std::fs::read(path).unwrap() == bytes, "{size}");
        }
    }
}
