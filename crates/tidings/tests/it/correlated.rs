//! Every list can be searched by correlation id (SX-03): by an index, with the other filters, page by page.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tidings_store::embedded::{Embedded, Options};
use tidings_store::{Item, KeyKind, Store, Table, Write};

use crate::channels::http_server::{Reply, Server};
use crate::messages::{deliver, server_with};
use crate::support::{Client, TestServer, server};

async fn post(client: &Client, path: &str, correlation: &str, body: &Value) -> Value {
    let headers = [("content-type", "application/json"), ("x-correlation-id", correlation)];
    let answer = client.post_with(path, &headers, body.to_string()).await;
    assert!(answer.status < 300, "{}", answer.text());
    answer.json()
}

/// One column of every page of a list, which has at most `limit` on each.
async fn column(client: &Client, path: &str, list: &str, name: &str, limit: usize) -> Vec<String> {
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = client.get(&format!("{path}&limit={limit}{cursor}")).await.expect(200).json();
        let items = page[list].as_array().unwrap();
        assert!(items.len() <= limit);
        found.extend(items.iter().map(|item| item[name].as_str().unwrap().to_owned()));
        match page["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return found,
        }
    }
}

#[tokio::test]
async fn the_audit_log_is_searched_by_correlation_id() {
    let server = TestServer::start().await;
    let client = server.client();
    for n in 0..5 {
        post(&client, "/tokens", "one", &json!({ "scopes": ["read"], "name": format!("n{n}") })).await;
        post(&client, "/tokens", "two", &json!({ "scopes": ["read"] })).await;
    }
    client.put("/bus/q", &json!({})).await.expect(201);
    let of = |query: &str| format!("/audit-log?correlationId={query}");
    assert_eq!(column(&client, &of("one"), "items", "correlationId", 2).await, ["one"; 5]);
    assert_eq!(column(&client, &of("one&action=token.create"), "items", "action", 2).await, ["token.create"; 5]);
    assert!(column(&client, &of("one&action=bus.put"), "items", "action", 2).await.is_empty());
    assert!(column(&client, &of("nobody"), "items", "action", 2).await.is_empty());
    server.clock.advance(Duration::from_secs(10));
    post(&client, "/tokens", "one", &json!({ "scopes": ["read"] })).await;
    let late = of("one&from=2026-03-01T12:00:05Z&user=nobody");
    assert!(column(&client, &late, "items", "action", 2).await.is_empty());
    assert_eq!(column(&client, &of("one&from=2026-03-01T12:00:05Z"), "items", "action", 2).await.len(), 1);
    let exported = client.get("/audit-log/export?format=jsonl&correlationId=one").await.expect(200).text();
    assert_eq!(exported.lines().count(), 6);
}

#[tokio::test]
async fn dead_letters_are_searched_by_correlation_id() {
    let sink = Server::start(|_| Reply::status(400)).await;
    let server = server_with(&sink).await;
    let client = server.client();
    let message = json!({ "message_type": "reminder", "payload": { "text": "x" } });
    for _ in 0..5 {
        post(&client, "/api/messages", "mine", &message).await;
        post(&client, "/api/messages", "other", &message).await;
        deliver(&server.services, "ntfy").await;
        server.clock.advance(Duration::from_secs(1));
    }
    client.put("/bus/q", &json!({})).await.expect(201);
    let bury = async |properties: &str| {
        client.post_with("/bus/q/messages", &[("brokerproperties", properties)], "b").await.expect(201);
        let got = client.post("/bus/q/receive", &json!({})).await.expect(200).json();
        let deed = json!([{ "lockToken": got["messages"][0]["lockToken"], "action": "deadletter", "reason": "r" }]);
        client.post("/bus/q/settle", &deed).await.expect(200);
    };
    bury(r#"{"CorrelationId":"mine"}"#).await;
    let of = |query: &str| format!("/dead-letters?{query}");
    assert_eq!(column(&client, &of("correlationId=mine"), "items", "correlation_id", 2).await, ["mine"; 6]);
    assert_eq!(column(&client, &of("correlation_id=mine"), "items", "correlation_id", 4).await, ["mine"; 6]);
    assert_eq!(column(&client, &of("correlationId=mine&channel=bus"), "items", "channel", 2).await, ["bus"]);
    let early = of("correlationId=mine&channel=ntfy&to=2026-03-01T12:00:01Z");
    assert_eq!(column(&client, &early, "items", "channel", 1).await, ["ntfy"; 2]);
    assert!(column(&client, &of("correlationId=nobody"), "items", "id", 2).await.is_empty());
    let both = client.get("/dead-letters?correlationId=a&correlation_id=b").await;
    assert_eq!(both.bad_fields(), ["correlation_id"]);
    // One that is sent again is no dead letter of anybody's.
    let id = client.get("/dead-letters?correlationId=mine&channel=bus").await.json()["items"][0]["id"].clone();
    client.post(&format!("/dead-letters/{}/resubmit", id.as_str().unwrap()), &json!({})).await.expect(201);
    assert!(column(&client, &of("correlationId=mine&channel=bus"), "items", "id", 2).await.is_empty());
}

#[tokio::test]
async fn an_incident_is_found_by_the_correlation_id_of_its_events() {
    let server = TestServer::start().await;
    let client = server.client();
    client.put("/bus/jobs", &json!({})).await.expect(201);
    client.post_as("/bus/jobs/messages", "text/plain", "x").await.expect(201);
    let got = client.post("/bus/jobs/receive", &json!({})).await.expect(200).json();
    let deed = json!([{ "lockToken": got["messages"][0]["lockToken"], "action": "deadletter" }]);
    client.post("/bus/jobs/settle", &deed).await.expect(200);
    for seconds in [0, 300, 1] {
        server.clock.advance(Duration::from_secs(seconds));
        server.services.incidents.evaluate().await.unwrap();
    }
    let event = client.get("/events?type=incident.raised").await.expect(200).json()["items"][0].clone();
    let id = event["correlationId"].as_str().unwrap();
    let found = client.get(&format!("/incidents?correlationId={id}")).await.expect(200).json();
    assert_eq!((&found["items"][0]["incidentId"], &found["cursor"]), (&json!(id), &Value::Null));
    assert_eq!(found["items"][0]["correlationId"], id);
    let of_state = |state: &str| format!("/incidents?correlationId={id}&state={state}");
    assert_eq!(client.get(&of_state("open")).await.expect(200).json(), found);
    for none in [&of_state("resolved"), "/incidents?correlationId=nobody"] {
        assert_eq!(client.get(none).await.expect(200).json()["items"], json!([]), "{none}");
    }
}

#[tokio::test]
async fn tickets_are_searched_by_correlation_id() {
    let server = TestServer::start().await;
    let client = server.client_for(&["tickets"]).await;
    let problem = |caller: &str| json!({ "caller_id": caller, "issue_description": "d" });
    let mut made = Vec::new();
    for n in 0..5 {
        let ticket = post(&client, "/tickets", "call", &problem(if n == 4 { "b" } else { "a" })).await;
        made.push(ticket["ticket_id"].as_str().unwrap().to_owned());
        post(&client, "/tickets", "other", &problem("a")).await;
        server.clock.advance(Duration::from_secs(1));
    }
    made.reverse();
    let of = async |query: &str| column(&client, &format!("/tickets?{query}"), "tickets", "ticket_id", 2).await;
    assert_eq!(of("correlationId=call").await, made);
    assert_eq!(of("correlationId=call&caller=a").await, made[1..]);
    assert_eq!(of("correlation_id=call&caller_id=b").await, made[..1]);
    assert!(of("correlationId=nobody").await.is_empty() && of("correlationId=call&caller=c").await.is_empty());
    // Whatever is done to a ticket later is found by its own id, and the ticket once.
    let comments = format!("/tickets/{}/comments", made[3]);
    for _ in 0..2 {
        post(&client, &comments, "later", &json!({ "comment_text": "c" })).await;
    }
    post(&client, &comments, "call", &json!({ "comment_text": "c" })).await;
    let request = server.client().request(reqwest::Method::PATCH, &format!("/tickets/{}", made[2]));
    let request = request.header("content-type", "application/json").header("x-correlation-id", "later");
    crate::support::Answer::to(request.body(r#"{"status":"closed"}"#)).await.expect(200);
    assert_eq!(of("correlationId=later").await, made[2..4]);
    assert_eq!(of("correlationId=call").await, made);
    // A ticket that is gone is in no list.
    server.advance(24 * 91);
    assert_eq!(of("correlationId=later").await, made[3..4]);
}

// S004-45, SX-03: an event leads to the ticket that a rule opened or went on with because of it.
#[tokio::test]
async fn a_ticket_of_a_rule_is_found_by_the_events_that_are_in_it() {
    let server = TestServer::start().await;
    let client = server.client();
    let rule = json!({
        "pattern": { "eventType": ["a"] }, "title": "T", "text": "x",
        "targets": [{ "channel": "ticket", "caller": "monitoring" }],
    });
    client.put("/rules/r", &rule).await.expect(201);
    for correlation in ["first", "second"] {
        client.send(&json!({ "eventType": "a", "correlationId": correlation })).await;
        deliver(&server.services, "ticket").await;
    }
    let found =
        async |id: &str| column(&client, &format!("/tickets?correlationId={id}"), "tickets", "ticket_id", 5).await;
    assert_eq!(found("first").await.len(), 1);
    assert_eq!(found("first").await, found("second").await);
}

#[tokio::test]
async fn what_can_be_no_correlation_id_is_refused_and_cursors_stay_with_their_filter() {
    let server = TestServer::start().await;
    let client = server.client();
    for list in ["/audit-log", "/audit-log/export", "/dead-letters", "/incidents", "/tickets"] {
        for (length, good) in [(1, true), (127, true), (128, true), (129, false)] {
            let answer = client.get(&format!("{list}?correlationId={}", "x".repeat(length))).await;
            if good {
                answer.expect(200);
            } else {
                assert_eq!(answer.bad_fields(), ["correlationId"], "{list} {length}");
            }
        }
    }
    for _ in 0..3 {
        post(&client, "/tokens", "c", &json!({ "scopes": ["read"] })).await;
        post(&client, "/tickets", "c", &json!({ "caller_id": "a", "issue_description": "d" })).await;
    }
    for list in ["/audit-log?limit=1", "/tickets?limit=1"] {
        let page = client.get(&format!("{list}&correlationId=c")).await.expect(200).json();
        let cursor = page["cursor"].as_str().unwrap();
        client.get(&format!("{list}&correlationId=d&cursor={cursor}")).await.problem(400);
        client.get(&format!("{list}&caller=a&cursor={cursor}")).await.problem(400);
    }
    assert_eq!(client.get("/tickets").await.bad_fields(), ["caller"]);
}

// A store that was written before the index was there gets it when it is opened, with what it holds.
#[tokio::test]
async fn letters_of_an_older_store_are_found() {
    let first = TestServer::start().await;
    let data = tempfile::tempdir().unwrap();
    let old = Table::new("tidings-dead-letters", "id", KeyKind::S)
        .index("source-index", ("source".into(), KeyKind::S), Some(("time".into(), KeyKind::S)))
        .ttl("ttl");
    let options = Options { reserve_bytes: 0, ..Options::new(data.path()) };
    let store = Embedded::open(&options, std::slice::from_ref(&old), server::clock(), Arc::new(())).unwrap();
    for n in 0..3 {
        let letter = Item::new()
            .with("id", format!("m{n}"))
            .with("source", "message")
            .with("time", format!("2026-02-01T00:00:0{n}.000Z"))
            .with("reason", "r")
            .with("channel", "ntfy")
            .with("correlation_id", if n == 2 { "other" } else { "mine" });
        store.transact(vec![Write::insert(&old, letter)]).await.unwrap();
    }
    drop(store);
    let server = TestServer::restored(data, &first).await;
    let path = "/dead-letters?correlationId=mine";
    assert_eq!(column(&server.client(), path, "items", "id", 1).await, ["m1", "m0"]);
    assert_eq!(column(&server.client(), "/dead-letters?channel=ntfy", "items", "id", 5).await, ["m2", "m1", "m0"]);
}

crate::support::engines::on_dynamodb!(
    the_audit_log_is_searched_by_correlation_id,
    dead_letters_are_searched_by_correlation_id,
    tickets_are_searched_by_correlation_id,
);

// SX-03: every list takes both spellings, within the same length.
#[tokio::test]
async fn every_list_knows_a_correlation_id_by_both_names() {
    let server = TestServer::start().await;
    let client = server.client();
    let headers = [("content-type", "application/json"), ("x-correlation-id", "mine")];
    client.post_with("/events", &headers, r#"{"eventId":"e","eventType":"a"}"#).await.expect(202);
    for name in ["correlationId", "correlation_id"] {
        assert_eq!(client.get(&format!("/events?{name}=mine")).await.expect(200).json()["items"][0]["eventId"], "e");
    }
    let lists = [
        "/events",
        "/alerts",
        "/alerts/export",
        "/audit-log",
        "/audit-log/export",
        "/incidents",
        "/api/messages",
        "/tickets",
    ];
    for path in lists {
        for name in ["correlationId", "correlation_id"] {
            client.get(&format!("{path}?{name}={}", "x".repeat(128))).await.expect(200);
            let long = client.get(&format!("{path}?{name}={}", "x".repeat(129))).await;
            assert_eq!(long.bad_fields(), [name], "{path}");
        }
        client.get(&format!("{path}?correlationId=a&correlation_id=a")).await.expect(200);
        client.get(&format!("{path}?correlationId=a&correlation_id=b")).await.problem(400);
    }
}
