//! `POST /events` with many events: arrays and NDJSON.

use serde_json::{Value, json};

use crate::support::TestServer;

fn statuses(answer: &Value) -> Vec<&str> {
    answer["events"].as_array().unwrap().iter().map(|event| event["status"].as_str().unwrap()).collect()
}

fn counts(answer: &Value) -> [u64; 3] {
    ["accepted", "duplicates", "rejected"].map(|name| answer[name].as_u64().unwrap())
}

// S003-55, SX-02
#[tokio::test]
async fn an_array_is_answered_event_by_event_in_its_order() {
    let server = TestServer::start().await;
    let batch = json!([{ "eventId": "1", "eventType": "a" }, { "eventId": "2", "eventType": "b" },
        { "eventId": "3", "eventType": "c" }]);
    let answer = server.client().post("/events", &batch).await.expect(202).json();
    assert_eq!(counts(&answer), [3, 0, 0]);
    let ids: Vec<_> = answer["events"].as_array().unwrap().iter().map(|event| event["eventId"].clone()).collect();
    assert_eq!(ids, ["1", "2", "3"]);
    let mut stored = server.client().stored().await;
    stored.sort();
    assert_eq!(stored, ["1", "2", "3"]);
}

// S003-68: without ids of their own, all events of a request share its correlation id.
#[tokio::test]
async fn events_of_one_request_share_its_correlation_id() {
    let server = TestServer::start().await;
    let batch = json!([{ "eventType": "a" }, { "eventType": "a", "correlationId": "own" }, { "eventType": "a" }]);
    let answer = server.client().post("/events", &batch).await.expect(202);
    let shared = answer.header("x-correlation-id").to_owned();
    let ids: Vec<_> =
        answer.json()["events"].as_array().unwrap().iter().map(|event| event["correlationId"].clone()).collect();
    assert_eq!(ids, [json!(shared), json!("own"), json!(shared)]);
}

// SX-24: in a batch the good ones are accepted and the bad ones named.
#[tokio::test]
async fn a_batch_with_bad_events_accepts_the_good_ones() {
    let server = TestServer::start().await;
    let batch = json!([{ "eventId": "good", "eventType": "a" }, { "eventType": "" }, 7,
        { "eventType": "b", "data": [], "source": 1 }, { "eventId": "good", "eventType": "a" }]);
    let answer = server.client().post("/events", &batch).await.expect(202).json();
    assert_eq!(counts(&answer), [1, 1, 3]);
    assert_eq!(statuses(&answer), ["accepted", "rejected", "rejected", "rejected", "duplicate"]);
    assert_eq!(answer["events"][1]["errors"][0]["field"], "eventType");
    let fields: Vec<_> = answer["events"][3]["errors"].as_array().unwrap().iter().map(|e| e["field"].clone()).collect();
    assert_eq!(fields, ["source", "data"]);
    assert_eq!(server.client().stored().await, ["good"]);
}

// SX-24
#[tokio::test]
async fn a_batch_of_bad_events_only_is_400_and_names_each_place_and_field() {
    let server = TestServer::start().await;
    let batch = json!([{ "eventType": "" }, { "eventType": "a", "eventId": 7, "data": 1 }, "text"]);
    let answer = server.client().post("/events", &batch).await;
    assert_eq!(answer.bad_fields(), ["[0].eventType", "[1].eventId", "[1].data", "[2]"]);
    assert!(server.client().stored().await.is_empty());
}

// SX-27: limits.batch_events at n-1, n, n+1, and far beyond.
#[tokio::test]
async fn a_batch_has_at_most_a_thousand_events() {
    let server = TestServer::start().await;
    let batch = |count: usize| format!("[{}]", vec![r#"{"eventType":"a"}"#; count].join(","));
    for count in [1001, 10_000] {
        let answer = server.client().post_as("/events", "application/json", batch(count)).await;
        let detail = answer.problem(413)["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(&count.to_string()) && detail.contains("1000"), "{detail}");
        assert!(server.client().stored().await.is_empty());
    }
    for count in [999, 1000] {
        let answer = server.client().post_as("/events", "application/json", batch(count)).await.expect(202);
        assert_eq!(counts(&answer.json()), [count as u64, 0, 0]);
    }
}

#[tokio::test]
async fn bodies_without_an_event_are_refused() {
    let server = TestServer::start().await;
    for (content_type, body) in [
        ("application/json", ""),
        ("application/json", "  \n "),
        ("application/json", "[]"),
        ("application/x-ndjson", ""),
        ("application/x-ndjson", "\n\n"),
        ("application/cloudevents-batch+json", "{}"),
        ("application/cloudevents+json", ""),
        ("application/json", "null"),
        ("application/json", "7"),
        ("application/json", "\"text\""),
    ] {
        server.client().post_as("/events", content_type, body).await.problem(400);
        assert!(server.client().stored().await.is_empty(), "{content_type} {body:?}");
    }
}

// S003-55
#[tokio::test]
async fn ndjson_takes_an_event_a_line() {
    let server = TestServer::start().await;
    let body = "{\"eventId\":\"1\",\"eventType\":\"a\"}\r\n\n  {\"eventId\":\"2\",\"eventType\":\"b\"}\n";
    for (content_type, status) in
        [("application/x-ndjson", "accepted"), ("application/ndjson; charset=utf-8", "duplicate")]
    {
        let answer = server.client().post_as("/events", content_type, body).await.expect(202).json();
        assert_eq!(statuses(&answer), [status, status]);
    }
    let one = "{\"eventId\":\"3\",\"eventType\":\"a\"}";
    let answer = server.client().post_as("/events", "application/x-ndjson", one).await.expect(202).json();
    assert_eq!(counts(&answer), [1, 0, 0]);
}

// SX-24: NDJSON with one bad line: the others are accepted and the bad one is named by its number.
#[tokio::test]
async fn a_bad_line_of_ndjson_is_named_and_the_others_accepted() {
    let server = TestServer::start().await;
    for (bad, field) in [("{\"eventType\":", "line 3"), ("{\"eventType\":\"\"}", "line 3: eventType"), ("x", "line 3")]
    {
        let body = format!("{{\"eventType\":\"a\"}}\n\n{bad}\n{{\"eventType\":\"b\"}}\n");
        let answer = server.client().post_as("/events", "application/x-ndjson", body).await.expect(202).json();
        assert_eq!(counts(&answer), [2, 0, 1], "{bad}");
        assert_eq!(answer["events"][1]["errors"][0]["field"], field);
    }
    let mut bytes = b"{\"eventType\":\"a\"}\n{\"eventType\":\"".to_vec();
    bytes.extend([0xff, 0xfe, b'"', b'}']);
    let answer = server.client().post_as("/events", "application/x-ndjson", bytes).await.expect(202).json();
    assert_eq!(answer["events"][1]["errors"][0]["field"], "line 2");
    let deep = format!("{{\"eventType\":\"a\"}}\n{}{}", "[".repeat(65), "]".repeat(65));
    let answer = server.client().post_as("/events", "application/x-ndjson", deep).await.expect(202).json();
    assert!(answer["events"][1]["errors"][0]["message"].as_str().unwrap().contains("64"));
}

// SX-24: the sender sees which of its events it is.
#[tokio::test]
async fn a_rejected_event_is_named_by_its_own_ids() {
    let server = TestServer::start().await;
    let batch = json!([{ "eventId": "q1", "correlationId": "k", "eventType": "" }, { "eventType": "ok" },
        { "eventId": "", "eventType": 7 }]);
    let answer = server.client().post("/events", &batch).await.expect(202).json();
    let rejected = &answer["events"][0];
    assert_eq!((&rejected["eventId"], &rejected["correlationId"]), (&json!("q1"), &json!("k")), "{answer}");
    assert!(answer["events"][2].get("eventId").is_none(), "an id that is none is not repeated");
    // In the words of CloudEvents, too.
    let cloud = json!([{ "specversion": "1.0", "id": "c1", "source": "/s", "type": "" },
        { "specversion": "1.0", "id": "c2", "source": "/s", "type": "t" }]);
    let answer = server
        .client()
        .post_as("/events", "application/cloudevents-batch+json", cloud.to_string())
        .await
        .expect(202)
        .json();
    assert_eq!((&answer["events"][0]["eventId"], &answer["events"][0]["status"]), (&json!("c1"), &json!("rejected")));
}

#[tokio::test]
async fn ndjson_of_bad_lines_only_names_each_line_once() {
    let server = TestServer::start().await;
    let answer = server.client().post_as("/events", "application/x-ndjson", "{bad\n\n{\"eventType\":\"\"}\n").await;
    let problem = answer.problem(400);
    assert_eq!(answer.bad_fields(), ["line 1", "line 3: eventType"]);
    let message = problem["errors"][0]["message"].as_str().unwrap();
    assert!(message.contains("at column 2"), "{message}");
}
