//! One event, one recipient, one channel: one message, however many rules lead there (SX-09).

use std::time::Duration;

use serde_json::{Value, json};
use tidings::config::{Config, Secret, email::Transport};
use tidings::messages::deliver::Deliverer;

use super::Rig;
use crate::channels::smtp_sink::Sink;
use crate::support::{Client, TestServer};
use crate::ui::Visitor;

fn smtp(config: &mut Config, port: u16) {
    config.email.transport = Transport::Smtp;
    config.email.smtp_url = Some(Secret::new(format!("smtp://127.0.0.1:{port}?tls=none")));
}

async fn rule(client: &Client, name: &str, targets: Value) {
    let pattern = json!({ "eventType": [{ "exists": true }] });
    let rule = json!({ "pattern": pattern, "targets": targets, "title": name, "text": "x" });
    client.put(&format!("/rules/{name}"), &rule).await.expect(201);
}

fn left(rule: &str, channel: &str, recipient: &str, by: &str) -> Value {
    json!({ "rule": rule, "channel": channel, "recipient": recipient, "by": by })
}

/// How often each address was asked for.
fn mailed(sink: &Sink) -> Vec<String> {
    let mut to: Vec<_> = sink.said().iter().filter_map(|line| line["rcpt"].as_str().map(ToOwned::to_owned)).collect();
    to.sort();
    to
}

#[tokio::test]
async fn nobody_gets_two_mails_about_one_event() {
    let sink = Sink::start(&[]);
    let server = TestServer::start_with(|config| smtp(config, sink.port)).await;
    let client = server.client();
    rule(&client, "b", json!([{ "channel": "email", "to": ["Ana <ANA@Example.com>", "ben@example.com"] }])).await;
    rule(&client, "a", json!([{ "channel": "email", "to": ["ana@example.com", "{{ data.who }}"] }])).await;
    rule(&client, "c", json!([{ "channel": "email", "to": ["ben@example.com", "cy@example.com"] }])).await;
    let event = json!({ "eventId": "e1", "eventType": "t", "correlationId": "k", "data": { "who": "cy@example.COM" } });
    client.send(&event).await;
    Deliverer::new(&server.services, "email").drain().await.unwrap();
    let mails = sink.mails();
    assert_eq!(mails.len(), 3, "{mails:?}");

    let outcome = client.get("/events/e1").await.json()["outcome"].clone();
    let statuses: Vec<_> = outcome["rules"].as_array().unwrap().iter().map(|r| (&r["status"], &r["served"])).collect();
    let nothing = Value::Null;
    assert_eq!(
        statuses,
        [(&json!("matched"), &nothing), (&json!("matched"), &json!(1)), (&json!("served"), &json!(2))],
        "{outcome}"
    );
    let expected = json!([
        left("b", "email", "Ana <ANA@Example.com>", "a"),
        left("c", "email", "ben@example.com", "b"),
        left("c", "email", "cy@example.com", "a"),
    ]);
    assert_eq!(outcome["left_out"], expected);
    assert_eq!(outcome["totals"]["messages"], 2);
    let trace = client.get("/trace/k").await.json();
    let step = trace["items"].as_array().unwrap().iter().find(|step| step["kind"] == "rule").unwrap();
    assert_eq!(step["details"]["left_out"], expected);
    let metrics = client.get("/metrics").await.text();
    assert!(metrics.contains("tidings_rule_matches_total{result=\"served\"} 1"), "{metrics}");
    let page = Visitor::admin(&server).await.get("/ui/events/e1").await.text();
    assert!(page.contains("Told by another rule") && page.contains("2 served already"), "{page}");

    // Another event is another matter.
    client.send(&json!({ "eventId": "e2", "eventType": "t", "data": { "who": "dan@example.com" } })).await;
    Deliverer::new(&server.services, "email").drain().await.unwrap();
    assert_eq!(mailed(&sink), ["ana@example.com", "ben@example.com", "cy@example.com", "dan@example.com"]);
}

#[tokio::test]
async fn the_same_holds_for_every_channel_and_for_nothing_else() {
    let rig = Rig::start().await;
    rig.server.client().put("/bus/q", &json!({})).await.expect(201);
    let targets = |mark: &str, url: &str| {
        json!([
            { "channel": "ntfy" },
            { "channel": "ntfy", "topic": mark },
            { "channel": "webhook", "url": url },
            { "channel": "webhook", "url": format!("https://h.example/{mark}") },
            { "channel": "queue", "entity": "q" },
            { "channel": "queue", "entity": "not-there" },
            { "channel": "ticket", "caller": "ana" },
            { "channel": "ticket", "caller": mark },
            { "channel": "email", "to": [format!("{mark}@example.com")] },
        ])
    };
    rig.rule("a", json!({ "targets": targets("a", "https://H.example:443/T0/token?x=1") })).await;
    rig.rule("b", json!({ "targets": targets("b", "https://h.example/T0/token?x=1#part") })).await;
    rig.send(json!({ "eventId": "e1", "eventType": "a" })).await;
    let outcome = rig.outcome("e1").await;
    let shown: Vec<_> = outcome["left_out"].as_array().unwrap().iter().map(|one| &one["recipient"]).collect();
    assert_eq!(shown[1..4], [&json!("https://h.example/***"), &json!("q"), &json!("not-there")], "{outcome}");
    assert_eq!((outcome["left_out"][0]["channel"].clone(), shown.len()), (json!("ntfy"), 5), "{outcome}");
    assert!(!outcome.to_string().contains("token"), "{outcome}");
    assert_eq!((rig.messages("a").await.len(), rig.messages("b").await.len()), (8, 4));
    assert_eq!((&outcome["rules"][1]["status"], &outcome["rules"][1]["served"]), (&json!("matched"), &json!(5)));
    let queue = rig.server.client().get("/bus/q").await.json();
    assert!(
        queue.to_string().contains("\"active\":1") || queue.to_string().contains("\"activeMessageCount\":1"),
        "{queue}"
    );
}

#[tokio::test]
async fn several_targets_of_one_rule_are_no_reason_to_say_it_twice() {
    let rig = Rig::start().await;
    let targets = json!([
        { "channel": "email", "to": ["ana@b.c"] },
        { "channel": "email", "to": ["{{ data.m }}", "Ben@b.c", "ben@b.c"] },
        { "channel": "webhook", "url": "https://h.example/x" },
        { "channel": "webhook", "url": "https://h.example/{{ data.p }}" },
    ]);
    rig.rule("r", json!({ "targets": targets })).await;
    rig.send(json!({ "eventId": "e1", "eventType": "a", "data": { "m": "ANA@b.c", "p": "x" } })).await;
    let outcome = rig.outcome("e1").await;
    assert_eq!(
        outcome["left_out"],
        json!([left("r", "email", "ANA@b.c", "r"), left("r", "webhook", "https://h.example/***", "r")])
    );
    let messages = rig.messages("r").await;
    assert_eq!(messages.len(), 3, "{messages:?}");
    let mut mails = messages.iter().filter(|message| message.channel == "email").map(|message| &message.target["to"]);
    assert!(mails.all(|to| to.as_array().unwrap().len() == 1), "one Ana and one Ben: {messages:?}");
}

// Only a message that is made serves anybody; and who was left out has not heard it from the other rule.
#[tokio::test]
async fn a_window_of_one_rule_keeps_nobody_from_another_ones_message() {
    for address in ["ana@b.c", "{{ data.m }}"] {
        let rig = Rig::start().await;
        let targets = json!([{ "channel": "email", "to": [address] }]);
        rig.rule("a", json!({ "targets": targets, "title": "T", "text": "x", "dedupe_seconds": 60 })).await;
        rig.rule("b", json!({ "targets": targets, "title": "B", "text": "y", "dedupe_seconds": 600 })).await;
        let about = |id: &str| json!({ "eventId": id, "eventType": "a", "data": { "m": "ana@b.c" } });
        let mut seen = Vec::new();
        for id in ["e1", "e2", "e3", "e4"] {
            if id == "e4" {
                rig.server.clock.advance(Duration::from_secs(60));
            }
            rig.send(about(id)).await;
            let outcome = rig.outcome(id).await;
            let rules = outcome["rules"].as_array().unwrap().clone();
            seen.push([rules[0]["status"].clone(), rules[1]["status"].clone()]);
        }
        let expected = json!([
            ["matched", "served"],
            ["deduplicated", "matched"],
            ["deduplicated", "deduplicated"],
            ["matched", "served"],
        ]);
        assert_eq!(json!(seen), expected, "{address}");
        assert_eq!((rig.messages("a").await.len(), rig.messages("b").await.len()), (2, 1));
    }
}

// The job of a fan-out knows whom the event's own transaction told, and whom its own rules told before a stop.
#[tokio::test]
async fn a_fan_out_serves_nobody_twice_either() {
    let rig = Rig::start().await;
    rig.server.client().put("/bus/q", &json!({})).await.expect(201);
    let users: Vec<String> = (0..120).map(|n| format!("u{n}")).collect();
    let wide = |to: &[&str], window: u64| {
        let targets = json!([
            { "channel": "inbox", "users": users },
            { "channel": "email", "to": to },
            { "channel": "queue", "entity": "q" },
            { "channel": "email", "to": ["{{ data.m }}"] },
        ]);
        json!({ "targets": targets, "title": "T", "text": "x", "dedupe_seconds": window })
    };
    rig.rule("a-wide", wide(&["x@b.c", "y@b.c"], 0)).await;
    rig.rule("b", json!({ "targets": [{ "channel": "email", "to": ["X@b.c"] }] })).await;
    rig.rule("c-wide", wide(&["x@b.c", "y@b.c", "z@b.c"], 60)).await;
    rig.rule("d-wide", wide(&["y@b.c"], 60)).await;
    for id in ["e1", "e2"] {
        rig.send(json!({ "eventId": id, "eventType": "a", "data": { "m": ["m@b.c", "z@b.c"] } })).await;
        rig.server.services.fanout().activate().await.unwrap();
        let outcome = rig.outcome(id).await;
        assert_eq!(outcome["fanout"]["state"], "done", "{outcome}");
        assert_eq!(outcome["fanout"]["served"], if id == "e1" { 11 } else { 5 }, "{outcome}");
        let of_wide: Vec<_> =
            outcome["left_out"].as_array().unwrap().iter().filter(|one| one["rule"] == "a-wide").collect();
        assert_eq!(of_wide, [&left("a-wide", "email", "x@b.c", "b")], "{outcome}");
        let mut to: Vec<String> = Vec::new();
        for rule in ["a-wide", "b", "c-wide", "d-wide"] {
            for message in rig.messages(rule).await.iter().filter(|message| message.event_id.as_deref() == Some(id)) {
                to.extend(
                    message.target["to"].as_array().unwrap().iter().map(|to| to.as_str().unwrap().to_lowercase()),
                );
            }
        }
        to.sort();
        assert_eq!(to, ["m@b.c", "x@b.c", "y@b.c", "z@b.c"], "{id}");
    }
    // What it remembered is gone with the job.
    for page in ["0", "1"] {
        let id = rig.outcome("e1").await["fanout"]["job"].as_str().unwrap().to_owned();
        let key = tidings_store::Key::new(format!("{id}/served/{page}"));
        assert!(rig.store.get(tidings::rules::job::table(), &key).await.unwrap().is_none());
    }
}

// S000-47: the mail about a change comes first, and is the only one.
#[tokio::test]
async fn a_rule_says_nothing_to_whom_the_mail_about_a_process_change_goes() {
    let sink = Sink::start(&[]);
    for digest in [0, 600] {
        let server = crate::alerts::server_with(|config| {
            smtp(config, sink.port);
            config.process_alerts.digest_seconds = digest;
        })
        .await;
        let client = server.client();
        let to = json!(["OPS@contoso.example", "ana@contoso.example"]);
        rule(&client, "r", json!([{ "channel": "email", "to": to }])).await;
        crate::alerts::send(&client, &crate::alerts::audit_event("e-1")).await;
        Deliverer::new(&server.services, "email").drain().await.unwrap();
        let list = client.get("/events").await.json();
        let outcome = &list["items"][0]["outcome"];
        match digest {
            0 => assert_eq!(outcome["left_out"], json!([left("r", "email", "OPS@contoso.example", "process-alerts")])),
            // What waits for a digest has told nobody yet.
            _ => assert_eq!(outcome.get("left_out"), None, "{outcome}"),
        }
        assert_eq!(sink.mails().len(), 2, "{digest}");
    }
}
