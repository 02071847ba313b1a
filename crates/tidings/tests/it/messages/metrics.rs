//! `GET /api/metrics`: kept with every change.

use serde_json::{Value, json};

use super::{deliver, hello, make, published, server_with};
use crate::channels::http_server::{Reply, Server};
use crate::support::TestServer;

async fn metrics(server: &TestServer) -> Value {
    server.client().get("/api/metrics").await.expect(200).json()
}

fn figures(metrics: &Value) -> Value {
    json!([metrics["CompletedCount"], metrics["FailedCount"], metrics["SuccessRate"]])
}

// S002-36 to S002-38
#[tokio::test]
async fn metrics_follow_every_change() {
    let sink = Server::start(|asked| {
        if String::from_utf8_lossy(&asked.body).contains("refuse") { Reply::status(403) } else { published("n") }
    })
    .await;
    let server = server_with(&sink).await;
    let client = server.client();
    let empty = metrics(&server).await;
    assert_eq!(figures(&empty), json!([0, 0, null]), "0/0 is no number");
    assert_eq!(empty["counts"], json!({ "created": 0, "queued": 0, "processing": 0, "completed": 0, "failed": 0 }));
    let refuse = json!({ "message_type": "reminder", "payload": { "text": "refuse" } });
    for n in 0..12 {
        make(&client, &(if n % 4 == 0 { refuse.clone() } else { hello() })).await;
    }
    let mut prod = hello();
    prod["stage"] = json!("prod");
    make(&client, &prod).await;
    assert_eq!(metrics(&server).await["counts"]["created"], 12, "of this stage");
    deliver(&server.services, "ntfy").await;
    let after = metrics(&server).await;
    assert_eq!(figures(&after), json!([9, 3, 0.75]));
    assert_eq!(after["counts"], json!({ "created": 0, "queued": 0, "processing": 0, "completed": 9, "failed": 3 }));
    assert_eq!(after["recent"].as_array().unwrap().len(), 10);
    assert_eq!(after["failed"].as_array().unwrap().len(), 3);
    let prod = client.get("/api/metrics?stage=prod").await.expect(200).json();
    assert_eq!(figures(&prod), json!([1, 0, 1.0]));
    // The last 24 hours pass; the states stay.
    server.advance(23);
    assert_eq!(figures(&metrics(&server).await), json!([9, 3, 0.75]));
    server.advance(1);
    server.clock.advance(super::seconds(301.0));
    let later = metrics(&server).await;
    assert_eq!(figures(&later), json!([0, 0, null]));
    assert_eq!(later["counts"]["completed"], 9);
    // They go with the messages.
    server.advance(24 * 91);
    assert_eq!(metrics(&server).await["counts"]["completed"], 0);
    client.get("/api/metrics?stage=x").await.problem(400);
}

// A message in processing is counted there, and a cancelled one as failed.
#[tokio::test]
async fn processing_and_cancelled_are_counted() {
    let sink = Server::start(|_| Reply::status(503)).await;
    let server = server_with(&sink).await;
    let made = make(&server.client(), &hello()).await;
    deliver(&server.services, "ntfy").await;
    assert_eq!(metrics(&server).await["counts"]["processing"], 1);
    let path = format!("/api/messages/{}/cancel", super::id_of(&made));
    server.client().post(&path, &json!({})).await.expect(200);
    let after = metrics(&server).await;
    assert_eq!((&after["counts"]["processing"], &after["counts"]["failed"]), (&json!(0), &json!(1)));
    assert_eq!(after["FailedCount"], 1);
}
