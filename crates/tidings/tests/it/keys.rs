//! `Idempotency-Key` on every POST there is (SX-09), one after the other: a key that is none is refused, the same request is
//! answered as the first time, and another one under its key is not done.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use reqwest::Method;
use serde_json::{Value, json};
use tidings::config::Config;
use tidings::http::Access;
use tidings_store::memory::Memory;
use tidings_store::{Error, Health, Item, Key, Page, Query, Store, Table, Write};

use crate::alerts::audit_event;
use crate::channels::http_server::{Reply, Server};
use crate::messages::{deliver, id_of, make, published, quiet};
use crate::support::process::Served;
use crate::support::raw::{self, Raw};
use crate::support::{Answer, Client, TestServer, server};

const FORM: &str = "multipart/form-data; boundary=limit";
const USER: &str = "7c9e6679-7425-40de-944b-e07fc1f90ae7";
const OTHER: &str = "550e8400-e29b-41d4-a716-446655440000";

/// A request that succeeds, and what another one under its key would say.
struct Case {
    /// As it is declared.
    route: &'static str,
    path: String,
    content_type: &'static str,
    body: Vec<u8>,
    other: Vec<u8>,
}

fn case(route: &'static str, path: impl Into<String>, body: &Value) -> Case {
    let body = body.to_string();
    // The same to whoever reads it, and not the same bytes.
    let other = format!("{body} ").into_bytes();
    Case { route, path: path.into(), content_type: "application/json", body: body.into_bytes(), other }
}

async fn post(client: &Client, case: &Case, key: &str, body: &[u8]) -> Answer {
    let headers = [("content-type", case.content_type), ("idempotency-key", key)];
    client.post_with(&case.path, &headers, body.to_vec()).await
}

async fn obeys(client: &Client, case: &Case) {
    let Case { route, path, .. } = case;
    let long = "k".repeat(300);
    let refused = post(client, case, &long, &case.body).await;
    assert_eq!(refused.status, 400, "{route}: {}", refused.text());
    assert!(refused.text().contains("Idempotency-Key"), "{route}: {}", refused.text());
    let first = post(client, case, "k", &case.body).await;
    assert!(first.status < 300, "{route} {path}: {} {}", first.status, first.text());
    assert_eq!(first.header("idempotent-replay"), "", "{route}");
    let again = post(client, case, "k", &case.body).await;
    assert_eq!((again.status, again.text()), (first.status, first.text()), "{route}");
    assert_eq!(again.header("idempotent-replay"), "true", "{route}");
    assert_eq!(post(client, case, "k", &case.other).await.status, 422, "{route}");
    // Which was not taken for an answer.
    assert_eq!(post(client, case, "k", &case.body).await.body, first.body, "{route}");
}

/// The calls of one line of the bus, with a message for each. `dead`: it holds dead letters.
async fn of_line(client: &Client, entity: &str, line: &str, routes: &[&'static str], dead: bool) -> Vec<Case> {
    let source = line.trim_end_matches("/$deadletterqueue");
    for _ in 0..6 {
        client.post_as(&format!("/bus/{entity}/messages"), "text/plain", "x").await.expect(201);
        if dead {
            let got = client.post(&format!("/bus/{source}/receive"), &json!({})).await.expect(200).json();
            let deed = json!([{ "lockToken": got["messages"][0]["lockToken"], "action": "deadletter" }]);
            client.post(&format!("/bus/{source}/settle"), &deed).await.expect(200);
        }
    }
    let got = client.post(&format!("/bus/{line}/receive"), &json!({ "max": 2 })).await.expect(200).json();
    let lock = |n: usize| got["messages"][n]["lockToken"].as_str().unwrap().to_owned();
    let number = got["messages"][0]["sequenceNumber"].clone();
    let mut cases = Vec::new();
    for route in routes {
        let (tail, body) = match route.rsplit('/').next().unwrap() {
            "head" => ("messages/head".to_owned(), json!({})),
            "{lockToken}" => (format!("messages/{number}/{}", lock(0)), json!({})),
            "receive" => ("receive".to_owned(), json!({ "max": 1 })),
            "settle" => ("settle".to_owned(), json!([{ "lockToken": lock(1), "action": "complete" }])),
            "resubmit" => ("resubmit".to_owned(), json!({ "all": true })),
            "purge" => ("purge".to_owned(), json!({})),
            other => panic!("{other}"),
        };
        cases.push(case(route, format!("/bus/{line}/{tail}"), &body));
    }
    cases
}

async fn of_bus(client: &Client) -> Vec<Case> {
    client.put("/bus/q", &json!({})).await.expect(201);
    client.put("/bus/t", &json!({ "kind": "topic" })).await.expect(201);
    client.put("/bus/t/subscriptions/s", &json!({})).await.expect(201);
    let queue = [
        "/bus/{entity}/messages/head",
        "/bus/{entity}/messages/{message}/{lockToken}",
        "/bus/{entity}/receive",
        "/bus/{entity}/settle",
        "/bus/{entity}/purge",
    ];
    let dead = [
        "/bus/{entity}/$deadletterqueue/messages/head",
        "/bus/{entity}/$deadletterqueue/messages/{message}/{lockToken}",
        "/bus/{entity}/$deadletterqueue/receive",
        "/bus/{entity}/$deadletterqueue/settle",
        "/bus/{entity}/$deadletterqueue/resubmit",
        "/bus/{entity}/$deadletterqueue/purge",
    ];
    let subscription = [
        "/bus/{entity}/subscriptions/{subscription}/messages/head",
        "/bus/{entity}/subscriptions/{subscription}/messages/{message}/{lockToken}",
        "/bus/{entity}/subscriptions/{subscription}/receive",
        "/bus/{entity}/subscriptions/{subscription}/settle",
        "/bus/{entity}/subscriptions/{subscription}/purge",
    ];
    let its_dead = [
        "/bus/{entity}/subscriptions/{subscription}/$deadletterqueue/messages/head",
        "/bus/{entity}/subscriptions/{subscription}/$deadletterqueue/messages/{message}/{lockToken}",
        "/bus/{entity}/subscriptions/{subscription}/$deadletterqueue/receive",
        "/bus/{entity}/subscriptions/{subscription}/$deadletterqueue/settle",
        "/bus/{entity}/subscriptions/{subscription}/$deadletterqueue/resubmit",
        "/bus/{entity}/subscriptions/{subscription}/$deadletterqueue/purge",
    ];
    let mut cases = vec![case("/bus/{entity}/messages", "/bus/q/messages", &json!({ "n": 1 }))];
    cases.extend(of_line(client, "q", "q/$deadletterqueue", &dead, true).await);
    cases.extend(of_line(client, "q", "q", &queue, false).await);
    cases.extend(of_line(client, "t", "t/subscriptions/s/$deadletterqueue", &its_dead, true).await);
    cases.extend(of_line(client, "t", "t/subscriptions/s", &subscription, false).await);
    cases
}

async fn of_messages(server: &TestServer, client: &Client) -> Vec<Case> {
    let message = json!({ "message_type": "reminder", "payload": { "text": "x" } });
    let keyed = json!({ "message_type": "reminder", "payload": { "text": "x" }, "key": "w", "deliver_at": "2026-04-01T00:00:00Z" });
    let wrong = json!({ "message_type": "reminder", "payload": { "text": "wrong" } });
    let (called_off, waits) = (id_of(&make(client, &message).await), id_of(&make(client, &keyed).await));
    let failed = [id_of(&make(client, &wrong).await), id_of(&make(client, &wrong).await)];
    client.post(&format!("/api/messages/{called_off}/cancel"), &json!({})).await.expect(200);
    deliver(&server.services, "ntfy").await;
    let waiting = id_of(&make(client, &message).await);
    vec![
        case("/api/messages", "/api/messages", &message),
        case("/api/messages/batch", "/api/messages/batch", &json!([message])),
        case("/api/messages/batch-get", "/api/messages/batch-get", &json!([waits])),
        case("/api/messages/cancel", "/api/messages/cancel", &json!({ "key": "w" })),
        case("/api/messages/{message_id}/cancel", format!("/api/messages/{waiting}/cancel"), &json!({})),
        case("/api/messages/{message_id}/retry", format!("/api/messages/{}/retry", failed[0]), &json!({})),
        case("/channels/{name}/test", "/channels/ntfy/test", &json!({ "topic": "ops" })),
        case("/dead-letters/{id}/resubmit", format!("/dead-letters/{}/resubmit", failed[1]), &json!({})),
        case("/dead-letters/resubmit", "/dead-letters/resubmit", &json!({ "all": true })),
        case("/dead-letters/purge", "/dead-letters/purge", &json!({ "all": true })),
    ]
}

async fn of_business(client: &Client) -> Vec<Case> {
    let offer = json!({ "productId": USER, "fromUserId": OTHER, "toUserId": "33567ee8-f182-4f8a-b03e-2f1515915471" });
    let mut cases = vec![
        case("/service-requests", "/service-requests", &json!({ "userId": USER, "description": "d" })),
        case("/transfers", "/transfers", &offer),
    ];
    for (route, end) in [
        ("/transfers/{transferRequestId}/accept", "accept"),
        ("/transfers/{transferRequestId}/reject", "reject"),
        ("/transfers/{transferRequestId}/cancel", "cancel"),
    ] {
        let made = client.post("/transfers", &offer).await.expect(201).json();
        let id = made["transferRequestId"].as_str().unwrap();
        cases.push(case(route, format!("/transfers/{id}/{end}"), &json!({})));
    }
    let form = |file: &str| {
        let part = |name: &str, content: &str| {
            format!("--limit\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{content}\r\n")
        };
        let file =
            format!("--limit\r\nContent-Disposition: form-data; name=\"file\"; filename=\"i\"\r\n\r\n{file}\r\n");
        format!("{}{file}--limit--\r\n", part("userProductId", USER)).into_bytes()
    };
    cases.push(Case {
        route: "/invoices",
        path: "/invoices".to_owned(),
        content_type: FORM,
        body: form("%PDF-1.7 one"),
        other: form("%PDF-1.7 two"),
    });
    cases
}

async fn of_tickets(client: &Client) -> Vec<Case> {
    let problem = json!({ "caller_id": "u1", "issue_description": "d" });
    let made = client.post("/tickets", &problem).await.expect(201).json();
    let id = made["ticket_id"].as_str().unwrap();
    let imported = json!({
        "ticket_id": "1d8d2fe2-4543-4e6d-aad0-9deed9d57070", "caller_id": "poc-user-001", "issue_description": "d",
        "status": "open", "created_at": "2026-02-09T12:32:57.917604Z", "updated_at": "2026-02-09T12:35:00.123456Z",
        "comments": [],
    });
    vec![
        case("/tickets", "/tickets", &problem),
        case("/tickets/{ticket_id}/comments", format!("/tickets/{id}/comments"), &json!({ "comment_text": "c" })),
        case("/admin/tickets/import", "/admin/tickets/import", &json!({ "tickets": [imported] })),
    ]
}

async fn of_events(server: &TestServer, client: &Client) -> Vec<Case> {
    // An alert whose mail came to nothing.
    client.post("/ingest/azure-devops", &audit_event("e0")).await.expect(202);
    let mails = client.get("/api/messages?status=created").await.expect(200).json();
    let mails = mails["items"].as_array().unwrap().clone();
    for mail in &mails {
        client.post(&format!("/api/messages/{}/cancel", id_of(mail)), &json!({})).await.expect(200);
    }
    let alert = client.get("/alerts").await.expect(200).json()["items"][0].clone();
    let text = |name: &str| alert[name].as_str().unwrap().to_owned();
    // A queue with a dead letter, for long enough to be an incident.
    client.put("/bus/jobs", &json!({})).await.expect(201);
    client.post_as("/bus/jobs/messages", "text/plain", "x").await.expect(201);
    let got = client.post("/bus/jobs/receive", &json!({})).await.expect(200).json();
    let deed = json!([{ "lockToken": got["messages"][0]["lockToken"], "action": "deadletter" }]);
    client.post("/bus/jobs/settle", &deed).await.expect(200);
    for seconds in [0, 301] {
        server.clock.advance(std::time::Duration::from_secs(seconds));
        server.services.incidents.evaluate().await.unwrap();
    }
    let raised = client.get("/incidents").await.expect(200).json();
    let incident = raised["items"][0]["incidentId"].as_str().unwrap().to_owned();
    let mark = json!([{ "user": "u1", "notification_identifier": "something" }]);
    let tried = json!({ "pattern": { "eventType": ["a"] }, "event": { "eventType": "a" } });
    let collected = json!({ "event": audit_event("e2") });
    vec![
        case("/events", "/events", &json!({ "eventType": "a" })),
        case("/ingest/azure-devops", "/ingest/azure-devops", &audit_event("e1")),
        case("/ingest/dynamodb-stream", "/ingest/dynamodb-stream", &json!({ "Records": [] })),
        case("/services/collector", "/services/collector", &collected),
        case("/services/collector/event", "/services/collector/event", &json!({ "event": audit_event("e3") })),
        case(
            "/alerts/{PartitionKey}/{SortKey}/resend",
            format!("/alerts/{}/{}/resend", text("PartitionKey"), text("SortKey")),
            &json!({}),
        ),
        case("/incidents/{id}/acknowledge", format!("/incidents/{incident}/acknowledge"), &json!({})),
        case("/notifications", "/notifications", &mark),
        case("/rules/test", "/rules/test", &tried),
        case("/tokens", "/tokens", &json!({ "scopes": ["read"] })),
        Case {
            route: "/notification-map/import",
            path: "/notification-map/import".to_owned(),
            content_type: "text/csv",
            body: b"checkout,payments,u1;u2\n".to_vec(),
            other: b"checkout,payments,u3\n".to_vec(),
        },
    ]
}

/// A server of pushes that refuses texts with "wrong" in them.
async fn sink() -> Server {
    Server::start(|asked| match asked.body.windows(5).any(|part| part == b"wrong") {
        true => Reply::status(400),
        false => published("n"),
    })
    .await
}

fn settings(config: &mut Config, sink: &str) {
    quiet(config, sink);
    config.process_alerts.recipients = vec!["ops@contoso.example".to_owned()];
}

async fn all_cases(server: &TestServer, client: &Client) -> Vec<Case> {
    let mut cases = of_events(server, client).await;
    cases.extend(of_messages(server, client).await);
    cases.extend(of_business(client).await);
    cases.extend(of_tickets(client).await);
    cases.extend(of_bus(client).await);
    cases
}

/// A store that does not keep answers while it is told not to: the program dies when its work is done.
struct Forgetful {
    inner: Memory,
    forgets: AtomicBool,
}

#[async_trait]
impl Store for Forgetful {
    async fn get(&self, table: &Table, key: &Key) -> Result<Option<Item>, Error> {
        self.inner.get(table, key).await
    }

    async fn query(&self, table: &Table, query: &Query) -> Result<Page, Error> {
        self.inner.query(table, query).await
    }

    async fn transact(&self, writes: Vec<Write>) -> Result<(), Error> {
        let is_answer = |write: &Write| match write {
            Write::Put { table, item, .. } => table.name() == "tidings-idempotency" && item.get("status").is_some(),
            _ => false,
        };
        if self.forgets.load(Ordering::Relaxed) && writes.iter().any(is_answer) {
            return Err(Error::Throttled("it is gone".to_owned()));
        }
        self.inner.transact(writes).await
    }

    async fn transact_each(&self, transactions: Vec<Vec<Write>>) -> Vec<Result<(), Error>> {
        tidings_store::transact_one_by_one(self, transactions).await
    }

    fn health(&self) -> Health {
        self.inner.health()
    }
}

// SX-09: after a crash between the effect and the keeping of its answer. What the OpenAPI description says of it is so:
// nearly every request finds its own work done; what can be done only once may be said to be gone.
#[tokio::test]
async fn a_request_whose_answer_was_not_kept_is_answered_when_it_comes_again() {
    let clock = server::clock();
    let store = Arc::new(Forgetful { inner: Memory::new(clock.clone()), forgets: AtomicBool::new(false) });
    let sink = sink().await;
    let server = TestServer::over_with(store.clone(), clock, |config| settings(config, &sink.url(""))).await;
    let client = server.client();
    let mut gone = Vec::new();
    for case in &all_cases(&server, &client).await {
        store.forgets.store(true, Ordering::Relaxed);
        let lost = post(&client, case, "k", &case.body).await;
        assert_eq!(lost.status, 503, "{}: {}", case.route, lost.text());
        store.forgets.store(false, Ordering::Relaxed);
        let again = post(&client, case, "k", &case.body).await;
        match again.status {
            200..300 => assert_eq!(again.header("idempotent-replay"), "", "{}", case.route),
            _ => gone.push((case.route, again.status)),
        }
        // Another body is still another request.
        if case.route != "/notification-map/import" {
            let other = post(&client, case, "k", &case.other).await.status;
            assert_eq!(other, 422, "{}", case.route);
        }
    }
    assert_eq!(gone, GONE);
    // Of what is made, one each, beside what was there.
    let count =
        async |path: &str, list: &str| client.get(path).await.expect(200).json()[list].as_array().unwrap().len();
    assert_eq!(count("/tickets?caller=u1", "tickets").await, 2);
    assert_eq!(count("/tokens", "items").await, 2);
    assert_eq!(count("/events?type=ticket.commented", "items").await, 1);
    assert_eq!(count("/events?type=transfer.requested", "items").await, 4);
    assert_eq!(count("/events?type=a", "items").await, 1);
}

/// Its mail is on its way already.
const GONE: [(&str, u16); 1] = [("/alerts/{PartitionKey}/{SortKey}/resend", 409)];

#[tokio::test]
async fn every_post_obeys_its_idempotency_key() {
    let sink = sink().await;
    let url = sink.url("");
    let server = TestServer::start_with(|config| settings(config, &url)).await;
    let client = server.client();
    let cases = all_cases(&server, &client).await;
    for case in &cases {
        obeys(&client, case).await;
    }
    // The import was done once, and the other one not at all.
    let entry = client.get("/notification-map/checkout/payments").await.expect(200).json();
    assert_eq!(entry["users"], json!(["u1", "u2"]));

    let declared = tidings::http::routes();
    let declared = declared.iter().filter(|route| route.method == Method::POST);
    let declared: BTreeSet<&str> =
        declared.filter(|route| !matches!(route.access, Access::Public)).map(|route| route.path).collect();
    let tried: BTreeSet<&str> = cases.iter().map(|case| case.route).chain(["/admin/reload"]).collect();
    assert_eq!(tried, declared, "a POST that is not tried, or is no more");
}

// The only one that needs the program itself.
#[tokio::test]
async fn a_reload_obeys_its_idempotency_key() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("tidings.toml"), "").unwrap();
    let served = Served::start(directory.path());
    let token = std::fs::read_to_string(directory.path().join("tidings-data/admin.token")).unwrap();
    let client = Client::new(&served.url, Some(token.trim()));
    obeys(&client, &case("/admin/reload", "/admin/reload", &json!({}))).await;
}

// SX-09: an upload that is broken off leaves nothing that keeps it from being sent again, and one that comes in pieces is
// the same as one that does not.
#[tokio::test]
async fn an_import_with_a_key_can_be_sent_again_after_it_broke_off() {
    let server = TestServer::start().await;
    let client = server.client();
    let lines: String = (0..2000).map(|n| format!("p{n},g,u{n}\n")).collect();
    let head = raw::head("POST", "/notification-map/import", server.admin_token());
    let head = format!("{head}content-type: text/csv\r\nconnection: close\r\nidempotency-key: k\r\n");
    let mut broken = Raw::connect(server.address).await;
    let half = &lines[..lines.len() / 2];
    broken.send(format!("{head}content-length: {}\r\n\r\n{half}", lines.len())).await;
    broken.finish().await;
    assert_eq!(broken.last_answer().await.status, 400);

    let chunk = |piece: &str| format!("{:x}\r\n{piece}\r\n", piece.len());
    let (one, two) = lines.split_at(lines.len() / 3);
    let mut first = Raw::connect(server.address).await;
    first.send(format!("{head}transfer-encoding: chunked\r\n\r\n{}{}0\r\n\r\n", chunk(one), chunk(two))).await;
    let first = first.last_answer().await;
    let said: Value = serde_json::from_str(&first.body).unwrap();
    assert_eq!((first.status, &said["imported"], &said["rejected"]), (200, &json!(2000), &json!(0)), "{first:?}");

    let headers = [("content-type", "text/csv"), ("idempotency-key", "k")];
    let again = client.post_with("/notification-map/import", &headers, lines.clone()).await.expect(200);
    assert_eq!((again.header("idempotent-replay"), again.json()), ("true", said));
    client.post_with("/notification-map/import", &headers, format!("{lines}p,g,u\n")).await.problem(422);
    let actions = client.get("/audit-log?action=notification-map.import&limit=1000").await.expect(200).json();
    let count = actions["items"].as_array().unwrap().len();
    client.post_with("/notification-map/import", &headers, lines).await.expect(200);
    let actions = client.get("/audit-log?action=notification-map.import&limit=1000").await.expect(200).json();
    assert_eq!(actions["items"].as_array().unwrap().len(), count, "nothing was imported again");
}

// SX-09: an import that leaves off because of its bad lines is known again, too.
#[tokio::test]
async fn an_import_that_stopped_early_is_replayed() {
    let server = TestServer::start().await;
    let client = server.client();
    let text = format!("p,g,u\n{}p2,g,u\n", "bad\n".repeat(10_001));
    let headers = [("content-type", "text/csv"), ("idempotency-key", "k")];
    let import = || client.post_with("/notification-map/import", &headers, text.clone());
    let first = import().await.expect(200);
    assert_eq!(first.json()["stopped"], true);
    let again = import().await.expect(200);
    assert_eq!((again.header("idempotent-replay"), &again.body), ("true", &first.body));
}
