//! `tidings bench queue-backlog`, `queue-due` and `queue-idle`: what a queue costs when it is long, when much is due at
//! once, and when nothing comes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::args::Args;
use super::client::{self, Connection};
use super::error::Error;
use super::output::{self, Row};
use super::runner::{self, Job, Plan};
use super::scenario::{self, Options};
use super::server::{Started, Target};
use super::stopwatch;
use super::tally::describe;

pub const BACKLOG: &str = "queue-backlog";
pub const DUE: &str = "queue-due";
pub const IDLE: &str = "queue-idle";

/// The queue of the scenario `queue`, which is measured.
const QUEUE: &str = "bench";
const CONNECTIONS: u32 = 64;
const MAKERS: u32 = 8;
const BATCH: u64 = 1000;
const BODY_BYTES: usize = 600;
const JSON: &str = "application/json";
const SENDING: &str = "application/vnd.microsoft.servicebus.json";

/// Messages that are due together, if the command line does not say.
pub const DUE_MESSAGES: u64 = 100_000;
pub const BACKLOG_MESSAGES: u64 = 10_000_000;
/// Messages in a call that receives or settles.
const AT_ONCE: usize = 256;
/// Between sending the last one and the moment that all are due.
const AHEAD: Duration = Duration::from_secs(5);
const COMES_WITHIN: Duration = Duration::from_secs(600);
const IDLE_RECEIVERS: usize = 1000;
/// A server that uses less than this of a core, in percent, has nothing to do; when to measure it nevertheless.
const AT_REST: f64 = 3.0;
const RESTS_WITHIN: Duration = Duration::from_secs(180);
/// What the connections cost to open is over by then.
const SETTLED_AFTER: Duration = Duration::from_secs(3);

/// Sends a call that must succeed; gives the answer's body.
async fn call(
    connection: &mut Connection,
    target: &Target,
    name: &'static str,
    request: &[u8],
) -> Result<Vec<u8>, Error> {
    let unreachable =
        |source| Error::Unreachable { scenario: name.to_owned(), address: target.address.to_string(), source };
    let response = connection.call(request).await.map_err(unreachable)?;
    if !response.is_success() {
        return Err(Error::Refused { scenario: name.to_owned(), reply: describe(response) });
    }
    Ok(response.body.to_vec())
}

async fn make_queue(target: &Target, name: &'static str, queue: &str) -> Result<Connection, Error> {
    let mut connection = runner::open(target.address, name).await?;
    let body = br#"{"kind":"queue","lockSeconds":300,"maxDeliveryCount":100}"#;
    let request = client::request("PUT", &format!("/bus/{queue}"), &target.token, Some((JSON, body)));
    call(&mut connection, target, name, &request).await?;
    Ok(connection)
}

// ---- many messages wait --------------------------------------------------------------------------------------------

pub async fn backlog(args: &Args, plan: Plan, options: &Options) -> Result<(), Error> {
    let count = args.backlog.unwrap_or(BACKLOG_MESSAGES);
    let mut started = Started::start(&args.dir).await?;
    let target = started.target().clone();
    let empty = whole(plan, options, &target).await?;
    let (memory_empty, _) = started.memory()?;
    fill(&target, count).await?;
    let at_once = whole(plan, options, &target).await?;
    let (memory_at_once, peak) = started.memory()?;
    // What waits is one thing, and what a store has to sort after so many writes another: the first stays.
    let rested = rest(&started).await?;
    let beside = whole(plan, options, &target).await?;
    let (memory_after, _) = started.memory()?;
    started.kill()?;
    let start = stopwatch::now();
    started.restart().await?;
    let ready = stopwatch::since(start).as_secs_f64();
    let target = started.target().clone();
    let mut connection = runner::open(target.address, BACKLOG).await?;
    let ask = client::request("POST", &format!("/bus/{QUEUE}/receive"), &target.token, Some((JSON, br#"{"max":1}"#)));
    let answer = call(&mut connection, &target, BACKLOG, &ask).await?;
    let first = stopwatch::since(start).as_secs_f64();
    let found = received(&answer).len();
    let ratio = beside.ops_per_s / empty.ops_per_s.max(0.001);
    let ratio_at_once = at_once.ops_per_s / empty.ops_per_s.max(0.001);
    let rows = vec![Row { name: "queue", ..empty }, Row { name: BACKLOG, ..beside }];
    output::print(&if args.json { output::json(&rows) } else { output::table(&rows) })?;
    let mib = |bytes: u64| bytes >> 20;
    output::remark(&format!(
        "{count} messages waited: sending, receiving and completing kept {ratio:.2} of its rate (wanted: 0.8), \
         {ratio_at_once:.2} right after the last of them came, {rested:.0} s before the store was at rest; resident memory \
         {} MiB empty, {} then, {} at rest, {} at the most (wanted: within 100 of empty); after a crash ready in {ready:.2} \
         s, and {found} message received after {first:.2} s (wanted: 2)",
        mib(memory_empty),
        mib(memory_at_once),
        mib(memory_after),
        mib(peak),
    ));
    Ok(())
}

/// Waits until the store has nothing to do; gives the seconds that took, or those after which it was not waited for.
async fn rest(started: &Started) -> Result<f64, Error> {
    let start = stopwatch::now();
    while stopwatch::since(start) < RESTS_WITHIN && share(started, 1.0).await? > AT_REST {}
    Ok(stopwatch::since(start).as_secs_f64())
}

async fn whole(plan: Plan, options: &Options, target: &Target) -> Result<Row, Error> {
    let mut jobs = vec![Job::new(scenario::find("queue")?, CONNECTIONS, Some(target), options)?];
    runner::run(&mut jobs, plan).await?;
    output::rows(&jobs).pop().ok_or_else(|| Error::Stalled(BACKLOG.to_owned()))
}

async fn fill(target: &Target, count: u64) -> Result<(), Error> {
    let bar = runner::progress(count);
    bar.set_message("messages that wait");
    let left = Arc::new(AtomicU64::new(count));
    let mut tasks = JoinSet::new();
    for _ in 0..MAKERS {
        let (target, left, bar) = (target.clone(), Arc::clone(&left), bar.clone());
        tasks.spawn(async move {
            let mut connection = runner::open(target.address, BACKLOG).await?;
            let one = format!(r#"{{"Body":"{}"}}"#, "m".repeat(BODY_BYTES));
            let path = format!("/bus/{QUEUE}/messages");
            let take = |left: u64| Some(left.saturating_sub(BATCH));
            loop {
                let before = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).unwrap_or(0);
                let messages = before.min(BATCH);
                if messages == 0 {
                    return Ok::<(), Error>(());
                }
                let list = vec![one.as_str(); usize::try_from(messages).unwrap_or(0)].join(",");
                let body = format!("[{list}]");
                let request = client::request("POST", &path, &target.token, Some((SENDING, body.as_bytes())));
                call(&mut connection, &target, BACKLOG, &request).await?;
                bar.inc(messages);
            }
        });
    }
    while let Some(joined) = tasks.join_next().await {
        joined.map_err(|_panic| Error::Stalled(BACKLOG.to_owned()))??;
    }
    bar.finish_and_clear();
    Ok(())
}

/// The messages of an answer to a call that receives.
fn received(answer: &[u8]) -> Vec<Value> {
    let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
    answer.get("messages").and_then(Value::as_array).cloned().unwrap_or_default()
}

// ---- many are due in the same second -------------------------------------------------------------------------------

pub async fn due(args: &Args) -> Result<(), Error> {
    const NAME: &str = "bench-due";
    let count = args.backlog.unwrap_or(DUE_MESSAGES);
    let started = Started::start(&args.dir).await?;
    let target = started.target().clone();
    let mut connection = make_queue(&target, DUE, NAME).await?;
    // How long sending takes is not known before; the first thousand say.
    let sending = stopwatch::now();
    send_scheduled(&mut connection, &target, NAME, 0..count.min(BATCH), stopwatch::wall() + Duration::from_secs(3600))
        .await?;
    let batches = u32::try_from(count.div_ceil(BATCH)).unwrap_or(u32::MAX);
    let ahead = stopwatch::since(sending) * batches * 2 + AHEAD;
    let request = client::request("POST", &format!("/bus/{NAME}/purge"), &target.token, Some((JSON, b"{}")));
    call(&mut connection, &target, DUE, &request).await?;
    let (at, start) = (stopwatch::wall() + ahead, stopwatch::now());
    let bar = runner::progress(count);
    bar.set_message("messages scheduled");
    for first in (0..count).step_by(usize::try_from(BATCH).unwrap_or(1)) {
        let numbers = first..(first + BATCH).min(count);
        bar.inc(numbers.end - numbers.start);
        send_scheduled(&mut connection, &target, NAME, numbers, at).await?;
    }
    bar.finish_and_clear();
    let early = ahead.saturating_sub(stopwatch::since(start));
    if early.is_zero() {
        return Err(Error::Usage(
            "sending took longer than its beginning promised: try again, or a smaller --backlog".into(),
        ));
    }
    sleep(early).await;
    let start = stopwatch::now();
    let (next, first) = take_in_order(&mut connection, &target, NAME, count).await?;
    let took = stopwatch::since(start).as_secs_f64();
    let (_, peak) = started.memory()?;
    if next < count {
        return Err(Error::Refused {
            scenario: DUE.to_owned(),
            reply: format!("only {next} of {count} messages came"),
        });
    }
    let first = first.unwrap_or_default().as_secs_f64();
    let text = format!(
        "{count} messages due in the same moment: all came, in order; the first {first:.2} s after it, the last received \
         and completed after {took:.2} s, by one receiver; {} MiB at the most\n",
        peak >> 20
    );
    let json = serde_json::json!({
        "name": DUE, "messages": count, "first_s": first, "all_s": took, "peak_bytes": peak, "in_order": true, "lost": 0,
    });
    output::print(&if args.json { format!("{json}\n") } else { text })?;
    Ok(())
}

/// Receives and completes messages, which must be numbered from 0 on; says how many came, and when the first did.
async fn take_in_order(
    connection: &mut Connection,
    target: &Target,
    queue: &str,
    count: u64,
) -> Result<(u64, Option<Duration>), Error> {
    let start = stopwatch::now();
    let mut next = 0;
    let mut first = None;
    let ask = format!(r#"{{"max":{AT_ONCE},"waitSeconds":10}}"#);
    let ask = client::request("POST", &format!("/bus/{queue}/receive"), &target.token, Some((JSON, ask.as_bytes())));
    let path = format!("/bus/{queue}/settle");
    while next < count && stopwatch::since(start) < COMES_WITHIN {
        let messages = received(&call(connection, target, DUE, &ask).await?);
        let mut settle = Vec::with_capacity(messages.len());
        for message in &messages {
            let body = message.get("body").and_then(Value::as_str).unwrap_or_default();
            if body != next.to_string() {
                return Err(Error::Refused {
                    scenario: DUE.to_owned(),
                    reply: format!("{body} came instead of {next}"),
                });
            }
            next += 1;
            let token = message.get("lockToken").and_then(Value::as_str).unwrap_or_default();
            settle.push(format!(r#"{{"lockToken":"{token}","action":"complete"}}"#));
        }
        if !settle.is_empty() {
            first.get_or_insert_with(|| stopwatch::since(start));
            let body = format!("[{}]", settle.join(","));
            let request = client::request("POST", &path, &target.token, Some((JSON, body.as_bytes())));
            call(connection, target, DUE, &request).await?;
        }
    }
    Ok((next, first))
}

async fn send_scheduled(
    connection: &mut Connection,
    target: &Target,
    queue: &str,
    numbers: std::ops::Range<u64>,
    at: jiff::Timestamp,
) -> Result<(), Error> {
    let properties = format!(r#""BrokerProperties":{{"ScheduledEnqueueTimeUtc":"{at}"}}"#);
    let list: Vec<String> = numbers.map(|n| format!(r#"{{"Body":"{n}",{properties}}}"#)).collect();
    let body = format!("[{}]", list.join(","));
    let path = format!("/bus/{queue}/messages");
    let request = client::request("POST", &path, &target.token, Some((SENDING, body.as_bytes())));
    call(connection, target, DUE, &request).await.map(drop)
}

// ---- nothing comes -------------------------------------------------------------------------------------------------

pub async fn idle(args: &Args) -> Result<(), Error> {
    const NAME: &str = "bench-idle";
    let started = Started::start(&args.dir).await?;
    let target = started.target().clone();
    drop(make_queue(&target, IDLE, NAME).await?);
    sleep(SETTLED_AFTER).await;
    let without = share(&started, args.seconds).await?;
    let ask = client::request(
        "POST",
        &format!("/bus/{NAME}/receive"),
        &target.token,
        Some((JSON, br#"{"max":1,"waitSeconds":300}"#)),
    );
    let ask = Arc::new(ask);
    let mut receivers = JoinSet::new();
    for _ in 0..IDLE_RECEIVERS {
        let mut connection = runner::open(target.address, IDLE).await?;
        let ask = Arc::clone(&ask);
        receivers.spawn(async move { connection.call(&ask).await.map(|response| response.status) });
    }
    sleep(SETTLED_AFTER).await;
    let with = share(&started, args.seconds).await?;
    let ended = receivers.try_join_next().is_some();
    // One of them gets what comes, at once.
    let path = format!("/bus/{NAME}/messages");
    let request = client::request("POST", &path, &target.token, Some(("text/plain", b"wake")));
    let mut connection = runner::open(target.address, IDLE).await?;
    let start = stopwatch::now();
    call(&mut connection, &target, IDLE, &request).await?;
    let woken = timeout(Duration::from_secs(10), receivers.join_next()).await.ok().flatten().is_some();
    let took = stopwatch::since(start).as_secs_f64() * 1000.0;
    let (memory, _) = started.memory()?;
    if ended || !woken {
        return Err(Error::Stalled(IDLE.to_owned()));
    }
    let text = format!(
        "{IDLE_RECEIVERS} receivers wait on long polls: {with:.2} % of a core, {without:.2} % without them (wanted: under 1); \
         {} MiB resident; a message reaches one of them {took:.1} ms after it was sent\n",
        memory >> 20
    );
    let json = serde_json::json!({
        "name": IDLE, "receivers": IDLE_RECEIVERS, "cpu_percent": with, "cpu_percent_without": without,
        "resident_bytes": memory, "wake_ms": took,
    });
    output::print(&if args.json { format!("{json}\n") } else { text })?;
    Ok(())
}

/// How much of a core the server takes, in percent, over so many seconds.
async fn share(started: &Started, seconds: f64) -> Result<f64, Error> {
    let (before, start) = (started.cpu()?, stopwatch::now());
    sleep(Duration::from_secs_f64(seconds)).await;
    let worked = started.cpu()?.saturating_sub(before).as_secs_f64();
    Ok(100.0 * worked / stopwatch::since(start).as_secs_f64().max(0.001))
}
