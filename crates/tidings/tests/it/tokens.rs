//! `/tokens`: making, listing and revoking, and that no secret gets out.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::support::{TestServer, secret_of};

fn items(list: &Value) -> &Vec<Value> {
    list["items"].as_array().unwrap()
}

// SX-20
#[tokio::test]
async fn a_token_is_made_listed_and_revoked() {
    let server = TestServer::start().await;
    let client = server.client();
    // Oldest first, by the millisecond.
    server.clock.advance(std::time::Duration::from_millis(1));
    let new = json!({ "scopes": ["read", "user:ana"], "name": "dashboard", "expires_at": "2027-01-31T12:00:00Z" });
    let made = client.post("/tokens", &new).await.expect(201).json();
    let (id, text) = (made["id"].as_str().unwrap(), made["token"].as_str().unwrap());
    server.client_with(text).get("/events").await.expect(200);
    let list = client.get("/tokens").await.expect(200).json();
    assert_eq!(items(&list).len(), 2);
    let admin_id = items(&list)[0]["id"].as_str().unwrap();
    assert_eq!(items(&list)[0]["scopes"], json!(["admin"]));
    assert_eq!(
        items(&list)[1],
        json!({ "id": id, "name": "dashboard", "scopes": ["read", "user:ana"], "created_by": format!("token:{admin_id}"),
            "created_at": "2026-03-01T12:00:00.001000Z", "expires_at": "2027-01-31T12:00:00.000000Z" })
    );
    let path = format!("/tokens/{id}");
    client.delete(&path).await.expect(204);
    client.delete(&path).await.problem(404);
    assert_eq!(items(&client.get("/tokens").await.json()).len(), 1);
}

// SX-24: every failing field.
#[tokio::test]
async fn a_bad_token_request_names_every_field() {
    let server = TestServer::start().await;
    let many: Vec<_> = vec!["read"; 21];
    for (body, fields) in [
        (json!({}), vec!["scopes"]),
        (json!({ "scopes": [] }), vec!["scopes"]),
        (json!({ "scopes": "read" }), vec!["scopes"]),
        (json!({ "scopes": many }), vec!["scopes"]),
        (
            json!({ "scopes": ["read", "write", 7, "user:", "Admin"] }),
            vec!["scopes[1]", "scopes[2]", "scopes[3]", "scopes[4]"],
        ),
        (json!({ "scopes": ["x"], "name": 7, "expires_at": "soon" }), vec!["scopes[0]", "name", "expires_at"]),
        (json!({ "scopes": ["read"], "expires_at": "2026-03-01T12:00:00Z" }), vec!["expires_at"]),
        (json!({ "scopes": ["read"], "expires_at": 1_900_000_000 }), vec!["expires_at"]),
        (json!({ "scopes": ["read"], "name": "a\u{7}" }), vec!["name"]),
        (json!({ "scopes": ["read"], "name": "x".repeat(257) }), vec!["name"]),
        (json!([]), vec![""]),
    ] {
        assert_eq!(server.client().post("/tokens", &body).await.bad_fields(), fields, "{body}");
    }
    assert_eq!(items(&server.client().get("/tokens").await.json()).len(), 1);
    assert_eq!(items(&server.client().get("/audit-log").await.json()).len(), 1);
    for name in ["x".repeat(255), "x".repeat(256)] {
        server.client().post("/tokens", &json!({ "scopes": vec!["read"; 20], "name": name })).await.expect(201);
    }
}

// SX-20: shown once, then nowhere.
#[tokio::test]
async fn the_text_of_a_token_is_shown_only_once() {
    let server = TestServer::start().await;
    let made = server.client().post("/tokens", &json!({ "scopes": ["read"] })).await.expect(201).json();
    let secrets = [made["token"].as_str().unwrap(), server.admin_token()].map(secret_of);
    for path in ["/tokens", "/audit-log", "/audit-log?format=csv", "/metrics", "/openapi.json"] {
        let text = server.client().get(path).await.expect(200).text();
        assert!(secrets.iter().all(|secret| !text.contains(*secret)), "{path}");
    }
    let id = made["id"].as_str().unwrap();
    let trace = server.client().get(&format!("/audit-log?entity=token&entityId={id}")).await.expect(200).text();
    assert!(trace.contains(id) && !trace.contains(secrets[0]));
}

// SX-20: what is on disk does not open anything.
#[tokio::test]
async fn the_text_of_a_token_is_not_in_the_store() {
    let mut server = TestServer::start().await;
    let body = json!({ "scopes": ["read"] });
    let made = server.client().post("/tokens", &body).await.expect(201).json();
    // With a key, the answer is kept for a day, token and all.
    let headers = [("content-type", "application/json"), ("idempotency-key", "k")];
    let keyed = server.client().post_with("/tokens", &headers, body.to_string()).await.expect(201).json();
    server.stop().await;
    let mut files = vec![server.data_dir().to_owned()];
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        for token in [&made, &keyed] {
            assert!(!text.contains(secret_of(token["token"].as_str().unwrap())), "{}", path.display());
        }
    }
}

// SX-20
#[tokio::test]
async fn the_first_token_is_for_its_owners_eyes_only() {
    let server = TestServer::start().await;
    let mode = |name: &str| std::fs::metadata(server.data_dir().join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("admin.token"), 0o600);
    assert_eq!(mode("store"), 0o700, "and so is everything that is stored");
}
