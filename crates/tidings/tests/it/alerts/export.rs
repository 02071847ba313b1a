//! The export: everything, as a stream and into a file.

use std::path::Path;

use serde_json::{Value, json};
use tidings::alerts::record::ATTRIBUTES;

use super::{INGEST, audit_event, audit_event_with, server};
use crate::support::process::{Ended, run};
use crate::support::{Client, TestServer};

/// More than any page holds.
const MANY: usize = 2500;

async fn fill(client: &Client, count: usize) {
    let time = |n: usize| format!("2026-0{}-0{}T0{}:00:0{}Z", n % 2 + 1, n % 9 + 1, n % 7, n % 10);
    let events: Vec<_> =
        (0..count).map(|n| audit_event_with(&format!("e-{n:04}"), json!({ "timestamp": time(n) }))).collect();
    for batch in events.chunks(500) {
        client.post(INGEST, &batch.to_vec().into()).await.expect(202);
    }
}

// S000-28, S000-74: all rows, newest first, in each format.
#[tokio::test]
async fn all_rows_are_streamed_in_each_format() {
    let server = server().await;
    let client = server.client_for(&["read", "ingest"]).await;
    fill(&client, MANY).await;
    let lines = client.get("/alerts/export?format=jsonl").await.expect(200);
    assert_eq!(lines.header("content-type"), "application/x-ndjson");
    let rows: Vec<Value> = lines.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), MANY);
    let place = |row: &Value| (row["EventTimestamp"].as_i64().unwrap(), row["SortKey"].as_str().unwrap().to_owned());
    assert!(rows.iter().map(place).is_sorted_by(|a, b| a > b), "by time, and then by key");
    let ids: std::collections::BTreeSet<_> = rows.iter().map(|row| row["SortKey"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), MANY);
    let array = client.get("/alerts/export?format=json").await.expect(200).json();
    assert_eq!(array, Value::from(rows.clone()));
    let csv = client.get("/alerts/export").await.expect(200).text();
    assert_eq!(csv.split("\r\n").next().unwrap(), ATTRIBUTES.join(","));
    assert_eq!(csv.matches("\r\n").count(), MANY + 1);
    let some = client.get("/alerts/export?format=jsonl&startDate=2026-01-01&endDate=2026-01-09").await.text();
    assert_eq!(some.lines().count(), rows.iter().filter(|row| row["PartitionKey"] == "2026-01").count());
    assert_eq!(client.get("/alerts/export?format=json&startDate=2026-02-20").await.json(), json!([]));
}

#[tokio::test]
async fn bad_questions_are_refused() {
    let server = server().await;
    let client = server.client();
    for (query, fields) in [
        ("format=xml", vec!["format"]),
        ("startDate=x&format=y", vec!["startDate", "format"]),
        ("startDate=2026-02-02&endDate=2026-02-01", vec!["startDate"]),
        ("startDate=2010-01-01", vec!["startDate"]),
        ("limit=5", vec!["limit"]),
    ] {
        assert_eq!(client.get(&format!("/alerts/export?{query}")).await.bad_fields(), fields, "{query}");
    }
    // Years are no trouble.
    client.get("/alerts/export?startDate=2020-01-01").await.expect(200);
    server.client_for(&["ingest"]).await.get("/alerts/export").await.problem(403);
}

async fn export(server: &TestServer, directory: &Path, arguments: &[&str]) -> Ended {
    let (url, token) = (server.url.clone(), server.admin_token().to_owned());
    let mut all: Vec<String> = ["alerts", "export", "--url", &url, "--token", &token].map(String::from).to_vec();
    all.extend(arguments.iter().map(ToString::to_string));
    let directory = directory.to_owned();
    let run = move || run(&directory, &all.iter().map(String::as_str).collect::<Vec<_>>());
    tokio::task::spawn_blocking(run).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_writes_files_and_standard_output() {
    let server = server().await;
    let client = server.client();
    fill(&client, MANY).await;
    let directory = tempfile::tempdir().unwrap();
    for (format, name) in [("csv", "a.csv"), ("json", "a.json"), ("jsonl", "a.jsonl")] {
        let dates = ["--from", "2026-01-01", "--to", "2026-03-01", "--format", format, "-o", name];
        let ended = export(&server, directory.path(), &dates).await.expect(0);
        assert!(ended.stderr.contains(&format!("{MANY} alerts written to {name}")), "{ended:?}");
        assert!(ended.stdout.is_empty());
        let path = format!("/alerts/export?format={format}&startDate=2026-01-01");
        let expected = client.get(&path).await.expect(200).text();
        assert_eq!(std::fs::read_to_string(directory.path().join(name)).unwrap(), expected);
    }
    let ended = export(&server, directory.path(), &["--format", "jsonl", "--to", "2026-01-01"]).await.expect(0);
    assert!(ended.stdout.lines().all(|line| line.contains("2026-01")) && !ended.stdout.is_empty());
    // What is printed as JSON is the export itself, unless it says otherwise.
    let ended = export(&server, directory.path(), &["--json", "--to", "2026-01-01"]).await.expect(0);
    let printed: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert!(!printed.as_array().unwrap().is_empty());
    let ended = export(&server, directory.path(), &["--json", "--format", "csv", "--to", "2026-01-01"]).await.expect(0);
    assert!(ended.stdout.starts_with("PartitionKey,"), "{ended:?}");
    let mut names: Vec<_> = std::fs::read_dir(directory.path()).unwrap().map(|f| f.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["a.csv", "a.json", "a.jsonl"], "nothing is left behind");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_says_what_is_wrong() {
    let server = server().await;
    server.client().post(INGEST, &audit_event("e-1")).await.expect(202);
    let directory = tempfile::tempdir().unwrap();
    let ended = export(&server, directory.path(), &["--from", "2026-13-01"]).await.expect(2);
    assert!(ended.stderr.contains("--from") && ended.stderr.contains("must be a date as in 2026-01-31"), "{ended:?}");
    let ended = export(&server, directory.path(), &["--from", "2026-03-01", "--to", "2026-01-01"]).await.expect(1);
    assert!(ended.sentence().contains("--from must not be after --to"), "{ended:?}");
    let ended = export(&server, directory.path(), &["-o", "no/such/place.csv"]).await.expect(1);
    assert!(ended.sentence().contains("cannot write"), "{ended:?}");
    export(&server, directory.path(), &["--format", "xml"]).await.expect(2);
}
