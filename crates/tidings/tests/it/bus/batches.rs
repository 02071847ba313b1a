//! Many at once.

use serde_json::{Value, json};

use super::{bodies, counts, receive, receive_one, send, with_queue};
use crate::support::Client;

const BATCH: &str = "application/vnd.microsoft.servicebus.json";

fn batch(count: usize) -> String {
    let list: Vec<Value> = (0..count).map(|n| json!({ "Body": format!("{n}") })).collect();
    Value::from(list).to_string()
}

#[tokio::test]
async fn a_batch_is_sent_received_and_settled_in_order() {
    let server = with_queue("q", &json!({})).await;
    let client = server.client();
    let list = json!([
        { "Body": "a", "BrokerProperties": { "MessageId": "1", "Label": "x" }, "UserProperties": { "Priority": "High", "n": 1 } },
        { "Body": "/v8=", "IsBodyBase64": true },
        { "Body": "c" },
    ]);
    let sent = client.post_as("/bus/q/messages", BATCH, list.to_string()).await.expect(201).json();
    assert_eq!(sent["messages"].as_array().unwrap().len(), 3);
    let got = receive(&client, "q", 10).await;
    assert_eq!(got.len(), 3);
    assert_eq!((got[0]["body"].as_str(), got[0]["subject"].as_str()), (Some("a"), Some("x")));
    assert_eq!(got[0]["properties"], json!({ "Priority": "High", "n": 1 }));
    assert_eq!((got[1]["body"].as_str(), got[1]["bodyIsBase64"].as_bool()), (Some("/v8="), Some(true)));
    let settlements = json!([
        { "lockToken": got[0]["lockToken"], "action": "complete" },
        { "lockToken": got[1]["lockToken"], "action": "abandon" },
        { "lockToken": got[0]["lockToken"], "action": "complete" },
        { "lockToken": got[2]["lockToken"], "action": "deadletter", "reason": "r" },
        { "lockToken": "01890a5d-ac96-774b-bcce-b302099a8057", "action": "renew" },
    ]);
    let results = client.post("/bus/q/settle", &settlements).await.expect(200).json();
    let statuses: Vec<_> =
        results["results"].as_array().unwrap().iter().map(|r| r["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["ok", "ok", "lost", "ok", "lost"]);
    let counts = counts(&client, "q").await;
    let count = |name: &str| counts[name].as_u64().unwrap();
    assert_eq!((count("active"), count("locked"), count("deadLettered")), (1, 0, 1));
}

// Far more than the window holds, and than one transaction.
#[tokio::test]
async fn a_backlog_comes_out_whole_and_in_order() {
    let server = with_queue("q", &json!({})).await;
    let client = server.client();
    for _ in 0..3 {
        client.post_as("/bus/q/messages", BATCH, batch(1000)).await.expect(201);
    }
    assert_eq!(counts(&client, "q").await["active"], 3000);
    let mut seen = Vec::new();
    loop {
        let got = receive(&client, "q", 256).await;
        if got.is_empty() {
            break;
        }
        let settlements: Vec<Value> =
            got.iter().map(|m| json!({ "lockToken": m["lockToken"], "action": "complete" })).collect();
        client.post("/bus/q/settle", &settlements.into()).await.expect(200);
        seen.extend(bodies(&got).into_iter().map(|body| body.parse::<usize>().unwrap()));
    }
    let expected: Vec<usize> = (0..3).flat_map(|_| 0..1000).collect();
    assert_eq!(seen, expected);
    let counts = counts(&client, "q").await;
    assert_eq!((counts["active"].as_u64(), counts["outgoing"].as_u64()), (Some(0), Some(3000)));
}

#[tokio::test]
async fn every_mistake_in_a_batch_is_named_and_nothing_is_sent() {
    let server = with_queue("q", &json!({})).await;
    let client = server.client();
    let list = json!([
        { "Body": "good" },
        { "Body": 5, "UserProperties": { "list": [] } },
        { "Body": "!", "IsBodyBase64": true, "BrokerProperties": { "TimeToLive": "soon" } },
        7,
    ]);
    let mut fields = client.post_as("/bus/q/messages", BATCH, list.to_string()).await.bad_fields();
    fields.sort();
    let expected = ["[1].Body", "[1].UserProperties.list", "[2].Body", "[2].BrokerProperties.TimeToLive", "[3]"];
    assert_eq!(fields, expected);
    assert_eq!(counts(&client, "q").await["active"], 0);
    for bad in ["{}", "[]", "nonsense"] {
        client.post_as("/bus/q/messages", BATCH, bad).await.problem(400);
    }
}

// n-1, n, n+1 of every size of a batch.
#[tokio::test]
async fn batches_are_bounded() {
    let server = with_queue("q", &json!({})).await;
    let client = server.client();
    for (count, good) in [(999, true), (1000, true), (1001, false)] {
        let answer = client.post_as("/bus/q/messages", BATCH, batch(count)).await;
        assert_eq!(answer.status == 201, good, "{count}");
    }
    for (max, good) in [(0, false), (1, true), (255, true), (256, true), (257, false)] {
        let answer = client.post("/bus/q/receive", &json!({ "max": max })).await;
        assert_eq!(answer.status == 200, good, "{max}");
    }
    for (seconds, good) in [(0, true), (300, true), (301, false)] {
        let answer = client.post("/bus/q/receive", &json!({ "waitSeconds": seconds })).await;
        assert_eq!(answer.status == 200, good, "{seconds}");
    }
    let one = json!({ "lockToken": "01890a5d-ac96-774b-bcce-b302099a8057", "action": "complete" });
    for (count, good) in [(0, false), (1, true), (256, true), (257, false)] {
        let list: Vec<Value> = (0..count).map(|_| one.clone()).collect();
        assert_eq!(client.post("/bus/q/receive", &json!({ "settle": list })).await.status == 200, good, "{count}");
        assert_eq!(client.post("/bus/q/settle", &list.into()).await.status == 200, good, "{count}");
    }
    let fields = client.post("/bus/q/settle", &json!([{ "action": "eat", "delaySeconds": -1 }, 5])).await.bad_fields();
    assert_eq!(fields, ["[0].lockToken", "[0].delaySeconds", "[0].action", "[1]"]);
}

/// Messages and the states of what was settled, of a call that does both.
async fn next(client: &Client, path: &str, ask: Value) -> (Vec<Value>, Vec<String>) {
    let answer = client.post(&format!("/bus/{path}/receive"), &ask).await.expect(200).json();
    let settled = answer["settled"].as_array().unwrap().iter();
    let settled = settled.map(|result| result["status"].as_str().unwrap().to_owned()).collect();
    (answer["messages"].as_array().unwrap().clone(), settled)
}

#[tokio::test]
async fn a_call_settles_what_was_received_and_receives_more() {
    let server = with_queue("q", &json!({})).await;
    let client = server.client();
    for body in ["a", "b"] {
        send(&client, "q", body).await;
    }
    let settle = |message: &Value, action: &str| json!([{ "lockToken": message["lockToken"], "action": action }]);
    let first = receive_one(&client, "q").await;
    let (got, settled) = next(&client, "q", json!({ "settle": settle(&first, "complete") })).await;
    assert_eq!((bodies(&got), settled), (vec!["b"], vec!["ok".to_owned()]));
    // What is put back comes again, in the same call.
    let (again, settled) = next(&client, "q", json!({ "settle": settle(&got[0], "abandon") })).await;
    assert_eq!((bodies(&again), settled), (vec!["b"], vec!["ok".to_owned()]));
    // It is settled although nothing comes.
    let ask = json!({ "waitSeconds": 0, "max": 5, "settle": settle(&again[0], "complete") });
    assert_eq!(next(&client, "q", ask.clone()).await, (Vec::new(), vec!["ok".to_owned()]));
    assert_eq!(next(&client, "q", ask).await, (Vec::new(), vec!["lost".to_owned()]));
    let counts = counts(&client, "q").await;
    assert_eq!((&counts["active"], &counts["locked"], &counts["outgoing"]), (&json!(0), &json!(0), &json!(2)));
    let plain = client.post("/bus/q/receive", &json!({})).await.expect(200).json();
    assert_eq!(plain, json!({ "messages": [] }), "nobody settled anything");
}

// The one that is settled is what keeps the next one back.
#[tokio::test]
async fn in_an_ordered_queue_the_next_one_comes_in_the_same_call() {
    let server = with_queue("q", &json!({ "ordered": true })).await;
    let client = server.client();
    for body in ["1", "2", "3"] {
        send(&client, "q", body).await;
    }
    let mut message = receive_one(&client, "q").await;
    for body in ["2", "3"] {
        let settle = json!([{ "lockToken": message["lockToken"], "action": "complete" }]);
        let (got, _) = next(&client, "q", json!({ "max": 9, "settle": settle })).await;
        assert_eq!(bodies(&got), [body]);
        message = got[0].clone();
    }
}

#[tokio::test]
async fn mistakes_in_what_is_to_be_settled_change_nothing() {
    let server = with_queue("q", &json!({})).await;
    let client = server.client();
    send(&client, "q", "a").await;
    send(&client, "q", "b").await;
    let first = receive_one(&client, "q").await;
    let good = json!({ "lockToken": first["lockToken"], "action": "complete" });
    let bad = json!({ "max": 0, "settle": [good, { "lockToken": 7, "action": "eat" }, null] });
    let fields = client.post("/bus/q/receive", &bad).await.bad_fields();
    assert_eq!(fields, ["max", "settle[1].lockToken", "settle[1].action", "settle[2]"]);
    for bad in [json!({}), json!("x"), json!(1)] {
        assert_eq!(client.post("/bus/q/receive", &json!({ "settle": bad })).await.bad_fields(), ["settle"]);
    }
    let counts = counts(&client, "q").await;
    assert_eq!((&counts["active"], &counts["locked"]), (&json!(1), &json!(1)));
    client.post("/bus/nowhere/receive", &json!({ "settle": [good] })).await.problem(410);
}
