//! Reading the configuration again while the server runs.

use rustix::process::Signal;
use serde_json::json;

use crate::support::client::Client;
use crate::support::process::Served;

const RULE: &str = "[[rules]]\nname = \"loud\"\npattern = { eventType = [\"a\"] }\ntargets = [{ channel = \"ntfy\", topic = \"ops\" }]\n";

fn start(text: &str) -> (tempfile::TempDir, Served, Client) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("tidings.toml"), text).unwrap();
    let served = Served::start(directory.path());
    let token = std::fs::read_to_string(directory.path().join("tidings-data/admin.token")).unwrap();
    let client = Client::new(&served.url, Some(token.trim()));
    (directory, served, client)
}

// SX-23
#[tokio::test]
async fn a_reload_changes_what_can_change_and_names_the_rest() {
    let (directory, served, client) = start("");
    let file = directory.path().join("tidings.toml");
    client.get("/rules/loud").await.problem(404);

    std::fs::write(&file, format!("stage = \"prod\"\n[limits]\nbatch_events = 2\n{RULE}")).unwrap();
    let answer = client.post("/admin/reload", &json!({})).await.expect(200).json();
    assert_eq!(answer["changed"], json!(["limits.batch_events", "rules"]));
    assert_eq!(answer["needs_restart"], json!(["stage"]));
    client.get("/rules/loud").await.expect(200);
    // Read again, it still says what is not in force.
    let answer = client.post("/admin/reload", &json!({})).await.expect(200).json();
    assert_eq!((&answer["changed"], &answer["needs_restart"]), (&json!([]), &json!(["stage"])));
    let event = json!({ "eventType": "a" });
    client.post("/events", &json!([event, event, event])).await.problem(413);
    client.post("/events", &json!([event, event])).await.expect(202);

    // A bad file changes nothing, and says where it is bad.
    std::fs::write(&file, "[limits]\nbatch_evnts = 5\n").unwrap();
    let problem = client.post("/admin/reload", &json!({})).await.problem(400);
    assert!(problem["detail"].as_str().unwrap().contains("batch_evnts"), "{problem}");
    client.get("/rules/loud").await.expect(200);

    std::fs::write(&file, "").unwrap();
    let answer = client.post("/admin/reload", &json!({})).await.expect(200).json();
    assert_eq!(answer["needs_restart"], json!([]), "what is in force is what the file says");
    client.get("/rules/loud").await.problem(404);
    let log = client.get("/audit-log?action=config.reload").await.expect(200).json();
    assert_eq!(log["items"].as_array().unwrap().len(), 3, "{log}");
    served.stop();
}

#[tokio::test]
async fn a_hangup_reloads_too() {
    let (directory, mut served, client) = start("");
    std::fs::write(directory.path().join("tidings.toml"), RULE).unwrap();
    served.running.signal(Signal::HUP);
    served.running.wait_for("configuration reloaded");
    client.get("/rules/loud").await.expect(200);
    std::fs::write(directory.path().join("tidings.toml"), "nonsense").unwrap();
    served.running.signal(Signal::HUP);
    served.running.wait_for("the configuration was not reloaded");
    client.get("/rules/loud").await.expect(200);
    served.stop();
}

// What the API made is back when the file's rule of its name is gone, at once and not only after a restart.
#[tokio::test]
async fn a_rule_of_the_api_comes_back_from_behind_one_of_the_file() {
    let (directory, served, client) = start("");
    let file = directory.path().join("tidings.toml");
    let rule = json!({ "pattern": { "eventType": ["a"] }, "targets": [{ "channel": "inbox", "users": ["u"] }] });
    client.put("/rules/loud", &rule).await.expect(201);
    let origin = async || client.get("/rules/loud").await.expect(200).json()["origin"].as_str().unwrap().to_owned();
    for _ in 0..2 {
        std::fs::write(&file, RULE).unwrap();
        client.post("/admin/reload", &json!({})).await.expect(200);
        assert_eq!(origin().await, "file");
        std::fs::write(&file, "").unwrap();
        client.post("/admin/reload", &json!({})).await.expect(200);
        assert_eq!(origin().await, "api");
    }
    client.send(&json!({ "eventId": "e1", "eventType": "a" })).await;
    let event = client.get("/events/e1").await.expect(200).json();
    assert_eq!(event["outcome"]["notifications"][0]["user"], "u", "{event}");
    client.delete("/rules/loud").await.expect(204);
    std::fs::write(&file, RULE).unwrap();
    client.post("/admin/reload", &json!({})).await.expect(200);
    std::fs::write(&file, "").unwrap();
    client.post("/admin/reload", &json!({})).await.expect(200);
    client.get("/rules/loud").await.problem(404);
    served.stop();
}

const SCHEDULE: &str = "[[schedules]]\nname = \"nightly\"\nevery = \"2h\"\nmessage_type = \"scheduled_hello\"\n\
    payload = { text = \"the file's\" }\n";

// A schedule of the API comes back as a rule does, and the audit log names it (SX-16, SX-19).
#[tokio::test]
async fn a_schedule_of_the_api_comes_back_from_behind_one_of_the_file() {
    let (directory, served, client) = start("");
    let file = directory.path().join("tidings.toml");
    let reload = async |text: &str| {
        std::fs::write(&file, text).unwrap();
        client.post("/admin/reload", &json!({})).await.expect(200);
    };
    let theirs = json!({ "every": "1h", "message_type": "scheduled_hello", "payload": { "text": "the API's" } });
    client.put("/api/schedules/nightly", &theirs).await.expect(201);
    for _ in 0..2 {
        reload(SCHEDULE).await;
        let shown = client.get("/api/schedules/nightly").await.expect(200).json();
        assert_eq!((&shown["origin"], &shown["every"]), (&json!("file"), &json!("2h")));
        client.delete("/api/schedules/nightly").await.problem(409);
        reload("").await;
        let shown = client.get("/api/schedules/nightly").await.expect(200).json();
        assert_eq!((&shown["origin"], &shown["every"]), (&json!("api"), &json!("1h")));
        assert_eq!(shown["payload"]["text"], "the API's");
        assert_eq!(shown["next_runs"].as_array().map(Vec::len), Some(5), "{shown}");
    }
    let log = client.get("/audit-log?entity=schedule&entityId=nightly").await.expect(200).json();
    let what: Vec<_> = log["items"].as_array().unwrap().iter().map(|entry| entry["details"]["what"].clone()).collect();
    assert_eq!(what.len(), 5, "{log}");
    assert_eq!(what[0], "the file no longer has it, and the API's is back");
    assert_eq!(what[1], "the API's is put aside");
    // What the API takes away stays away.
    client.delete("/api/schedules/nightly").await.expect(204);
    reload(SCHEDULE).await;
    reload("").await;
    client.get("/api/schedules/nightly").await.problem(404);
    served.stop();
}
