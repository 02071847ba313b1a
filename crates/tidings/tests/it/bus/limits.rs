//! Limits at n-1, n and n+1.

use reqwest::Method;
use serde_json::json;

use super::{receive_one, with_queue};
use crate::support::{Answer, TestServer};

// S003-70
#[tokio::test]
async fn a_message_has_at_most_256_kib() {
    let server = with_queue("q", &json!({})).await;
    let client = server.client();
    // The id that it gets, its correlation id and its content type count, too.
    let own = 36 + "c".len() + "text/plain".len();
    for (bytes, good) in [(262_143 - own, true), (262_144 - own, true), (262_145 - own, false)] {
        let headers = [("content-type", "text/plain"), ("x-correlation-id", "c")];
        let answer = client.post_with("/bus/q/messages", &headers, "x".repeat(bytes)).await;
        assert_eq!(answer.status, if good { 201 } else { 413 }, "{bytes}");
    }
    assert_eq!(receive_one(&client, "q").await["body"].as_str().unwrap().len(), 262_143 - own);
}

#[tokio::test]
async fn properties_have_at_most_64_kib() {
    let server = with_queue("q", &json!({})).await;
    let client = server.client();
    for (bytes, good) in [(65_535, true), (65_536, true), (65_537, false)] {
        let message = json!([{ "BrokerProperties": { "MessageId": "m", "CorrelationId": "c" },
            "UserProperties": { "p": "x".repeat(bytes - 3) } }]);
        let answer =
            client.post_as("/bus/q/messages", "application/vnd.microsoft.servicebus.json", message.to_string()).await;
        assert_eq!(answer.status, if good { 201 } else { 413 }, "{bytes}");
    }
}

#[tokio::test]
async fn settings_are_checked_at_their_limits() {
    let server = TestServer::start().await;
    let client = server.client();
    let cases = [
        ("lockSeconds", 4, false),
        ("lockSeconds", 5, true),
        ("lockSeconds", 300, true),
        ("lockSeconds", 301, false),
        ("maxDeliveryCount", 0, false),
        ("maxDeliveryCount", 1, true),
        ("maxDeliveryCount", 2000, true),
        ("maxDeliveryCount", 2001, false),
        ("duplicateWindowSeconds", 604_800, true),
        ("duplicateWindowSeconds", 604_801, false),
        ("defaultTtlSeconds", 3_153_600_000_i64, true),
        ("defaultTtlSeconds", 3_153_600_001, false),
        ("defaultTtlSeconds", -1, false),
    ];
    for (field, value, good) in cases {
        let answer = client.put("/bus/q", &json!({ field: value })).await;
        if good {
            assert!([200, 201].contains(&answer.status), "{field} {value}: {}", answer.text());
        } else {
            assert_eq!(answer.bad_fields(), [field], "{value}");
        }
    }
    let wrong =
        json!({ "kind": "queue", "lockSeconds": "x", "ordered": 1, "retry": { "strategy": "slow", "factor": 0 } });
    assert_eq!(
        client.put("/bus/q2", &wrong).await.bad_fields(),
        ["lockSeconds", "retry.strategy", "retry.factor", "ordered"]
    );
    assert_eq!(client.put("/bus/q2", &json!({ "kind": "pipe" })).await.bad_fields(), ["kind"]);
    client.get("/bus/q2").await.problem(404);
}

#[tokio::test]
async fn names_and_waits_are_checked() {
    let server = with_queue("q", &json!({})).await;
    let client = server.client();
    for (name, good) in [("a".repeat(260), true), ("a".repeat(261), false), ("a%20b".to_owned(), false)] {
        let answer = client.put(&format!("/bus/{name}"), &json!({})).await;
        assert_eq!(answer.status == 201, good, "{name}");
    }
    client.put("/bus/t", &json!({ "kind": "topic" })).await.expect(201);
    for (name, good) in [("s".repeat(50), true), ("s".repeat(51), false)] {
        let answer = client.put(&format!("/bus/t/subscriptions/{name}"), &json!({})).await;
        assert_eq!(answer.status == 201, good, "{name}");
    }
    for (timeout, good) in [("0", true), ("301", false), ("-1", false), ("x", false), ("", false)] {
        let request = client.request(Method::POST, &format!("/bus/q/messages/head?timeout={timeout}"));
        assert_eq!(Answer::to(request).await.status, if good { 204 } else { 400 }, "{timeout}");
    }
    for (limit, good) in [("1", true), ("1000", true), ("0", false), ("1001", false)] {
        assert_eq!(client.get(&format!("/bus/q/peek?limit={limit}")).await.status == 200, good, "{limit}");
    }
    assert_eq!(client.get("/bus/q/peek?state=lost").await.bad_fields(), ["state"]);
}

// What is stored, and what the audit log notes of it, must fit their items; unknown fields are noted, too.
#[tokio::test]
async fn a_definition_has_at_most_300_kib() {
    const MOST: usize = 307_200;
    let server = TestServer::start().await;
    let client = server.client();
    client.put("/bus/t", &json!({ "kind": "topic" })).await.expect(201);
    let rules = |bytes: usize| {
        let of = |name: String, bytes: usize| json!({ "name": name, "pattern": { "a": ["x".repeat(bytes)] } });
        let mut rules: Vec<_> = (0..99).map(|n| of(format!("r{n}"), 3_000)).collect();
        rules.push(of("last".to_owned(), bytes));
        json!({ "rules": rules })
    };
    let said = |bytes: usize| format!("has {bytes} bytes in all, at most {MOST} are allowed");
    let refused = client.put("/bus/t/subscriptions/s", &rules(20_000)).await.problem(400).to_string();
    let whole: usize = refused.split("has ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(refused.contains(&said(whole)), "{refused}");
    let to = |bytes: usize| rules(20_000 + bytes - whole);
    client.get("/bus/t/subscriptions/s").await.problem(404);
    client.put("/bus/t/subscriptions/s", &to(MOST - 1)).await.expect(201);
    client.put("/bus/t/subscriptions/s", &to(MOST)).await.expect(200);
    assert_eq!(client.put("/bus/t/subscriptions/s", &to(MOST + 1)).await.bad_fields(), [""]);
    for (bytes, good) in [(MOST - 1, true), (MOST, true), (MOST + 1, false)] {
        let body = json!({ "else": "x".repeat(bytes - r#"{"else":""}"#.len()) });
        let answer = client.put(&format!("/bus/q{bytes}"), &body).await;
        assert_eq!(answer.status, if good { 201 } else { 400 }, "{}", answer.text());
    }
}

// Each mistake by its own name, so that whoever made it finds it.
#[tokio::test]
async fn a_refusal_says_what_is_wrong_and_where() {
    let server = with_queue("q", &json!({})).await;
    let client = server.client();
    let batch = json!([{ "Body": "a" }, { "Body": "x".repeat(262_144) }]).to_string();
    let large =
        client.post_as("/bus/q/messages", "application/vnd.microsoft.servicebus.json", batch).await.problem(413);
    assert!(large["detail"].as_str().unwrap().starts_with("[1]: "), "{large}");
    for (properties, says) in [
        (r#"{"TimeToLive":1e300}"#, "too long"),
        (r#"{"TimeToLive":0}"#, "above 0"),
        (r#"{"ScheduledEnqueueTimeUtc":"9999-12-31T23:59:59Z"}"#, "too late"),
        (r#"{"ScheduledEnqueueTimeUtc":"soon"}"#, "must be a time"),
        ("{", "must be a JSON object"),
        ("[]", "must be a JSON object"),
    ] {
        let answer = client.post_with("/bus/q/messages", &[("brokerproperties", properties)], "x").await;
        assert!(answer.problem(400).to_string().contains(says), "{properties}: {}", answer.text());
    }
    let bytes = reqwest::header::HeaderValue::from_bytes(b"{\"Label\":\"\xe4\"}").unwrap();
    let request = client.request(Method::POST, "/bus/q/messages").header("brokerproperties", bytes).body("x");
    let answer = Answer::to(request).await;
    assert!(answer.problem(400).to_string().contains("UTF-8"), "{}", answer.text());
    client.put("/bus/t", &json!({ "kind": "topic" })).await.expect(201);
    let cancel = client.delete("/bus/t/scheduled/1").await.problem(400);
    assert!(cancel["detail"].as_str().unwrap().contains("?key="), "{cancel}");
    let rule = |rule: serde_json::Value| json!({ "rules": [rule] });
    for key in ["", ".", ".."] {
        let wrong = client.put("/bus/t/subscriptions/s", &rule(json!({ "name": "r", "key": key }))).await;
        assert_eq!(wrong.bad_fields(), ["rules[0].key"], "{key}");
    }
    let unknown = client.put("/bus/t/subscriptions/s", &rule(json!({ "name": "r", "sql": "sys.Foo = 1" }))).await;
    let said = unknown.problem(400).to_string();
    assert!(said.contains("MessageId") && !said.contains("DeliveryCount"), "{said}");
}
