//! What an older Tidings wrote. `golden/format-1` was made by the last program of store format 1: a data directory after
//! a stop in order, a backup of the same, and the token that opens it. `golden/format-2` is the same directory as the last
//! program of format 2 left it: it opened it, took five events more, and was killed. `golden/format-3` is the same from the
//! beginning by the last program of format 3, with events apart from other items: stopped, started, and killed after five more.
//! So is `golden/format-4` by the last program of format 4, with events of a batch in sheaves.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::support::process::run;
use crate::support::{Client, TestServer};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/golden").join(name)
}

/// A server over what `fill` puts into its data directory.
async fn over(fill: impl FnOnce(&Path)) -> TestServer {
    over_with("format-1/token", fill).await
}

async fn over_with(token: &str, fill: impl FnOnce(&Path)) -> TestServer {
    TestServer::start_with(|config| {
        fill(&config.data_dir);
        std::fs::copy(golden(token), config.data_dir.join("admin.token")).unwrap();
    })
    .await
}

fn unpacked(format: u32, into: &Path) {
    let mut command = Command::new("tar");
    let packed = golden(&format!("format-{format}/data.tar.gz"));
    assert!(command.arg("-xzf").arg(packed).arg("-C").arg(into).status().unwrap().success());
    assert_eq!(std::fs::read_to_string(into.join("FORMAT")).unwrap(), format!("{format}\n"));
}

fn restored(into: &Path) {
    let directory = tempfile::tempdir().unwrap();
    let mut backup = Vec::new();
    let packed = std::fs::File::open(golden("format-1/backup.gz")).unwrap();
    flate2::read::GzDecoder::new(packed).read_to_end(&mut backup).unwrap();
    assert!(backup.starts_with(b"tidings backup 1\n"));
    std::fs::write(directory.path().join("old"), backup).unwrap();
    run(directory.path(), &["restore", "old", "--data", into.to_str().unwrap()]).expect(0);
}

async fn ids(client: &Client, query: &str) -> Vec<String> {
    let list = client.get(&format!("/events?{query}")).await.expect(200).json();
    list["items"].as_array().unwrap().iter().map(|event| event["eventId"].as_str().unwrap().to_owned()).collect()
}

/// Events that came at once are in no order.
async fn sorted(client: &Client, query: &str) -> Vec<String> {
    let mut ids = ids(client, query).await;
    ids.sort_by_key(|id| std::cmp::Reverse(id.rsplit('-').next().and_then(|n| n.parse::<u32>().ok())));
    ids
}

fn expected(name: &str, count: usize) -> Vec<String> {
    (1..=count).rev().map(|n| format!("{name}-{n}")).collect()
}

async fn holds_everything(server: &TestServer) {
    let client = server.client();
    assert_eq!(ids(&client, "correlationId=old-correlation&limit=100").await, expected("old", 12));
    assert_eq!(sorted(&client, "type=many&source=format-1&limit=100").await, expected("many", 30));
    let event = client.get("/events/old-7").await.expect(200).json();
    assert_eq!((&event["subject"], &event["data"]), (&json!("s7"), &json!({ "n": 7 })));
    assert_eq!(event["outcome"]["rules"][0]["name"], "old-rule", "{event}");
    assert_eq!(client.get("/rules/old-rule").await.expect(200).json()["origin"], "api");
    let messages = client.get("/api/messages?status=created&message_type=reminder").await.expect(200).json();
    assert_eq!(messages["items"][0]["payload"]["text"], "kept since format 1", "{messages}");
    let metrics = client.get("/api/metrics").await.expect(200).json();
    assert_eq!(metrics["counts"]["created"], 1);
    assert_eq!(client.get("/api/schedules/old-schedule").await.expect(200).json()["timezone"], "Europe/Berlin");
    assert_eq!(client.get("/audit-log/verify").await.expect(200).json()["ok"], true);
    assert!(!client.get("/trace/old-correlation").await.expect(200).json()["items"].as_array().unwrap().is_empty());
}

async fn goes_on(server: TestServer) {
    holds_everything(&server).await;
    assert_eq!(std::fs::read_to_string(server.data_dir().join("FORMAT")).unwrap(), "5\n");
    let client = server.client();
    // It is a duplicate, and what is new is stored beside it, found by the old rule, and there after a restart.
    let again = json!({ "eventId": "old-1", "eventType": "old.kind", "source": "format-1" });
    let told = client.post("/events", &again).await.expect(202).json();
    assert_eq!(told["duplicates"], 1, "{told}");
    let new: Vec<Value> = (1..=20).map(|n| json!({ "eventId": format!("new-{n}"), "eventType": "old.new" })).collect();
    assert_eq!(client.post("/events", &new.into()).await.expect(202).json()["accepted"], 20);
    client.delete("/rules/old-rule").await.expect(204);
    let server = server.restart().await;
    let client = server.client();
    assert_eq!(ids(&client, "type=old.new&limit=100").await.len(), 20);
    assert_eq!(ids(&client, "correlationId=old-correlation&limit=100").await, expected("old", 12));
    client.get("/rules/old-rule").await.problem(404);
    let inbox = client.get("/notifications?user=ana&limit=100").await.expect(200).json();
    let new = inbox["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry["title"].as_str().unwrap().starts_with("old.new"))
        .count();
    assert_eq!(new, 20, "{inbox}");
    assert_eq!(client.get("/audit-log/verify").await.expect(200).json()["ok"], true);
}

// SX-23: an older format is read, and goes on as this one.
#[tokio::test]
async fn a_data_directory_of_format_1_is_opened_and_goes_on() {
    goes_on(over(|data| unpacked(1, data)).await).await;
}

#[tokio::test]
async fn a_data_directory_of_format_2_is_opened_and_goes_on() {
    let server = over(|data| unpacked(2, data)).await;
    assert_eq!(sorted(&server.client(), "type=two").await, expected("two", 5), "what was in the journal");
    goes_on(server).await;
}

#[tokio::test]
async fn a_data_directory_of_format_3_is_opened_and_goes_on() {
    let server = over_with("format-3/token", |data| unpacked(3, data)).await;
    assert_eq!(sorted(&server.client(), "type=three").await, expected("three", 5), "what was in the log");
    goes_on(server).await;
}

#[tokio::test]
async fn a_data_directory_of_format_4_is_opened_and_goes_on() {
    let server = over_with("format-4/token", |data| unpacked(4, data)).await;
    assert_eq!(sorted(&server.client(), "type=four").await, expected("four", 5), "what was in the log");
    goes_on(server).await;
}

#[tokio::test]
async fn a_backup_of_format_1_is_restored_and_goes_on() {
    goes_on(over(restored).await).await;
}

// A process that died while it made the keyspace that format 1 does not have: it is made again.
#[tokio::test]
async fn an_update_that_was_broken_off_is_carried_on() {
    for begun in [&["tables"][..], &["tables", "v0"], &[]] {
        let server = over(|data| {
            unpacked(1, data);
            std::fs::write(data.join("FORMAT"), "2\n").unwrap();
            let keyspace = data.join("store/keyspaces/3");
            assert!(!keyspace.exists(), "format 1 has two");
            std::fs::create_dir(&keyspace).unwrap();
            for name in begun {
                match *name {
                    "tables" => std::fs::create_dir(keyspace.join(name)).unwrap(),
                    name => std::fs::write(keyspace.join(name), "half").unwrap(),
                }
            }
        })
        .await;
        holds_everything(&server).await;
    }
}
