//! `tidings bench messages-dead`: how long a healthy webhook waits for its messages while a hundred others are dead.
//!
//! Two servers take turns. Both get the same events for the healthy webhook; one also has messages that wait for
//! each of the dead ones, and gets more of them all the time. Half of the dead never answer, half refuse the connection.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::net::TcpSocket;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::args::Args;
use super::client;
use super::error::Error;
use super::messages::{Pace, Turns, make};
use super::output;
use super::runner::{self, Plan};
use super::server::{Started, Target};
use super::sink::{MARK, Sink};
use super::stopwatch;
use super::tally::{Tally, describe};

/// The name on the command line.
pub const NAME: &str = "messages-dead";
const WITHOUT: &str = "messages-well";
const DEAD: usize = 100;
/// What waits for each of the dead when the measurement begins.
const WAITING: usize = 10;
const CONNECTIONS: u32 = 16;
/// Events a second for the healthy one, and for all of the dead together.
const HEALTHY_PACE: u32 = 200;
const DEAD_PACE: u32 = 20;
/// The first attempts at the dead are over by then, most of them.
const SETTLE: Duration = Duration::from_secs(2);
const DRAIN_WITHIN: Duration = Duration::from_secs(60);
/// The p99 may be so many times that without dead endpoints.
const WANTED: f64 = 1.3;

pub async fn run(args: &Args, plan: Plan) -> Result<(), Error> {
    let mut without = Side::start(&args.dir, Vec::new()).await?;
    let mut with = Side::start(&args.dir, dead_ones()?).await?;
    with.fill().await?;
    sleep(SETTLE).await;
    let bar = runner::progress(u64::from(plan.rounds) * 2);
    for round in 0..=plan.rounds {
        for side in [&mut without, &mut with] {
            let counted = side.slice(plan.slice()).await?;
            // The first turn warms up.
            if round > 0 {
                side.tally.merge(counted);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    let rows =
        [(WITHOUT, &without.tally), (NAME, &with.tally)].map(|(name, tally)| output::row(name, tally, CONNECTIONS, 1));
    let ratio = rows[1].p99_ms / rows[0].p99_ms.max(0.001);
    output::print(&if args.json { output::json(&rows) } else { output::table(&rows) })?;
    output::remark(&format!(
        "with {DEAD} dead webhooks the p99 of a healthy one, from accepted to handed over, is {ratio:.2} times that \
         without (wanted: at most {WANTED})"
    ));
    Ok(())
}

/// Nobody ever answers at these addresses, as long as the sockets are held.
fn dead_ones() -> Result<Vec<(SocketAddr, Socket)>, Error> {
    (0..DEAD).map(|number| dead_one(number % 2 == 0)).collect()
}

/// A socket that listens and is never accepted from, or one that is only bound: connections to it are refused.
enum Socket {
    Silent(#[expect(dead_code, reason = "held open")] tokio::net::TcpListener),
    Closed(#[expect(dead_code, reason = "its port stays taken")] TcpSocket),
}

fn dead_one(is_silent: bool) -> Result<(SocketAddr, Socket), Error> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let address = socket.local_addr()?;
    Ok((address, if is_silent { Socket::Silent(socket.listen(1024)?) } else { Socket::Closed(socket) }))
}

/// A server, and the webhooks that its rules call.
struct Side {
    sink: Arc<Sink>,
    started: Started,
    dead: Vec<(SocketAddr, Socket)>,
    tally: Tally,
}

impl Side {
    async fn start(parent: &Path, dead: Vec<(SocketAddr, Socket)>) -> Result<Self, Error> {
        let sink = Arc::new(Sink::open()?);
        let allow = ("TIDINGS__OUTBOUND__ALLOW".to_owned(), r#"["127.0.0.1"]"#.to_owned());
        let started = Started::start_with(parent, vec![allow]).await?;
        let side = Self { sink, started, dead, tally: Tally::default() };
        side.put_rule("well", side.sink.address).await?;
        for (number, (address, _)) in side.dead.iter().enumerate() {
            side.put_rule(&format!("dead-{number}"), *address).await?;
        }
        Ok(side)
    }

    fn target(&self) -> &Target {
        self.started.target()
    }

    /// Events for `hook` are sent to that address.
    async fn put_rule(&self, hook: &str, address: SocketAddr) -> Result<(), Error> {
        let rule = json!({
            "pattern": { "eventType": ["bench.hook"], "data": { "hook": [hook] } },
            "targets": [{ "channel": "webhook", "url": format!("http://{address}/") }],
            "title": "Bench",
            "text": format!("{MARK}{{{{ data.number }}}}"),
        });
        let request = self.request("PUT", &format!("/rules/{hook}"), &rule.to_string());
        self.call(&request).await
    }

    /// What waits for the dead from the beginning.
    async fn fill(&self) -> Result<(), Error> {
        for _ in 0..WAITING {
            let events: Vec<String> = (0..DEAD).map(|number| event(&format!("dead-{number}"), 0)).collect();
            self.call(&self.request("POST", "/events", &format!("[{}]", events.join(",")))).await?;
        }
        Ok(())
    }

    /// Sends events for `length`; counts those for the healthy one.
    async fn slice(&self, length: Duration) -> Result<Tally, Error> {
        let mut ready = Vec::new();
        for _ in 0..=CONNECTIONS {
            ready.push(runner::open(self.target().address, NAME).await?);
        }
        let last = ready.pop();
        let _ = self.sink.latencies();
        let start = stopwatch::now();
        let deadline = start + length;
        let mut tasks = JoinSet::new();
        for (place, connection) in (0_u32..).zip(ready) {
            let turns = Turns::new(Pace::PerSecond(HEALTHY_PACE), CONNECTIONS, place, start);
            let token = self.target().token.clone();
            let ask = move |number, request: &mut Vec<u8>| *request = events_request(&token, &event("well", number));
            tasks.spawn(make(connection, Arc::clone(&self.sink), turns, deadline, ask));
        }
        if let Some(connection) = last.filter(|_| !self.dead.is_empty()) {
            let turns = Turns::new(Pace::PerSecond(DEAD_PACE), 1, 0, start);
            let token = self.target().token.clone();
            // Their numbers are another sink's, which nothing ever reaches.
            let nowhere = Arc::new(Sink::open()?);
            let ask = move |number: u64, request: &mut Vec<u8>| {
                let hook = usize::try_from(number).unwrap_or(0) % DEAD;
                *request = events_request(&token, &event(&format!("dead-{hook}"), 0));
            };
            tasks.spawn(make(connection, nowhere, turns, deadline, ask));
        }
        let mut tally = Tally::default();
        let rest = async {
            while let Some(joined) = tasks.join_next().await {
                if let Ok(counted) = joined {
                    tally.merge(counted);
                }
            }
            self.sink.room(1).await;
        };
        timeout(length + DRAIN_WITHIN, rest).await.map_err(|_elapsed| Error::Stalled(NAME.to_owned()))?;
        tally.latencies = self.sink.latencies();
        (tally.operations, tally.measured) = (tally.latencies.count(), length);
        Ok(tally)
    }

    fn request(&self, method: &str, path: &str, body: &str) -> Vec<u8> {
        client::request(method, path, &self.target().token, Some(("application/json", body.as_bytes())))
    }

    async fn call(&self, request: &[u8]) -> Result<(), Error> {
        let address = self.target().address;
        let unreachable =
            |source| Error::Unreachable { scenario: NAME.to_owned(), address: address.to_string(), source };
        let mut connection = runner::open(address, NAME).await?;
        let response = connection.call(request).await.map_err(unreachable)?;
        if !response.is_success() {
            return Err(Error::Refused { scenario: NAME.to_owned(), reply: describe(response) });
        }
        Ok(())
    }
}

fn event(hook: &str, number: u64) -> String {
    json!({ "eventType": "bench.hook", "data": { "hook": hook, "number": number } }).to_string()
}

fn events_request(token: &str, event: &str) -> Vec<u8> {
    client::request("POST", "/events", token, Some(("application/json", event.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_dead_refuse_or_never_answer() {
        let (silent, _held) = dead_one(true).unwrap();
        assert!(tokio::net::TcpStream::connect(silent).await.is_ok());
        let (closed, _held) = dead_one(false).unwrap();
        let refused = tokio::net::TcpStream::connect(closed).await.unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    }
}
