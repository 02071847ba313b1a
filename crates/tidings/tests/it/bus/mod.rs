//! The bus through HTTP.

mod actions;
mod batches;
mod declared;
mod deferred;
mod desk;
mod entities;
mod from_events;
mod handlers;
mod handouts;
mod history;
mod kill;
mod letters;
mod limits;
mod many;
mod model;
mod purges;
mod pushes;
mod queues;
mod restart;
mod timed;
mod topics;
mod waits;

use serde_json::{Value, json};

use crate::support::{Answer, Client, TestServer};

/// A server with a queue of these settings.
pub async fn with_queue(name: &str, settings: &Value) -> TestServer {
    let server = TestServer::start().await;
    server.client().put(&format!("/bus/{name}"), settings).await.expect(201);
    server
}

/// Sends a text.
pub async fn send(client: &Client, entity: &str, body: &str) -> Value {
    client.post_as(&format!("/bus/{entity}/messages"), "text/plain", body.to_owned()).await.expect(201).json()
}

/// Receives up to `max` messages at once.
pub async fn receive(client: &Client, path: &str, max: usize) -> Vec<Value> {
    let answer = client.post(&format!("/bus/{path}/receive"), &json!({ "max": max })).await.expect(200).json();
    answer["messages"].as_array().unwrap().clone()
}

/// Receives one message that must be there.
pub async fn receive_one(client: &Client, path: &str) -> Value {
    let mut messages = receive(client, path, 1).await;
    messages.pop().unwrap_or_else(|| panic!("{path} is empty"))
}

/// Settles one message; gives what came of it.
pub async fn settle(client: &Client, path: &str, message: &Value, action: Value) -> Value {
    let mut item = action;
    item["lockToken"] = message["lockToken"].clone();
    let answer = client.post(&format!("/bus/{path}/settle"), &json!([item])).await.expect(200).json();
    answer["results"][0].clone()
}

pub async fn complete(client: &Client, path: &str, message: &Value) {
    let result = settle(client, path, message, json!({ "action": "complete" })).await;
    assert_eq!(result["status"], "ok", "{result}");
}

/// The bodies of messages.
pub fn bodies(messages: &[Value]) -> Vec<&str> {
    messages.iter().map(|message| message["body"].as_str().unwrap()).collect()
}

pub async fn counts(client: &Client, path: &str) -> Value {
    client.get(&format!("/bus/{path}")).await.expect(200).json()["counts"].clone()
}

pub fn broker_properties(answer: &Answer) -> Value {
    serde_json::from_str(answer.header("brokerproperties")).unwrap()
}
