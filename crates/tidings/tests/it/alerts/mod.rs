//! Process change alerts: audit events in, records and mails out, and the history of it all.

mod accounts;
mod collector;
mod delivery;
mod digests;
mod export;
mod handshakes;
mod history;
mod ingest;
mod parameter;
mod poller;

use serde_json::{Value, json};
use tidings::config::Config;

use crate::support::{Client, TestServer};

pub const INGEST: &str = "/ingest/azure-devops";
/// An hour before the tests' clocks start.
pub const AT: &str = "2026-03-01T11:00:00Z";
pub const AT_SECONDS: i64 = 1_772_362_800;

/// An audit event of that id, as Azure DevOps writes it.
pub fn audit_event(id: &str) -> Value {
    json!({
        "id": id, "correlationId": format!("corr-{id}"), "activityId": "a1b2c3d4-0000-4000-8000-000000000001",
        "actorCUID": "11111111-2222-4333-8444-555555555555", "actorUserId": "3f2c1d9e-aaaa-4bbb-8ccc-dddddddddddd",
        "actorClientId": "00000000-0000-0000-0000-000000000000", "actorUPN": "ana@contoso.example",
        "authenticationMechanism": "PAT", "timestamp": AT, "scopeType": "organization",
        "scopeDisplayName": "contoso (Organization)", "scopeId": "99999999-8888-4777-8666-555555555555",
        "projectId": null, "projectName": null, "ipAddress": "203.0.113.7", "userAgent": "Mozilla/5.0",
        "actionId": "Process.Field.Add",
        "data": { "ProcessName": "Contoso Agile", "WorkItemTypeReferenceName": "ContosoAgile.UserStory",
                  "FieldReferenceName": "Custom.RiskScore" },
        "details": "Field \"Custom.RiskScore\" created on work item type \"ContosoAgile.UserStory\".",
        "area": "Process", "category": "create", "categoryDisplayName": "Create",
        "actorDisplayName": "Ana Ruiz", "actorImageUrl": null,
    })
}

/// The same with other fields.
pub fn audit_event_with(id: &str, changes: Value) -> Value {
    let mut event = audit_event(id);
    for (name, value) in changes.as_object().unwrap() {
        event[name] = value.clone();
    }
    event
}

pub async fn server() -> TestServer {
    server_with(|_| {}).await
}

/// A server that mails two people, into files, when the test says so.
pub async fn server_with(change: impl FnOnce(&mut Config)) -> TestServer {
    TestServer::start_with(|config| {
        config.delivery.jitter = false;
        config.process_alerts.recipients = vec!["ops@contoso.example".to_owned()];
        change(config);
    })
    .await
}

/// Sends one event, and gives its receipt.
pub async fn send(client: &Client, event: &Value) -> Value {
    client.post(INGEST, event).await.expect(202).json()["events"][0].clone()
}

/// The alerts of a question.
pub async fn alerts(client: &Client, query: &str) -> Vec<Value> {
    client.get(&format!("/alerts{query}")).await.expect(200).json()["items"].as_array().unwrap().clone()
}

/// The one alert there is.
pub async fn alert(client: &Client) -> Value {
    let mut alerts = alerts(client, "").await;
    assert_eq!(alerts.len(), 1, "{alerts:?}");
    alerts.remove(0)
}
