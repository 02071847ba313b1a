//! Real processes on DynamoDB Local: one that is stopped and wakes too late, and one that is killed.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::bus::bodies;
use crate::support::Client;
use crate::support::process::{Running, tidings};

const LEASE: Duration = Duration::from_secs(4);
/// Real processes on a busy machine take their time; how soon is proved where time is injected.
const LONG: Duration = Duration::from_secs(90);
const QUEUES: usize = 12;

pub struct Node {
    running: Running,
    client: Client,
    pub url: String,
}

/// The program on DynamoDB Local, with tables of this test's own.
pub fn on_dynamodb(directory: &Path, prefix: &str, arguments: &[&str]) -> Command {
    let endpoint = crate::support::engines::endpoint();
    let mut command = tidings(directory, arguments);
    command
        .env("TIDINGS__STORE__ENGINE", "dynamodb")
        .env("TIDINGS__STORE__REGION", "eu-west-1")
        .env("TIDINGS__STORE__ENDPOINT", endpoint)
        .env("TIDINGS__STORE__TABLE_PREFIX", prefix)
        .env("TIDINGS__NODE__LEASE_SECONDS", LEASE.as_secs().to_string());
    command
}

pub fn start(directory: &Path, prefix: &str, token: Option<&str>) -> Node {
    std::fs::create_dir_all(directory).unwrap();
    let mut running = Running::start(on_dynamodb(directory, prefix, &["serve", "--listen", "127.0.0.1:0"]));
    let line = running.wait_for("is listening on ");
    let url = line.split("is listening on ").nth(1).unwrap().trim().to_owned();
    let written = || std::fs::read_to_string(directory.join("tidings-data/admin.token")).unwrap();
    let token = token.map_or_else(written, ToOwned::to_owned);
    let client = Client::new(&url, Some(token.trim()));
    Node { running, client, url }
}

impl Node {
    /// The queues that this node has, as `client` sees it.
    async fn queues(&self, client: &Client) -> BTreeSet<String> {
        let nodes = client.get("/nodes").await.expect(200).json();
        let mine = nodes["items"].as_array().unwrap().iter().find(|node| node["address"] == self.url.as_str());
        let entities = mine.map(|node| node["entities"].as_array().unwrap().clone()).unwrap_or_default();
        entities
            .iter()
            .filter_map(Value::as_str)
            .filter(|name| name.starts_with("own-"))
            .map(ToOwned::to_owned)
            .collect()
    }
}

/// Asks again and again until it is so; gives how long that took.
async fn until(what: &str, most: Duration, mut is_so: impl AsyncFnMut() -> bool) -> Duration {
    #[expect(clippy::disallowed_methods, reason = "real processes live in real time")]
    let now = || Instant::now();
    let began = now();
    while !is_so().await {
        assert!(now() - began < most, "not within {most:?}: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    now() - began
}

/// Receives and completes what is in a queue; `None` while nobody has it.
async fn drain(client: &Client, queue: &str) -> Option<Vec<String>> {
    let mut got = Vec::new();
    loop {
        let answer = client.post(&format!("/bus/{queue}/receive"), &json!({ "max": 50 })).await;
        if answer.status == 503 {
            // It changes hands; what was completed before counts.
            return (!got.is_empty()).then_some(got);
        }
        let messages = answer.expect(200).json()["messages"].as_array().unwrap().clone();
        if messages.is_empty() {
            return Some(got);
        }
        for message in &messages {
            let settle = json!([{ "lockToken": message["lockToken"], "action": "complete" }]);
            let done = client.post(&format!("/bus/{queue}/settle"), &settle).await.expect(200).json();
            assert_eq!(done["results"][0]["status"], "ok", "{done}");
        }
        got.extend(bodies(&messages).into_iter().map(ToOwned::to_owned));
    }
}

#[tokio::test]
async fn a_stopped_node_changes_nothing_when_it_wakes_and_a_killed_one_is_outlasted() {
    let directory = tempfile::tempdir().unwrap();
    let prefix = format!("{}-", directory.path().file_name().unwrap().to_str().unwrap().trim_start_matches('.'));
    let made = on_dynamodb(directory.path(), &prefix, &["tables", "create"]).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let a = start(&directory.path().join("a"), &prefix, None);
    let token = std::fs::read_to_string(directory.path().join("a/tidings-data/admin.token")).unwrap();
    let b = start(&directory.path().join("b"), &prefix, Some(&token));
    let names: Vec<String> = (0..QUEUES).map(|n| format!("own-{n}")).collect();
    for name in &names {
        a.client.put(&format!("/bus/{name}"), &json!({ "lockSeconds": 60 })).await.expect(201);
    }
    let both = async || {
        let (of_a, of_b) = (a.queues(&a.client).await, b.queues(&a.client).await);
        !of_b.is_empty() && of_a.len() + of_b.len() == QUEUES
    };
    // Which go where is chance; that one node has all twelve is one chance in two thousand.
    let more = until("both nodes have queues", LONG, both).await;
    println!("divided after {more:?}");
    let theirs: Vec<String> = b.queues(&a.client).await.into_iter().collect();
    for name in &names {
        for (n, client) in [&a.client, &b.client, &a.client, &b.client].iter().enumerate() {
            let path = format!("/bus/{name}/messages");
            client.post_as(&path, "text/plain", format!("{name}/{n}")).await.expect(201);
        }
    }

    // One of the second node's messages is out when it is stopped.
    let held = until("a message is there", LONG, async || {
        let answer = b.client.post(&format!("/bus/{}/receive", theirs[0]), &json!({ "max": 1 })).await;
        answer.status == 200 && answer.json()["messages"].as_array().is_some_and(|list| !list.is_empty())
    });
    held.await;
    b.running.signal(Signal::STOP);
    let took = until("the first node has all queues", LONG, async || a.queues(&a.client).await.len() == QUEUES).await;
    println!("a stopped node's queues were taken over after {took:?}");
    let mut completed = Vec::new();
    for name in &theirs {
        completed.extend(drain(&a.client, name).await.expect("the first node has it"));
    }
    b.running.signal(Signal::CONT);
    // It wakes and sees how things are; what it is asked for, it forwards, and what it is sent arrives.
    for name in &theirs {
        let path = format!("/bus/{name}/messages");
        b.client.post_as(&path, "text/plain", format!("{name}/late")).await.expect(201);
    }
    let mut again = BTreeSet::new();
    until("what was sent after waking is received", LONG, async || {
        for name in &theirs {
            again.extend(drain(&b.client, name).await.unwrap_or_default());
        }
        again.len() >= theirs.len()
    })
    .await;
    completed.extend(again);
    let distinct: BTreeSet<&String> = completed.iter().collect();
    assert_eq!((completed.len(), distinct.len()), (theirs.len() * 5, theirs.len() * 5), "each once: {completed:?}");

    // The first one dies without a word.
    a.running.signal(Signal::KILL);
    let mut rest: BTreeSet<String> = BTreeSet::new();
    let others: Vec<&String> = names.iter().filter(|name| !theirs.contains(name)).collect();
    let took = until("the second node has everything", LONG, async || {
        for name in &others {
            rest.extend(drain(&b.client, name).await.unwrap_or_default());
        }
        rest.len() >= others.len() * 4
    })
    .await;
    println!("a killed node's work went on after {took:?}");
    b.running.terminate();
    let (code, said) = b.running.wait();
    assert_eq!(code, Some(0), "{said}");
}
