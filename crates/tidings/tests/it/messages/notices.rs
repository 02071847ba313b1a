//! What a payload says, judged at the door and shown by the channels.

use serde_json::{Value, json};

use super::{answering, published};

fn of(payload: &Value) -> Value {
    json!({ "message_type": "reminder", "payload": payload })
}

// S002-62, SX-20: an address that cannot be used is refused, with the reason.
#[tokio::test]
async fn addresses_are_judged_at_the_door() {
    let (server, _sink) = answering(published("n")).await;
    let client = server.client();
    for url in ["https://[", "https://a:port/", "http://[::1"] {
        let answer = client.post("/api/messages", &of(&json!({ "text": "x", "click_url": url }))).await;
        assert_eq!(answer.bad_fields(), ["payload.click_url"], "{url}");
    }
    let long = |last: &str| format!("http://h.example/{}{last}", "x".repeat(2048 - 17 - 2));
    for (url, why) in [
        ("http://exämple.com/".to_owned(), "must have ASCII characters only"),
        ("http://h.example/a b".to_owned(), "must have no blanks"),
        (" http://h.example/".to_owned(), "must have no blanks"),
        (long("xxx"), "must have at most 2048"),
        // As many characters as are allowed, and more bytes than are sent.
        (long("xä"), "must have at most 2048 bytes"),
    ] {
        let answer = client.post("/channels/webhook/test", &json!({ "url": url })).await;
        assert_eq!(answer.bad_fields(), ["url"], "{url}");
        assert!(answer.json()["errors"][0]["message"].as_str().unwrap().starts_with(why), "{url}: {}", answer.text());
        let rule = json!({ "pattern": { "eventType": ["a"] }, "targets": [{ "channel": "webhook", "url": url }] });
        let answer = client.put("/rules/r", &rule).await;
        assert_eq!(answer.bad_fields(), ["targets[0].url"], "{url}");
    }
    let rule = json!({ "pattern": { "eventType": ["a"] }, "targets": [{ "channel": "webhook", "url": long("xx") }] });
    client.put("/rules/r", &rule).await.expect(201);
}

// SX-16: a time that is none, and a time that is too far away.
#[tokio::test]
async fn a_time_that_is_too_far_off_is_called_so() {
    let (server, _sink) = answering(published("n")).await;
    for (at, why) in [
        (json!("9999-12-31T00:00:00Z"), "must not be after 9999-12-30T22:00:00Z"),
        (json!("tomorrow"), "must be an instant like \"2027-01-01T08:00:00Z\""),
        (json!(17), "must be a string like"),
    ] {
        let mut body = of(&json!({ "text": "x" }));
        body["deliver_at"] = at;
        let answer = server.client().post("/api/messages", &body).await;
        assert_eq!(answer.bad_fields(), ["deliver_at"]);
        assert!(answer.json()["errors"][0]["message"].as_str().unwrap().starts_with(why), "{}", answer.text());
    }
}
