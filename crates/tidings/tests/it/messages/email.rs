//! E-mail as messages: a file for each recipient, and nobody gets two.

use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};
use tidings::app::Services;
use tidings::config::{Config, Secret, email::Transport};
use tidings::messages::deliver::Deliverer;
use tidings_core::message::Status;
use tidings_store::Store;
use tidings_store::memory::Memory;

use super::{quiet, seconds, store};
use crate::channels::smtp_talker::Talker;
use crate::support::{TestServer, server};

fn outbox(server: &TestServer) -> Vec<String> {
    let Ok(files) = std::fs::read_dir(server.data_dir().join("outbox")) else { return Vec::new() };
    let mut names: Vec<_> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

async fn mail(change: impl FnOnce(&mut tidings::config::Config)) -> TestServer {
    TestServer::start_with(|config| {
        quiet(config, "http://127.0.0.1:9");
        change(config);
    })
    .await
}

// SX-14, S000: the file transport, what a new installation has.
#[tokio::test]
async fn each_recipient_has_a_file_and_a_stable_message_id() {
    let server = mail(|_| {}).await;
    let made = store(&server.services, "email", json!({ "to": ["a@b.example", "c@d.example"] })).await;
    Deliverer::new(&server.services, "email").drain().await.unwrap();
    let shown = server.client().get(&format!("/api/messages/{}", made.message_id)).await.expect(200).json();
    assert_eq!(shown["status"], "completed");
    assert_eq!(shown["recipients"]["a@b.example"]["delivered"], true);
    let names = outbox(&server);
    assert_eq!(names.len(), 2);
    let text = std::fs::read_to_string(server.data_dir().join("outbox").join(&names[0])).unwrap();
    assert!(text.contains(&format!("Message-ID: <{}", made.message_id)), "{text}");
}

// A recipient who is refused fails the message; who got it is known, and a retry goes to the others only.
#[tokio::test]
async fn a_retry_goes_only_to_those_who_did_not_get_it() {
    let server = mail(|_| {}).await;
    let client = server.client();
    let made = store(&server.services, "email", json!({ "to": ["a@b.example", "no address"] })).await;
    Deliverer::new(&server.services, "email").drain().await.unwrap();
    let path = format!("/api/messages/{}", made.message_id);
    let failed = client.get(&path).await.expect(200).json();
    assert_eq!(failed["status"], "failed");
    assert_eq!(failed["recipients"]["a@b.example"]["delivered"], true);
    assert_eq!(failed["recipients"]["no address"]["delivered"], false);
    // SX-08: what is sent again is no dead letter any more, or whoever resubmits them would send it once more.
    assert_eq!(client.get("/dead-letters").await.json()["items"].as_array().unwrap().len(), 1);
    let again = client.post(&format!("{path}/retry"), &json!({})).await.expect(201).json();
    assert_eq!(again["target"]["to"], json!(["no address"]));
    assert_eq!(client.get("/dead-letters").await.json()["items"], json!([]));
}

// An outbox that cannot be written is tried again, and only for those who are pending.
#[tokio::test]
async fn a_mail_server_that_is_away_is_tried_again() {
    // Nothing listens on port 9.
    let server = mail(|config| {
        config.email.transport = tidings::config::email::Transport::Smtp;
        config.email.smtp_url = Some(Secret::new("smtp://127.0.0.1:9?tls=none"));
    })
    .await;
    let made = store(&server.services, "email", json!({ "to": ["a@b.example"] })).await;
    let mut deliverer = Deliverer::new(&server.services, "email");
    for _ in 0..6 {
        deliverer.drain().await.unwrap();
        server.clock.advance(seconds(16.0));
    }
    let shown = server.client().get(&format!("/api/messages/{}", made.message_id)).await.expect(200).json();
    assert_eq!((&shown["status"], &shown["retry_count"]), (&json!("failed"), &json!(5)));
    assert_eq!(shown["attempts"].as_array().unwrap().len(), 6);
    // S000-50: after the last attempt it is decided of everybody.
    let known = &shown["recipients"]["a@b.example"];
    assert_eq!(known["delivered"], false);
    assert!(known["detail"].as_str().unwrap().contains("Connection"), "{known}");
}

/// A mail in three attempts, each copy with a limit if there is one: how often the server was asked for each address, and
/// what is shown of the message.
async fn in_three_attempts(to: [&str; 4], limit: Option<f64>) -> ([usize; 4], Value) {
    let sink = crate::channels::smtp_sink::Sink::start(&[]);
    let url = format!("smtp://127.0.0.1:{}?tls=none", sink.port);
    let server = mail(|config| {
        config.email.transport = tidings::config::email::Transport::Smtp;
        config.email.smtp_url = Some(Secret::new(url));
        config.delivery.max_retries = 2;
        config.delivery.timeout_seconds = limit.unwrap_or(config.delivery.timeout_seconds);
    })
    .await;
    let made = store(&server.services, "email", json!({ "to": to })).await;
    let mut deliverer = Deliverer::new(&server.services, "email");
    for _ in 0..3 {
        deliverer.drain().await.unwrap();
        server.clock.advance(seconds(16.0));
    }
    let said = sink.said();
    let shown = server.client().get(&format!("/api/messages/{}", made.message_id)).await.expect(200).json();
    assert_eq!((&shown["status"], &shown["retry_count"]), (&json!("failed"), &json!(2)));
    (to.map(|who| said.iter().filter(|line| line["rcpt"] == who).count()), shown)
}

// S000-50: only those who are pending are tried again; the outcome of each is kept from attempt to attempt.
#[tokio::test]
async fn later_attempts_go_to_the_pending_alone() {
    let to = ["ok@a.example", "temp@a.example", "bad@a.example", "okay@a.example"];
    let (asked, shown) = in_three_attempts(to, None).await;
    assert_eq!(asked, [1, 3, 1, 1]);
    assert_eq!(shown["recipients"]["ok@a.example"]["delivered"], true);
    assert_eq!(shown["recipients"]["bad@a.example"]["delivered"], false);
    // After the last attempt it is decided of everybody, and each has the last answer.
    let given_up = &shown["recipients"]["temp@a.example"];
    assert_eq!(given_up["delivered"], false);
    assert!(given_up["detail"].as_str().unwrap().contains("4.3.0 try again later"), "{given_up}");
}

// S000-50: the limit of `[delivery]` is that of each copy; who has got one is not mailed again because another one hangs.
#[tokio::test]
async fn who_has_it_is_not_mailed_again_because_another_one_hangs() {
    let to = ["ok@a.example", "hang@a.example", "bad@a.example", "okay@a.example"];
    let (asked, shown) = in_three_attempts(to, Some(0.5)).await;
    assert_eq!(asked, [1, 3, 1, 1]);
    assert_eq!(shown["recipients"]["okay@a.example"]["delivered"], true);
    let attempts = shown["attempts"].as_array().unwrap();
    for attempt in attempts {
        let error = attempt["error"].as_str().unwrap();
        assert!(error.contains("hang@a.example: no answer within 0.5 s"), "{attempt}");
    }
    // Whoever was refused for good is named to the end.
    let reason = shown["error_message"].as_str().unwrap();
    assert!(reason.contains("bad@a.example: ") && reason.contains("hang@a.example: "), "{reason}");
}

// S000-50, S002-51: a server that stops begins no copy, but keeps what it knows of those it made; the others are not given up,
// although it was the last attempt, and get theirs after the start.
#[tokio::test]
async fn a_stop_between_two_copies_repeats_none() {
    let services: Arc<OnceLock<Services>> = Arc::default();
    let stopped = Arc::clone(&services);
    let talker = Talker::start(move |what, to| {
        if what == "mail" && to.contains("second") {
            stopped.get()?.workers.stop();
        }
        (what == "RCPT" && to.contains("bad")).then(|| vec![b"550 nobody\r\n".to_vec()])
    })
    .await;
    let change = |config: &mut Config| {
        quiet(config, "http://127.0.0.1:9");
        config.email.transport = Transport::Smtp;
        config.email.smtp_url = Some(Secret::new(talker.url()));
        config.delivery.max_retries = 0;
    };
    let clock = server::clock();
    let memory: Arc<dyn Store> = Arc::new(Memory::new(clock.clone()));
    let first = TestServer::over_with(Arc::clone(&memory), clock, change).await;
    services.set(first.services.clone()).ok().unwrap();
    let to = ["first", "bad", "second", "third", "fourth"].map(|who| format!("{who}@b.example"));
    let made = store(&first.services, "email", json!({ "to": to })).await;
    let mut deliverer = Deliverer::new(&first.services, "email");
    deliverer.activate().await.unwrap();
    while deliverer.under_way() > 0 {
        deliverer.ended().await;
    }
    let kept = first.services.messages.get(&made.message_id).await.unwrap().unwrap().message;
    assert_eq!((kept.delivery.status, kept.delivery.retry_count), (Status::Processing, 0));
    assert_eq!(kept.recipients.keys().collect::<Vec<_>>(), ["bad@b.example", "first@b.example", "second@b.example"]);
    let error = kept.delivery.attempts[0].error.as_deref().unwrap();
    assert!(error.contains("third@b.example: not sent before the server stopped"), "{error}");

    let again = TestServer::over_again(memory, &first, change).await;
    Deliverer::new(&again.services, "email").drain().await.unwrap();
    let shown = again.client().get(&format!("/api/messages/{}", made.message_id)).await.expect(200).json();
    assert_eq!(shown["status"], "failed", "one was refused");
    let heard = talker.heard().concat();
    for who in to {
        let asked = heard.iter().filter(|line| **line == format!("RCPT TO:<{who}>")).count();
        assert_eq!(asked, 1, "{who}: {heard:?}");
        assert_eq!(shown["recipients"][&who]["delivered"], !who.starts_with("bad"), "{shown}");
    }
}
