//! Stored scripts, forms from elsewhere, and the headers that keep a browser from doing harm.

use serde_json::json;

use super::Visitor;
use crate::support::{Answer, TestServer, encode};

const BAD: &str = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>";

#[tokio::test]
async fn what_others_wrote_is_shown_as_text() {
    let server = TestServer::start().await;
    let (client, visitor) = (server.client(), Visitor::admin(&server).await);
    let rule = json!({ "pattern": { "eventType": [{ "exists": true }] }, "title": "{{ data.text }}", "text": BAD,
        "targets": [{ "channel": "inbox", "users": [BAD] }, { "channel": "ntfy", "topic": "t" }] });
    client.put("/rules/odd-one", &rule).await.expect(201);
    let event = json!({ "eventId": BAD, "eventType": BAD, "source": BAD, "subject": "javascript:alert(3)",
        "correlationId": "c-bad", "data": { "text": BAD, "link": "javascript:alert(4)", BAD: [BAD] } });
    client.send(&event).await;
    client.post("/tokens", &json!({ "scopes": ["read"], "name": BAD })).await.expect(201);
    let id = encode(BAD);
    let paths = [
        "/ui/".to_owned(),
        "/ui/live".to_owned(),
        "/ui/events".to_owned(),
        format!("/ui/events/{id}"),
        format!("/ui/events?type={id}"),
        "/ui/trace/c-bad".to_owned(),
        "/ui/messages".to_owned(),
        "/ui/rules".to_owned(),
        "/ui/rules/odd-one".to_owned(),
        "/ui/tokens".to_owned(),
        "/ui/audit".to_owned(),
        format!("/ui/find?q={}x", id),
        format!("/ui/login?next={id}"),
    ];
    for path in paths {
        let page = visitor.get(&path).await.expect(200).text();
        assert!(!page.contains("<script>") && !page.contains("<img"), "{path}: {page}");
        assert!(!page.contains("href=\"javascript:"), "{path}");
    }
    let message = visitor.get("/ui/messages").await.text();
    let message = message.split("href=\"/ui/messages/").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let page = visitor.get(&format!("/ui/messages/{message}")).await.expect(200).text();
    assert!(!page.contains("<script>") && !page.contains("<img"), "{page}");
}

#[tokio::test]
async fn every_page_forbids_what_is_not_ours() {
    let server = TestServer::start().await;
    let visitor = Visitor::admin(&server).await;
    for path in ["/ui/", "/ui/login", "/ui/events/none", "/ui/assets/app.js", "/"] {
        let answer = visitor.get(path).await;
        let policy = answer.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'"), "{path}: {policy}");
        assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(answer.header("x-frame-options"), "DENY");
        assert_eq!(answer.header("referrer-policy"), "same-origin");
        let body = answer.text();
        assert!(!body.contains(" style=\"") && !body.contains(" onclick="), "{path}");
    }
    assert!(visitor.get("/ui/assets/app.css?v=1").await.header("cache-control").contains("immutable"));
    assert_eq!(visitor.get("/ui/").await.header("cache-control"), "no-store");
}

#[tokio::test]
async fn a_form_that_is_not_this_sessions_changes_nothing() {
    let server = TestServer::start().await;
    let (visitor, other) = (Visitor::admin(&server).await, Visitor::admin(&server).await);
    let theirs = other.form_token().await;
    for token in ["", "x", theirs.as_str()] {
        visitor.submit("/ui/tokens", &[("form", token), ("scope", "admin"), ("name", "stolen")]).await.expect(403);
    }
    // Another site's form carries nothing of ours, and says where it comes from.
    let ours = visitor.form_token().await;
    for (name, value) in [("sec-fetch-site", "cross-site"), ("origin", "https://evil.example"), ("origin", "null")] {
        let fields = [("form", ours.as_str()), ("scope", "admin"), ("name", "stolen")];
        Answer::to(visitor.form("/ui/tokens", &fields).header(name, value)).await.expect(403);
        let login = [("token", server.admin_token())];
        Answer::to(visitor.form("/ui/login", &login).header(name, value)).await.expect(403);
    }
    assert_eq!(server.client().get("/tokens").await.json()["items"].as_array().unwrap().len(), 1);
    // Nor does the API take the cookie for a token.
    Answer::to(visitor.request(reqwest::Method::GET, "/tokens")).await.expect(401);
}

#[tokio::test]
async fn whoever_only_reads_cannot_act_even_with_a_good_form() {
    let server = TestServer::start().await;
    let reader = Visitor::with_scopes(&server, &["read"]).await;
    for path in [
        "/ui/tokens",
        "/ui/rules/new",
        "/ui/rules/a/edit",
        "/ui/rules/a/delete",
        "/ui/messages/a/retry",
        "/ui/messages/a/cancel",
        "/ui/schedules/new",
        "/ui/schedules/a/switch",
        "/ui/schedules/a/delete",
    ] {
        reader.act(path, &[("name", "a")]).await.expect(403);
    }
    server.client().get("/rules/a").await.expect(404);
}

// What is no UTF-8 is not taken for another text.
#[tokio::test]
async fn a_form_that_is_no_text_is_refused() {
    let server = TestServer::start().await;
    let visitor = Visitor::admin(&server).await;
    let token = visitor.form_token().await;
    let send = async |body: String| {
        let request = visitor.request(reqwest::Method::POST, "/ui/tickets/new");
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        crate::support::Answer::to(request.body(body)).await
    };
    let refused = send(format!("form={token}&caller_id=a%ff&issue_description=d")).await.expect(400);
    assert!(refused.text().contains("caller_id") && refused.text().contains("UTF-8"), "{}", refused.text());
    let tickets = server.client().get("/events?type=ticket.created").await.expect(200).json();
    assert_eq!(tickets["items"], serde_json::json!([]));
    send(format!("form={token}&caller_id=a%C3%A4&issue_description=d")).await.expect(303);
}
