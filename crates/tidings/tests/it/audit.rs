//! `/audit-log`: who did what, and that nothing of it was changed.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Client, TestServer, encode};

fn column(list: &Value, name: &str) -> Vec<String> {
    list["items"].as_array().unwrap().iter().map(|entry| entry[name].as_str().unwrap().to_owned()).collect()
}

async fn make_token(client: &Client, correlation: &str) -> String {
    let headers = [("content-type", "application/json"), ("x-correlation-id", correlation)];
    let made = client.post_with("/tokens", &headers, r#"{"scopes":["admin"],"name":"n"}"#).await.expect(201).json();
    made["id"].as_str().unwrap().to_owned()
}

// SX-19
#[tokio::test]
async fn every_administrative_action_is_on_record_with_who_and_why() {
    let server = TestServer::start().await;
    let client = server.client();
    let id = make_token(&client, "make-it").await;
    let request = client.request(reqwest::Method::DELETE, &format!("/tokens/{id}"));
    crate::support::Answer::to(request.header("x-correlation-id", "undo-it")).await.expect(204);
    client.get("/admin/backup").await.expect(200);
    let log = client.get("/audit-log").await.expect(200).json();
    assert_eq!(column(&log, "action"), ["backup.create", "token.revoke", "token.create", "token.create"]);
    let admin = client.get("/tokens").await.json()["items"][0]["id"].as_str().unwrap().to_owned();
    let who = format!("token:{admin}");
    assert_eq!(column(&log, "user"), [who.as_str(), &who, &who, "tidings"]);
    let (revoked, created) = (&log["items"][1], &log["items"][2]);
    for (entry, correlation) in [(revoked, "undo-it"), (created, "make-it")] {
        assert_eq!((&entry["entity"], &entry["entityId"]), (&json!("token"), &json!(id)));
        assert_eq!(entry["correlationId"], correlation);
        assert_eq!(entry["time"], "2026-03-01T12:00:00.000000Z");
    }
    assert_eq!(created["details"], json!({ "name": "n", "scopes": ["admin"] }));
    assert_eq!(revoked["previous"], created["hash"]);
}

// SX-19
#[tokio::test]
async fn the_log_can_be_filtered() {
    let server = TestServer::start().await;
    let client = server.client();
    let one = make_token(&client, "c").await;
    server.clock.advance(Duration::from_secs(86_400));
    make_token(&client, "c").await;
    client.delete(&format!("/tokens/{one}")).await.expect(204);
    let admin = column(&client.get("/audit-log?user=tidings").await.json(), "entityId").remove(0);
    let who = encode(&format!("token:{admin}"));
    for (query, count) in [
        ("", 4),
        ("user=tidings", 1),
        (&format!("user={who}"), 3),
        ("user=nobody", 0),
        ("action=token.create", 3),
        ("action=token.revoke", 1),
        ("entity=token", 4),
        ("entity=rule", 0),
        (&format!("entityId={one}"), 2),
        (&format!("entityId={one}&action=token.revoke"), 1),
        (&format!("user={who}&action=token.create&entity=token"), 2),
        ("from=2026-03-02", 2),
        ("to=2026-03-01", 2),
        ("from=2026-03-01T12:00:00Z&to=2026-03-01T12:00:00Z", 2),
        ("from=2026-03-03", 0),
    ] {
        let log = client.get(&format!("/audit-log?{query}")).await.expect(200).json();
        assert_eq!(log["items"].as_array().unwrap().len(), count, "{query}");
        let paged = pages(&client, &format!("/audit-log?limit=1&{query}")).await;
        assert_eq!(paged, log["items"].as_array().unwrap().clone(), "{query}, one by one");
    }
}

async fn pages(client: &Client, path: &str) -> Vec<Value> {
    let (mut items, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = client.get(&format!("{path}{cursor}")).await.expect(200);
        items.extend(page.json()["items"].as_array().unwrap().clone());
        match page.cursor() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return items,
        }
    }
}

// SX-10
#[tokio::test]
async fn the_log_is_paged_while_it_grows() {
    let server = TestServer::start().await;
    let client = server.client();
    for _ in 0..9 {
        make_token(&client, "c").await;
    }
    let whole = client.get("/audit-log").await.json()["items"].as_array().unwrap().clone();
    let (mut items, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = client.get(&format!("/audit-log?limit=3{cursor}")).await.expect(200);
        items.extend(page.json()["items"].as_array().unwrap().clone());
        make_token(&client, "c").await;
        match page.cursor() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(items, whole);
}

// SX-19: exportable as CSV.
#[tokio::test]
async fn the_log_is_exported_as_csv_page_by_page() {
    let server = TestServer::start().await;
    let client = server.client();
    let new = json!({ "scopes": ["read"], "name": "=cmd, \"quoted\"" });
    client.post("/tokens", &new).await.expect(201);
    let answer = client.get("/audit-log?format=csv&limit=1").await.expect(200);
    assert_eq!(answer.header("content-type"), "text/csv; charset=utf-8");
    let text = answer.text();
    let mut lines = text.split("\r\n");
    assert_eq!(lines.next(), Some("seq,time,user,action,entity,entityId,correlationId,details,previous,hash"));
    let row = lines.next().unwrap();
    assert!(row.starts_with("2,2026-03-01T12:00:00.000000Z,token:"), "{row}");
    assert!(row.contains(r#""{""name"":""=cmd, \""quoted\"""",""scopes"":[""read""]}""#), "{row}");
    assert_eq!((lines.next(), lines.next()), (Some(""), None));
    let next = answer.header("x-next-token");
    let answer = client.get(&format!("/audit-log?format=csv&limit=1&cursor={next}")).await.expect(200);
    assert!(answer.text().contains("\r\n1,2026"), "{}", answer.text());
}

// SX-19: append-only, in a chain.
#[tokio::test]
async fn the_chain_of_the_log_is_verified() {
    let server = TestServer::start().await;
    for _ in 0..5 {
        make_token(&server.client(), "c").await;
    }
    let found = server.client().get("/audit-log/verify").await.expect(200).json();
    assert_eq!(found, json!({ "ok": true, "entries": 6 }));
    for method in [reqwest::Method::DELETE, reqwest::Method::POST, reqwest::Method::PUT] {
        crate::support::Answer::to(server.client().request(method, "/audit-log")).await.problem(405);
    }
}

// SX-19: many at once all get a number of their own.
#[tokio::test]
async fn actions_at_once_are_all_on_record() {
    let server = TestServer::start().await;
    let client = server.client();
    futures_util::future::join_all((0..20).map(|_| make_token(&client, "c"))).await;
    let found = client.get("/audit-log/verify").await.expect(200).json();
    assert_eq!(found, json!({ "ok": true, "entries": 21 }));
}
