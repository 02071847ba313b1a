//! The dead-letter desk: resubmitting one, some and all, through the API and the command line; figures.

use serde_json::{Value, json};

use super::{bodies, counts, receive, receive_one, send, settle, with_queue};
use crate::support::process::{Served, run};
use crate::support::{Client, TestServer};

/// A queue with these messages among its dead letters.
async fn with_dead(messages: &[(&str, &str)]) -> TestServer {
    let server = with_queue("q", &json!({})).await;
    let client = server.client();
    for (body, reason) in messages {
        send(&client, "q", body).await;
        let got = receive_one(&client, "q").await;
        settle(&client, "q", &got, json!({ "action": "deadletter", "reason": reason })).await;
    }
    server
}

async fn resubmit(client: &Client, what: &Value) -> Value {
    client.post("/bus/q/$deadletterqueue/resubmit", what).await.expect(200).json()
}

// S003-86, S003-97, S003-98: its count starts anew, its id stays, and the link to the dead letter is kept.
#[tokio::test]
async fn one_dead_letter_is_edited_and_resubmitted() {
    let server = with_dead(&[(r#"{"total":"x"}"#, "BadTotal"), ("other", "r")]).await;
    let client = server.client();
    let dead = client.get("/bus/q/$deadletterqueue/peek").await.expect(200).json()["items"][0].clone();
    let what = json!({ "ids": [dead["sequenceNumber"]], "body": { "total": 5 } });
    assert_eq!(resubmit(&client, &what).await["resubmitted"], 1);
    let got = receive_one(&client, "q").await;
    assert_eq!((got["body"].as_str(), got["deliveryCount"].as_u64()), (Some(r#"{"total":5}"#), Some(1)));
    assert_eq!(got["messageId"], dead["messageId"]);
    assert_eq!(got["correlationId"], dead["correlationId"]);
    assert_eq!(got["resubmittedFrom"], format!("q/$deadletterqueue#{}", dead["sequenceNumber"]));
    assert!(got["properties"].get("DeadLetterReason").is_none());
    let counts = counts(&client, "q").await;
    assert_eq!((counts["deadLettered"].as_u64(), counts["locked"].as_u64()), (Some(1), Some(1)));
    let log = client.get("/audit-log?action=bus.resubmit").await.expect(200).json();
    assert!(log.to_string().contains("q/$deadletterqueue"), "{log}");
}

// S003-97: what is edited is one message. A number is a place among the dead letters, a text a message id.
#[tokio::test]
async fn an_edit_never_reaches_another_message() {
    let server = with_queue("q", &json!({})).await;
    let client = server.client();
    for (id, body) in [("2", "one"), ("77", "two"), ("shared", "three"), ("shared", "four")] {
        let properties = json!({ "MessageId": id }).to_string();
        client.post_with("/bus/q/messages", &[("brokerproperties", &properties)], body).await.expect(201);
        let got = receive_one(&client, "q").await;
        settle(&client, "q", &got, json!({ "action": "deadletter" })).await;
    }
    let shared = json!({ "ids": ["shared"], "body": "corrected" });
    client.post("/bus/q/$deadletterqueue/resubmit", &shared).await.problem(409);
    assert_eq!(counts(&client, "q").await["deadLettered"], 4, "nothing is moved");
    let second = json!({ "ids": [2], "body": "corrected" });
    assert_eq!(resubmit(&client, &second).await["resubmitted"], 1);
    let got = receive_one(&client, "q").await;
    assert_eq!((&got["messageId"], &got["body"]), (&json!("77"), &json!("corrected")));
    // As a text it is the message id, and where there is none, the number.
    let done = resubmit(&client, &json!({ "ids": ["2", "3", "none", 99] })).await;
    assert_eq!((&done["resubmitted"], &done["missing"]), (&json!(2), &json!(["none", 99])));
    assert_eq!(bodies(&receive(&client, "q", 9).await), ["one", "three"]);
    // In the calls that follow a limit, an id that was sent back is not taken for a number.
    let limited = json!({ "ids": ["4"], "limit": 1 });
    client.post("/bus/q/$deadletterqueue/resubmit", &limited).await.problem(404);
    assert_eq!(resubmit(&client, &json!({ "ids": ["shared"], "limit": 1 })).await["resubmitted"], 1);
}

#[tokio::test]
async fn some_are_resubmitted_by_pattern_and_by_id() {
    let server = with_dead(&[("a", "Timeout"), ("b", "BadSchema"), ("c", "Timeout"), (r#"{"n":4}"#, "Other")]).await;
    let client = server.client();
    let timeouts = json!({ "where": { "deadLetter": { "reason": ["Timeout"] } } });
    assert_eq!(resubmit(&client, &timeouts).await["resubmitted"], 2);
    assert_eq!(
        resubmit(&client, &json!({ "where": { "body": { "n": [{ "numeric": [">", 3] }] } } })).await["resubmitted"],
        1
    );
    assert_eq!(bodies(&receive(&client, "q", 9).await), ["a", "c", r#"{"n":4}"#]);
    let left = receive_one(&client, "q/$deadletterqueue").await;
    let by_id = json!({ "ids": [left["messageId"]] });
    let held = resubmit(&client, &by_id).await;
    assert_eq!((held["resubmitted"].as_u64(), held["locked"].as_u64()), (Some(0), Some(1)));
    settle(&client, "q/$deadletterqueue", &left, json!({ "action": "abandon" })).await;
    assert_eq!(resubmit(&client, &by_id).await["resubmitted"], 1);
    client.post("/bus/q/$deadletterqueue/resubmit", &by_id).await.problem(404);
}

#[tokio::test]
async fn all_are_resubmitted_in_steps() {
    let server = with_queue("q", &json!({ "maxDeliveryCount": 1 })).await;
    let client = server.client();
    let list: Vec<Value> = (0..600).map(|n| json!({ "Body": format!("{n}") })).collect();
    client
        .post_as("/bus/q/messages", "application/vnd.microsoft.servicebus.json", Value::from(list).to_string())
        .await
        .expect(201);
    for _ in 0..3 {
        let got = receive(&client, "q", 200).await;
        let dead: Vec<Value> =
            got.iter().map(|m| json!({ "lockToken": m["lockToken"], "action": "deadletter" })).collect();
        client.post("/bus/q/settle", &dead.into()).await.expect(200);
    }
    assert_eq!(counts(&client, "q").await["deadLettered"], 600);
    let first = resubmit(&client, &json!({ "all": true, "limit": 250 })).await;
    assert_eq!((first["resubmitted"].as_u64(), first["more"].as_bool()), (Some(250), Some(true)));
    let rest = resubmit(&client, &json!({ "all": true, "upTo": first["upTo"] })).await;
    assert_eq!((rest["resubmitted"].as_u64(), rest["more"].as_bool()), (Some(350), Some(false)));
    let counts = counts(&client, "q").await;
    assert_eq!((counts["deadLettered"].as_u64(), counts["active"].as_u64()), (Some(0), Some(600)));
    assert!(receive(&client, "q/$deadletterqueue", 1).await.is_empty());
}

#[tokio::test]
async fn what_is_to_be_resubmitted_must_be_clear() {
    let server = with_dead(&[("a", "r")]).await;
    let client = server.client();
    for (what, fields) in [
        (json!({}), vec![""]),
        (json!({ "all": true, "ids": [1] }), vec![""]),
        (json!({ "ids": [] }), vec!["ids"]),
        (json!({ "ids": [true] }), vec!["ids"]),
        (json!({ "all": "yes" }), vec!["all"]),
        (json!({ "all": true, "body": "x" }), vec!["body"]),
        (json!({ "where": { "a": 1 }, "limit": 0 }), vec!["where.a", "limit"]),
    ] {
        let answer = client.post("/bus/q/$deadletterqueue/resubmit", &what).await;
        assert_eq!(answer.bad_fields(), fields, "{what}");
    }
    assert_eq!(counts(&client, "q").await["deadLettered"], 1);
}

// S003-100: Prometheus has every figure of every queue and subscription.
#[tokio::test]
async fn metrics_have_the_figures_of_every_line() {
    let server = with_dead(&[("a", "r")]).await;
    let client = server.client();
    send(&client, "q", "b").await;
    server.advance(1);
    let text = client.get("/metrics").await.expect(200).text();
    for line in [
        r#"tidings_bus_active_messages{entity="q"} 1"#,
        r#"tidings_bus_dead_lettered_messages{entity="q"} 1"#,
        r#"tidings_bus_locked_messages{entity="q"} 0"#,
        r#"tidings_bus_incoming_messages_total{entity="q"} 2"#,
        r#"tidings_bus_outgoing_messages_total{entity="q"} 0"#,
        r#"tidings_bus_oldest_message_age_seconds{entity="q"} 3600"#,
        r#"tidings_bus_delivery_seconds_count{entity="q"} 1"#,
        r#"tidings_bus_active_messages{entity="domain-events-topic/subscriptions/notifications-sub"} 0"#,
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    assert_eq!(text.matches("# EOF").count(), 1);
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn the_command_line_lists_peeks_resubmits_and_purges() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let token = std::fs::read_to_string(directory.path().join("tidings-data/admin.token")).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let client = Client::new(&served.url, Some(token.trim()));
        client.put("/bus/scans", &json!({})).await.expect(201);
        for body in ["one", "two"] {
            send(&client, "scans", body).await;
            let got = receive_one(&client, "scans").await;
            settle(&client, "scans", &got, json!({ "action": "deadletter", "reason": "BadScan" })).await;
        }
    });
    let listed = run(directory.path(), &["queues"]).expect(0).stdout;
    let line = listed.lines().find(|line| line.ends_with("scans")).unwrap().to_owned();
    assert_eq!(line.split_whitespace().nth(4), Some("2"), "{listed}");
    let peeked = run(directory.path(), &["queues", "peek", "scans/$deadletterqueue"]).expect(0).stdout;
    assert!(peeked.contains("BadScan") && peeked.contains("two"), "{peeked}");
    let usage = run(directory.path(), &["queues", "resubmit", "scans"]).expect(2);
    assert!(usage.stderr.contains("--all"));
    let pattern = r#"{"body":["two"]}"#;
    let one = run(directory.path(), &["queues", "resubmit", "scans", "--where", pattern, "--json"]).expect(0);
    assert_eq!(serde_json::from_str::<Value>(&one.stdout).unwrap(), json!({ "resubmitted": 1, "locked": 0 }));
    let all = run(directory.path(), &["queues", "resubmit", "scans", "--all"]).expect(0).stdout;
    assert!(all.starts_with("1 dead letters"), "{all}");
    let purged = run(directory.path(), &["queues", "purge", "scans"]).expect(0).stdout;
    assert!(purged.starts_with("2 messages"), "{purged}");
    run(directory.path(), &["queues", "peek", "scans", "--state", "foo"]).expect(2);
    for (limit, code) in [("0", 2), ("1", 0), ("1000", 0), ("1001", 2)] {
        run(directory.path(), &["queues", "peek", "scans", "--limit", limit]).expect(code);
    }
    run(directory.path(), &["queues", "peek", "a/b/c"]).expect(2);
    run(directory.path(), &["queues", "peek", "none"]).expect(1);
    served.stop();
}

// What somebody sends cannot make a terminal do things; and whoever names what is not there hears of it.
#[test]
fn the_command_line_shows_foreign_texts_harmlessly_and_says_which_ids_are_missing() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let token = std::fs::read_to_string(directory.path().join("tidings-data/admin.token")).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let client = Client::new(&served.url, Some(token.trim()));
        client.put("/bus/scans", &json!({})).await.expect(201);
        client
            .post_with(
                "/bus/scans/messages",
                &[("brokerproperties", r#"{"MessageId":"m1"}"#)],
                "\u{1b}[2Jgone\r\u{9b}x\ny",
            )
            .await
            .expect(201);
        let got = receive_one(&client, "scans").await;
        settle(&client, "scans", &got, json!({ "action": "deadletter", "reason": "a\u{1b}]0;b\n" })).await;
    });
    let peeked = run(directory.path(), &["queues", "peek", "scans/$deadletterqueue"]).expect(0).stdout;
    assert!(peeked.contains(r"\u001b[2Jgone\u000d\u009bx y") && peeked.contains(r"a\u001b]0;b\u000a"), "{peeked:?}");
    let json = run(directory.path(), &["queues", "peek", "scans/$deadletterqueue", "--json"]).expect(0).stdout;
    assert!(!json.trim_end().contains(char::is_control), "{json:?}");
    let read: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(read["items"][0]["body"], "\u{1b}[2Jgone\r\u{9b}x\ny");
    let arguments = ["queues", "resubmit", "scans", "--id", "m1", "--id", "m2"];
    let done = run(directory.path(), &arguments).expect(1);
    assert!(done.stdout.starts_with("1 dead letters") && done.stderr.contains("m2 is not among"), "{}", done.stderr);
    served.stop();
}
