//! Webhooks to a server that answers everything from 200 to 599, trickles, never ends, and redirects.

use std::time::Duration;

use tidings::channel::Outcome;
use tidings::channel::webhook::signature::{Key, Received, verify};
use tidings::channel::webhook::{Sender, Target};
use tidings::config::Secret;
use tidings::outbound::{Outbound, Timeouts};

use super::http_server::{Reply, Server};
use super::{guarded, notice, now};

const OLD: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const NEW: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

fn target(url: String) -> Target {
    Target { url, secrets: vec![Secret::new(OLD), Secret::new(NEW)] }
}

async fn send_to(reply: Reply) -> (Outcome, Server) {
    let server = Server::start(move |_| reply.clone()).await;
    let outcome = Sender::new(guarded()).send(&notice(), &target(server.url("/hook")), now()).await;
    (outcome, server)
}

// SX-14, SX-20
#[tokio::test]
async fn every_status_is_answered_as_the_table_says() {
    let server = Server::start(|asked| Reply::status(asked.path.trim_start_matches('/').parse().unwrap())).await;
    let sender = Sender::new(guarded());
    for status in 200..=599_u16 {
        let outcome = sender.send(&notice(), &target(server.url(&format!("/{status}"))), now()).await;
        let fits = match (&outcome, status) {
            (Outcome::Delivered { .. }, 200..=299) => true,
            (Outcome::Retry { code, .. }, 408 | 409 | 425 | 429 | 500..=599) => *code == Some(status),
            (Outcome::Reject { disable_target, .. }, 410) => *disable_target,
            (_, 408 | 409 | 425 | 429) => false,
            (Outcome::Reject { code, disable_target, .. }, 300..=499) => *code == Some(status) && !disable_target,
            _ => false,
        };
        assert!(fits, "{status}: {outcome:?}");
    }
    assert_eq!(server.asked().len(), 400, "one call each, none repeated or redirected");
}

// SX-06: whoever has more time than is usual has it for the whole exchange, whoever has less is told whom he waited for.
#[tokio::test]
async fn a_limit_of_its_own_takes_the_place_of_the_clients() {
    let none = Timeouts { first_byte: Duration::ZERO, total: Duration::ZERO, ..Timeouts::default() };
    let hasty = || Outbound::trusted_with(none).unwrap();
    let silent = Server::start(|_| Reply::Hang).await;
    let unheard = target(silent.url("/hook"));
    let outcome = Sender::new(hasty()).send(&notice(), &unheard, now()).await;
    assert_eq!(outcome.text(), format!("{} took longer than 0 s to answer", silent.url("")));
    let limit = Some(Duration::from_millis(100));
    for client in [hasty(), guarded()] {
        let outcome = Sender::new(client).send_within(limit, &notice(), &unheard, now()).await;
        assert_eq!(outcome.text(), format!("{} took longer than 0.1 s to answer", silent.url("")));
    }
    let server = Server::start(|_| Reply::status(200)).await;
    let limit = Some(Duration::from_secs(60));
    let outcome = Sender::new(hasty()).send_within(limit, &notice(), &target(server.url("/hook")), now()).await;
    assert!(outcome.is_delivered(), "{outcome:?}");
    let ntfy = |server: &Server| tidings::channel::ntfy::Sender::new(hasty(), &server.url("/"), None).unwrap();
    assert!(!ntfy(&silent).send(&notice(), "ops", now()).await.is_delivered());
    let outcome = ntfy(&server).send_within(limit, &notice(), "ops", now()).await;
    assert!(outcome.is_delivered(), "{outcome:?}");
}

// SX-20: Standard Webhooks
#[tokio::test]
async fn each_attempt_is_signed_anew_for_the_same_id_and_body() {
    let server = Server::start(|_| Reply::status(500)).await;
    let sender = Sender::new(guarded());
    let later = now().saturating_add(Duration::from_secs(90)).unwrap();
    for at in [now(), later] {
        sender.send(&notice(), &target(server.url("/hook?key=1")), at).await;
    }
    let [first, second] = &server.asked()[..] else { panic!("two calls") };
    assert_eq!((&first.headers["webhook-id"], &first.body), (&second.headers["webhook-id"], &second.body));
    assert_ne!(first.headers["webhook-signature"], second.headers["webhook-signature"]);
    assert_eq!(first.headers["webhook-id"], notice().message_id.to_string());
    assert_eq!(first.headers["x-correlation-id"], "c-17");
    assert_eq!(first.headers["content-type"], "application/json");
    for (asked, at) in [(first, now()), (second, later)] {
        let header = |name: &str| asked.headers[name].as_str();
        let received = Received {
            id: header("webhook-id"),
            timestamp: header("webhook-timestamp"),
            signature: header("webhook-signature"),
            body: &asked.body,
        };
        for secret in [OLD, NEW] {
            assert_eq!(verify(&[Key::parse(secret).unwrap()], &received, at), Ok(()));
        }
        let changed = Received { body: b"{}", ..received };
        assert!(verify(&[Key::parse(OLD).unwrap()], &changed, at).is_err());
    }
    let body: serde_json::Value = serde_json::from_slice(&first.body).unwrap();
    assert_eq!((&body["type"], &body["data"]["payload"]["disk"]), (&"alert_notification".into(), &"/var".into()));
}

#[tokio::test]
async fn retry_after_is_passed_on() {
    for status in [429, 503] {
        let headers = vec![("retry-after", "120".to_owned())];
        let (outcome, _) = send_to(Reply::Answer { status, headers, body: String::new() }).await;
        assert!(matches!(outcome, Outcome::Retry { after: Some(after), .. } if after.as_secs() == 120), "{outcome:?}");
    }
}

#[tokio::test]
async fn whoever_never_answers_is_given_up_in_time() {
    for reply in [Reply::Hang, Reply::Trickle, Reply::Drop] {
        let started = tokio::time::Instant::now();
        let (outcome, _) = send_to(reply.clone()).await;
        assert!(matches!(outcome, Outcome::Retry { .. }), "{reply:?}: {outcome:?}");
        assert!(started.elapsed() < Duration::from_secs(3), "{reply:?}");
    }
}

#[tokio::test]
async fn an_endless_answer_is_read_no_further_than_needed() {
    let (outcome, _) = send_to(Reply::Endless).await;
    assert!(outcome.is_delivered(), "{outcome:?}");
}

// SX-20
#[tokio::test]
async fn redirects_and_private_addresses_are_refused_for_good() {
    let inner = Server::start(|_| Reply::status(200)).await;
    let location = inner.url("/secret");
    let outer = Server::start(move |_| Reply::Answer {
        status: 307,
        headers: vec![("location", location.clone())],
        body: String::new(),
    })
    .await;
    let outcome = Sender::new(guarded()).send(&notice(), &target(outer.url("/")), now()).await;
    assert!(matches!(outcome, Outcome::Reject { code: Some(307), .. }), "{outcome:?}");
    let strict = Sender::new(Outbound::guarded(&tidings::config::outbound::Outbound::default()).unwrap());
    let outcome = strict.send(&notice(), &target(inner.url("/")), now()).await;
    assert!(matches!(outcome, Outcome::Reject { .. }), "{outcome:?}");
    assert_eq!(inner.asked().len(), 0);
}

#[tokio::test]
async fn without_a_secret_it_is_unsigned_and_with_a_bad_one_unsent() {
    let server = Server::start(|_| Reply::status(200)).await;
    let sender = Sender::new(guarded());
    let unsigned = Target { url: server.url("/"), secrets: Vec::new() };
    assert!(sender.send(&notice(), &unsigned, now()).await.is_delivered());
    assert!(!server.asked()[0].headers.contains_key("webhook-signature"));
    let bad = Target { url: server.url("/"), secrets: vec![Secret::new("CANARY-not-base64")] };
    let outcome = sender.send(&notice(), &bad, now()).await;
    assert!(matches!(&outcome, Outcome::Reject { error, .. } if !error.contains("CANARY")), "{outcome:?}");
    assert_eq!(server.asked().len(), 1);
}
