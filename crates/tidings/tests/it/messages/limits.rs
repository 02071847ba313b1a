//! What a message may be, at every door, and that whatever is taken comes to an end that is written down.

use serde_json::{Value, json};
use tidings::config::Config;
use tidings::messages::{Message, dead, payload};
use tidings_store::{Key, Write};

use super::{answering, deliver, id_of, look, make, message, published, quiet, seconds, server_with, store};
use crate::channels::http_server::{Reply, Server};
use crate::support::{Client, TestServer};

/// A payload of so many bytes.
fn of_bytes(bytes: usize) -> Value {
    json!({ "text": "x", "z": "a".repeat(bytes - r#"{"text":"x","z":""}"#.len()) })
}

/// A payload of so many levels.
fn of_levels(levels: usize) -> Value {
    json!({ "text": "x", "z": (1..levels).fold(json!(1), |inner, _| json!({ "a": inner })) })
}

/// Every limit of a payload: the last that is good, and the first that is not.
fn payloads() -> Vec<(Value, bool)> {
    let bytes = [-1, 0, 1].map(|more| (of_bytes(payload::BYTES.checked_add_signed(more).unwrap()), more <= 0));
    let levels = [-1, 0, 1].map(|more| (of_levels(payload::DEPTH.checked_add_signed(more).unwrap()), more <= 0));
    let numbers = (json!({ "text": "x", "z": vec![7; 130_000] }), false);
    bytes.into_iter().chain(levels).chain([numbers, (of_levels(40), false)]).collect()
}

fn body(payload: &Value) -> Value {
    json!({ "message_type": "reminder", "payload": payload })
}

async fn letters(client: &Client) -> Vec<Value> {
    let list = client.get("/dead-letters").await.expect(200).json();
    list["items"].as_array().unwrap().clone()
}

// SX-27, S002-60: one limit at all doors; what is refused leaves nothing behind.
#[tokio::test]
async fn a_payload_has_the_same_limits_at_every_door() {
    let (server, _sink) = answering(Reply::status(400)).await;
    let client = server.client();
    let failed = make(&client, &body(&json!({ "text": "x" }))).await;
    deliver(&server.services, "ntfy").await;
    for (number, (payload, good)) in payloads().into_iter().enumerate() {
        let single = client.post("/api/messages", &body(&payload)).await;
        let many = client.post("/api/messages/batch", &json!([body(&json!({ "text": "x" })), body(&payload)])).await;
        let schedule = json!({ "every": "1h", "message_type": "reminder", "payload": payload });
        let schedule = client.put(&format!("/api/schedules/s{number}"), &schedule).await;
        let edit = format!("/dead-letters/{}/resubmit", id_of(&failed));
        if good {
            single.expect(201);
            assert_eq!(many.expect(201).json()["created"], 2);
            schedule.expect(201);
            continue;
        }
        assert_eq!(single.bad_fields(), ["payload"], "{number}");
        let many = many.expect(201).json();
        assert_eq!(many["items"][1]["errors"][0]["field"], "payload");
        assert_eq!(schedule.bad_fields(), ["payload"]);
        let refused = client.post(&edit, &json!({ "payload": payload })).await;
        assert_eq!(refused.bad_fields(), ["payload"]);
        // What the store calls its tables is nobody's business.
        for answer in [&single, &schedule, &refused] {
            assert!(!answer.text().contains("rez-agent") && !answer.text().contains("an item of"), "{}", answer.text());
        }
        client.get(&format!("/api/schedules/s{number}")).await.problem(404);
    }
    assert_eq!(letters(&client).await.len(), 1);
    let good = of_levels(payload::DEPTH);
    let again = client.post(&format!("/dead-letters/{}/resubmit", id_of(&failed)), &json!({ "payload": good })).await;
    assert_eq!(again.expect(201).json()["payload"], good);
}

// S002-47: the largest that is taken ends as a dead letter that has it whole, whatever the other side says to each attempt.
#[tokio::test]
async fn the_largest_message_ends_whole_as_a_dead_letter() {
    let long = "ß".repeat(5000);
    let sink = Server::start(move |_| Reply::Answer { status: 503, headers: Vec::new(), body: long.clone() }).await;
    let url = sink.url("");
    let server = TestServer::start_with(|config| {
        quiet(config, &url);
        config.delivery.max_retries = 100;
        config.delivery.cap_seconds = 1.0;
    })
    .await;
    let client = server.client();
    let (large, deep) = (of_bytes(payload::BYTES), of_levels(payload::DEPTH));
    let made = [make(&client, &body(&large)).await, make(&client, &body(&deep)).await];
    for _ in 0..=100 {
        deliver(&server.services, "ntfy").await;
        server.clock.advance(seconds(31.0));
    }
    for (made, payload) in made.iter().zip([large, deep]) {
        let shown = look(&client, made).await;
        assert_eq!((&shown["status"], &shown["retry_count"]), (&json!("failed"), &json!(100)));
        assert_eq!(shown["attempts"].as_array().unwrap().last().unwrap()["number"], 101);
        assert_eq!(shown["payload"], payload);
        let letter = client.get(&format!("/dead-letters/{}", id_of(made))).await.expect(200).json();
        assert_eq!(letter["payload"], payload);
    }
    assert_eq!(deliver(&server.services, "ntfy").await, None);
}

fn outbox(server: &TestServer) -> usize {
    std::fs::read_dir(server.data_dir().join("outbox")).map_or(0, Iterator::count)
}

fn addresses(count: usize, chars: usize) -> Vec<String> {
    let label = format!("{}.{}.", "d".repeat(60), "e".repeat(60));
    let address = |number: usize| {
        let host = format!("{label}{}.example", "f".repeat(50));
        let rest = chars - host.len() - 1;
        format!("{number:0>rest$}@{host}", rest = rest.min(64))
    };
    (0..count).map(address).collect()
}

async fn mail(change: impl FnOnce(&mut Config)) -> TestServer {
    TestServer::start_with(|config| {
        quiet(config, "http://127.0.0.1:9");
        change(config);
    })
    .await
}

// S000-50, "nobody gets two": however long the list of a rule is, everybody gets one copy, and it is known of each.
#[tokio::test]
async fn a_rules_mail_to_a_thousand_is_several_messages() {
    let server = mail(|_| {}).await;
    let client = server.client();
    let rule =
        json!({ "pattern": { "eventType": ["a"] }, "targets": [{ "channel": "email", "to": ["{{ data.l }}"] }] });
    client.put("/rules/r", &rule).await.expect(201);
    for (count, parts) in [(99, 1), (100, 1), (101, 2), (1000, 10)] {
        let before = outbox(&server);
        let to = addresses(count, 246);
        let event_id = format!("e{count}");
        client.send(&json!({ "eventId": event_id, "eventType": "a", "data": { "l": to } })).await;
        deliver(&server.services, "email").await;
        let outcome = client.get(&format!("/events/{event_id}")).await.expect(200).json()["outcome"].clone();
        let sent = outcome["messages"].as_array().unwrap();
        assert_eq!(sent.len(), parts, "{outcome}");
        let mut known = 0;
        for sent in sent {
            let shown = client.get(&format!("/api/messages/{}", sent["message_id"].as_str().unwrap())).await.json();
            assert_eq!(shown["status"], "completed");
            known += shown["recipients"].as_object().unwrap().values().filter(|one| one["delivered"] == true).count();
        }
        assert_eq!((known, outbox(&server) - before), (count, count));
        // Nothing is left that a restart or a lease that ends would send again.
        server.clock.advance(seconds(3600.0));
        assert_eq!(deliver(&server.services, "email").await, None);
        assert_eq!(outbox(&server) - before, count);
    }
}

// An earlier version made one message of them all. What came of it is recorded in a shorter form.
#[tokio::test]
async fn what_is_longer_than_its_item_is_recorded_in_a_shorter_form() {
    let server = mail(|_| {}).await;
    let client = server.client();
    let good = addresses(1000, 246);
    let made = store(&server.services, "email", json!({ "to": good })).await;
    deliver(&server.services, "email").await;
    let path = |made: &Message| format!("/api/messages/{}", made.message_id);
    assert_eq!(client.get(&path(&made)).await.expect(200).json()["status"], "completed");
    assert_eq!(outbox(&server), 1000);
    // Half of them are no addresses.
    let bad: Vec<String> = (0..500).map(|number| format!("{number:0>250}")).collect();
    let both: Vec<&String> = good.iter().take(500).chain(&bad).collect();
    let made = store(&server.services, "email", json!({ "to": both })).await;
    deliver(&server.services, "email").await;
    server.clock.advance(seconds(3600.0));
    assert_eq!(deliver(&server.services, "email").await, None);
    assert_eq!(outbox(&server), 1500);
    assert_eq!(client.get(&path(&made)).await.expect(200).json()["status"], "failed");
    let again = client.post(&format!("{}/retry", path(&made)), &json!({})).await.expect(201).json();
    assert_eq!(again["target"]["to"], json!(bad), "who has it gets no other");
}

// A message that an earlier version took, or that somebody else put in the table, ends although nothing fits beside it.
#[tokio::test]
async fn a_message_that_fills_its_item_comes_to_an_end() {
    let sink = Server::start(|_| Reply::status(503)).await;
    let server = server_with(&sink).await;
    let client = server.client();
    let services = &server.services;
    for room in [0, 100, 200, 300, 400, 500, 1000, 5000] {
        let mut full = message(services, "ntfy", json!({ "topic": "t" }));
        full.secret = None;
        full.payload.insert("z".to_owned(), "".into());
        let left = tidings_store::limits::ITEM_BYTES - full.to_item().unwrap().size() - room;
        full.payload.insert("z".to_owned(), "z".repeat(left).into());
        let full = services.messages.create(vec![full]).await.unwrap().remove(0);
        for _ in 0..7 {
            deliver(services, "ntfy").await;
            server.clock.advance(seconds(1000.0));
        }
        assert_eq!(deliver(services, "ntfy").await, None, "{room}");
        let shown = client.get(&format!("/api/messages/{}", full.message_id)).await.expect(200).json();
        assert_eq!((&shown["status"], &shown["state"]), (&json!("failed"), &json!("dead_lettered")), "{room}");
        assert_eq!(shown["payload"]["z"].as_str().unwrap().len(), left);
        client.get(&format!("/dead-letters/{}", full.message_id)).await.expect(200);
        if room == 0 {
            client.post(&format!("/api/messages/{}/retry", full.message_id), &json!({})).await.problem(409);
        }
    }
    assert_eq!(letters(&client).await.len(), 8);
}

// The same for one that is nested as deep as an item can be.
#[tokio::test]
async fn a_message_that_is_too_deep_for_a_letter_has_one() {
    let (server, sink) = answering(Reply::status(400)).await;
    let client = server.client();
    let mut deep = message(&server.services, "ntfy", json!({ "topic": "t" }));
    deep.payload = of_levels(31).as_object().unwrap().clone();
    let deep = server.services.messages.create(vec![deep]).await.unwrap().remove(0);
    deliver(&server.services, "ntfy").await;
    assert_eq!(sink.asked().len(), 1);
    let letters = letters(&client).await;
    assert_eq!(letters[0]["id"], json!(deep.message_id));
    let path = format!("/dead-letters/{}", deep.message_id);
    assert_eq!(client.get(&path).await.expect(200).json()["attempts"][0]["code"], 400);
    let again = client.post(&format!("{path}/resubmit"), &json!({})).await.expect(201).json();
    assert_eq!(again["payload"], of_levels(31));
    assert!(dead::get(&*server.services.store, &deep.message_id).await.unwrap().is_none());
}

/// `count` messages of a key, made in batches.
async fn make_many(client: &Client, count: usize, key: &str, deliver_at: Option<&str>) -> Vec<String> {
    let one = json!({ "message_type": "reminder", "payload": { "text": "x" }, "key": key, "deliver_at": deliver_at });
    let mut ids = Vec::new();
    for start in (0..count).step_by(25) {
        let batch = vec![one.clone(); 25.min(count - start)];
        let made = client.post("/api/messages/batch", &json!(batch)).await.expect(201).json();
        ids.extend(made["items"].as_array().unwrap().iter().map(|item| id_of(&item["message"])));
    }
    ids
}

// SX-16: with all others of the same key, however many there are and however many have been sent meanwhile.
#[tokio::test]
async fn cancelling_by_key_reaches_all_of_them() {
    let (server, sink) = answering(published("n")).await;
    let client = server.client();
    let at = Some("2026-03-20T12:00:00Z");
    let mut waiting = make_many(&client, 1, "order", at).await;
    server.clock.advance(seconds(1.0));
    let sent = make_many(&client, 120, "order", None).await;
    deliver(&server.services, "ntfy").await;
    waiting.extend(make_many(&client, 230, "order", at).await);
    // An earlier version left those that had ended where those are that wait.
    let messages = &server.services.messages;
    let mut item = server.services.store.get(&messages.table, &Key::new(sent[0].as_str())).await.unwrap().unwrap();
    item.0.insert("cancel_key", "order");
    server.services.store.transact(vec![Write::put(&messages.table, item)]).await.unwrap();
    let cancel = || async { client.post("/api/messages/cancel", &json!({ "key": "order" })).await.expect(200).json() };
    let ids = |list: &Value| -> Vec<String> {
        let mut ids: Vec<_> = list.as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned()).collect();
        ids.sort();
        ids
    };
    let answer = cancel().await;
    waiting.sort();
    assert_eq!((ids(&answer["cancelled"]), &answer["more"]), (waiting.clone(), &json!(false)));
    let late = ids(&answer["too_late"]);
    assert!(late.len() == 100 && late.iter().all(|id| sent.contains(id)), "{late:?}");
    let answer = cancel().await;
    assert_eq!(ids(&answer["cancelled"]).len(), 0);
    let named = [ids(&answer["already_cancelled"]), ids(&answer["too_late"])].concat();
    assert!(named.iter().all(|id| waiting.contains(id) || sent.contains(id)), "{named:?}");
    assert!(ids(&answer["already_cancelled"]).iter().all(|id| waiting.contains(id)));
    assert!(ids(&answer["too_late"]).iter().all(|id| sent.contains(id)));
    server.clock.advance(seconds(30.0 * 86_400.0));
    deliver(&server.services, "ntfy").await;
    assert_eq!(sink.asked().len(), 120, "nothing of it is sent");
    let shown = client.get(&format!("/api/messages/{}", waiting[0])).await.expect(200).json();
    assert_eq!((&shown["key"], &shown["state"]), (&json!("order"), &json!("cancelled")));
    client.post("/api/messages/cancel", &json!({ "key": "\u{1}order" })).await.problem(400);
}
