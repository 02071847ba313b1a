//! What happens to tickets is events, and rules hear of it.

use serde_json::json;

use super::{comment, desk, id_of, open};

// S004-45, S003-68: record and event in one transaction, one correlation id.
#[tokio::test]
async fn every_change_is_an_event_that_rules_match() {
    let (server, agent) = desk().await;
    let client = server.client();
    let rule = json!({ "pattern": { "eventType": [{ "prefix": "ticket." }] },
        "targets": [{ "channel": "inbox", "users": ["lead"] }],
        "title": "{{ eventType }} {{ data.status }}", "text": "{{ data.comment_text or data.issue_description }}" });
    client.put("/rules/desk", &rule).await.expect(201);
    let headers = [("content-type", "application/json"), ("x-correlation-id", "call-17")];
    let ticket = agent.post_with("/tickets", &headers, super::problem("c").to_string()).await.expect(201).json();
    comment(&agent, &ticket, "Tried restarting").await;
    client.patch(&format!("/tickets/{}", id_of(&ticket)), &json!({ "status": "in_progress" })).await.expect(200);
    let events = client.get("/events").await.expect(200).json();
    let seen: Vec<_> = events["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| {
            assert_eq!(event["data"]["ticket_id"], ticket["ticket_id"]);
            assert_eq!(event["subject"], format!("ticket/{}", id_of(&ticket)));
            assert_eq!(event["data"]["environment"], "poc");
            assert_eq!(event["outcome"]["notifications"][0]["user"], "lead");
            event["eventType"].as_str().unwrap().to_owned()
        })
        .collect();
    let mut sorted = seen.clone();
    sorted.sort();
    assert_eq!(sorted, ["ticket.commented", "ticket.created", "ticket.status_changed"]);
    let trace = client.get("/trace/call-17").await.expect(200).json();
    let kinds: Vec<_> = trace["items"].as_array().unwrap().iter().map(|step| step["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["event", "rule", "notification"]);
    assert!(trace.to_string().contains(&id_of(&ticket)));
}

#[tokio::test]
async fn what_is_refused_is_no_event() {
    let (server, agent) = desk().await;
    let ticket = open(&agent, "c").await;
    let before = server.client().stored().await;
    agent.post("/tickets", &json!({})).await.problem(400);
    server.client().patch(&format!("/tickets/{}", id_of(&ticket)), &json!({ "status": "resolved" })).await.problem(409);
    assert_eq!(server.client().stored().await, before);
}
