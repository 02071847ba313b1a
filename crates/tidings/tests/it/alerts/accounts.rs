//! `/authorized-accounts`, and the other two who may set the list.

use serde_json::{Value, json};

use super::{alerts, audit_event_with, send, server, server_with};

const PATH: &str = "/authorized-accounts";

fn sample() -> Value {
    json!(["svc-cicd@organization.com", "build-agent@organization.com", "aad|12345-67890-abcdef"])
}

// S000-51 to S000-58, S000-82
#[tokio::test]
async fn the_list_is_set_read_and_audited() {
    let server = server().await;
    let client = server.client();
    client.get(PATH).await.problem(404);
    client.get("/authorized-accounts/usage").await.problem(404);
    assert_eq!(client.put(PATH, &sample()).await.expect(200).json(), sample());
    assert_eq!(client.get(PATH).await.expect(200).json(), sample());
    client.put(PATH, &json!(["x@y.z"])).await.expect(200);
    let log = client.get("/audit-log?action=authorized-accounts.set").await.json();
    let details = &log["items"][0]["details"];
    assert_eq!((&details["old"], &details["new"]), (&sample(), &json!(["x@y.z"])));
    assert!(log["items"][0]["user"].as_str().unwrap().starts_with("token:"));
    client.delete(PATH).await.expect(204);
    client.get(PATH).await.problem(404);
    client.delete(PATH).await.problem(404);
}

#[tokio::test]
async fn bad_lists_change_nothing() {
    let server = server().await;
    let client = server.client();
    client.put(PATH, &sample()).await.expect(200);
    let list = |n: usize| json!((0..n).map(|n| format!("a{n}@b.c")).collect::<Vec<_>>());
    assert_eq!(client.put(PATH, &list(0)).await.bad_fields(), [""]);
    assert_eq!(client.put(PATH, &list(101)).await.bad_fields(), [""]);
    assert_eq!(client.put(PATH, &json!(["a", "", 7, " "])).await.bad_fields(), ["[1]", "[2]", "[3]"]);
    assert_eq!(client.put(PATH, &json!({ "accounts": [] })).await.bad_fields(), [""]);
    assert_eq!(client.get(PATH).await.json(), sample());
    for n in [1, 99, 100] {
        client.put(PATH, &list(n)).await.expect(200);
    }
}

// S000-58: whoever processes may not write.
#[tokio::test]
async fn only_administrators_may_set_it() {
    let server = server().await;
    for scope in ["ingest", "operate", "read"] {
        server.client_for(&[scope]).await.put(PATH, &sample()).await.problem(403);
    }
    server.client_for(&["read"]).await.get(PATH).await.problem(404);
    server.client_for(&["operate"]).await.get(PATH).await.problem(403);
}

// S000-56
#[tokio::test]
async fn mails_match_in_any_case_descriptors_exactly_and_the_unused_show() {
    let server = server().await;
    let client = server.client();
    client.put(PATH, &sample()).await.expect(200);
    for (n, (changes, status)) in [
        (json!({ "actorUPN": "Build-Agent@ORGANIZATION.com" }), "suppressed"),
        (json!({ "actorId": "aad|12345-67890-abcdef" }), "suppressed"),
        (json!({ "actorUserId": "aad|12345-67890-abcdef" }), "suppressed"),
        (json!({ "actorUserId": "AAD|12345-67890-abcdef" }), "accepted"),
        (json!({ "actorUPN": "not-build-agent@organization.com" }), "accepted"),
        (json!({ "actorDisplayName": "build-agent@organization.com" }), "accepted"),
    ]
    .into_iter()
    .enumerate()
    {
        let receipt = send(&client, &audit_event_with(&format!("e-{n}"), changes.clone())).await;
        assert_eq!(receipt["status"], status, "{changes}");
    }
    let mails = client.get("/api/messages").await.json()["items"].as_array().unwrap().len();
    assert_eq!(mails, 3, "none for those who are expected");
    assert_eq!(alerts(&client, "?suppressed=true").await.len(), 3);
    let usage = client.get("/authorized-accounts/usage").await.expect(200).json();
    assert_eq!(usage[0], json!({ "account": "svc-cicd@organization.com", "lastMatched": null }));
    assert_eq!(usage[1]["lastMatched"], "2026-03-01T12:00:00.000Z");
}

// S000-52: whoever spoke last; a restart alone says nothing new.
#[tokio::test]
async fn the_file_speaks_once() {
    let server = server_with(|config| {
        config.process_alerts.authorized_accounts = Some(vec!["file@org.example".to_owned()]);
    })
    .await;
    assert_eq!(server.client().get(PATH).await.expect(200).json(), json!(["file@org.example"]));
    let log = server.client().get("/audit-log?action=authorized-accounts.set").await.json();
    assert_eq!(log["items"][0]["user"], "file");
    server.client().put(PATH, &json!(["api@org.example"])).await.expect(200);
    let server = server.restart().await;
    assert_eq!(server.client().get(PATH).await.json(), json!(["api@org.example"]));
    // Taken out of the file, it takes nothing away that somebody else has set.
    let mut without = server.services.config.process_alerts.clone();
    without.authorized_accounts = None;
    server.services.take_authorized_accounts(&without).await.unwrap();
    assert_eq!(server.client().get(PATH).await.json(), json!(["api@org.example"]));
    without.authorized_accounts = Some(vec!["new@org.example".to_owned()]);
    server.services.take_authorized_accounts(&without).await.unwrap();
    assert_eq!(server.client().get(PATH).await.json(), json!(["new@org.example"]));
    without.authorized_accounts = None;
    server.services.take_authorized_accounts(&without).await.unwrap();
    server.client().get(PATH).await.problem(404);
}

// S000-59, SX-05: what one event holds of an authorised account's change is stored like any other's, and rules see it.
#[tokio::test]
async fn an_expected_change_is_an_event_like_any_other() {
    let server = server().await;
    let client = server.client();
    client.put(PATH, &sample()).await.expect(200);
    send(&client, &audit_event_with("e-1", json!({ "actorUPN": "svc-cicd@organization.com" }))).await;
    let event = client.get("/events/e-1").await.expect(200).json();
    assert_eq!(event["correlationId"], "corr-e-1");
    assert_eq!(event["outcome"]["messages"], json!([]));
}
