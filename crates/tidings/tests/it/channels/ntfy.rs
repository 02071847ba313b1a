//! ntfy against a server that answers as ntfy does.

use tidings::channel::Outcome;
use tidings::channel::ntfy::Sender;
use tidings::config::Secret;
use tidings::outbound::Outbound;

use super::http_server::{Reply, Server};
use super::{notice, now, quick};

fn sender(url: &str) -> Sender {
    Sender::new(Outbound::trusted_with(quick()).unwrap(), url, Some(Secret::new("tk_secret"))).unwrap()
}

fn refusal(status: u16, code: u32, error: &str) -> Reply {
    let body = format!(r#"{{"code":{code},"http":{status},"error":"{error}","link":"https://ntfy.sh/docs"}}"#);
    Reply::Answer { status, headers: vec![("retry-after", "7".to_owned())], body }
}

// S002-68
#[tokio::test]
async fn publishes_json_to_the_root_and_keeps_the_id() {
    let server = Server::start(|_| Reply::Answer {
        status: 200,
        headers: Vec::new(),
        body: r#"{"id":"hwQ2YpKdmgXK","time":1773480414,"event":"message","topic":"ops"}"#.to_owned(),
    })
    .await;
    let outcome = sender(&server.url("")).send(&notice(), "ops", now()).await;
    assert_eq!(outcome, Outcome::Delivered { id: Some("hwQ2YpKdmgXK".to_owned()), detail: "answered 200".to_owned() });
    let asked = &server.asked()[0];
    assert_eq!((asked.path.as_str(), asked.headers["authorization"].as_str()), ("/", "Bearer tk_secret"));
    let body: serde_json::Value = serde_json::from_slice(&asked.body).unwrap();
    assert_eq!(
        body,
        serde_json::json!({
            "topic": "ops", "message": "Disk /var is full", "title": "Disk full", "priority": 4, "tags": ["warning"],
            "click": "https://tidings.example/ui/messages/1",
        })
    );
}

// S002-50
#[tokio::test]
async fn every_status_is_answered_as_the_table_says() {
    let server = Server::start(|asked| Reply::status(asked.path.trim_start_matches('/').parse().unwrap())).await;
    for status in 200..=599_u16 {
        let outcome = sender(&server.url(&format!("/{status}"))).send(&notice(), "ops", now()).await;
        let fits = match (&outcome, status) {
            (Outcome::Delivered { id: None, .. }, 200..=299) => true,
            (Outcome::Retry { code, .. }, 408 | 429 | 500..=599) => *code == Some(status),
            (_, 408 | 429) => false,
            (Outcome::Reject { code, disable_target: false, .. }, 300..=499) => *code == Some(status),
            _ => false,
        };
        assert!(fits, "{status}: {outcome:?}");
    }
}

// S002-50
#[tokio::test]
async fn errors_carry_ntfys_code_and_words() {
    let server = Server::start(|_| refusal(429, 42_901, "limit reached: too many requests, token tk_secret")).await;
    let outcome = sender(&server.url("")).send(&notice(), "ops", now()).await;
    let Outcome::Retry { after, error, code } = outcome else { panic!("{outcome:?}") };
    assert_eq!((after.map(|after| after.as_secs()), code), (Some(7), Some(429)));
    assert_eq!(error, "answered 429 (ntfy 42901): limit reached: too many requests, token ***");
}

#[tokio::test]
async fn a_dead_server_is_tried_again_and_a_bad_topic_is_not() {
    let sender = sender("http://127.0.0.1:1");
    assert!(matches!(sender.send(&notice(), "ops", now()).await, Outcome::Retry { code: None, .. }));
    for topic in ["", "a/b", "ä", &"x".repeat(65)] {
        assert!(matches!(sender.send(&notice(), topic, now()).await, Outcome::Reject { .. }), "{topic}");
    }
}
