//! `GET /notifications/stream`: everything once, whoever stores it, and after a break, too.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use super::Rig;
use crate::support::{Client, raw};

const PATIENCE: Duration = Duration::from_secs(20);

/// A stream being read.
struct Stream {
    response: reqwest::Response,
    read: String,
    /// The last id that came.
    id: String,
}

impl Stream {
    async fn open(client: &Client, path: &str, last_id: Option<&str>) -> Self {
        let mut request = client.request(reqwest::Method::GET, path);
        if let Some(id) = last_id {
            request = request.header("last-event-id", id);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let mut stream = Self { response, read: String::new(), id: String::new() };
        // The first frame says where it begins.
        assert!(stream.frame().await.is_none());
        stream
    }

    /// The entry of the next frame, if it has one.
    async fn frame(&mut self) -> Option<Value> {
        let frame = loop {
            if let Some((frame, rest)) = self.read.split_once("\n\n") {
                let frame = frame.to_owned();
                self.read = rest.to_owned();
                break frame;
            }
            let piece = timeout(PATIENCE, self.response.chunk()).await.expect("something comes").unwrap();
            self.read.push_str(std::str::from_utf8(&piece.expect("the stream goes on")).unwrap());
        };
        let mut data = None;
        for line in frame.lines() {
            match line.split_once(": ") {
                Some(("id", id)) => self.id = id.to_owned(),
                Some(("data", text)) => data = Some(serde_json::from_str(text).unwrap()),
                _ => {}
            }
        }
        data
    }

    async fn titles(&mut self, count: usize) -> Vec<String> {
        let mut titles = Vec::new();
        while titles.len() < count {
            titles.extend(self.frame().await.map(|entry| entry["title"].as_str().unwrap().to_owned()));
        }
        titles
    }
}

// S001-92
#[tokio::test]
async fn entries_come_as_they_are_stored_and_resume_where_it_broke_off() {
    let rig = Rig::start().await;
    rig.tell(&["u1"], "before", json!({})).await;
    let user = rig.server.client_for(&["user:u1"]).await;
    let mut stream = Stream::open(&user, "/notifications/stream", None).await;
    let begun = stream.id.clone();
    rig.tell(&["u2"], "not mine", json!({})).await;
    rig.tell(&["u1"], "first", json!({ "event_type": "score", "new_score": 3 })).await;
    let first = stream.frame().await.unwrap();
    assert_eq!((&first["title"], &first["type"], &first["new_score"]), (&json!("first"), &json!("score"), &json!(3)));
    assert_eq!(
        first,
        rig.page("user=u1").await["items"].as_array().unwrap().iter().find(|e| e["title"] == "first").unwrap().clone()
    );
    let id = stream.id.clone();
    drop(stream);
    // The clock of the tests stands still: all of these are of one instant, in no order of their own.
    rig.tell_many(&["u1"], (0..150).map(|n| format!("missed{n}"))).await;
    let mut stream = Stream::open(&user, "/notifications/stream?user=u1", Some(&id)).await;
    let mut missed = stream.titles(150).await;
    // Others of the same instant may stand anywhere among them.
    let late: Vec<String> = (0..20).map(|n| format!("late{n:02}")).collect();
    for title in &late {
        rig.tell(&["u1"], title, json!({})).await;
        assert_eq!(stream.titles(1).await, [title.as_str()]);
    }
    let id = stream.id.clone();
    drop(stream);
    // Whoever comes back hears what is new, and nothing twice.
    let mut stream = Stream::open(&user, "/notifications/stream", Some(&id)).await;
    rig.server.clock.advance(Duration::from_secs(1));
    rig.tell(&["u1"], "last", json!({})).await;
    assert_eq!(stream.titles(1).await, ["last"]);
    // What came late meanwhile is not lost.
    let mut stream = Stream::open(&user, "/notifications/stream", Some(&begun)).await;
    let all = stream.titles(172).await;
    assert!(late.iter().all(|title| all.contains(title)));
    missed.sort();
    missed.dedup();
    assert_eq!((missed.len(), missed.iter().all(|title| title.starts_with("missed"))), (150, true));
    // From the very beginning of the first stream.
    let mut stream = Stream::open(&user, "/notifications/stream", Some(&begun)).await;
    assert_eq!(stream.titles(172).await.iter().filter(|title| *title == "before").count(), 0);
}

// S001-52, S001-92: what a fan-out stores later than its event came is not passed over.
#[tokio::test]
async fn entries_of_a_large_fan_out_are_announced_too() {
    let rig = Rig::start().await;
    let user = rig.server.client_for(&["user:u150"]).await;
    let mut stream = Stream::open(&user, "/notifications/stream", None).await;
    let users: Vec<String> = (0..300).map(|n| format!("u{n}")).collect();
    let users: Vec<&str> = users.iter().map(String::as_str).collect();
    rig.tell(&users, "to all", json!({})).await;
    assert_eq!(stream.titles(1).await, ["to all"]);
    let id = stream.id.clone();
    drop(stream);
    // Two that come in the order in which they were not named.
    rig.server.clock.advance(Duration::from_secs(1));
    rig.tell(&["u150"], "next", json!({})).await;
    let mut stream = Stream::open(&user, "/notifications/stream", Some(&id)).await;
    assert_eq!(stream.titles(1).await, ["next"]);
}

// S001-59, S001-78: set back two hours, the clock puts nothing where nobody looks for news.
#[tokio::test]
async fn after_the_clock_was_set_back_the_newest_is_first_and_a_stream_resumes() {
    let rig = Rig::start().await;
    let user = rig.server.client_for(&["user:u1"]).await;
    for title in ["a", "b", "c"] {
        rig.tell(&["u1"], title, json!({})).await;
        rig.server.clock.advance(Duration::from_secs(1));
    }
    let third = rig.identifiers("u1").await[0].clone();
    let mut stream = Stream::open(&user, "/notifications/stream", None).await;
    let id = stream.id.clone();
    let right = rig.server.services.clock.now();
    rig.server.clock.jump_to(right - Duration::from_secs(7200));
    // More than the event's own transaction holds, and few.
    let users: Vec<String> = (1..=150).map(|n| format!("u{n}")).collect();
    rig.tell(&users.iter().map(String::as_str).collect::<Vec<_>>(), "to all", json!({})).await;
    rig.server.clock.advance(Duration::from_secs(1));
    rig.tell(&["u1"], "after", json!({})).await;
    assert_eq!(stream.titles(2).await.len(), 2);
    for last in [id.as_str(), third.as_str()] {
        let mut stream = Stream::open(&user, "/notifications/stream", Some(last)).await;
        assert_eq!(stream.titles(2).await, ["to all", "after"], "{last}");
    }
    assert_eq!(rig.pages("user=u1").await.concat(), ["after", "to all", "c", "b", "a"]);
    let page = rig.page("user=u1&limit=1").await;
    let said: tidings_core::time::Timestamp = page["items"][0]["time"].as_str().unwrap().parse().unwrap();
    assert!(said < right, "what the clock said: {said}");
    // And on, when it is right again.
    rig.server.clock.jump_to(right + Duration::from_secs(3600));
    rig.tell(&["u1"], "later", json!({})).await;
    assert_eq!(stream.titles(1).await, ["later"]);
    assert_eq!(rig.pages("user=u1").await.concat().first().unwrap(), "later");
}

#[tokio::test]
async fn an_identifier_is_a_place_to_resume_from_and_nonsense_is_none() {
    let rig = Rig::start().await;
    for title in ["a", "b", "c"] {
        rig.tell(&["u1"], title, json!({})).await;
        rig.server.clock.advance(Duration::from_millis(1));
    }
    let ids = rig.identifiers("u1").await;
    let mut stream = Stream::open(&rig.client, "/notifications/stream?user=u1", Some(&ids[2])).await;
    assert_eq!(stream.titles(2).await, ["b", "c"]);
    for bad in ["nonsense", "all#5", "%", "AAAA"] {
        let request = rig.client.request(reqwest::Method::GET, "/notifications/stream?user=u1");
        let answer = crate::support::Answer::to(request.header("last-event-id", bad)).await;
        assert_eq!(answer.bad_fields(), ["Last-Event-ID"], "{bad}");
    }
    assert_eq!(rig.client.get("/notifications/stream?user=u1&from=1").await.bad_fields(), ["from"]);
}

#[tokio::test]
async fn a_stream_ends_with_the_server() {
    let mut rig = Rig::start().await;
    let mut connection = raw::Raw::connect(rig.server.address).await;
    let head = raw::head("GET", "/notifications/stream?user=u1", rig.server.admin_token());
    connection.send(format!("{head}\r\n")).await;
    connection.read_until("listening").await;
    rig.server.stop().await;
    connection.read_to_end().await;
}
