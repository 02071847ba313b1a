//! `tidings backup` and `tidings restore`.

use std::fs::File;
use std::io::{BufReader, BufWriter, ErrorKind, IntoInnerError, Write};
use std::path::PathBuf;

use clap::Args;
use futures_util::StreamExt;
use reqwest::Method;
use tidings_store::Error;

use super::client::Target;
use super::file::Draft;
use super::{Done, Failure, output};

/// Write a consistent copy of everything to a file, while the server goes on
#[derive(Args)]
#[command(after_help = "Example:\n  tidings backup tidings-2026-11-15.backup")]
pub struct BackupArguments {
    #[command(flatten)]
    target: Target,
    /// The file to write; it must not exist yet
    file: PathBuf,
}

/// Fill an empty data directory from a backup
#[derive(Args)]
#[command(after_help = "Example:\n  tidings restore tidings-2026-11-15.backup --data tidings-data")]
pub struct RestoreArguments {
    file: PathBuf,
    /// The directory to fill; it must be empty or absent, or hold a restore that was broken off
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub async fn backup(arguments: BackupArguments) -> Result<Done, Failure> {
    let client = arguments.target.connect()?;
    let path = &arguments.file;
    let cannot = |error: std::io::Error| match error.kind() {
        ErrorKind::AlreadyExists => Failure(format!("{} exists already; choose another name", path.display())),
        _ => Failure(format!("cannot write {}: {error}", path.display())),
    };
    // Under another name until it is whole: half a backup must not look like one. It holds what the store does.
    let mut file = BufWriter::new(Draft::private(path).map_err(cannot)?);
    let response = client.expect(client.request(Method::GET, "/admin/backup")).await?;
    let bar = output::progress(None, "bytes");
    let mut pieces = response.bytes_stream();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|_| Failure("the server broke the backup off; its log says why".to_owned()))?;
        file.write_all(&piece).map_err(cannot)?;
        bar.inc(piece.len() as u64);
    }
    let whole = file.into_inner().map_err(IntoInnerError::into_error);
    whole.and_then(Draft::publish).map_err(cannot)?;
    bar.finish_and_clear();
    let bytes = bar.position();
    output::line(&if arguments.target.json {
        serde_json::json!({ "file": path, "bytes": bytes }).to_string()
    } else {
        format!("{} bytes written to {}", bytes, path.display())
    });
    Ok(Done::All)
}

pub fn restore(arguments: &RestoreArguments) -> Result<Done, Failure> {
    let path = &arguments.file;
    let file = File::open(path).map_err(|error| Failure(format!("cannot open {}: {error}", path.display())))?;
    let bar = output::progress(file.metadata().ok().map(|metadata| metadata.len()), "bytes");
    let mut reader = bar.wrap_read(BufReader::new(file));
    let restored = tidings_store::embedded::restore(&mut reader, &arguments.data);
    let summary = restored.map_err(|error| match error {
        // About the file, and not the store that it was to become.
        Error::Corrupt(why) => Failure(format!("{} cannot be restored: {why}", path.display())),
        error => error.into(),
    })?;
    bar.finish_and_clear();
    let (entries, data) = (summary.entries, &arguments.data);
    output::line(&if arguments.json {
        serde_json::json!({ "data": data, "entries": entries }).to_string()
    } else {
        format!("{entries} entries restored into {}", data.display())
    });
    Ok(Done::All)
}
