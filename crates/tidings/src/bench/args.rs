//! The command line of `tidings bench`.

use std::path::PathBuf;

use super::error::Error;
use super::runner::Plan;
use super::scenario;
use super::{backlog, dead, queues};

const CONNECTIONS_DEFAULT: &[u32] = &[64];
const SCENARIOS_DEFAULT: &[&str] = &["limit", "health", "ingest", "ingest-batch"];
/// A batch of events must stay below the server's limit for bodies, 1 MiB.
const BATCH_MAX: i64 = 1500;
const CONNECTIONS_MAX: i64 = 4096;
const VARIANTS_MAX: usize = 16;
/// Shorter slices measure the opening of connections more than the answers.
const SLICE_MIN: f64 = 0.1;
const SECONDS_MAX: f64 = 3600.0;
/// The name that stands for the whole report.
const REPORT: &str = "report";

/// Measure this machine: how much the server takes, how quickly it answers.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = help())]
pub struct Args {
    /// Scenarios to run, or `report` to measure all targets and write docs/performance.md [default: limit health
    /// ingest ingest-batch]
    #[arg(value_name = "SCENARIO")]
    pub scenarios: Vec<String>,
    /// Connections at the same time; several values are measured one beside the other [default: 64]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=CONNECTIONS_MAX))]
    pub connections: Vec<u32>,
    /// Seconds that each scenario is measured
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    pub seconds: f64,
    /// Turns into which the seconds are cut
    #[arg(long, value_name = "R", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Operations in one request of the scenarios that have batches [default: 100, of queues 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=BATCH_MAX))]
    pub batch: Option<u32>,
    /// Rules to match against
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub rules: u32,
    /// Inbox entries to store before inboxes are read, for 10,000 users together
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub entries: u64,
    /// Events to store before measuring [default: 0, for `report` 1000000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=1_000_000_000))]
    pub preload: Option<u64>,
    /// Messages that wait [default: `messages-backlog` 1000000, `queue-backlog` 10000000, `queue-due` 100000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub backlog: Option<u64>,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
    /// Measure the server at this address instead of starting one (then there is no `limit`)
    #[arg(long, value_name = "URL", requires = "token")]
    pub url: Option<String>,
    /// The token for the server at --url
    #[arg(long, requires = "url")]
    pub token: Option<String>,
    /// Directory for the data of the started server; it should be on the disk that matters
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Where `report` writes
    #[arg(long, value_name = "FILE", default_value = "docs/performance.md")]
    pub output: PathBuf,
}

/// The scenarios and some examples, below the options.
fn help() -> String {
    let mut text = "Scenarios:\n".to_owned();
    for scenario in scenario::ALL {
        text += &format!("  {:<14} {}\n", scenario.name, scenario.about);
    }
    for (name, about) in ALONE {
        text += &format!("  {name:<14} {about}\n");
    }
    text + "\nExamples:\n  \
        tidings bench ingest ingest-batch --connections 16,64,256 --seconds 10\n  \
        tidings bench ingest --preload 1000000 --json\n  \
        tidings bench messages messages-paced ingest\n  \
        tidings bench messages-dead --seconds 30\n  \
        tidings bench report"
}

/// Those that start their own server and take their own turns.
const ALONE: [(&str, &str); 5] = [
    (backlog::NAME, "alone: events taken in beside --backlog messages for a dead destination"),
    (dead::NAME, "alone: a healthy webhook beside a hundred dead ones, and without them"),
    (queues::BACKLOG, "alone: `queue` with --backlog messages waiting, memory, and a restart"),
    (queues::DUE, "alone: --backlog scheduled messages due in the same moment, in order and whole"),
    (queues::IDLE, "alone: the CPU time of 1,000 receivers on long polls, over --seconds"),
];

impl Args {
    /// How each job is measured, if that can be done.
    pub fn plan(&self) -> Result<Plan, Error> {
        if !(self.seconds > 0.0 && self.seconds <= SECONDS_MAX) {
            return Err(Error::Usage(format!("--seconds must be above 0 and at most {SECONDS_MAX}")));
        }
        if self.seconds / f64::from(self.rounds) < SLICE_MIN {
            return Err(Error::Usage(format!(
                "a round must last at least {SLICE_MIN} s: more --seconds or less --rounds"
            )));
        }
        Ok(Plan { seconds: self.seconds, rounds: self.rounds })
    }

    /// The numbers of connections, each once.
    pub fn variants(&self) -> Result<Vec<u32>, Error> {
        let mut variants =
            if self.connections.is_empty() { CONNECTIONS_DEFAULT.to_vec() } else { self.connections.clone() };
        variants.sort_unstable();
        variants.dedup();
        if variants.len() > VARIANTS_MAX {
            return Err(Error::Usage(format!("at most {VARIANTS_MAX} numbers of --connections in one run")));
        }
        Ok(variants)
    }

    /// The names of the scenarios, each once.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        if self.scenarios.is_empty() {
            return SCENARIOS_DEFAULT.to_vec();
        }
        let mut names = Vec::new();
        for name in &self.scenarios {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        names
    }

    /// The check that is asked for, if it is one that starts its own server and takes its own turns.
    pub fn alone(&self) -> Result<Option<&'static str>, Error> {
        let named = |name: &str| self.scenarios.iter().any(|wanted| wanted == name);
        let Some((name, _)) = ALONE.into_iter().find(|(name, _)| named(name)) else { return Ok(None) };
        if self.scenarios.len() > 1 || self.url.is_some() || !self.connections.is_empty() {
            return Err(Error::Usage(format!("`{name}` takes no other scenario, --url or --connections")));
        }
        Ok(Some(name))
    }

    /// Whether the whole report is asked for, which decides itself what it measures.
    pub fn is_report(&self) -> Result<bool, Error> {
        if !self.scenarios.iter().any(|name| name == REPORT) {
            return Ok(false);
        }
        if self.scenarios.len() > 1 || self.url.is_some() || !self.connections.is_empty() {
            return Err(Error::Usage(
                "`report` starts its own servers and takes no other scenario, --url or --connections".into(),
            ));
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &str) -> Result<Args, clap::Error> {
        Command::try_parse_from(format!("bench {line}").split_whitespace()).map(|command| command.args)
    }

    #[test]
    fn connections_are_a_list_or_repeated() {
        for line in ["ingest --connections 256,16,64,16", "ingest --connections 64 --connections 16,256"] {
            assert_eq!(parse(line).unwrap().variants().unwrap(), [16, 64, 256]);
        }
        let args = parse("").unwrap();
        assert_eq!((args.variants().unwrap(), args.names()), (vec![64], SCENARIOS_DEFAULT.to_vec()));
        assert_eq!(parse("ingest health ingest").unwrap().names(), ["ingest", "health"]);
    }

    #[test]
    fn everything_is_bounded() {
        for line in
            ["--connections 0", "--connections 5000", "--batch 0", "--batch 2000", "--rounds 0", "--url http://h"]
        {
            assert!(parse(line).is_err(), "{line}");
        }
        for line in ["--seconds 0", "--seconds 4000", "--seconds NaN", "--seconds 0.4"] {
            assert!(parse(line).unwrap().plan().is_err(), "{line}");
        }
        assert!(parse("--seconds 0.5").unwrap().plan().is_ok());
    }

    #[test]
    fn some_stand_alone() {
        for name in ["messages-backlog", "messages-dead", "queue-backlog", "queue-due", "queue-idle"] {
            assert_eq!(parse(&format!("{name} --backlog 1000")).unwrap().alone().unwrap(), Some(name));
            assert!(parse(&format!("{name} ingest")).unwrap().alone().is_err());
            assert!(parse(&format!("{name} --connections 4")).unwrap().alone().is_err());
        }
        assert_eq!(parse("messages queue").unwrap().alone().unwrap(), None);
        assert!(parse("messages-backlog --backlog 0").is_err());
    }

    #[test]
    fn the_report_stands_alone() {
        assert!(parse("report --preload 1000").unwrap().is_report().unwrap());
        assert!(!parse("ingest").unwrap().is_report().unwrap());
        for line in ["report ingest", "report --connections 4", "report --url http://h --token t"] {
            assert!(parse(line).unwrap().is_report().is_err(), "{line}");
        }
    }
}
