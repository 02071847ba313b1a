//! `tidings map import`: the notification map from a CSV file.

use std::os::fd::AsFd;

use clap::{Args, Subcommand};
use indicatif::ProgressBar;
use reqwest::{Body, Method};
use serde::Deserialize;
use tokio::io::AsyncReadExt;

use super::client::{Client, Target};
use super::{Done, Failure, output};

const PIECE: usize = 64 * 1024;

/// Who hears of which product
#[derive(Args)]
#[command(after_help = "Example:\n  tidings map import support-groups.csv")]
pub struct Arguments {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Take over a CSV file: product, support group, users
    #[command(after_help = "Examples:\n  tidings map import support-groups.csv\n  \
        export-groups | tidings map import -\n\n\
        Lines are as in `checkout,payments,u1;u2;u3`. A pair's first line replaces what the map has for it, its further\n\
        lines add to that. Every line that was not taken over is named; exit 1 if there was one.")]
    Import {
        /// The file; - is standard input
        file: String,
    },
}

#[derive(Deserialize)]
struct Summary {
    lines: u64,
    imported: u64,
    rejected: u64,
    errors: Vec<BadLine>,
    stopped: bool,
}

#[derive(Deserialize)]
struct BadLine {
    line: u64,
    message: String,
}

pub async fn run(arguments: Arguments) -> Result<Done, Failure> {
    let client = arguments.target.connect()?;
    let Command::Import { file } = &arguments.command;
    import(&client, file, arguments.target.json).await
}

async fn import(client: &Client, path: &str, json: bool) -> Result<Done, Failure> {
    let cannot = |error: std::io::Error| Failure(format!("cannot read {path}: {error}"));
    let file = if path == "-" {
        let input = std::io::stdin().as_fd().try_clone_to_owned().map_err(cannot)?;
        tokio::fs::File::from_std(input.into())
    } else {
        tokio::fs::File::open(path).await.map_err(cannot)?
    };
    let about = file.metadata().await.map_err(cannot)?;
    let bar = output::progress(about.is_file().then_some(about.len()), "bytes");
    let body = Body::wrap_stream(futures_util::stream::unfold((file, bar.clone()), next_piece));
    let request =
        client.request(Method::POST, "/notification-map/import").header("content-type", "text/csv").body(body);
    let answer = client.expect(request).await;
    bar.finish_and_clear();
    let bytes = answer?.bytes().await?;
    let summary: Summary = client.read(&bytes)?;
    for bad in &summary.errors {
        output::error(&format!("line {}: {}", bad.line, bad.message));
    }
    if summary.stopped {
        output::error("there are too many bad lines; the rest of the file was not looked at");
    }
    if json {
        output::line(&String::from_utf8_lossy(&bytes));
    } else {
        output::line(&format!(
            "{} entries from {} lines, {} lines refused",
            summary.imported, summary.lines, summary.rejected
        ));
    }
    Ok(if summary.rejected == 0 { Done::All } else { Done::Refused })
}

type Reading = (tokio::fs::File, ProgressBar);

/// The file piece by piece, whatever its size.
async fn next_piece((mut file, bar): Reading) -> Option<(Result<Vec<u8>, std::io::Error>, Reading)> {
    let mut piece = vec![0; PIECE];
    match file.read(&mut piece).await {
        Ok(0) => None,
        Ok(read) => {
            piece.truncate(read);
            bar.inc(read as u64);
            Some((Ok(piece), (file, bar)))
        }
        Err(error) => Some((Err(error), (file, bar))),
    }
}
