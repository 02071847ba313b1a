//! What has expired is gone at once, by the clock.

use std::time::Duration;

use serde_json::json;

use crate::support::TestServer;

const DAY: Duration = Duration::from_secs(86_400);

// SX-05, SX-26: invisible at once, whether or not it has been swept.
#[tokio::test]
async fn after_90_days_an_event_is_gone_from_every_list() {
    let server = TestServer::start().await;
    let client = server.client();
    client.send(&json!({ "eventId": "old", "eventType": "a", "source": "s", "correlationId": "c" })).await;
    server.clock.advance(DAY);
    client.send(&json!({ "eventId": "new", "eventType": "a", "source": "s", "correlationId": "c" })).await;
    let lists = ["/events", "/events?type=a", "/events?type=a*", "/events?source=s", "/events?correlationId=c"];
    server.clock.advance(DAY * 88 + (DAY - Duration::from_secs(1)));
    for list in lists {
        assert_eq!(client.ids(list).await, ["new", "old"], "{list} a second before");
    }
    client.get("/events/old").await.expect(200);
    server.clock.advance(Duration::from_secs(1));
    for list in lists {
        assert_eq!(client.ids(list).await, ["new"], "{list} after 90 days");
    }
    client.get("/events/old").await.problem(404);
    let trace = client.get("/trace/c").await.expect(200).json();
    assert_eq!(trace["items"].as_array().unwrap().len(), 1);
    server.clock.advance(DAY);
    for list in lists {
        assert!(client.ids(list).await.is_empty(), "{list}");
    }
}

// SX-05: from when it came, not from what it says: an old event is kept as long as a new one.
#[tokio::test]
async fn retention_counts_from_the_arrival() {
    let server = TestServer::start().await;
    let event = json!({ "eventId": "e", "eventType": "a", "eventTimestamp": "2020-01-01T00:00:00Z" });
    server.client().send(&event).await;
    server.clock.advance(DAY * 89);
    assert_eq!(server.client().stored().await, ["e"]);
}

// SX-05: a policy of its own.
#[tokio::test]
async fn the_time_events_are_kept_can_be_configured() {
    let server = TestServer::start_with(|config| config.retention.events_days = 1).await;
    server.client().send(&json!({ "eventId": "e", "eventType": "a" })).await;
    server.clock.advance(DAY);
    assert!(server.client().stored().await.is_empty());
    // Its id is free again.
    server.client().send(&json!({ "eventId": "e", "eventType": "a" })).await;
}

// SX-05: a day on record lives as long as its latest event.
#[tokio::test]
async fn a_day_that_gets_a_late_event_is_listed_as_long_as_that() {
    let server = TestServer::start().await;
    let late = |id: &str| json!({ "eventId": id, "eventType": "a", "eventTimestamp": "2026-02-01T00:00:00Z" });
    server.client().send(&late("first")).await;
    server.clock.advance(DAY * 60);
    server.client().send(&late("second")).await;
    server.clock.advance(DAY * 89);
    assert_eq!(server.client().stored().await, ["second"]);
}

// SX-19: the log of what was done outlives what it was done to.
#[tokio::test]
async fn the_audit_log_is_kept() {
    let server = TestServer::start().await;
    server.clock.advance(DAY * 4000);
    assert_eq!(server.client().get("/audit-log").await.json()["items"].as_array().unwrap().len(), 1);
}

// S002-73, SX-05: what expires is in the archive before it is removed, without its secrets; what nobody asked for is not.
#[tokio::test]
async fn what_expires_is_archived_before_it_is_removed() {
    let server = TestServer::start_with(|config| {
        config.delivery.enabled = false;
        config.retention.archive = vec!["messages".to_owned()];
    })
    .await;
    let (client, services) = (server.client(), &server.services);
    let rule = json!({ "pattern": { "eventType": ["a"] },
        "targets": [{ "channel": "webhook", "url": "https://hooks.example/x", "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" }] });
    client.put("/rules/hook", &rule).await.expect(201);
    client.send(&json!({ "eventId": "e", "eventType": "a" })).await;
    let hello = json!({ "message_type": "scheduled_hello", "payload": { "text": "hello world" } });
    let made = client.post("/api/messages", &hello).await.expect(201).json();
    // What waits does not expire; what has ended does.
    for message in client.get("/api/messages").await.expect(200).json()["items"].as_array().unwrap() {
        let cancel = format!("/api/messages/{}/cancel", message["message_id"].as_str().unwrap());
        client.post(&cancel, &json!({})).await.expect(200);
    }
    let files = tidings::archive::Files::of(&services.config, &services.clock).unwrap();
    let embedded = services.embedded.as_ref().unwrap();
    server.clock.advance(DAY * 89);
    let directory = services.config.data_dir.join("archive");
    // No more than counts of what ended on the first day.
    embedded.sweep_into(Some(&files), 1000).await.unwrap();
    assert!(!directory.exists(), "nothing before its time");
    server.clock.advance(DAY * 2);
    assert!(embedded.sweep_into(Some(&files), 1000).await.unwrap() >= 3);
    let names: Vec<_> = std::fs::read_dir(&directory).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(names, ["rez-agent-messages-dev-2026-05.jsonl"], "messages alone");
    let text = std::fs::read_to_string(directory.join(&names[0])).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(
        lines.iter().any(|line| line["message_id"] == made["message_id"] && line["payload"]["text"] == "hello world")
    );
    assert!(!text.contains("whsec"), "{text}");
    assert_eq!(embedded.sweep_into(Some(&files), 1000).await.unwrap(), 0, "once");
}
