//! The scenarios about messages: from created to completed, through the ntfy channel to a [`Sink`] in this process.
//!
//! What counts is what the server has on record as completed. The latency is that from the server's answer ("created") to
//! the moment at which the sink has the message.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use memchr::memmem;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::client::{self, Connection};
use super::error::Error;
use super::runner;
use super::server::{Started, Target};
use super::sink::{MARK, Sink};
use super::stopwatch;
use super::tally::{Tally, describe};

/// Messages on their way at the most: a server that creates faster than it delivers is held up, not flooded.
const PENDING: u64 = 1024;
/// The rest of a slice's messages come within this time.
const DRAIN_WITHIN: Duration = Duration::from_secs(60);
/// Of a message's number.
const DIGITS: usize = 12;
const POLL_EVERY: Duration = Duration::from_millis(5);

/// How fast messages are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// As fast as they are taken.
    Full,
    /// So many a second, over all connections.
    PerSecond(u32),
}

/// A server of its own with its sink.
#[derive(Debug)]
pub struct Flow {
    sink: Arc<Sink>,
    started: Started,
    pace: Pace,
    connections: u32,
}

impl Flow {
    pub async fn start(parent: &Path, pace: Pace, connections: u32) -> Result<Self, Error> {
        let sink = Arc::new(Sink::open()?);
        let server = format!("http://{}", sink.address);
        let started = Started::start_with(parent, vec![("TIDINGS__NTFY__SERVER".to_owned(), server)]).await?;
        Ok(Self { sink, started, pace, connections })
    }

    /// Makes messages for `length` and counts those that were completed in it.
    pub async fn slice(&mut self, name: &str, length: Duration) -> Result<Tally, Error> {
        let target = self.started.target().clone();
        let mut ready = Vec::new();
        for _ in 0..self.connections {
            ready.push(runner::open(target.address, name).await?);
        }
        let before = completed(&target).await?;
        let _ = self.sink.latencies();
        let start = stopwatch::now();
        let deadline = start + length;
        let (mut tasks, first) = (JoinSet::new(), message(0));
        for (place, connection) in (0_u32..).zip(ready) {
            let turns = Turns::new(self.pace, self.connections, place, start);
            let body = Some(("application/json", first.as_bytes()));
            let mut numbered = Numbered(client::request("POST", "/api/messages", &target.token, body));
            let ask = move |number, request: &mut Vec<u8>| numbered.write(number, request);
            tasks.spawn(make(connection, Arc::clone(&self.sink), turns, deadline, ask));
        }
        sleep(deadline.saturating_duration_since(stopwatch::now())).await;
        let after = completed(&target).await?;
        let took = stopwatch::since(start);
        let mut tally = Tally { operations: after.saturating_sub(before), measured: took, ..Tally::default() };
        let rest = async {
            while let Some(joined) = tasks.join_next().await {
                if let Ok(counted) = joined {
                    tally.merge(counted);
                }
            }
            self.sink.room(1).await;
            // The last outcomes are on record a moment after the sink has the messages.
            while unfinished(&target).await? > 0 {
                sleep(POLL_EVERY).await;
            }
            Ok::<(), Error>(())
        };
        timeout(DRAIN_WITHIN, rest).await.map_err(|_elapsed| Error::Stalled(name.to_owned()))??;
        tally.latencies = self.sink.latencies();
        Ok(tally)
    }
}

/// When a connection sends.
pub struct Turns {
    every: Option<Duration>,
    next: Instant,
}

impl Turns {
    pub fn new(pace: Pace, connections: u32, place: u32, start: Instant) -> Self {
        match pace {
            Pace::Full => Self { every: None, next: start },
            Pace::PerSecond(rate) => {
                let apart = Duration::from_secs(1) / rate.max(1);
                Self { every: Some(apart * connections), next: start + apart * place }
            }
        }
    }

    /// Waits for the next one; `false` if it would be after the deadline.
    async fn come(&mut self, sink: &Sink, deadline: Instant) -> bool {
        match self.every {
            None => sink.room(PENDING).await,
            Some(every) => {
                sleep(self.next.saturating_duration_since(stopwatch::now())).await;
                self.next += every;
            }
        }
        stopwatch::now() < deadline
    }
}

/// A request that is written once; after that only its number changes, as an event's id does for `ingest`.
struct Numbered(Vec<u8>);

impl Numbered {
    /// Writes the request of a number over that of another one.
    fn write(&mut self, number: u64, request: &mut Vec<u8>) {
        if request.is_empty() {
            std::mem::swap(&mut self.0, request);
        }
        let start = memmem::find(request, MARK.as_bytes()).map_or(request.len(), |mark| mark + MARK.len());
        let mut rest = number;
        for digit in request.get_mut(start..start + DIGITS).unwrap_or_default().iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
    }
}

/// Sends what `ask` makes of each number, written over the last one, until the deadline; the sink learns of each that is
/// taken.
pub async fn make(
    mut connection: Connection,
    sink: Arc<Sink>,
    mut turns: Turns,
    deadline: Instant,
    mut ask: impl FnMut(u64, &mut Vec<u8>),
) -> Tally {
    let (mut tally, mut request) = (Tally::default(), Vec::new());
    while turns.come(&sink, deadline).await {
        let number = sink.next();
        ask(number, &mut request);
        match connection.call(&request).await {
            Ok(response) if response.is_success() => sink.created(number),
            Ok(response) => {
                tally.fail(|| describe(response));
                sink.lost();
            }
            Err(error) => {
                tally.fail(|| error.to_string());
                sink.lost();
                break;
            }
        }
    }
    tally
}

/// The body of a message.
pub fn message(number: u64) -> String {
    format!(
        r#"{{"message_type":"deployment_notification","payload":{{"text":"{MARK}{number:0DIGITS$}: version 2026.11.3 of checkout was deployed to prod","title":"Deployed","priority":"default","tags":["rocket"],"service":"checkout","version":"2026.11.3","environment":"prod"}}}}"#
    )
}

/// Messages that the server has completed since it started.
async fn completed(target: &Target) -> Result<u64, Error> {
    let text = get(target, "/metrics").await?;
    let line = "tidings_deliveries_total{channel=\"ntfy\",outcome=\"completed\"} ";
    let count = text.lines().find_map(|found| found.strip_prefix(line)?.trim().parse().ok());
    Ok(count.unwrap_or(0))
}

/// Messages that are neither completed nor failed.
pub async fn unfinished(target: &Target) -> Result<u64, Error> {
    let text = get(target, "/api/metrics").await?;
    let json: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let count = |name: &str| json.pointer(&format!("/counts/{name}")).and_then(serde_json::Value::as_u64).unwrap_or(0);
    Ok(count("created") + count("queued") + count("processing"))
}

/// Over a connection of its own: the server closes one that is silent for a while.
async fn get(target: &Target, path: &str) -> Result<String, Error> {
    let mut connection = runner::open(target.address, "messages").await?;
    let unreachable =
        |source| Error::Unreachable { scenario: "messages".to_owned(), address: target.address.to_string(), source };
    let response = connection.call(&client::request("GET", path, &target.token, None)).await.map_err(unreachable)?;
    if !response.is_success() {
        return Err(Error::Refused { scenario: "messages".to_owned(), reply: describe(response) });
    }
    Ok(String::from_utf8_lossy(response.body).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_json() {
        let json: serde_json::Value = serde_json::from_str(&message(17)).unwrap();
        assert!(json["payload"]["text"].as_str().unwrap().starts_with("bench no. 000000000017:"));
    }

    #[test]
    fn one_request_serves_for_all_numbers() {
        let whole = |number| client::request("POST", "/", "", Some(("application/json", message(number).as_bytes())));
        let (mut numbered, mut request) = (Numbered(whole(0)), Vec::new());
        for number in [0, 999_999_999_999, 1, 17] {
            numbered.write(number, &mut request);
            assert_eq!(request, whole(number));
        }
    }

    #[tokio::test]
    async fn a_pace_is_kept_over_all_connections() {
        let (start, sink) = (stopwatch::now(), Sink::open().unwrap());
        let deadline = start + Duration::from_millis(100);
        let mut turns = 0;
        for place in 0..4 {
            let mut own = Turns::new(Pace::PerSecond(200), 4, place, start);
            while own.next < deadline {
                assert!(own.come(&sink, deadline + Duration::from_secs(60)).await);
                turns += 1;
            }
        }
        assert_eq!(turns, 20);
    }
}
