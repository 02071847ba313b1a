//! Secrets at rest (SX-20): nobody reads them in the store, and what they sign is signed all the same.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use tidings::app::App;
use tidings::channel::webhook::signature::{Key, Received, verify};
use tidings::config::{Config, Secret};
use tidings::messages::deliver::Deliverer;
use tidings::messages::record as messages;
use tidings::rules::{Origin, read, record};
use tidings_core::time::Clock;
use tidings_store::memory::Memory;
use tidings_store::{Query, Store, Value as Stored, Write};

use crate::channels::http_server::{Asked, Reply, Server};
use crate::messages::quiet;
use crate::support::{TestServer, server};

const OF_RULE: &str = "whsec_cnVsZXMga2VlcCB0aGVpciBzZWNyZXRzIHRv";
const OF_PUSH: &str = "whsec_c3Vic2NyaXB0aW9ucyBrZWVwIHRoZWlycyB0";
const A: &str = "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=";
const B: &str = "QkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkI=";

fn rule(url: &str) -> Value {
    let users: Vec<String> = (0..120).map(|n| format!("u{n}")).collect();
    json!({
        "pattern": { "eventType": ["a"] }, "title": "seen in the store",
        "targets": [{ "channel": "webhook", "url": url, "secret": OF_RULE }, { "channel": "inbox", "users": users }],
    })
}

fn is_signed(asked: &Asked, secret: &str, server: &TestServer) -> bool {
    let header = |name: &str| asked.headers.get(name).map_or("", String::as_str);
    let received = Received {
        id: header("webhook-id"),
        timestamp: header("webhook-timestamp"),
        signature: header("webhook-signature"),
        body: &asked.body,
    };
    verify(&[Key::parse(secret).unwrap()], &received, server.clock.now()).is_ok()
}

async fn deliver(server: &TestServer) {
    Deliverer::new(&server.services, "webhook").drain().await.unwrap();
}

/// Whether any file below a directory has these bytes.
fn any_file_has(dir: &Path, bytes: &[u8]) -> bool {
    std::fs::read_dir(dir).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => any_file_has(&path, bytes),
            false => std::fs::read(&path).unwrap().windows(bytes.len()).any(|window| window == bytes),
        }
    })
}

#[tokio::test]
async fn no_file_has_a_secret_and_calls_are_signed_after_a_restart_and_a_restore() {
    let hook = Server::start(|asked| Reply::status(if asked.path == "/bad" { 400 } else { 200 })).await;
    let server = TestServer::start_with(|config| quiet(config, "http://127.0.0.1:9")).await;
    let client = server.client();
    client.put("/rules/r", &rule(&hook.url("/good"))).await.expect(201);
    client.put("/rules/bad", &rule(&hook.url("/bad"))).await.expect(201);
    client.put("/bus/t", &json!({ "kind": "topic" })).await.expect(201);
    let push = json!({ "push": { "url": hook.url("/push"), "secret": OF_PUSH } });
    client.put("/bus/t/subscriptions/s", &push).await.expect(201);
    client.send(&json!({ "eventId": "e1", "eventType": "a" })).await;
    server.services.fanout().activate().await.unwrap();
    deliver(&server).await;
    assert_eq!(client.get("/dead-letters").await.json()["items"].as_array().unwrap().len(), 1);
    client.send(&json!({ "eventId": "e2", "eventType": "a" })).await;

    let server = server.restart().await;
    server.services.fanout().activate().await.unwrap();
    deliver(&server).await;
    let signed = hook.asked().iter().filter(|asked| is_signed(asked, OF_RULE, &server)).count();
    assert_eq!((signed, hook.asked().len()), (4, 4), "of two rules and two events");
    let backup = server.client().request(reqwest::Method::GET, "/admin/backup").send().await.unwrap();
    let backup = backup.bytes().await.unwrap();
    assert!(any_file_has(server.data_dir(), b"seen in the store"), "what is no secret is found");
    for secret in [OF_RULE, OF_PUSH] {
        // Neither the text nor the bytes that it stands for.
        assert!(!any_file_has(server.data_dir(), secret.as_bytes()));
        assert!(!any_file_has(server.data_dir(), &secret.as_bytes()[6..]));
        assert!(!backup.windows(secret.len()).any(|window| window == secret.as_bytes()));
    }

    let restored = tempfile::tempdir().unwrap();
    tidings_store::embedded::restore(&mut &backup[..], restored.path()).unwrap();
    let second = TestServer::restored(restored, &server).await;
    second.client().send(&json!({ "eventId": "e3", "eventType": "a" })).await;
    second.services.fanout().activate().await.unwrap();
    deliver(&second).await;
    assert_eq!(hook.asked().iter().filter(|asked| is_signed(asked, OF_RULE, &second)).count(), 6);
    // And a dead letter that is sent again is signed.
    let letters = second.client().get("/dead-letters").await.json();
    let id = letters["items"][0]["id"].as_str().unwrap().to_owned();
    second.client().post(&format!("/dead-letters/{id}/resubmit"), &json!({})).await;
    deliver(&second).await;
    assert_eq!(hook.asked().iter().filter(|asked| is_signed(asked, OF_RULE, &second)).count(), 7);
}

fn keys(config: &mut Config, key: Option<&str>, previous: Option<&str>) {
    quiet(config, "http://127.0.0.1:9");
    config.secrets_key = key.map(Secret::new);
    config.previous_secrets_key = previous.map(Secret::new);
}

/// Why a server does not start over this store.
async fn refused(store: &Arc<dyn Store>, first: &TestServer, key: Option<&str>) -> String {
    let data = tempfile::tempdir().unwrap();
    let mut config = server::config(data.path());
    keys(&mut config, key, None);
    let app = App::open_with(config, server::surroundings(&first.clock), Arc::clone(store)).await;
    app.err().expect("it must not start").to_string()
}

#[tokio::test]
async fn a_key_is_changed_through_the_previous_one_and_a_wrong_one_is_told() {
    let hook = Server::start(|_| Reply::status(200)).await;
    let clock = server::clock();
    let store: Arc<dyn Store> = Arc::new(Memory::new(clock.clone()));
    // First with the key that the store has, then with one of the configuration's.
    let mut first = TestServer::over(Arc::clone(&store), clock).await;
    first.client().put("/rules/r", &rule(&hook.url("/x"))).await.expect(201);
    first.stop().await;
    let mut with_a = TestServer::over_again(Arc::clone(&store), &first, |config| keys(config, Some(A), None)).await;
    with_a.client().send(&json!({ "eventId": "e1", "eventType": "a" })).await;
    with_a.services.fanout().activate().await.unwrap();
    with_a.stop().await;

    for wrong in [Some(B), None] {
        let why = refused(&store, &first, wrong).await;
        assert!(why.contains("the rule `r`") && why.contains("`previous_secrets_key`"), "{why}");
        assert!(!why.contains(A) && !why.contains(B), "{why}");
    }
    let mut both = TestServer::over_again(Arc::clone(&store), &first, |config| keys(config, Some(B), Some(A))).await;
    both.client().send(&json!({ "eventId": "e2", "eventType": "a" })).await;
    both.services.fanout().activate().await.unwrap();
    both.stop().await;

    // The rule was encrypted anew; the message of the first event was not, and cannot be signed.
    let with_b = TestServer::over_again(Arc::clone(&store), &first, |config| keys(config, Some(B), None)).await;
    deliver(&with_b).await;
    let messages = with_b.client().get("/api/messages").await.json()["items"].as_array().unwrap().clone();
    let of = |event: &str| messages.iter().find(|message| message["event_id"] == event).unwrap();
    assert_eq!(of("e2")["status"], "completed");
    assert_eq!((&of("e1")["status"], &of("e1")["retry_count"]), (&json!("failed"), &json!(0)));
    assert!(of("e1")["error_message"].as_str().unwrap().contains("is encrypted with another key"), "{}", of("e1"));
    assert_eq!(hook.asked().len(), 1, "nothing goes out unsigned");
    assert!(is_signed(&hook.asked()[0], OF_RULE, &with_b));
    // Sent again it still cannot, until the key is back.
    let path = format!("/api/messages/{}/retry", of("e1")["message_id"].as_str().unwrap());
    with_b.client().post(&path, &json!({})).await.expect(201);
    deliver(&with_b).await;
    assert_eq!(hook.asked().len(), 1);
}

#[tokio::test]
async fn what_was_stored_before_is_read_and_encrypted_with_the_next_start() {
    let hook = Server::start(|_| Reply::status(200)).await;
    let clock = server::clock();
    let store: Arc<dyn Store> = Arc::new(Memory::new(clock.clone()));
    let old = read::rule("old", rule(&hook.url("/x")).as_object().unwrap(), Origin::Api, None).unwrap();
    let plain = json!({ "pattern": { "eventType": ["b"] }, "targets": [{ "channel": "ntfy" }] });
    let plain = read::rule("plain", plain.as_object().unwrap(), Origin::Api, None).unwrap();
    store.transact(record::put(&old, 0, clock.now())).await.unwrap();
    store.transact(record::put(&plain, 1, clock.now())).await.unwrap();
    let mut first = TestServer::over(Arc::clone(&store), clock).await;
    first.stop().await;
    let again = TestServer::over_again(Arc::clone(&store), &first, |config| keys(config, None, None)).await;
    again.client().send(&json!({ "eventId": "e1", "eventType": "a" })).await;
    again.services.fanout().activate().await.unwrap();
    let rules = store.query(record::table(), &Query::new(record::RULES).limit(10)).await.unwrap().items;
    assert!(matches!(rules[0].get("rule"), Some(Stored::B(_))), "{rules:?}");
    assert!(matches!(rules[1].get("rule"), Some(Stored::S(_))), "what has no secret stays readable");
    let made = Query::new("created").index("status-created_date-index").limit(10);
    let mut message = store.query(&messages::table("dev"), &made).await.unwrap().items.remove(0);
    assert!(matches!(message.get("target_secret"), Some(Stored::B(_))), "{message:?}");

    // A secret that is moved to another message means nothing there.
    message.0.insert("message_id", "00000000-0000-4000-8000-000000000000");
    store.transact(vec![Write::insert(&messages::table("dev"), message)]).await.unwrap();
    deliver(&again).await;
    assert_eq!(hook.asked().len(), 1);
    assert!(is_signed(&hook.asked()[0], OF_RULE, &again));

    // A message from before there were keys.
    let mut plain = store
        .query(&messages::table("dev"), &Query::new("completed").index("status-created_date-index").limit(10))
        .await
        .unwrap()
        .items
        .remove(0);
    for (name, value) in [
        ("message_id", "00000000-0000-4000-8000-000000000001"),
        ("status", "created"),
        ("due", "webhook#0"),
        ("next_attempt_at", "2026-03-01T12:00:00.000Z"),
        ("target_secret", OF_RULE),
    ] {
        plain.0.insert(name, value);
    }
    for name in ["attempts", "processing_started_at", "processing_completed_at"] {
        plain.0.remove(name);
    }
    store.transact(vec![Write::insert(&messages::table("dev"), plain)]).await.unwrap();
    deliver(&again).await;
    assert_eq!(hook.asked().iter().filter(|asked| is_signed(asked, OF_RULE, &again)).count(), 2);
}

// Webhook URLs often have a token in them: only who may write them sees them whole.
#[tokio::test]
async fn only_who_may_write_a_webhooks_url_sees_it_whole() {
    let server = TestServer::start().await;
    let client = server.client();
    let whole = "https://hooks.example/T0/token?key=token";
    let rule = json!({
        "pattern": { "eventType": ["a"] },
        "targets": [{ "channel": "webhook", "url": whole, "secret": OF_RULE }, { "channel": "webhook", "url": format!("{whole}{{{{ data.x }}}}") }],
    });
    client.put("/rules/r", &rule).await.expect(201);
    client.put("/bus/t", &json!({ "kind": "topic" })).await.expect(201);
    let push = json!({ "push": { "url": whole, "secret": OF_PUSH } });
    client.put("/bus/t/subscriptions/s", &push).await.expect(201);
    let event = client.send(&json!({ "eventId": "e1", "eventType": "a", "correlationId": "k" })).await;
    assert_eq!(event["status"], "accepted");

    let (reader, operator) = (server.client_for(&["read"]).await, server.client_for(&["operate", "read"]).await);
    let places = ["/rules/r", "/rules", "/bus/t/subscriptions/s", "/bus/t/subscriptions", "/bus/t", "/bus"];
    for path in places {
        let (seen, all) = (reader.get(path).await.expect(200).text(), operator.get(path).await.expect(200).text());
        assert!(seen.contains("https://hooks.example/***") && !seen.contains("T0/token"), "{path}: {seen}");
        assert!(all.contains(whole), "{path}: {all}");
        for secret in [OF_RULE, OF_PUSH] {
            assert!(!seen.contains(secret) && !all.contains(secret), "{path}");
        }
    }
    for path in ["/events/e1", "/trace/k", "/api/messages", "/audit-log"] {
        let seen = client.get(path).await.expect(200).text();
        assert!(!seen.contains("T0/token"), "{path}: {seen}");
    }
    for (scopes, sees) in [(&["read"][..], false), (&["read", "operate"], true)] {
        let page = crate::ui::Visitor::with_scopes(&server, scopes).await.get("/ui/rules/r").await.text();
        assert_eq!(page.contains("T0/token"), sees, "{page}");
    }

    // What was seen is no URL to write back.
    let seen = reader.get("/rules/r").await.json();
    let mut back = json!({ "pattern": seen["pattern"], "targets": seen["targets"] });
    assert_eq!(
        client.put("/rules/r", &back).await.bad_fields(),
        ["targets[0].url", "targets[0].secret", "targets[1].url"]
    );
    back["targets"] = operator.get("/rules/r").await.json()["targets"].clone();
    client.put("/rules/r", &back).await.expect(200);
    let seen = reader.get("/bus/t/subscriptions/s").await.json();
    let mut wrong = client.put("/bus/t/subscriptions/s", &json!({ "push": seen["push"] })).await.bad_fields();
    wrong.sort();
    assert_eq!(wrong, ["push.secret", "push.url"]);
    assert!(operator.get("/rules/r").await.text().contains(whole));
}
