//! The real program, killed at any moment: what was acknowledged is there, what was completed is not, and what was
//! received and not settled comes again with its count.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc;

use serde_json::{Value, json};

use crate::support::Client;
use crate::support::process::{Running, tidings};

const ROUNDS: usize = 6;
const BATCH: &str = "application/vnd.microsoft.servicebus.json";

/// What clients know of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// Sent, and no answer came.
    Perhaps,
    Acknowledged,
    /// Its completion was asked for, and no answer came.
    PerhapsDone,
    Done,
}

struct Server {
    running: Running,
    url: String,
}

fn start(directory: &std::path::Path) -> Server {
    let mut running = Running::start(tidings(directory, &["serve", "--listen", "127.0.0.1:0"]));
    let line = running.wait_for("is listening on ");
    let url = line.split("is listening on ").nth(1).unwrap().trim().to_owned();
    Server { running, url }
}

/// Sends, receives and completes until the server is gone; tells each step before and after it.
async fn work(
    client: Client,
    name: String,
    notes: mpsc::Sender<(String, Known)>,
    deliveries: mpsc::Sender<(String, u64)>,
) {
    for round in 0.. {
        let ids: Vec<String> = (0..5).map(|n| format!("{name}-{round}-{n}")).collect();
        let batch: Vec<Value> =
            ids.iter().map(|id| json!({ "Body": id, "BrokerProperties": { "MessageId": id } })).collect();
        ids.iter().for_each(|id| notes.send((id.clone(), Known::Perhaps)).unwrap());
        if try_post(&client, "/bus/q/messages", BATCH, &batch.into()).await.is_none() {
            return;
        }
        ids.iter().for_each(|id| notes.send((id.clone(), Known::Acknowledged)).unwrap());
        let Some(got) = try_post(&client, "/bus/q/receive", "application/json", &json!({ "max": 4 })).await else {
            return;
        };
        let got = got["messages"].as_array().unwrap().clone();
        for message in &got {
            let id = message["messageId"].as_str().unwrap().to_owned();
            deliveries.send((id, message["deliveryCount"].as_u64().unwrap())).unwrap();
        }
        let done: Vec<&Value> = got.iter().take(3).collect();
        if done.is_empty() {
            continue;
        }
        let settle: Vec<Value> =
            done.iter().map(|m| json!({ "lockToken": m["lockToken"], "action": "complete" })).collect();
        let ids: Vec<String> = done.iter().map(|m| m["messageId"].as_str().unwrap().to_owned()).collect();
        ids.iter().for_each(|id| notes.send((id.clone(), Known::PerhapsDone)).unwrap());
        let Some(results) = try_post(&client, "/bus/q/settle", "application/json", &settle.into()).await else {
            return;
        };
        for (id, result) in ids.iter().zip(results["results"].as_array().unwrap()) {
            assert_eq!(result["status"], "ok", "{id}: {result}");
            notes.send((id.clone(), Known::Done)).unwrap();
        }
    }
}

async fn try_post(client: &Client, path: &str, content_type: &str, body: &Value) -> Option<Value> {
    let request = client.request(reqwest::Method::POST, path).header("content-type", content_type);
    let answer = request.body(body.to_string()).send().await.ok()?;
    if !answer.status().is_success() {
        return None;
    }
    answer.json_value().await
}

/// The answer's body, if it came whole.
trait JsonValue {
    async fn json_value(self) -> Option<Value>;
}

impl JsonValue for reqwest::Response {
    async fn json_value(self) -> Option<Value> {
        serde_json::from_slice(&self.bytes().await.ok()?).ok()
    }
}

#[test]
fn sigkill_loses_no_message_and_brings_back_none_that_is_done() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut known: BTreeMap<String, Known> = BTreeMap::new();
    let mut delivered: BTreeMap<String, u64> = BTreeMap::new();
    let mut server = start(directory.path());
    let token = std::fs::read_to_string(directory.path().join("tidings-data/admin.token")).unwrap().trim().to_owned();
    runtime.block_on(async {
        Client::new(&server.url, Some(&token))
            .put("/bus/q", &json!({ "lockSeconds": 300, "maxDeliveryCount": 2000 }))
            .await
            .expect(201);
    });
    for round in 0..ROUNDS {
        let (notes, heard) = mpsc::channel();
        let (deliveries, counted) = mpsc::channel();
        let workers: Vec<_> = (0..4)
            .map(|n| {
                let client = Client::new(&server.url, Some(&token));
                runtime.spawn(work(client, format!("{round}-{n}"), notes.clone(), deliveries.clone()))
            })
            .collect();
        drop((notes, deliveries));
        let mut done = 0;
        while let Ok((id, state)) = heard.recv() {
            known.insert(id, state);
            done += usize::from(state == Known::Done);
            if done == 20 + round * 7 {
                server.running.signal(rustix::process::Signal::KILL);
            }
        }
        for worker in workers {
            runtime.block_on(worker).unwrap();
        }
        for (id, count) in counted.iter() {
            let before = delivered.insert(id.clone(), count);
            assert!(before.is_none_or(|before| count > before), "{id} was delivered {before:?} and then {count} times");
        }
        drop(server);
        server = start(directory.path());
        let stored = runtime.block_on(all(&Client::new(&server.url, Some(&token))));
        for (id, state) in &known {
            match state {
                Known::Acknowledged => assert!(stored.contains_key(id), "{id} is lost"),
                Known::Done => assert!(!stored.contains_key(id), "{id} was done and is there"),
                Known::Perhaps | Known::PerhapsDone => {}
            }
        }
        for (id, count) in &stored {
            assert!(known.contains_key(id), "{id} was never sent");
            let heard = delivered.get(id).copied().unwrap_or(0);
            assert!(*count >= heard, "{id} was delivered {heard} times, and {count} are counted");
        }
        let counts =
            runtime.block_on(async { Client::new(&server.url, Some(&token)).get("/bus/q").await.expect(200).json() });
        assert_eq!(
            counts["counts"]["active"].as_u64().unwrap(),
            stored.len() as u64,
            "the count is that of what is stored"
        );
        // What nobody knew is known now.
        for (id, state) in &mut known {
            *state = if stored.contains_key(id) { Known::Acknowledged } else { Known::Done };
        }
    }
    let unfinished: BTreeSet<_> = known.values().map(|state| *state == Known::Perhaps).collect();
    assert!(!unfinished.contains(&true));
}

/// Every message that waits, with its deliveries.
async fn all(client: &Client) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    let mut from = "0".to_owned();
    loop {
        let page = client.get(&format!("/bus/q/peek?limit=1000&from={from}")).await.expect(200).json();
        for item in page["items"].as_array().unwrap() {
            let id = item["messageId"].as_str().unwrap().to_owned();
            assert!(found.insert(id.clone(), item["deliveryCount"].as_u64().unwrap()).is_none(), "{id} is there twice");
        }
        match page["cursor"].as_str() {
            Some(next) => next.clone_into(&mut from),
            None => return found,
        }
    }
}
