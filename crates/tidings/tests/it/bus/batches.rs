//! Many at once.

use serde_json::{Value, json};

use super::{bodies, counts, receive, with_queue};

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
        assert_eq!(client.post("/bus/q/settle", &list.into()).await.status == 200, good, "{count}");
    }
    let fields = client.post("/bus/q/settle", &json!([{ "action": "eat", "delaySeconds": -1 }, 5])).await.bad_fields();
    assert_eq!(fields, ["[0].lockToken", "[0].delaySeconds", "[0].action", "[1]"]);
}
