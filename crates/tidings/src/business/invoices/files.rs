//! Files by their content: under the data directory, named by their SHA-256, on disk before anything speaks of them.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ring::digest::{Context, SHA256};

use crate::business::event::{OWN_FILE, is_hash};

/// The files of this installation.
#[derive(Debug, Clone)]
pub struct Files(PathBuf);

/// A file that is being received. Dropped before it is kept, it is gone.
pub struct Incoming {
    file: tempfile::NamedTempFile,
    hash: Context,
    bytes: u64,
    root: PathBuf,
}

/// A file that is on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// SHA-256 in hex.
    pub hash: String,
    pub bytes: u64,
}

impl Kept {
    /// How events name it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{OWN_FILE}{}", self.hash)
    }
}

impl Files {
    #[must_use]
    pub fn new(data_dir: &Path) -> Self {
        Self(data_dir.join("files"))
    }

    pub fn receive(&self) -> io::Result<Incoming> {
        std::fs::create_dir_all(&self.0)?;
        let file = tempfile::Builder::new().prefix("incoming-").tempfile_in(&self.0)?;
        Ok(Incoming { file, hash: Context::new(&SHA256), bytes: 0, root: self.0.clone() })
    }

    /// The path of a file of ours; `None` for what is no hash.
    #[must_use]
    pub fn path(&self, hash: &str) -> Option<PathBuf> {
        is_hash(hash).then(|| place(&self.0, hash))
    }

    /// Removes what a crash left half received.
    pub fn clean(&self) {
        for entry in std::fs::read_dir(&self.0).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with("incoming-") {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

fn place(root: &Path, hash: &str) -> PathBuf {
    root.join(hash.get(..2).unwrap_or_default()).join(hash)
}

impl Incoming {
    pub fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        self.hash.update(piece);
        self.bytes += piece.len() as u64;
        self.file.write_all(piece)
    }

    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Puts the file in its place, and waits until that is on disk: its bytes, its name, its directory's name.
    pub fn keep(self) -> io::Result<Kept> {
        let hash: String = self.hash.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let path = place(&self.root, &hash);
        let directory = path.parent().unwrap_or(&self.root);
        std::fs::create_dir_all(directory)?;
        self.file.as_file().sync_all()?;
        // Whoever was there first has the same content.
        self.file.persist(&path).map_err(|error| error.error)?;
        std::fs::File::open(directory)?.sync_all()?;
        std::fs::File::open(&self.root)?.sync_all()?;
        Ok(Kept { hash, bytes: self.bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_content_is_one_file() {
        let data = tempfile::tempdir().unwrap();
        let files = Files::new(data.path());
        let keep = |pieces: &[&[u8]]| {
            let mut incoming = files.receive().unwrap();
            pieces.iter().for_each(|piece| incoming.write(piece).unwrap());
            incoming.keep().unwrap()
        };
        let kept = keep(&[b"ab", b"c"]);
        assert_eq!(kept.hash, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!((kept.bytes, keep(&[b"abc"])), (3, kept.clone()));
        assert_eq!(std::fs::read(files.path(&kept.hash).unwrap()).unwrap(), b"abc");
        assert_eq!(files.path("../../etc/passwd"), None);
        drop(files.receive().unwrap());
        let names: Vec<_> =
            std::fs::read_dir(data.path().join("files")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["ba"], "nothing half received is left");
    }
}
