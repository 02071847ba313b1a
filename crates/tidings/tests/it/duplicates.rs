//! An event that comes again within 24 hours is answered, and not processed again.

use serde_json::{Value, json};

use crate::support::{Client, TestServer};

async fn send(client: &Client, id: &str, source: Option<&str>, correlation: &str) -> (String, String) {
    let event = json!({ "eventId": id, "eventType": "a", "source": source, "correlationId": correlation });
    let answer = client.post("/events", &event).await.expect(202).json();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&answer["events"][0]["status"]), text(&answer["events"][0]["correlationId"]))
}

fn is(status: &str, correlation: &str) -> (String, String) {
    (status.to_owned(), correlation.to_owned())
}

// S003-57, SX-09: the answer holds the correlation id under which the first one went on.
#[tokio::test]
async fn the_same_id_from_the_same_source_is_a_duplicate() {
    let server = TestServer::start().await;
    let client = server.client();
    for source in [Some("shop"), None] {
        assert_eq!(send(&client, "e", source, "first").await, is("accepted", "first"));
        assert_eq!(send(&client, "e", source, "second").await, is("duplicate", "first"));
    }
    assert_eq!(client.stored().await, ["e", "e"]);
}

// S003-57
#[tokio::test]
async fn the_same_id_from_another_source_is_another_event() {
    let server = TestServer::start().await;
    let client = server.client();
    for source in [None, Some("shop"), Some("shop2"), Some("Shop"), Some(" shop")] {
        assert_eq!(send(&client, "e", source, "c").await, is("accepted", "c"), "{source:?}");
    }
    assert_eq!(client.stored().await.len(), 5);
}

// S003-57, SX-26: the window is 24 h by the clock.
#[tokio::test]
async fn after_a_day_the_same_id_is_accepted_again() {
    let server = TestServer::start().await;
    let client = server.client();
    assert_eq!(send(&client, "e", None, "one").await, is("accepted", "one"));
    server.advance(23);
    assert_eq!(send(&client, "e", None, "two").await, is("duplicate", "one"));
    server.clock.advance(std::time::Duration::from_secs(3600));
    assert_eq!(send(&client, "e", None, "two").await, is("duplicate", "one"), "exactly 24 h");
    server.clock.advance(std::time::Duration::from_micros(1));
    assert_eq!(send(&client, "e", None, "three").await, is("accepted", "three"));
    assert_eq!(send(&client, "e", None, "four").await, is("duplicate", "three"), "a new window began");
    assert_eq!(client.stored().await, ["e", "e"]);
    let newest = client.get("/events/e").await.expect(200).json();
    assert_eq!(newest["correlationId"], "three");
}

// S003-57
#[tokio::test]
async fn the_window_can_be_configured() {
    let server = TestServer::start_with(|config| config.retention.dedupe_hours = 1).await;
    let client = server.client();
    send(&client, "e", None, "one").await;
    server.advance(2);
    assert_eq!(send(&client, "e", None, "two").await, is("accepted", "two"));
}

// S003-57: in one request the first one wins, in its order.
#[tokio::test]
async fn the_same_id_twice_in_one_batch_is_stored_once() {
    let server = TestServer::start().await;
    let twin = |n: u32| json!({ "eventId": "e", "eventType": "a", "data": { "n": n }, "correlationId": "c" });
    let batch = json!([twin(1), { "eventType": "other" }, twin(2), twin(3)]);
    let answer = server.client().post("/events", &batch).await.expect(202).json();
    assert_eq!([&answer["accepted"], &answer["duplicates"], &answer["rejected"]], [2, 2, 0]);
    let statuses: Vec<_> = answer["events"].as_array().unwrap().iter().map(|event| event["status"].clone()).collect();
    assert_eq!(statuses, ["accepted", "accepted", "duplicate", "duplicate"]);
    assert_eq!(server.client().get("/events/e").await.json()["data"], json!({ "n": 1 }));
}

// S003-57, SX-02: many senders at once.
#[tokio::test]
async fn of_many_senders_at_once_exactly_one_is_accepted() {
    let server = TestServer::start().await;
    let client = server.client();
    let sends = (0..20).map(|n| {
        let client = client.clone();
        async move { send(&client, "e", Some("shop"), &format!("c{n}")).await }
    });
    let answers = futures_util::future::join_all(sends).await;
    let accepted: Vec<_> = answers.iter().filter(|(status, _)| status == "accepted").collect();
    assert_eq!(accepted.len(), 1);
    assert!(answers.iter().all(|(_, correlation)| *correlation == accepted[0].1), "{answers:?}");
    assert_eq!(client.stored().await, ["e"]);
}

// S003-57: a refused event leaves no trace that would make the corrected one a duplicate.
#[tokio::test]
async fn a_refused_event_can_be_corrected_and_sent_again() {
    let server = TestServer::start().await;
    let bad = json!({ "eventId": "e", "eventType": "a", "data": 7 });
    server.client().post("/events", &bad).await.problem(400);
    assert_eq!(send(&server.client(), "e", None, "c").await, is("accepted", "c"));
}
