//! Clients that go away in the middle of a change: it is made, or not, but never half.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tidings_store::faults::{Faulty, Moment};
use tidings_store::memory::Memory;
use tokio::time::timeout;

use crate::support::raw::{self, Raw};
use crate::support::{TestServer, server};

struct World {
    server: TestServer,
    store: Arc<Faulty>,
}

impl World {
    async fn new() -> Self {
        let clock = server::clock();
        let store = Arc::new(Faulty::new(Arc::new(Memory::new(clock.clone()))));
        Self { server: TestServer::over(store.clone(), clock).await, store }
    }

    /// Sends a request, and goes away when its first transaction is decided and nobody knows yet.
    async fn cut(&self, method: &str, path: &str, headers: &str, body: &Value) {
        let gate = self.store.hold(Moment::After);
        let mut connection = Raw::connect(self.server.address).await;
        let head = raw::head(method, path, self.server.admin_token());
        let body = body.to_string();
        let length = body.len();
        connection
            .send(format!("{head}{headers}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"))
            .await;
        gate.arrived(1).await;
        let before = self.connections().await;
        drop(connection);
        until("the server has noticed", async || self.connections().await < before).await;
        gate.open();
    }

    async fn connections(&self) -> u64 {
        let text = self.server.client().get("/metrics").await.expect(200).text();
        let line = text.lines().find_map(|line| line.strip_prefix("tidings_http_connections "));
        line.unwrap().parse().unwrap()
    }
}

/// Asks until it is so, for a while.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let asking = async {
        while !is_so().await {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(20), asking).await.unwrap_or_else(|_| panic!("not in time: {what}"));
}

// SX-02: what the store says, memory says.
#[tokio::test]
async fn a_token_is_revoked_although_nobody_waits_for_it() {
    let world = World::new().await;
    let client = world.server.client();
    let made = client.post("/tokens", &json!({ "scopes": ["read"] })).await.expect(201).json();
    let other = world.server.client_with(made["token"].as_str().unwrap());
    other.get("/events").await.expect(200);
    let path = format!("/tokens/{}", made["id"].as_str().unwrap());
    world.cut("DELETE", &path, "", &json!({})).await;
    until("the token is refused", async || other.get("/events").await.status == 401).await;
}

#[tokio::test]
async fn a_queue_is_made_and_deleted_although_nobody_waits_for_it() {
    let world = World::new().await;
    let client = world.server.client();
    world.cut("PUT", "/bus/q", "", &json!({ "kind": "queue" })).await;
    until("the queue takes messages", async || {
        client.post_as("/bus/q/messages", "text/plain", "x").await.status == 201
    })
    .await;
    world.cut("DELETE", "/bus/q", "", &json!({})).await;
    until("the queue is gone", async || client.post_as("/bus/q/messages", "text/plain", "x").await.status == 410).await;
}

// SX-09: the one thing a key is for.
#[tokio::test]
async fn a_request_with_a_key_that_lost_its_connection_acts_once() {
    let world = World::new().await;
    let client = world.server.client();
    client.put("/bus/q", &json!({ "kind": "queue" })).await.expect(201);
    world.cut("POST", "/bus/q/messages", "idempotency-key: k\r\n", &json!("hello")).await;
    let headers = [("content-type", "application/json"), ("idempotency-key", "k")];
    let mut answer = client.post_with("/bus/q/messages", &headers, json!("hello").to_string()).await;
    // The first one may still be at it.
    until("it is answered", async || {
        if answer.status == 409 {
            answer = client.post_with("/bus/q/messages", &headers, json!("hello").to_string()).await;
        }
        answer.status != 409
    })
    .await;
    assert_eq!((answer.status, answer.header("idempotent-replay")), (201, "true"));
    assert_eq!(client.get("/bus/q").await.expect(200).json()["counts"]["active"], 1);
}

// Whoever waits for a message and goes away has none: the next one gets it at once.
#[tokio::test]
async fn a_receiver_that_went_away_takes_nothing() {
    let world = World::new().await;
    let client = world.server.client();
    client.put("/bus/q", &json!({ "kind": "queue" })).await.expect(201);
    let mut connection = Raw::connect(world.server.address).await;
    let head = raw::head("POST", "/bus/q/messages/head?timeout=300", world.server.admin_token());
    connection.send(format!("{head}content-length: 0\r\n\r\n")).await;
    let waiting = async || client.get("/metrics").await.text().contains("tidings_http_connections 2");
    until("it waits", waiting).await;
    drop(connection);
    until("it is gone", async || client.get("/metrics").await.text().contains("tidings_http_connections 1")).await;
    client.post_as("/bus/q/messages", "text/plain", "x").await.expect(201);
    let got = client.post("/bus/q/receive", &json!({})).await.expect(200).json();
    assert_eq!(got["messages"].as_array().unwrap().len(), 1);
    assert_eq!(got["messages"][0]["deliveryCount"], 1);
}
