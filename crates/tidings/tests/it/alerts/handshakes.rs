//! How Event Grid and CloudEvents senders ask before they send, and how they show who they are.

use reqwest::Method;
use serde_json::json;

use super::{INGEST, audit_event, server};
use crate::support::Answer;

fn question() -> serde_json::Value {
    json!([{
        "id": "1", "topic": "t", "subject": "", "eventType": "Microsoft.EventGrid.SubscriptionValidationEvent",
        "eventTime": "2026-03-01T11:30:00Z", "metadataVersion": "1", "dataVersion": "2",
        "data": { "validationCode": "512d38b6-c7b8-40c8-89fe-f46f9e9622b6", "validationUrl": "https://x.example" },
    }])
}

#[tokio::test]
async fn event_grid_gets_its_code_back() {
    let server = server().await;
    let client = server.client_for(&["ingest"]).await;
    let answer = client.post(INGEST, &question()).await.expect(200).json();
    assert_eq!(answer, json!({ "validationResponse": "512d38b6-c7b8-40c8-89fe-f46f9e9622b6" }));
    let mut without = question();
    without[0]["data"] = json!({});
    assert_eq!(client.post(INGEST, &without).await.bad_fields(), ["data.validationCode"]);
    server.stranger().post(INGEST, &question()).await.problem(401);
}

// Event Grid sends what the subscription's URL says, or a header of its choice.
#[tokio::test]
async fn the_key_may_stand_in_the_url_or_in_event_grids_header() {
    let server = server().await;
    let made = server.client().post("/tokens", &json!({ "scopes": ["ingest"] })).await.expect(201).json();
    let key = made["token"].as_str().unwrap();
    let stranger = server.stranger();
    stranger.post(&format!("{INGEST}?key={key}"), &question()).await.expect(200);
    stranger.post(&format!("{INGEST}?key={key}"), &audit_event("e-1")).await.expect(202);
    let headers = [("content-type", "application/json"), ("aeg-sas-key", key)];
    stranger.post_with(INGEST, &headers, question().to_string()).await.expect(200);
    let splunk = format!("Splunk {key}");
    let headers = [("content-type", "application/json"), ("authorization", splunk.as_str())];
    stranger.post_with(INGEST, &headers, json!({ "event": audit_event("e-2") }).to_string()).await.expect(202);
    stranger.post_with("/events", &headers, json!({ "eventType": "a" }).to_string()).await.problem(401);
    stranger.post(&format!("{INGEST}?key={key}x"), &question()).await.problem(401);
    stranger.post(&format!("{INGEST}?key="), &question()).await.problem(401);
    // Nowhere else.
    stranger.post(&format!("/events?key={key}"), &json!({ "eventType": "a" })).await.problem(401);
    let reader = server.client().post("/tokens", &json!({ "scopes": ["read"] })).await.expect(201).json();
    stranger.post(&format!("{INGEST}?key={}", reader["token"].as_str().unwrap()), &question()).await.problem(403);
}

#[tokio::test]
async fn cloud_events_senders_get_our_consent() {
    let server = server().await;
    let client = server.client_for(&["ingest"]).await;
    let ask = |headers: Vec<(&'static str, &'static str)>| {
        let mut request = client.request(Method::OPTIONS, INGEST);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        Answer::to(request)
    };
    let answer = ask(vec![("webhook-request-origin", "eventgrid.azure.net"), ("webhook-request-rate", "120")]).await;
    let answer = answer.expect(200);
    assert_eq!(answer.header("webhook-allowed-origin"), "eventgrid.azure.net");
    assert_eq!(answer.header("webhook-allowed-rate"), "120");
    assert_eq!(answer.header("allow"), "POST");
    let answer = ask(vec![("webhook-request-origin", "eventgrid.azure.net")]).await.expect(200);
    assert_eq!(answer.header("webhook-allowed-rate"), "*");
    assert_eq!(ask(vec![]).await.bad_fields(), ["WebHook-Request-Origin"]);
    let odd = ask(vec![("webhook-request-origin", "a"), ("webhook-request-rate", "many")]).await;
    assert_eq!(odd.bad_fields(), ["WebHook-Request-Rate"]);
    let request = server.stranger().request(Method::OPTIONS, INGEST).header("webhook-request-origin", "a");
    Answer::to(request).await.problem(401);
}
