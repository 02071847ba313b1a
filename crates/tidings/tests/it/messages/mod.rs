//! Messages: made through the API, delivered to counterparts on this machine, on a clock that the tests move.

mod api;
mod at_once;
mod crashes;
mod delivery;
mod destinations;
mod email;
mod letters;
mod life;
mod limits;
mod lists;
mod metrics;
mod notices;
mod ways;

use std::time::Duration;

use serde_json::{Map, Value, json};
use tidings::app::Services;
use tidings::config::{Config, Secret};
use tidings::messages::deliver::Deliverer;
use tidings::messages::{Message, NewMessage};
use tidings_core::time::Timestamp;

use crate::channels::http_server::{Reply, Server};
use crate::support::{Client, TestServer};

/// A server that sends nothing by itself, pushes to `ntfy`, waits exactly as long as the policy says, and may call
/// this machine.
pub fn quiet(config: &mut Config, ntfy: &str) {
    config.delivery.enabled = false;
    config.delivery.jitter = false;
    config.ntfy.server = Some(ntfy.to_owned());
    config.outbound.allow = vec!["127.0.0.1".to_owned()];
}

pub async fn server_with(ntfy: &Server) -> TestServer {
    let url = ntfy.url("");
    TestServer::start_with(|config| quiet(config, &url)).await
}

/// A server whose pushes all end so.
pub async fn answering(reply: Reply) -> (TestServer, Server) {
    let sink = Server::start(move |_| reply.clone()).await;
    (server_with(&sink).await, sink)
}

pub fn published(id: &str) -> Reply {
    Reply::Answer { status: 200, headers: Vec::new(), body: json!({ "id": id }).to_string() }
}

pub fn hello() -> Value {
    json!({ "message_type": "scheduled_hello", "payload": { "text": "hello world" } })
}

pub async fn make(client: &Client, body: &Value) -> Value {
    client.post("/api/messages", body).await.expect(201).json()
}

pub fn id_of(message: &Value) -> String {
    message["message_id"].as_str().unwrap().to_owned()
}

pub async fn look(client: &Client, message: &Value) -> Value {
    client.get(&format!("/api/messages/{}", id_of(message))).await.expect(200).json()
}

/// Delivers what is due on a channel; gives the seconds until more is.
pub async fn deliver(services: &Services, channel: &'static str) -> Option<f64> {
    let next = Deliverer::new(services, channel).drain().await.unwrap();
    next.map(|next| next.duration_since(services.clock.now()).as_secs_f64())
}

pub fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn object(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

/// A message as a rule would make it.
pub fn message(services: &Services, channel: &str, target: Value) -> Message {
    let now = services.clock.now();
    let new = NewMessage {
        message_id: services.ids.uuid(now),
        created_by: "rule:test".to_owned(),
        stage: "dev",
        message_type: "alert_notification",
        payload: object(json!({ "title": "Disk full", "text": "Disk /var is full" })),
        correlation_id: "c-17",
        channel,
        target: object(target),
        secret: Some(Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")),
        event_id: Some("e-1"),
        rule: Some("test"),
        deliver_at: None,
        keep_seconds: 90 * 86_400,
    };
    Message::new(new, now)
}

pub async fn store(services: &Services, channel: &str, target: Value) -> Message {
    let made = services.messages.create(vec![message(services, channel, target)]).await.unwrap();
    made.into_iter().next().unwrap()
}

pub async fn status_of(services: &Services, message: &Message) -> &'static str {
    services.messages.get(&message.message_id).await.unwrap().unwrap().message.delivery.status.as_str()
}

/// Waits until a message has this status.
pub async fn becomes(services: &Services, message_id: &str, status: &str) {
    let mut recorded = services.messages.recorded.subscribe();
    let reached = async {
        loop {
            let stored = services.messages.get(message_id).await.unwrap().unwrap();
            if stored.message.delivery.status.as_str() == status {
                return;
            }
            recorded.changed().await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(30), reached).await.expect("it becomes so in time");
}

pub fn time_of(value: &Value) -> Timestamp {
    value.as_str().unwrap().parse().unwrap()
}
