//! `GET /events/stream`: accepted events as they come.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tidings::config::Listen;
use tokio::time::timeout;

use crate::support::raw::{self, Raw};
use crate::support::{TestServer, event};

const PATIENCE: Duration = Duration::from_secs(20);

/// A stream that is known to listen: its head has come.
async fn listen(server: &TestServer, query: &str) -> Raw {
    let mut stream = Raw::connect(server.address).await;
    let head = raw::head("GET", &format!("/events/stream{query}"), server.admin_token());
    stream.send(format!("{head}\r\n")).await;
    let head = stream.read_until("\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(head.contains("content-type: text/event-stream"), "{head}");
    stream
}

/// The events in what a stream has sent.
fn events(text: &str) -> Vec<Value> {
    text.lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect()
}

// SX-02: accepted events, and only those.
#[tokio::test]
async fn a_stream_delivers_accepted_events() {
    let server = TestServer::start().await;
    let mut stream = listen(&server, "").await;
    let sent = json!({ "eventId": "e", "eventType": "a", "data": { "n": 1 } });
    server.client().post("/events", &json!({ "eventType": "" })).await.problem(400);
    server.client().send(&sent).await;
    assert_eq!(server.client().post("/events", &sent).await.json()["duplicates"], 1);
    server.client().send(&event("last")).await;
    let received = events(&stream.read_until("\"last\"").await);
    let types: Vec<_> = received.iter().map(|event| event["eventType"].clone()).collect();
    assert_eq!(types, ["a", "last"]);
    assert_eq!(received[0]["data"], json!({ "n": 1 }));
}

#[tokio::test]
async fn a_stream_delivers_only_the_types_asked_for() {
    let server = TestServer::start().await;
    let mut prefixed = listen(&server, "?type=ticket.*").await;
    let mut exact = listen(&server, "?type=ticket.closed").await;
    for event_type in ["order.made", "ticket.created", "tickets", "ticket.closed"] {
        server.client().send(&event(event_type)).await;
    }
    let types = |text: &str| events(text).iter().map(|event| event["eventType"].clone()).collect::<Vec<_>>();
    assert_eq!(types(&prefixed.read_until("ticket.closed").await), ["ticket.created", "ticket.closed"]);
    assert_eq!(types(&exact.read_until("ticket.closed").await), ["ticket.closed"]);
}

// An event is one frame whatever white space its sender put into it.
#[tokio::test]
async fn an_event_with_line_breaks_stays_one_frame() {
    let server = TestServer::start().await;
    let mut stream = listen(&server, "").await;
    let pretty = "{\n\n\"eventType\": \"a\",\n\"data\": {\r\n\"text\":\n\n\"line\\nbreak\"\r\r\n}, \"more\": [\n\n1]}";
    server.client().post_as("/events", "application/json", pretty).await.expect(202);
    server.client().send(&event("last")).await;
    let received = events(&stream.read_until("\"last\"").await);
    assert_eq!(received.len(), 2);
    assert_eq!(received[0]["data"], json!({ "text": "line\nbreak" }));
    assert_eq!(received[0]["more"], json!([1]));
}

// S003-66: a stream ends in order when the server stops.
#[tokio::test]
async fn a_stream_ends_when_the_server_stops() {
    let mut server = TestServer::start().await;
    let mut stream = listen(&server, "").await;
    server.stop().await;
    assert!(stream.read_to_end().await.ends_with("0\r\n\r\n"), "the body's proper end");
}

#[tokio::test]
async fn a_bad_type_is_refused() {
    let server = TestServer::start().await;
    assert_eq!(server.client().get("/events/stream?type=%01").await.bad_fields(), ["type"]);
}

/// What comes of an answer until it ends.
async fn to_its_end(mut answer: reqwest::Response) -> String {
    let mut text = String::new();
    while let Some(piece) = timeout(PATIENCE, answer.chunk()).await.expect("it ends").unwrap() {
        text.push_str(std::str::from_utf8(&piece).unwrap());
    }
    text
}

async fn with_push() -> TestServer {
    TestServer::start_with(|config| config.push.listen = Listen::on(SocketAddr::from(([127, 0, 0, 1], 0)))).await
}

/// Every answer without an end, opened with a token that was made for it.
async fn open_streams(server: &TestServer) -> Vec<(String, reqwest::Response)> {
    let new = json!({ "scopes": ["read", "user:ana"], "expires_at": "2026-03-01T13:00:00Z" });
    let mut open = Vec::new();
    for path in ["/events/stream", "/notifications/stream?user=ana", "/ops/json"] {
        let made = server.client().post("/tokens", &new).await.expect(201).json();
        let (id, token) = (made["id"].as_str().unwrap().to_owned(), made["token"].as_str().unwrap());
        let client = if path.starts_with("/ops") { server.push(Some(token)) } else { server.client_with(token) };
        let answer = client.request(reqwest::Method::GET, path).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        open.push((id, answer));
    }
    open
}

// SX-20: who may no longer read hears nothing more.
#[tokio::test]
async fn a_stream_ends_when_its_token_is_revoked() {
    let server = with_push().await;
    for (id, answer) in open_streams(&server).await {
        server.client().delete(&format!("/tokens/{id}")).await.expect(204);
        server.client().send(&event("after")).await;
        assert!(!to_its_end(answer).await.contains("after"));
    }
}

// SX-20
#[tokio::test]
async fn a_stream_ends_when_its_token_expires() {
    let server = with_push().await;
    let open = open_streams(&server).await;
    server.advance(2);
    server.client().send(&event("after")).await;
    for (_, answer) in open {
        assert!(!to_its_end(answer).await.contains("after"));
    }
}
