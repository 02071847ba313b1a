//! Signing in and out, and what a session is bound to.

use std::time::Duration;

use serde_json::json;

use super::Visitor;
use crate::support::TestServer;

#[tokio::test]
async fn the_root_leads_to_the_dashboard_and_a_stranger_to_the_login() {
    let server = TestServer::start().await;
    let stranger = Visitor::stranger(&server);
    for path in ["/", "/ui"] {
        assert_eq!(stranger.get(path).await.expect(303).header("location"), "/ui/");
    }
    assert_eq!(stranger.get("/ui/").await.expect(303).header("location"), "/ui/login");
    let location = stranger.get("/ui/events?type=a.b").await.expect(303);
    assert_eq!(location.header("location"), "/ui/login?next=%2Fui%2Fevents%3Ftype%3Da.b");
    let login = stranger.get("/ui/login?next=%2Fui%2Fevents").await.expect(200).text();
    assert!(login.contains("name=\"token\"") && login.contains("value=\"/ui/events\""));
}

#[tokio::test]
async fn a_token_opens_a_session_whose_cookie_says_nothing_of_it() {
    let server = TestServer::start().await;
    let stranger = Visitor::stranger(&server);
    let fields = [("token", server.admin_token()), ("next", "/ui/events")];
    let answer = stranger.submit("/ui/login", &fields).await.expect(303);
    assert_eq!(answer.header("location"), "/ui/events");
    let cookie = answer.header("set-cookie").to_owned();
    for part in ["HttpOnly", "SameSite=Strict", "Path=/ui", "Max-Age=43200"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    let secret = crate::support::secret_of(server.admin_token());
    let id = server.admin_token().split('_').nth(1).unwrap();
    assert!(!cookie.contains(secret) && !cookie.contains(id), "{cookie}");

    for next in ["https://evil.example/ui/", "//evil.example", "/events", "javascript:alert(1)"] {
        let answer = stranger.submit("/ui/login", &[("token", server.admin_token()), ("next", next)]).await.expect(303);
        assert_eq!(answer.header("location"), "/ui/", "{next}");
    }
}

#[tokio::test]
async fn a_wrong_token_is_refused_and_too_many_block_the_address() {
    let server = TestServer::start_with(|config| config.limits.failed_auth_attempts = 2).await;
    let stranger = Visitor::stranger(&server);
    for _ in 0..2 {
        let answer = stranger.submit("/ui/login", &[("token", "tdg_no")]).await.expect(401);
        assert!(answer.text().contains("unknown, revoked or expired"));
        assert_eq!(answer.header("set-cookie"), "");
    }
    stranger.submit("/ui/login", &[("token", "tdg_no")]).await.expect(429);
    // Whoever has a good token gets in all the same.
    stranger.submit("/ui/login", &[("token", server.admin_token())]).await.expect(303);
}

#[tokio::test]
async fn a_session_ends_with_its_token() {
    let server = TestServer::start().await;
    let made = server.client().post("/tokens", &json!({ "scopes": ["read"] })).await.expect(201).json();
    let visitor = Visitor::signed_in(&server, made["token"].as_str().unwrap()).await;
    visitor.get("/ui/").await.expect(200);
    server.client().delete(&format!("/tokens/{}", made["id"].as_str().unwrap())).await.expect(204);
    assert_eq!(visitor.get("/ui/").await.expect(303).header("location"), "/ui/login");

    let soon = json!({ "scopes": ["read"], "expires_at": "2026-03-01T13:00:00Z" });
    let made = server.client().post("/tokens", &soon).await.expect(201).json();
    let visitor = Visitor::signed_in(&server, made["token"].as_str().unwrap()).await;
    visitor.get("/ui/").await.expect(200);
    server.advance(1);
    visitor.get("/ui/").await.expect(303);
}

#[tokio::test]
async fn a_session_ends_after_twelve_hours_and_when_somebody_signs_out() {
    let server = TestServer::start().await;
    let visitor = Visitor::admin(&server).await;
    server.clock.advance(Duration::from_secs(12 * 3600 - 1));
    visitor.get("/ui/").await.expect(200);
    server.clock.advance(Duration::from_secs(1));
    visitor.get("/ui/").await.expect(303);

    let visitor = Visitor::admin(&server).await;
    let answer = visitor.act("/ui/logout", &[]).await.expect(303);
    assert!(answer.header("set-cookie").contains("Max-Age=0"));
    // The cookie is worth nothing any more, even for somebody who kept it.
    visitor.get("/ui/").await.expect(303);
}

#[tokio::test]
async fn a_cookie_that_was_made_up_opens_nothing() {
    let server = TestServer::start().await;
    let mut visitor = Visitor::admin(&server).await;
    let good = visitor.cookie.clone();
    let changed = good.chars().rev().skip(1).collect::<String>().chars().rev().collect::<String>();
    for cookie in [String::new(), "tidings_session=".to_owned(), format!("{changed}_"), format!("{good}x")] {
        visitor.cookie = cookie;
        visitor.get("/ui/").await.expect(303);
    }
    visitor.cookie = format!("other=1; {good}");
    visitor.get("/ui/").await.expect(200);
}

// S003-42, SX-19
#[tokio::test]
async fn who_signs_in_and_out_and_who_fails_to_is_on_record() {
    let server = TestServer::start_with(|config| config.limits.failed_auth_attempts = 2).await;
    let visitor = Visitor::admin(&server).await;
    visitor.act("/ui/logout", &[]).await.expect(303);
    let stranger = Visitor::stranger(&server);
    for status in [401, 401, 429, 429] {
        stranger.submit("/ui/login", &[("token", "tdg_guess_guessed-secret")]).await.expect(status);
    }
    let log = server.client().get("/audit-log?entity=session").await.expect(200);
    assert!(!log.text().contains("guess"), "{}", log.text());
    let log = log.json();
    let entries: Vec<_> = log["items"].as_array().unwrap().iter().collect();
    let actions: Vec<_> = entries.iter().map(|entry| entry["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["login.failed", "login.failed", "logout", "login"], "{log}");
    let id = server.admin_token().split('_').nth(1).unwrap();
    let created = server.client().get("/audit-log?action=token.create").await.expect(200).json();
    assert_eq!(created["items"][0]["entityId"], id);
    for entry in &entries[2..] {
        assert_eq!((&entry["entityId"], &entry["details"]["address"]), (&json!(id), &json!("127.0.0.1")), "{entry}");
        assert!(entry["user"].as_str().unwrap().contains(id), "{entry}");
    }
    assert_eq!(entries[0]["user"], "unknown");
    assert_eq!(server.client().get("/audit-log/verify").await.json()["ok"], json!(true));
}
