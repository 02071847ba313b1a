//! `tidings rules`: trying a pattern without a server.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::value::RawValue;
use tidings_core::envelope::{self, Defaults};
use tidings_core::json;
use tidings_core::pattern::Pattern;
use tidings_core::time::Clock;

use super::{Done, Failure, output};

/// Try the patterns of rules
#[derive(Args)]
#[command(after_help = "Example:\n  tidings rules test --pattern pattern.json --event event.json")]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Hold a pattern against an event: exit 0 if it matches, 1 if not, 2 if the pattern or the event is no good
    #[command(after_help = "Example:\n  tidings rules test --pattern pattern.json --event event.json")]
    Test {
        /// A file with an EventBridge pattern; - reads stdin
        #[arg(long, value_name = "FILE")]
        pattern: PathBuf,
        /// A file with an event; - reads stdin
        #[arg(long, value_name = "FILE")]
        event: PathBuf,
        /// Print {"matches":true|false}
        #[arg(long)]
        json: bool,
    },
}

pub fn run(arguments: &Arguments) -> Result<Done, Failure> {
    let Command::Test { pattern, event, json } = &arguments.command;
    match matches(pattern, event) {
        Ok(matches) => {
            output::line(&match (json, matches) {
                (true, _) => format!(r#"{{"matches":{matches}}}"#),
                (false, true) => "the pattern matches the event".to_owned(),
                (false, false) => "the pattern does not match the event".to_owned(),
            });
            Ok(if matches { Done::All } else { Done::Refused })
        }
        Err(sentence) => {
            output::error(&sentence);
            Ok(Done::BadUsage)
        }
    }
}

fn matches(pattern: &Path, event: &Path) -> Result<bool, String> {
    if pattern == event {
        return Err("--pattern and --event must be two files".to_owned());
    }
    let pattern_text = read(pattern)?;
    let no_pattern = |at: &str, why: &str| format!("{} is no pattern, at {at}: {why}", pattern.display());
    let compiled = Pattern::parse(&pattern_text).map_err(|error| no_pattern(&error.path, &error.message))?;
    json::check_values(&pattern_text).map_err(|error| no_pattern("$", &error.to_string()))?;
    let text = read(event)?;
    let bad = |why: String| format!("{} is no event: {why}", event.display());
    json::check_depth(&text).map_err(|error| bad(error.to_string()))?;
    json::parse::<&RawValue>(&text).and_then(|_| json::check_values(&text)).map_err(|error| bad(error.to_string()))?;
    // Seen as it would be stored, with its defaults; what could not be sent is seen as it is.
    let now = crate::clock::SystemClock::default().now();
    let defaults = Defaults { now, correlation_id: "test", event_id: &|| "test".to_owned() };
    let seen = envelope::read(&text, &defaults).map_or(text, |envelope| envelope.to_json());
    compiled.matches(&seen).map_err(|error| bad(error.to_string()))
}

fn read(path: &Path) -> Result<String, String> {
    let text =
        if path.as_os_str() == "-" { std::io::read_to_string(std::io::stdin()) } else { std::fs::read_to_string(path) };
    text.map_err(|error| format!("cannot read {}: {error}", path.display()))
}
