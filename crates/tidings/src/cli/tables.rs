//! `tidings tables`: the tables on DynamoDB.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand};
use tidings_dynamodb::Dynamo;
use tidings_dynamodb::tables::{self, Kind, Wanted};

use super::{Done, Failure, output};
use crate::clock::{SystemClock, SystemIds};
use crate::config::Config;
use crate::engine;

/// Create or check the tables on DynamoDB, or print them as a CloudFormation template
#[derive(Args)]
#[command(
    after_help = "Examples:\n  tidings tables create --config tidings.toml\n  tidings tables check --config tidings.toml\n  \
    tidings tables --cloudformation > tables.json\n\n\
    Which DynamoDB is meant stands in [store]: region, endpoint, table_prefix. The stage names the messages' table."
)]
#[command(subcommand_negates_reqs = true, args_conflicts_with_subcommands = false)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// The configuration file; without it, ./tidings.toml if there is one
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print a CloudFormation template and do nothing else
    #[arg(long, global = true)]
    cloudformation: bool,
    /// Print what was done or found as JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Create the tables that are missing; those that are there stay as they are
    #[command(after_help = "Example:\n  tidings tables create --config tidings.toml")]
    Create,
    /// Compare the tables with what they should be; exit 1 if something differs
    #[command(after_help = "Example:\n  tidings tables check --config tidings.toml")]
    Check,
}

pub async fn run(arguments: Arguments) -> Result<Done, Failure> {
    let config = super::serve::load(arguments.config.as_deref())?;
    let wanted = engine::tables::wanted(config.stage);
    if arguments.cloudformation {
        let template = tables::cloudformation(&wanted, &config.store.table_prefix);
        output::line(&serde_json::to_string_pretty(&template)?);
        return Ok(Done::All);
    }
    match arguments.command {
        Some(Command::Create) => create(&connect(&config).await?, &wanted, arguments.json).await,
        Some(Command::Check) => check(&connect(&config).await?, &wanted, arguments.json).await,
        None => {
            output::error("say what to do: tidings tables create, tidings tables check, or --cloudformation");
            Ok(Done::BadUsage)
        }
    }
}

async fn connect(config: &Config) -> Result<Dynamo, Failure> {
    let (clock, ids) = (Arc::new(SystemClock::default()), Arc::new(SystemIds::default()));
    Ok(engine::dynamo(config, clock, ids).await?)
}

async fn create(dynamo: &Dynamo, wanted: &[Wanted], json: bool) -> Result<Done, Failure> {
    let bar = output::progress(Some(wanted.len() as u64), "tables");
    let mut all = Vec::with_capacity(wanted.len());
    // One by one, so that the bar moves: a table takes seconds.
    for one in wanted {
        all.extend(tables::create(dynamo, std::slice::from_ref(one)).await?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    for created in all {
        let state = if created.new { "created" } else { "was there" };
        output::line(&if json {
            serde_json::json!({ "table": created.table, "state": state, "left_out": created.left_out }).to_string()
        } else {
            let left_out: String = created.left_out.iter().map(|what| format!("; {what}")).collect();
            format!("{}: {state}{left_out}", created.table)
        });
    }
    Ok(Done::All)
}

async fn check(dynamo: &Dynamo, wanted: &[Wanted], json: bool) -> Result<Done, Failure> {
    let differences = tables::check(dynamo, wanted).await?;
    let mut differ = false;
    for found in &differences {
        let unchecked = matches!(found.kind, Kind::Unchecked(_));
        differ |= !unchecked;
        output::line(&if json {
            serde_json::json!({ "table": found.table, "checked": !unchecked, "difference": found.to_string() })
                .to_string()
        } else {
            found.to_string()
        });
    }
    if differ {
        return Ok(Done::Refused);
    }
    if !json {
        output::line(&format!("{} tables are as they should be", wanted.len()));
    }
    Ok(Done::All)
}
