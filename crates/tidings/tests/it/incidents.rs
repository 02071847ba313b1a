//! Incidents: from a dead letter to the people who look after it, on a clock that the test moves.

use std::time::Duration;

use serde_json::{Value, json};
use tidings::config::monitors::{Metric, Monitor, Severity};
use tidings::config::rules::{Channel, Target};

use crate::channels::http_server::Server;
use crate::messages::{deliver, hello, make, published, server_with};
use crate::support::{Client, TestServer};

fn to(user: &str) -> Target {
    Target { channel: Some(Channel::Inbox), users: vec![user.to_owned()], ..Target::default() }
}

async fn wait(server: &TestServer, seconds: u64) {
    server.clock.advance(Duration::from_secs(seconds));
    server.services.incidents.evaluate().await.unwrap();
}

async fn incidents(client: &Client, query: &str) -> Vec<Value> {
    let list = client.get(&format!("/incidents{query}")).await.expect(200).json();
    list["items"].as_array().unwrap().clone()
}

async fn told(client: &Client, user: &str) -> Vec<String> {
    let list = client.get(&format!("/notifications?user={user}")).await.expect(200).json();
    let titles = list["items"].as_array().unwrap().iter().rev();
    titles.map(|entry| entry["title"].as_str().unwrap().to_owned()).collect()
}

/// Puts a message into the dead letters of a new queue.
async fn spoil(client: &Client, queue: &str) {
    client.put(&format!("/bus/{queue}"), &json!({ "kind": "queue" })).await.expect(201);
    client.post_as(&format!("/bus/{queue}/messages"), "text/plain", "poison".to_owned()).await.expect(201);
    let got = client.post(&format!("/bus/{queue}/receive"), &json!({ "max": 1 })).await.expect(200).json();
    let item = json!([{ "lockToken": got["messages"][0]["lockToken"], "action": "deadletter", "reason": "broken" }]);
    client.post(&format!("/bus/{queue}/settle"), &item).await.expect(200);
}

// S003-105, S003-108, SX-17, SX-18
#[tokio::test]
async fn a_dead_letter_is_raised_escalated_acknowledged_and_resolved() {
    let server = TestServer::start().await;
    let client = server.client();
    spoil(&client, "jobs").await;
    wait(&server, 0).await;
    wait(&server, 299).await;
    assert_eq!(incidents(&client, "").await, [] as [Value; 0]);
    wait(&server, 1).await;
    wait(&server, 1).await;
    let raised = incidents(&client, "?state=open").await;
    assert_eq!(raised.len(), 1, "once");
    assert_eq!(raised[0]["monitor"], "dead-letters");
    assert_eq!(raised[0]["entity"], "jobs");
    assert_eq!(raised[0]["severity"], "critical");
    assert_eq!(told(&client, "on-call").await, ["[critical] jobs has 1 dead letters"]);

    wait(&server, 898).await;
    assert_eq!(told(&client, "on-call").await.len(), 1);
    wait(&server, 1).await;
    let all = told(&client, "on-call").await;
    assert_eq!(all[1..], ["[critical] Not acknowledged: jobs has 1 dead letters"]);

    let id = raised[0]["incidentId"].as_str().unwrap();
    let answer =
        client.post(&format!("/incidents/{id}/acknowledge"), &json!({ "note": "on it" })).await.expect(200).json();
    assert_eq!((&answer["state"], &answer["note"]), (&json!("acknowledged"), &json!("on it")));
    let again = client.post(&format!("/incidents/{id}/acknowledge"), &json!({})).await.expect(200).json();
    assert_eq!(again["acknowledgedAt"], answer["acknowledgedAt"]);
    wait(&server, 5000).await;
    assert_eq!(told(&client, "on-call").await.len(), 2, "acknowledged, it does not escalate");

    client.post("/bus/jobs/$deadletterqueue/purge", &json!({})).await.expect(200);
    wait(&server, 10).await;
    assert_eq!(incidents(&client, "?state=resolved").await.len(), 1);
    assert_eq!(incidents(&client, "?state=acknowledged").await.len(), 0);
    assert!(told(&client, "on-call").await[2].contains("Resolved"));
    let notices = client.get("/notifications?user=on-call").await.expect(200).json();
    let asks = |notice: &Value| notice["text"].as_str().unwrap().contains("Acknowledge: POST /incidents/");
    let asking: Vec<_> = notices["items"].as_array().unwrap().iter().map(asks).collect();
    assert_eq!(asking, [false, true, true], "there is nothing left to acknowledge: {notices}");
    let over = client.post(&format!("/incidents/{id}/acknowledge"), &json!({})).await.expect(409).json();
    assert!(over["detail"].as_str().unwrap().contains("resolved"));
    // The whole story under one id, and who acknowledged.
    let trace = client.get(&format!("/trace/{id}")).await.expect(200).json().to_string();
    for word in ["incident.raised", "incident.escalated", "incident.acknowledged", "incident.resolved"] {
        assert!(trace.contains(word), "{word}: {trace}");
    }
    let audit = client.get("/audit-log?action=incident.acknowledge").await.expect(200).json();
    assert_eq!(audit["items"][0]["entityId"], *id);
}

#[tokio::test]
async fn a_restart_forgets_neither_the_time_nor_the_incident() {
    let server = TestServer::start().await;
    spoil(&server.client(), "jobs").await;
    wait(&server, 0).await;
    wait(&server, 200).await;
    let server = server.restart().await;
    wait(&server, 100).await;
    assert_eq!(incidents(&server.client(), "?state=open").await.len(), 1);
    let server = server.restart().await;
    wait(&server, 60).await;
    assert_eq!(incidents(&server.client(), "").await.len(), 1);
    wait(&server, 840).await;
    assert_eq!(incidents(&server.client(), "").await[0]["escalations"], 1);
}

// S003-106
#[tokio::test]
async fn a_path_is_followed_step_by_step_and_stays_at_its_end() {
    let server = TestServer::start_with(|config| {
        config.monitors = vec![Monitor {
            name: "crowded".to_owned(),
            metric: Some(Metric::ActiveMessages),
            entity: Some("jobs".to_owned()),
            above: 1.0,
            for_seconds: 60,
            severity: Severity::Warning,
            acknowledge_seconds: 100,
            targets: vec![to("first")],
            escalate: vec![to("second"), to("third")],
            ..Monitor::default()
        }];
    })
    .await;
    let client = server.client();
    client.put("/bus/jobs", &json!({ "kind": "queue" })).await.expect(201);
    for _ in 0..2 {
        client.post_as("/bus/jobs/messages", "text/plain", "x".to_owned()).await.expect(201);
    }
    wait(&server, 0).await;
    for seconds in [60, 100, 100, 100] {
        wait(&server, seconds).await;
    }
    let count = async |user: &str| told(&client, user).await.len();
    assert_eq!((count("first").await, count("second").await, count("third").await), (1, 1, 2));
    assert_eq!(incidents(&client, "").await[0]["escalations"], 3);
}

#[tokio::test]
async fn what_is_wrong_is_said() {
    let server = TestServer::start().await;
    let client = server.client();
    let problem = client.get("/incidents?state=shut&limit=0").await.expect(400).json();
    let fields: Vec<_> = problem["errors"].as_array().unwrap().iter().map(|error| error["field"].clone()).collect();
    assert_eq!(fields, ["state", "limit"]);
    client.get("/incidents?what=1").await.expect(400);
    client.get("/incidents/none").await.expect(404);
    client.post("/incidents/none/acknowledge", &json!({})).await.expect(404);
    client.post("/incidents/none/acknowledge", &json!({ "note": "n".repeat(1001) })).await.expect(400);
    client.post("/incidents/none/acknowledge", &json!({ "note": "n".repeat(1000) })).await.expect(404);
    server.client_for(&["read"]).await.post("/incidents/none/acknowledge", &json!({})).await.expect(403);
    server.client_for(&["ingest"]).await.get("/incidents").await.expect(403);
}

// SX-17: what tells people are ordinary rules.
#[tokio::test]
async fn the_rules_of_monitors_can_be_seen() {
    let server = TestServer::start().await;
    let rule = server.client().get("/rules/monitor-dead-letters").await.expect(200).json();
    assert_eq!(rule["targets"][0]["users"], json!(["on-call"]));
}

// S003-102: the time of one queue is watched, and told as what it was.
#[tokio::test]
async fn the_latency_of_one_entity_raises_an_incident() {
    let slow = |name: &str, entity: Option<&str>, above: f64| Monitor {
        name: name.to_owned(),
        metric: Some(Metric::LatencyP99Seconds),
        entity: entity.map(ToOwned::to_owned),
        above,
        for_seconds: 10,
        targets: vec![to("ops")],
        ..Monitor::default()
    };
    let server = TestServer::start_with(|config| {
        config.monitors = vec![
            slow("slow", Some("slow"), 2.0),
            slow("quick", Some("quick"), 2.0),
            slow("slower", Some("slow"), 3.0),
            slow("any", None, 2.0),
        ];
    })
    .await;
    let client = server.client();
    for queue in ["quick", "slow"] {
        client.put(&format!("/bus/{queue}"), &json!({})).await.expect(201);
    }
    client.post_as("/bus/slow/messages", "text/plain", "x".to_owned()).await.expect(201);
    server.clock.advance(Duration::from_millis(2500));
    client.post_as("/bus/quick/messages", "text/plain", "x".to_owned()).await.expect(201);
    for queue in ["quick", "slow"] {
        let got = client.post(&format!("/bus/{queue}/receive"), &json!({})).await.expect(200).json();
        assert_eq!(got["messages"].as_array().unwrap().len(), 1);
    }
    wait(&server, 0).await;
    wait(&server, 10).await;
    let mut raised: Vec<_> = incidents(&client, "?state=open").await;
    raised.sort_by_key(|incident| incident["monitor"].as_str().unwrap().to_owned());
    let shown: Vec<_> = raised.iter().map(|one| (&one["monitor"], &one["entity"], &one["value"])).collect();
    // All of them took 2.5 s; whoever watches everything hears of it once, by type.
    assert_eq!(
        shown,
        [(&json!("any"), &json!("type untyped"), &json!(2.5)), (&json!("slow"), &json!("slow"), &json!(2.5))]
    );
    wait(&server, 600).await;
    assert_eq!(incidents(&client, "?state=open").await.len(), 0);
}

// S003-107: the seed's line is at 5 s, and what is right before it is not beyond it.
#[tokio::test]
async fn the_end_to_end_latency_is_told_apart_at_its_threshold() {
    let sink = Server::start(|_| published("n")).await;
    for (took, raised) in [(4999, false), (5000, false), (5001, true)] {
        let server = server_with(&sink).await;
        for _ in 0..7 {
            make(&server.client(), &hello()).await;
            server.clock.advance(Duration::from_millis(took));
            deliver(&server.services, "ntfy").await;
            wait(&server, 55).await;
        }
        let open = incidents(&server.client(), "?state=open").await;
        let found = open.iter().find(|one| one["monitor"] == "latency-p99" && one["entity"] == "end-to-end");
        assert_eq!(found.is_some(), raised, "{took}: {open:?}");
        let value = found.map_or(5.001, |one| one["value"].as_f64().unwrap());
        assert!((5.001..=5.501).contains(&value), "{value}");
    }
}
