//! Replacing a rule while events flow: each event is matched by the old rule or the new one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use super::Rig;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_event_is_matched_by_the_old_or_the_new_rule_and_none_by_neither() {
    let rig = Arc::new(Rig::start().await);
    let rule = |user: usize| {
        // The old and the new rule are found under different keys of the index, so half a change would show.
        let pattern =
            if user == 0 { json!({ "eventType": ["a"] }) } else { json!({ "data": { "k": [{ "prefix": "v" }] } }) };
        json!({ "pattern": pattern, "targets": [{ "channel": "inbox", "users": [format!("u{user}")] }] })
    };
    rig.rule("r", rule(0)).await;
    let done = Arc::new(AtomicBool::new(false));
    let mut senders = Vec::new();
    for sender in 0..3 {
        let (rig, done) = (Arc::clone(&rig), Arc::clone(&done));
        senders.push(tokio::spawn(async move {
            let mut sent = 0;
            while !done.load(Ordering::Relaxed) {
                let events: Vec<_> = (0..20)
                    .map(|n| json!({ "eventId": format!("{sender}-{sent}-{n}"), "eventType": "a", "data": { "k": "v1" } }))
                    .collect();
                rig.server.client().post("/events", &json!(events)).await.expect(202);
                sent += 1;
            }
            sent * 20
        }));
    }
    for turn in 0..60 {
        rig.rule("r", rule(turn % 2)).await;
    }
    done.store(true, Ordering::Relaxed);
    let mut sent = 0;
    for sender in senders {
        sent += sender.await.unwrap();
    }
    let (old, new) = (rig.unread("u0").await, rig.unread("u1").await);
    assert_eq!(old + new, sent, "{old} + {new}");
    assert!(old > 0 && new > 0, "both rules had their turn: {old}, {new}");
}
