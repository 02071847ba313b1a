//! `GET /trace/{correlationId}`: everything that shares an id, oldest first.

use serde_json::{Value, json};

use crate::support::{Answer, Client, TestServer};

fn column(timeline: &Value, name: &str) -> Vec<String> {
    timeline["items"].as_array().unwrap().iter().map(|step| step[name].as_str().unwrap().to_owned()).collect()
}

async fn make_token(client: &Client, correlation: &str) -> Answer {
    let headers = [("content-type", "application/json"), ("x-correlation-id", correlation)];
    client.post_with("/tokens", &headers, r#"{"scopes":["read"]}"#).await.expect(201)
}

// SX-03, S003-68
#[tokio::test]
async fn a_trace_holds_everything_of_an_id_oldest_first() {
    let server = TestServer::start().await;
    let client = server.client();
    for (id, at) in [("late", "2026-03-01T12:00:01Z"), ("early", "2026-02-01T00:00:00Z")] {
        client
            .send(&json!({ "eventId": id, "eventType": "a", "correlationId": "c", "eventTimestamp": at, "data": { "n": 1 } }))
            .await;
    }
    client.send(&json!({ "eventId": "other", "eventType": "a", "correlationId": "d" })).await;
    make_token(&client, "c").await;
    let trace = client.get("/trace/c").await.expect(200).json();
    assert_eq!((&trace["correlationId"], &trace["cursor"]), (&json!("c"), &Value::Null));
    assert_eq!(column(&trace, "kind"), ["event", "audit", "event"]);
    assert_eq!(
        column(&trace, "time"),
        ["2026-02-01T00:00:00.000000Z", "2026-03-01T12:00:00.000000Z", "2026-03-01T12:00:01.000000Z"]
    );
    assert_eq!(trace["items"][0]["id"], "early");
    assert_eq!(trace["items"][0]["details"]["data"], json!({ "n": 1 }));
    assert_eq!(trace["items"][1]["details"]["action"], "token.create");
}

// SX-03: a message, which keeps milliseconds, stands behind its event and shows no earlier time.
#[tokio::test]
async fn no_step_shows_a_time_before_the_one_it_follows() {
    let server = TestServer::start().await;
    let client = server.client();
    let rule = json!({ "pattern": { "eventType": ["a"] }, "targets": [{ "channel": "ntfy", "topic": "t" }] });
    client.put("/rules/r", &rule).await.expect(201);
    server.clock.advance(std::time::Duration::from_micros(627));
    client.send(&json!({ "eventType": "a", "correlationId": "c" })).await;
    let trace = client.get("/trace/c").await.expect(200).json();
    let (kinds, times) = (column(&trace, "kind"), column(&trace, "time"));
    assert_eq!(kinds.last().map(String::as_str), Some("message"), "{trace}");
    assert!(times.is_sorted() && times[0].ends_with("000627Z"), "{times:?}");
}

// SX-10
#[tokio::test]
async fn a_trace_is_paged_over_all_its_kinds() {
    let server = TestServer::start().await;
    let client = server.client();
    for _ in 0..6 {
        for _ in 0..2 {
            client.send(&json!({ "eventType": "a", "correlationId": "c" })).await;
        }
        make_token(&client, "c").await;
        server.clock.advance(std::time::Duration::from_secs(1));
    }
    let whole = client.get("/trace/c").await.expect(200).json();
    assert_eq!(whole["items"].as_array().unwrap().len(), 18);
    for limit in [1, 2, 3, 4, 7, 9, 17, 18, 19] {
        let (mut items, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = client.get(&format!("/trace/c?limit={limit}{cursor}")).await.expect(200);
            let found = page.json()["items"].as_array().unwrap().clone();
            match page.cursor() {
                Some(next) => {
                    assert_eq!(found.len(), limit, "only the last page is not full");
                    cursor = format!("&cursor={next}");
                    items.extend(found);
                }
                None => {
                    assert!((1..=limit).contains(&found.len()), "{limit}");
                    items.extend(found);
                    break;
                }
            }
        }
        assert_eq!(Value::from(items), whole["items"], "{limit}");
    }
}

#[tokio::test]
async fn the_trace_of_an_unknown_id_is_empty() {
    let server = TestServer::start().await;
    let trace = server.client().get("/trace/unknown").await.expect(200).json();
    assert_eq!(trace, json!({ "correlationId": "unknown", "items": [], "cursor": null }));
}
