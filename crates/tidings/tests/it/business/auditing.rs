//! The audit log's own promises: looked for by time, exported whole, and no change goes unnoticed.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tidings::audit::{Action, table};
use tidings_store::memory::Memory;
use tidings_store::{Change, Key, Store, Write};

use crate::support::{Client, TestServer, server};

struct Rig {
    server: TestServer,
    store: Arc<dyn Store>,
}

impl Rig {
    /// A server whose log has the first token's entry and `more` others, an hour apart.
    async fn start(more: usize) -> Self {
        let clock = server::clock();
        let store: Arc<dyn Store> = Arc::new(Memory::new(clock.clone()));
        let rig = Self { server: TestServer::over(Arc::clone(&store), clock).await, store };
        for number in 0..more {
            rig.server.clock.advance(Duration::from_secs(3600));
            let action = Action::new("door.open", "door", format!("d{number}")).details(json!({ "n": number }));
            let user = if number % 2 == 0 { "ann" } else { "bob" };
            rig.server.services.audit.record_with(user, "c", action, Vec::new()).await.unwrap();
        }
        rig
    }

    fn client(&self) -> Client {
        self.server.client()
    }

    async fn verify(&self) -> Value {
        self.client().get("/audit-log/verify").await.expect(200).json()
    }

    async fn write(&self, write: Write) {
        self.store.transact(vec![write]).await.unwrap();
    }

    async fn doors(&self, query: &str) -> Vec<String> {
        let list = self.client().get(&format!("/audit-log?limit=1000&{query}")).await.expect(200).json();
        list["items"].as_array().unwrap().iter().map(|entry| entry["entityId"].as_str().unwrap().to_owned()).collect()
    }
}

fn entry(seq: i64) -> Key {
    Key::with_sort("main", seq)
}

// S003-53
#[tokio::test]
async fn any_change_gap_or_cut_is_found() {
    let set = |name: &'static str, value: &str| Change::Set(name.into(), value.into());
    let damages: Vec<(&str, Vec<Write>)> = vec![
        ("entry 3 was changed", vec![Write::update(table(), entry(3), vec![set("user", "eve")])]),
        ("entry 3 was changed", vec![Write::update(table(), entry(3), vec![set("details", "{}")])]),
        ("entry 4 was changed", vec![Write::update(table(), entry(4), vec![set("previous", "x")])]),
        ("entry 3 is missing", vec![Write::delete(table(), entry(3))]),
        ("entry 1 is missing", vec![Write::delete(table(), entry(1))]),
        ("entries 6 to 6 are missing", vec![Write::delete(table(), entry(6))]),
        ("the log's head says 0 entries", vec![Write::delete(table(), entry(0))]),
        (
            "the log's head says 5 entries",
            vec![Write::update(table(), entry(0), vec![Change::Set("last".into(), 5_i64.into())])],
        ),
        ("the log's head was changed", vec![Write::update(table(), entry(0), vec![set("hash", "x")])]),
        (
            "lies before the beginning",
            vec![Write::update(table(), entry(0), vec![Change::Set("first".into(), 3_i64.into())])],
        ),
    ];
    for (says, writes) in damages {
        let rig = Rig::start(5).await;
        assert_eq!(rig.verify().await, json!({ "ok": true, "entries": 6 }));
        for write in writes {
            rig.write(write).await;
        }
        let found = rig.verify().await;
        assert_eq!(found["ok"], false, "{says}");
        assert!(found["problem"].as_str().unwrap().contains(says), "{found}");
    }
}

// S003-53: user, action, entity, time.
#[tokio::test]
async fn a_time_is_found_without_reading_the_rest() {
    let rig = Rig::start(48).await;
    // Entry d0 is of 13:00 on the first day.
    assert_eq!(rig.doors("from=2026-03-01T13:00:00Z&to=2026-03-01T15:00:00Z").await, ["d2", "d1", "d0"]);
    assert_eq!(rig.doors("from=2026-03-01T13:00:00.000001Z&to=2026-03-01T14:59:59Z").await, ["d1"]);
    assert_eq!(rig.doors("user=bob&from=2026-03-01T13:00:00Z&to=2026-03-01T16:00:00Z").await, ["d3", "d1"]);
    assert_eq!(rig.doors("action=door.open&entityId=d7").await, ["d7"]);
    assert_eq!(rig.doors("entity=door&to=2026-03-01T13:00:00Z").await, ["d0"]);
    assert_eq!(rig.doors("from=2027-01-01").await, [""; 0]);
    assert_eq!(rig.doors("to=2026-02-01").await, [""; 0]);
    assert_eq!(rig.doors("from=2026-03-02&to=2026-03-02").await.len(), 24);
    let refused = rig.client().get("/audit-log?from=2026-03-03&to=2026-03-02").await;
    assert_eq!(refused.bad_fields(), ["from"]);
}

// The clock may be set back; the log's times do not run backward.
#[tokio::test]
async fn times_in_the_log_never_run_backward() {
    let rig = Rig::start(2).await;
    rig.server.clock.jump_to("2026-01-01T00:00:00Z".parse().unwrap());
    let action = Action::new("door.open", "door", "late");
    let entry = rig.server.services.audit.record_with("ann", "c", action, Vec::new()).await.unwrap();
    assert_eq!(entry.at.to_string(), "2026-03-01T14:00:00Z");
    assert_eq!(rig.doors("from=2026-03-01T14:00:00Z").await, ["late", "d1"]);
    assert_eq!(rig.verify().await["ok"], true);
}

// SX-19
#[tokio::test]
async fn the_whole_log_is_exported_oldest_first() {
    let rig = Rig::start(1200).await;
    let csv = rig.client().get("/audit-log/export").await.expect(200);
    assert_eq!(csv.header("content-type"), "text/csv; charset=utf-8");
    let text = csv.text();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 1202);
    assert!(
        lines[0].starts_with("seq,time,user,action,entity,entityId,correlationId,details,previous,hash"),
        "{}",
        lines[0]
    );
    assert!(lines[1].starts_with("1,") && lines[1201].starts_with("1201,"));
    let jsonl = rig.client().get("/audit-log/export?format=jsonl&user=bob&to=2026-03-02").await.expect(200).text();
    let entries: Vec<Value> = jsonl.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(entries.iter().all(|entry| entry["user"] == "bob"));
    assert_eq!((entries.len(), &entries[0]["entityId"]), (17, &json!("d1")));
    assert_eq!(rig.client().get("/audit-log/export?format=pdf&x=1").await.bad_fields(), ["x", "format"]);
    assert_eq!(rig.client().get("/audit-log/export?format=pdf").await.bad_fields(), ["format"]);
    rig.server.client_for(&["ingest"]).await.get("/audit-log/export").await.problem(403);
}

// S003-53: for ever, unless somebody wants less; and then the rest still proves itself.
#[tokio::test]
async fn old_entries_go_and_the_rest_is_still_whole() {
    let rig = Rig::start(300).await;
    let audit = &rig.server.services.audit;
    let before = "2026-03-08T12:00:00Z".parse().unwrap();
    assert_eq!(audit.expire(before).await.unwrap(), 168);
    assert_eq!(audit.expire(before).await.unwrap(), 0);
    assert_eq!(rig.verify().await, json!({ "ok": true, "entries": 133 }));
    assert_eq!(rig.doors("to=2026-03-08T12:00:00Z").await, ["d167"]);
    audit.record_with("ann", "c", Action::new("a", "b", "c"), Vec::new()).await.unwrap();
    assert_eq!(rig.verify().await, json!({ "ok": true, "entries": 134 }));
    rig.write(Write::delete(table(), entry(169))).await;
    assert_eq!(rig.verify().await["ok"], false, "nobody else may remove the first");
    // All but the last can go.
    let late = "2030-01-01T00:00:00Z".parse().unwrap();
    let rig = Rig::start(3).await;
    assert_eq!(rig.server.services.audit.expire(late).await.unwrap(), 3);
    assert_eq!(rig.verify().await, json!({ "ok": true, "entries": 1 }));
}
