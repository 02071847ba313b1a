//! Which runs are made, through restarts, other processes and clocks that jump.

use std::sync::Arc;

use serde_json::{Value, json};
use tidings::clock::SystemIds;
use tidings::config::Config;
use tidings::messages::{Message, Messages, record};
use tidings::schedules::{Origin, Outcome, Schedules};
use tidings_core::time::{ManualClock, Timestamp};
use tidings_store::memory::Memory;
use tidings_store::{Query, Store};

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A store, and any number of schedulers over it.
struct World {
    store: Arc<dyn Store>,
}

impl World {
    fn new() -> Self {
        // Items expire by a clock that stands: these tests are about another one.
        let clock = Arc::new(ManualClock::new(at("2026-01-01T00:00:00Z")));
        Self { store: Arc::new(Memory::new(clock)) }
    }

    fn scheduler(&self) -> Schedules {
        self.started(Timestamp::MIN)
    }

    /// One in a process that began to run then.
    fn started(&self, since: Timestamp) -> Schedules {
        let text = "[[message_types]]\nname = \"scheduler_test\"\nschema = { type = \"object\" }\n";
        let config = Config::parse(text, std::iter::empty()).unwrap();
        let messages = Messages::new(Arc::clone(&self.store), &config, Vec::new()).unwrap();
        Schedules::new(Arc::clone(&self.store), Arc::new(SystemIds::default()), Arc::new(messages), since)
    }

    async fn put(&self, name: &str, body: Value, now: &str) {
        let scheduler = self.scheduler();
        let definition = scheduler.read(body.as_object().unwrap(), at(now)).unwrap();
        let before = scheduler.get(name).await.unwrap();
        let (_, write) = scheduler.writing(name, definition, Origin::Api, "test", before.as_ref(), at(now)).unwrap();
        self.store.transact(vec![write]).await.unwrap();
    }

    async fn activate(&self, now: &str) -> usize {
        self.scheduler().activate(at(now)).await.unwrap().fired
    }

    async fn messages(&self) -> Vec<Message> {
        let query = Query::new("scheduler_test").index("message_type-created_date-index").limit(1000);
        let page = self.store.query(&record::table("dev"), &query).await.unwrap();
        page.items.iter().map(|item| Message::from_item(item).unwrap()).collect()
    }

    /// When the runs that made a message were due, oldest first.
    async fn fired(&self, name: &str) -> Vec<String> {
        let runs = self.scheduler().runs(name).await.unwrap();
        let fired = runs.iter().rev().filter(|run| matches!(run.outcome, Outcome::Fired { .. }));
        fired.map(|run| run.at.to_string()).collect()
    }
}

fn every(every: &str, missed: &str) -> Value {
    json!({ "every": every, "missed": missed, "message_type": "scheduler_test", "payload": { "text": "x" } })
}

fn cron(cron: &str) -> Value {
    json!({ "cron": cron, "timezone": "Europe/Berlin", "missed": "all", "message_type": "scheduler_test", "payload": { "text": "x" } })
}

// S002-43, S002-66
#[tokio::test]
async fn a_run_makes_one_message_however_often_and_by_whom_it_is_looked_at() {
    let world = World::new();
    world.put("hello", every("15m", "once"), "2026-03-01T12:00:00Z").await;
    assert_eq!(world.activate("2026-03-01T12:14:59Z").await, 0);
    // Two processes at once; each activation is a restart, too.
    let (one, other) = (world.scheduler(), world.scheduler());
    let now = at("2026-03-01T12:15:01Z");
    let (one, other) = tokio::join!(one.activate(now), other.activate(now));
    assert_eq!(one.unwrap().fired + other.unwrap().fired, 1);
    assert_eq!(world.activate("2026-03-01T12:15:02Z").await, 0);
    let messages = world.messages().await;
    assert_eq!(messages.len(), 1);
    assert_eq!((messages[0].created_by.as_str(), messages[0].channel.as_str()), ("scheduler", "ntfy"));
    let id = tidings::schedules::message_id("hello", at("2026-03-01T12:15:00Z"));
    assert_eq!(messages[0].message_id, id.to_string());
    let status = world.scheduler().activate(at("2026-03-01T12:15:03Z")).await.unwrap();
    assert_eq!(status.next, Some(at("2026-03-01T12:30:00Z")));
}

// S002-66: the clock goes back two hours.
#[tokio::test]
async fn a_clock_set_back_loses_and_doubles_nothing() {
    let world = World::new();
    world.put("hello", every("1h", "once"), "2026-03-01T12:00:00Z").await;
    for hour in 13..=15 {
        assert_eq!(world.activate(&format!("2026-03-01T{hour}:00:10Z")).await, 1);
    }
    for time in ["13:00:30", "13:30:00", "14:00:05", "15:00:05"] {
        assert_eq!(world.activate(&format!("2026-03-01T{time}Z")).await, 0, "{time}");
    }
    assert_eq!(world.activate("2026-03-01T16:00:05Z").await, 1);
    assert_eq!(world.messages().await.len(), 4);
}

// S002-66: the clock goes ahead thirty days, and back.
#[tokio::test]
async fn a_clock_set_ahead_follows_the_policy() {
    for (missed, made) in [("skip", 0), ("once", 1), ("all", 100)] {
        let world = World::new();
        world.put("hello", every("15m", missed), "2026-03-01T12:00:00Z").await;
        assert_eq!(world.activate("2026-03-31T12:05:00Z").await, made, "{missed}");
        assert_eq!(world.activate("2026-03-31T12:05:30Z").await, 0, "{missed}");
        assert_eq!(world.activate("2026-03-31T12:15:00Z").await, 1, "{missed}");
        // Back where it belongs, it runs on.
        assert_eq!(world.activate("2026-03-01T12:10:00Z").await, 0, "{missed}");
        assert_eq!(world.activate("2026-03-01T12:15:00Z").await, 1, "{missed}");
        let last = world.scheduler().runs("hello").await.unwrap();
        let skipped = last.iter().filter(|run| run.outcome == Outcome::Skipped).count();
        assert_eq!(skipped, usize::from(missed == "skip"));
    }
}

// S002-66: what fell into a time when nothing was running is missed, however short that was.
#[tokio::test]
async fn a_short_time_without_a_process_follows_the_policy_too() {
    for (missed, made) in [("skip", 0), ("once", 1), ("all", 4)] {
        let world = World::new();
        world.put("hello", every("5s", missed), "2026-03-01T12:00:00Z").await;
        let before = world.started(at("2026-03-01T12:00:00Z"));
        assert_eq!(before.activate(at("2026-03-01T12:00:05Z")).await.unwrap().fired, 1, "{missed}");
        let after = world.started(at("2026-03-01T12:00:27Z"));
        assert_eq!(after.activate(at("2026-03-01T12:00:28Z")).await.unwrap().fired, made, "{missed}");
        assert_eq!(after.activate(at("2026-03-01T12:00:36Z")).await.unwrap().fired, 2, "{missed}: it was running");
    }
}

// S002-66: a clock that is set back does not make what comes by again missed.
#[tokio::test]
async fn what_comes_by_again_is_on_time() {
    let world = World::new();
    world.put("hello", every("5s", "skip"), "2026-03-01T08:00:00Z").await;
    let process = world.started(at("2026-03-01T12:00:27Z"));
    assert_eq!(process.activate(at("2026-03-01T12:00:28Z")).await.unwrap().fired, 0);
    assert_eq!(process.activate(at("2026-03-01T10:00:01Z")).await.unwrap().fired, 0);
    assert_eq!(process.activate(at("2026-03-01T10:00:06Z")).await.unwrap().fired, 1);
}

// S002-66: every minute of both nights in Berlin.
#[tokio::test]
async fn daylight_saving_makes_one_run_a_day() {
    for (start, minutes, runs) in [
        ("2026-03-28T12:00:00Z", 36 * 60, ["2026-03-29T01:00:00Z"]),
        ("2026-10-24T12:00:00Z", 36 * 60, ["2026-10-25T00:30:00Z"]),
    ] {
        let world = World::new();
        world.put("night", cron("30 2 * * *"), start).await;
        let scheduler = world.scheduler();
        for minute in 0..minutes {
            let now = Timestamp::from_second(at(start).as_second() + minute * 60).unwrap();
            scheduler.activate(now).await.unwrap();
        }
        assert_eq!(world.fired("night").await, runs);
    }
}

#[tokio::test]
async fn what_is_disabled_does_not_run_and_makes_up_for_nothing() {
    let world = World::new();
    let mut body = every("15m", "all");
    world.put("hello", body.clone(), "2026-03-01T12:00:00Z").await;
    body["enabled"] = false.into();
    world.put("hello", body.clone(), "2026-03-01T12:01:00Z").await;
    assert_eq!(world.activate("2026-03-01T13:01:00Z").await, 0);
    body["enabled"] = true.into();
    world.put("hello", body, "2026-03-01T13:02:00Z").await;
    assert_eq!(world.activate("2026-03-01T13:15:00Z").await, 1);
    assert_eq!(world.fired("hello").await, ["2026-03-01T13:15:00Z"]);
}

#[tokio::test]
async fn what_is_replaced_while_due_runs_as_it_is_now() {
    let world = World::new();
    world.put("hello", every("15m", "once"), "2026-03-01T12:00:00Z").await;
    let mut body = every("15m", "once");
    body["payload"]["text"] = "new".into();
    // The same timing: what is due stays due, with the new payload.
    world.put("hello", body, "2026-03-01T12:15:30Z").await;
    assert_eq!(world.activate("2026-03-01T12:15:31Z").await, 1);
    assert_eq!(world.messages().await[0].payload["text"], "new");
    // Another timing: it starts anew.
    world.put("hello", every("10m", "all"), "2026-03-01T12:30:30Z").await;
    assert_eq!(world.activate("2026-03-01T12:30:31Z").await, 0);
    assert_eq!(world.activate("2026-03-01T12:40:30Z").await, 1);
}

#[tokio::test]
async fn an_instant_runs_once_also_after_a_time_without_a_server() {
    let world = World::new();
    let body = json!({ "at": "2026-03-01T12:00:00Z", "message_type": "scheduler_test", "payload": { "text": "x" } });
    world.put("party", body, "2026-03-01T00:00:00Z").await;
    assert_eq!(world.activate("2026-03-02T09:00:00Z").await, 1);
    assert_eq!(world.activate("2026-03-03T09:00:00Z").await, 0);
}

#[tokio::test]
async fn the_file_brings_schedules_and_takes_them_away() {
    let world = World::new();
    let text = "[[schedules]]\nname = \"daily-hello\"\ncron = \"0 9 * * *\"\nmessage_type = \"scheduled_hello\"\n\
        payload = { text = \"x\" }\n";
    let config = Config::parse(text, std::iter::empty()).unwrap();
    let scheduler = world.scheduler();
    scheduler.load(&config.schedules, at("2026-03-01T08:00:00Z")).await.unwrap();
    assert_eq!(world.activate("2026-03-01T09:00:00Z").await, 1);
    // A restart with the same file changes nothing, and what was missed in between is made up for.
    scheduler.load(&config.schedules, at("2026-03-02T12:00:00Z")).await.unwrap();
    assert_eq!(world.activate("2026-03-02T12:00:01Z").await, 1);
    scheduler.load(&[], at("2026-03-02T13:00:00Z")).await.unwrap();
    assert!(scheduler.list().await.unwrap().is_empty());
}
