//! The files that a server writes beside its store.

use std::path::{Path, PathBuf};

use super::StartError;
use crate::bench::limit::{Appender, FILE_BYTES};

/// The file that `POST /limit` appends to.
pub fn appender(path: PathBuf) -> Result<Appender, StartError> {
    Appender::create(&path, FILE_BYTES).map_err(|source| StartError::Write { path, source })
}

/// Whoever reads it reads all of it.
pub fn write_file(path: &Path, text: &str) -> Result<(), StartError> {
    let temporary = path.with_extension("new");
    std::fs::write(&temporary, text)
        .and_then(|()| std::fs::rename(&temporary, path))
        .map_err(|source| StartError::Write { path: path.to_owned(), source })
}

/// Writes a file that nobody else can read, not even for a moment.
pub fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let temporary = path.with_extension("new");
    let _ = std::fs::remove_file(&temporary);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    writeln!(file, "{text}")?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    // The store will know the token; after a power cut the file must be there too, or nobody gets in.
    path.parent().map_or(Ok(()), |dir| std::fs::File::open(dir)?.sync_all())
}
