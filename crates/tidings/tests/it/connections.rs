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

// SX-24, SX-03: what cannot even be read is answered like everything else.
#[tokio::test]
async fn a_request_that_cannot_be_read_gets_a_problem_document() {
    let server = TestServer::start().await;
    let many: String = (0..200).map(|n| format!("x-{n}: 1\r\n")).collect();
    let cases = [
        ("GET\r\n\r\n".to_owned(), 400),
        ("GET /a b HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/9.9\r\n\r\n".to_owned(), 400),
        ("GET /healthz HTTP/1.1\r\nbad header: x\r\n\r\n".to_owned(), 400),
        ("GET /healthz HTTP/1.1\r\nx-nul: a\0b\r\n\r\n".to_owned(), 400),
        ("POST /events HTTP/1.1\r\ncontent-length: x\r\n\r\n".to_owned(), 400),
        ("\u{1}\u{2}\u{3}\r\n\r\n".to_owned(), 400),
        (format!("GET /healthz HTTP/1.1\r\n{many}\r\n"), 431),
        (format!("GET /healthz HTTP/1.1\r\nx: {}\r\n\r\n", "a".repeat(200_000)), 431),
        (format!("GET /{} HTTP/1.1\r\nhost: test\r\n\r\n", "a".repeat(70_000)), 414),
    ];
    let good = "GET /healthz HTTP/1.1\r\nhost: test\r\n\r\n";
    for (bad, status) in cases {
        let shown: String = bad.chars().take(60).collect();
        let mut alone = Raw::connect(server.address).await;
        alone.send(&bad).await;
        let answer = alone.last_answer().await;
        // An address that is longer than a whole head is refused by the one limit or the other.
        let status = if status == 414 { answer.status } else { status };
        assert!(matches!(status, 400 | 414 | 431), "{shown:?}: {answer:?}");
        let problem = answer.problem(status);
        let id = problem["correlationId"].as_str().unwrap();
        assert!(answer.head.contains(&format!("x-correlation-id: {id}")), "{answer:?}");
        assert!(!id.is_empty() && answer.head.contains("connection: close") && answer.head.contains("date: "));
        assert!(problem["detail"].as_str().unwrap().len() > 20, "{problem}");
        // After others on the same connection, one by one or all at once.
        let mut after = Raw::connect(server.address).await;
        after.send(good).await;
        after.read_until("alive").await;
        after.send(&bad).await;
        after.last_answer().await.problem(status);
        let mut behind = Raw::connect(server.address).await;
        behind.send(format!("{good}{good}{bad}")).await;
        let all = behind.read_to_end().await;
        assert_eq!(all.matches("HTTP/1.1 200").count(), 2, "{shown:?}: {all}");
        assert!(all.contains("application/problem+json") && all.ends_with('}'), "{shown:?}: {all}");
    }
    server.client().get("/healthz").await.expect(200);
}

// What looks like such an answer, and is somebody's text, is left alone.
#[tokio::test]
async fn a_body_like_an_answer_of_the_server_stays_as_it_is() {
    let server = TestServer::start().await;
    let client = server.client();
    client.put("/bus/q", &serde_json::json!({})).await.expect(201);
    let text = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    for body in [text.to_owned(), text.repeat(3000)] {
        client.post_as("/bus/q/messages", "text/plain", body.clone()).await.expect(201);
        let got = client.delete("/bus/q/messages/head?timeout=5").await.expect(200);
        assert!(got.text() == body, "{} bytes of {}", got.text().len(), body.len());
    }
}
