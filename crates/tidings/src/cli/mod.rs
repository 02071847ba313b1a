//! The command line. Errors go to stderr in one sentence that says what to do; exit 0 done, 1 refused or failed,
//! 2 bad usage.

mod alerts;
mod backup;
mod check_config;
mod client;
mod completions;
mod file;
mod logging;
mod map;
mod output;
mod queues;
mod rules;
mod send;
mod serve;
mod tables;
mod tail;
mod token;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::demo::place::Scratch;

/// Turns events into the right notice to the right person, and can prove what became of every event.
#[derive(Parser)]
#[command(
    name = "tidings",
    version,
    max_term_width = 100,
    after_help = "Examples:\n  tidings serve --demo\n  tidings send event.json\n  tidings tail --type ticket.\n\nEvery command has its own --help with an example."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(Box<serve::Arguments>),
    CheckConfig(check_config::Arguments),
    Token(token::Arguments),
    Send(send::Arguments),
    Tail(tail::Arguments),
    Rules(rules::Arguments),
    Alerts(alerts::Arguments),
    Queues(queues::Arguments),
    Map(map::Arguments),
    Backup(backup::BackupArguments),
    Restore(backup::RestoreArguments),
    Tables(tables::Arguments),
    Completions(completions::Arguments),
    /// Measure this machine: the built-in load generator and its report
    Bench(Box<crate::bench::Args>),
}

/// Why a command failed, in one sentence.
#[derive(Debug)]
pub struct Failure(pub String);

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        let mut sentence = error.to_string();
        let mut cause = error.source();
        while let Some(deeper) = cause {
            let text = deeper.to_string();
            if !sentence.contains(&text) {
                sentence = format!("{sentence}: {text}");
            }
            cause = deeper.source();
        }
        Self(sentence)
    }
}

/// What a command ends with when it did not fail.
pub enum Done {
    All,
    /// It ran, and the answer is no: some events refused, some problems found.
    Refused,
    /// What it was given is no good; it has said why.
    BadUsage,
}

#[must_use]
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    // reqwest takes the process's provider; there is one TLS stack in the program.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let mut scratch = None;
    let outcome = match runtime {
        // The runtime ends here, and with it every task that still has the store.
        Ok(runtime) => runtime.block_on(run(arguments.command, &mut scratch)),
        Err(error) => Err(error.into()),
    };
    drop(scratch);
    match outcome {
        Ok(Done::All) => match output::lost() {
            Some(sentence) => {
                output::error(&sentence);
                ExitCode::from(1)
            }
            None => ExitCode::SUCCESS,
        },
        Ok(Done::Refused) => ExitCode::from(1),
        Ok(Done::BadUsage) => ExitCode::from(2),
        Err(Failure(sentence)) => {
            output::error(&sentence);
            ExitCode::from(1)
        }
    }
}

async fn run(command: Command, scratch: &mut Option<Scratch>) -> Result<Done, Failure> {
    match command {
        Command::Serve(arguments) => serve::run(*arguments, scratch).await,
        Command::CheckConfig(arguments) => check_config::run(&arguments),
        Command::Token(arguments) => token::run(arguments).await,
        Command::Send(arguments) => send::run(arguments).await,
        Command::Tail(arguments) => tail::run(arguments).await,
        Command::Rules(arguments) => rules::run(&arguments),
        Command::Alerts(arguments) => alerts::run(arguments).await,
        Command::Queues(arguments) => queues::run(arguments).await,
        Command::Map(arguments) => map::run(arguments).await,
        Command::Backup(arguments) => backup::backup(arguments).await,
        Command::Restore(arguments) => backup::restore(&arguments),
        Command::Tables(arguments) => tables::run(arguments).await,
        Command::Completions(arguments) => completions::run(&arguments),
        Command::Bench(arguments) => match crate::bench::run(*arguments).await {
            Ok(()) => Ok(Done::All),
            Err(error @ (crate::bench::Error::Usage(_) | crate::bench::Error::UnknownScenario { .. })) => {
                output::error(&error.to_string());
                Ok(Done::BadUsage)
            }
            Err(error) => Err(error.into()),
        },
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// Contract 1: every command has an example.
    #[test]
    fn every_command_has_a_help_with_an_example() {
        fn check(command: &clap::Command, path: &str) {
            let path = format!("{path} {}", command.get_name());
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example") && help.contains("tidings "), "`{} --help` has no example", path.trim());
            assert!(command.get_about().is_some(), "`{}` does not say what it does", path.trim());
            for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
                check(sub, &path);
            }
        }
        check(&Arguments::command(), "");
    }
}
