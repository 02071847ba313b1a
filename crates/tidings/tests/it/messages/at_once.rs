//! The first attempt of a new message: made at once, and written down with its outcome.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use tidings::messages::deliver::Deliverer;
use tidings_core::message::Status;
use tidings_store::Key;

use super::{becomes, hello, id_of, make, published, server_with, status_of, store};
use crate::channels::http_server::{Reply, Server};
use crate::support::TestServer;

/// A deliverer that has seen everything there is: what comes now comes by hand.
async fn waiting(server: &TestServer) -> Deliverer {
    let mut deliverer = Deliverer::new(&server.services, "ntfy");
    deliverer.drain().await.unwrap();
    deliverer
}

// S002-44 to S002-48: every state has its time, and every state is counted, although all of it is one change.
#[tokio::test]
async fn taking_up_and_recording_are_one_change() {
    let sink = Server::start(|_| published("n")).await;
    let server = server_with(&sink).await;
    let mut deliverer = waiting(&server).await;
    let made = store(&server.services, "ntfy", json!({ "topic": "ops" })).await;
    deliverer.drain().await.unwrap();
    let done = server.services.messages.get(&made.message_id).await.unwrap().unwrap().message;
    assert_eq!((done.delivery.status, done.delivery.attempts.len()), (Status::Completed, 1));
    assert!(done.queued_at.is_some() && done.processing_started_at.is_some() && done.lease.is_none());
    assert_eq!(done.due_at(), None);
    let table = &server.services.messages.table;
    let item = server.services.store.get(table, &Key::new(made.message_id.as_str())).await.unwrap().unwrap();
    assert!(item.get("due").is_none() && item.get("lease_owner").is_none(), "it waits for nothing");
    let metrics = server.client().get("/api/metrics").await.expect(200).json();
    let count = |state: &str| metrics["counts"][state].as_i64().unwrap();
    assert_eq!(["created", "processing", "completed"].map(count), [0, 0, 1]);
    let listed = |status: &str| {
        let path = format!("/api/messages?status={status}");
        let client = server.client();
        async move { client.get(&path).await.expect(200).json()["items"].as_array().unwrap().len() }
    };
    assert_eq!((listed("created").await, listed("processing").await, listed("completed").await), (0, 0, 1));
}

// S002-50: what fails at once is tried again like any other.
#[tokio::test]
async fn a_failure_that_comes_at_once_is_a_retry() {
    let sink = Server::start(|_| Reply::status(503)).await;
    let server = server_with(&sink).await;
    let mut deliverer = waiting(&server).await;
    let made = store(&server.services, "ntfy", json!({ "topic": "ops" })).await;
    let next = deliverer.drain().await.unwrap();
    let waits = server.services.messages.get(&made.message_id).await.unwrap().unwrap().message;
    assert_eq!((waits.delivery.status, waits.delivery.retry_count), (Status::Processing, 1));
    assert_eq!((waits.due_at(), waits.due_at().is_some()), (next, true));
}

// S002-55: one that is on its way cannot be called back, whether or not the store knows yet.
#[tokio::test]
async fn one_that_is_on_its_way_cannot_be_cancelled() {
    let sink = Server::start(|_| Reply::Hang).await;
    let server = server_with(&sink).await;
    let mut deliverer = waiting(&server).await;
    let made = make(&server.client(), &hello()).await;
    deliverer.activate().await.unwrap();
    while sink.asked().is_empty() {
        tokio::task::yield_now().await;
    }
    let refused =
        server.client().post(&format!("/api/messages/{}/cancel", id_of(&made)), &json!({})).await.problem(409);
    assert!(refused["detail"].as_str().unwrap().contains("processing"), "{refused}");
    assert_eq!(deliverer.under_way(), 1);
}

// The other way round: what was called off while it waited in memory is not sent.
#[tokio::test]
async fn what_was_cancelled_is_not_sent() {
    let sink = Server::start(|_| published("n")).await;
    let server = server_with(&sink).await;
    let mut deliverer = waiting(&server).await;
    let made = make(&server.client(), &hello()).await;
    server.client().post(&format!("/api/messages/{}/cancel", id_of(&made)), &json!({})).await.expect(200);
    deliverer.drain().await.unwrap();
    assert!(sink.asked().is_empty());
    becomes(&server.services, &id_of(&made), "failed").await;
}

// S002-51: of an attempt that was not written down nothing is left, and it is made again.
#[tokio::test]
async fn one_that_was_cut_off_is_sent_again() {
    let thinks = Arc::new(AtomicBool::new(true));
    let flag = Arc::clone(&thinks);
    let sink = Server::start(move |_| if flag.load(Ordering::SeqCst) { Reply::Hang } else { published("n") }).await;
    let server = server_with(&sink).await;
    let mut deliverer = waiting(&server).await;
    let made = store(&server.services, "ntfy", json!({ "topic": "ops" })).await;
    deliverer.activate().await.unwrap();
    drop(deliverer);
    thinks.store(false, Ordering::SeqCst);
    Deliverer::new(&server.services, "ntfy").drain().await.unwrap();
    assert_eq!(status_of(&server.services, &made).await, "completed");
}
