//! Fan-outs beyond one transaction: durable, resumed after a crash, each recipient exactly once.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tidings::app::tables;
use tidings::config::Config;
use tidings::inbox::{Entry, map, record as inbox};
use tidings::ingest::{Draft, Ingest};
use tidings::rules::fanout::Fanout;
use tidings::rules::notice::Settings;
use tidings::rules::{Origin, Rules, read};
use tidings_core::envelope::{self, Defaults};
use tidings_core::time::{Clock, ManualClock};
use tidings_store::embedded::{Embedded, Options};
use tidings_store::faults::{Fault, Faulty};
use tidings_store::{Query, Store, Write};
use tokio::sync::watch;

use super::Rig;
use crate::support::server;

/// Carries the event's job on beside the server's own worker, until it is done.
async fn done(rig: &Rig, event_id: &str) -> Value {
    rig.server.services.fanout().activate().await.unwrap();
    let outcome = rig.outcome(event_id).await;
    assert_eq!(outcome["fanout"]["state"], "done", "{outcome}");
    outcome
}

// S001-52, SX-02
#[tokio::test]
async fn what_does_not_fit_one_transaction_is_done_by_a_job() {
    let rig = Rig::start().await;
    let users: Vec<String> = (0..500).map(|n| format!("u{n}")).collect();
    let targets = json!([{ "channel": "inbox", "users": users }, { "channel": "ntfy" }]);
    rig.rule("wide", json!({ "targets": targets, "title": "T {{ data.n }}" })).await;
    rig.rule("a-small-one", json!({ "targets": [{ "channel": "inbox", "users": ["u7"] }], "title": "small" })).await;
    rig.send(json!({ "eventId": "e1", "eventType": "a", "data": { "n": 1 } })).await;
    let outcome = done(&rig, "e1").await;
    assert_eq!(outcome["totals"], json!({ "rules": 2, "notifications": 500, "messages": 1 }), "{outcome}");
    assert_eq!(outcome["rules"][1]["status"], "fanout");
    for user in &users {
        let inbox = rig.inbox(user).await;
        assert_eq!((inbox.len(), rig.unread(user).await), (1, 1), "{user}");
        assert_eq!(inbox[0].title, if user == "u7" { "small" } else { "T 1" });
    }
    assert_eq!(rig.messages("wide").await.len(), 1);
    // Again changes nothing, and the same keys come of it.
    rig.server.client().post("/events", &json!({ "eventId": "e1", "eventType": "a" })).await.expect(202);
    assert_eq!(rig.unread("u9").await, 1);
}

// Issue 3: recipients from a field of the event are never dropped silently, however many there are.
#[tokio::test]
async fn users_from_a_field_are_all_told_and_those_who_can_be_none_are_counted() {
    let rig = Rig::start().await;
    rig.rule("r", json!({ "targets": [{ "channel": "inbox", "users": ["{{ data.u }}"] }], "title": "T" })).await;
    let mut users: Vec<Value> = (0..1_500).map(|n| json!(format!("u{n}"))).collect();
    users.extend([
        json!(7),
        json!(""),
        json!({ "id": 1 }),
        json!(null),
        json!("x".repeat(257)),
        json!("x".repeat(256)),
    ]);
    rig.send(json!({ "eventId": "e1", "eventType": "a", "data": { "u": users } })).await;
    let outcome = done(&rig, "e1").await;
    assert_eq!(outcome["totals"]["notifications"], 1_502, "{outcome}");
    assert_eq!(outcome["rules"][0]["errors"], json!(["targets[0].users: 4 of 1506 are no users"]), "{outcome}");
    for user in ["u0", "u999", "u1000", "u1499", "7"] {
        assert_eq!(rig.unread(user).await, 1, "{user}");
    }
    // The same where all of it fits into one transaction.
    rig.send(json!({ "eventId": "e2", "eventType": "a", "data": { "u": ["u0", 7, {}] } })).await;
    let outcome = rig.outcome("e2").await;
    assert_eq!((&outcome["totals"]["notifications"], &outcome["rules"][0]["status"]), (&json!(2), &json!("matched")));
    assert_eq!(outcome["rules"][0]["errors"], json!(["targets[0].users: 1 of 3 are no users"]), "{outcome}");
    // Nobody is left out where nobody is named.
    rig.rule("r", json!({ "targets": [{ "channel": "inbox", "users": ["ops", "{{ data.none }}"] }], "title": "T" }))
        .await;
    rig.send(json!({ "eventId": "e3", "eventType": "a" })).await;
    assert!(rig.outcome("e3").await["rules"][0].get("errors").is_none());
    assert_eq!((rig.unread("7").await, rig.unread("ops").await), (2, 1));
}

#[tokio::test]
async fn many_rules_at_once_and_their_windows_are_kept_too() {
    let rig = Rig::start().await;
    for n in 0..130 {
        let targets = json!([{ "channel": "inbox", "users": [format!("u{n}")] }]);
        rig.rule(&format!("r{n:03}"), json!({ "targets": targets, "title": "T", "text": "x", "dedupe_seconds": 60 }))
            .await;
    }
    rig.send(json!({ "eventId": "e1", "eventType": "a" })).await;
    assert_eq!(done(&rig, "e1").await["totals"], json!({ "rules": 130, "notifications": 130, "messages": 0 }));
    rig.send(json!({ "eventId": "e2", "eventType": "a" })).await;
    let outcome = rig.outcome("e2").await;
    let outcome = if outcome["fanout"].is_object() { done(&rig, "e2").await } else { outcome };
    assert_eq!(outcome["totals"]["notifications"], 0, "{outcome}");
    for n in 0..130 {
        assert_eq!(rig.unread(&format!("u{n}")).await, 1, "{n}");
    }
}

// However many rules match: the list of a job has its limit, and what is beyond it is done nevertheless.
#[tokio::test]
async fn an_event_that_thousands_of_rules_match_is_accepted_and_all_of_them_are_done() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path(), &server::clock()).await;
    let rules = 4_000;
    for n in 0..rules {
        let rule = json!({
            "pattern": { "eventType": ["b"] }, "title": format!("{n} {}", "x".repeat(100)),
            "targets": [{ "channel": "inbox", "users": [format!("u{n}")] }],
        });
        let name = format!("rule-{n:05}-{}", "n".repeat(110));
        node.rules.book.put(read::rule(&name, rule.as_object().unwrap(), Origin::File, None).unwrap());
    }
    let now = server::clock().now();
    let defaults = Defaults { now, correlation_id: "c", event_id: &|| "e1".to_owned() };
    let draft = Draft::Good(envelope::read(r#"{"eventId":"e1","eventType":"b"}"#, &defaults).unwrap().into());
    assert_eq!(node.ingest.accept(vec![draft]).await.unwrap()[0].status, "accepted");
    node.fanout.activate().await.unwrap();
    for n in 0..rules {
        let user = format!("u{n}");
        assert_eq!(super::unread(&*node.store, &user).await, 1, "{user}");
    }
}

/// A node without HTTP over the store in a directory.
struct Node {
    store: Arc<Faulty>,
    rules: Rules,
    ingest: Ingest,
    fanout: Fanout,
    _stop: watch::Sender<bool>,
}

async fn node(dir: &std::path::Path, clock: &Arc<ManualClock>) -> Node {
    let options = Options { reserve_bytes: 0, ..Options::new(dir) };
    let as_clock = || Arc::clone(clock) as Arc<dyn Clock>;
    let embedded = Embedded::open(&options, &tables("dev"), as_clock(), Arc::new(())).unwrap();
    let store = Arc::new(Faulty::new(Arc::new(embedded)));
    let (config, metrics) = (Config::default(), Arc::default());
    let rules = Rules::open(store.clone(), as_clock(), &[]).await.unwrap();
    let rule = json!({
        "pattern": { "eventType": ["a"] }, "title": "T", "text": "x",
        "targets": [{ "channel": "inbox", "map": { "product": "p" } }],
    });
    rules.book.put(read::rule("wide", rule.as_object().unwrap(), Origin::File, None).unwrap());
    let ids = Arc::new(tidings::clock::SystemIds::default());
    let live = tidings::events::Live::default();
    let ingest =
        Ingest::new(store.clone(), as_clock(), ids, Arc::clone(&metrics), live, Arc::clone(&rules.book), &config);
    let (_stop, stop) = watch::channel(false);
    let fanout = Fanout {
        store: store.clone(),
        book: Arc::clone(&rules.book),
        metrics,
        settings: Settings::of(&config),
        bus: None,
        signals: Arc::default(),
        arrivals: Arc::default(),
        traffic: Arc::default(),
        stop,
    };
    Node { store, rules, ingest, fanout, _stop }
}

// S001-52: 100,000 recipients, killed again and again, each has exactly one entry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fan_out_to_100000_survives_being_killed_in_the_middle() {
    const USERS: usize = 100_000;
    const GROUPS: usize = 25;
    let dir = tempfile::tempdir().unwrap();
    let clock = server::clock();
    let first = node(dir.path(), &clock).await;
    let user = |n: usize| format!("user-{n:06}");
    for group in 0..GROUPS {
        // Each group also has the first user of the next one: nobody hears twice.
        let each = USERS / GROUPS;
        let users: Vec<String> = (group * each..=((group + 1) * each).min(USERS - 1)).map(user).collect();
        let item = map::item("p", &format!("g{group}"), &users);
        first.store.transact(vec![Write::put(inbox::table(), item)]).await.unwrap();
    }
    let defaults = Defaults { now: clock.now(), correlation_id: "c", event_id: &|| "e1".to_owned() };
    let draft = || Draft::Good(envelope::read(r#"{"eventId":"e1","eventType":"a"}"#, &defaults).unwrap().into());
    let receipts = first.ingest.accept(vec![draft()]).await.unwrap();
    assert_eq!(receipts[0].status, "accepted");
    drop(first);

    // Die at some transaction, reopen, go on. A store that takes no more is a certain death; a lost reply may only have
    // the chunk done again, where it is behind one that failed, and the job comes to its end: those are the last.
    let mut deaths = 0;
    let (lost, dead) = (Fault::ReplyLost, Fault::ReadOnly);
    for (after, fault) in [(1, dead), (130, dead), (400, dead), (2, dead), (7, lost), (777, lost)] {
        let node = node(dir.path(), &clock).await;
        node.store.fail_nth(after, fault);
        if node.fanout.activate().await.is_err() {
            deaths += 1;
        }
        assert!(node.rules.book.get("wide").is_some());
    }
    assert!(deaths >= 4, "{deaths}");
    let last = node(dir.path(), &clock).await;
    last.fanout.activate().await.unwrap();
    let receipts = last.ingest.accept(vec![draft()]).await.unwrap();
    assert_eq!(receipts[0].status, "duplicate");

    let mut wrong = BTreeMap::new();
    for n in 0..USERS {
        let name = user(n);
        let entries: Vec<Entry> = super::entries(&*last.store, &name).await;
        let counted = super::unread(&*last.store, &name).await;
        if (entries.len(), counted) != (1, 1) {
            wrong.insert(name, (entries.len(), counted));
        }
    }
    assert!(wrong.is_empty(), "{} wrong, such as {:?}", wrong.len(), wrong.iter().next());
}

// SX-09, S001-52: a fan-out of messages that dies before and after every one of them tells everybody over a channel once,
// although several rules lead to the same people and topics.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fan_out_of_messages_that_is_killed_between_any_two_tells_everybody_once() {
    const RULES: usize = 90;
    let dir = tempfile::tempdir().unwrap();
    let clock = server::clock();
    let open = async || {
        let node = node(dir.path(), &clock).await;
        for n in 0..RULES {
            let rule = json!({
                "pattern": { "eventType": ["m"] }, "title": "T", "text": "x",
                "targets": [
                    { "channel": "email", "to": [format!("u{n}@example.com"), format!("U{}@example.com", n + 1)] },
                    { "channel": "ntfy", "topic": format!("t{}", n / 2) },
                ],
            });
            let rule = read::rule(&format!("m{n:03}"), rule.as_object().unwrap(), Origin::File, None).unwrap();
            node.rules.book.put(rule);
        }
        node
    };
    let first = open().await;
    let defaults = Defaults { now: clock.now(), correlation_id: "c", event_id: &|| "e1".to_owned() };
    let draft = Draft::Good(envelope::read(r#"{"eventId":"e1","eventType":"m"}"#, &defaults).unwrap().into());
    assert_eq!(first.ingest.accept(vec![draft]).await.unwrap()[0].status, "accepted");
    drop(first);
    let mut deaths = 0_usize;
    let last = loop {
        let node = open().await;
        // Nothing more is written, or what is written is not heard of.
        node.store.fail_nth(2, if deaths.is_multiple_of(2) { Fault::ReadOnly } else { Fault::ReplyLost });
        if node.fanout.activate().await.is_ok() {
            break node;
        }
        deaths += 1;
        assert!(deaths < 1000, "it does not come to an end");
    };
    assert!(deaths > 30, "{deaths}");
    let mut told: BTreeMap<String, usize> = BTreeMap::new();
    let query = Query::new("created").index("status-created_date-index").limit(1000);
    let page = last.store.query(&tidings::messages::record::table("dev"), &query).await.unwrap();
    assert!(page.next.is_none());
    for message in page.items.iter().map(|item| tidings::messages::Message::from_item(item).unwrap()) {
        let list = message.target.get("to").and_then(Value::as_array).cloned().unwrap_or_default();
        for to in list.iter().chain(message.target.get("topic")) {
            *told.entry(to.as_str().unwrap().to_lowercase()).or_default() += 1;
        }
    }
    let expected =
        (0..=RULES).map(|n| format!("u{n}@example.com")).chain((0..RULES.div_ceil(2)).map(|n| format!("t{n}")));
    assert_eq!(told, expected.map(|one| (one, 1)).collect());
}
