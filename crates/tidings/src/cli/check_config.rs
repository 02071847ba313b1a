//! `tidings check-config`.

use std::path::PathBuf;

use clap::Args;

use super::{Done, Failure, output};
use crate::config::{self, Config};

/// Check a configuration file: every problem with its line
#[derive(Args)]
#[command(after_help = "Example:\n  tidings check-config tidings.toml")]
pub struct Arguments {
    file: PathBuf,
    /// Print the problems as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<Done, Failure> {
    match Config::load(Some(&arguments.file), config::process_environment()) {
        Ok(_) => {
            let file = arguments.file.display();
            output::line(&if arguments.json {
                r#"{"problems":[]}"#.to_owned()
            } else {
                format!("{file}: no problems")
            });
            Ok(Done::All)
        }
        Err(problems) => {
            if arguments.json {
                output::line(&serde_json::to_string(&problems)?);
            } else {
                output::note(&problems.to_string());
            }
            Ok(Done::Refused)
        }
    }
}
