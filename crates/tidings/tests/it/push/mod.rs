//! The built-in push server with real clients: curl, apprise, and our own ntfy channel.

mod access;
mod apprise;
mod channel;
mod curl;
mod ntfy;
mod restart;

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use serde_json::Value;
use tidings::config::{Config, Listen};

use crate::support::TestServer;
use crate::support::process::Running;

/// Switches the push server on, on a free port.
fn on(config: &mut Config) {
    config.push.listen = Listen::on(SocketAddr::from(([127, 0, 0, 1], 0)));
}

async fn server() -> TestServer {
    TestServer::start_with(on).await
}

/// curl with the administrator's token, for a path of the push server.
fn curl(server: &TestServer, arguments: &[&str], path: &str) -> Command {
    let mut command = Command::new("curl");
    command
        .args(["--silent", "--show-error", "--no-buffer", "--noproxy", "*", "--max-time", "30"])
        .args(["--header", &format!("Authorization: Bearer {}", server.admin_token())])
        .args(arguments)
        .arg(format!("{}{path}", server.push_url.as_ref().unwrap()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs it to its end, without holding up the server in this process.
async fn run(mut command: Command) -> String {
    let name = format!("{command:?}");
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap();
    let output = output.unwrap_or_else(|error| panic!("this test needs {name}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{name}: {said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

/// Runs curl and reads the JSON that the server answers.
async fn ask(server: &TestServer, arguments: &[&str], path: &str) -> Value {
    let said = run(curl(server, arguments, path)).await;
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// Starts curl on a subscription and waits until it says `open`, which every format shows in its own way.
async fn follow(server: &TestServer, path: &str, open: &'static str) -> Running {
    let command = curl(server, &[], path);
    tokio::task::spawn_blocking(move || {
        let mut running = Running::start(command);
        running.wait_for(open);
        running
    })
    .await
    .unwrap()
}

/// The next line that has `text` in it.
async fn line(mut running: Running, text: &'static str) -> (Running, String) {
    tokio::task::spawn_blocking(move || {
        let line = running.wait_for(text);
        (running, line)
    })
    .await
    .unwrap()
}

/// Everything kept in these topics.
async fn kept(server: &TestServer, topics: &str) -> Vec<Value> {
    let said = run(curl(server, &[], &format!("/{topics}/json?poll=1"))).await;
    said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
