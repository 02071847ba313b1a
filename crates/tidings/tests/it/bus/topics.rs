//! Topics: who gets a copy of what.

use serde_json::{Value, json};

use super::{bodies, counts, receive, receive_one, send, settle};
use crate::support::{Client, TestServer};

async fn with_topic(subscriptions: &[(&str, Value)]) -> TestServer {
    let server = TestServer::start().await;
    let client = server.client();
    client.put("/bus/t", &json!({ "kind": "topic" })).await.expect(201);
    for (name, rules) in subscriptions {
        client.put(&format!("/bus/t/subscriptions/{name}"), &json!({ "rules": rules })).await.expect(201);
    }
    server
}

async fn publish(client: &Client, label: &str, properties: Value, body: &str) {
    let list = json!([{ "Body": body, "BrokerProperties": { "Label": label }, "UserProperties": properties }]);
    client.post_as("/bus/t/messages", "application/vnd.microsoft.servicebus.json", list.to_string()).await.expect(201);
}

async fn drain(client: &Client, name: &str) -> Vec<Value> {
    let path = format!("t/subscriptions/{name}");
    let got = receive(client, &path, 256).await;
    for message in &got {
        settle(client, &path, message, json!({ "action": "complete" })).await;
    }
    got
}

// S003-73, S003-75: each subscription gets its own copy, and publishers know none of them.
#[tokio::test]
async fn every_subscription_gets_its_own_copy() {
    let server = with_topic(&[("one", json!([])), ("two", json!([]))]).await;
    let client = server.client();
    send(&client, "t", "a").await;
    client.put("/bus/t/subscriptions/late", &json!({})).await.expect(201);
    send(&client, "t", "b").await;
    assert_eq!(bodies(&drain(&client, "one").await), ["a", "b"]);
    assert_eq!(bodies(&drain(&client, "two").await), ["a", "b"]);
    assert_eq!(bodies(&drain(&client, "late").await), ["b"]);
    client.post("/bus/t/receive", &json!({})).await.problem(400);
    client.delete("/bus/t/subscriptions/two").await.expect(204);
    let sent = send(&client, "t", "c").await;
    assert_eq!(sent["messages"].as_array().unwrap().len(), 2);
    client.delete("/bus/t").await.expect(204);
    client.post("/bus/t/subscriptions/one/receive", &json!({})).await.problem(410);
}

// S003-74, S003-76
#[tokio::test]
async fn rules_filter_by_sql_correlation_pattern_and_key() {
    let server = with_topic(&[
        ("sql", json!([{ "name": "r", "sql": "amount > 100 AND region IN ('eu', 'us')" }])),
        (
            "correlation",
            json!([{ "name": "r", "correlation": { "subject": "order.paid", "properties": { "region": "eu" } } }]),
        ),
        ("pattern", json!([{ "name": "r", "pattern": { "kind": [{ "prefix": "inv" }] } }])),
        ("key", json!([{ "name": "r", "key": "order.*" }, { "name": "s", "key": "refund.#" }])),
        ("default", json!([{ "name": "$Default", "sql": "1=1" }, { "name": "x", "sql": "1=0" }])),
    ])
    .await;
    let client = server.client();
    publish(&client, "order.paid", json!({ "amount": 500, "region": "eu" }), r#"{"kind":"invoice"}"#).await;
    publish(&client, "order.paid", json!({ "amount": 50, "region": "us" }), "plain").await;
    publish(&client, "refund.a.b", json!({ "region": "eu" }), r#"{"kind":"other"}"#).await;
    let of = |got: Vec<Value>| got.iter().map(|m| m["body"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(of(drain(&client, "sql").await), [r#"{"kind":"invoice"}"#]);
    assert_eq!(of(drain(&client, "correlation").await), [r#"{"kind":"invoice"}"#]);
    assert_eq!(of(drain(&client, "pattern").await), [r#"{"kind":"invoice"}"#]);
    assert_eq!(drain(&client, "key").await.len(), 3);
    assert_eq!(drain(&client, "default").await.len(), 3);
}

// Five matching rules, two with actions: three copies (the example in Service Bus's documentation).
#[tokio::test]
async fn rules_with_actions_make_extra_copies() {
    let rules = json!([
        { "name": "a", "sql": "1=1" }, { "name": "b", "key": "#" }, { "name": "c", "sql": "n = 1" },
        { "name": "d", "sql": "n = 1", "action": "SET priority = 'high'; REMOVE n" },
        { "name": "e", "sql": "1=1", "action": "SET sys.Label = 'new'" },
    ]);
    let server = with_topic(&[("s", rules)]).await;
    let client = server.client();
    publish(&client, "old", json!({ "n": 1 }), "x").await;
    let got = drain(&client, "s").await;
    assert_eq!(got.len(), 3);
    assert_eq!(got[0]["properties"], json!({ "n": 1 }));
    assert_eq!(got[1]["properties"], json!({ "RuleName": "d", "priority": "high" }));
    assert_eq!((got[2]["subject"].as_str(), got[2]["properties"]["RuleName"].as_str()), (Some("new"), Some("e")));
}

#[tokio::test]
async fn a_rule_that_cannot_be_decided_leaves_a_dead_letter() {
    let server = with_topic(&[("s", json!([{ "name": "r", "sql": "n / 0 = 1" }]))]).await;
    let client = server.client();
    publish(&client, "x", json!({ "n": 1 }), "x").await;
    let dead = receive_one(&client, "t/subscriptions/s/$deadletterqueue").await;
    assert_eq!(dead["deadLetter"]["reason"], "FilterEvaluationException");
    assert_eq!(dead["deadLetter"]["source"], "t/subscriptions/s");
}

// What the broker knows when rules are asked can be asked for, the rest is refused; what a message lacks is an error.
#[tokio::test]
async fn rules_ask_for_the_brokers_properties() {
    let rule = |sql: &str| json!([{ "name": "r", "sql": sql }]);
    let server = with_topic(&[
        ("since", rule("sys.EnqueuedTimeUtc >= '2026-03-01T12:00:00Z'")),
        ("later", rule("sys.EnqueuedTimeUtc > '2026-03-01T12:00:00Z'")),
        ("null", rule("sys.EnqueuedTimeUtc IS NULL OR sys.ReplyTo IS NOT NULL OR EXISTS(sys.ReplyTo)")),
        ("lacks", rule("sys.ReplyTo = 'x'")),
        ("asks", rule("sys.ReplyTo IS NOT NULL AND sys.ReplyTo = 'x'")),
        ("own", rule("replyto = 'x'")),
    ])
    .await;
    let client = server.client();
    publish(&client, "a", json!({}), "x").await;
    assert_eq!(drain(&client, "since").await.len(), 1);
    for name in ["later", "null", "lacks", "asks", "own"] {
        assert!(drain(&client, name).await.is_empty(), "{name}");
        let dead = usize::from(name == "lacks");
        let counts = counts(&client, &format!("t/subscriptions/{name}")).await;
        assert_eq!(counts["deadLettered"], dead, "{name}");
    }
    let dead = receive_one(&client, "t/subscriptions/lacks/$deadletterqueue").await;
    assert_eq!(dead["deadLetter"]["reason"], "FilterEvaluationException");
    assert!(dead["deadLetter"]["description"].as_str().unwrap().contains("sys.ReplyTo"), "{dead}");
    let scheduled =
        json!({ "Label": "a", "ReplyTo": "x", "ScheduledEnqueueTimeUtc": "2026-03-01T12:00:01Z" }).to_string();
    client.post_with("/bus/t/messages", &[("brokerproperties", &scheduled)], "y").await.expect(201);
    for name in ["since", "later", "null", "lacks", "asks"] {
        assert_eq!(counts(&client, &format!("t/subscriptions/{name}")).await["scheduled"], 1, "{name}");
    }
    for name in ["SequenceNumber", "EnqueuedSequenceNumber", "DeliveryCount", "DeadLetterSource", "ExpiresAtUtc"] {
        for sql in [format!("1=1 AND NOT (sys.{name} IS NULL)"), format!("property('sys.{name}') = 1")] {
            let answer = client.put("/bus/t/subscriptions/s", &json!({ "rules": rule(&sql) })).await;
            assert_eq!(answer.bad_fields(), ["rules[0].sql"], "{sql}");
        }
        let action = json!([{ "name": "r", "sql": "1=1", "action": format!("SET n = sys.{name}") }]);
        let answer = client.put("/bus/t/subscriptions/s", &json!({ "rules": action })).await;
        assert_eq!(answer.bad_fields(), ["rules[0].action"], "{name}");
    }
}

#[tokio::test]
async fn every_mistake_in_rules_is_named() {
    let server = with_topic(&[]).await;
    let rules = json!([
        { "name": "a", "sql": "a = " }, { "name": "a", "key": "x", "sql": "1=1" }, { "name": "", "pattern": { "a": 1 } },
        { "name": "d", "correlation": {}, "action": "SET" }, 5
    ]);
    let answer = server.client().put("/bus/t/subscriptions/s", &json!({ "rules": rules })).await;
    let fields = answer.bad_fields();
    for expected in [
        "rules[0].sql",
        "rules[1].name",
        "rules[1]",
        "rules[2].name",
        "rules[3].correlation",
        "rules[3].action",
        "rules[4]",
    ] {
        assert!(fields.iter().any(|field| field == expected), "{expected}: {fields:?}");
    }
    assert!(fields.iter().any(|field| field.starts_with("rules[2].pattern")), "{fields:?}");
    server.client().put("/bus/none/subscriptions/s", &json!({})).await.problem(404);
    server.client().put("/bus/ocr-processing-queue/subscriptions/s", &json!({})).await.problem(400);
}

// S003-109: figures of each subscription.
#[tokio::test]
async fn subscriptions_have_counts_and_dead_letters_of_their_own() {
    let server = with_topic(&[("one", json!([])), ("two", json!([]))]).await;
    let client = server.client();
    send(&client, "t", "a").await;
    let got = receive_one(&client, "t/subscriptions/one").await;
    settle(&client, "t/subscriptions/one", &got, json!({ "action": "deadletter", "reason": "r" })).await;
    let one = counts(&client, "t/subscriptions/one").await;
    let two = counts(&client, "t/subscriptions/two").await;
    assert_eq!((one["active"].as_u64(), one["deadLettered"].as_u64()), (Some(0), Some(1)));
    assert_eq!((two["active"].as_u64(), two["deadLettered"].as_u64()), (Some(1), Some(0)));
    let path = "t/Subscriptions/one/$DeadLetterQueue";
    assert_eq!(receive_one(&client, &path.to_lowercase()).await["body"], "a");
}
