//! Dead letters of the bus at the one desk for all of them (SX-08), and what happens when they are too many (S003-99).

use std::sync::Arc;

use serde_json::{Value, json};
use tidings_store::faults::{Fault, Faulty};
use tidings_store::memory::Memory;

use super::{bodies, complete, counts, receive, receive_one, send, settle, with_queue};
use crate::support::{Client, TestServer, server};

const BATCH: &str = "application/vnd.microsoft.servicebus.json";

async fn bury(client: &Client, path: &str, reason: &str) {
    let got = receive_one(client, path).await;
    let result = settle(client, path, &got, json!({ "action": "deadletter", "reason": reason })).await;
    assert_eq!(result["status"], "ok");
}

async fn with_dead(messages: &[(&str, &str)]) -> TestServer {
    let server = with_queue("q", &json!({})).await;
    let client = server.client();
    for (body, reason) in messages {
        send(&client, "q", body).await;
        bury(&client, "q", reason).await;
        server.clock.advance(std::time::Duration::from_secs(1));
    }
    server
}

async fn letters(client: &Client, query: &str) -> Vec<Value> {
    let list = client.get(&format!("/dead-letters{query}")).await.expect(200).json();
    list["items"].as_array().unwrap().clone()
}

fn reasons(letters: &[Value]) -> Vec<&str> {
    letters.iter().map(|letter| letter["reason"].as_str().unwrap()).collect()
}

async fn actions(client: &Client) -> Vec<String> {
    let log = client.get("/audit-log").await.expect(200).json();
    let named = |entry: &Value| entry["action"].as_str().unwrap().to_owned();
    log["items"].as_array().unwrap().iter().map(named).filter(|name| name.starts_with("dead_letter")).collect()
}

// SX-08: one list, newest first, with what the message says and how its deliveries ended.
#[tokio::test]
async fn the_buss_dead_letters_are_listed_with_the_others() {
    let server = with_dead(&[("a", "First"), (r#"{"n":2}"#, "Second")]).await;
    let client = server.client();
    client.put("/bus/t", &json!({ "kind": "topic" })).await.expect(201);
    client.put("/bus/t/subscriptions/s", &json!({})).await.expect(201);
    client.post_with("/bus/t/messages", &[("brokerproperties", r#"{"Label":"paid"}"#)], "c").await.expect(201);
    bury(&client, "t/subscriptions/s", "Third").await;
    let all = letters(&client, "").await;
    assert_eq!(reasons(&all), ["Third", "Second", "First"]);
    let third = &all[0];
    assert_eq!((&third["source"], &third["channel"]), (&json!("bus"), &json!("bus")));
    assert_eq!((&third["path"], &third["message_type"]), (&json!("t/subscriptions/s"), &json!("paid")));
    assert_eq!((&third["message"]["body"], &third["attempts"][0]["outcome"]), (&json!("c"), &json!("failed")));
    assert_eq!(third["ttl"], 0);
    assert_eq!(reasons(&letters(&client, "?path=q").await), ["Second", "First"]);
    assert_eq!(reasons(&letters(&client, "?channel=bus&limit=1").await), ["Third"]);
    assert!(letters(&client, "?channel=email").await.is_empty());
    assert_eq!(reasons(&letters(&client, "?message_type=paid").await), ["Third"]);
    assert_eq!(client.get("/dead-letters?path=a/b&channel=x").await.bad_fields(), ["channel", "path"]);
    let one = client.get(&format!("/dead-letters/{}", third["id"].as_str().unwrap())).await.expect(200).json();
    assert_eq!(one, *third);
    client.get("/dead-letters/bus-none-1").await.problem(404);
}

// SX-08: inspect, edit, send back, throw away; each in the audit log.
#[tokio::test]
async fn one_is_edited_and_sent_back_and_another_is_thrown_away() {
    let server = with_dead(&[(r#"{"total":"x"}"#, "BadTotal"), ("other", "r"), ("third", "r")]).await;
    let client = server.client();
    let all = letters(&client, "").await;
    let path = |n: usize| format!("/dead-letters/{}", all[n]["id"].as_str().unwrap());
    let wrong = json!({ "target": { "entity": "z" }, "body": "x" });
    assert_eq!(client.post(&format!("{}/resubmit", path(2)), &wrong).await.bad_fields(), ["target"]);
    let both = json!({ "payload": {}, "body": "x" });
    assert_eq!(client.post(&format!("{}/resubmit", path(2)), &both).await.bad_fields(), ["body"]);
    let back =
        client.post(&format!("{}/resubmit", path(2)), &json!({ "body": { "total": 5 } })).await.expect(201).json();
    assert_eq!((&back["path"], &back["messageId"]), (&json!("q"), &all[2]["message"]["messageId"]));
    let got = receive_one(&client, "q").await;
    assert_eq!((&got["body"], &got["sequenceNumber"]), (&json!(r#"{"total":5}"#), &back["sequenceNumber"]));
    client.post(&format!("{}/resubmit", path(2)), &json!({})).await.problem(404);
    client.delete(&path(1)).await.expect(204);
    client.delete(&path(1)).await.problem(404);
    assert_eq!(counts(&client, "q").await["deadLettered"], 1);
    assert_eq!(actions(&client).await, ["dead_letter.discard", "dead_letter.resubmit"]);
    // Somebody has the last one.
    let held = receive_one(&client, "q/$deadletterqueue").await;
    assert_eq!(held["body"], "third");
    client.delete(&path(0)).await.problem(409);
    client.post(&format!("{}/resubmit", path(0)), &json!({})).await.problem(409);
    settle(&client, "q/$deadletterqueue", &held, json!({ "action": "complete" })).await;
    assert!(letters(&client, "").await.is_empty());
    let counts = counts(&client, "q").await;
    assert_eq!((&counts["deadLettered"], &counts["deadLetteredBytes"]), (&json!(0), &json!(0)));
    assert_eq!(client.get("/audit-log/verify").await.json()["ok"], true);
}

// The limit of a message is that of one that is edited: with its properties.
#[tokio::test]
async fn an_edited_message_must_not_be_too_large() {
    let server = with_queue("q", &json!({})).await;
    let client = server.client();
    let broker = json!({ "MessageId": "m", "CorrelationId": "c", "ContentType": "text/plain" });
    let list = json!([{ "Body": "x", "BrokerProperties": broker, "UserProperties": { "pad": "p".repeat(60_000) } }]);
    // The id, the correlation id, the content type and the property.
    let most = 262_144 - (1 + 1 + 10 + 3 + 60_000);
    for (more, good) in [(1, false), (0, true)] {
        let body = "x".repeat(most + more);
        if counts(&client, "q").await["deadLettered"] == 0 {
            client.post_as("/bus/q/messages", BATCH, list.to_string()).await.expect(201);
            bury(&client, "q", "r").await;
        }
        let id = letters(&client, "").await[0]["id"].as_str().unwrap().to_owned();
        let at_desk = client.post(&format!("/dead-letters/{id}/resubmit"), &json!({ "body": body })).await;
        assert_eq!(at_desk.status, if good { 201 } else { 413 });
        if good {
            complete(&client, "q", &receive_one(&client, "q").await).await;
            client.post_as("/bus/q/messages", BATCH, list.to_string()).await.expect(201);
            bury(&client, "q", "r").await;
        }
        let what = json!({ "ids": ["m"], "body": body });
        let there = client.post("/bus/q/$deadletterqueue/resubmit", &what).await;
        assert_eq!(there.status, if good { 200 } else { 413 });
    }
    assert_eq!(receive_one(&client, "q").await["body"].as_str().map(str::len), Some(most));
}

/// Runs a job over many, and gives it as it is then.
async fn many(server: &TestServer, deed: &str, what: &Value) -> Value {
    let client = server.client();
    let job = client.post(&format!("/dead-letters/{deed}"), what).await.expect(202).json();
    tidings::messages::dead::work(&server.services).await.unwrap();
    client.get(&format!("/dead-letters/jobs/{}", job["id"].as_str().unwrap())).await.expect(200).json()
}

// SX-08: whatever fails on the way, each letter is dealt with and counted once: a letter of the bus goes together with its
// count, and is seen by nobody again.
#[tokio::test]
async fn a_job_that_is_disturbed_counts_every_letter_once() {
    for (nth, fault) in
        [1, 2, 3].into_iter().flat_map(|nth| [Fault::Throttled, Fault::ReplyLost].map(|fault| (nth, fault)))
    {
        let clock = server::clock();
        let store = Arc::new(Faulty::new(Arc::new(Memory::new(clock.clone()))));
        let server = TestServer::over(store.clone(), clock).await;
        let client = server.client();
        client.put("/bus/q", &json!({})).await.expect(201);
        for _ in 0..3 {
            send(&client, "q", "x").await;
            bury(&client, "q", "r").await;
            crate::messages::make(&client, &crate::messages::hello()).await;
        }
        // There is no server for them.
        crate::messages::deliver(&server.services, "ntfy").await;
        let letters = letters(&client, "").await.len() as u64;
        assert_eq!(letters, 6);
        let job = client.post("/dead-letters/purge", &json!({ "all": true })).await.expect(202).json();
        store.fail_nth(nth, fault);
        // As often as the clock would have it done.
        for _ in 0..5 {
            let _ = tidings::messages::dead::work(&server.services).await;
        }
        let job = client.get(&format!("/dead-letters/jobs/{}", job["id"].as_str().unwrap())).await.expect(200).json();
        assert_eq!((&job["state"], &job["failed"]), (&json!("done"), &json!(0)), "{nth} {fault:?}: {job}");
        assert_eq!(
            (job["seen"].as_u64(), job["done"].as_u64()),
            (Some(letters), Some(letters)),
            "{nth} {fault:?}: {job}"
        );
        let log = client.get("/audit-log?action=dead_letters.purged").await.expect(200).json();
        assert_eq!(log["items"][0]["details"]["done"], letters, "{nth} {fault:?}");
        assert!(self::letters(&client, "").await.is_empty());
    }
}

// SX-08: what narrows the list narrows what is done, which cannot be undone.
#[tokio::test]
async fn many_are_thrown_away_within_the_filters_of_the_list() {
    let server = with_dead(&[("a", "First"), ("b", "Second")]).await;
    let client = server.client();
    client.put("/bus/other", &json!({})).await.expect(201);
    send(&client, "other", "c").await;
    bury(&client, "other", "Third").await;
    crate::messages::make(&client, &crate::messages::hello()).await;
    crate::messages::deliver(&server.services, "ntfy").await;
    for (fields, field) in [
        (json!({ "all": true, "path": 5 }), "path"),
        (json!({ "all": true, "path": "a/b/c" }), "path"),
        (json!({ "all": true, "channel": "pigeon" }), "channel"),
        (json!({ "where": { "reason": ["First"] }, "from": "soon" }), "from"),
        (json!({ "ids": ["x"], "channel": "bus" }), "channel"),
        (json!({ "all": true, "message_type": "" }), "message_type"),
    ] {
        assert_eq!(client.post("/dead-letters/purge", &fields).await.bad_fields(), [field], "{fields}");
    }
    for field in ["payload", "body"] {
        let same = json!({ "all": true, field: { "text": "x" } });
        assert_eq!(client.post("/dead-letters/resubmit", &same).await.bad_fields(), [field]);
    }
    assert_eq!(letters(&client, "").await.len(), 4, "nothing is done");
    let job = many(&server, "purge", &json!({ "all": true, "path": "other" })).await;
    assert_eq!((&job["seen"], &job["done"]), (&json!(4), &json!(1)));
    let job = many(&server, "purge", &json!({ "all": true, "channel": "ntfy" })).await;
    assert_eq!((&job["seen"], &job["done"]), (&json!(3), &json!(1)));
    let second = json!({ "where": { "channel": ["bus"] }, "from": "2026-03-01T12:00:01Z", "path": "q" });
    assert_eq!(many(&server, "resubmit", &second).await["done"], 1);
    assert_eq!(reasons(&letters(&client, "").await), ["First"]);
    let log = client.get("/audit-log?action=dead_letters.purge").await.expect(200).json();
    assert_eq!(log["items"][1]["details"]["filter"]["path"], "other");
}

// SX-08: filtered redrive and purge, with progress.
#[tokio::test]
async fn many_are_sent_back_or_thrown_away_by_pattern() {
    let server = with_queue("q", &json!({})).await;
    let client = server.client();
    let list: Vec<Value> = (0..120).map(|n| json!({ "Body": json!({ "n": n }).to_string() })).collect();
    client.post_as("/bus/q/messages", BATCH, Value::from(list).to_string()).await.expect(201);
    let got = receive(&client, "q", 200).await;
    let dead = |m: &Value| json!({ "lockToken": m["lockToken"], "action": "deadletter", "reason": "Timeout" });
    client.post("/bus/q/settle", &got.iter().map(dead).collect::<Vec<_>>().into()).await.expect(200);
    let small =
        json!({ "where": { "path": ["q"], "reason": ["Timeout"], "body": { "n": [{ "numeric": ["<", 50] }] } } });
    let job = many(&server, "resubmit", &small).await;
    assert_eq!((&job["state"], &job["seen"], &job["done"]), (&json!("done"), &json!(120), &json!(50)));
    assert_eq!(counts(&client, "q").await["active"], 50);
    assert_eq!(bodies(&receive(&client, "q", 2).await), [r#"{"n":0}"#, r#"{"n":1}"#]);
    let job = many(&server, "purge", &json!({ "where": { "body": { "n": [{ "numeric": [">=", 100] }] } } })).await;
    assert_eq!(job["done"], 20);
    let held = receive_one(&client, "q/$deadletterqueue").await;
    let job = many(&server, "purge", &json!({ "all": true })).await;
    assert_eq!((&job["done"], &job["failed"]), (&json!(49), &json!(1)));
    settle(&client, "q/$deadletterqueue", &held, json!({ "action": "abandon" })).await;
    let left = letters(&client, "").await;
    assert_eq!(left.len(), 1);
    let ids = json!({ "ids": [left[0]["id"], "bus-none-1"], "body": "again" });
    let each = client.post("/dead-letters/resubmit", &ids).await.expect(200).json();
    assert_eq!((&each["items"][0]["status"], &each["items"][1]["status"]), (&json!(201), &json!(404)));
    assert_eq!(counts(&client, "q").await["deadLetteredBytes"], 0);
}

#[tokio::test]
async fn a_purge_takes_the_entries_away_too() {
    let server = with_dead(&[("a", "r"), ("b", "r")]).await;
    let client = server.client();
    client.post("/bus/q/$deadletterqueue/purge", &json!({})).await.expect(200);
    assert!(letters(&client, "").await.is_empty());
    // Whoever does something to many sees nothing of them either, swept or not.
    for what in [json!({ "where": { "reason": ["r"] } }), json!({ "all": true })] {
        let job = many(&server, "resubmit", &what).await;
        assert_eq!((&job["seen"], &job["done"], &job["failed"]), (&json!(0), &json!(0), &json!(0)), "{what}");
    }
    send(&client, "q", "c").await;
    bury(&client, "q", "New").await;
    assert_eq!(reasons(&letters(&client, "").await), ["New"]);
    // What is left of the others is swept.
    for _ in 0..100 {
        if !server.services.bus.sweep().await.unwrap() {
            break;
        }
    }
    let query = tidings_store::Query::new("message").index("source-index");
    let page = server.services.store.query(tidings::messages::dead::table(), &query).await.unwrap();
    assert_eq!(page.items.len(), 1);
}

// S003-99: they never expire; when there is no more room for them nothing is taken in, and before that somebody is told.
#[tokio::test]
async fn dead_letters_stay_and_a_full_line_takes_nothing_in() {
    let server = with_queue("q", &json!({ "deadLetterMaxBytes": 3000, "defaultTtlSeconds": 60 })).await;
    let client = server.client();
    for n in 0..3 {
        assert!(counts(&client, "q").await["deadLetteredBytes"].as_u64().unwrap() < 3000, "{n}");
        send(&client, "q", &"x".repeat(700)).await;
        bury(&client, "q", "r").await;
    }
    server.advance(24 * 400);
    assert_eq!(letters(&client, "").await.len(), 3);
    let refused = client.post_as("/bus/q/messages", "text/plain", "more").await.problem(403);
    assert!(refused["type"].as_str().unwrap().ends_with("quota-exceeded"), "{refused}");
    let share = server.services.bus.line(&tidings::bus::Path::queue("q")).unwrap().dead_letter_share().unwrap();
    assert!(share >= 1.0, "{share}");
    server.services.incidents.evaluate().await.unwrap();
    let raised = client.get("/incidents").await.expect(200).json();
    let names: Vec<_> = raised["items"].as_array().unwrap().iter().map(|one| one["monitor"].clone()).collect();
    assert!(names.contains(&json!("dead-letters-full")), "{raised}");
    let id = letters(&client, "").await[0]["id"].as_str().unwrap().to_owned();
    client.delete(&format!("/dead-letters/{id}")).await.expect(204);
    send(&client, "q", "more").await;
    for (value, good) in [(0_i64, true), (1 << 40, true), ((1 << 40) + 1, false), (-1, false)] {
        let answer = client.put("/bus/q", &json!({ "deadLetterMaxBytes": value })).await;
        assert_eq!(answer.status == 200, good, "{value}");
    }
}

// S003-102: by type, from accepted (or due) to first delivered and to completed.
#[tokio::test]
async fn times_are_measured_by_type() {
    let server = with_queue("q", &json!({})).await;
    let client = server.client();
    let due = "Sun, 01 Mar 2026 13:00:00 GMT";
    let properties = json!({ "Label": "scan", "ScheduledEnqueueTimeUtc": due }).to_string();
    client.post_with("/bus/q/messages", &[("brokerproperties", &properties)], "a").await.expect(201);
    client.post_with("/bus/q/messages", &[("eventtype", "\"paid\"")], "b").await.expect(201);
    server.advance(1);
    server.services.bus.settle_time().await.unwrap();
    server.clock.advance(std::time::Duration::from_secs(7));
    for message in receive(&client, "q", 2).await {
        settle(&client, "q", &message, json!({ "action": "complete" })).await;
    }
    let text = client.get("/metrics").await.expect(200).text();
    for line in [
        r#"tidings_bus_type_delivery_seconds_sum{type="scan"} 7.0"#,
        r#"tidings_bus_type_delivery_seconds_count{type="paid"} 1"#,
        r#"tidings_bus_type_completion_seconds_sum{type="scan"} 7.0"#,
        r#"tidings_bus_type_completion_seconds_sum{type="paid"} 3607.0"#,
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    let lately = server.services.bus.shared.times.lately(server.services.clock.now());
    let p99 = |kind: &str| lately.iter().find(|(known, _)| known == kind).unwrap().1.quantile_seconds(0.99).unwrap();
    assert!((5.0..=7.0).contains(&p99("scan")), "{}", p99("scan"));
    server.advance(1);
    let later = server.services.bus.shared.times.lately(server.services.clock.now());
    assert!(later.iter().all(|(_, lately)| lately.counts.is_empty()));
}
