//! From a change to a mail in somebody's inbox, and what the record says on the way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use tidings::config::{Config, Secret, email::Transport};
use tidings::messages::deliver::Deliverer;
use tokio::net::{TcpListener, TcpStream};

use super::{AT_SECONDS, INGEST, alert, alerts, audit_event, audit_event_with, send, server, server_with};
use crate::channels::smtp_sink::Sink;
use crate::support::{Client, TestServer};

fn smtp(config: &mut Config, port: u16) {
    config.email.transport = Transport::Smtp;
    config.email.from = "Tidings <tidings@contoso.example>".to_owned();
    config.email.smtp_url = Some(Secret::new(format!("smtp://127.0.0.1:{port}?tls=none")));
}

async fn deliver(server: &TestServer) {
    Deliverer::new(&server.services, "email").drain().await.unwrap();
}

fn flags(alert: &Value) -> Value {
    json!([alert["AlertSent"], alert["AlertFailed"], alert["RetryCount"], alert["AlertSentTimestamp"]])
}

async fn resend(client: &Client, alert: &Value) -> crate::support::Answer {
    let text = |name: &str| alert[name].as_str().unwrap().to_owned();
    client.post(&format!("/alerts/{}/{}/resend", text("PartitionKey"), text("SortKey")), &json!({})).await
}

/// A mail server that can go away: while it is, every connection to it is cut.
struct MailServer {
    sink: Sink,
    port: u16,
    up: Arc<AtomicBool>,
}

impl MailServer {
    async fn down() -> Self {
        let sink = Sink::start(&[]);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, behind, up) = (listener.local_addr().unwrap().port(), sink.port, Arc::new(AtomicBool::new(false)));
        let open = Arc::clone(&up);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                if open.load(Ordering::SeqCst) {
                    tokio::spawn(async move {
                        let mut server = TcpStream::connect(("127.0.0.1", behind)).await.unwrap();
                        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                    });
                }
            }
        });
        Self { sink, port, up }
    }

    fn back(&self) {
        self.up.store(true, Ordering::SeqCst);
    }
}

// S000-42, S000-47, S000-49, S000-50: a person's change is one mail, with everything in it.
#[tokio::test]
async fn a_persons_change_is_mailed_once() {
    let sink = Sink::start(&[]);
    let server = server_with(|config| smtp(config, sink.port)).await;
    let client = server.client();
    let nasty = audit_event_with("e-1", json!({ "details": "<script>alert(1)</script>\r\nBcc: x@y.z" }));
    send(&client, &nasty).await;
    send(&client, &nasty).await;
    deliver(&server).await;
    let mails = sink.mails();
    assert_eq!(mails.len(), 1);
    let mail = mails[0]["data"].as_str().unwrap();
    let id = client.get("/api/messages").await.json()["items"][0]["message_id"].as_str().unwrap().to_owned();
    assert!(mail.contains(&format!("Message-ID: <{id}.tidings@contoso.example>")), "{mail}");
    assert!(mail.contains("Subject: Process change: Process.Field.Add by Ana Ruiz in Contoso Agile"), "{mail}");
    assert!(mail.contains("text/plain") && mail.contains("text/html"), "{mail}");
    // Long lines are wrapped with an equals sign at their end.
    let whole = mail.replace("=\r\n", "").replace("=\n", "");
    for part in [
        "ActorIP: 203.0.113.7",
        "Category: Create",
        "FieldReferenceName: Custom.RiskScore",
        "corr-e-1",
        "/ui/trace/corr-e-1",
        "&lt;script&gt;",
        "EventTimestamp: 1772362800 (2026-03-01T11:00:00Z)",
    ] {
        assert!(whole.contains(part), "{part} in {whole}");
    }
    let head = mail.replace('\r', "").split("\n\n").next().unwrap().to_lowercase();
    assert!(head.contains("\nsubject:") && !head.contains("\nbcc:"), "no header of the event's making: {head}");
    assert_eq!(flags(&alert(&client).await), json!([true, false, 0, 1_772_366_400]));
}

// S000-51: and an authorised account's is none.
#[tokio::test]
async fn an_authorised_accounts_change_is_not_mailed() {
    let sink = Sink::start(&[]);
    let server = server_with(|config| smtp(config, sink.port)).await;
    let client = server.client();
    client.put("/authorized-accounts", &json!(["svc-cicd@organization.com"])).await.expect(200);
    send(&client, &audit_event_with("e-1", json!({ "actorUPN": "svc-cicd@organization.com" }))).await;
    deliver(&server).await;
    assert!(sink.mails().is_empty());
    let suppressed = alerts(&client, "?suppressed=true").await;
    assert_eq!(flags(&suppressed[0]), json!([false, false, 0, null]));
    resend(&client, &suppressed[0]).await.problem(409);
}

// S000-43 to S000-45: away for half a minute.
#[tokio::test]
async fn a_mail_server_that_is_away_for_31_seconds_is_tried_until_it_is_back() {
    let mail = MailServer::down().await;
    let server = server_with(|config| smtp(config, mail.port)).await;
    let client = server.client();
    send(&client, &audit_event("e-1")).await;
    let mut deliverer = Deliverer::new(&server.services, "email");
    let mut waited = 0.0;
    let mut tries = 0;
    while waited < 31.0 {
        let next = deliverer.drain().await.unwrap().unwrap();
        tries += 1;
        assert_eq!(flags(&alert(&client).await), json!([false, true, tries, null]));
        let wait = next.duration_since(server.services.clock.now()).as_secs_f64();
        server.clock.advance(std::time::Duration::from_secs_f64(wait));
        waited += wait;
    }
    assert_eq!(tries, 5, "after 1, 2, 4, 8 and 16 seconds");
    mail.back();
    deliverer.drain().await.unwrap();
    assert_eq!(mail.sink.mails().len(), 1);
    let alert = alert(&client).await;
    assert_eq!(flags(&alert), json!([true, false, 5, alert["AlertSentTimestamp"]]));
    assert_eq!(alert["AlertSentTimestamp"], 1_772_366_400 + 31);
}

// S000-45, S000-78: away for good, and back after somebody has looked at it.
#[tokio::test]
async fn what_failed_is_a_dead_letter_and_can_be_sent_again() {
    let mail = MailServer::down().await;
    let server = server_with(|config| smtp(config, mail.port)).await;
    let client = server.client();
    send(&client, &audit_event("e-1")).await;
    let mut deliverer = Deliverer::new(&server.services, "email");
    for n in 0..6 {
        let pending = alert(&client).await;
        if n > 0 {
            resend(&client, &pending).await.problem(409);
        }
        deliverer.drain().await.unwrap();
        server.clock.advance(std::time::Duration::from_secs(16));
    }
    let failed = alert(&client).await;
    assert_eq!(flags(&failed), json!([false, true, 5, null]));
    let letters = client.get("/dead-letters").await.json();
    assert_eq!(letters["items"].as_array().unwrap().len(), 1, "{letters}");
    // It is back; somebody sends it again, and twice at once is once.
    mail.back();
    let (one, two) = tokio::join!(resend(&client, &failed), resend(&client, &failed));
    let mut statuses = [one.status, two.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [202, 409]);
    deliverer.drain().await.unwrap();
    let mails = mail.sink.mails();
    assert_eq!(mails.len(), 1);
    let sent = alert(&client).await;
    assert_eq!(
        (&sent["AlertSent"], &sent["AlertFailed"], &sent["RetryCount"]),
        (&json!(true), &json!(false), &json!(5))
    );
    // The mail is about the same event, and says so.
    let messages = client.get("/api/messages").await.json();
    let first = messages["items"].as_array().unwrap().last().unwrap()["message_id"].as_str().unwrap().to_owned();
    assert!(mails[0]["data"].as_str().unwrap().contains(&format!("Message-ID: <{first}.tidings@")));
    resend(&client, &sent).await.problem(409);
    let log = client.get("/audit-log?action=alert.resend").await.json();
    assert_eq!(log["items"].as_array().unwrap().len(), 1);
}

// S000-45 and the contract: an event's outcome has every message that came of it, also those that were made by hand.
#[tokio::test]
async fn what_is_sent_again_is_in_the_events_outcome() {
    let sink = Sink::start(&[]);
    let server = server_with(|config| {
        smtp(config, sink.port);
        config.process_alerts.recipients = vec!["bad@a.example".to_owned()];
    })
    .await;
    let client = server.client();
    // Its id is the envelope's.
    let mut event = audit_event("e-1");
    event.as_object_mut().unwrap().remove("id");
    let event = json!({ "specversion": "1.0", "id": "7", "type": "t", "source": "s", "data": event });
    assert_eq!(send(&client, &event).await["eventId"], "7@s");
    let outcome = async || {
        let outcome = client.get("/events/7@s").await.expect(200).json()["outcome"].clone();
        assert_eq!(outcome["totals"]["messages"], outcome["messages"].as_array().unwrap().len());
        outcome["messages"].as_array().unwrap().clone()
    };
    assert_eq!(outcome().await.len(), 1);
    deliver(&server).await;
    let failed = outcome().await[0]["message_id"].as_str().unwrap().to_owned();
    // By the message, and by the message that came of that.
    let mut last = failed.clone();
    for _ in 0..2 {
        let again = client.post(&format!("/api/messages/{last}/retry"), &json!({})).await.expect(201).json();
        deliver(&server).await;
        last = again["message_id"].as_str().unwrap().to_owned();
    }
    // And by the alert.
    let resent = resend(&client, &alert(&client).await).await.expect(202).json();
    assert_eq!(resent["event_id"], "7@s", "{resent}");
    deliver(&server).await;
    let messages = outcome().await;
    let mut ids: Vec<_> = messages.iter().map(|message| message["message_id"].as_str().unwrap()).collect();
    assert!(messages.iter().all(|message| message["status"] == "failed" && message["channel"] == "email"));
    assert!(messages.iter().any(|message| message["message_id"] == last && message["retry_of"] != failed));
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 4, "{messages:?}");
}

// A refusal is final: no retry, and the alert says so at once.
#[tokio::test]
async fn a_refused_mail_fails_the_alert() {
    let sink = Sink::start(&[]);
    let server = server_with(|config| {
        smtp(config, sink.port);
        config.process_alerts.recipients = vec!["bad@a.example".to_owned()];
    })
    .await;
    let client = server.client();
    send(&client, &audit_event("e-1")).await;
    deliver(&server).await;
    assert_eq!(flags(&alert(&client).await), json!([false, true, 0, null]));
}

// None configured: recorded, nobody is mailed; and later somebody can be.
#[tokio::test]
async fn without_recipients_nobody_is_mailed() {
    let server = server_with(|config| config.process_alerts.recipients.clear()).await;
    let client = server.client();
    send(&client, &audit_event("e-1")).await;
    assert!(client.get("/api/messages").await.json()["items"].as_array().unwrap().is_empty());
    let alert_before = alert(&client).await;
    resend(&client, &alert_before).await.problem(409);
    let mut settings = server.services.config.process_alerts.clone();
    settings.recipients = vec!["ops@contoso.example".to_owned()];
    server.services.alerts.take_over(&settings);
    resend(&client, &alert_before).await.expect(202);
    deliver(&server).await;
    assert_eq!(alert(&client).await["AlertSent"], true);
}

#[tokio::test]
async fn resending_needs_an_alert_and_the_right() {
    let server = server().await;
    let client = server.client();
    send(&client, &audit_event("e-1")).await;
    let path = format!("/alerts/2026-03/corr-e-1-{AT_SECONDS}/resend");
    client.post("/alerts/2026-03/none/resend", &json!({})).await.problem(404);
    client.post("/alerts/x/corr/resend", &json!({})).await.problem(404);
    server.client_for(&["read"]).await.post(&path, &json!({})).await.problem(403);
    client.post(&path, &json!({})).await.problem(409);
}

// An alert that has expired does not hold up its message, and is not brought back by it.
#[tokio::test]
async fn a_message_may_outlive_its_alert() {
    let server = server().await;
    let client = server.client();
    let old = audit_event_with("e-1", json!({ "timestamp": "2025-12-01T12:00:05Z" }));
    assert_eq!(client.post(INGEST, &old).await.expect(202).json()["accepted"], 1);
    server.clock.advance(std::time::Duration::from_secs(60));
    deliver(&server).await;
    assert_eq!(client.get("/api/messages").await.json()["items"][0]["status"], "completed");
    assert!(alerts(&client, "?startDate=2025-12-01&endDate=2025-12-01").await.is_empty());
}

crate::support::on_dynamodb! {
    a_persons_change_is_mailed_once,
    a_mail_server_that_is_away_for_31_seconds_is_tried_until_it_is_back,
}
