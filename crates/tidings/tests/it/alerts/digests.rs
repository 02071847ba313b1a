//! Many changes in one mail, and the mail in the operator's own words.

use std::time::Duration;

use serde_json::{Value, json};
use tidings::config::{Config, Secret, email::Transport};
use tidings::messages::deliver::Deliverer;

use super::{alerts, audit_event, audit_event_with, send, server_with};
use crate::channels::smtp_sink::Sink;
use crate::support::TestServer;

fn smtp(config: &mut Config, port: u16) {
    config.email.transport = Transport::Smtp;
    config.email.smtp_url = Some(Secret::new(format!("smtp://127.0.0.1:{port}?tls=none")));
}

async fn deliver(server: &TestServer) {
    Deliverer::new(&server.services, "email").drain().await.unwrap();
}

async fn digests(server: &TestServer) -> usize {
    server.services.alerts.make_digests(&server.services.messages).await.unwrap()
}

fn text(mail: &Value) -> String {
    mail["data"].as_str().unwrap().replace("=\r\n", "").replace("=\n", "")
}

async fn resend(server: &TestServer, alert: &Value) -> crate::support::Answer {
    let text = |name: &str| alert[name].as_str().unwrap().to_owned();
    let path = format!("/alerts/{}/{}/resend", text("PartitionKey"), text("SortKey"));
    server.client().post(&path, &json!({})).await
}

// S000-48
#[tokio::test]
async fn the_changes_of_a_while_are_one_mail_with_one_delivery_id() {
    let sink = Sink::start(&[]);
    let server = server_with(|config| {
        smtp(config, sink.port);
        config.process_alerts.digest_seconds = 600;
    })
    .await;
    let client = server.client();
    client.put("/authorized-accounts", &json!(["svc@contoso.example"])).await.expect(200);
    for n in 0..3 {
        send(&client, &audit_event_with(&format!("e-{n}"), json!({ "details": format!("<b>change {n}</b>") }))).await;
    }
    send(&client, &audit_event_with("e-s", json!({ "actorUPN": "svc@contoso.example" }))).await;
    assert_eq!(digests(&server).await, 0, "its time has not come");
    deliver(&server).await;
    assert!(sink.mails().is_empty());
    let waiting = alerts(&client, "").await;
    assert!(waiting.iter().all(|alert| alert["AlertSent"] == false && alert.get("DeliveryId").is_none()));
    resend(&server, &waiting[0]).await.problem(409);
    server.clock.advance(Duration::from_secs(600));
    assert_eq!((digests(&server).await, digests(&server).await), (1, 0));
    resend(&server, &waiting[0]).await.problem(409);
    deliver(&server).await;
    let mails = sink.mails();
    assert_eq!(mails.len(), 1);
    let mail = text(&mails[0]);
    assert!(mail.contains("Subject: Process changes: 3"), "{mail}");
    for n in 0..3 {
        assert!(mail.contains(&format!("change {n}")) && mail.contains(&format!("/ui/trace/corr-e-{n}")), "{mail}");
    }
    assert!(mail.contains("&lt;b&gt;change"), "{mail}");
    let sent = alerts(&client, "").await;
    let message = client.get("/api/messages").await.json()["items"][0]["message_id"].clone();
    assert_eq!(sent.len(), 3);
    for alert in &sent {
        assert_eq!(
            (&alert["AlertSent"], &alert["AlertFailed"], &alert["RetryCount"]),
            (&json!(true), &json!(false), &json!(0))
        );
        assert_eq!(alert["DeliveryId"], message, "{alert}");
        assert_eq!(alert["AlertSentTimestamp"], 1_772_366_400 + 600);
    }
    let suppressed = &alerts(&client, "?suppressed=true").await[0];
    assert_eq!((&suppressed["AlertSent"], suppressed.get("DeliveryId")), (&json!(false), None));
}

// S000-43 to S000-45, S000-48: all of them fail with their mail, and each can be sent again by itself.
#[tokio::test]
async fn a_digest_that_fails_fails_for_all_and_more_than_forty_are_several() {
    let sink = Sink::start(&[]);
    let server = server_with(|config| {
        // A server that is nowhere; and no waiting for it.
        smtp(config, 1);
        config.process_alerts.digest_seconds = 60;
    })
    .await;
    let client = server.client();
    let events: Vec<Value> = (0..41).map(|n| audit_event(&format!("e-{n:02}"))).collect();
    client.post(super::INGEST, &events.into()).await.expect(202);
    server.clock.advance(Duration::from_secs(60));
    assert_eq!(digests(&server).await, 2);
    // The first attempt and five retries.
    for _ in 0..6 {
        deliver(&server).await;
        server.clock.advance(Duration::from_secs(40));
    }
    let failed = alerts(&client, "").await;
    assert_eq!(failed.len(), 41);
    for alert in &failed {
        assert_eq!(
            (&alert["AlertSent"], &alert["AlertFailed"], &alert["RetryCount"]),
            (&json!(false), &json!(true), &json!(5))
        );
    }
    resend(&server, &failed[0]).await.expect(202);
    assert!(sink.mails().is_empty());
    assert_eq!(client.get("/dead-letters?channel=email").await.json()["items"].as_array().unwrap().len(), 2);
}

// S000-50: the template is the operator's.
#[tokio::test]
async fn the_mail_is_what_the_templates_say() {
    let sink = Sink::start(&[]);
    let server = server_with(|config| {
        smtp(config, sink.port);
        config.process_alerts.subject = Some("{{ ActorDisplayName }} did {{ Action | upper }}".to_owned());
        config.process_alerts.text = Some("{{ Details }} at {{ EventTimestamp }}: {{ link }}".to_owned());
        config.process_alerts.html = Some("<i>{{ Details }}</i>{{ data.secret }}".to_owned());
    })
    .await;
    let nasty = json!({ "details": "<script>{{ 7 * 7 }}</script>" });
    send(&server.client(), &audit_event_with("e-1", nasty)).await;
    deliver(&server).await;
    let mail = text(&sink.mails()[0]);
    assert!(mail.contains("Subject: Ana Ruiz did PROCESS.FIELD.ADD"), "{mail}");
    assert!(mail.contains("<script>{{ 7 * 7 }}</script> at 1772362800: http"), "{mail}");
    assert!(mail.contains("<i>&lt;script&gt;{{ 7 * 7 }}&lt;"), "{mail}");
}

// S000-48, S003-104: each event's outcome and timeline have the mail that tells of it, and the mail has them in order.
#[tokio::test]
async fn a_digest_is_in_the_outcome_and_trace_of_each_event() {
    let sink = Sink::start(&[]);
    let server = server_with(|config| {
        smtp(config, sink.port);
        config.process_alerts.digest_seconds = 600;
    })
    .await;
    let client = server.client();
    // Sent in another order than they happened.
    for n in [3, 0, 5, 1, 4, 2] {
        let at = format!("2026-03-01T11:00:{n:02}Z");
        let event = json!({ "details": format!("change {n}"), "timestamp": at });
        send(&client, &audit_event_with(&format!("e-{n}"), event)).await;
    }
    assert_eq!(client.get("/events/e-0").await.expect(200).json()["outcome"]["messages"], json!([]));
    server.clock.advance(Duration::from_secs(600));
    assert_eq!(digests(&server).await, 1);
    deliver(&server).await;
    let mail = text(&sink.mails()[0]);
    let places: Vec<_> = (0..6).map(|n| mail.find(&format!("change {n}")).unwrap()).collect();
    assert!(places.is_sorted(), "{places:?}");
    let message = client.get("/api/messages").await.json()["items"][0]["message_id"].clone();
    for n in 0..6 {
        let event = client.get(&format!("/events/e-{n}")).await.expect(200).json();
        let told = &event["outcome"]["messages"];
        assert_eq!((&told[0]["message_id"], &told[0]["status"]), (&message, &json!("completed")), "{event}");
        assert_eq!((told.as_array().unwrap().len(), &event["outcome"]["totals"]["messages"]), (1, &json!(1)));
        assert_eq!(told[0]["attempts"][0]["outcome"], "delivered");
        let trace = client.get(&format!("/trace/corr-e-{n}")).await.expect(200).json();
        let steps = trace["items"].as_array().unwrap();
        let mails: Vec<_> = steps.iter().filter(|step| step["kind"] == "message").collect();
        assert_eq!((mails.len(), &mails[0]["id"]), (1, &message), "{trace}");
        assert_eq!(steps.last().unwrap()["id"], message, "it came last");
    }
}

// S000-48: a change that is alone in its digest is told as it would be without one.
#[tokio::test]
async fn a_digest_of_one_has_the_alerts_own_subject() {
    let sink = Sink::start(&[]);
    let server = server_with(|config| {
        smtp(config, sink.port);
        config.process_alerts.digest_seconds = 60;
    })
    .await;
    send(&server.client(), &audit_event("e-1")).await;
    server.clock.advance(Duration::from_secs(60));
    assert_eq!(digests(&server).await, 1);
    deliver(&server).await;
    let mail = text(&sink.mails()[0]);
    assert!(mail.contains("Subject: Process change: "), "{mail}");
}
