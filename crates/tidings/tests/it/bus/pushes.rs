//! Push subscriptions: where a message goes is decided when it goes.

use std::time::Duration;

use serde_json::{Value, json};
use tidings::messages::deliver::Deliverer;

use super::{counts, receive, send, settle};
use crate::channels::http_server::{Asked, Reply, Server};
use crate::messages::quiet;
use crate::support::{Client, TestServer};

const PATH: &str = "/bus/t/subscriptions/p";

async fn with_topic() -> TestServer {
    let server = TestServer::start().await;
    server.client().put("/bus/t", &json!({ "kind": "topic" })).await.expect(201);
    server
}

/// Waits until so many messages were handed over; gives where to, by body.
async fn handed_over(client: &Client, count: usize) -> Vec<(Value, Value)> {
    for _ in 0..5000 {
        let list = client.get("/api/messages?message_type=bus_push").await.expect(200).json();
        let items = list["items"].as_array().unwrap();
        if items.len() >= count {
            let shown = |item: &Value| (item["payload"]["body"].clone(), item["target"]["url"].clone());
            return items.iter().map(shown).collect();
        }
        tokio::task::yield_now().await;
    }
    panic!("fewer than {count} were handed over");
}

#[tokio::test]
async fn after_a_change_only_the_new_endpoint_gets_messages() {
    let server = with_topic().await;
    let client = server.client();
    client.put(PATH, &json!({ "push": { "url": "https://old.example.com/a" } })).await.expect(201);
    send(&client, "t", "m0").await;
    handed_over(&client, 1).await;
    client.put(PATH, &json!({ "push": { "url": "https://new.example.com/b" } })).await.expect(200);
    send(&client, "t", "m1").await;
    let all = handed_over(&client, 2).await;
    assert!(all.contains(&(json!("m0"), json!("https://old.example.com/***"))), "{all:?}");
    assert!(all.contains(&(json!("m1"), json!("https://new.example.com/***"))), "{all:?}");
    // Without an endpoint it waits for whoever fetches it.
    client.put(PATH, &json!({})).await.expect(200);
    send(&client, "t", "m2").await;
    let got = client.post(&format!("{PATH}/receive"), &json!({ "waitSeconds": 10 })).await.expect(200).json();
    assert_eq!((&got["messages"][0]["body"], &got["messages"][0]["deliveryCount"]), (&json!("m2"), &json!(1)));
    assert_eq!(handed_over(&client, 2).await.len(), 2);
    settle(&client, "t/subscriptions/p", &got["messages"][0], json!({ "action": "complete" })).await;
    assert_eq!(counts(&client, "t/subscriptions/p").await["outgoing"], 1, "what was handed over has not arrived");
}

// A secret that is not shown can be kept, but only for the address that it is for.
#[tokio::test]
async fn a_hidden_secret_is_kept_for_the_same_url_only() {
    let server = with_topic().await;
    let client = server.client();
    let with = |url: &str, secret: &str| json!({ "push": { "url": url, "secret": secret } });
    let (one, other) = ("https://one.example.com/", "https://other.example.com/");
    assert_eq!(client.put(PATH, &with(one, "***")).await.bad_fields(), ["push.secret"]);
    client.get(PATH).await.problem(404);
    client.put(PATH, &with(one, "whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0")).await.expect(201);
    assert_eq!(client.put(PATH, &with(other, "***")).await.bad_fields(), ["push.secret"]);
    let kept = client.put(PATH, &with(one, "***")).await.expect(200).json();
    assert_eq!(kept["push"], json!({ "url": one, "secret": "***" }));
    let push = server.services.bus.subscription("t", "p").unwrap().record.definition.push.clone().unwrap();
    assert!(push.secret.unwrap().starts_with("whsec_"));
    client.put(PATH, &json!({ "push": { "url": one } })).await.expect(200);
    assert_eq!(client.put(PATH, &with(one, "***")).await.bad_fields(), ["push.secret"]);
}

// S003-69, S003-80: what peek-lock says in headers, a push delivery has to say, too.
#[tokio::test]
async fn what_is_handed_over_has_the_properties_of_the_message() {
    let server = with_topic().await;
    let client = server.client();
    client.put(PATH, &json!({ "push": { "url": "https://one.example.com/" } })).await.expect(201);
    let headers = [
        ("brokerproperties", r#"{"MessageId":"m1","Label":"läb"}"#),
        ("priority", "\"High\""),
        ("webhook-id", "forged"),
    ];
    client.post_with("/bus/t/messages", &headers, "x").await.expect(201);
    handed_over(&client, 1).await;
    let list = client.get("/api/messages?message_type=bus_push").await.expect(200).json();
    let headers = tidings::bus::push::headers_of(list["items"][0]["payload"].as_object().unwrap(), 1);
    let broker: Value = serde_json::from_str(headers["brokerproperties"].to_str().unwrap()).unwrap();
    assert_eq!(
        (&broker["MessageId"], &broker["Label"], &broker["DeliveryCount"]),
        (&json!("m1"), &json!("l\u{e4}b"), &json!(1))
    );
    assert!(broker.get("LockToken").is_none(), "{broker}");
    assert_eq!(headers["priority"], "\"High\"");
    assert!(!headers.contains_key("webhook-id"));
}

/// A server that delivers when the test says so, and a push subscription to `hook` with these settings.
async fn pushing(hook: &Server, mut settings: Value) -> TestServer {
    let server = TestServer::start_with(|config| quiet(config, "http://127.0.0.1:9")).await;
    let client = server.client();
    client.put("/bus/t", &json!({ "kind": "topic" })).await.expect(201);
    settings["push"] = json!({ "url": hook.url("/") });
    client.put(PATH, &settings).await.expect(201);
    server
}

async fn deliver(server: &TestServer) {
    Deliverer::new(&server.services, "webhook").drain().await.unwrap();
}

/// Waits until a count of the subscription is this.
async fn becomes(client: &Client, name: &str, wanted: u64) {
    for _ in 0..5000 {
        if counts(client, "t/subscriptions/p").await[name] == wanted {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("{name} did not become {wanted}: {}", counts(client, "t/subscriptions/p").await);
}

async fn post(client: &Client, body: &str, session: &str) {
    let properties = json!({ "SessionId": session }).to_string();
    client.post_with("/bus/t/messages", &[("brokerproperties", &properties)], body.to_owned()).await.expect(201);
}

fn text(asked: &Asked) -> String {
    String::from_utf8(asked.body.clone()).unwrap()
}

// S003-83: the next message of a key is sent when the one before has arrived, whatever that takes; others do not wait.
#[tokio::test]
async fn an_ordered_subscription_pushes_one_of_a_key_at_a_time() {
    let tries = std::sync::atomic::AtomicU32::new(0);
    let hook = Server::start(move |asked| {
        let fails = text(asked) == "a0" && tries.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < 2;
        Reply::status(if fails { 500 } else { 200 })
    })
    .await;
    let retry = json!({ "strategy": "fixed", "baseSeconds": 7, "maxSeconds": 7, "jitter": false });
    let server = pushing(&hook, json!({ "ordered": true, "maxDeliveryCount": 3, "retry": retry })).await;
    let client = server.client();
    for (body, session) in [("a0", "a"), ("a1", "a"), ("b0", "b"), ("a2", "a")] {
        post(&client, body, session).await;
    }
    for _ in 0..2 {
        let mut handed: Vec<_> = handed_over(&client, 2).await.into_iter().map(|(body, _)| body).collect();
        handed.sort_by_key(ToString::to_string);
        assert_eq!(handed, [json!("a0"), json!("b0")], "a1 waits for a0");
        deliver(&server).await;
        becomes(&client, "outgoing", 1).await;
        // Its subscription says when it is tried again.
        server.clock.advance(Duration::from_secs(6));
        deliver(&server).await;
        server.clock.advance(Duration::from_secs(1));
    }
    for (handed, outgoing) in [(2, 2), (3, 3), (4, 4)] {
        handed_over(&client, handed).await;
        deliver(&server).await;
        becomes(&client, "outgoing", outgoing).await;
    }
    let asked: Vec<_> = hook.asked().iter().map(text).filter(|body| body.starts_with('a')).collect();
    assert_eq!(asked, ["a0", "a0", "a0", "a1", "a2"]);
    assert_eq!(counts(&client, "t/subscriptions/p").await["deadLettered"], 0);
}

// S003-93 to S003-98: what cannot be pushed is a dead letter of its subscription, after maxDeliveryCount attempts or at
// once, and of nobody else.
#[tokio::test]
async fn what_cannot_be_pushed_is_a_dead_letter_of_its_subscription() {
    let hook = Server::start(|asked| Reply::status(if text(asked) == "later" { 503 } else { 400 })).await;
    let retry = json!({ "strategy": "fixed", "baseSeconds": 5, "maxSeconds": 5, "jitter": false });
    let server = pushing(&hook, json!({ "maxDeliveryCount": 2, "retry": retry })).await;
    let client = server.client();
    send(&client, "t", "later").await;
    send(&client, "t", "never").await;
    handed_over(&client, 2).await;
    deliver(&server).await;
    becomes(&client, "deadLettered", 1).await;
    server.clock.advance(Duration::from_secs(5));
    deliver(&server).await;
    becomes(&client, "deadLettered", 2).await;
    let counts = counts(&client, "t/subscriptions/p").await;
    assert_eq!((&counts["active"], &counts["locked"], &counts["outgoing"]), (&json!(0), &json!(0), &json!(0)));
    assert_eq!(hook.asked().len(), 3);
    let letters = client.get("/dead-letters").await.expect(200).json();
    assert_eq!(letters["items"].as_array().unwrap().len(), 2, "one for each: {letters}");
    let dead = receive(&client, "t/subscriptions/p/$deadletterqueue", 5).await;
    let shown: Vec<_> = dead
        .iter()
        .map(|dead| (&dead["body"], &dead["deadLetter"]["reason"], &dead["deadLetter"]["deliveries"]))
        .collect();
    assert_eq!(
        shown,
        [
            (&json!("never"), &json!("PushRefused"), &json!(1)),
            (&json!("later"), &json!("MaxDeliveryCountExceeded"), &json!(2)),
        ]
    );
    assert_eq!(dead[1]["attempts"].as_array().unwrap().len(), 2);
    assert!(dead[1]["deadLetter"]["description"].as_str().unwrap().contains("503"), "{}", dead[1]);
    // Sent again, it is pushed again.
    let path = "/bus/t/subscriptions/p/$deadletterqueue";
    for dead in &dead {
        settle(&client, "t/subscriptions/p/$deadletterqueue", dead, json!({ "action": "abandon" })).await;
    }
    client.post(&format!("{path}/resubmit"), &json!({ "all": true })).await.expect(200);
    handed_over(&client, 4).await;
}

// S003-80: a stable id, and deliveries that are counted.
#[tokio::test]
async fn each_attempt_of_a_push_says_which_it_is() {
    let tries = std::sync::atomic::AtomicU32::new(0);
    let hook = Server::start(move |_| {
        Reply::status(if tries.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < 2 { 500 } else { 200 })
    })
    .await;
    let retry = json!({ "strategy": "fixed", "baseSeconds": 5, "maxSeconds": 5, "jitter": false });
    let server = pushing(&hook, json!({ "retry": retry })).await;
    let client = server.client();
    send(&client, "t", "x").await;
    handed_over(&client, 1).await;
    for _ in 0..3 {
        deliver(&server).await;
        server.clock.advance(Duration::from_secs(5));
    }
    becomes(&client, "outgoing", 1).await;
    let broker = |asked: &Asked| serde_json::from_str::<Value>(&asked.headers["brokerproperties"]).unwrap();
    let counted: Vec<_> = hook.asked().iter().map(|asked| broker(asked)["DeliveryCount"].clone()).collect();
    assert_eq!(counted, [json!(1), json!(2), json!(3)]);
}

// What is purged, or deleted with its subscription, is not posted any more, whoever restarts in between.
#[tokio::test]
async fn what_is_purged_or_deleted_is_not_pushed_again() {
    let hook = Server::start(|_| Reply::status(500)).await;
    let retry = json!({ "strategy": "fixed", "baseSeconds": 5, "maxSeconds": 5, "jitter": false });
    let server = pushing(&hook, json!({ "retry": retry })).await;
    let client = server.client();
    let token = server.admin_token().to_owned();
    send(&client, "t", "purged").await;
    handed_over(&client, 1).await;
    deliver(&server).await;
    assert_eq!(hook.asked().len(), 1);
    client.post(&format!("{PATH}/purge"), &json!({})).await.expect(200);
    let server = server.restart().await;
    let client = server.client_with(&token);
    send(&client, "t", "deleted").await;
    handed_over(&client, 2).await;
    server.clock.advance(Duration::from_secs(5));
    deliver(&server).await;
    assert_eq!(hook.asked().iter().map(text).collect::<Vec<_>>(), ["purged", "deleted"], "the new one goes");
    client.delete(PATH).await.expect(204);
    server.clock.advance(Duration::from_secs(5));
    deliver(&server).await;
    assert_eq!(hook.asked().len(), 2);
    let list = client.get("/api/messages?message_type=bus_push").await.expect(200).json();
    for item in list["items"].as_array().unwrap() {
        assert_eq!(item["status"], "failed");
        assert!(item["error_message"].as_str().unwrap().contains("taken back"), "{item}");
    }
    assert_eq!(client.get("/dead-letters").await.expect(200).json()["items"], json!([]));
}

// After a restart what is under way is found, and neither sent nor counted twice; its lock never ran out.
#[tokio::test]
async fn what_is_under_way_survives_a_restart() {
    let hook = Server::start(|_| Reply::status(200)).await;
    let server = pushing(&hook, json!({ "maxDeliveryCount": 1, "lockSeconds": 10 })).await;
    send(&server.client(), "t", "once").await;
    handed_over(&server.client(), 1).await;
    server.clock.advance(Duration::from_secs(3600));
    server.services.bus.settle_time().await.unwrap();
    assert_eq!(counts(&server.client(), "t/subscriptions/p").await["locked"], 1);
    let server = server.restart().await.restart().await;
    let client = server.client();
    becomes(&client, "locked", 1).await;
    deliver(&server).await;
    becomes(&client, "outgoing", 1).await;
    assert_eq!(handed_over(&client, 1).await.len(), 1);
    assert_eq!(hook.asked().len(), 1);
    assert_eq!(counts(&client, "t/subscriptions/p").await["deadLettered"], 0);
}

// SX-08: whoever sends the pushed message again takes the letter of the bus away, as with any other; if that fails, too,
// the new message has a letter of its own.
#[tokio::test]
async fn a_push_that_is_sent_again_takes_the_letter_of_the_bus_away() {
    let works = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen = std::sync::Arc::clone(&works);
    let hook =
        Server::start(move |_| Reply::status(if seen.load(std::sync::atomic::Ordering::Relaxed) { 200 } else { 400 }))
            .await;
    let server = pushing(&hook, json!({})).await;
    let client = server.client();
    for (body, left) in [("first", 1), ("second", 2), ("third", 3)] {
        send(&client, "t", body).await;
        handed_over(&client, left).await;
        deliver(&server).await;
        becomes(&client, "deadLettered", left as u64).await;
    }
    let pushed = client.get("/api/messages?message_type=bus_push").await.expect(200).json();
    let pushed = |body: &str| {
        let items = pushed["items"].as_array().unwrap().iter();
        let mut fitting = items.filter(|item| item["payload"]["body"] == body);
        format!("/api/messages/{}/retry", fitting.next().unwrap()["message_id"].as_str().unwrap())
    };
    let channels = async || {
        let letters = client.get("/dead-letters").await.expect(200).json();
        let channel = |letter: &Value| letter["channel"].as_str().unwrap().to_owned();
        let mut channels: Vec<_> = letters["items"].as_array().unwrap().iter().map(channel).collect();
        channels.sort();
        channels
    };
    // It fails again: another letter, of another message.
    let again = client.post(&pushed("first"), &json!({})).await.expect(201).json();
    assert_eq!(again["status"], "created");
    becomes(&client, "deadLettered", 2).await;
    assert_eq!(channels().await, ["bus", "bus"]);
    deliver(&server).await;
    assert_eq!(channels().await, ["bus", "bus", "webhook"]);
    works.store(true, std::sync::atomic::Ordering::Relaxed);
    let headers = [("idempotency-key", "k")];
    let made = client.post_with(&pushed("second"), &headers, "{}").await.expect(201).json();
    let same = client.post_with(&pushed("second"), &headers, "{}").await.expect(201).json();
    assert_eq!(made["message_id"], same["message_id"]);
    deliver(&server).await;
    assert_eq!(channels().await, ["bus", "webhook"]);
    assert_eq!(hook.asked().last().map(text).as_deref(), Some("second"));
    // Somebody has the letter in hand.
    let dead = receive(&client, "t/subscriptions/p/$deadletterqueue", 1).await;
    client.post(&pushed("third"), &json!({})).await.problem(409);
    settle(&client, "t/subscriptions/p/$deadletterqueue", &dead[0], json!({ "action": "complete" })).await;
    // What nobody has any more is no hindrance.
    client.post(&pushed("third"), &json!({})).await.expect(201);
    assert_eq!(channels().await, ["webhook"]);
}

// S003-80: whoever listens can tell by the subscription's secret that it is ours, as Standard Webhooks has it. The listener
// counts for itself here, by the standard's words alone.
#[tokio::test]
async fn a_push_with_a_secret_is_signed() {
    use base64::prelude::{BASE64_STANDARD, Engine as _};
    const KEY: &[u8] = b"012345678901234567890123456789ab";
    let hook = Server::start(|_| Reply::status(200)).await;
    let server = pushing(&hook, json!({})).await;
    let client = server.client();
    let secret = format!("whsec_{}", BASE64_STANDARD.encode(KEY));
    client.put(PATH, &json!({ "push": { "url": hook.url("/in"), "secret": secret } })).await.expect(200);
    for body in ["first", "second\n{\"ä\":1}", ""] {
        send(&client, "t", body).await;
    }
    handed_over(&client, 3).await;
    deliver(&server).await;
    let asked = hook.asked();
    assert_eq!(asked.len(), 3);
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, KEY);
    let mut ids = std::collections::BTreeSet::new();
    for asked in &asked {
        let header = |name: &str| asked.headers[name].as_str();
        let (id, timestamp) = (header("webhook-id"), header("webhook-timestamp"));
        assert_eq!(timestamp, server.services.clock.now().as_second().to_string());
        let signed = [format!("{id}.{timestamp}.").as_bytes(), &asked.body].concat();
        let expected = format!("v1,{}", BASE64_STANDARD.encode(ring::hmac::sign(&key, &signed)));
        assert_eq!(header("webhook-signature"), expected);
        ids.insert(id.to_owned());
        assert!(!String::from_utf8_lossy(&asked.body).contains("whsec_") && !id.contains('.'));
    }
    assert_eq!(ids.len(), 3, "each call has an id of its own");
}
