//! Making, changing, purging and deleting entities.

use serde_json::json;
use tidings::config::bus::Queue;

use super::{counts, receive, receive_one, send, settle, with_queue};
use crate::support::TestServer;

// S003-110: the seed's entities exist from the start, with its settings.
#[tokio::test]
async fn the_seeds_entities_are_declared_from_the_start() {
    let server = TestServer::start().await;
    let client = server.client();
    let list = client.get("/bus").await.expect(200).json();
    let names: Vec<_> = list["items"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["domain-events-topic", "ocr-processing-queue", "system-events-topic", "transfer-expiration-queue"]
    );
    let ocr = client.get("/bus/ocr-processing-queue").await.json();
    assert_eq!((ocr["lockSeconds"].as_u64(), ocr["maxDeliveryCount"].as_u64()), (Some(300), Some(6)));
    assert_eq!(ocr["retry"]["strategy"], "exponential");
    let transfer = client.get("/bus/transfer-expiration-queue").await.json();
    assert_eq!(
        (transfer["retry"]["strategy"].as_str(), transfer["retry"]["baseSeconds"].as_f64()),
        (Some("fixed"), Some(60.0))
    );
    for (path, key) in [
        ("domain-events-topic/subscriptions/notifications-sub", "servicerequest.status.changed"),
        ("system-events-topic/subscriptions/auditing-sub", "audit.action.occurred"),
    ] {
        let rules = client.get(&format!("/bus/{path}")).await.json()["rules"].clone();
        assert!(rules[0]["sql"].as_str().unwrap().contains(&format!("'{key}'")), "{rules}");
    }
    client.delete("/bus/ocr-processing-queue").await.problem(409);
    client.put("/bus/ocr-processing-queue", &json!({ "lockSeconds": 100 })).await.expect(200);
    let token = server.admin_token().to_owned();
    let server = server.restart().await;
    let ocr = server.client_with(&token).get("/bus/ocr-processing-queue").await.json();
    assert_eq!(ocr["lockSeconds"], 100, "what was changed stays changed");
}

// What an earlier release declared is renewed, with what was changed beside it; a subscription's own rules stay.
#[tokio::test]
async fn the_rules_of_an_earlier_release_are_renewed() {
    let server = TestServer::start().await;
    let client = server.client();
    let of = |key: &str| {
        json!({ "lockSeconds": 77, "rules": [{ "name": "routing-key", "key": key },
            { "name": "event-type", "correlation": { "properties": { "eventType": key } } }] })
    };
    let (notices, audit) = (
        "/bus/domain-events-topic/subscriptions/notifications-sub",
        "/bus/system-events-topic/subscriptions/auditing-sub",
    );
    let rules = client.get(notices).await.json()["rules"].clone();
    client.put(notices, &of("servicerequest.status.changed")).await.expect(200);
    client.put(audit, &of("audit.#")).await.expect(200);
    let token = server.admin_token().to_owned();
    let server = server.restart().await;
    let client = server.client_with(&token);
    let renewed = client.get(notices).await.json();
    assert_eq!((&renewed["rules"], &renewed["lockSeconds"]), (&rules, &json!(77)));
    assert_eq!(client.get(audit).await.json()["rules"][0]["key"], "audit.#");
}

#[tokio::test]
async fn every_wrong_field_is_named_whatever_the_kind() {
    let server = TestServer::start().await;
    let wrong = json!({ "kind": "x", "lockSeconds": 4, "maxDeliveryCount": 0 });
    let fields = server.client().put("/bus/z", &wrong).await.bad_fields();
    assert_eq!(fields, ["kind", "maxDeliveryCount", "lockSeconds"]);
    let fields = server.client().put("/bus/z~z", &json!({ "kind": 5, "lockSeconds": 4 })).await.bad_fields();
    assert_eq!(fields, ["name", "kind", "lockSeconds"]);
    server.client().get("/bus/z").await.problem(404);
}

#[tokio::test]
async fn an_entity_is_made_changed_and_deleted_and_that_is_audited() {
    let server = TestServer::start().await;
    let client = server.client();
    let made = client.put("/bus/q", &json!({ "lockSeconds": 10, "retry": {} })).await.expect(201).json();
    assert_eq!(made["kind"], "queue");
    assert_eq!(made["retry"]["baseSeconds"], 1.0);
    send(&client, "q", "a").await;
    let changed = client.put("/bus/q", &json!({ "maxDeliveryCount": 9 })).await.expect(200).json();
    assert_eq!((changed["maxDeliveryCount"].as_u64(), changed["lockSeconds"].as_u64()), (Some(9), Some(60)));
    assert_eq!(changed["counts"]["active"], 1, "its messages stay");
    client.put("/bus/q", &json!({ "kind": "topic" })).await.problem(409);
    assert_eq!(client.put("/bus/q", &json!({ "ordered": true })).await.bad_fields(), ["ordered"]);
    client.delete("/bus/q").await.expect(204);
    client.post_as("/bus/q/messages", "text/plain", "b").await.problem(410);
    // A new one of the same name starts empty.
    client.put("/bus/q", &json!({})).await.expect(201);
    assert_eq!(counts(&client, "q").await["active"], 0);
    assert!(receive(&client, "q", 1).await.is_empty());
    let log = client.get("/audit-log?entity=entity").await.expect(200).json();
    let actions: Vec<_> =
        log["items"].as_array().unwrap().iter().map(|entry| entry["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["bus.put", "bus.delete", "bus.put", "bus.put"]);
}

#[tokio::test]
async fn purging_empties_a_queue_and_loses_its_locks() {
    let server = with_queue("q", &json!({})).await;
    let client = server.client();
    for body in ["a", "b", "c", "dead"] {
        send(&client, "q", body).await;
    }
    let got = receive(&client, "q", 4).await;
    settle(&client, "q", &got[3], json!({ "action": "deadletter" })).await;
    settle(&client, "q", &got[2], json!({ "action": "defer" })).await;
    assert_eq!(client.post("/bus/q/purge", &json!({})).await.expect(200).json()["purged"], 3);
    assert_eq!(settle(&client, "q", &got[0], json!({ "action": "complete" })).await["status"], "lost");
    let after = counts(&client, "q").await;
    for name in ["active", "locked", "deferred", "scheduled"] {
        assert_eq!(after[name], 0, "{name}");
    }
    assert_eq!(after["deadLettered"], 1, "dead letters are purged on their own");
    assert_eq!(client.post("/bus/q/$deadletterqueue/purge", &json!({})).await.expect(200).json()["purged"], 1);
    send(&client, "q", "new").await;
    assert_eq!(receive_one(&client, "q").await["body"], "new");
    assert_eq!(counts(&client, "q").await["deadLettered"], 0);
}

#[tokio::test]
async fn peeking_takes_nothing_and_pages_by_number() {
    let server = with_queue("q", &json!({})).await;
    let client = server.client();
    for body in ["a", "b", "c"] {
        send(&client, "q", body).await;
    }
    receive_one(&client, "q").await;
    let page = client.get("/bus/q/peek?limit=2").await.expect(200).json();
    assert_eq!((page["items"][0]["body"].as_str(), page["items"][1]["body"].as_str()), (Some("a"), Some("b")));
    assert_eq!(page["items"][0]["deliveryCount"], 1);
    let cursor = page["cursor"].as_str().unwrap();
    let last = page["items"][1]["sequenceNumber"].as_u64().unwrap();
    for next in [format!("cursor={cursor}"), format!("from={}", last + 1)] {
        let rest = client.get(&format!("/bus/q/peek?{next}")).await.expect(200).json();
        assert_eq!(rest["items"][0]["body"], "c");
        assert_eq!(rest["cursor"], json!(null));
    }
    // SX-10: a cursor is good for its question, its queue and its token, and for nothing else.
    client.put("/bus/other", &json!({ "kind": "queue" })).await.expect(201);
    for elsewhere in ["/bus/other/peek?", "/bus/q/peek?state=deferred&", "/bus/q/peek?from=1&"] {
        assert_eq!(client.get(&format!("{elsewhere}cursor={cursor}")).await.bad_fields(), ["cursor"], "{elsewhere}");
    }
    let reader = server.client_for(&["read"]).await;
    for bad in [cursor, "1", "3"] {
        assert_eq!(reader.get(&format!("/bus/q/peek?cursor={bad}")).await.bad_fields(), ["cursor"], "{bad}");
    }
    assert_eq!(counts(&client, "q").await["active"], 2);
}

// The entities of the configuration file are changed there.
#[tokio::test]
async fn the_files_entities_are_made_and_not_changed_through_the_api() {
    let text = r#"
[[queues]]
name = "jobs"
lockSeconds = 20
[[topics]]
name = "orders"
[[topics.subscriptions]]
name = "big"
rules = [{ name = "big", sql = "amount > 1000" }]
"#;
    let file = tidings::config::Config::parse(text, std::iter::empty()).unwrap();
    let server = TestServer::start_with(|config| {
        config.queues = file.queues;
        config.topics = file.topics;
    })
    .await;
    let client = server.client();
    assert_eq!(client.get("/bus/jobs").await.expect(200).json()["origin"], "file");
    assert_eq!(
        client.get("/bus/orders/subscriptions/big").await.expect(200).json()["rules"][0]["sql"],
        "amount > 1000"
    );
    client.put("/bus/jobs", &json!({})).await.problem(409);
    client.delete("/bus/orders").await.problem(409);
}

// S003-110: however many the file declares, the seed's are there; what is left out are the last of the others.
#[tokio::test]
async fn the_seeds_entities_are_there_beside_a_thousand_others() {
    let server = TestServer::start_with(|config| {
        let queue = |n: usize| Queue { name: format!("q{n:04}"), ..Queue::default() };
        config.queues = (0..1000).map(queue).collect();
    })
    .await;
    let client = server.client();
    for name in ["ocr-processing-queue", "transfer-expiration-queue", "domain-events-topic", "system-events-topic"] {
        client.get(&format!("/bus/{name}")).await.expect(200);
    }
    client.get("/bus/q0995").await.expect(200);
    client.get("/bus/q0996").await.problem(404);
    let problem = client.put("/bus/one-more", &json!({})).await.problem(409);
    assert_eq!(problem["detail"], "there are 1000 queues and topics already, and no more are possible");
}
