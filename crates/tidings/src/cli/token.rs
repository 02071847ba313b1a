//! `tidings token`.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use super::client::Target;
use super::{Done, Failure, output};
use crate::config::duration;

/// Make, list and revoke tokens
#[derive(Args)]
#[command(after_help = "Examples:\n  tidings token create --scope ingest --expires 30d --name build-server\n  \
    tidings token create --scope read --scope operate\n  tidings token list\n  tidings token revoke 0193…")]
pub struct Arguments {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make a token and print it; it cannot be shown again
    #[command(after_help = "Example:\n  tidings token create --scope ingest --expires 30d --name build-server")]
    Create {
        /// admin, read, operate, ingest, consume, tickets or user:ID; repeat or list for more than one
        #[arg(long, required = true, value_delimiter = ',', num_args = 1..)]
        scope: Vec<String>,
        /// How long it works, as in 30d, 12h; for ever, if absent
        #[arg(long, value_parser = duration_text)]
        expires: Option<std::time::Duration>,
        /// What it is for
        #[arg(long)]
        name: Option<String>,
    },
    /// List all tokens, without their secrets
    #[command(after_help = "Example:\n  tidings token list --json")]
    List,
    /// Revoke a token, at once
    #[command(after_help = "Example:\n  tidings token revoke 0193…\n\n`tidings token list` has the ids.")]
    Revoke {
        #[arg(value_parser = token_id)]
        id: String,
    },
}

pub async fn run(arguments: Arguments) -> Result<Done, Failure> {
    let json = arguments.target.json;
    let client = arguments.target.connect()?;
    match arguments.command {
        Command::Create { scope, expires, name } => {
            let expires_at = expires.map(expiry).transpose()?;
            let body = json!({ "scopes": scope, "expires_at": expires_at, "name": name });
            let request = client.request(Method::POST, "/tokens").header("content-type", "application/json");
            let answer: Value = client.json(request.body(body.to_string())).await?;
            let text = |name: &str| answer.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
            output::line(&if json {
                json!({ "id": text("id"), "token": text("token") }).to_string()
            } else {
                text("token")
            });
            if !json {
                output::note(&format!("token {} was made; keep it, it cannot be shown again", text("id")));
            }
        }
        Command::List => {
            let answer: Value = client.json(client.request(Method::GET, "/tokens")).await?;
            if json {
                output::row(&answer.to_string());
                return Ok(Done::All);
            }
            for token in answer.get("items").and_then(Value::as_array).into_iter().flatten() {
                let text = |name: &str| token.get(name).and_then(Value::as_str).unwrap_or("-");
                let scopes: Vec<_> = token
                    .get("scopes")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str)
                    .collect();
                output::row(&format!(
                    "{}  {:30}  expires {:27}  {}",
                    text("id"),
                    scopes.join(","),
                    text("expires_at"),
                    text("name")
                ));
            }
        }
        Command::Revoke { id } => {
            client.expect(client.request(Method::DELETE, &format!("/tokens/{id}"))).await?;
            if json {
                output::line(&json!({ "id": id, "revoked": true }).to_string());
            } else {
                output::note(&format!("token {id} is revoked"));
            }
        }
    }
    Ok(Done::All)
}

/// What can be the id of a token: it becomes part of an address.
fn token_id(text: &str) -> Result<String, String> {
    if !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric()) {
        return Ok(text.to_owned());
    }
    Err("that is no token id; `tidings token list` shows them".to_owned())
}

fn duration_text(text: &str) -> Result<std::time::Duration, String> {
    let after = duration::parse(text).map_err(|error| error.to_string())?;
    expiry(after).map(|_| after).map_err(|Failure(why)| why)
}

fn expiry(after: std::time::Duration) -> Result<String, Failure> {
    use tidings_core::time::Clock;
    let now = crate::clock::SystemClock::default().now();
    let at = now.checked_add(after).map_err(|_| Failure("is too far away".to_owned()))?;
    Ok(tidings_core::time::iso_micros(at))
}
