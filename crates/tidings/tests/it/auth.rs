//! Who may call what, and how often.

use std::collections::BTreeSet;
use std::time::Duration;

use reqwest::Method;
use serde_json::json;

use crate::support::{Answer, Client, TestServer, event};

const SCOPES: [&str; 7] = ["admin", "read", "operate", "ingest", "consume", "tickets", "user:u1"];

/// Every documented operation: its method, a path that names nothing, and who may call it (`None`: everybody).
fn operations() -> Vec<(Method, String, Option<BTreeSet<String>>)> {
    let mut operations = Vec::new();
    let document = tidings::http::openapi();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let method = method.to_uppercase().parse().unwrap();
            let description = operation["description"].as_str();
            let scopes = description.map(|text| {
                let text = text.strip_prefix("Scope: ").unwrap().trim_end_matches('.');
                text.split(" or ").map(ToOwned::to_owned).collect()
            });
            let path = path.replace(['{', '}'], "");
            operations.push((method, path, scopes));
        }
    }
    operations
}

async fn call(client: &Client, method: &Method, path: &str) -> u16 {
    let request = client.request(method.clone(), path);
    // A stream has no end to wait for.
    let response = request.send().await.unwrap();
    response.status().as_u16()
}

// SX-20
#[tokio::test]
async fn without_a_token_everything_but_health_is_401() {
    let server = TestServer::start().await;
    for (method, path, scopes) in operations() {
        if scopes.is_none() {
            assert!(["/healthz", "/readyz"].contains(&path.as_str()), "{path} is public");
            server.stranger().get(&path).await.expect(200);
            continue;
        }
        let answer = Answer::to(server.stranger().request(method, &path)).await;
        // Who sends to Splunk understands Splunk's answers only.
        if path.starts_with("/services/collector") {
            assert_eq!((answer.status, &answer.json()["code"]), (401, &2.into()), "{path}");
            continue;
        }
        answer.problem(401);
        assert_eq!(answer.header("www-authenticate"), "Bearer", "{path}");
    }
    assert!(server.client().stored().await.is_empty());
}

// SX-20: every route and every scope, as the API's own description has it.
#[tokio::test]
async fn every_route_takes_exactly_the_scopes_it_documents() {
    let server = TestServer::start().await;
    for scope in SCOPES {
        let client = server.client_for(&[scope]).await;
        for (method, path, scopes) in operations() {
            // What a user's own inbox needs is described as `user:ID`.
            let known = if scope.starts_with("user:") { "user:ID" } else { scope };
            let may = scopes.as_ref().is_none_or(|scopes| scopes.contains(known));
            let status = call(&client, &method, &path).await;
            assert_ne!(status, 401, "{scope} {method} {path}");
            assert_eq!(status != 403, may, "{scope} {method} {path} gave {status}");
        }
    }
}

// SX-20: the matrix as contract has it, in case routes and their description go wrong together.
#[tokio::test]
async fn scopes_are_what_was_promised() {
    let server = TestServer::start().await;
    let ingest = server.client_for(&["ingest"]).await;
    let read = server.client_for(&["read"]).await;
    ingest.post("/events", &event("a")).await.expect(202);
    for path in ["/events", "/events/e", "/trace/c", "/audit-log", "/metrics", "/tokens", "/admin/backup"] {
        ingest.get(path).await.problem(403);
    }
    let detail = read.post("/events", &event("b")).await.problem(403)["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("ingest or admin"), "{detail}");
    for path in ["/events", "/trace/c", "/audit-log", "/audit-log/verify", "/metrics"] {
        read.get(path).await.expect(200);
    }
    for path in ["/tokens", "/admin/backup"] {
        read.get(path).await.problem(403);
    }
    read.post("/tokens", &json!({ "scopes": ["admin"] })).await.problem(403);
    assert_eq!(read.stored().await.len(), 1);
    // Several scopes add up.
    let both = server.client_for(&["read", "ingest"]).await;
    both.post("/events", &event("c")).await.expect(202);
    assert_eq!(both.stored().await.len(), 2);
}

// SX-20: a user's token opens that user's inbox only.
#[tokio::test]
async fn a_users_token_is_refused_on_operational_routes() {
    let server = TestServer::start().await;
    let user = server.client_for(&["user:u1"]).await;
    for (method, path, scopes) in operations() {
        if scopes.is_some() && !path.starts_with("/notifications") {
            assert_eq!(call(&user, &method, &path).await, 403, "{method} {path}");
        }
    }
}

// SX-20
#[tokio::test]
async fn an_unknown_token_is_401_and_changes_nothing() {
    let server = TestServer::start_with(|config| config.limits.failed_auth_attempts = 0).await;
    let good = server.admin_token().to_owned();
    let last = if good.ends_with('A') { 'B' } else { 'A' };
    let changed = format!("{}{last}", &good[..good.len() - 1]);
    let long = format!("tdg_{}_{}", "0".repeat(32), "x".repeat(10_000));
    for token in [changed.as_str(), "x", "", "tdg__", "tdg_0_0", &good[..good.len() - 1], &format!("{good}x"), &long] {
        let answer = server.client_with(token).post("/events", &event("a")).await;
        answer.problem(401);
        assert_eq!(answer.header("www-authenticate"), "Bearer");
    }
    for header in [format!("Basic {good}"), good.clone(), "Bearer".to_owned()] {
        let request = server.stranger().request(Method::GET, "/events").header("authorization", &header);
        Answer::to(request).await.problem(401);
    }
    let request = server.stranger().request(Method::GET, "/events").header("authorization", format!("bearer {good}"));
    Answer::to(request).await.expect(200);
    assert!(server.client().stored().await.is_empty());
}

// SX-20, SX-26
#[tokio::test]
async fn an_expired_token_is_401() {
    let server = TestServer::start().await;
    let new = json!({ "scopes": ["read"], "expires_at": "2026-03-01T13:00:00Z" });
    let made = server.client().post("/tokens", &new).await.expect(201).json();
    let client = server.client_with(made["token"].as_str().unwrap());
    client.get("/events").await.expect(200);
    server.clock.advance(Duration::from_secs(3599));
    client.get("/events").await.expect(200);
    server.clock.advance(Duration::from_secs(1));
    client.get("/events").await.problem(401);
}

// SX-20
#[tokio::test]
async fn a_revoked_token_is_401_at_once() {
    let server = TestServer::start().await;
    let made = server.client().post("/tokens", &json!({ "scopes": ["read"] })).await.expect(201).json();
    let client = server.client_with(made["token"].as_str().unwrap());
    client.get("/events").await.expect(200);
    server.client().delete(&format!("/tokens/{}", made["id"].as_str().unwrap())).await.expect(204);
    client.get("/events").await.problem(401);
}

// SX-20: whoever guesses has to wait; whoever knows does not. At n-1, n, n+1.
#[tokio::test]
async fn too_many_unknown_tokens_are_429_while_good_ones_pass() {
    let server = TestServer::start_with(|config| {
        config.limits.failed_auth_attempts = 3;
        config.limits.failed_auth_window_seconds = 60;
    })
    .await;
    let guesser = server.client_with("tdg_guess");
    for _ in 0..3 {
        guesser.get("/events").await.problem(401);
    }
    server.clock.advance(Duration::from_secs(20));
    for _ in 0..3 {
        let answer = guesser.get("/events").await;
        answer.problem(429);
        let wait: u64 = answer.header("retry-after").parse().unwrap();
        assert!((40..=41).contains(&wait), "{wait}");
        server.client().get("/events").await.expect(200);
    }
    server.clock.advance(Duration::from_secs(41));
    guesser.get("/events").await.problem(401);
}

// SX-20, S002-76: a rate for each token, with a burst of twice that.
#[tokio::test]
async fn requests_beyond_the_rate_are_429() {
    let server = TestServer::start_with(|config| config.limits.requests_per_second = 5).await;
    let other = server.client_for(&["read"]).await;
    server.clock.advance(Duration::from_secs(10));
    for _ in 0..10 {
        server.client().get("/events").await.expect(200);
    }
    let answer = server.client().post("/events", &event("a")).await;
    answer.problem(429);
    assert_eq!(answer.header("retry-after"), "1");
    other.get("/events").await.expect(200);
    server.stranger().get("/healthz").await.expect(200);
    server.clock.advance(Duration::from_secs(1));
    assert!(server.client().stored().await.is_empty());
}

crate::support::on_dynamodb! {
    requests_beyond_the_rate_are_429,
}
