//! Where the demo has its data: in a directory of its own, which goes with it, or in one that it was given, which stays.

use std::fs;
use std::io::{Error, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Says that a directory is a demo's.
const MARK: &str = "demo";

/// A directory that this process has made, and removes when it is dropped. Whoever has a file in it must be gone by then.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes one that nobody else has.
    pub fn make() -> Result<Self, Error> {
        let process = std::process::id();
        let mut name = format!("tidings-demo-{process}");
        for number in 1..1000 {
            let path = std::env::temp_dir().join(&name);
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self { path }),
                // Left behind by an earlier process of that number.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    name = format!("tidings-demo-{process}-{number}")
                }
                Err(error) => return Err(error),
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Takes a directory that was given: a new or empty one, or that of an earlier demo.
///
/// # Errors
///
/// A sentence, if it holds anything else: the demo plays with made-up people and events, and not among real ones.
pub fn take(dir: &Path) -> Result<(), String> {
    let cannot = |error: Error| format!("cannot use {}: {error}", dir.display());
    let is_empty = match fs::read_dir(dir) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(cannot)?;
            true
        }
        Err(error) => return Err(cannot(error)),
    };
    let mark = dir.join(MARK);
    if !is_empty && !mark.exists() {
        let dir = dir.display();
        return Err(format!(
            "{dir} is not empty and not a demo's; give --demo an empty directory, or leave --data out"
        ));
    }
    fs::write(mark, "The data in this directory is that of tidings serve --demo.\n").map_err(cannot)
}
