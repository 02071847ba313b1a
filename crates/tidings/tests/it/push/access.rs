//! Who may publish and listen: tokens, grants, open topics.

use reqwest::Method;
use serde_json::json;
use tidings::config::push::{Grant, Right};

use super::{on, server};
use crate::support::{Answer, Client, TestServer};

async fn token(server: &TestServer, name: &str, scopes: &[&str]) -> String {
    let made = server.client().post("/tokens", &json!({ "scopes": scopes, "name": name })).await.expect(201).json();
    made["token"].as_str().unwrap().to_owned()
}

/// The statuses of publishing to the topic and of asking what is in it.
async fn tried(client: &Client, topic: &str) -> [u16; 2] {
    let publish = client.post_as(&format!("/{topic}"), "text/plain", "x").await;
    let poll = client.get(&format!("/{topic}/json?poll=1")).await;
    [publish.status, poll.status]
}

// SX-20
#[tokio::test]
async fn scopes_open_topics() {
    let server = server().await;
    assert_eq!(tried(&server.push(None), "ops").await, [401, 401]);
    assert_eq!(tried(&server.push(Some("tdg_unknown")), "ops").await, [401, 401]);
    for (scopes, statuses) in [
        (["ingest"], [200, 403]),
        (["operate"], [200, 403]),
        (["read"], [403, 200]),
        (["consume"], [403, 200]),
        (["tickets"], [403, 403]),
        (["admin"], [200, 200]),
    ] {
        let token = token(&server, "t", &scopes).await;
        assert_eq!(tried(&server.push(Some(&token)), "ops").await, statuses, "{scopes:?}");
    }
    let user = token(&server, "t", &["user:u1"]).await;
    assert_eq!(tried(&server.push(Some(&user)), "user-u1").await, [403, 200]);
    assert_eq!(tried(&server.push(Some(&user)), "user-u2").await, [403, 403]);
    // One topic that is not allowed closes the whole subscription.
    assert_eq!(server.push(Some(&user)).get("/user-u1,ops/json?poll=1").await.status, 403);
    let refused = server.push(None).get("/ops/auth").await.expect(401).json();
    assert_eq!((refused["code"].as_u64(), refused["error"].as_str()), (Some(40101), Some("unauthorized")));
}

#[tokio::test]
async fn grants_and_open_topics_are_configured() {
    let server = TestServer::start_with(|config| {
        on(config);
        config.push.open_topics = vec!["lobby".to_owned(), "pub-*".to_owned()];
        let topics = vec!["ops".to_owned()];
        config.push.access = vec![Grant { token: "phone".to_owned(), topics, allow: Right::Read }];
    })
    .await;
    assert_eq!(tried(&server.push(None), "lobby").await, [200, 200]);
    assert_eq!(tried(&server.push(None), "pub-1").await, [200, 200]);
    assert_eq!(tried(&server.push(None), "lobby2").await, [401, 401]);
    // A token that is not good is not overlooked, even where none is needed.
    assert_eq!(tried(&server.push(Some("tdg_x")), "lobby").await, [401, 401]);
    let phone = token(&server, "phone", &["read", "ingest"]).await;
    assert_eq!(tried(&server.push(Some(&phone)), "ops").await, [403, 200]);
    assert_eq!(tried(&server.push(Some(&phone)), "other").await, [403, 403]);
}

#[tokio::test]
async fn a_token_can_be_a_password_or_in_the_query() {
    let server = server().await;
    let stranger = server.push(None);
    let basic = stranger.request(Method::GET, "/ops/auth").basic_auth("phil", Some(server.admin_token()));
    Answer::to(basic).await.expect(200);
    let by_query = base64_url(&format!("Bearer {}", server.admin_token()));
    stranger.get(&format!("/ops/auth?auth={by_query}")).await.expect(200);
    stranger.get("/ops/auth?auth=bm9uc2Vuc2U").await.expect(401);
}

#[tokio::test]
async fn guessing_is_slowed_down() {
    let server = TestServer::start_with(|config| {
        on(config);
        config.limits.failed_auth_attempts = 3;
    })
    .await;
    let guesser = server.push(Some("tdg_unknown"));
    for _ in 0..3 {
        guesser.get("/ops/auth").await.expect(401);
    }
    let refused = guesser.get("/ops/auth").await.expect(429);
    assert_eq!(refused.json()["code"], 42909);
    assert!(!refused.header("retry-after").is_empty());
    server.push(Some(server.admin_token())).get("/ops/auth").await.expect(200);
}

#[tokio::test]
async fn too_many_topics_are_refused() {
    let server = server().await;
    let client = server.push(Some(server.admin_token()));
    let list = |count: usize| (0..count).map(|number| format!("t{number}")).collect::<Vec<_>>().join(",");
    client.get(&format!("/{}/json?poll=1", list(100))).await.expect(200);
    assert_eq!(client.get(&format!("/{}/json?poll=1", list(101))).await.expect(400).json()["code"], 40009);
}

fn base64_url(text: &str) -> String {
    use base64::Engine as _;
    base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(text)
}
