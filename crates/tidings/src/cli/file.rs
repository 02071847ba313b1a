//! Files that a command writes: whole under their name, or not there at all.
//!
//! What is not yet whole stands beside its place under a name that nobody else has, and is removed if anything fails. What
//! is no plain file (a device, a pipe, whatever `/dev/stdout` is) is written into, as the shell would.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tidings_core::ids::IdSource;

use crate::clock::SystemIds;

/// A file on its way.
pub struct Draft {
    file: File,
    place: Place,
}

enum Place {
    /// Written into where it is.
    Here,
    /// Under `temporary` until it is whole; then it takes the place of `target`.
    Beside(Temporary, PathBuf),
    /// The same, and nothing may be there.
    New(Temporary, PathBuf),
}

/// A file of ours that goes when this does.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl Draft {
    /// A new file that nobody else can read.
    pub fn private(path: &Path) -> io::Result<Self> {
        if fs::symlink_metadata(path).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let (temporary, file) = beside(path, 0o600)?;
        Ok(Self { file, place: Place::New(temporary, path.to_owned()) })
    }

    /// A file that takes the place of a plain file, or of nothing; links are followed, and stay.
    pub fn replacing(path: &Path) -> io::Result<Self> {
        let found = match fs::metadata(path) {
            Ok(found) => found,
            // A link to nothing makes what it names.
            Err(e) if e.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(path).is_ok() => {
                return Ok(Self { file: File::options().append(true).create(true).open(path)?, place: Place::Here });
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let (temporary, file) = beside(path, 0o666)?;
                return Ok(Self { file, place: Place::Beside(temporary, path.to_owned()) });
            }
            Err(e) => return Err(e),
        };
        // Of an open file that has a name there, such as /dev/stdout, the shell has said what becomes of it.
        let open_already = ["/dev", "/proc"].iter().any(|dir| path.starts_with(dir));
        if !found.is_file() || open_already {
            return Ok(Self { file: File::options().append(true).open(path)?, place: Place::Here });
        }
        // What may not be written may not be replaced either.
        drop(File::options().append(true).open(path)?);
        let target = fs::canonicalize(path)?;
        let (temporary, file) = beside(&target, 0o600)?;
        file.set_permissions(found.permissions())?;
        Ok(Self { file, place: Place::Beside(temporary, target) })
    }

    /// All of it is written: now it has its name, and keeps it through a power cut.
    pub fn publish(self) -> io::Result<()> {
        let (temporary, target, new) = match self.place {
            // Pipes and terminals cannot be synced.
            Place::Here => return Ok(()),
            Place::Beside(temporary, target) => (temporary, target, false),
            Place::New(temporary, target) => (temporary, target, true),
        };
        self.file.sync_all()?;
        if new {
            rename_to_new(&temporary.0, &target)?
        } else {
            fs::rename(&temporary.0, &target)?
        };
        // The name is not ours any more.
        let _ = std::mem::ManuallyDrop::new(temporary);
        File::open(parent(&target))?.sync_all()
    }
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Somebody may have taken the name meanwhile.
fn rename_to_new(from: &Path, to: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        // Not every file system can do that.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
            if fs::symlink_metadata(to).is_ok() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            fs::rename(from, to)
        }
        Err(e) => Err(e.into()),
    }
}

/// A new file in the directory of `path`.
fn beside(path: &Path, mode: u32) -> io::Result<(Temporary, File)> {
    use std::os::unix::fs::OpenOptionsExt;
    if path.file_name().is_none() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let mut random = [0; 8];
    SystemIds::default().random(&mut random);
    let temporary = parent(path).join(format!(".tidings-{:016x}.partial", u64::from_be_bytes(random)));
    let file = File::options().write(true).create_new(true).mode(mode).open(&temporary)?;
    Ok((Temporary(temporary), file))
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
