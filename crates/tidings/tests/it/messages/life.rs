//! `queued`, quiet hours, keys, policies and what waits too long.

use serde_json::{Value, json};
use tidings::config::delivery::{Day, Override, QuietHours};
use tidings::messages::deliver::{Deliverer, expiry};
use tidings_core::time::{Clock as _, Timestamp};

use super::{answering, deliver, hello, id_of, look, make, message, published, quiet, seconds, server_with, store};
use crate::channels::http_server::{Reply, Server};
use crate::support::TestServer;

// S002-44, S002-45: who has to wait for a destination that is left alone is queued; who can go is taken up at once.
#[tokio::test]
async fn a_message_that_waits_is_queued_and_then_goes_on() {
    let ill = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let flag = std::sync::Arc::clone(&ill);
    let sink = Server::start(move |_| match flag.load(std::sync::atomic::Ordering::Relaxed) {
        true => Reply::status(503),
        false => published("n"),
    })
    .await;
    let server = server_with(&sink).await;
    let client = server.client();
    let mut deliverer = Deliverer::new(&server.services, "ntfy");
    for _ in 0..5 {
        make(&client, &hello()).await;
        deliverer.drain().await.unwrap();
    }
    let waiting = make(&client, &hello()).await;
    assert_eq!((&waiting["status"], waiting.get("queued_at")), (&json!("created"), None));
    deliverer.drain().await.unwrap();
    let queued = look(&client, &waiting).await;
    assert_eq!((&queued["status"], &queued["queued_at"]), (&json!("queued"), &json!("2026-03-01T12:00:00.000Z")));
    assert_eq!(queued.get("next_attempt_at"), None, "its destination's time is not its own");
    let list = client.get("/api/messages?status=queued").await.expect(200).json();
    assert_eq!(list["items"][0]["message_id"], waiting["message_id"]);
    assert_eq!(client.get("/api/metrics").await.json()["counts"]["queued"], 1);
    ill.store(false, std::sync::atomic::Ordering::Relaxed);
    for _ in 0..10 {
        let Some(next) = deliverer.drain().await.unwrap() else { break };
        server.clock.advance(seconds(next.duration_since(server.services.clock.now()).as_secs_f64()));
    }
    let done = look(&client, &waiting).await;
    assert_eq!((&done["status"], &done["queued_at"]), (&json!("completed"), &queued["queued_at"]));
    let counts = client.get("/api/metrics").await.json()["counts"].clone();
    assert_eq!((&counts["queued"], &counts["completed"]), (&json!(0), &json!(6)));
    // Nobody before it: it was in line for no time.
    let quick = make(&client, &hello()).await;
    deliverer.drain().await.unwrap();
    let quick = look(&client, &quick).await;
    assert_eq!(quick["queued_at"], quick["processing_started_at"]);
}

// S002-44: a queued message can be cancelled, and a parked one is queued.
#[tokio::test]
async fn what_is_parked_is_queued() {
    let dead = Server::start(|_| Reply::status(503)).await;
    let server = TestServer::start_with(|config| quiet(config, "http://127.0.0.1:9")).await;
    let services = &server.services;
    let url = json!({ "url": dead.url("/") });
    let messages = (0..600).map(|_| message(services, "webhook", url.clone())).collect();
    let made = services.messages.create(messages).await.unwrap();
    Deliverer::new(services, "webhook").drain().await.unwrap();
    let counts = server.client().get("/api/metrics").await.json()["counts"].clone();
    assert_eq!(counts["created"], 0, "{counts}");
    assert!(counts["queued"].as_i64().unwrap() > 580, "{counts}");
    let mut cancelled = 0;
    for message in made.iter().rev().take(5) {
        let answer = server.client().post(&format!("/api/messages/{}/cancel", message.message_id), &json!({})).await;
        cancelled += usize::from(answer.status == 200);
    }
    assert_eq!(cancelled, 5);
}

fn night() -> QuietHours {
    QuietHours {
        name: "noon".to_owned(),
        start: "11:00".to_owned(),
        end: "14:00".to_owned(),
        channels: vec!["ntfy".to_owned()],
        ..QuietHours::default()
    }
}

// SX-15: deferred, never dropped; critical bypasses.
#[tokio::test]
async fn quiet_hours_put_off_and_critical_goes() {
    let sink = Server::start(|_| published("n")).await;
    let url = sink.url("");
    let server = TestServer::start_with(|config| {
        quiet(config, &url);
        config.quiet_hours = vec![night()];
    })
    .await;
    let client = server.client();
    let made = make(&client, &hello()).await;
    let mut urgent = hello();
    urgent["payload"]["priority"] = json!("urgent");
    let urgent = make(&client, &urgent).await;
    assert_eq!(deliver(&server.services, "ntfy").await, Some(7200.0));
    assert_eq!(look(&client, &urgent).await["status"], "completed");
    let waiting = look(&client, &made).await;
    assert_eq!((&waiting["status"], &waiting["put_off_by"]), (&json!("created"), &json!("noon")));
    assert_eq!(waiting["deliver_at"], "2026-03-01T14:00:00.000Z");
    assert_eq!(waiting["attempts"], json!([]), "that was no attempt");
    server.clock.advance(seconds(7199.0));
    deliver(&server.services, "ntfy").await;
    assert_eq!(sink.asked().len(), 1);
    server.clock.advance(seconds(1.0));
    deliver(&server.services, "ntfy").await;
    let done = look(&client, &made).await;
    assert_eq!((&done["status"], done.get("put_off_by")), (&json!("completed"), None));
    // Another channel is not concerned.
    server.clock.jump_to("2026-03-02T12:00:00Z".parse().unwrap());
    let hook = store(&server.services, "webhook", json!({ "url": sink.url("/hook") })).await;
    deliver(&server.services, "webhook").await;
    assert_eq!(super::status_of(&server.services, &hook).await, "completed");
}

// SX-15: a retry waits, too.
#[tokio::test]
async fn a_retry_that_falls_into_quiet_hours_waits() {
    let sink = Server::start(|_| Reply::status(500)).await;
    let url = sink.url("");
    let server = TestServer::start_with(|config| {
        quiet(config, &url);
        config.quiet_hours = vec![QuietHours { start: "12:00".to_owned(), ..night() }];
    })
    .await;
    server.clock.jump_to("2026-03-01T11:59:59.500Z".parse().unwrap());
    let made = make(&server.client(), &hello()).await;
    deliver(&server.services, "ntfy").await;
    server.clock.advance(seconds(1.0));
    deliver(&server.services, "ntfy").await;
    let waiting = look(&server.client(), &made).await;
    assert_eq!((&waiting["status"], &waiting["retry_count"]), (&json!("processing"), &json!(1)));
    assert_eq!(waiting["next_attempt_at"], "2026-03-01T14:00:00.000Z");
    assert_eq!(sink.asked().len(), 1);
}

// SX-06: per channel and per type.
#[tokio::test]
async fn a_type_has_its_own_policy() {
    let sink = Server::start(|_| Reply::status(500)).await;
    let url = sink.url("");
    let server = TestServer::start_with(|config| {
        quiet(config, &url);
        let never = Override { message_type: Some("reminder".into()), max_retries: Some(0), ..Override::default() };
        let fail = Override { channel: Some("webhook".into()), fail_on: Some(vec![500]), ..Override::default() };
        config.delivery.overrides = vec![never, fail];
    })
    .await;
    let client = server.client();
    let reminder = make(&client, &json!({ "message_type": "reminder", "payload": { "text": "x" } })).await;
    let other = make(&client, &hello()).await;
    deliver(&server.services, "ntfy").await;
    assert_eq!(look(&client, &reminder).await["status"], "failed");
    assert_eq!(look(&client, &other).await["status"], "processing");
    let hook = store(&server.services, "webhook", json!({ "url": sink.url("/hook") })).await;
    deliver(&server.services, "webhook").await;
    assert_eq!(super::status_of(&server.services, &hook).await, "failed");
}

// SX-16: cancelled by a key of the caller's own.
#[tokio::test]
async fn a_delayed_message_is_cancelled_by_its_key() {
    let (server, sink) = answering(published("n")).await;
    let client = server.client();
    let mut later = hello();
    later["deliver_at"] = json!("2026-03-04T12:00:00Z");
    later["key"] = json!("transfer-17");
    let first = make(&client, &later).await;
    assert_eq!(first["key"], "transfer-17");
    let second = make(&client, &later).await;
    let mut now = hello();
    now["key"] = json!("transfer-17");
    let sent = make(&client, &now).await;
    deliver(&server.services, "ntfy").await;
    let cancel = |key: Value| {
        let client = client.clone();
        async move { client.post("/api/messages/cancel", &json!({ "key": key })).await }
    };
    let answer = cancel(json!("transfer-17")).await.expect(200).json();
    let mut both = [id_of(&first), id_of(&second)];
    both.sort();
    both.reverse();
    assert_eq!(answer["cancelled"], json!(both), "those of one millisecond by their ids");
    assert_eq!((&answer["already_cancelled"], &answer["too_late"]), (&json!([]), &json!([id_of(&sent)])));
    // Said again, it is no failure of what it did.
    let again = cancel(json!("transfer-17")).await.expect(200).json();
    assert_eq!((&again["cancelled"], &again["too_late"]), (&json!([]), &json!([id_of(&sent)])));
    let mut before: Vec<_> = again["already_cancelled"].as_array().unwrap().clone();
    before.sort_by_key(ToString::to_string);
    before.reverse();
    assert_eq!(json!(before), json!(both));
    server.clock.advance(seconds(4.0 * 86_400.0));
    deliver(&server.services, "ntfy").await;
    assert_eq!(sink.asked().len(), 1);
    assert_eq!(look(&client, &first).await["error_message"], "cancelled");
    cancel(json!("unknown")).await.problem(404);
    for bad in [json!(null), json!(1), json!(""), json!("k".repeat(129)), json!("a\nb")] {
        assert_eq!(cancel(bad).await.bad_fields(), ["key"]);
    }
    for (length, good) in [(127, true), (128, true), (129, false)] {
        later["key"] = json!("k".repeat(length));
        let answer = client.post("/api/messages", &later).await;
        if good { drop(answer.expect(201)) } else { assert_eq!(answer.bad_fields(), ["key"]) }
    }
    let both = client.post("/api/messages", &json!({ "message_type": "reminder", "payload": {}, "key": 1 })).await;
    assert_eq!(both.bad_fields(), ["payload.text", "key"]);
    // One mistake does not hide another.
    let all = json!({ "message_type": "nonsense", "payload": [], "stage": "q", "deliver_at": "soon", "key": "" });
    let fields = client.post("/api/messages", &all).await.bad_fields();
    assert_eq!(fields, ["payload", "stage", "deliver_at", "message_type", "key"]);
    let all = json!({ "message_type": "reminder", "payload": { "priority": 9 }, "stage": "q" });
    assert_eq!(client.post("/api/messages", &all).await.bad_fields(), ["stage", "payload.priority", "payload.text"]);
}

/// Lets whoever gives up be there for another hour; gives how many messages that were.
async fn watched(server: &TestServer, watch: &expiry::Watch) -> usize {
    let mut given_up = expiry::expire(&server.services, watch).await.unwrap();
    for _ in 0..6 {
        server.clock.advance(seconds(600.0));
        given_up += expiry::expire(&server.services, watch).await.unwrap();
    }
    given_up
}

// SX-08: what waits until the end of its time has a dead letter, which outlives it.
#[tokio::test]
async fn what_waits_for_90_days_is_given_up_and_not_forgotten() {
    let (server, _sink) = answering(published("n")).await;
    let client = server.client();
    let made = make(&client, &hello()).await;
    let watch = expiry::Watch::default();
    server.clock.advance(seconds(90.0 * 86_400.0 - 3601.0 - 3600.0));
    assert_eq!(watched(&server, &watch).await, 0);
    server.clock.advance(seconds(1.0));
    assert_eq!(expiry::expire(&server.services, &watch).await.unwrap(), 1);
    assert_eq!(expiry::expire(&server.services, &watch).await.unwrap(), 0);
    let failed = look(&client, &made).await;
    assert_eq!(failed["status"], "failed");
    let letter = client.get(&format!("/dead-letters/{}", id_of(&made))).await.expect(200).json();
    assert_eq!(letter["reason"], "it could not be delivered within the time that messages are kept");
    server.clock.advance(seconds(2.0 * 86_400.0));
    client.get(&format!("/api/messages/{}", id_of(&made))).await.problem(404);
    let again = client.post(&format!("/dead-letters/{}/resubmit", id_of(&made)), &json!({})).await.expect(201).json();
    assert_eq!(again["payload"]["text"], "hello world");
    deliver(&server.services, "ntfy").await;
    assert_eq!(look(&client, &again).await["status"], "completed");
}

/// A server that keeps messages for a day.
async fn forgetful(sink: &Server, quiet_hours: Vec<QuietHours>) -> TestServer {
    let url = sink.url("");
    TestServer::start_with(|config| {
        quiet(config, &url);
        config.retention.messages_days = 1;
        config.quiet_hours = quiet_hours;
    })
    .await
}

async fn states(server: &TestServer) -> Value {
    server.client().get("/api/metrics").await.expect(200).json()["counts"].clone()
}

// SX-15: quiet hours that last longer than messages are kept put off, and drop nothing.
#[tokio::test]
async fn quiet_hours_outlast_the_time_that_messages_are_kept() {
    let sink = Server::start(|_| published("n")).await;
    // A Sunday, and three days more.
    let days = vec![Day::Sun, Day::Mon, Day::Tue, Day::Wed];
    let all_day = QuietHours { start: "00:00".to_owned(), end: "24:00".to_owned(), days, ..night() };
    let server = forgetful(&sink, vec![all_day]).await;
    let client = server.client();
    let made = make(&client, &hello()).await;
    deliver(&server.services, "ntfy").await;
    let waiting = look(&client, &made).await;
    let until: Timestamp = waiting["deliver_at"].as_str().unwrap().parse().unwrap();
    assert!(until > server.clock.now() + std::time::Duration::from_secs(48 * 3600), "{until}");
    assert_eq!(waiting["ttl"], until.as_second() + 86_400, "it has its day when it may leave");
    assert_eq!(states(&server).await["created"], 1);
    let watch = expiry::Watch::default();
    while server.clock.now() < until {
        assert_eq!(watched(&server, &watch).await, 0);
    }
    assert_eq!(states(&server).await["created"], 1);
    deliver(&server.services, "ntfy").await;
    assert_eq!(look(&client, &made).await["status"], "completed");
    let states = states(&server).await;
    assert_eq!((&states["created"], &states["completed"]), (&json!(0), &json!(1)));
}

// S002-16, SX-16: a message that is to go at the end of the time it would be kept goes then, and is kept from then on.
#[tokio::test]
async fn a_message_is_kept_from_the_moment_it_may_leave() {
    let sink = Server::start(|_| published("n")).await;
    let server = forgetful(&sink, Vec::new()).await;
    let client = server.client();
    let mut late = hello();
    late["deliver_at"] = json!("2026-03-02T11:59:50Z");
    let made = make(&client, &late).await;
    assert_eq!(made["ttl"], 1_772_452_790 + 86_400);
    let watch = expiry::Watch::default();
    for _ in 0..24 {
        assert_eq!(watched(&server, &watch).await, 0);
    }
    deliver(&server.services, "ntfy").await;
    assert_eq!(look(&client, &made).await["status"], "completed");
    late["deliver_at"] = json!("2026-03-03T12:00:00Z");
    let refused = client.post("/api/messages", &late).await.problem(400);
    assert_eq!(refused["errors"][0]["message"], "must be within 1 day", "{refused}");
}

// SX-08: what became due while nobody was here is tried before it is given up, and is given up before it is forgotten.
#[tokio::test]
async fn what_is_due_after_an_absence_is_tried_first() {
    let sink = Server::start(|_| Reply::status(500)).await;
    let server = forgetful(&sink, Vec::new()).await;
    let client = server.client();
    let tried = make(&client, &hello()).await;
    deliver(&server.services, "ntfy").await;
    let untried = make(&client, &hello()).await;
    // As if nobody had run until twenty minutes before their end.
    server.clock.advance(seconds(86_400.0 - 1200.0));
    let watch = expiry::Watch::default();
    assert_eq!(expiry::expire(&server.services, &watch).await.unwrap(), 0);
    deliver(&server.services, "ntfy").await;
    for (message, attempts) in [(&tried, 2), (&untried, 1)] {
        assert_eq!(look(&client, message).await["attempts"].as_array().unwrap().len(), attempts);
    }
    server.clock.advance(seconds(300.0));
    assert_eq!(expiry::expire(&server.services, &watch).await.unwrap(), 2);
    server.clock.advance(seconds(1200.0));
    for message in [&tried, &untried] {
        assert_eq!(look(&client, message).await["status"], "failed", "it can still be seen");
        client.get(&format!("/dead-letters/{}", id_of(message))).await.expect(200);
    }
    assert_eq!(states(&server).await["failed"], 2);
}

// SX-22
#[tokio::test]
async fn deliveries_are_in_the_metrics() {
    let sink = Server::start(|asked| match asked.body.windows(5).any(|part| part == b"wrong") {
        true => Reply::status(400),
        false => published("n"),
    })
    .await;
    let server = server_with(&sink).await;
    make(&server.client(), &hello()).await;
    make(&server.client(), &json!({ "message_type": "reminder", "payload": { "text": "wrong" } })).await;
    deliver(&server.services, "ntfy").await;
    let text = server.client().get("/metrics").await.expect(200).text();
    for line in [
        "tidings_delivery_attempts_total{channel=\"ntfy\",outcome=\"delivered\"} 1",
        "tidings_delivery_attempts_total{channel=\"ntfy\",outcome=\"permanent\"} 1",
        "tidings_delivery_attempt_seconds_count{channel=\"ntfy\"} 2",
        "tidings_deliveries_total{channel=\"ntfy\",outcome=\"completed\"} 1",
        "tidings_delivery_seconds_count{channel=\"ntfy\"} 1",
        "tidings_dead_letters_total{channel=\"ntfy\"} 1",
        "tidings_delivery_open_breakers{channel=\"ntfy\"} 0",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}
