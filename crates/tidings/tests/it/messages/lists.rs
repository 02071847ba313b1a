//! `GET /api/messages`: every combination of filters, in pages.

use serde_json::{Value, json};

use super::{answering, deliver, make, published};
use crate::support::{Client, TestServer};

async fn ids(client: &Client, query: &str) -> Vec<String> {
    let mut ids = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = client.get(&format!("/api/messages?{query}{cursor}")).await.expect(200);
        let list = page.json()["items"].as_array().unwrap().clone();
        ids.extend(list.iter().map(|message| message["payload"]["text"].as_str().unwrap().to_owned()));
        match page.cursor() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return ids,
        }
    }
}

/// Twelve messages a second apart: of two types and three stages, the first six completed.
async fn dozen() -> TestServer {
    let (server, _sink) = answering(published("n")).await;
    for n in 0..12 {
        if n == 6 {
            deliver(&server.services, "ntfy").await;
        }
        let body = json!({
            "message_type": if n % 2 == 0 { "reminder" } else { "scheduled_hello" },
            "stage": (["dev", "stage", "prod"][n % 3]),
            "payload": { "text": n.to_string() },
        });
        make(&server.client(), &body).await;
        server.clock.advance(super::seconds(1.0));
    }
    server
}

// S002-19 to S002-34 (S002-22 to S002-28, S002-31), S002-42
#[tokio::test]
async fn every_combination_of_filters_finds_exactly_what_fits() {
    let server = dozen().await;
    let client = server.client();
    for stage in [None, Some("dev"), Some("stage"), Some("prod")] {
        for status in [None, Some("created"), Some("completed"), Some("failed")] {
            for kind in [None, Some("reminder"), Some("scheduled_hello")] {
                for (from, to) in [(None, None), (Some(3), None), (None, Some(8)), (Some(2), Some(9))] {
                    let mut query = "limit=2".to_owned();
                    query += &stage.map(|stage| format!("&stage={stage}")).unwrap_or_default();
                    query += &status.map(|status| format!("&status={status}")).unwrap_or_default();
                    query += &kind.map(|kind| format!("&message_type={kind}")).unwrap_or_default();
                    query += &from.map(|n: usize| format!("&from=2026-03-01T12:00:{n:02}Z")).unwrap_or_default();
                    query += &to.map(|n: usize| format!("&to=2026-03-01T12:00:{n:02}Z")).unwrap_or_default();
                    let expected: Vec<String> = (0..12_usize)
                        .rev()
                        .filter(|n| ["dev", "stage", "prod"][n % 3] == stage.unwrap_or("dev"))
                        .filter(|n| status.is_none_or(|status| status == if *n < 6 { "completed" } else { "created" }))
                        .filter(|n| kind.is_none_or(|kind| (kind == "reminder") == (n % 2 == 0)))
                        .filter(|n| from.is_none_or(|from| *n >= from) && to.is_none_or(|to| *n <= to))
                        .map(|n| n.to_string())
                        .collect();
                    assert_eq!(ids(&client, &query).await, expected, "{query}");
                }
            }
        }
    }
}

// S002-21: a date as the upper bound is its whole day.
#[tokio::test]
async fn a_date_means_its_whole_day() {
    let server = dozen().await;
    assert_eq!(ids(&server.client(), "from=2026-03-01&to=2026-03-01").await.len(), 4);
    assert!(ids(&server.client(), "to=2026-02-28").await.is_empty());
}

// S002-33, SX-10
#[tokio::test]
async fn parameters_are_validated() {
    let server = dozen().await;
    let client = server.client();
    for (query, field) in [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("status=done", "status"),
        ("stage=test", "stage"),
        ("from=x", "from"),
        ("from=2026-03-02&to=2026-03-01", "from"),
        ("cursor=x", "cursor"),
        ("offset=1", "offset"),
    ] {
        assert_eq!(client.get(&format!("/api/messages?{query}")).await.bad_fields(), [field], "{query}");
    }
    for limit in ["1", "100"] {
        client.get(&format!("/api/messages?limit={limit}")).await.expect(200);
    }
    let page = client.get("/api/messages?limit=1").await.expect(200).cursor().unwrap();
    let other = client.get(&format!("/api/messages?limit=1&status=created&cursor={page}")).await;
    assert_eq!(other.bad_fields(), ["cursor"]);
    let default: Value = client.get("/api/messages").await.expect(200).json();
    assert_eq!(default["cursor"], Value::Null);
}

// S002-32: stable while new messages arrive.
#[tokio::test]
async fn a_page_goes_on_where_the_one_before_ended() {
    let server = dozen().await;
    let client = server.client();
    let page = client.get("/api/messages?limit=2").await.expect(200);
    make(&client, &json!({ "message_type": "reminder", "payload": { "text": "new" } })).await;
    let next = client.get(&format!("/api/messages?limit=2&cursor={}", page.cursor().unwrap())).await.expect(200).json();
    assert_eq!(next["items"][0]["payload"]["text"], "3");
}

crate::support::on_dynamodb! {
    every_combination_of_filters_finds_exactly_what_fits,
    a_date_means_its_whole_day,
}
