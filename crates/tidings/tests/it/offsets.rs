//! A time whose offset from UTC is a day or more means another day than the one it names: no door takes one.

use serde_json::{Value, json};

use crate::support::{Answer, Client, TestServer};

/// Every door at which somebody names a time, asked with this one: which of them it is, what it answers, and the fields
/// it names when it refuses.
async fn doors(client: &Client, at: &str) -> Vec<(&'static str, Answer)> {
    let message = json!({ "message_type": "reminder", "payload": { "text": "x" }, "deliver_at": at });
    let schedule = json!({ "message_type": "reminder", "payload": { "text": "x" }, "at": at });
    let broker = json!({ "ScheduledEnqueueTimeUtc": at }).to_string();
    let query = at.replace('+', "%2B").replace(':', "%3A");
    let list = |path: &str, end: &str| format!("{path}?{end}={query}");
    let mut answers = vec![
        ("deliver_at", client.post("/api/messages", &message).await),
        ("at", client.put("/api/schedules/once", &schedule).await),
        ("expires_at", client.post("/tokens", &json!({ "scopes": ["read"], "expires_at": at })).await),
        ("eventTimestamp", client.post("/events", &json!({ "eventType": "a", "eventTimestamp": at })).await),
        ("", client.post_with("/bus/q/messages", &[("brokerproperties", &broker)], "x").await),
    ];
    for path in ["/events", "/api/messages", "/audit-log", "/dead-letters"] {
        answers.push(("from", client.get(&list(path, "from")).await));
        answers.push(("to", client.get(&list(path, "to")).await));
    }
    answers
}

#[tokio::test]
async fn an_offset_is_less_than_a_day_at_every_door() {
    let server = TestServer::start().await;
    let client = server.client();
    client.put("/bus/q", &json!({})).await.expect(201);
    for offset in ["+23:59", "-23:59"] {
        for (field, answer) in doors(&client, &format!("2026-04-16T12:00:00{offset}")).await {
            assert!((200..300).contains(&answer.status), "{field} {offset} {}", answer.text());
        }
        client.delete("/api/schedules/once").await.expect(204);
    }
    for offset in ["+24:00", "-24:00", "+25:00", "-25:00", "+2500"] {
        for (field, answer) in doors(&client, &format!("2026-04-16T12:00:00{offset}")).await {
            assert_eq!(answer.status, 400, "{field} {offset} {}", answer.text());
            let fields: Value = answer.json()["errors"].clone();
            assert!(
                fields.to_string().contains(if field.is_empty() { "ScheduledEnqueueTimeUtc" } else { field }),
                "{fields}"
            );
        }
    }
}
