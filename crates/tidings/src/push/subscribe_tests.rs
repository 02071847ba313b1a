use axum::http::HeaderMap;
use serde_json::Value;
use tidings_core::time::{Clock, ManualClock};
use tidings_store::memory::Memory;

use super::*;
use crate::clock::SystemIds;
use crate::push::publish::Draft;

async fn push() -> (Arc<Push>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new("2026-03-01T12:00:00Z".parse().unwrap()));
    let store = Arc::new(Memory::new(Arc::clone(&clock) as _));
    (Push::open(store, Arc::clone(&clock) as _, Arc::new(SystemIds::default()), 12).await.unwrap(), clock)
}

async fn publish(push: &Push, topic: &str, text: &str) -> String {
    let content = Content { message: text.to_owned(), ..Content::default() };
    let draft = Draft { topic: topic.to_owned(), content, keep: text != "unkept" };
    push.publish(push.new_id(), draft, "c-1").await.unwrap().id.clone()
}

async fn subscribe(push: &Arc<Push>, list: &str, query: &str) -> Subscription {
    let params = Params::read(&HeaderMap::new(), Some(query)).unwrap();
    let wanted = Wanted::read(topics(list).unwrap(), Format::Json, &params, push.clock.now()).unwrap();
    let (stop, stopping) = watch::channel(false);
    // A server that is gone counts as stopping.
    std::mem::forget(stop);
    Subscription::start(Arc::clone(push), wanted, stopping).await.unwrap()
}

/// The next piece: its event, or its text if it is a message.
async fn next(subscription: &mut Subscription) -> Option<String> {
    let piece: Value = serde_json::from_slice(&subscription.next().await?).unwrap();
    Some(piece["message"].as_str().or(piece["event"].as_str()).unwrap().to_owned())
}

async fn polled(push: &Arc<Push>, list: &str, query: &str) -> Vec<String> {
    let mut subscription = subscribe(push, list, &format!("poll=1&{query}")).await;
    let mut texts = Vec::new();
    while let Some(text) = next(&mut subscription).await {
        texts.push(text);
    }
    texts
}

#[tokio::test]
async fn since_says_from_where() {
    let (push, clock) = push().await;
    publish(&push, "a", "1").await;
    clock.advance(Duration::from_secs(60));
    let second = publish(&push, "b", "2").await;
    publish(&push, "a", "unkept").await;
    clock.advance(Duration::from_secs(60));
    // Backward: the order stays.
    clock.jump_to("2026-03-01T11:00:00Z".parse().unwrap());
    publish(&push, "a", "3").await;
    clock.jump_to("2026-03-01T12:02:00Z".parse().unwrap());
    assert_eq!(polled(&push, "a,b", "").await, ["1", "2", "3"]);
    assert_eq!(polled(&push, "a,b", "since=all").await, ["1", "2", "3"]);
    assert_eq!(polled(&push, "a", &format!("since={second}")).await, ["3"]);
    assert_eq!(polled(&push, "a,b", "since=90s").await, ["2", "3"]);
    assert_eq!(polled(&push, "a,b", "since=1.5m").await, ["2", "3"]);
    assert_eq!(polled(&push, "a,b", "since=58.5s").await, [""; 0]);
    assert_eq!(polled(&push, "b,a", "since=1772366460").await, ["2", "3"]);
    assert_eq!(polled(&push, "a,b", "since=latest").await, ["2", "3"]);
    assert_eq!(polled(&push, "a,b", "since=unknownid_12").await, ["1", "2", "3"]);
    assert_eq!(polled(&push, "a,b", "since=none").await, [""; 0]);
    // They are kept for twelve hours.
    clock.advance(Duration::from_secs(12 * 3600));
    assert_eq!(polled(&push, "a,b", "since=all").await, [""; 0]);
    for text in ["yesterday", "-1h", "-1.5h", "1.5"] {
        assert!(Since::read(Some(text), false, clock.now()).is_err(), "{text}");
    }
    // A part of a second is one more.
    let ago = Since::read(Some("1.5s"), false, clock.now()).unwrap();
    assert_eq!(ago, Since::Time(clock.now().as_second() - 2));
}

#[test]
fn empty_names_between_topics_are_skipped() {
    for list in ["sa,sb", "sa,,sb", ",sa,sb", "sa,sb,"] {
        assert_eq!(topics(list).unwrap(), ["sa", "sb"], "{list}");
    }
    assert!(topics(&format!("{}a", "a,,".repeat(MOST_TOPICS - 1))).is_ok());
    assert!(topics(&format!("{}a", "a,".repeat(MOST_TOPICS))).is_err());
    for list in ["", ",", ",,", "sa, ,sb", "sa,docs"] {
        assert!(topics(list).is_err(), "{list}");
    }
}

#[tokio::test]
async fn what_is_kept_and_what_comes_join_without_a_gap_or_a_double() {
    let (push, _) = push().await;
    for number in 0..150 {
        publish(&push, "a", &number.to_string()).await;
    }
    let mut subscription = subscribe(&push, "a", "since=all").await;
    assert_eq!(next(&mut subscription).await.as_deref(), Some("open"));
    assert_eq!(next(&mut subscription).await.as_deref(), Some("0"));
    for number in 150..200 {
        publish(&push, "a", &number.to_string()).await;
    }
    publish(&push, "b", "not for us").await;
    publish(&push, "a", "unkept").await;
    for number in 1..200 {
        assert_eq!(next(&mut subscription).await, Some(number.to_string()));
    }
    assert_eq!(next(&mut subscription).await.as_deref(), Some("unkept"));
}

#[tokio::test]
async fn a_slow_subscriber_reads_from_the_store_what_it_missed() {
    let (push, _) = push().await;
    publish(&push, "a", "before").await;
    let mut subscription = subscribe(&push, "a", "").await;
    assert_eq!(next(&mut subscription).await.as_deref(), Some("open"));
    for number in 0..super::super::BEHIND + 200 {
        publish(&push, "a", &number.to_string()).await;
    }
    for number in 0..super::super::BEHIND + 200 {
        assert_eq!(next(&mut subscription).await, Some(number.to_string()));
    }
}

#[tokio::test(start_paused = true)]
async fn silence_is_broken_every_45_seconds() {
    let (push, _) = push().await;
    let mut subscription = subscribe(&push, "a", "").await;
    assert_eq!(next(&mut subscription).await.as_deref(), Some("open"));
    let started = Instant::now();
    for times in 1..=3 {
        assert_eq!(next(&mut subscription).await.as_deref(), Some("keepalive"));
        assert_eq!(started.elapsed(), KEEP_ALIVE * times);
    }
}

#[tokio::test]
async fn filters_all_have_to_fit() {
    let (push, _) = push().await;
    let content = Content {
        message: "Hi".to_owned(),
        title: "T".to_owned(),
        priority: Some(4),
        tags: vec!["x".to_owned(), "y".to_owned()],
        ..Content::default()
    };
    let draft = Draft { topic: "a".to_owned(), content, keep: true };
    let id = push.publish(push.new_id(), draft, "c").await.unwrap().id.clone();
    publish(&push, "a", "other").await;
    for query in [&format!("id={id}"), "message=Hi", "title=T", "priority=High,5", "tags=x,y", "title=T&p=4"] {
        assert_eq!(polled(&push, "a", query).await, ["Hi"], "{query}");
    }
    assert_eq!(polled(&push, "a", "priority=3").await, ["other"]);
    assert_eq!(polled(&push, "a", "tags=x,z").await, [""; 0]);
    assert!(Filter::read(&Params::read(&HeaderMap::new(), Some("p=9")).unwrap()).is_err());
}

#[test]
fn each_format_has_its_own_lines() {
    let message = |event| Message {
        id: "i".to_owned(),
        time: 1,
        expires: None,
        event,
        topic: "a".to_owned(),
        content: Content { message: "x\ny".to_owned(), ..Content::default() },
        seq: 0,
        correlation_id: String::new(),
    };
    let write = |format: Format, event| String::from_utf8(format.write(&message(event)).to_vec()).unwrap();
    assert_eq!(write(Format::Raw, Event::Message), "x y\n");
    assert_eq!(write(Format::Raw, Event::Keepalive), "\n");
    assert!(write(Format::Json, Event::Open).ends_with("}\n"));
    assert!(write(Format::Sse, Event::Message).starts_with("data: {"));
    assert!(write(Format::Sse, Event::Open).starts_with("event: open\ndata: {"));
    assert!(write(Format::Sse, Event::Keepalive).ends_with("}\n\n"));
}
