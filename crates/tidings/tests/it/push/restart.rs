//! What was published survives the server, and the server says where it listens.

use serde_json::Value;

use super::{ask, curl, run, server};

#[tokio::test(flavor = "multi_thread")]
async fn since_works_across_a_restart() {
    let server = server().await;
    let first = ask(&server, &["-d", "1"], "/ops").await;
    ask(&server, &["-d", "2"], "/ops").await;
    let server = server.restart().await;
    ask(&server, &["-d", "3"], "/ops").await;
    let since = first["id"].as_str().unwrap();
    assert_eq!(run(curl(&server, &[], &format!("/ops/raw?poll=1&since={since}"))).await, "2\n3\n");
}

#[tokio::test]
async fn the_address_is_announced() {
    let server = server().await;
    server.client().get("/readyz").await.expect(200);
    let text = std::fs::read(server.data_dir().join("server.json")).unwrap();
    let announced: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(announced["push_url"].as_str(), server.push_url.as_deref());
}
