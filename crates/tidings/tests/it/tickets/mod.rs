//! Tickets from the outside: the voice desk's four calls, those who work on tickets, and tickets that rules open.

mod alerts;
mod api;
mod comments;
mod events;
mod imported;
mod lists;
mod privacy;
mod smoke;
mod status;

use serde_json::{Value, json};

use crate::support::{Client, TestServer};

/// A server, and a client that may do the four calls and nothing else.
async fn desk() -> (TestServer, Client) {
    let server = TestServer::start().await;
    let agent = server.client_for(&["tickets"]).await;
    (server, agent)
}

fn problem(caller: &str) -> Value {
    json!({ "caller_id": caller, "issue_description": "My laptop won't turn on after pressing the power button" })
}

async fn open(agent: &Client, caller: &str) -> Value {
    agent.post("/tickets", &problem(caller)).await.expect(201).json()
}

fn id_of(ticket: &Value) -> String {
    ticket["ticket_id"].as_str().unwrap().to_owned()
}

async fn comment(agent: &Client, ticket: &Value, text: &str) -> Value {
    let path = format!("/tickets/{}/comments", id_of(ticket));
    agent.post(&path, &json!({ "comment_text": text })).await.expect(201).json()
}

async fn look(agent: &Client, ticket: &Value) -> Value {
    agent.get(&format!("/tickets/{}", id_of(ticket))).await.expect(200).json()
}

fn texts(ticket: &Value) -> Vec<&str> {
    ticket["comments"].as_array().unwrap().iter().map(|comment| comment["comment_text"].as_str().unwrap()).collect()
}
