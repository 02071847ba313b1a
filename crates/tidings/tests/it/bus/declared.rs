//! What exists from the start stays, and what the file says of others counts as far as it can.

use std::sync::Arc;

use serde_json::json;
use tidings::bus::Path;
use tidings::config::bus::{Queue, Topic};
use tidings_core::time::Clock;
use tidings_store::Store;
use tidings_store::memory::Memory;

use super::{receive_one, send};
use crate::support::TestServer;
use crate::support::server::clock;

const SEEDS: [&str; 6] = [
    "ocr-processing-queue",
    "transfer-expiration-queue",
    "domain-events-topic",
    "domain-events-topic/subscriptions/notifications-sub",
    "system-events-topic",
    "system-events-topic/subscriptions/auditing-sub",
];

// S003-110: handlers wait at them, and what is accepted for them must not be lost.
#[tokio::test]
async fn what_is_declared_from_the_start_cannot_be_deleted_whoever_changed_it() {
    let server = TestServer::start().await;
    let client = server.client();
    for path in SEEDS {
        client.delete(&format!("/bus/{path}")).await.problem(409);
        client.put(&format!("/bus/{path}"), &json!({})).await.expect(200);
        client.delete(&format!("/bus/{path}")).await.problem(409);
        client.get(&format!("/bus/{path}")).await.expect(200);
    }
    let other = "/bus/domain-events-topic/subscriptions/mine";
    client.put(other, &json!({})).await.expect(201);
    client.delete(other).await.expect(204);
}

#[tokio::test]
async fn what_the_file_said_of_a_declared_queue_can_be_changed_when_it_is_gone_but_not_deleted() {
    let clock = clock();
    let store: Arc<dyn Store> = Arc::new(Memory::new(Arc::clone(&clock) as Arc<dyn Clock>));
    let mut first = TestServer::over_with(Arc::clone(&store), Arc::clone(&clock), |config| {
        config.queues = vec![Queue { name: "ocr-processing-queue".to_owned(), ..Queue::default() }];
    })
    .await;
    first.client().put("/bus/ocr-processing-queue", &json!({})).await.problem(409);
    first.stop().await;
    let second = TestServer::over_again(store, &first, |_| {}).await;
    let client = second.client();
    client.put("/bus/ocr-processing-queue", &json!({ "lockSeconds": 100 })).await.expect(200);
    client.delete("/bus/ocr-processing-queue").await.problem(409);
}

// Nothing accepted vanishes: without its queue an event is not accepted.
#[tokio::test]
async fn an_event_whose_queue_is_missing_is_not_accepted() {
    let clock = clock();
    let store: Arc<dyn Store> = Arc::new(Memory::new(Arc::clone(&clock) as Arc<dyn Clock>));
    let server = TestServer::over(Arc::clone(&store), clock).await;
    let bus = &server.services.bus;
    let gone = bus.plan_delete(&Path::queue("ocr-processing-queue")).unwrap();
    store.transact(gone.writes.clone()).await.unwrap();
    bus.carried_out(gone).await.unwrap();
    let data = json!({ "invoiceId": "33567ee8-f182-4f8a-b03e-2f1515915471", "fileUrl": "https://a.example/x",
        "userProductId": "7c9e6679-7425-40de-944b-e07fc1f90ae7" });
    let event = json!({ "eventId": "lost", "eventType": "InvoiceUploadedForProcessing", "data": data });
    let client = server.client();
    client.post("/events", &event).await.problem(500);
    client.get("/events/lost").await.problem(404);
}

// As the API refuses it: messages wait elsewhere in an ordered queue.
#[tokio::test]
async fn the_file_changes_neither_the_order_nor_the_kind_of_what_is_there() {
    let clock = clock();
    let store: Arc<dyn Store> = Arc::new(Memory::new(Arc::clone(&clock) as Arc<dyn Clock>));
    let queue = |ordered, lock_seconds| Queue { name: "q".to_owned(), ordered, lock_seconds, ..Queue::default() };
    let mut first =
        TestServer::over_with(Arc::clone(&store), clock, |config| config.queues = vec![queue(false, 60)]).await;
    first.client().put("/bus/other", &json!({})).await.expect(201);
    send(&first.client(), "q", "a").await;
    first.stop().await;
    let second = TestServer::over_again(store, &first, |config| {
        config.queues = vec![queue(true, 70)];
        config.topics = vec![Topic { name: "other".to_owned(), ..Topic::default() }];
    })
    .await;
    let client = second.client();
    let found = client.get("/bus/q").await.expect(200).json();
    assert_eq!((&found["ordered"], &found["lockSeconds"]), (&json!(false), &json!(70)));
    assert_eq!(receive_one(&client, "q").await["body"], "a");
    let other = client.get("/bus/other").await.expect(200).json();
    assert_eq!((&other["kind"], &other["origin"]), (&json!("queue"), &json!("api")));
}
