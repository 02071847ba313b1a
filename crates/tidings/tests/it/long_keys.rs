//! A key that nothing can have is not there: no question is too long for a good answer.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, TestServer};

/// As long as a key can be and one more, in one byte each and in four; and far more.
fn long() -> Vec<String> {
    let mut all: Vec<String> =
        [1003, 1004, 1005, 1023, 1024, 1025, 2047, 2048, 2049, 5000].map(|n| "x".repeat(n)).into();
    all.extend([32, 128, 129, 251, 256, 257, 512, 513].map(|n| "%F0%9F%98%80".repeat(n)));
    all
}

/// Every path and parameter of the description, one by one.
#[tokio::test]
async fn no_call_fails_for_a_long_name() {
    let server = TestServer::start().await;
    let client = server.client();
    client.put("/bus/q", &json!({ "kind": "queue" })).await.expect(201);
    client.put("/bus/t", &json!({ "kind": "topic" })).await.expect(201);
    client.put("/bus/t/subscriptions/s", &json!({})).await.expect(201);
    let description = tidings::http::openapi();
    let mut tried = 0;
    for (template, operations) in description["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
            let stream = ["/stream", "/tail", "/backup"].iter().any(|end| template.ends_with(end));
            if stream || method == Method::PUT {
                continue;
            }
            let plain = template.replace("{entity}", "q").replace("{subscription}", "s");
            let plain = if template.contains("{subscription}") { plain.replace("/q/", "/t/") } else { plain };
            for text in long() {
                let mut paths: Vec<String> = Vec::new();
                if plain.contains('{') {
                    let pieces =
                        plain.split('/').map(|piece| if piece.starts_with('{') { text.as_str() } else { piece });
                    paths.push(pieces.collect::<Vec<_>>().join("/"));
                }
                let params = operation["parameters"].as_array().into_iter().flatten();
                let named = params.filter(|param| param["in"] == "query").filter_map(|param| param["name"].as_str());
                let shown = plain.split('/').map(|piece| if piece.starts_with('{') { "a" } else { piece });
                let shown = shown.collect::<Vec<_>>().join("/");
                paths.extend(named.map(|name| format!("{shown}?{name}={text}")));
                for path in paths {
                    tried += 1;
                    let request = client.request(method.clone(), &path).header("content-type", "application/json");
                    let request = if method == Method::GET { request } else { request.body("{}") };
                    let answer = Answer::to(request).await;
                    let shown = path.chars().take(80).collect::<String>();
                    assert!(answer.status < 500, "{method} {shown} ({}): {}", text.len(), answer.text());
                }
            }
        }
    }
    assert!(tried > 1000, "{tried}");
}

#[tokio::test]
async fn what_can_be_no_key_is_not_there() {
    let server = TestServer::start().await;
    let client = server.client();
    client.put("/bus/q", &json!({ "kind": "queue" })).await.expect(201);
    for bytes in [1004, 1005, 5000] {
        let key = "x".repeat(bytes);
        client.delete(&format!("/bus/q/scheduled?key={key}")).await.problem(404);
        client.get(&format!("/incidents/{key}")).await.problem(404);
        client.post(&format!("/incidents/{key}/acknowledge"), &json!({})).await.problem(404);
    }
    for (chars, good) in [(127, true), (128, true), (129, false), (1024, false)] {
        let id = "%F0%9F%98%80".repeat(chars);
        for path in ["/alerts", "/alerts/export"] {
            let answer = client.get(&format!("{path}?correlationId={id}")).await;
            if good {
                answer.expect(200);
            } else {
                assert_eq!(answer.bad_fields(), ["correlationId"], "{path} {chars}");
            }
        }
    }
    let _: Value = client.get("/alerts?correlationId=x").await.expect(200).json();
}
