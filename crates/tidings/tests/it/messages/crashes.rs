//! A process that dies in `processing`, and two that want the same message.

use std::sync::Arc;

use tidings::app::{App, Services, Surroundings};
use tidings::clock::SystemIds;
use tidings::config::{Config, Listen};
use tidings::messages::Message;
use tidings::messages::deliver::Deliverer;
use tidings_core::message::{AttemptOutcome, Status};
use tidings_core::time::{Clock, ManualClock};
use tidings_store::Store;
use tidings_store::memory::Memory;

use super::{published, quiet, seconds, store};
use crate::channels::http_server::{Reply, Server};
use crate::support::{TestServer, server};

fn surroundings(clock: &Arc<ManualClock>) -> Surroundings {
    Surroundings {
        clock: Arc::clone(clock) as Arc<dyn Clock>,
        ids: Arc::new(SystemIds::default()),
        acknowledge_before_fsync: false,
        sheet_bytes: None,
        limit_file: None,
        reload: None,
        sample: false,
    }
}

fn config(data: &std::path::Path, ntfy: &str) -> Config {
    let mut config = Config::default();
    config.set_listen(std::net::SocketAddr::from(([127, 0, 0, 1], 0)));
    config.data_dir = data.to_owned();
    config.push.listen = Listen::off();
    config.store.reserve_mb = 0;
    quiet(&mut config, ntfy);
    config
}

async fn read(services: &Services, message: &Message) -> Message {
    services.messages.get(&message.message_id).await.unwrap().unwrap().message
}

/// Takes the message up and dies while the other side thinks.
async fn die_in_processing(services: &Services, message: &Message) {
    let mut deliverer = Deliverer::new(services, "ntfy");
    deliverer.activate().await.unwrap();
    assert_eq!(deliverer.under_way(), 1);
    while read(services, message).await.delivery.status != Status::Processing {
        tokio::task::yield_now().await;
    }
}

// S002-51: a restart takes it up at once; no state goes backward, and the attempt is on record.
#[tokio::test]
async fn a_message_whose_process_died_is_taken_up_at_the_next_start() {
    let hanging = Server::start(|_| Reply::Hang).await;
    let data = tempfile::tempdir().unwrap();
    let clock = server::clock();
    let app = App::open(config(data.path(), &hanging.url("")), surroundings(&clock)).await.unwrap();
    let message = store(&app.services, "ntfy", serde_json::json!({ "topic": "ops" })).await;
    die_in_processing(&app.services, &message).await;
    drop(app);
    let well = Server::start(|_| published("n")).await;
    let app = loop {
        // The attempt that was under way lets go of the store when it is dropped, a moment later.
        match App::open(config(data.path(), &well.url("")), surroundings(&clock)).await {
            Ok(app) => break app,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    let found = read(&app.services, &message).await;
    assert_eq!(found.delivery.status, Status::Processing);
    assert!(found.delivery.in_flight());
    Deliverer::new(&app.services, "ntfy").drain().await.unwrap();
    let done = read(&app.services, &message).await;
    assert_eq!((done.delivery.status, done.delivery.retry_count), (Status::Completed, 1));
    let outcomes: Vec<_> = done.delivery.attempts.iter().map(|attempt| attempt.outcome.unwrap()).collect();
    assert_eq!(outcomes, [AttemptOutcome::Lost, AttemptOutcome::Delivered]);
    assert_eq!(done.processing_started_at, found.processing_started_at, "the first");
    assert_eq!(well.asked().len(), 1);
}

/// Two nodes on one store.
async fn nodes(url: &str, clock: &Arc<ManualClock>) -> Vec<(Services, tempfile::TempDir)> {
    let store: Arc<dyn Store> = Arc::new(Memory::new(clock.clone()));
    let mut nodes = Vec::new();
    for _ in 0..2 {
        let data = tempfile::tempdir().unwrap();
        let app = App::open_with(config(data.path(), url), surroundings(clock), Arc::clone(&store)).await.unwrap();
        nodes.push((app.services, data));
    }
    nodes
}

// S002-51: on a shared store the other node waits for the lease to run out.
#[tokio::test]
async fn another_node_takes_over_when_the_lease_has_run_out() {
    let asked = std::sync::atomic::AtomicUsize::new(0);
    let sink = Server::start(move |_| match asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
        0 => Reply::Hang,
        _ => published("n"),
    })
    .await;
    let clock = server::clock();
    let nodes = nodes(&sink.url(""), &clock).await;
    let message = store(&nodes[0].0, "ntfy", serde_json::json!({ "topic": "ops" })).await;
    let mut first = Deliverer::new(&nodes[0].0, "ntfy");
    first.activate().await.unwrap();
    while sink.asked().is_empty() {
        tokio::task::yield_now().await;
        first.activate().await.unwrap();
    }
    let mut second = Deliverer::new(&nodes[1].0, "ntfy");
    let next = second.drain().await.unwrap().unwrap();
    assert_eq!(sink.asked().len(), 1, "it belongs to the first");
    clock.advance(seconds(next.duration_since(clock.now()).as_secs_f64()));
    second.drain().await.unwrap();
    let done = read(&nodes[1].0, &message).await;
    assert_eq!((done.delivery.status, done.delivery.attempts.len()), (Status::Completed, 2));
    assert_eq!(sink.asked().len(), 2);
}

// S002-51: a node that is known to be dead is not waited for; one that lives is left alone, however long it takes.
#[tokio::test]
async fn another_node_takes_over_when_the_one_that_had_it_is_dead() {
    let asked = std::sync::atomic::AtomicUsize::new(0);
    let sink = Server::start(move |_| match asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
        0 => Reply::Hang,
        _ => published("n"),
    })
    .await;
    let (clock, url) = (server::clock(), sink.url(""));
    let shared = crate::nodes::store(&clock).await;
    let (one, clocked) = (Arc::clone(&shared), Arc::clone(&clock));
    let a = TestServer::among_with(one, clocked, None, |config| quiet(config, &url)).await;
    let b = TestServer::among_with(shared, Arc::clone(&clock), Some(&a), |config| quiet(config, &url)).await;
    let message = store(&a.services, "ntfy", serde_json::json!({ "topic": "ops" })).await;
    let mut first = Deliverer::new(&a.services, "ntfy");
    first.activate().await.unwrap();
    while sink.asked().is_empty() {
        tokio::task::yield_now().await;
        first.activate().await.unwrap();
    }
    let mut second = Deliverer::new(&b.services, "ntfy");
    // Twice as long as a lease, with signs of life.
    for _ in 0..8 {
        clock.advance(seconds(2.5));
        a.services.look_at_nodes().await.unwrap();
        b.services.look_at_nodes().await.unwrap();
        second.drain().await.unwrap();
        assert_eq!(sink.asked().len(), 1, "it belongs to the first");
    }
    a.services.nodes.as_ref().unwrap().pretend_to_be_dead();
    let mut quarters = 0;
    while sink.asked().len() == 1 {
        quarters += 1;
        assert!(quarters <= 6, "a lease and a half is enough");
        clock.advance(seconds(2.5));
        b.services.look_at_nodes().await.unwrap();
        second.drain().await.unwrap();
    }
    assert!(quarters >= 4, "not before the lease is over: {quarters} quarters");
    let done = read(&b.services, &message).await;
    assert_eq!((done.delivery.status, done.delivery.attempts.len()), (Status::Completed, 2));
    let outcomes: Vec<_> = done.delivery.attempts.iter().map(|attempt| attempt.outcome.unwrap()).collect();
    assert_eq!(outcomes, [AttemptOutcome::Lost, AttemptOutcome::Delivered]);
}

// S002-53: two workers do not send twice.
#[tokio::test]
async fn two_workers_send_each_message_once() {
    let sink = Server::start(|_| published("n")).await;
    let clock = server::clock();
    let nodes = nodes(&sink.url(""), &clock).await;
    let mut messages = Vec::new();
    for _ in 0..60 {
        messages.push(store(&nodes[0].0, "ntfy", serde_json::json!({ "topic": "ops" })).await);
    }
    let (mut a, mut b) = (Deliverer::new(&nodes[0].0, "ntfy"), Deliverer::new(&nodes[1].0, "ntfy"));
    let (first, second) = tokio::join!(a.drain(), b.drain());
    first.unwrap();
    second.unwrap();
    assert_eq!(sink.asked().len(), 60);
    for message in &messages {
        let done = read(&nodes[0].0, message).await;
        assert_eq!((done.delivery.status, done.delivery.attempts.len()), (Status::Completed, 1));
    }
}

// S002-51: a clock that was ahead when the process died, and is right when the next one starts, holds nothing up but what
// somebody wanted to wait.
#[tokio::test]
async fn what_waits_when_the_clock_was_ahead_is_due_at_the_next_start() {
    let hanging = Server::start(|_| Reply::Hang).await;
    let data = tempfile::tempdir().unwrap();
    let clock = server::clock();
    let right = clock.now();
    clock.jump_to(right.checked_add(jiff::Span::new().hours(2)).unwrap());
    let app = App::open(config(data.path(), &hanging.url("")), surroundings(&clock)).await.unwrap();
    let on_its_way = store(&app.services, "ntfy", serde_json::json!({ "topic": "ops" })).await;
    die_in_processing(&app.services, &on_its_way).await;
    let untried = store(&app.services, "ntfy", serde_json::json!({ "topic": "ops" })).await;
    let mut later = super::message(&app.services, "ntfy", serde_json::json!({ "topic": "ops" }));
    later.deliver_at = clock.now().checked_add(jiff::Span::new().hours(1)).unwrap();
    app.services.messages.create(vec![later.clone()]).await.unwrap();
    drop(app);
    clock.jump_to(right);
    let well = Server::start(|_| published("n")).await;
    let app = loop {
        match App::open(config(data.path(), &well.url("")), surroundings(&clock)).await {
            Ok(app) => break app,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    Deliverer::new(&app.services, "ntfy").drain().await.unwrap();
    for (message, status) in
        [(&on_its_way, Status::Completed), (&untried, Status::Completed), (&later, Status::Created)]
    {
        assert_eq!(read(&app.services, message).await.delivery.status, status);
    }
}
