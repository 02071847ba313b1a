//! A fan-out that its node does not live to finish.

use std::sync::Arc;

use serde_json::json;
use tidings_store::Store;
use tidings_store::faults::{Fault, Faulty};

use super::together::{store, two_over};
use crate::support::server;

const USERS: usize = 300;

#[tokio::test]
async fn a_dead_nodes_fan_out_is_finished_by_another() {
    let clock = server::clock();
    let shared = store(&clock).await;
    let first = Arc::new(Faulty::new(Arc::clone(&shared)));
    let two = two_over(clock, (Arc::clone(&first) as Arc<dyn Store>, shared), |_| {}).await;
    let users: Vec<String> = (0..USERS).map(|n| format!("u{n:03}")).collect();
    let rule = json!({ "pattern": { "eventType": ["all.hands"] }, "title": "All hands",
        "targets": [{ "channel": "inbox", "users": users }] });
    two.a.client().put("/rules/all", &rule).await.expect(201);
    two.a.client().send(&json!({ "eventId": "e1", "eventType": "all.hands" })).await;
    // From here on nothing that the first node does reaches the store.
    first.fail_nth(1, Fault::ReadOnly);
    two.b.services.rules.sync().await.unwrap();
    two.b.services.fanout().activate().await.unwrap();
    let b = two.b.client();
    let outcome = b.get("/events/e1").await.expect(200).json()["outcome"].clone();
    assert_eq!((&outcome["fanout"]["state"], &outcome["totals"]["notifications"]), (&json!("done"), &json!(USERS)));
    for user in [0, 1, 48, 49, 50, 150, USERS - 1] {
        let inbox = b.get(&format!("/notifications?user=u{user:03}")).await.expect(200).json();
        assert_eq!((&inbox["unread"], inbox["items"].as_array().unwrap().len()), (&json!(1), 1), "u{user:03}");
    }
    // Whoever comes back too late finds nothing to do.
    first.heal();
    two.a.services.fanout().activate().await.unwrap();
    let again = b.get("/notifications?user=u299").await.expect(200).json();
    assert_eq!(again["unread"], 1);
}

crate::support::on_dynamodb! {
    a_dead_nodes_fan_out_is_finished_by_another,
}
