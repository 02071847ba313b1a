//! `tidings bench`: the built-in load generator.
//!
//! It starts the server it measures (`server`), sends requests over many connections (`client`) as the scenarios say
//! (`scenario`), in slices that take turns (`runner`), and prints rates and latencies (`output`), or writes the whole
//! report (`report`). What the disk allows at most is measured in the same run (`limit`), so that the figures of two
//! machines can be compared.

use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};

mod args;
mod backlog;
pub mod client;
mod dead;
mod error;
#[cfg(test)]
mod fake;
pub mod histogram;
pub mod limit;
mod messages;
mod output;
mod preload;
mod queues;
mod report;
pub mod runner;
pub mod scenario;
pub mod server;
mod sink;
pub mod stopwatch;
pub mod tally;

pub use args::Args;
pub use error::Error;
use messages::Flow;
use runner::Job;
use scenario::{ALERTS_READ, Kind, LIMIT, Options, Scenario};
use server::{Started, Target};

/// Measures what the arguments ask for and prints it.
///
/// All of it runs on one thread of its own: the server needs the other cores, and tasks that never change threads
/// cost the least.
pub async fn run(args: Args) -> Result<(), Error> {
    let measuring = tokio::task::spawn_blocking(move || {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut terminated = signal(SignalKind::terminate())?;
            tokio::select! {
                result = Box::pin(measure(&args)) => result,
                // Falling out of here drops, and so ends, the started servers.
                _ = tokio::signal::ctrl_c() => Err(Error::Interrupted),
                _ = terminated.recv() => Err(Error::Interrupted),
            }
        })
    });
    measuring.await.map_err(|_panic| Error::Interrupted)?
}

async fn measure(args: &Args) -> Result<(), Error> {
    let plan = args.plan()?;
    let is_report = args.is_report()?;
    if cfg!(debug_assertions) {
        output::remark("This is a debug build: its figures say nothing about a release build.");
    }
    if args.url.is_none() && !server::is_on_disk(&args.dir) {
        output::remark("The data directory is not on a disk, where a sync costs time: choose another one with --dir.");
    }
    let options =
        Options { batch: args.batch.unwrap_or(0), rules: args.rules, entries: args.entries, token: String::new() };
    if is_report {
        return report::run(args, plan, &options).await;
    }
    match args.alone()? {
        None => {}
        Some(queues::BACKLOG) => return queues::backlog(args, plan, &options).await,
        Some(queues::DUE) => return queues::due(args).await,
        Some(queues::IDLE) => return queues::idle(args).await,
        Some(dead::NAME) => return dead::run(args, plan).await,
        Some(_) => return backlog::run(args, plan, &options).await,
    }
    let scenarios = chosen(args)?;
    let variants = args.variants()?;
    let needs_server = scenarios.iter().any(|scenario| matches!(scenario.kind, Kind::Http(_)));
    let started = if needs_server && args.url.is_none() { Some(Started::start(&args.dir).await?) } else { None };
    let target = match (&started, &args.url) {
        (Some(started), _) => Some(started.target().clone()),
        (None, Some(url)) => Some(Target::parse(url, args.token.as_deref().unwrap_or_default()).await?),
        (None, None) => None,
    };
    if let (Some(target), Some(events)) = (&target, args.preload) {
        preload::run(target, events).await?;
    }
    if let (Some(target), true) = (&target, scenarios.iter().any(|scenario| scenario.name == ALERTS_READ)) {
        preload::alerts(target, args.preload.unwrap_or(scenario::alerts::STORED)).await?;
    }
    let mut jobs = Vec::new();
    for connections in variants {
        for scenario in &scenarios {
            // Connections mean nothing to a local scenario: once is enough.
            let is_local = matches!(scenario.kind, Kind::Local(_));
            if let Kind::Flow(pace) = scenario.kind {
                jobs.push(Job::flow(scenario, Flow::start(&args.dir, pace, connections).await?, connections));
            } else if !(is_local && jobs.iter().any(|job: &Job| job.scenario.name == scenario.name)) {
                jobs.push(Job::new(scenario, connections, target.as_ref(), &options)?);
            }
        }
    }
    runner::run(&mut jobs, plan).await?;
    let rows = output::rows(&jobs);
    if args.json {
        output::remark(&output::errors(&rows));
        output::print(&output::json(&rows))?;
    } else {
        output::print(&output::table(&rows))?;
    }
    Ok(())
}

/// The scenarios of the command line; `limit` comes with any that needs the server, if that is ours.
fn chosen(args: &Args) -> Result<Vec<&'static Scenario>, Error> {
    let mut scenarios = args.names().into_iter().map(scenario::find).collect::<Result<Vec<_>, _>>()?;
    let over_http = scenarios.iter().any(|scenario| matches!(scenario.kind, Kind::Http(_)));
    if over_http && args.url.is_none() && scenarios.iter().all(|scenario| scenario.name != LIMIT) {
        scenarios.insert(0, scenario::find(LIMIT)?);
    }
    Ok(scenarios)
}
