//! Mails as `.eml` files: what a new installation does, so that it mails nobody and everything can be looked at.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::{Copy, Outcome, Pace, Report};

#[derive(Clone, Debug)]
pub(super) struct Outbox {
    directory: PathBuf,
}

impl Outbox {
    pub(super) fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    pub(super) async fn send(&self, copies: Vec<(String, Copy)>, pace: Pace<'_>, report: &mut Report) {
        for (recipient, copy) in copies {
            if !(pace.goes_on)() {
                return;
            }
            let directory = self.directory.clone();
            let written = tokio::task::spawn_blocking(move || write(&directory, &copy)).await;
            let outcome = match written {
                Ok(Ok(name)) => Outcome::Delivered { detail: format!("written to {name}"), id: Some(name) },
                Ok(Err(error)) => Outcome::retry(format!("the outbox cannot be written: {error}")),
                Err(_) => Outcome::retry("the outbox cannot be written"),
            };
            report.add(recipient, outcome);
        }
    }
}

/// Whole or not at all, and under a name that a second attempt writes again instead of adding a file.
fn write(directory: &Path, copy: &Copy) -> std::io::Result<String> {
    let name = name(copy);
    std::fs::create_dir_all(directory)?;
    let mut file = tempfile::Builder::new().prefix(".").suffix(".tmp").tempfile_in(directory)?;
    file.write_all(&copy.bytes)?;
    file.as_file().sync_all()?;
    file.persist(directory.join(&name)).map_err(|error| error.error)?;
    std::fs::File::open(directory)?.sync_all()?;
    Ok(name)
}

/// Message and recipient, with only what is safe in a file name.
fn name(copy: &Copy) -> String {
    let address: &str = copy.to.email.as_ref();
    let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '.') { c } else { '_' };
    let shown: String = address.chars().take(60).map(safe).collect();
    // Two addresses may look alike once made safe.
    let digest = ring::digest::digest(&ring::digest::SHA256, address.as_bytes());
    let short: String = digest.as_ref().iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{shown}-{short}.eml", copy.message_id)
}
