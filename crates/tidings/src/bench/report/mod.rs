//! `tidings bench report`: measures everything that has a target and writes it into the documentation.

use std::time::Duration;

use tokio::time::sleep;

use super::args::Args;
use super::error::Error;
use super::output::{self, Row};
use super::preload;
use super::runner::{self, Job, Plan};
use super::scenario::{self, LIMIT, Options};
use super::server::{Started, Target};
use super::stopwatch;

mod document;
mod figures;

use figures::{Figures, Filled};

const CONNECTIONS: [u32; 3] = [16, 64, 256];
const CONNECTIONS_FILLED: u32 = 64;
const PRELOAD: u64 = 1_000_000;
const PAGE_SECONDS: f64 = 3.0;
const CRASHES: u32 = 3;
/// How long the load lasts before the server is killed in the middle of it.
const CRASH_AFTER: Duration = Duration::from_secs(2);

/// Measures, prints the section and puts it into the document.
pub async fn run(args: &Args, plan: Plan, options: &Options) -> Result<(), Error> {
    let mut empty = Vec::new();
    for connections in CONNECTIONS {
        output::remark(&format!("Empty store, {connections} connections"));
        empty.extend(measure_empty(args, plan, options, connections).await?);
    }
    let events = args.preload.unwrap_or(PRELOAD);
    output::remark(&format!("{events} events stored"));
    let filled = measure_filled(args, plan, options, events).await?;
    let figures = Figures {
        date: stopwatch::today(),
        cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        is_release: !cfg!(debug_assertions),
        empty,
        filled,
    };
    let section = figures.markdown();
    output::print(&section)?;
    let rows: Vec<Row> = figures.rows().cloned().collect();
    output::remark(&output::errors(&rows));
    document::replace_section(&args.output, &section)
}

/// `ingest-batch` has a server of its own: it stores so much that the other store would not be empty for long.
async fn measure_empty(args: &Args, plan: Plan, options: &Options, connections: u32) -> Result<Vec<Row>, Error> {
    let single = Started::start(&args.dir).await?;
    let batch = Started::start(&args.dir).await?;
    let mut jobs = vec![
        job(LIMIT, connections, single.target(), options)?,
        job("ingest", connections, single.target(), options)?,
        job("ingest-batch", connections, batch.target(), options)?,
    ];
    runner::run(&mut jobs, plan).await?;
    Ok(output::rows(&jobs))
}

/// The filled store and an empty one take turns, so that the machine's mood does not pass for a difference.
async fn measure_filled(args: &Args, plan: Plan, options: &Options, events: u64) -> Result<Filled, Error> {
    let mut filled = Started::start(&args.dir).await?;
    preload::run(filled.target(), events).await?;
    let (ingest_empty, ingest) = {
        let empty = Started::start(&args.dir).await?;
        let mut jobs = vec![
            job("ingest", CONNECTIONS_FILLED, empty.target(), options)?,
            job("ingest", CONNECTIONS_FILLED, filled.target(), options)?,
        ];
        runner::run(&mut jobs, plan).await?;
        let mut rows = output::rows(&jobs).into_iter();
        (rows.next(), rows.next())
    };
    let (memory, memory_peak) = filled.memory()?;
    let mut jobs = vec![job("events-read", 1, filled.target(), options)?];
    runner::run(&mut jobs, Plan { seconds: PAGE_SECONDS, rounds: 1 }).await?;
    let page = output::rows(&jobs).into_iter().next();
    let mut ready_again = Duration::ZERO;
    for _ in 0..CRASHES {
        ready_again = ready_again.max(crash(&mut filled, options).await?);
    }
    let missing = || Error::Usage("a job of the report has no row".into());
    Ok(Filled {
        events,
        ingest_empty: ingest_empty.ok_or_else(missing)?,
        ingest: ingest.ok_or_else(missing)?,
        page: page.ok_or_else(missing)?,
        memory,
        memory_peak,
        ready_again,
    })
}

/// Kills the server while it is under load, and returns how long it took from there until it was ready again.
async fn crash(server: &mut Started, options: &Options) -> Result<Duration, Error> {
    let mut load = job("ingest", CONNECTIONS_FILLED, server.target(), options)?;
    let killed = tokio::select! {
        killed = async {
            sleep(CRASH_AFTER).await;
            let moment = stopwatch::now();
            server.kill().map(|()| moment)
        } => killed?,
        slice = load.slice(CRASH_AFTER * 5) => {
            slice?;
            return Err(Error::Stalled("the crash under load".into()));
        }
    };
    server.restart().await?;
    Ok(stopwatch::since(killed))
}

fn job(name: &str, connections: u32, target: &Target, options: &Options) -> Result<Job, Error> {
    Job::new(scenario::find(name)?, connections, Some(target), options)
}
