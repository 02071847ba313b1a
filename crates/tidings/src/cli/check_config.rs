//! `tidings check-config`.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::{Done, Failure, output};
use crate::config::{self, Config, Problem, Problems};
use crate::inbox::import::BadLine;

const MAP_FILE: &str = "notification_center.map_file";

/// Check a configuration file: every problem with its line
#[derive(Args)]
#[command(after_help = "Example:\n  tidings check-config tidings.toml")]
pub struct Arguments {
    file: PathBuf,
    /// Print the problems as JSON
    #[arg(long)]
    json: bool,
}

/// Reads the file, and what it leads to and a start would read as well.
fn load(file: &Path) -> Result<Config, Problems> {
    let config = Config::load(Some(file), config::process_environment())?;
    let Err(bad) = crate::inbox::sync::wanted(&config) else { return Ok(config) };
    let problem = |bad: &BadLine| {
        let line = if bad.line == 0 { String::new() } else { format!(", line {}", bad.line) };
        Problem::beyond(MAP_FILE, format!("`{MAP_FILE}`{line}: {}", bad.message))
    };
    Err(Problems::new(&file.display().to_string(), bad.iter().map(problem).collect()))
}

pub fn run(arguments: &Arguments) -> Result<Done, Failure> {
    match load(&arguments.file) {
        Ok(config) => {
            let file = arguments.file.display();
            // The server's environment may have what this one lacks.
            let warning = config.email.warning(|name| std::env::var(name).ok());
            if arguments.json {
                let warnings = warning.iter().collect::<Vec<_>>();
                let said = match warnings.is_empty() {
                    true => json!({ "problems": [] }),
                    false => json!({ "problems": [], "warnings": warnings }),
                };
                output::line(&said.to_string());
            } else {
                warning.iter().for_each(|warning| output::note(&format!("{file}: warning: {warning}")));
                output::line(&format!("{file}: no problems"));
            }
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
