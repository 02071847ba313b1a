//! Splunk's HTTP event collector, as Azure DevOps streams to it (S000-76).

use serde_json::json;

use super::{INGEST, alerts, audit_event, audit_event_with, server};
use crate::messages::deliver;
use crate::support::{Answer, TestServer};

const COLLECTOR: &str = "/services/collector/event";

async fn key(server: &TestServer, scope: &str) -> String {
    let made = server.client().post("/tokens", &json!({ "scopes": [scope] })).await.expect(201).json();
    format!("Splunk {}", made["token"].as_str().unwrap())
}

async fn send(server: &TestServer, path: &str, key: &str, body: String) -> Answer {
    let headers = [("authorization", key), ("content-type", "application/json")];
    server.stranger().post_with(path, &headers, body).await
}

fn wrapped(event: &serde_json::Value) -> String {
    json!({ "time": 1_772_362_800.25, "host": "dev.azure.com", "source": "contoso", "sourcetype": "_json", "event": event })
        .to_string()
}

// S000-76 (b)
#[tokio::test]
async fn events_come_one_after_the_other_in_splunks_envelope() {
    let server = server().await;
    let key = key(&server, "ingest").await;
    let ignored = audit_event_with("e-3", json!({ "actionId": "Git.RefUpdatePoliciesBypassed", "area": "Git" }));
    let body = [&audit_event("e-1"), &audit_event("e-2"), &ignored].map(wrapped);
    let success = json!({ "text": "Success", "code": 0 });
    assert_eq!(send(&server, COLLECTOR, &key, body.concat()).await.expect(200).json(), success);
    // Come again, they are known; under the shorter path, too.
    assert_eq!(send(&server, "/services/collector", &key, body.join("\n")).await.expect(200).json(), success);
    assert_eq!(alerts(&server.client(), "").await.len(), 2);
    // What is good is taken beside what is not.
    let half = [wrapped(&audit_event("e-4")), wrapped(&json!({ "actionId": "Process.Field.Add" }))].concat();
    assert_eq!(send(&server, COLLECTOR, &key, half).await.expect(200).json(), success);
    assert_eq!(alerts(&server.client(), "").await.len(), 3);
}

#[tokio::test]
async fn refusals_have_splunks_numbers() {
    let server = server().await;
    let (good, other) = (key(&server, "ingest").await, key(&server, "read").await);
    let event = wrapped(&audit_event("e-1"));
    for (key, body, status, code) in [
        ("Splunk nonsense", event.as_str(), 403, 4),
        (&other, &event, 403, 1),
        (&good, "", 400, 5),
        (&good, "  \n", 400, 5),
        (&good, "{", 400, 6),
        (&good, r#"{"event":{"actionId":"Process.Field.Add"}}"#, 400, 6),
    ] {
        let answer = send(&server, COLLECTOR, key, body.to_owned()).await.expect(status);
        assert_eq!((answer.json()["code"].clone(), answer.header("content-type")), (json!(code), "application/json"));
        assert!(answer.json()["text"].is_string());
    }
    let answer = server.stranger().post(COLLECTOR, &json!({})).await.expect(401);
    assert_eq!(answer.json(), json!({ "text": "Token is required", "code": 2 }));
    assert!(alerts(&server.client(), "").await.is_empty());
}

// S000-76, SX-08: the sender hears that all is well, so what was refused is kept where somebody will look, once.
#[tokio::test]
async fn what_is_refused_among_good_ones_is_a_dead_letter() {
    let server = server().await;
    let client = server.client();
    let key = key(&server, "ingest").await;
    let bad = audit_event_with("e-2", json!({ "details": null }));
    let torn = "{\"event\":{\"actionId\":\"Process.Field.Add\",\"details\":\"\\ud800\"}}";
    let body = format!("{}{}{torn}", wrapped(&audit_event("e-1")), wrapped(&bad));
    for _ in 0..2 {
        send(&server, COLLECTOR, &key, body.clone()).await.expect(200);
    }
    let letters = async || {
        let letters = client.get("/dead-letters?channel=azure-devops").await.expect(200).json();
        letters["items"].as_array().unwrap().clone()
    };
    let kept = letters().await;
    assert_eq!(kept.len(), 2, "{kept:?}");
    let letter = kept.iter().find(|letter| letter["payload"]["entry"] == bad).unwrap();
    assert_eq!((&letter["reason"], &letter["message_type"]), (&json!("details is required"), &json!("audit_entry")));
    let text = kept.iter().find_map(|letter| letter["payload"]["entry"].as_str()).unwrap();
    assert!(text.contains("\\ud800"), "as it came: {text}");
    let told = client.get("/events?type=azure-devops.rejected").await.expect(200).json();
    assert_eq!(told["items"].as_array().unwrap().len(), 2, "{told}");
    // Nothing is kept of what the sender knows to be refused, nor of what is about something else.
    client.post(INGEST, &json!([audit_event_with("e-3", json!({ "details": 7 }))])).await.problem(400);
    let elsewhere = audit_event_with("e-4", json!({ "actionId": "Git.RefUpdatePoliciesBypassed", "details": 7 }));
    client.post(INGEST, &json!([audit_event("e-1"), elsewhere])).await.expect(202);
    assert_eq!(letters().await.len(), 2);
    // Event Grid reads no answer: the same from its door.
    client
        .post(INGEST, &json!([audit_event("e-1"), audit_event_with("e-5", json!({ "details": 7 }))]))
        .await
        .expect(202);
    assert_eq!(letters().await.len(), 3);
    // As it was, it ends where it was; mended, it is an alert.
    let resubmit = |letter: &serde_json::Value| format!("/dead-letters/{}/resubmit", letter["id"].as_str().unwrap());
    assert_eq!(client.post(&resubmit(letter), &json!({ "payload": {} })).await.bad_fields(), ["payload.entry"]);
    client.post(&resubmit(letter), &json!({})).await.expect(201);
    deliver(&server.services, "azure-devops").await;
    let kept = letters().await;
    let letter = kept.iter().find(|letter| letter["payload"]["entry"] == bad).unwrap();
    assert_eq!(alerts(&client, "").await.len(), 1);
    let mended = json!({ "payload": { "entry": audit_event("e-2") } });
    client.post(&resubmit(letter), &mended).await.expect(201);
    deliver(&server.services, "azure-devops").await;
    assert_eq!((alerts(&client, "").await.len(), letters().await.len()), (2, 2));
}
