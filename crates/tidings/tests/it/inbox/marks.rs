//! `POST /notifications`: all of a request or none, and the count follows.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tidings::inbox::{Inbox, Status, mark::Mark};
use tidings_core::time::Clock;
use tidings_store::Store;
use tidings_store::faults::{Fault, Faulty};
use tidings_store::memory::Memory;

use super::Rig;
use crate::support::{TestServer, server};

fn status_of(page: &Value, place: usize) -> (Value, Value) {
    (page["items"][place]["status"].clone(), page["items"][place]["read_at"].clone())
}

// S001-07, S001-93 to S001-101, S001-105, S001-106
#[tokio::test]
async fn marking_changes_the_status_and_nothing_else() {
    let rig = Rig::start().await;
    for n in 1..=3 {
        rig.tell(&["u1"], &format!("n{n}"), json!({ "event_type": "score" })).await;
        rig.server.clock.advance(Duration::from_millis(1));
    }
    let before = rig.page("user=u1").await;
    let ids = rig.identifiers("u1").await;
    rig.server.advance(1);
    let body = json!([
        { "user": "u1", "notification_identifier": ids[0] },
        { "user": "u1", "notification_identifier": ids[2] },
        { "user": "u1", "notification_identifier": "all#00000000000000000001-0000000000000001" },
        { "user": "u1", "notification_identifier": "something" },
    ]);
    let answer = rig.client.post("/notifications", &body).await.expect(200).json();
    assert_eq!(
        answer,
        json!({
            "status": "Update completed successfully", "updated": 2,
            "not_found": [
                { "user": "u1", "notification_identifier": "all#00000000000000000001-0000000000000001" },
                { "user": "u1", "notification_identifier": "something" },
            ],
        })
    );
    let after = rig.page("user=u1").await;
    assert_eq!((rig.identifiers("u1").await, rig.unread("u1").await, &after["unread"]), (ids.clone(), 1, &json!(1)));
    assert_eq!(status_of(&after, 0), (json!("read"), json!("2026-03-01T13:00:00.003Z")));
    assert_eq!(after["items"][1], before["items"][1]);
    // The type's index follows in the same step (S001-100).
    assert_eq!(super::identifiers(&rig.page("user=u1&type=score&status=read").await), [ids[0].clone(), ids[2].clone()]);
    // Twice is once, and the first reading counts (S001-101).
    rig.server.advance(1);
    assert_eq!(rig.mark("u1", &ids[..1], "read").await["updated"], 0);
    assert_eq!(rig.page("user=u1").await, after);
    // And back (S001-103).
    rig.mark("u1", &ids[..1], "unread").await;
    assert_eq!(status_of(&rig.page("user=u1").await, 0), (json!("unread"), Value::Null));
    assert_eq!(rig.unread("u1").await, 2);
    rig.mark("u1", &ids, "archive").await;
    assert_eq!((rig.unread("u1").await, rig.page("user=u1&status=unread").await["items"].clone()), (0, json!([])));
    rig.mark("u1", &ids[1..2], "unread").await;
    assert_eq!(rig.unread("u1").await, 1);
}

// S001-102, SX-27
#[tokio::test]
async fn one_to_a_hundred_at_once() {
    let rig = Rig::start().await;
    rig.tell_many(&["u1", "u2"], (0..120).map(|n| n.to_string())).await;
    let page = rig.page("user=u1&limit=100").await;
    let ids = super::identifiers(&page);
    let key = page["LastEvaluatedKey"].as_str().unwrap();
    let rest = super::identifiers(&rig.page(&format!("user=u1&limit=100&cursor={key}")).await);
    // With its counter, this is more than a transaction holds.
    assert_eq!(rig.mark("u1", &ids, "read").await["updated"], 100);
    assert_eq!(
        (rig.unread("u1").await, rig.page("user=u1&status=unread&limit=100").await["unread"].clone()),
        (20, json!(20))
    );
    assert_eq!(rig.mark("u1", &ids[..99], "unread").await["updated"], 99);
    assert_eq!(rig.unread("u1").await, 119);
    let too_many = [ids.clone(), rest[..1].to_vec()].concat();
    assert_eq!(rig.try_mark("u1", &too_many, "read").await.bad_fields(), [""]);
    assert_eq!(rig.try_mark("u1", &[], "read").await.bad_fields(), [""]);
    assert_eq!(rig.unread("u1").await, 119);
    // Of two users, with one counter each.
    let body: Vec<Value> = ids[..50]
        .iter()
        .flat_map(|id| {
            ["u1", "u2"].map(|user| json!({ "user": user, "notification_identifier": id, "action": "archive" }))
        })
        .collect();
    assert_eq!(rig.client.post("/notifications", &json!(body)).await.expect(200).json()["updated"], 100);
    assert_eq!((rig.unread("u1").await, rig.unread("u2").await), (69, 70));
    // The same one twice is one; with two wishes it is none.
    let twice = json!([{ "user": "u2", "notification_identifier": rest[0] }, { "user": "u2", "notification_identifier": rest[0] }]);
    assert_eq!(rig.client.post("/notifications", &twice).await.expect(200).json()["updated"], 1);
    let mut torn = twice.clone();
    torn[1]["action"] = json!("archive");
    assert_eq!(rig.client.post("/notifications", &torn).await.bad_fields(), ["[1].action"]);
}

#[tokio::test]
async fn every_mistake_in_a_body_is_named() {
    let rig = Rig::start().await;
    rig.tell(&["u1"], "t", json!({})).await;
    let id = rig.identifiers("u1").await[0].clone();
    let body = json!([{ "user": "u1", "notification_identifier": id }, 7, { "user": "" }, { "user": "u1", "notification_identifier": id, "action": "eat" }]);
    let fields = rig.client.post("/notifications", &body).await.bad_fields();
    assert_eq!(fields, ["[1]", "[2].user", "[2].notification_identifier", "[3].action"]);
    assert_eq!(rig.unread("u1").await, 1);
    for body in [json!("x"), json!({}), json!({ "notifications": 1 }), json!(null)] {
        rig.client.post("/notifications", &body).await.problem(400);
    }
    let body = json!({ "action": "archive", "notifications": [{ "user": "u1", "notification_identifier": id }] });
    assert_eq!(rig.client.post("/notifications", &body).await.expect(200).json()["updated"], 1);
}

// SX-02: a crash between the steps of a large update leaves entries and count in agreement.
#[tokio::test]
async fn the_count_is_right_wherever_a_large_update_breaks_off() {
    // The steps are the note, the entries, and the counter.
    for broken_at in 1..=3 {
        let clock = server::clock();
        let memory: Arc<dyn Store> = Arc::new(Memory::new(clock.clone()));
        let server = TestServer::over(Arc::clone(&memory), clock.clone()).await;
        let rig = Rig::over(server).await;
        rig.tell_many(&["u1"], (0..100).map(|n| n.to_string())).await;
        let ids = rig.identifiers("u1").await;
        let faulty = Arc::new(Faulty::new(Arc::clone(&memory)));
        let inbox = Inbox::new(
            Arc::clone(&faulty) as Arc<dyn Store>,
            Arc::clone(&clock) as Arc<dyn Clock>,
            Arc::new(tidings::clock::SystemIds::default()),
            Arc::default(),
        );
        let marks: Vec<Mark> = ids
            .iter()
            .map(|id| Mark { user: "u1".into(), time: id["all#".len()..].to_owned(), to: Status::Read })
            .collect();
        (broken_at..=3).for_each(|step| faulty.fail_nth(step, Fault::Throttled));
        assert!(inbox.mark(&marks).await.is_err(), "{broken_at}");
        let read = if broken_at == 3 { 100 } else { 0 };
        assert_eq!(rig.page("user=u1&status=read&limit=100").await["items"].as_array().unwrap().len(), read);
        assert_eq!(rig.unread("u1").await, 100 - read as u64, "{broken_at}");
        // Whoever comes next brings it in order.
        assert_eq!(rig.mark("u1", &ids, "read").await["updated"], 100 - read);
        rig.mark("u1", &ids[..3], "unread").await;
        assert_eq!((rig.unread("u1").await, rig.page("user=u1").await["unread"].clone()), (3, json!(3)), "{broken_at}");
    }
}

// S001-97: two at the same time, and no change is lost or counted twice.
#[tokio::test]
async fn updates_at_the_same_time_agree_in_the_end() {
    let rig = Rig::start().await;
    rig.tell_many(&["u1"], (0..100).map(|n| n.to_string())).await;
    let ids = rig.identifiers("u1").await;
    let turns = (0..12).map(|n| {
        let action = ["read", "unread", "archive"][n % 3];
        let (from, to) = if n % 2 == 0 { (0, 100) } else { (20, 60) };
        rig.try_mark("u1", &ids[from..to], action)
    });
    for answer in futures_util::future::join_all(turns).await {
        assert!([200, 503].contains(&answer.status), "{}", answer.text());
    }
    let unread = rig.page("user=u1&status=unread&limit=100").await["items"].as_array().unwrap().len();
    assert_eq!(rig.unread("u1").await, unread as u64);
}
