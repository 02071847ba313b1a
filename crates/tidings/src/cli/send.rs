//! `tidings send`: events from files or stdin, in batches, with a progress bar.

use std::fs::File;
use std::io::{BufRead, BufReader};

use clap::Args;
use indicatif::ProgressBar;
use reqwest::{Method, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::client::{Client, Target, problem};
use super::{Done, Failure, output};

/// Events, and bytes, in one request; the server's own limits are above both.
const BATCH_EVENTS: usize = 500;
const BATCH_BYTES: usize = 512 * 1024;

/// Send events: JSON, a JSON array, or NDJSON
#[derive(Args)]
#[command(after_help = "Examples:\n  tidings send event.json\n  cat events.ndjson | tidings send -\n\n\
    Prints the id of each event that was accepted; exit 1 if any was refused.")]
pub struct Arguments {
    #[command(flatten)]
    target: Target,
    /// Files, or - for stdin
    #[arg(required = true, value_name = "EVENT.json")]
    files: Vec<String>,
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    events: Vec<Receipt>,
}

#[derive(Deserialize)]
struct Receipt {
    #[serde(rename = "eventId")]
    event_id: Option<String>,
    status: String,
    #[serde(default)]
    errors: Vec<Mistake>,
}

#[derive(Deserialize)]
struct Mistake {
    field: String,
    message: String,
}

struct Sending<'a> {
    client: &'a Client,
    json: bool,
    bar: ProgressBar,
    batch: Vec<String>,
    batch_bytes: usize,
    sent: usize,
    refused: usize,
}

pub async fn run(arguments: Arguments) -> Result<Done, Failure> {
    let client = arguments.target.connect()?;
    let bar = output::progress(None, "events");
    let mut sending = Sending {
        client: &client,
        json: arguments.target.json,
        bar,
        batch: Vec::new(),
        batch_bytes: 0,
        sent: 0,
        refused: 0,
    };
    for file in &arguments.files {
        if file == "-" {
            sending.file("standard input", &mut BufReader::new(std::io::stdin())).await?;
        } else {
            let opened = File::open(file).map_err(|error| Failure(format!("cannot open {file}: {error}")))?;
            sending.file(file, &mut BufReader::new(opened)).await?;
        }
    }
    sending.flush().await?;
    sending.bar.finish_and_clear();
    output::note(&format!("{} sent, {} refused", sending.sent - sending.refused, sending.refused));
    Ok(if sending.refused == 0 { Done::All } else { Done::Refused })
}

impl Sending<'_> {
    /// A file is one JSON value or an array of them, else one event a line.
    async fn file(&mut self, name: &str, reader: &mut dyn BufRead) -> Result<(), Failure> {
        let mut first = String::new();
        let cannot = |error: std::io::Error| Failure(format!("cannot read {name}: {error}"));
        while first.trim().is_empty() {
            if reader.read_line(&mut first).map_err(cannot)? == 0 {
                return Err(Failure(format!("there is no event in {name}")));
            }
        }
        // A first line that is a whole object means NDJSON; anything else is read to its end as one value.
        if serde_json::from_str::<&RawValue>(&first).is_ok_and(|value| value.get().starts_with('{')) {
            self.event(first.trim().to_owned()).await?;
            let mut line = String::new();
            while reader.read_line(&mut line).map_err(cannot)? > 0 {
                if !line.trim().is_empty() {
                    self.event(line.trim().to_owned()).await?;
                }
                line.clear();
            }
            return Ok(());
        }
        reader.read_to_string(&mut first).map_err(cannot)?;
        let bad = |error: serde_json::Error| Failure(format!("{name} is neither JSON nor NDJSON: {error}"));
        if first.trim_start().starts_with('[') {
            for event in serde_json::from_str::<Vec<&RawValue>>(&first).map_err(bad)? {
                self.event(event.get().to_owned()).await?;
            }
            return Ok(());
        }
        let event: &RawValue = serde_json::from_str(&first).map_err(bad)?;
        self.event(event.get().to_owned()).await
    }

    async fn event(&mut self, text: String) -> Result<(), Failure> {
        if self.batch_bytes + text.len() > BATCH_BYTES || self.batch.len() >= BATCH_EVENTS {
            self.flush().await?;
        }
        self.batch_bytes += text.len() + 1;
        self.batch.push(text);
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), Failure> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let events = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        let body = format!("[{}]", events.join(","));
        let request =
            self.client.request(Method::POST, "/events").header("content-type", "application/json").body(body);
        let response = self.client.send(request).await?;
        self.bar.inc(events.len() as u64);
        self.sent += events.len();
        match response.status() {
            StatusCode::ACCEPTED => {
                let answer: Answer = serde_json::from_slice(&response.bytes().await?)?;
                answer.events.iter().for_each(|receipt| self.report(receipt));
                Ok(())
            }
            StatusCode::BAD_REQUEST => {
                self.refused += events.len();
                let Failure(sentence) = problem(response).await;
                self.bar.suspend(|| output::error(&sentence));
                Ok(())
            }
            _ => Err(problem(response).await),
        }
    }

    fn report(&mut self, receipt: &Receipt) {
        if receipt.status == "rejected" {
            self.refused += 1;
            let mistakes: Vec<_> = receipt.errors.iter().map(|e| format!("{} {}", e.field, e.message)).collect();
            self.bar.suspend(|| output::error(&format!("an event was refused: {}", mistakes.join("; "))));
            return;
        }
        let id = receipt.event_id.as_deref().unwrap_or_default();
        let line = if self.json {
            serde_json::json!({ "eventId": id, "status": receipt.status }).to_string()
        } else if receipt.status == "duplicate" {
            format!("{id} duplicate")
        } else {
            id.to_owned()
        };
        self.bar.suspend(|| output::line(&line));
    }
}
