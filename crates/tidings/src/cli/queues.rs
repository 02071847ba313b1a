//! `tidings queues`: the bus and its dead-letter desk on the command line (S003-97).

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Map, Value, json};

use super::client::{Client, Target};
use super::{Done, Failure, output};
use crate::bus::Path;
use crate::bus::path::{NAME_CHARS, check_name};

/// Dead letters in one call, so that progress shows.
const STEP: u64 = 500;

/// Look at queues and subscriptions, and deal with dead letters
#[derive(Args)]
#[command(
    after_help = "Examples:\n  tidings queues\n  tidings queues peek ocr-processing-queue/\\$deadletterqueue\n  \
    tidings queues resubmit ocr-processing-queue --where '{\"deadLetter\":{\"reason\":[\"HandlerFailed\"]}}'\n  \
    tidings queues resubmit domain-events-topic/subscriptions/notifications-sub --all\n  \
    tidings queues purge ocr-processing-queue/\\$deadletterqueue"
)]
pub struct Arguments {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Show messages without taking them
    #[command(after_help = "Example:\n  tidings queues peek ocr-processing-queue/\\$deadletterqueue --limit 5")]
    Peek {
        /// QUEUE or TOPIC/subscriptions/NAME, either followed by /$deadletterqueue
        #[arg(value_parser = entity)]
        path: Path,
        /// Which of them
        #[arg(long, value_name = "STATE", default_value = "active", value_parser = ["active", "scheduled", "deferred"])]
        state: String,
        /// 1 to 1000
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1000))]
        limit: u64,
    },
    /// Send dead letters back to where they came from
    #[command(group = clap::ArgGroup::new("which").args(["ids", "pattern", "all"]).required(true))]
    #[command(after_help = "Examples:\n  tidings queues resubmit ocr-processing-queue --all\n  \
        tidings queues resubmit ocr-processing-queue --where '{\"deadLetter\":{\"reason\":[\"HandlerFailed\"]}}'")]
    Resubmit {
        /// QUEUE or TOPIC/subscriptions/NAME
        #[arg(value_parser = entity)]
        path: Path,
        /// A message id, or the number of a dead letter if none has it as its id; repeat for more
        #[arg(long = "id", conflicts_with_all = ["pattern", "all"])]
        ids: Vec<String>,
        /// Those that match this pattern
        #[arg(long = "where", value_name = "PATTERN", conflicts_with = "all", value_parser = pattern)]
        pattern: Option<Value>,
        /// All of them
        #[arg(long)]
        all: bool,
    },
    /// Delete every message
    #[command(after_help = "Example:\n  tidings queues purge ocr-processing-queue/\\$deadletterqueue")]
    Purge {
        /// QUEUE or TOPIC/subscriptions/NAME, either followed by /$deadletterqueue
        #[arg(value_parser = entity)]
        path: Path,
    },
}

pub async fn run(arguments: Arguments) -> Result<Done, Failure> {
    let json = arguments.target.json;
    let client = arguments.target.connect()?;
    match arguments.command {
        None => list(&client, json).await,
        Some(Command::Peek { path, state, limit }) => peek(&client, &path, &state, limit, json).await,
        Some(Command::Resubmit { path, ids, pattern, all }) => {
            let mut what = Map::new();
            if let Some(pattern) = pattern {
                what.insert("where".to_owned(), pattern);
            } else if !ids.is_empty() {
                what.insert("ids".to_owned(), ids.into());
            } else {
                what.insert("all".to_owned(), all.into());
            }
            resubmit(&client, &path, what, json).await
        }
        Some(Command::Purge { path }) => {
            let answer = post(&client, &format!("/bus/{path}/purge"), &json!({})).await?;
            if json {
                output::line(&answer.to_string());
            } else {
                output::line(&format!("{} messages are gone", count(&answer, "purged")));
            }
            Ok(Done::All)
        }
    }
}

/// A path becomes part of an address, so its names must be able to be names.
fn entity(text: &str) -> Result<Path, String> {
    let is_name = |name: &str| check_name(name, NAME_CHARS).is_ok();
    Path::parse(text)
        .filter(|path| is_name(&path.entity) && path.subscription.as_deref().is_none_or(is_name))
        .ok_or_else(|| "write QUEUE or TOPIC/subscriptions/NAME, perhaps followed by /$deadletterqueue".to_owned())
}

fn pattern(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("must be a pattern in JSON: {error}"))
}

fn count(value: &Value, name: &str) -> u64 {
    value.get(name).and_then(Value::as_u64).unwrap_or(0)
}

async fn post(client: &Client, path: &str, body: &Value) -> Result<Value, Failure> {
    let request = client.request(Method::POST, path).header("content-type", "application/json");
    client.json(request.body(body.to_string())).await
}

async fn get(client: &Client, path: &str) -> Result<Value, Failure> {
    client.json(client.request(Method::GET, path)).await
}

async fn list(client: &Client, json: bool) -> Result<Done, Failure> {
    let answer = get(client, "/bus").await?;
    if json {
        output::row(&answer.to_string());
        return Ok(Done::All);
    }
    output::row(&format!(
        "{:>9} {:>9} {:>7} {:>8} {:>6} {:>8}  path",
        "active", "scheduled", "locked", "deferred", "dead", "age"
    ));
    let items = answer.get("items").and_then(Value::as_array).into_iter().flatten();
    for item in items {
        let subscriptions = item.get("subscriptions").and_then(Value::as_array);
        for entity in subscriptions.map_or_else(|| std::slice::from_ref(item), Vec::as_slice) {
            let Some(counts) = entity.get("counts") else { continue };
            let age = counts.get("oldestAgeSeconds").and_then(Value::as_f64);
            output::row(&format!(
                "{:>9} {:>9} {:>7} {:>8} {:>6} {:>8}  {}",
                count(counts, "active"),
                count(counts, "scheduled"),
                count(counts, "locked"),
                count(counts, "deferred"),
                count(counts, "deadLettered"),
                age.map_or_else(|| "-".to_owned(), |age| format!("{age:.0}s")),
                entity.get("path").and_then(Value::as_str).unwrap_or_default(),
            ));
        }
    }
    Ok(Done::All)
}

async fn peek(client: &Client, path: &Path, state: &str, limit: u64, json: bool) -> Result<Done, Failure> {
    let answer = get(client, &format!("/bus/{path}/peek?state={state}&limit={limit}")).await?;
    if json {
        output::row(&answer.to_string());
        return Ok(Done::All);
    }
    for message in answer.get("items").and_then(Value::as_array).into_iter().flatten() {
        let text = |name: &str| message.get(name).and_then(Value::as_str).unwrap_or_default();
        let reason = message.pointer("/deadLetter/reason").and_then(Value::as_str).unwrap_or("-");
        let reason = output::within_line(reason);
        output::row(&format!(
            "{:>10}  {}  {:24}  deliveries {}  {}",
            count(message, "sequenceNumber"),
            text("enqueuedAt"),
            reason,
            count(message, "deliveryCount")
                .max(message.pointer("/deadLetter/deliveries").and_then(Value::as_u64).unwrap_or(0)),
            output::within_line(text("messageId")),
        ));
        output::row(&format!(
            "            {}",
            output::within_line(&text("body").replace('\n', " ").chars().take(160).collect::<String>())
        ));
    }
    Ok(Done::All)
}

async fn resubmit(client: &Client, path: &Path, mut what: Map<String, Value>, json: bool) -> Result<Done, Failure> {
    let path = Path { dead: false, ..path.clone() };
    let total = get(client, &format!("/bus/{path}")).await?;
    let total = total.pointer("/counts/deadLettered").and_then(Value::as_u64);
    let bar = output::progress(total, "dead letters");
    // What is named is done in one call: in a second one, ids of the first would name something else.
    if !what.contains_key("ids") {
        what.insert("limit".to_owned(), STEP.into());
    }
    let (mut resubmitted, mut locked, mut missing) = (0, 0, Vec::new());
    loop {
        let answer =
            post(client, &format!("/bus/{path}/$deadletterqueue/resubmit"), &Value::Object(what.clone())).await?;
        resubmitted += count(&answer, "resubmitted");
        locked = count(&answer, "locked").max(locked);
        missing.extend(answer.get("missing").and_then(Value::as_array).cloned().unwrap_or_default());
        bar.set_position(resubmitted);
        if answer.get("more").and_then(Value::as_bool) != Some(true) {
            break;
        }
        what.insert("upTo".to_owned(), count(&answer, "upTo").into());
    }
    bar.finish_and_clear();
    if json {
        let mut done = json!({ "resubmitted": resubmitted, "locked": locked });
        if let Some(done) = done.as_object_mut().filter(|_| !missing.is_empty()) {
            done.insert("missing".to_owned(), missing.clone().into());
        }
        output::line(&done.to_string());
    } else {
        output::line(&format!("{resubmitted} dead letters are back in {path}"));
        if locked > 0 {
            output::note(&format!("{locked} were left alone, for somebody has received them"));
        }
        for id in &missing {
            output::note(&format!("{} is not among the dead letters", id.as_str().unwrap_or(&id.to_string())));
        }
    }
    Ok(if missing.is_empty() { Done::All } else { Done::Refused })
}
