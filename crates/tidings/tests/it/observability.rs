//! Health, readiness and metrics.

use std::collections::BTreeMap;

use serde_json::json;

use crate::support::{Answer, Client, TestServer, event};

// SX-22
#[tokio::test]
async fn health_and_readiness_answer_without_a_token() {
    let server = TestServer::start().await;
    let version = env!("CARGO_PKG_VERSION");
    let alive = server.stranger().get("/healthz").await.expect(200).json();
    assert_eq!(alive, json!({ "status": "alive", "version": version }));
    let ready = server.stranger().get("/readyz").await.expect(200).json();
    assert_eq!(ready, json!({ "status": "ready", "version": version }));
}

/// Reads OpenMetrics text strictly: every line is a comment of a known kind or a sample of an announced family.
fn parse(text: &str) -> BTreeMap<String, f64> {
    let (body, end) = text.rsplit_once("# EOF\n").expect("ends with # EOF");
    assert_eq!(end, "");
    let (mut families, mut helped) = (BTreeMap::new(), BTreeMap::new());
    let mut samples = BTreeMap::new();
    for line in body.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (kind, name, rest) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
            match kind {
                "TYPE" => assert!(families.insert(name.to_owned(), rest.to_owned()).is_none(), "{name} twice"),
                "HELP" => assert!(helped.insert(name.to_owned(), rest.to_owned()).is_none(), "{name} twice"),
                "UNIT" => assert!(name.ends_with(rest), "{line}"),
                _ => panic!("{line}"),
            }
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
        let (metric, labels) = name.split_once('{').unwrap_or((name, "}"));
        let labels = labels.strip_suffix('}').unwrap_or_else(|| panic!("{line}"));
        for label in labels.split(',').filter(|label| !label.is_empty()) {
            let (key, text) = label.split_once('=').unwrap_or_else(|| panic!("{line}"));
            assert!(key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'), "{line}");
            assert!(text.len() >= 2 && text.starts_with('"') && text.ends_with('"'), "{line}");
        }
        let family = families.iter().find(|(family, kind)| {
            let suffixes: &[&str] = match kind.as_str() {
                "counter" => &["_total"],
                "histogram" => &["_bucket", "_sum", "_count"],
                "gauge" => &[""],
                other => panic!("unknown type {other}"),
            };
            suffixes.iter().any(|suffix| metric == format!("{family}{suffix}"))
        });
        let (family, _) = family.unwrap_or_else(|| panic!("{line} belongs to no family"));
        assert!(helped.contains_key(family), "{family} is not explained");
        assert!(samples.insert(name.to_owned(), value).is_none(), "{name} twice");
    }
    samples
}

async fn metrics(client: &Client) -> BTreeMap<String, f64> {
    let answer = client.get("/metrics").await.expect(200);
    assert_eq!(answer.header("content-type"), "application/openmetrics-text; version=1.0.0; charset=utf-8");
    parse(&answer.text())
}

// SX-22: the text can be read, and its counters move with what happens.
#[tokio::test]
async fn metrics_are_valid_and_count_what_happens() {
    let server = TestServer::start().await;
    let client = server.client_for(&["read", "ingest"]).await;
    let before = metrics(&client).await;
    client.send(&json!({ "eventId": "e", "eventType": "a" })).await;
    client.post("/events", &json!({ "eventId": "e", "eventType": "a" })).await.expect(202);
    client.post("/events", &event("")).await.problem(400);
    let after = metrics(&client).await;
    // Each of them is there before it rises for the first time, or else nobody sees the rise.
    let of = |figures: &BTreeMap<String, f64>, name: &str| *figures.get(name).unwrap_or_else(|| panic!("{name}"));
    let moved = |name: &str| of(&after, name) - of(&before, name);
    for (name, by) in [
        (r#"tidings_events_total{result="accepted"}"#, 1.0),
        (r#"tidings_events_total{result="duplicate"}"#, 1.0),
        (r#"tidings_events_total{result="rejected"}"#, 1.0),
        (r#"tidings_http_requests_total{method="POST",route="/events",status="2xx"}"#, 2.0),
        (r#"tidings_http_requests_total{method="POST",route="/events",status="4xx"}"#, 1.0),
        (r#"tidings_http_requests_total{method="GET",route="/metrics",status="2xx"}"#, 1.0),
        (r#"tidings_http_request_seconds_count{method="POST",route="/events"}"#, 3.0),
    ] {
        assert!((moved(name) - by).abs() < f64::EPSILON, "{name} moved by {}", moved(name));
    }
    for name in ["tidings_store_commit_seconds_count", "tidings_store_commit_bytes_total", "tidings_store_sequence"] {
        assert!(moved(name) > 0.0, "{name}");
    }
    assert!((after["tidings_store_ready"] - 1.0).abs() < f64::EPSILON);
    assert!(after["tidings_http_connections"] >= 1.0);
    assert!(after["tidings_store_disk_bytes"] > 0.0);
}

// SX-22: an older Prometheus gets the format it asks for.
#[tokio::test]
async fn metrics_come_as_plain_text_if_that_is_asked_for() {
    let server = TestServer::start().await;
    server.client().send(&event("a")).await;
    let ask = |accept: &'static str| {
        let request = server.client().request(reqwest::Method::GET, "/metrics").header("accept", accept);
        async move { Answer::to(request).await.expect(200) }
    };
    let plain = ask("text/plain;version=0.0.4;q=0.5,*/*;q=0.1").await;
    assert_eq!(plain.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    let text = plain.text();
    assert!(text.contains("# TYPE tidings_events_total counter\n"), "{text}");
    assert!(text.contains("# HELP tidings_events_total "), "{text}");
    assert!(text.contains("\ntidings_events_total{result=\"accepted\"} 1\n"), "{text}");
    assert!(!text.contains("# EOF") && !text.contains("# UNIT"), "{text}");
    for both in ["application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5", "*/*"] {
        assert!(ask(both).await.header("content-type").starts_with("application/openmetrics-text"), "{both}");
    }
}

// SX-22: names that callers choose do not become labels.
#[tokio::test]
async fn what_callers_send_does_not_multiply_the_metrics() {
    let server = TestServer::start().await;
    let before = metrics(&server.client()).await;
    for path in ["/events/one", "/events/two", "/trace/three", "/nowhere/four"] {
        server.client().get(path).await;
    }
    let after = metrics(&server.client()).await;
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
}
