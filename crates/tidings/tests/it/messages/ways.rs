//! Forward only: every pair of states, through the store (S002-48, S002-53 to S002-55).

use tidings::messages::Status;
use tidings_core::message::{Input, Verdict};
use tidings_store::{Change, Error, Key, Write};

use super::{answering, published, store};

/// What takes a message to a state.
fn inputs(to: Status) -> Vec<Input> {
    let ended = |verdict| Input::Ended { verdict, random: 0 };
    match to {
        Status::Created => Vec::new(),
        Status::Queued => vec![Input::Queued],
        Status::Processing => vec![Input::TakenUp],
        Status::Completed => vec![ended(Verdict::Delivered { notification_id: None })],
        Status::Failed => vec![ended(Verdict::Reject { error: "no".to_owned(), code: None })],
    }
}

// S002-55: 25 pairs, of which 5 are legal. There is no input that leads to `created` at all.
#[tokio::test]
async fn only_the_five_legal_transitions_are_made() {
    let (server, _sink) = answering(published("n")).await;
    let services = &server.services;
    let mut legal = Vec::new();
    for from in Status::ALL {
        for to in Status::ALL {
            let made = store(services, "ntfy", serde_json::json!({ "topic": "ops" })).await;
            let way: &[Status] = match from {
                Status::Created => &[],
                Status::Queued => &[Status::Queued],
                Status::Processing => &[Status::Processing],
                last => &[Status::Processing, last],
            };
            for step in way {
                go(services, &made.message_id, *step).await.unwrap();
            }
            let moved = go(services, &made.message_id, to).await;
            let now = services.messages.get(&made.message_id).await.unwrap().unwrap().message.delivery.status;
            if moved == Some(true) && now == to && from != to {
                legal.push((from, to));
            } else {
                assert_eq!(now, from, "{from:?} to {to:?}");
            }
        }
    }
    use Status::{Completed, Created, Failed, Processing, Queued};
    let five =
        [(Created, Queued), (Created, Processing), (Queued, Processing), (Processing, Completed), (Processing, Failed)];
    assert_eq!(legal, five);
}

async fn go(services: &tidings::app::Services, id: &str, to: Status) -> Option<bool> {
    let stored = services.messages.get(id).await.unwrap().unwrap();
    let input = inputs(to).into_iter().next()?;
    match services.messages.transition(&stored, input, services.clock.now(), |_| {}) {
        Ok(transition) => Some(services.store.transact(transition.writes).await.is_ok()),
        Err(_) => Some(false),
    }
}

// S002-53: of two who read the same, one writes.
#[tokio::test]
async fn a_transition_of_what_has_changed_meanwhile_is_a_conflict() {
    let (server, _sink) = answering(published("n")).await;
    let services = &server.services;
    let made = store(services, "ntfy", serde_json::json!({ "topic": "ops" })).await;
    let stored = services.messages.get(&made.message_id).await.unwrap().unwrap();
    let take_up = || services.messages.transition(&stored, Input::TakenUp, services.clock.now(), |_| {}).unwrap();
    let (first, second) = (take_up(), take_up());
    services.store.transact(first.writes).await.unwrap();
    let refused = services.store.transact(second.writes).await;
    assert!(matches!(refused, Err(Error::Conflict { .. })), "{refused:?}");
    // S002-79: what another version of us added stays.
    let key = Key::new(made.message_id.as_str());
    let added = Write::update(&services.messages.table, key.clone(), vec![Change::Set("later".into(), "x".into())]);
    services.store.transact(vec![added]).await.unwrap();
    let stored = services.messages.get(&made.message_id).await.unwrap().unwrap();
    let input = inputs(Status::Completed).remove(0);
    let done = services.messages.transition(&stored, input, services.clock.now(), |_| {}).unwrap();
    services.store.transact(done.writes).await.unwrap();
    let item = services.store.get(&services.messages.table, &key).await.unwrap().unwrap();
    assert_eq!((item.str("later"), item.str("status")), (Some("x"), Some("completed")));
}

// SX-03: an event, its rule's message, its attempts; one commit, one count, one wake.
#[tokio::test]
async fn what_a_rule_makes_is_counted_delivered_and_shown_with_its_event() {
    let (server, sink) = answering(published("n-1")).await;
    let client = server.client();
    let rule = serde_json::json!({ "pattern": { "eventType": ["disk.full"] }, "title": "Disk full",
        "text": "{{ data.disk }} is full", "targets": [{ "channel": "ntfy", "topic": "ops" }, { "channel": "queue", "entity": "q" }] });
    let put = client.request(reqwest::Method::PUT, "/rules/disk").header("content-type", "application/json");
    let put = crate::support::Answer::to(put.body(rule.to_string())).await;
    assert!([200, 201].contains(&put.status), "{}", put.text());
    let event = serde_json::json!({ "eventId": "e-1", "eventType": "disk.full", "data": { "disk": "/var" } });
    let receipt = client.send(&event).await;
    let counts = || async { client.get("/api/metrics").await.expect(200).json()["counts"].clone() };
    assert_eq!(counts().await["created"], 2);
    super::deliver(&server.services, "ntfy").await;
    super::deliver(&server.services, "queue").await;
    assert_eq!((counts().await["completed"].clone(), counts().await["failed"].clone()), (1.into(), 1.into()));
    let asked = String::from_utf8(sink.asked()[0].body.clone()).unwrap();
    assert!(asked.contains("/var is full") && asked.contains("ops"), "{asked}");
    let outcome = client.get("/events/e-1").await.expect(200).json()["outcome"].clone();
    assert_eq!(outcome["messages"][0]["status"], "completed");
    assert_eq!(outcome["messages"][0]["attempts"][0]["notification_id"], "n-1");
    assert_eq!(outcome["queue"][0]["status"], "failed");
    let trace = client.get(&format!("/trace/{}", receipt["correlationId"].as_str().unwrap())).await.expect(200).json();
    let kinds: Vec<_> = trace["items"].as_array().unwrap().iter().map(|step| step["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["event", "rule", "message", "message"]);
}

crate::support::on_dynamodb! {
    a_transition_of_what_has_changed_meanwhile_is_a_conflict,
}
