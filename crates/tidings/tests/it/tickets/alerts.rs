//! Tickets that rules open.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tidings::messages::deliver::Deliverer;
use tidings_store::faults::{Faulty, Moment};
use tidings_store::limits::ITEM_BYTES;
use tidings_store::memory::Memory;
use tidings_store::{Key, Store};

use super::{id_of, texts};
use crate::support::{self, TestServer};

const LIMIT: Duration = Duration::from_secs(30);

async fn rig(more: Value) -> TestServer {
    rigged(TestServer::start().await, more).await
}

async fn rigged(server: TestServer, more: Value) -> TestServer {
    let mut rule = json!({ "pattern": { "eventType": ["disk.full"] },
        "targets": [{ "channel": "ticket", "caller": "monitoring" }],
        "title": "Disk full on {{ data.host }}", "text": "{{ data.used }} % used" });
    rule.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    server.client().put("/rules/disks", &rule).await.expect(201);
    server
}

async fn alarm(server: &TestServer, host: &str, used: u64) -> String {
    let event = json!({ "eventType": "disk.full", "data": { "host": host, "used": used } });
    let receipt = server.client().send(&event).await;
    receipt["eventId"].as_str().unwrap().to_owned()
}

async fn deliver(server: &TestServer) {
    Deliverer::new(&server.services, "ticket").drain().await.unwrap();
}

async fn tickets(server: &TestServer) -> Vec<Value> {
    let list = server.client().get("/tickets?caller=monitoring&limit=100").await.expect(200).json();
    list["tickets"].as_array().unwrap().clone()
}

// S004-45
#[tokio::test]
async fn an_alert_opens_a_ticket_and_the_outcome_shows_it() {
    let server = rig(json!({})).await;
    let event_id = alarm(&server, "web-1", 97).await;
    deliver(&server).await;
    let tickets = tickets(&server).await;
    assert_eq!(tickets.len(), 1);
    assert_eq!(tickets[0]["issue_description"], "Disk full on web-1\n\n97 % used");
    let event = server.client().get(&format!("/events/{event_id}")).await.expect(200).json();
    let sent = &event["outcome"]["tickets"][0];
    assert_eq!((&sent["status"], &sent["ticket_id"]), (&json!("completed"), &tickets[0]["ticket_id"]));
    let correlation = event["correlationId"].as_str().unwrap();
    let trace = server.client().get(&format!("/trace/{correlation}")).await.expect(200).json();
    let steps = trace["items"].as_array().unwrap();
    let message = steps.iter().find(|step| step["kind"] == "message").unwrap();
    assert_eq!(message["details"]["notification_id"], tickets[0]["ticket_id"]);
    let created = steps.iter().find(|step| step["details"]["eventType"] == "ticket.created").unwrap();
    assert_eq!(created["details"]["data"]["ticket_id"], tickets[0]["ticket_id"]);
    assert_eq!(created["details"]["data"]["created_by"], "rule:disks");
}

// S004-45: a storm is one ticket, and no alert is lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_alerts_is_one_ticket_with_comments() {
    let server = rig(json!({})).await;
    for used in 0..40 {
        alarm(&server, "web-1", used).await;
    }
    alarm(&server, "web-2", 7).await;
    deliver(&server).await;
    let tickets = tickets(&server).await;
    assert_eq!(tickets.len(), 2);
    let stormy = tickets.iter().find(|ticket| ticket["issue_description"].as_str().unwrap().contains("web-1")).unwrap();
    assert_eq!(texts(stormy).len(), 39);
    for used in 0..40 {
        let said = format!("\n\n{used} % used");
        let first = stormy["issue_description"].as_str().unwrap().ends_with(&said);
        assert!(first || texts(stormy).iter().any(|text| text.ends_with(&said)), "{used}");
    }
    assert_eq!(stormy["comments"][0]["author"], "rule:disks");
}

// S004-43, S004-45: several alerts see room for one more; one becomes a comment, the others go into the next ticket.
#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_that_fills_up_in_a_storm_loses_no_alert() {
    let clock = support::server::clock();
    let store = Arc::new(Faulty::new(Arc::new(Memory::new(clock.clone()))));
    let server = TestServer::over(store.clone(), clock).await;
    let text = format!("{{{{ data.used }}}} {}", "\u{20ac}".repeat(3_900));
    let server = rigged(server, json!({ "dedupe_key": "disks", "text": text })).await;
    let client = server.client();
    let (mut sent, room) = (0, 11_950);
    let full = loop {
        alarm(&server, "web-1", sent).await;
        deliver(&server).await;
        sent += 1;
        let ticket = &tickets(&server).await[0];
        let item = store.get(tidings::tickets::table(), &Key::new(id_of(ticket))).await.unwrap().unwrap();
        if item.size() + 2 * room > ITEM_BYTES {
            assert!(item.size() + room < ITEM_BYTES, "there is room for one");
            break id_of(ticket);
        }
    };
    for used in sent..sent + 4 {
        alarm(&server, "web-1", used).await;
    }
    let page = client.get("/api/messages?limit=100").await.expect(200).json();
    let waits = |message: &&Value| message["status"] != "completed";
    let ids = page["items"].as_array().unwrap().iter().filter(waits).map(|m| m["message_id"].as_str().unwrap());
    let gate = store.hold(Moment::Before);
    let mut sending = Vec::new();
    for id in ids {
        let (services, stored) = (server.services.clone(), server.services.messages.get(id).await.unwrap().unwrap());
        sending.push(tokio::spawn(async move {
            let now = services.clock.now();
            services.senders.attempt(&stored.message, LIMIT, now, &services.workers.stopping()).await.outcome
        }));
    }
    assert_eq!(sending.len(), 4);
    gate.arrived(4).await;
    gate.open();
    for outcome in sending {
        let outcome = outcome.await.unwrap();
        assert!(outcome.is_delivered(), "{outcome:?}");
    }
    let mut all = Vec::new();
    // Large tickets have a page each.
    let mut found = Vec::new();
    let mut next = Some(String::new());
    while let Some(cursor) = next {
        let cursor = if cursor.is_empty() { cursor } else { format!("&cursor={cursor}") };
        let page = client.get(&format!("/tickets?caller=monitoring{cursor}")).await.expect(200).json();
        found.extend(page["tickets"].as_array().unwrap().clone());
        next = page["cursor"].as_str().map(ToOwned::to_owned);
    }
    assert_eq!(found.len(), 2);
    for ticket in &found {
        let comments = texts(ticket).into_iter();
        let said = comments.chain([ticket["issue_description"].as_str().unwrap()]);
        let number = |text: &str| text.split("\n\n").nth(1).unwrap().split(' ').next().unwrap().parse::<u64>().unwrap();
        let numbers: Vec<_> = said.map(number).collect();
        assert_eq!(numbers.len() as u64, if id_of(ticket) == full { sent + 1 } else { 3 });
        all.extend(numbers);
    }
    all.sort_unstable();
    assert_eq!(all, (0..sent + 4).collect::<Vec<_>>());
}

// S004-45: the rule's own key decides, and a ticket that is off the desk is not written to.
#[tokio::test]
async fn a_key_of_the_rule_joins_and_a_closed_ticket_is_left_alone() {
    let server = rig(json!({ "dedupe_key": "disks" })).await;
    alarm(&server, "web-1", 1).await;
    alarm(&server, "web-2", 2).await;
    deliver(&server).await;
    let first = tickets(&server).await;
    assert_eq!((first.len(), texts(&first[0]).len()), (1, 1));
    let path = format!("/tickets/{}", id_of(&first[0]));
    server.client().patch(&path, &json!({ "status": "closed" })).await.expect(200);
    server.advance(1);
    alarm(&server, "web-3", 3).await;
    deliver(&server).await;
    let after = tickets(&server).await;
    assert_eq!(after.len(), 2);
    assert_eq!(texts(&after[1]).len(), 1, "the closed one stays as it was");
    alarm(&server, "web-4", 4).await;
    deliver(&server).await;
    assert_eq!(texts(&tickets(&server).await[0]).len(), 1);
}

// S003-111: delivered twice, made once.
#[tokio::test]
async fn a_message_that_is_sent_twice_opens_one_ticket_and_adds_one_comment() {
    let server = rig(json!({})).await;
    alarm(&server, "web-1", 1).await;
    alarm(&server, "web-1", 2).await;
    deliver(&server).await;
    let before = tickets(&server).await;
    let page = server.client().get("/api/messages?limit=100").await.expect(200).json();
    for message in page["items"].as_array().unwrap() {
        let id = message["message_id"].as_str().unwrap();
        let stored = server.services.messages.get(id).await.unwrap().unwrap();
        // Long after the window in which events are recognised as duplicates, too.
        for hours in [0, 48] {
            server.advance(hours);
            let sent = server
                .services
                .senders
                .attempt(&stored.message, LIMIT, server.services.clock.now(), &server.services.workers.stopping())
                .await;
            assert!(sent.outcome.is_delivered(), "{:?}", sent.outcome);
        }
    }
    assert_eq!(tickets(&server).await, before);
}

// A rule that answers tickets with tickets ends at once instead of never.
#[tokio::test]
async fn tickets_do_not_breed_tickets() {
    let server = rig(json!({ "pattern": { "eventType": ["disk.full", { "prefix": "ticket." }] } })).await;
    alarm(&server, "web-1", 1).await;
    for _ in 0..5 {
        deliver(&server).await;
    }
    assert_eq!(tickets(&server).await.len(), 1);
    let letters = server.client().get("/dead-letters").await.expect(200).json();
    assert_eq!(letters["items"].as_array().unwrap().len(), 1);
    assert!(letters["items"][0]["reason"].as_str().unwrap().contains("came of a ticket"), "{letters}");
}

#[tokio::test]
async fn a_rules_ticket_has_no_secrets_and_hides_phone_numbers() {
    let server = rig(json!({ "targets": [{ "channel": "ticket", "caller": "{{ data.host }}" }],
        "text": "password: {{ data.used }}" }))
    .await;
    alarm(&server, "+49 170 1234567", 1).await;
    deliver(&server).await;
    let list = server.client().get("/tickets?caller=%2B491701234567").await.expect(200).json();
    let ticket = &list["tickets"][0];
    assert!(ticket["caller_id"].as_str().unwrap().starts_with("phone-"), "{list}");
    assert!(ticket["issue_description"].as_str().unwrap().ends_with("password: [redacted]"), "{list}");
}

// S004-37: a phone number is nowhere but in the event that brought it.
#[tokio::test]
async fn a_phone_number_in_a_rules_target_is_stored_as_a_hash_alone() {
    let phone = "+49 170 1234567";
    let targets = json!([{ "channel": "ticket", "caller": "{{ data.phone }}" }]);
    let server = rig(json!({ "targets": targets, "dedupe_key": "{{ data.phone }}", "dedupe_seconds": 60 })).await;
    let client = server.client();
    client.send(&json!({ "eventType": "disk.full", "data": { "host": "a", "used": 1, "phone": phone } })).await;
    let list = client.get("/api/messages").await.expect(200).json();
    let hash = list["items"][0]["target"]["caller"].as_str().unwrap().to_owned();
    assert!(hash.starts_with("phone-") && list["items"][0]["target"]["dedup_key"] == hash.as_str(), "{list}");
    assert!(!list.to_string().contains("1234567"), "{list}");
    deliver(&server).await;
    // The same caller as by hand.
    let found = client.get(&format!("/tickets?caller={}", crate::support::encode(phone))).await.expect(200).json();
    assert_eq!(found["tickets"][0]["caller_id"], hash.as_str(), "{found}");
}
