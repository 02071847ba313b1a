//! DynamoDB out of reach: nothing is acknowledged, everybody is told to come again, and it goes on by itself.

use std::time::Duration;

use serde_json::json;
use tidings::config;
use tidings::config::store::Engine;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::support::{TestServer, engines};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Open,
    /// Connections end.
    Down,
    /// Connections stay, and nothing comes back.
    Silent,
}

/// A way to DynamoDB Local that can be closed.
async fn way() -> (String, watch::Sender<Way>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, receiver) = watch::channel(Way::Open);
    let there = engines::endpoint().trim_start_matches("http://").to_owned();
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let (mut way, there) = (receiver.clone(), there.clone());
            tokio::spawn(async move {
                if *way.borrow() == Way::Open {
                    let Ok(mut far) = TcpStream::connect(there).await else { return };
                    tokio::select! {
                        _ = copy_bidirectional(&mut near, &mut far) => return,
                        _ = way.wait_for(|way| *way != Way::Open) => {}
                    }
                }
                // Held for as long as it is silent.
                let _ = way.wait_for(|way| *way != Way::Silent).await;
                drop(near);
            });
        }
    });
    (url, sender)
}

// SX-02, SX-22, SX-24
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dynamodb_out_of_reach_is_503_with_retry_after_and_readiness_says_why() {
    let (url, way) = way().await;
    let server = TestServer::start_with(|config| {
        config.store = config::store::Store {
            engine: Engine::DynamoDb,
            region: Some("eu-west-1".to_owned()),
            endpoint: Some(url),
            table_prefix: format!(
                "{}-",
                config.data_dir.file_name().unwrap().to_str().unwrap().trim_start_matches('.')
            ),
            ..config.store.clone()
        };
    })
    .await;
    // DynamoDB Local removes what has expired by the real clock.
    server.advance(365 * 24);
    server.services.look_at_nodes().await.unwrap();
    let client = server.client();
    client.put("/bus/q", &json!({})).await.expect(201);
    client.send(&json!({ "eventId": "before", "eventType": "a" })).await;
    client.get("/readyz").await.expect(200);
    for (n, closed) in [Way::Down, Way::Silent].into_iter().enumerate() {
        way.send(closed).unwrap();
        let event = json!({ "eventId": format!("e{n}"), "eventType": "a" });
        let nothing = json!({});
        let (one, two, three, four) = tokio::join!(
            client.post("/events", &event),
            client.get("/events?limit=5"),
            client.post_as("/bus/q/messages", "text/plain", "x"),
            client.post("/bus/q/receive", &nothing),
        );
        for (what, answer) in [("event", one), ("events", two), ("message", three), ("receive", four)] {
            let problem = answer.problem(503);
            assert!(!answer.header("retry-after").is_empty(), "{what}: {problem}");
        }
        let answer = server.stranger().get("/readyz").await;
        let why = answer.problem(503)["detail"].as_str().unwrap().to_owned();
        assert!(why.contains("does not answer"), "{why}");
        assert!(!answer.header("retry-after").is_empty());
        server.stranger().get("/healthz").await.expect(200);
        way.send(Way::Open).unwrap();
        // By itself: nobody calls but the node's own sign of life.
        let ready = async {
            while server.stranger().get("/readyz").await.status != 200 {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), ready).await.expect("it recovers by itself");
        let metrics = client.get("/metrics").await.expect(200).text();
        assert!(metrics.contains("tidings_store_ready 1\n"), "{metrics}");
        client.post("/events", &event).await.expect(202);
        let stored = client.stored().await;
        assert_eq!(stored.iter().filter(|id| **id == format!("e{n}")).count(), 1, "{stored:?}");
    }
}
