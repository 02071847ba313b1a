//! Connections: slow ones, too many of them, and those that are under way when the server stops.

use std::sync::Arc;

use tidings_store::faults::{Faulty, Moment};
use tidings_store::memory::Memory;

use crate::support::raw::{self, Raw};
use crate::support::{TestServer, event, server};

// SX-20: whoever trickles headers is cut off. Waits for the server's close, about a second.
#[tokio::test]
async fn a_client_that_trickles_its_headers_is_cut_off() {
    let server = TestServer::start_with(|config| config.limits.header_timeout_seconds = 1).await;
    let mut connection = Raw::connect(server.address).await;
    connection.send("GET /healthz HTTP/1.1\r\nx-slow: ").await;
    let answer = connection.read_to_end().await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
    server.client().get("/healthz").await.expect(200);
}

// SX-20: whoever connects and says nothing is cut off as well.
#[tokio::test]
async fn a_client_that_says_nothing_is_cut_off() {
    let server = TestServer::start_with(|config| config.limits.header_timeout_seconds = 1).await;
    let mut connection = Raw::connect(server.address).await;
    let answer = connection.read_to_end().await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
}

// SX-20, SX-24: whoever trickles a body is told. Waits for the server's answer, about a second.
#[tokio::test]
async fn a_client_that_trickles_its_body_gets_408() {
    let server = TestServer::start_with(|config| config.limits.request_timeout_seconds = 1).await;
    let mut connection = Raw::connect(server.address).await;
    let head = raw::head("POST", "/events", server.admin_token());
    connection.send(format!("{head}content-length: 17\r\n\r\n{{\"eventTy")).await;
    let answer = connection.last_answer().await;
    answer.problem(408);
    assert!(server.client().stored().await.is_empty());
}

// SX-20, SX-24, SX-03: a connection too many is told when to come again.
#[tokio::test]
async fn a_connection_too_many_is_503_with_retry_after() {
    let server = TestServer::start_with(|config| config.limits.connections = 2).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut connection = Raw::connect(server.address).await;
        connection.send("GET /healthz HTTP/1.1\r\nhost: test\r\n\r\n").await;
        connection.read_until("alive").await;
        held.push(connection);
    }
    for _ in 0..5 {
        let mut connection = Raw::connect(server.address).await;
        connection.send("GET /healthz HTTP/1.1\r\nhost: test\r\n\r\n").await;
        let answer = connection.last_answer().await;
        let problem = answer.problem(503);
        for header in ["retry-after: 1", "x-correlation-id: ", "x-content-type-options: nosniff"] {
            assert!(answer.head.contains(header), "{header}: {answer:?}");
        }
        assert!(answer.head.contains(problem["correlationId"].as_str().unwrap()), "{answer:?}");
    }
    // Those that were there first go on.
    for connection in &mut held {
        connection.send("GET /readyz HTTP/1.1\r\nhost: test\r\n\r\n").await;
        connection.read_until("ready").await;
    }
}

// SX-02: what is under way when the server stops is finished, and acknowledged only when it is durable.
#[tokio::test]
async fn a_request_under_way_at_the_stop_completes() {
    let clock = server::clock();
    let store = Arc::new(Faulty::new(Arc::new(Memory::new(clock.clone()))));
    let mut server = TestServer::over(store.clone(), clock).await;
    let gate = store.hold(Moment::Before);
    let client = server.client();
    let sending = tokio::spawn(async move { client.post("/events", &event("a")).await });
    gate.arrived(1).await;
    server.begin_stop();
    // Nobody new is let in: this returns once the address is free.
    while tokio::net::TcpStream::connect(server.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    gate.open();
    assert_eq!(sending.await.unwrap().expect(202).json()["accepted"], 1);
    server.stop().await;
}

// SX-23: nothing is left behind that would point at a server that is gone.
#[tokio::test]
async fn a_stopped_server_takes_its_announcement_away() {
    let mut server = TestServer::start().await;
    server.client().get("/healthz").await.expect(200);
    let announcement = server.data_dir().join("server.json");
    let text = std::fs::read_to_string(&announcement).unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap()["url"], server.url);
    server.stop().await;
    assert!(!announcement.exists());
}

// S003-66: idle connections do not hold up the stop.
#[tokio::test]
async fn idle_connections_and_streams_end_at_the_stop() {
    let mut server = TestServer::start().await;
    let mut idle = Raw::connect(server.address).await;
    idle.send("GET /healthz HTTP/1.1\r\nhost: test\r\n\r\n").await;
    idle.read_until("alive").await;
    let mut stream = Raw::connect(server.address).await;
    stream.send(format!("{}\r\n", raw::head("GET", "/events/stream", server.admin_token()))).await;
    stream.read_until("text/event-stream").await;
    server.stop().await;
    assert_eq!(idle.read_to_end().await, "");
    stream.read_to_end().await;
}
