//! One destination never holds up another; a target that says "gone" is left alone; every channel says what it can.

use serde_json::json;
use tidings::messages::deliver::Deliverer;
use tidings_core::message::Status;

use super::{answering, becomes, message, published, quiet, seconds, status_of, store};
use crate::channels::http_server::{Reply, Server};
use crate::support::TestServer;

async fn hooks() -> TestServer {
    TestServer::start_with(|config| quiet(config, "http://127.0.0.1:9")).await
}

// SX-14: signed, with a stable id, and shown without what may be secret.
#[tokio::test]
async fn a_webhook_is_called_and_its_path_not_shown() {
    let hook = Server::start(|_| Reply::status(200)).await;
    let server = hooks().await;
    let made = store(&server.services, "webhook", json!({ "url": hook.url("/secret/path?key=1") })).await;
    Deliverer::new(&server.services, "webhook").drain().await.unwrap();
    let asked = &hook.asked()[0];
    assert_eq!((asked.path.as_str(), &asked.headers["webhook-id"]), ("/secret/path?key=1", &made.message_id));
    assert!(asked.headers.contains_key("webhook-signature"));
    assert_eq!((&*asked.headers["x-correlation-id"], asked.headers["traceparent"].len()), ("c-17", 55));
    let shown = server.client().get(&format!("/api/messages/{}", made.message_id)).await.expect(200);
    assert_eq!(shown.json()["target"]["url"], format!("{}/***", hook.url("")));
    assert!(!shown.text().contains("secret/path") && !shown.text().contains("whsec"), "{}", shown.text());
    assert_eq!(shown.json()["status"], "completed");
}

// SX-14: 410 disables the target, later messages fail at once, and somebody can see it and undo it.
#[tokio::test]
async fn a_target_that_is_gone_is_not_called_again() {
    let hook = Server::start(|asked| Reply::status(if asked.path == "/gone" { 410 } else { 200 })).await;
    let server = hooks().await;
    let client = server.client();
    let gone = json!({ "url": hook.url("/gone") });
    let first = store(&server.services, "webhook", gone.clone()).await;
    let mut deliverer = Deliverer::new(&server.services, "webhook");
    deliverer.drain().await.unwrap();
    // The server's own worker may have been first.
    becomes(&server.services, &first.message_id, "failed").await;
    let second = store(&server.services, "webhook", gone.clone()).await;
    let other = store(&server.services, "webhook", json!({ "url": hook.url("/other") })).await;
    deliverer.drain().await.unwrap();
    // Another target of the same host.
    becomes(&server.services, &other.message_id, "completed").await;
    becomes(&server.services, &second.message_id, "failed").await;
    let failed = client.get(&format!("/api/messages/{}", second.message_id)).await.expect(200).json();
    assert!(failed["error_message"].as_str().unwrap().contains("disabled since 2026-03-01T12:00:00.000Z"), "{failed}");
    assert!(failed["error_message"].as_str().unwrap().contains("DELETE /channels/webhook/disabled/"), "{failed}");
    assert_eq!(hook.asked().iter().filter(|asked| asked.path == "/gone").count(), 1);
    let audit = client.get("/audit-log?action=target.disable").await.expect(200).json();
    assert_eq!(audit["items"].as_array().unwrap().len(), 1);
    assert_eq!(client.get("/audit-log/verify").await.json()["ok"], true);
    let disabled = client.get("/channels/webhook/disabled").await.expect(200).json();
    let id = disabled["items"][0]["id"].as_str().unwrap().to_owned();
    assert!(!disabled.to_string().contains("/gone"), "{disabled}");
    client.delete(&format!("/channels/webhook/disabled/{id}")).await.expect(204);
    client.delete(&format!("/channels/webhook/disabled/{id}")).await.problem(404);
    // SX-24: a test disables nothing, and does not say that it did.
    let tested = client.post("/channels/webhook/test", &gone).await.expect(200).json();
    assert_eq!(tested["detail"], "answered 410: it does not want to be called any more");
    assert_eq!(client.get("/channels/webhook/disabled").await.expect(200).json()["items"], json!([]));
    let third = store(&server.services, "webhook", gone).await;
    deliverer.drain().await.unwrap();
    becomes(&server.services, &third.message_id, "failed").await;
    let failed = client.get(&format!("/api/messages/{}", third.message_id)).await.expect(200).json();
    assert!(failed["error_message"].as_str().unwrap().ends_with("while /channels/webhook/disabled has it"), "{failed}");
    assert_eq!(hook.asked().iter().filter(|asked| asked.path == "/gone").count(), 3);
}

// SX-14: a message that ends with a 410 and the one that tells of it are counted in one transaction, whichever of the
// counter's few parts each of them falls to.
#[tokio::test]
async fn many_targets_that_are_gone_all_end() {
    let hook = Server::start(|_| Reply::status(410)).await;
    let server = hooks().await;
    let mut made = Vec::new();
    for n in 0..24 {
        made.push(store(&server.services, "webhook", json!({ "url": hook.url(&format!("/gone/{n}")) })).await);
    }
    Deliverer::new(&server.services, "webhook").drain().await.unwrap();
    for message in &made {
        assert_eq!(status_of(&server.services, message).await, "failed");
    }
    assert_eq!(hook.asked().len(), 24);
    let disabled = server.client().get("/channels/webhook/disabled").await.expect(200).json();
    assert_eq!(disabled["items"].as_array().unwrap().len(), 24);
    let metrics = server.client().get("/api/metrics").await.expect(200).json();
    let counts = &metrics["counts"];
    assert_eq!((&counts["failed"], &counts["created"]), (&json!(24), &json!(24)), "{metrics}");
}

// SX-14: nothing vanishes.
#[tokio::test]
async fn a_queue_that_is_not_there_fails_its_messages_with_a_dead_letter() {
    let server = hooks().await;
    let made = store(&server.services, "queue", json!({ "entity": "q" })).await;
    Deliverer::new(&server.services, "queue").drain().await.unwrap();
    assert_eq!(status_of(&server.services, &made).await, "failed");
    let letter = server.client().get(&format!("/dead-letters/{}", made.message_id)).await.expect(200).json();
    assert_eq!(letter["reason"], "there is no entity q on the bus");
}

// A hundred dead endpoints: the healthy one's message, made last, is delivered in the first round.
#[tokio::test]
async fn dead_endpoints_do_not_hold_up_a_healthy_one() {
    let healthy = Server::start(|_| Reply::status(200)).await;
    let mut dead = Vec::new();
    for _ in 0..100 {
        dead.push(Server::start(|_| Reply::Hang).await);
    }
    let server = hooks().await;
    let mut messages = Vec::new();
    for endpoint in &dead {
        for _ in 0..8 {
            messages.push(message(&server.services, "webhook", json!({ "url": endpoint.url("/") })));
        }
    }
    server.services.messages.create(messages).await.unwrap();
    let well = store(&server.services, "webhook", json!({ "url": healthy.url("/") })).await;
    let mut deliverer = Deliverer::new(&server.services, "webhook");
    deliverer.activate().await.unwrap();
    // Its attempt ends while all the others still hang.
    becomes(&server.services, &well.message_id, "completed").await;
    assert!(deliverer.under_way() >= 100);
}

// However many never answer: whoever answered before has hands that are not theirs.
#[tokio::test]
async fn any_number_that_never_answer_leaves_room_for_those_who_do() {
    let healthy = Server::start(|_| Reply::status(200)).await;
    let mut silent = Vec::new();
    for _ in 0..12 {
        silent.push(Server::start(|_| Reply::Hang).await);
    }
    let server = TestServer::start_with(|config| {
        quiet(config, "http://127.0.0.1:9");
        (config.delivery.concurrency, config.delivery.concurrency_per_host) = (8, 4);
    })
    .await;
    let services = &server.services;
    let mut deliverer = Deliverer::new(services, "webhook");
    store(services, "webhook", json!({ "url": healthy.url("/") })).await;
    deliverer.drain().await.unwrap();
    let messages = silent.iter().flat_map(|one| [0; 4].map(|_| json!({ "url": one.url("/") })));
    let messages = messages.map(|target| message(services, "webhook", target)).collect();
    services.messages.create(messages).await.unwrap();
    for _ in 0..3 {
        let well = store(services, "webhook", json!({ "url": healthy.url("/") })).await;
        deliverer.activate().await.unwrap();
        becomes(services, &well.message_id, "completed").await;
        deliverer.ended().await;
        assert_eq!(deliverer.under_way(), 4, "one each, and half of all");
    }
}

// SX-06: the policy has the last word on a code, so that its target is not disabled.
#[tokio::test]
async fn a_target_that_is_gone_is_tried_again_where_the_policy_says_so() {
    let hook = Server::start(|_| Reply::status(410)).await;
    let server = TestServer::start_with(|config| {
        quiet(config, "http://127.0.0.1:9");
        config.delivery.retry_on = vec![410];
    })
    .await;
    let made = store(&server.services, "webhook", json!({ "url": hook.url("/") })).await;
    Deliverer::new(&server.services, "webhook").drain().await.unwrap();
    assert_eq!(status_of(&server.services, &made).await, "processing", "it is tried again");
    let disabled = server.client().get("/channels/webhook/disabled").await.expect(200).json();
    assert_eq!(disabled["items"], json!([]));
}

/// Two destinations, and a backlog for one of them that is far larger than the window.
const BACKLOG: usize = 1500;

// A backlog for a dead destination is parked: others go by, and it drains in order once the destination is back.
#[tokio::test]
async fn a_backlog_for_a_dead_destination_is_parked_and_drains() {
    let healed = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let flag = std::sync::Arc::clone(&healed);
    let dead =
        Server::start(move |_| Reply::status(if flag.load(std::sync::atomic::Ordering::Relaxed) { 200 } else { 503 }))
            .await;
    let healthy = Server::start(|_| Reply::status(200)).await;
    let server = hooks().await;
    let services = &server.services;
    for _ in 0..BACKLOG / 100 {
        let messages = (0..100).map(|_| message(services, "webhook", json!({ "url": dead.url("/") }))).collect();
        services.messages.create(messages).await.unwrap();
        server.clock.advance(seconds(0.001));
    }
    let well = store(services, "webhook", json!({ "url": healthy.url("/") })).await;
    let mut deliverer = Deliverer::new(services, "webhook");
    deliverer.drain().await.unwrap();
    assert_eq!(status_of(services, &well).await, "completed", "it stood behind the whole backlog");
    let tried = dead.asked().len();
    assert!(tried < 20, "the breaker leaves the dead one alone: {tried}");
    // A new deliverer, as after a restart, knows of what is parked.
    let mut deliverer = Deliverer::new(services, "webhook");
    healed.store(true, std::sync::atomic::Ordering::Relaxed);
    let later = store(services, "webhook", json!({ "url": dead.url("/late") })).await;
    for _ in 0..100 {
        let Some(next) = deliverer.drain().await.unwrap() else { break };
        server.clock.advance(seconds(next.duration_since(services.clock.now()).as_secs_f64()));
    }
    let metrics = server.client().get("/api/metrics").await.expect(200).json();
    assert_eq!(metrics["counts"]["completed"], BACKLOG + 2, "{}", metrics["counts"]);
    assert_eq!(
        services.messages.get(&later.message_id).await.unwrap().unwrap().message.delivery.status,
        Status::Completed
    );
    assert_eq!(dead.asked().len(), tried + BACKLOG + 1, "each once more");
}

// SX-14: each channel can be tested.
#[tokio::test]
async fn a_channel_test_says_what_the_other_side_answered() {
    let (server, sink) = answering(published("n-1")).await;
    let client = server.client();
    let pushed = client.post("/channels/ntfy/test", &json!({ "topic": "ops" })).await.expect(200).json();
    assert_eq!((&pushed["delivered"], &pushed["notification_id"]), (&json!(true), &json!("n-1")));
    assert_eq!(sink.asked().len(), 1);
    let hook = Server::start(|_| Reply::status(500)).await;
    let called = client.post("/channels/webhook/test", &json!({ "url": hook.url("/x") })).await.expect(200).json();
    assert_eq!(
        (&called["delivered"], &called["code"], &called["transient"]),
        (&json!(false), &json!(500), &json!(true))
    );
    let inner = client.post("/channels/webhook/test", &json!({ "url": "http://10.0.0.1/" })).await.expect(200).json();
    assert!(inner["detail"].as_str().unwrap().contains("may not be reached"), "{inner}");
    let mailed = client.post("/channels/email/test", &json!({ "to": ["a@b.example"] })).await.expect(200).json();
    assert_eq!((&mailed["delivered"], &mailed["recipients"][0]["delivered"]), (&json!(true), &json!(true)));
    client.post("/channels/pigeon/test", &json!({})).await.problem(404);
    for (name, body, field) in [
        ("email", json!({}), "to"),
        ("email", json!({ "to": vec!["a@b.c"; 11] }), "to"),
        ("webhook", json!({}), "url"),
        ("webhook", json!({ "url": 1 }), "url"),
        ("ntfy", json!({ "topic": 1 }), "topic"),
        // What can only fail is refused before it is tried.
        ("email", json!({ "to": ["a@b.example", "x"] }), "to[1]"),
        ("webhook", json!({ "url": "http://u:p@h.example/" }), "url"),
        ("webhook", json!({ "url": "http://h.example/", "secret": "x" }), "secret"),
        ("ntfy", json!({ "topic": "a b" }), "topic"),
    ] {
        assert_eq!(client.post(&format!("/channels/{name}/test"), &body).await.bad_fields(), [field]);
    }
}

// What waits for a dead destination waits in the store: however much it is, the memory it takes is that of the window.
#[tokio::test]
async fn a_backlog_takes_no_more_memory_than_the_window() {
    let (server, _sink) = answering(Reply::status(503)).await;
    let services = &server.services;
    let dead = Server::start(|_| Reply::status(503)).await;
    for (channel, target) in [("ntfy", json!({ "topic": "t" })), ("webhook", json!({ "url": dead.url("/") }))] {
        let mut deliverer = Deliverer::new(services, channel);
        let mut most = 0;
        for _ in 0..30 {
            let messages = (0..100).map(|_| message(services, channel, target.clone())).collect();
            services.messages.create(messages).await.unwrap();
            deliverer.drain().await.unwrap();
            most = most.max(deliverer.in_memory());
        }
        assert!(most <= 1024 + 128, "{channel}: {most} of 3000");
    }
}

// SX-14: a target is disabled with a notice: an event, which a rule takes to people like any other.
#[tokio::test]
async fn a_disabled_target_is_told_of() {
    let hook = Server::start(|_| Reply::status(410)).await;
    let server = hooks().await;
    let client = server.client();
    let rule = json!({
        "pattern": { "eventType": ["webhook.disabled"], "source": ["tidings/delivery"] },
        "targets": [{ "channel": "inbox", "users": ["ops"] }],
        "title": "{{ data.summary }}",
    });
    client.put("/rules/gone", &rule).await.expect(201);
    let made = [
        store(&server.services, "webhook", json!({ "url": hook.url("/secret") })).await,
        store(&server.services, "webhook", json!({ "url": hook.url("/secret") })).await,
    ];
    Deliverer::new(&server.services, "webhook").drain().await.unwrap();
    for made in &made {
        becomes(&server.services, &made.message_id, "failed").await;
    }
    // Whom the monitors tell hears of it without any rule of his own.
    let built_in = client.get("/rules/webhook-disabled").await.expect(200).json();
    assert_eq!(built_in["origin"], "builtin");
    let heard = client.get("/notifications?user=devops-team").await.expect(200).json();
    let heard = heard["items"].as_array().unwrap();
    assert_eq!(heard.len(), 1, "of two that were under way at once, one tells: {heard:?}");
    assert!(heard[0]["text"].as_str().unwrap().contains("/channels/webhook/disabled/"), "{heard:?}");
    let told = client.get("/notifications?user=ops").await.expect(200).json();
    let title = told["items"][0]["title"].as_str().unwrap();
    assert!(title.contains(&hook.url("")) && title.contains("410") && !title.contains("secret"), "{title}");
    let events = client.get("/events?type=webhook.disabled").await.expect(200).json();
    let events = events["items"].as_array().unwrap();
    assert_eq!(events.len(), 1, "{events:?}");
    let disabled = client.get("/channels/webhook/disabled").await.expect(200).json();
    assert_eq!(events[0]["data"]["targetId"], disabled["items"][0]["id"]);
    for made in &made {
        assert_eq!(status_of(&server.services, made).await, "failed");
    }
    assert_eq!(client.get("/audit-log/verify").await.json()["ok"], true);
    // Another one to the same target changes nothing more.
    let count = events.len();
    store(&server.services, "webhook", json!({ "url": hook.url("/secret") })).await;
    Deliverer::new(&server.services, "webhook").drain().await.unwrap();
    let events = client.get("/events?type=webhook.disabled").await.expect(200).json();
    assert_eq!(events["items"].as_array().unwrap().len(), count);
}
