//! `tidings alerts export`: the history into a file, however long it is.

use std::io::{BufWriter, IntoInnerError, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use indicatif::ProgressBar;
use reqwest::{Method, Response};

use super::client::{Client, Target};
use super::file::Draft;
use super::{Done, Failure, output};

/// Process change alerts
#[derive(Args)]
#[command(after_help = "Example:\n  tidings alerts export --from 2026-01-01 --to 2026-03-31 -o alerts.csv")]
pub struct Arguments {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Export(Export),
}

/// Write the history of process changes, newest first, without a limit of rows
#[derive(Args)]
#[command(
    after_help = "Examples:\n  tidings alerts export --from 2026-01-01 --to 2026-03-31 --format csv -o alerts.csv\n  \
    tidings alerts export --format jsonl | jq .Action"
)]
struct Export {
    /// First day (UTC) [default: 89 days before the last]
    #[arg(long, value_name = "DATE", value_parser = date)]
    from: Option<String>,
    /// Last day, whole [default: today]
    #[arg(long, value_name = "DATE", value_parser = date)]
    to: Option<String>,
    /// The form of the rows [default: csv, or json with --json and no file]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// The changes of authorised accounts instead of the others
    #[arg(long)]
    suppressed: bool,
    /// The file to write; a device or a pipe is written into [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Csv,
    Json,
    Jsonl,
}

impl Format {
    const fn name(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Json => "json",
            Self::Jsonl => "jsonl",
        }
    }
}

/// A day as the server takes it; whether too many lie between two is for the server to say.
fn date(text: &str) -> Result<String, String> {
    crate::alerts::http::history::day(text)
        .map(|_| text.to_owned())
        .ok_or_else(|| "must be a date as in 2026-01-31".to_owned())
}

pub async fn run(arguments: Arguments) -> Result<Done, Failure> {
    let client = arguments.target.connect()?;
    match arguments.command {
        Command::Export(export) => export.run(&client, arguments.target.json).await,
    }
}

impl Export {
    async fn run(self, client: &Client, json: bool) -> Result<Done, Failure> {
        // With a file, what is printed is what became of it; else it is the export itself.
        let printed = if json && self.output.is_none() { Format::Json } else { Format::Csv };
        let format = self.format.unwrap_or(printed);
        let mut query = vec![("format", format.name().to_owned())];
        query.extend(self.from.as_ref().map(|from| ("startDate", from.clone())));
        query.extend(self.to.as_ref().map(|to| ("endDate", to.clone())));
        if self.suppressed {
            query.push(("suppressed", "true".to_owned()));
        }
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish();
        let response = client.expect(client.request(Method::GET, &format!("/alerts/export?{query}"))).await;
        let response = response.map_err(|Failure(why)| Failure(as_options(&why)))?;
        let rows = match &self.output {
            Some(path) => to_file(response, path, format).await?,
            None => copy(response, &mut std::io::stdout().lock(), format).await?,
        };
        if let Some(path) = &self.output {
            let path = path.display().to_string();
            if json {
                output::line(&serde_json::json!({ "rows": rows, "file": path }).to_string());
            } else {
                output::note(&format!("{rows} alerts written to {path}"));
            }
        }
        Ok(Done::All)
    }
}

/// The server's parameters by the names that they have here.
fn as_options(why: &str) -> String {
    why.replace("startDate", "--from").replace("endDate", "--to")
}

/// Under another name until it is whole: a file of that name is never a part of an export.
async fn to_file(response: Response, path: &Path, format: Format) -> Result<u64, Failure> {
    let cannot = |error: std::io::Error| Failure(format!("cannot write {}: {error}", path.display()));
    let mut file = BufWriter::new(Draft::replacing(path).map_err(cannot)?);
    let rows = copy(response, &mut file, format).await?;
    let whole = file.into_inner().map_err(IntoInnerError::into_error);
    whole.and_then(Draft::publish).map_err(cannot)?;
    Ok(rows)
}

async fn copy(mut response: Response, out: &mut impl Write, format: Format) -> Result<u64, Failure> {
    let bar = output::progress(None, "alerts");
    let mut rows = Rows::new(format);
    let broken = |error: reqwest::Error| {
        Failure(format!("the export broke off; nothing of it is kept: {}", error.without_url()))
    };
    while let Some(chunk) = response.chunk().await.map_err(broken)? {
        if let Err(error) = out.write_all(&chunk) {
            return stopped(&bar, error);
        }
        rows.count(&chunk);
        bar.set_position(rows.so_far);
    }
    if let Err(error) = out.flush() {
        return stopped(&bar, error);
    }
    bar.finish_and_clear();
    Ok(rows.total())
}

/// A reader that has seen enough, as `head` has, is no failure.
fn stopped(bar: &ProgressBar, error: std::io::Error) -> Result<u64, Failure> {
    bar.finish_and_clear();
    if error.kind() == std::io::ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    Err(Failure(format!("cannot write: {error}")))
}

/// Counts alerts as their text goes by: line breaks, but for those within the quotes of CSV.
struct Rows {
    format: Format,
    quoted: bool,
    header: bool,
    so_far: u64,
}

impl Rows {
    const fn new(format: Format) -> Self {
        Self { format, quoted: false, header: matches!(format, Format::Csv), so_far: 0 }
    }

    /// Of the whole: an array's end has two line breaks that are no alert's.
    const fn total(&self) -> u64 {
        match self.format {
            Format::Json => self.so_far.saturating_sub(2),
            Format::Csv | Format::Jsonl => self.so_far,
        }
    }

    fn count(&mut self, chunk: &[u8]) {
        for byte in chunk {
            match byte {
                b'"' if self.format == Format::Csv => self.quoted = !self.quoted,
                b'\n' if !self.quoted => {
                    if self.header {
                        self.header = false;
                    } else {
                        self.so_far += 1;
                    }
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_counted_across_chunks() {
        let mut rows = Rows::new(Format::Csv);
        for chunk in [&b"A,B\r\n1,\"x\n"[..], b"y\"\"", b"z\"\r\n2,b\r\n"] {
            rows.count(chunk);
        }
        assert_eq!(rows.so_far, 2);
        let mut rows = Rows::new(Format::Jsonl);
        rows.count(b"{}\n{}\n");
        assert_eq!(rows.total(), 2);
        let mut rows = Rows::new(Format::Json);
        rows.count(b"[\n{},\n{}\n]\n");
        assert_eq!(rows.total(), 2);
    }
}
