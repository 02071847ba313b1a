//! What a payload says, judged at the door and shown by the channels.

use serde_json::{Value, json};
use tidings::config::Config;

use super::{answering, deliver, make, published, quiet};
use crate::channels::http_server::Server;
use crate::support::TestServer;

fn of(payload: &Value) -> Value {
    json!({ "message_type": "reminder", "payload": payload })
}

async fn pushed(sink: &Server) -> Value {
    serde_json::from_slice(&sink.asked().last().unwrap().body).unwrap()
}

// S002-61: to JSON 5.0 is the number 5, and so it is to us.
#[tokio::test]
async fn a_priority_may_be_written_with_a_point() {
    let (server, sink) = answering(published("n")).await;
    for (priority, number) in [(json!(5.0), 5), (json!(1.0), 1), (json!(4), 4), (json!("min"), 1)] {
        make(&server.client(), &of(&json!({ "text": "x", "priority": priority }))).await;
        deliver(&server.services, "ntfy").await;
        assert_eq!(pushed(&sink).await["priority"], number, "{priority}");
    }
    for priority in [json!(5.5), json!(0.0), json!(6.0)] {
        let answer = server.client().post("/api/messages", &of(&json!({ "text": "x", "priority": priority }))).await;
        assert_eq!(answer.bad_fields(), ["payload.priority"]);
    }
}

// S002-57, S002-58: nobody wants a notice that says nothing.
#[tokio::test]
async fn a_blank_text_is_refused() {
    let (server, sink) = answering(published("n")).await;
    for text in ["", "   ", "\n\t", "\u{2003}"] {
        let answer = server.client().post("/api/messages", &of(&json!({ "text": text }))).await;
        assert_eq!(answer.bad_fields(), ["payload.text"], "{text:?}");
    }
    make(&server.client(), &of(&json!({ "text": " x " }))).await;
    deliver(&server.services, "ntfy").await;
    assert_eq!(pushed(&sink).await["message"], " x ");
}

// S002-65: a type without a text shows its fields, and not what stands in a place of its own.
#[tokio::test]
async fn a_payload_without_a_text_is_shown_by_its_own_fields() {
    let sink = Server::start(|_| published("n")).await;
    let url = sink.url("");
    let text = "[[message_types]]\nname = \"order_shipped\"\nschema = { type = \"object\" }\n";
    let types = Config::parse(text, std::iter::empty()).unwrap().message_types;
    let server = TestServer::start_with(|config| {
        quiet(config, &url);
        config.message_types = types;
    })
    .await;
    let payload = json!({ "order": 17, "to": "Berlin", "text": " ", "title": "Shipped", "priority": 4, "tags": ["box"],
        "click_url": "https://shop.example/17", "topic": "orders" });
    make(&server.client(), &json!({ "message_type": "order_shipped", "payload": payload })).await;
    deliver(&server.services, "ntfy").await;
    let pushed = pushed(&sink).await;
    assert_eq!(pushed["message"], "order: 17\nto: Berlin");
    assert_eq!((&pushed["title"], &pushed["topic"]), (&json!("Shipped"), &json!("orders")));
}

// S002-68: no ntfy server has a topic of such a name, so nobody is told later.
#[tokio::test]
async fn topics_that_no_server_has_are_refused_at_every_door() {
    let (server, _sink) = answering(published("n")).await;
    let client = server.client();
    for topic in ["docs", "v1", "account"] {
        let payload = json!({ "text": "x", "topic": topic });
        assert_eq!(client.post("/api/messages", &of(&payload)).await.bad_fields(), ["payload.topic"]);
        let schedule = json!({ "every": "1h", "message_type": "reminder", "payload": payload });
        assert_eq!(client.put("/api/schedules/s", &schedule).await.bad_fields(), ["payload.topic"]);
        let rule = json!({ "pattern": { "eventType": ["a"] }, "targets": [{ "channel": "ntfy", "topic": topic }] });
        assert_eq!(client.put("/rules/r", &rule).await.bad_fields(), ["targets[0].topic"]);
        assert_eq!(client.post("/channels/ntfy/test", &json!({ "topic": topic })).await.bad_fields(), ["topic"]);
        let file = Config::parse(&format!("[ntfy]\ntopic = \"{topic}\"\n"), std::iter::empty());
        assert!(file.unwrap_err().to_string().contains("`ntfy.topic` must not be a name"), "{topic}");
    }
    make(&client, &of(&json!({ "text": "x", "topic": "doc" }))).await;
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
