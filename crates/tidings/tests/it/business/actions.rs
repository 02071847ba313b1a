//! EVT_004 the whole way: what was done elsewhere goes into the audit log, once.

use serde_json::json;

use super::until;
use crate::support::TestServer;

const USER: &str = "7c9e6679-7425-40de-944b-e07fc1f90ae7";

// S003-42 to S003-53
#[tokio::test(flavor = "multi_thread")]
async fn a_critical_action_is_on_record_once() {
    let server = TestServer::start().await;
    let client = server.client();
    let event = json!({ "eventId": "act-1", "eventType": "CriticalActionOccurred", "correlationId": "c-7", "data": {
        "userId": USER, "actionType": "permission.changed", "targetEntity": "role", "targetEntityId": "42",
        "changeDetails": { "from": "reader", "to": "admin" } } });
    client.send(&event).await;
    let found =
        until(&server, "/audit-log?action=permission.changed", |log| !log["items"].as_array().unwrap().is_empty())
            .await;
    let entry = &found["items"][0];
    assert_eq!((&entry["user"], &entry["entity"], &entry["entityId"]), (&json!(USER), &json!("role"), &json!("42")));
    assert_eq!((&entry["details"], &entry["correlationId"]), (&event["data"]["changeDetails"], &json!("c-7")));
    // On the bus, with the same id, and with another and nobody's name.
    let properties = json!({ "Label": "audit.action.occurred" }).to_string();
    for (id, user) in [("act-1", json!(USER)), ("act-2", json!(null)), ("act-2", json!(null))] {
        let body = json!({ "eventId": id, "eventType": "audit.action.occurred", "data": { "userId": user,
            "actionType": "login", "targetEntity": "user", "targetEntityId": "u" } });
        let headers = [("content-type", "application/json"), ("brokerproperties", properties.as_str())];
        client.post_with("/bus/system-events-topic/messages", &headers, body.to_string()).await.expect(201);
    }
    until(&server, "/bus/system-events-topic/subscriptions/auditing-sub", |seen| {
        seen["counts"]["active"] == 0 && seen["counts"]["locked"] == 0
    })
    .await;
    let log = client.get("/audit-log?action=login").await.expect(200).json();
    assert_eq!(log["items"].as_array().unwrap().len(), 1, "one for each id: {log}");
    assert_eq!(client.get("/audit-log/verify").await.expect(200).json()["ok"], true);
}

// S003-42: which actions are critical is configured.
#[tokio::test(flavor = "multi_thread")]
async fn only_critical_actions_are_on_record() {
    let actions = vec!["login".to_owned(), "permission.*".to_owned()];
    let server = TestServer::start_with(|config| config.audit.critical_actions = actions).await;
    let client = server.client();
    for action in ["login", "logins", "permission.changed", "coffee.made"] {
        let data = json!({ "actionType": action, "targetEntity": "e", "targetEntityId": "1" });
        client.send(&json!({ "eventType": "CriticalActionOccurred", "data": data })).await;
    }
    until(&server, "/audit-log?entity=e", |log| log["items"].as_array().unwrap().len() == 2).await;
    until(&server, "/bus/system-events-topic/subscriptions/auditing-sub", |seen| seen["counts"]["active"] == 0).await;
    assert_eq!(client.get("/audit-log?entity=e").await.expect(200).json()["items"].as_array().unwrap().len(), 2);
}

// S003-71: the same refusal on the bus as at the door.
#[tokio::test]
async fn bad_payloads_are_refused_on_the_bus_too() {
    let server = TestServer::start().await;
    let client = server.client();
    let headers = [("content-type", "application/json")];
    for (queue, body, fields) in [
        ("transfer-expiration-queue", json!({ "transferRequestId": "x" }), vec!["data.transferRequestId"]),
        ("ocr-processing-queue", json!({ "invoiceId": USER }), vec!["data.userProductId", "data.fileUrl"]),
        (
            "system-events-topic",
            json!({ "eventType": "CriticalActionOccurred", "data": {} }),
            vec!["data.actionType", "data.targetEntity", "data.targetEntityId"],
        ),
    ] {
        let answer = client.post_with(&format!("/bus/{queue}/messages"), &headers, body.to_string()).await;
        assert_eq!(answer.bad_fields(), fields, "{queue}");
    }
}
