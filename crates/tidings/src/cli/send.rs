//! `tidings send`: events from files or stdin, in batches, with a progress bar.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use indicatif::ProgressBar;
use reqwest::{Method, Response, StatusCode, header};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use tidings_core::ids::IdSource;
use tidings_core::time::Clock;
use tokio::sync::mpsc;

use super::client::{Client, Target};
use super::{Done, Failure, output};
use crate::clock::{SystemClock, SystemIds};
use crate::http::IDEMPOTENCY_KEY;

/// Events, and bytes, in one request, unless the server wants less.
const BATCH_EVENTS: usize = 500;
const BATCH_BYTES: usize = 512 * 1024;
/// How often one request is made again that the server has no time for, and the longest that is waited each time.
const WAITS: usize = 10;
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// What is there is sent when nothing more came for so long.
const SILENCE: Duration = Duration::from_secs(1);
/// Lines that are read ahead.
const LINES: usize = 1024;
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Send events: JSON, a JSON array, or NDJSON
#[derive(Args)]
#[command(after_help = "Examples:\n  tidings send event.json\n  cat events.ndjson | tidings send -\n\n\
    Prints the id of each event that was accepted (with --json a line for each, refused ones too); exit 1 if any was refused. Where the server has no time (429, 503) it\n\
    waits as long as it is told, ten times at most.")]
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

/// The answer to a request of which nothing was taken.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Refusal {
    detail: String,
    errors: Vec<Mistake>,
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

/// Where events come from.
struct Input {
    name: String,
    reader: Box<dyn BufRead + Send>,
}

/// A line and its number.
type Line = (Vec<u8>, usize);

/// One event to send, and where it stands: "events.ndjson line 7".
struct Event {
    text: Vec<u8>,
    place: String,
}

/// Why a file is not sent to its end.
enum Stop {
    /// It cannot be read; the others can.
    File(String),
    /// The server cannot be reached, or wants nothing from us.
    Server(Failure),
}

/// What came of a request.
#[derive(PartialEq, Eq)]
enum Taken {
    /// Each of its events was accepted or refused.
    Decided,
    /// None was looked at: they are too many or too large together.
    Halve,
}

struct Sending<'a> {
    client: &'a Client,
    json: bool,
    bar: ProgressBar,
    batch: Vec<Event>,
    batch_bytes: usize,
    /// How many are sent at once: fewer after the server found them too many.
    most_events: usize,
    sent: usize,
    refused: usize,
}

pub async fn run(arguments: Arguments) -> Result<Done, Failure> {
    let client = arguments.target.connect()?;
    // All are opened before the first is sent: a name that is wrong is found while nothing has happened yet.
    let inputs = arguments.files.iter().map(|file| Input::open(file)).collect::<Result<Vec<_>, _>>()?;
    let mut sending = Sending {
        client: &client,
        json: arguments.target.json,
        bar: output::progress(None, "events"),
        batch: Vec::new(),
        batch_bytes: 0,
        most_events: BATCH_EVENTS,
        sent: 0,
        refused: 0,
    };
    let outcome = sending.all(inputs).await;
    sending.bar.finish_and_clear();
    output::note(&format!("{} sent, {} refused", sending.sent, sending.refused));
    match outcome? {
        0 if sending.refused == 0 => Ok(Done::All),
        _ => Ok(Done::Refused),
    }
}

impl Input {
    fn open(file: &str) -> Result<Self, Failure> {
        if file == "-" {
            return Ok(Self { name: "standard input".to_owned(), reader: Box::new(BufReader::new(std::io::stdin())) });
        }
        let cannot = |error| Failure(format!("cannot open {file}: {error}; nothing was sent"));
        let opened = File::open(file).map_err(cannot)?;
        Ok(Self { name: file.to_owned(), reader: Box::new(BufReader::new(opened)) })
    }

    /// The next line that is not blank, added to `line`, and its number; `None` at the end.
    fn line(&mut self, line: &mut Vec<u8>, number: &mut usize) -> Result<bool, Stop> {
        loop {
            let before = line.len();
            let read = self.reader.read_until(b'\n', line).map_err(|error| self.unreadable(&error))?;
            *number += usize::from(read > 0);
            if read == 0 || line.get(before..).is_some_and(|line| !line.trim_ascii().is_empty()) {
                return Ok(read > 0);
            }
        }
    }

    /// The lines after the one of that number, each with its own, read on a thread of their own: what is there can be sent
    /// while nothing more comes.
    fn into_lines(mut self, mut number: usize) -> Result<mpsc::Receiver<Result<Line, Stop>>, Stop> {
        let (sender, lines) = mpsc::channel(LINES);
        let read = move || {
            loop {
                let mut text = Vec::new();
                let line = match self.line(&mut text, &mut number) {
                    Ok(true) => Ok((text, number)),
                    Ok(false) => return,
                    Err(stop) => Err(stop),
                };
                let is_last = line.is_err();
                if sender.blocking_send(line).is_err() || is_last {
                    return;
                }
            }
        };
        let started = std::thread::Builder::new().name("lines".to_owned()).spawn(read);
        started.map(|_| lines).map_err(|error| Stop::Server(error.into()))
    }

    fn unreadable(&self, error: &std::io::Error) -> Stop {
        Stop::File(format!("cannot read {}: {error}", self.name))
    }
}

impl Sending<'_> {
    /// Sends everything; gives how many files could not be read to their end.
    async fn all(&mut self, inputs: Vec<Input>) -> Result<usize, Failure> {
        let mut unread = 0;
        for input in inputs {
            match self.file(input).await {
                Ok(()) => {}
                Err(Stop::File(sentence)) => {
                    unread += 1;
                    self.bar.suspend(|| output::error(&sentence));
                }
                Err(Stop::Server(failure)) => return Err(failure),
            }
        }
        match self.flush().await {
            Err(Stop::Server(failure)) => Err(failure),
            _ => Ok(unread),
        }
    }

    /// A file is one JSON value or an array of them, else one event a line.
    async fn file(&mut self, mut input: Input) -> Result<(), Stop> {
        let (mut text, mut number) = (Vec::new(), 0);
        if !input.line(&mut text, &mut number)? {
            return Err(Stop::File(format!("there is no event in {}", input.name)));
        }
        // Editors on Windows begin a file so.
        if text.starts_with(BYTE_ORDER_MARK) {
            text.drain(..BYTE_ORDER_MARK.len());
        }
        // A first line that is a whole object means NDJSON; anything else is read to its end as one value.
        if is_object(&text) {
            self.event(&text, format!("{} line {number}", input.name)).await?;
            return self.lines(input, number).await;
        }
        input.reader.read_to_end(&mut text).map_err(|error| input.unreadable(&error))?;
        let array = text.trim_ascii_start().starts_with(b"[");
        let parsed = if array {
            serde_json::from_slice::<Vec<&RawValue>>(&text)
        } else {
            serde_json::from_slice::<&RawValue>(&text).map(|event| vec![event])
        };
        match parsed {
            Ok(events) => {
                for (place, event) in events.iter().enumerate() {
                    let place = if array { format!("{} event {}", input.name, place + 1) } else { input.name.clone() };
                    self.event(event.get().as_bytes(), place).await?;
                }
                Ok(())
            }
            // The first line may be the bad one of many.
            Err(_) if !array && text.split(|byte| *byte == b'\n').any(is_object) => {
                for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
                    if !line.trim_ascii().is_empty() {
                        self.event(line, format!("{} line {}", input.name, number + 1)).await?;
                    }
                }
                Ok(())
            }
            Err(error) => Err(Stop::File(format!("{} is neither JSON nor NDJSON: {error}", input.name))),
        }
    }

    /// The lines that follow the one of that number, each an event.
    async fn lines(&mut self, input: Input, number: usize) -> Result<(), Stop> {
        let name = input.name.clone();
        let mut lines = input.into_lines(number)?;
        loop {
            let line = match self.batch.is_empty() {
                true => lines.recv().await,
                false => match tokio::time::timeout(SILENCE, lines.recv()).await {
                    Ok(line) => line,
                    Err(_) => {
                        self.flush().await?;
                        continue;
                    }
                },
            };
            let Some(line) = line else { return Ok(()) };
            let (text, number) = line?;
            self.event(&text, format!("{name} line {number}")).await?;
        }
    }

    async fn event(&mut self, text: &[u8], place: String) -> Result<(), Stop> {
        if self.batch_bytes + text.len() > BATCH_BYTES || self.batch.len() >= self.most_events {
            self.flush().await?;
        }
        // In JSON line breaks are white space; on the way an event has one line.
        let line = |byte: &u8| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte };
        self.batch_bytes += text.len() + 1;
        self.batch.push(Event { text: text.trim_ascii().iter().map(line).collect(), place });
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), Stop> {
        if self.batch.is_empty() {
            return Ok(());
        }
        self.batch_bytes = 0;
        // The server may be set to take less at once: what is too much for it goes in halves, in order.
        let mut waiting = vec![std::mem::take(&mut self.batch)];
        while let Some(mut events) = waiting.pop() {
            if self.request(&events).await? == Taken::Halve {
                let rest = events.split_off(events.len() / 2);
                self.most_events = events.len().max(1);
                waiting.extend([rest, events]);
            } else if events.len() >= self.most_events {
                // Perhaps it was only that those were large: a little more the next time.
                self.most_events = (self.most_events + self.most_events / 8 + 1).min(BATCH_EVENTS);
            }
        }
        Ok(())
    }

    /// Sends some events in one request.
    async fn request(&mut self, events: &[Event]) -> Result<Taken, Stop> {
        let response = self.ask(events).await.map_err(Stop::Server)?;
        if response.status() == StatusCode::PAYLOAD_TOO_LARGE && events.len() > 1 {
            return Ok(Taken::Halve);
        }
        self.bar.inc(events.len() as u64);
        match response.status() {
            StatusCode::ACCEPTED => {
                let bytes = response.bytes().await.map_err(|error| Stop::Server(error.into()))?;
                let answer: Answer = self.client.read(&bytes).map_err(Stop::Server)?;
                for (event, receipt) in events.iter().zip(&answer.events) {
                    self.report(event, receipt);
                }
                Ok(Taken::Decided)
            }
            StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE => {
                self.refused += events.len();
                let refusal = serde_json::from_slice(&response.bytes().await.unwrap_or_default());
                let refusal: Refusal = refusal.unwrap_or_default();
                self.bar.suspend(|| refusal.tell(events, self.json));
                Ok(Taken::Decided)
            }
            _ => Err(Stop::Server(super::client::problem(response).await)),
        }
    }

    /// Makes a request, again where the server has no time for it.
    async fn ask(&self, events: &[Event]) -> Result<Response, Failure> {
        let body = Bytes::from(events.iter().map(|event| event.text.as_slice()).collect::<Vec<_>>().join(&b'\n'));
        // Some may have been taken before there was no time for the rest: with a key, none becomes two.
        let ids = SystemIds::default();
        let key = ids.uuid(SystemClock::default().now()).to_string();
        let mut waits = 0;
        loop {
            let request = self.client.request(Method::POST, "/events").header("content-type", "application/x-ndjson");
            let response = self.client.send(request.header(&IDEMPOTENCY_KEY, &key).body(body.clone())).await?;
            let is_busy = matches!(response.status(), StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
            // Without a word about when, it is not a matter of time.
            let Some(wait) = retry_after(&response).filter(|_| is_busy && waits < WAITS) else { return Ok(response) };
            waits += 1;
            let (seconds, status) = (wait.as_secs(), response.status().as_u16());
            self.bar.suspend(|| output::note(&format!("the server has no time ({status}); waiting {seconds} s")));
            tokio::time::sleep(wait).await;
        }
    }

    fn report(&mut self, event: &Event, receipt: &Receipt) {
        if receipt.status == "rejected" {
            self.refused += 1;
            let mistakes = sentence(receipt.errors.iter().map(Mistake::without_line));
            let id = receipt.event_id.as_deref();
            self.bar.suspend(|| {
                output::error(&format!("{}: refused: {mistakes}", event.place));
                if self.json {
                    output::line(&refused(event, id, &mistakes));
                }
            });
            return;
        }
        self.sent += 1;
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

impl Refusal {
    /// Says of each event what is wrong with it; of all, if it is about all.
    fn tell(&self, events: &[Event], json: bool) {
        let mut told = false;
        for (number, event) in events.iter().enumerate() {
            let ours =
                self.errors.iter().filter(|mistake| mistake.line() == Some(number + 1)).map(Mistake::without_line);
            let mistakes = sentence(ours);
            if !mistakes.is_empty() {
                told = true;
                output::error(&format!("{}: refused: {mistakes}", event.place));
            }
            if json {
                output::line(&refused(event, None, if mistakes.is_empty() { &self.detail } else { &mistakes }));
            }
        }
        if !told {
            let first = events.first().map_or("", |event| event.place.as_str());
            let and = if events.len() > 1 { " and those after it" } else { "" };
            output::error(&format!("{first}{and}: refused: {}", self.detail));
        }
    }
}

/// A refused event as a line of JSON: where it stands, what it calls itself if it could be read, and why.
fn refused(event: &Event, id: Option<&str>, why: &str) -> String {
    serde_json::json!({ "eventId": id, "status": "rejected", "place": event.place, "error": why }).to_string()
}

impl Mistake {
    /// The line of the request that it is about: "line 7: eventType".
    fn line(&self) -> Option<usize> {
        let rest = self.field.strip_prefix("line ")?;
        rest.split(':').next()?.parse().ok()
    }

    fn without_line(&self) -> String {
        let field = match self.line() {
            Some(_) => self.field.split_once(": ").map_or("", |(_, field)| field),
            None => &self.field,
        };
        format!("{field} {}", self.message).trim_start().to_owned()
    }
}

/// How long the server asks to be left alone.
fn retry_after(response: &Response) -> Option<Duration> {
    let seconds = response.headers().get(header::RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST_WAIT))
}

fn sentence(mistakes: impl Iterator<Item = String>) -> String {
    mistakes.collect::<Vec<_>>().join("; ")
}

fn is_object(text: &[u8]) -> bool {
    text.trim_ascii_start().starts_with(b"{") && serde_json::from_slice::<IgnoredAny>(text).is_ok()
}
