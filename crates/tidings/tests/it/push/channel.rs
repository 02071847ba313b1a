//! Our own ntfy channel delivers to our own push server, over the network and without it.

use std::sync::Arc;

use serde_json::json;
use tidings::channel::ntfy::Sender;
use tidings::channel::{Notice, Outcome, Priority};
use tidings::clock::SystemIds;
use tidings::config::Secret;
use tidings::outbound::Outbound;
use tidings::push::Push;
use tidings_core::time::Clock;
use tidings_store::Query;
use tidings_store::Store;
use tidings_store::memory::Memory;

use super::{kept, server};
use crate::support::server::clock;

fn notice() -> Notice<'static> {
    Notice {
        message_id: "0198c0de-0000-7000-8000-000000000001".parse().unwrap(),
        correlation_id: "c-17".into(),
        trace_id: None,
        message_type: "alert_notification".into(),
        created_at: "2026-03-01T12:00:00Z".parse().unwrap(),
        title: "Disk full".into(),
        text: "x".repeat(5000).into(),
        html: None,
        priority: Priority::High,
        tags: vec!["warning".into()],
        click_url: None,
        link: Some("https://tidings.example/ui/messages/1".to_owned()),
        payload: json!({}),
    }
}

// S002-64, S002-68
#[tokio::test(flavor = "multi_thread")]
async fn the_channel_delivers_over_the_network() {
    let server = server().await;
    let token = Some(Secret::new(server.admin_token()));
    let sender = Sender::new(Outbound::trusted().unwrap(), server.push_url.as_ref().unwrap(), token).unwrap();
    let outcome = sender.send(&notice(), "ops", server.clock.now()).await;
    let Outcome::Delivered { id: Some(id), .. } = outcome else { panic!("{outcome:?}") };
    let kept = kept(&server, "ops").await;
    assert_eq!((kept[0]["id"].as_str(), kept[0]["title"].as_str()), (Some(id.as_str()), Some("Disk full")));
    assert!(kept[0]["message"].as_str().unwrap().ends_with("…\nhttps://tidings.example/ui/messages/1"));

    let sender = Sender::new(Outbound::trusted().unwrap(), server.push_url.as_ref().unwrap(), None).unwrap();
    let outcome = sender.send(&notice(), "ops", server.clock.now()).await;
    assert_eq!(outcome.text(), "answered 401 (ntfy 40101): unauthorized");
}

// S002-51: an attempt that is repeated after a crash leaves one message.
#[tokio::test]
async fn the_channel_delivers_within_the_process_once() {
    let clock = clock();
    let store: Arc<dyn Store> = Arc::new(Memory::new(Arc::clone(&clock) as Arc<dyn Clock>));
    let push = || async {
        Push::open(Arc::clone(&store), Arc::clone(&clock) as _, Arc::new(SystemIds::default()), 12).await.unwrap()
    };
    let first = Sender::built_in(push().await).send(&notice(), "ops", clock.now()).await;
    let second = Sender::built_in(push().await).send(&notice(), "ops", clock.now()).await;
    assert!(first.is_delivered(), "{first:?}");
    assert_eq!(first, second);
    let items = store.query(tidings::push::table(), &Query::new("ops")).await.unwrap().items;
    assert_eq!(items.len(), 1);
    assert_eq!(items[0].str("correlationId"), Some("c-17"));
    assert!(!Sender::built_in(push().await).send(&notice(), "v1", clock.now()).await.is_delivered());
}
