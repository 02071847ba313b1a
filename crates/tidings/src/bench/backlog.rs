//! `tidings bench messages-backlog`: many messages wait for a destination that is dead. Taking events in must not suffer,
//! memory must not grow, and once the destination is back they drain without more at once than it may get.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::args::Args;
use super::error::Error;
use super::messages::{message, unfinished};
use super::output::{self, Row};
use super::runner::{self, Job, Plan};
use super::scenario::{self, Options};
use super::server::{Started, Target};
use super::sink::Sink;
use super::tally::describe;
use super::{client, stopwatch};

/// The name on the command line.
pub const NAME: &str = "messages-backlog";
const CONNECTIONS: u32 = 64;
/// Messages that wait, if the command line does not say.
const MESSAGES: u64 = 1_000_000;
const MAKERS: u32 = 16;
/// In which the backlog is made; the memory is read after each.
const PARTS: u64 = 4;
/// What one request may create.
const BATCH: u64 = 25;
/// A dead destination is asked again after five minutes at the latest; then they come.
const DRAIN_WITHIN: Duration = Duration::from_secs(3600);
const POLL_EVERY: Duration = Duration::from_millis(200);

pub async fn run(args: &Args, plan: Plan, options: &Options) -> Result<(), Error> {
    let sink = Sink::open()?;
    let server = format!("http://{}", sink.address);
    let started = Started::start_with(&args.dir, vec![("TIDINGS__NTFY__SERVER".to_owned(), server)]).await?;
    let target = started.target().clone();
    let before = ingest(plan, options, &target).await?;
    let (memory_before, _) = started.memory()?;
    sink.set_dead(true);
    // The store has caches to fill; what counts is that the last half takes no more than the first.
    let (mut memory_filling, mut made) = (Vec::new(), 0);
    for part in 1..=PARTS {
        let until = args.backlog.unwrap_or(MESSAGES) * part / PARTS;
        fill(&target, made, until).await?;
        made = until;
        memory_filling.push(format!("{} at {made}", started.memory()?.0 >> 20));
    }
    let waiting = unfinished(&target).await?;
    let beside = ingest(plan, options, &target).await?;
    let (memory_after, peak) = started.memory()?;
    sink.set_dead(false);
    sink.set_slow(true);
    let _ = sink.most_at_once();
    let start = stopwatch::now();
    let bar = runner::progress(waiting);
    bar.set_message("messages drained");
    let mut began = None;
    let drained = async {
        loop {
            let left = unfinished(&target).await?;
            bar.set_position(waiting.saturating_sub(left));
            if left < waiting {
                began.get_or_insert_with(stopwatch::now);
            }
            if left == 0 {
                return Ok::<(), Error>(());
            }
            sleep(POLL_EVERY).await;
        }
    };
    timeout(DRAIN_WITHIN, drained).await.map_err(|_elapsed| Error::Stalled(NAME.to_owned()))??;
    bar.finish_and_clear();
    let seconds = stopwatch::since(began.unwrap_or(start)).as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a backlog has fewer than 2^52 messages")]
    let rate = waiting as f64 / seconds.max(0.001);
    let at_once = sink.most_at_once();
    let mib = |bytes: u64| bytes >> 20;
    let ratio = beside.ops_per_s / before.ops_per_s.max(0.001);
    let rows = vec![Row { name: "ingest", ..before }, Row { name: NAME, ..beside }];
    output::print(&if args.json { output::json(&rows) } else { output::table(&rows) })?;
    output::remark(&format!(
        "{waiting} messages waited: ingest kept {ratio:.2} of its rate (wanted: 0.8); resident memory in MiB: {} before, {} \
         messages, {} after more events, {} at the most; drained at {rate:.0} messages/s, at most {at_once} at once",
        mib(memory_before),
        memory_filling.join(", "),
        mib(memory_after),
        mib(peak),
    ));
    Ok(())
}

async fn ingest(plan: Plan, options: &Options, target: &Target) -> Result<Row, Error> {
    let mut jobs = vec![Job::new(scenario::find("ingest")?, CONNECTIONS, Some(target), options)?];
    runner::run(&mut jobs, plan).await?;
    output::rows(&jobs).pop().ok_or_else(|| Error::Stalled(NAME.to_owned()))
}

/// Makes the messages of these numbers.
async fn fill(target: &Target, first: u64, count: u64) -> Result<(), Error> {
    let bar = runner::progress(count - first);
    bar.set_message("messages that wait");
    let next = Arc::new(AtomicU64::new(first));
    let mut tasks = JoinSet::new();
    for _ in 0..MAKERS {
        let (target, next, bar) = (target.clone(), Arc::clone(&next), bar.clone());
        tasks.spawn(async move {
            let mut connection = runner::open(target.address, NAME).await?;
            loop {
                let first = next.fetch_add(BATCH, Ordering::Relaxed);
                let numbers = first..(first + BATCH).min(count);
                if numbers.is_empty() {
                    return Ok::<(), Error>(());
                }
                let made = numbers.clone().count() as u64;
                let body = format!("[{}]", numbers.map(message).collect::<Vec<_>>().join(","));
                let body = Some(("application/json", body.as_bytes()));
                let request = client::request("POST", "/api/messages/batch", &target.token, body);
                let unreachable = |source| Error::Unreachable {
                    scenario: NAME.to_owned(),
                    address: target.address.to_string(),
                    source,
                };
                let response = connection.call(&request).await.map_err(unreachable)?;
                if response.status != 201 {
                    return Err(Error::Refused { scenario: NAME.to_owned(), reply: describe(response) });
                }
                bar.inc(made);
            }
        });
    }
    while let Some(joined) = tasks.join_next().await {
        joined.map_err(|_panic| Error::Stalled(NAME.to_owned()))??;
    }
    bar.finish_and_clear();
    Ok(())
}
