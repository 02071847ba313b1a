//! `tidings tail`: live events and what became of them.

use clap::Args;
use futures_util::StreamExt;
use reqwest::Method;
use serde_json::Value;

use super::client::Target;
use super::{Done, Failure, output};

/// Watch events as they come in, and what became of them
#[derive(Args)]
#[command(after_help = "Examples:\n  tidings tail\n  tidings tail --type ticket.\n  tidings tail --json | jq .data")]
pub struct Arguments {
    #[command(flatten)]
    target: Target,
    /// Only events whose type starts so
    #[arg(long, value_name = "PREFIX")]
    r#type: Option<String>,
}

pub async fn run(arguments: Arguments) -> Result<Done, Failure> {
    let client = arguments.target.connect()?;
    let mut request = client.request(Method::GET, "/events/stream");
    if let Some(prefix) = &arguments.r#type {
        let encoded: String = form_urlencoded::byte_serialize(format!("{prefix}*").as_bytes()).collect();
        request = client.request(Method::GET, &format!("/events/stream?type={encoded}"));
    }
    let response = client.expect(request).await?;
    output::note("watching; stop with Ctrl-C");
    let mut pieces = response.bytes_stream();
    let mut text = Vec::new();
    while let Some(piece) = pieces.next().await {
        text.extend_from_slice(
            &piece.map_err(|error| gone(&format!("the server went away ({})", error.without_url())))?,
        );
        while let Some(end) = text.windows(2).position(|pair| pair == b"\n\n") {
            let frame: Vec<u8> = text.drain(..end + 2).collect();
            show(&String::from_utf8_lossy(&frame), arguments.target.json);
        }
    }
    Err(gone("the server ended the stream"))
}

fn gone(what: &str) -> Failure {
    Failure(format!("{what}: see that it runs, and start `tidings tail` again; GET /events has what came meanwhile"))
}

fn show(frame: &str, json: bool) {
    let field = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let Some(data) = field("data:") else { return };
    if field("event:") == Some("gap") {
        output::note(&format!("some events came too fast to be shown: {data}"));
        return;
    }
    if json {
        output::row(data);
        return;
    }
    let event: Value = serde_json::from_str(data).unwrap_or_default();
    let text = |name: &str| event.get(name).and_then(Value::as_str).unwrap_or("-").to_owned();
    let data = event.get("data").map(ToString::to_string).unwrap_or_default();
    let data: String = data.chars().take(120).collect();
    output::row(&format!("{}  {:32}  {}  {data}", text("eventTimestamp"), text("eventType"), text("correlationId")));
    for rule in event.pointer("/outcome/rules").and_then(Value::as_array).into_iter().flatten() {
        let text = |name: &str| rule.get(name).and_then(Value::as_str).unwrap_or("-");
        output::row(&format!("{:29}rule {}: {}", "", text("name"), text("status")));
    }
}
