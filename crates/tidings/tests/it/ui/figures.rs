//! The overview's figures: kept, summed over restarts, and never counted by looking.

use serde_json::json;

use super::Visitor;
use crate::support::TestServer;

#[tokio::test]
async fn figures_are_there_at_once_and_survive_a_restart() {
    let server = TestServer::start().await;
    let rule = json!({ "pattern": { "eventType": ["a"] }, "title": "t", "targets": [{ "channel": "inbox", "users": ["u", "v"] }] });
    server.client().put("/rules/r", &rule).await.expect(201);
    let events: Vec<_> = (0..7).map(|_| json!({ "eventType": "a" })).collect();
    server.client().post("/events", &json!(events)).await.expect(202);
    let page = Visitor::admin(&server).await.get("/ui/").await.expect(200).text();
    assert!(page.contains("7 in 1h") && page.contains("14 in 1h"), "{page}");
    let server = server.restart().await;
    let page = Visitor::admin(&server).await.get("/ui/").await.expect(200).text();
    assert!(page.contains("7 in 1h") && page.contains("14 in 1h"), "{page}");
    server.advance(2);
    let visitor = Visitor::admin(&server).await;
    assert!(visitor.get("/ui/").await.expect(200).text().contains("0 in 1h"));
    assert!(visitor.get("/ui/?span=24h").await.expect(200).text().contains("7 in 24h"));
}

#[tokio::test]
async fn an_open_page_is_told_of_what_happens() {
    let server = TestServer::start().await;
    let visitor = Visitor::admin(&server).await;
    let mut stream = visitor.request(reqwest::Method::GET, "/ui/live/stream?type=a").send().await.unwrap();
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    server.client().send(&json!({ "eventType": "b" })).await;
    server.client().send(&json!({ "eventId": "<b>", "eventType": "a", "data": { "x": "line\nbreak" } })).await;
    let frame = String::from_utf8(stream.chunk().await.unwrap().unwrap().to_vec()).unwrap();
    assert!(frame.starts_with("event: row\ndata: <tr>") && frame.contains("&lt;b&gt;"), "{frame}");
}
