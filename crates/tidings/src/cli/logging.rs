//! What `serve` logs, and how: `[log]`, or what `TIDINGS_LOG` says instead.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use super::Failure;
use crate::config::log::Format;
use crate::config::{Config, nearest};

const VARIABLE: &str = "TIDINGS_LOG";
const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

/// Starts logging.
///
/// # Errors
///
/// If the variable says what is no filter: a log that stays silent because of a slip is found out when it is needed.
pub fn start(config: &Config) -> Result<(), Failure> {
    let said = std::env::var_os(VARIABLE).map(|said| said.to_string_lossy().into_owned());
    let filter = match said.filter(|said| !said.trim().is_empty()) {
        Some(said) => filter(&said).map_err(|why| Failure(format!("{VARIABLE} {why}")))?,
        None => EnvFilter::new(format!("{},fjall=warn,lsm_tree=warn", config.log.level.as_str())),
    };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A second call in one process (tests) keeps the first.
    let _ = match config.log.format {
        Format::Json => builder.json().flatten_event(true).try_init(),
        // Colours are for eyes: in a file they are rubbish.
        Format::Text => builder.with_target(false).with_ansi(std::io::stderr().is_terminal()).try_init(),
    };
    Ok(())
}

/// A filter as `tracing` reads it, where a word alone is a level or a part of this program: what is neither would let
/// nothing through.
fn filter(said: &str) -> Result<EnvFilter, String> {
    // What has spans in brackets is for `tracing` to judge.
    let directives = said.split(',').filter(|_| !said.contains('[')).map(str::trim);
    for directive in directives.filter(|directive| !directive.is_empty()) {
        let level = match directive.rsplit_once('=') {
            Some((_, level)) => level.trim(),
            None if directive.starts_with("tidings") || directive.contains("::") => continue,
            None => directive,
        };
        if !LEVELS.contains(&level.to_ascii_lowercase().as_str()) {
            return Err(no_level(level));
        }
    }
    EnvFilter::try_new(said)
        .map_err(|error| format!("is no filter ({error}); use a level such as info, or tidings=debug"))
}

fn no_level(level: &str) -> String {
    let meant = nearest(level, &LEVELS).map(|meant| format!("; did you mean \"{meant}\"?")).unwrap_or_default();
    let [most @ .., last] = LEVELS;
    let levels = most.map(|level| format!("\"{level}\"")).join(", ");
    format!("must be {levels} or \"{last}\", or PART=LEVEL such as tidings=debug, not {level:?}{meant}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_has_levels_and_parts() {
        for good in
            ["info", "DEBUG", "off", "tidings=debug", "warn,tidings=trace,hyper=info", "tidings::bus", "tidings"]
        {
            assert!(filter(good).is_ok(), "{good}");
        }
        for (bad, named) in [("bogus", "\"bogus\""), ("info,tidings=loud", "\"loud\""), ("tidings=", "\"\"")] {
            let why = filter(bad).unwrap_err();
            assert!(why.contains(named), "{why}");
        }
        assert!(filter("debgu").unwrap_err().ends_with("did you mean \"debug\"?"));
        assert!(filter("tidings[span]=debug").is_ok());
    }
}
