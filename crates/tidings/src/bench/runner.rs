//! Runs jobs in short slices that take turns, so that whatever else the machine does hits all of them alike.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::client::Connection;
use super::error::Error;
use super::messages::Flow;
use super::scenario::{Caller, Kind, Load, Options, Scenario};
use super::server::Target;
use super::stopwatch;
use super::tally::{Tally, describe};

/// Between two slices, so that one does not pay for what the other left behind.
const PAUSE: Duration = Duration::from_millis(200);
const WARM_UP_MAX: Duration = Duration::from_secs(1);
/// A reply that takes longer than this after the end of its slice never comes.
const LAST_REPLY_WITHIN: Duration = Duration::from_secs(15);
/// What a scenario needs first may be a million entries.
const PREPARED_WITHIN: Duration = Duration::from_secs(900);
const OPEN_WITHIN: Duration = Duration::from_secs(10);
const REOPEN_AFTER: Duration = Duration::from_millis(50);

/// How long and in how many turns each job is measured.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub seconds: f64,
    pub rounds: u32,
}

impl Plan {
    pub fn slice(self) -> Duration {
        Duration::from_secs_f64(self.seconds / f64::from(self.rounds.max(1)))
    }
}

/// One scenario with one number of connections against one server.
pub struct Job {
    pub scenario: &'static Scenario,
    pub connections: u32,
    pub batch: u32,
    pub tally: Tally,
    work: Work,
}

enum Work {
    Http { target: Target, load: Box<dyn Load>, callers: Vec<Box<dyn Caller>> },
    Local { options: Options, run: fn(&Options, Duration) -> Result<Tally, Error> },
    Flow(Box<Flow>),
}

impl Job {
    /// A scenario over HTTP needs a target and uses the connections; any other needs and uses neither.
    pub fn new(
        scenario: &'static Scenario,
        connections: u32,
        target: Option<&Target>,
        options: &Options,
    ) -> Result<Self, Error> {
        let tally = Tally::default();
        match (scenario.kind, target) {
            (Kind::Http(load), Some(target)) => {
                let load = load(&Options { token: target.token.clone(), ..options.clone() });
                let connections = load.connections(connections);
                let callers = (0..connections).map(|_| load.caller()).collect();
                let batch = load.batch();
                Ok(Self {
                    scenario,
                    connections,
                    batch,
                    tally,
                    work: Work::Http { target: target.clone(), load, callers },
                })
            }
            (Kind::Http(_), None) => Err(Error::Usage(format!("`{}` needs a server", scenario.name))),
            (Kind::Flow(_), _) => Err(Error::Usage(format!("`{}` starts a server of its own", scenario.name))),
            (Kind::Local(run), _) => {
                let work = Work::Local { options: options.clone(), run };
                Ok(Self { scenario, connections: 1, batch: 1, tally, work })
            }
        }
    }

    /// A scenario that has its own server.
    pub fn flow(scenario: &'static Scenario, flow: Flow, connections: u32) -> Self {
        Self { scenario, connections, batch: 1, tally: Tally::default(), work: Work::Flow(Box::new(flow)) }
    }

    async fn prepare(&self) -> Result<(), Error> {
        if let Work::Http { target, load, .. } = &self.work {
            let mut connection = open(target.address, self.scenario.name).await?;
            timeout(PREPARED_WITHIN, load.prepare(&mut connection))
                .await
                .map_err(|_elapsed| Error::Stalled(self.scenario.name.to_owned()))??;
        }
        Ok(())
    }

    /// Works for `length` and returns what was counted.
    pub async fn slice(&mut self, length: Duration) -> Result<Tally, Error> {
        match &mut self.work {
            Work::Http { target, callers, .. } => send(self.scenario.name, target.address, callers, length).await,
            Work::Local { options, run } => run(options, length),
            Work::Flow(flow) => flow.slice(self.scenario.name, length).await,
        }
    }
}

/// Prepares and warms up every job, then measures them in turns. The counts are added to the jobs' tallies.
pub async fn run(jobs: &mut [Job], plan: Plan) -> Result<(), Error> {
    let slice = plan.slice();
    let bar = progress(jobs.len() as u64 * (u64::from(plan.rounds) + 1));
    for job in jobs.iter_mut() {
        bar.set_message(format!("warm-up: {}", job.scenario.name));
        job.prepare().await?;
        job.slice(slice.min(WARM_UP_MAX)).await?;
        sleep(PAUSE).await;
        bar.inc(1);
    }
    for _ in 0..plan.rounds {
        for job in jobs.iter_mut() {
            bar.set_message(format!("{} over {}", job.scenario.name, job.connections));
            let counted = job.slice(slice).await?;
            job.tally.merge(counted);
            sleep(PAUSE).await;
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// A bar on stderr; nothing at all if that is no terminal.
#[must_use]
pub fn progress(length: u64) -> ProgressBar {
    let bar = ProgressBar::new(length);
    if let Ok(style) = ProgressStyle::with_template("{elapsed_precise} {wide_bar} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}

pub async fn open(address: SocketAddr, scenario: &str) -> Result<Connection, Error> {
    let opened = timeout(OPEN_WITHIN, Connection::open(address)).await;
    opened.unwrap_or_else(|_elapsed| Err(std::io::ErrorKind::TimedOut.into())).map_err(|source| Error::Unreachable {
        scenario: scenario.to_owned(),
        address: address.to_string(),
        source,
    })
}

/// All connections of one slice. They are opened before the clock starts and closed when it stops, because a server
/// may close connections that idle while other jobs have their turn.
async fn send(
    name: &str,
    address: SocketAddr,
    callers: &mut Vec<Box<dyn Caller>>,
    length: Duration,
) -> Result<Tally, Error> {
    let mut ready = Vec::with_capacity(callers.len());
    for caller in callers.drain(..) {
        ready.push((open(address, name).await?, caller));
    }
    let deadline = stopwatch::now() + length;
    let mut tasks = JoinSet::new();
    for (connection, caller) in ready {
        tasks.spawn(drive(connection, caller, address, deadline));
    }
    let mut tally = Tally::default();
    let collect = async {
        while let Some(joined) = tasks.join_next().await {
            // A task that panicked has counted nothing; its connection is missing from then on.
            if let Ok((caller, counted)) = joined {
                callers.push(caller);
                tally.merge(counted);
            }
        }
    };
    timeout(length + LAST_REPLY_WITHIN, collect).await.map_err(|_elapsed| Error::Stalled(name.to_owned()))?;
    tally.measured = length;
    Ok(tally)
}

/// One connection until the deadline: one request after the other, each as soon as the last one is answered.
async fn drive(
    mut connection: Connection,
    mut caller: Box<dyn Caller>,
    address: SocketAddr,
    deadline: Instant,
) -> (Box<dyn Caller>, Tally) {
    let mut tally = Tally::default();
    loop {
        if let Some(pause) = caller.pause() {
            sleep(pause).await;
        }
        let request = caller.request();
        let start = stopwatch::now();
        if start >= deadline {
            break;
        }
        match connection.call(request).await {
            Ok(response) => {
                let end = stopwatch::now();
                match caller.check(response) {
                    Some(operations) => {
                        tally.latencies.record(end.saturating_duration_since(start));
                        // What ends late was slow, but is no work of the measured time.
                        tally.operations += if end <= deadline { operations } else { 0 };
                    }
                    None => tally.fail(|| describe(response)),
                }
            }
            Err(error) => {
                tally.fail(|| error.to_string());
                match reopen(address, deadline).await {
                    Some(fresh) => connection = fresh,
                    None => break,
                }
            }
        }
    }
    (caller, tally)
}

/// Tries until the deadline.
async fn reopen(address: SocketAddr, deadline: Instant) -> Option<Connection> {
    while stopwatch::now() < deadline {
        sleep(REOPEN_AFTER).await;
        if let Ok(connection) = Connection::open(address).await {
            return Some(connection);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::bench::{fake, output, scenario};

    fn jobs(names: &[&str], target: &Target) -> Vec<Job> {
        let options = Options { batch: 10, rules: 0, entries: 0, token: String::new() };
        let job = |name: &&str| Job::new(scenario::find(name).unwrap(), 3, Some(target), &options).unwrap();
        names.iter().map(job).collect()
    }

    const PLAN: Plan = Plan { seconds: 0.2, rounds: 2 };

    #[tokio::test]
    async fn jobs_are_measured_and_compared_with_the_limit() {
        let target = fake::server(|_| fake::response(202, r#"{"accepted":1}"#)).await;
        let mut jobs = jobs(&["limit", "ingest"], &target);
        run(&mut jobs, PLAN).await.unwrap();
        let rows = output::rows(&jobs);
        assert_eq!(rows.iter().map(|row| row.name).collect::<Vec<_>>(), ["limit", "ingest"]);
        for row in &rows {
            assert!(row.ops_per_s > 0.0 && row.p50_ms > 0.0 && row.p50_ms <= row.p99_ms, "{row:?}");
            assert_eq!((row.errors, row.connections, row.seconds, row.batch), (0, 3, 0.2, 1), "{row:?}");
        }
        assert_eq!(rows[0].vs_limit, Some(1.0));
        assert!(rows[1].vs_limit.is_some_and(|ratio| ratio > 0.0));
    }

    #[tokio::test]
    async fn refusals_are_errors_and_no_operations() {
        let target = fake::server(|_| fake::response(503, "busy")).await;
        let mut jobs = jobs(&["health"], &target);
        run(&mut jobs, PLAN).await.unwrap();
        let rows = output::rows(&jobs);
        assert!(rows[0].errors > 0 && rows[0].ops_per_s == 0.0 && rows[0].vs_limit.is_none(), "{rows:?}");
        assert_eq!(rows[0].first_error.as_deref(), Some("503 busy"));
    }

    #[tokio::test]
    async fn a_connection_that_breaks_is_opened_again() {
        let target = fake::server(|_| "nonsense\r\n\r\n".into()).await;
        let mut jobs = jobs(&["health"], &target);
        run(&mut jobs, PLAN).await.unwrap();
        assert!(jobs[0].tally.errors >= 2 * 3, "{:?}", jobs[0].tally.errors);
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = Target { address: listener.local_addr().unwrap(), token: String::new() };
        drop(listener);
        let error = run(&mut jobs(&["health"], &target), PLAN).await.unwrap_err().to_string();
        assert!(error.contains("`health` cannot reach the server at 127.0.0.1:"), "{error}");
    }

    #[tokio::test]
    async fn a_local_scenario_needs_no_server() {
        fn count(options: &Options, length: Duration) -> Result<Tally, Error> {
            Ok(Tally { operations: u64::from(options.rules), measured: length, ..Tally::default() })
        }
        static LOCAL: Scenario = Scenario { name: "local", about: "for this test", kind: Kind::Local(count) };
        let options = Options { batch: 1, rules: 5, entries: 0, token: String::new() };
        let mut jobs = vec![Job::new(&LOCAL, 64, None, &options).unwrap()];
        run(&mut jobs, PLAN).await.unwrap();
        assert_eq!((jobs[0].tally.operations, jobs[0].connections), (10, 1));
        assert!(Job::new(scenario::find("ingest").unwrap(), 1, None, &options).is_err());
    }
}
