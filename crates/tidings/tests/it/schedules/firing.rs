//! Which runs are made, through restarts, other processes and clocks that jump.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use serde_json::{Value, json};
use tidings::audit::Audit;
use tidings::clock::SystemIds;
use tidings::config::Config;
use tidings::messages::{Message, Messages, record};
use tidings::schedules::{Origin, Outcome, Schedules, Told};
use tidings_core::time::{ManualClock, Timestamp};
use tidings_store::faults::{Faulty, Moment};
use tidings_store::memory::Memory;
use tidings_store::{Query, Store, Write};

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A store, and any number of schedulers over it.
struct World {
    store: Arc<dyn Store>,
    audit: Audit,
}

impl World {
    fn new() -> Self {
        // Items expire by a clock that stands: these tests are about another one.
        let clock = Arc::new(ManualClock::new(at("2026-01-01T00:00:00Z")));
        let store: Arc<dyn Store> = Arc::new(Memory::new(clock.clone()));
        Self { audit: Audit::new(Arc::clone(&store), clock), store }
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

/// Looks every second of a time, by a wall clock that is `ahead` of it.
async fn pass(process: &Schedules, seconds: std::ops::Range<u64>, ahead: i64) -> usize {
    let mut fired = 0;
    for second in seconds {
        let now = at("2026-03-01T12:00:00Z").as_second() + i64::try_from(second).unwrap() + ahead;
        let now = Timestamp::from_second(now).unwrap();
        fired += process.look(now, Duration::from_secs(second)).await.unwrap().fired;
    }
    fired
}

// S002-66: a clock that is two hours ahead for some seconds makes no burst, and nothing is lost or doubled after it.
#[tokio::test]
async fn a_clock_that_was_ahead_for_some_seconds_follows_the_policy_and_goes_on() {
    // What the two hours make up for, beside the runs of those seconds.
    for (missed, made_up) in [("skip", 0), ("once", 1), ("all", 100)] {
        let world = World::new();
        world.put("hello", every("2s", missed), "2026-03-01T12:00:00Z").await;
        let process = world.started(at("2026-03-01T12:00:00Z"));
        assert_eq!(pass(&process, 0..11, 0).await, 5, "{missed}");
        let ahead = pass(&process, 11..15, 7200).await;
        assert!((made_up + 2..=made_up + 3).contains(&ahead), "{missed}: {ahead}");
        // Right again: the four runs that it has not come by, at once and no later.
        assert_eq!(pass(&process, 15..16, 0).await, 2, "{missed}: 12 and 14");
        assert_eq!(pass(&process, 16..41, 0).await, 13, "{missed}");
        let messages = world.messages().await;
        let runs: BTreeSet<_> = messages.iter().map(|message| message.message_id.clone()).collect();
        assert_eq!((runs.len(), messages.len()), (20 + ahead, 20 + ahead), "{missed}");
    }
}

// S002-66: two hours back, with the process going on.
#[tokio::test]
async fn a_clock_set_back_while_it_runs_loses_and_doubles_nothing() {
    for missed in ["skip", "once", "all"] {
        let world = World::new();
        world.put("hello", every("2s", missed), "2026-03-01T11:59:00Z").await;
        let process = world.started(at("2026-03-01T12:00:00Z"));
        pass(&process, 0..1, 0).await;
        let before = world.messages().await.len();
        assert_eq!(pass(&process, 1..21, 0).await, 10, "{missed}");
        // Before the schedule was made it goes on at its pace; then by what was done already; then on. What lies between
        // was before it was made, and is not made up for.
        assert_eq!(pass(&process, 21..41, -7200).await, 10, "{missed}");
        assert_eq!(pass(&process, 41..61, -30).await, 5, "{missed}: 22 to 30");
        assert_eq!(world.messages().await.len(), before + 25, "{missed}");
        let fired = world.fired("hello").await;
        let from_two = fired.iter().filter(|at| at.as_str() > "2026-03-01T12:00:01Z").count();
        assert_eq!(from_two, 15, "{missed}: what was made stays in the history");
    }
}

// S002-66: made by a clock that is ahead, which is then set right; with a restart, or without.
#[tokio::test]
async fn what_was_made_by_a_clock_that_was_ahead_goes_on_at_its_pace() {
    for (body, runs) in [(every("15m", "all"), 191), (cron("*/15 * * * *"), 192)] {
        for restarts in [true, false] {
            let world = World::new();
            world.put("hello", body.clone(), "2026-03-31T12:05:00Z").await;
            let mut process = world.started(at("2026-03-31T12:00:00Z"));
            assert_eq!(process.look(at("2026-03-31T12:05:01Z"), Duration::ZERO).await.unwrap().fired, 0);
            let right = at("2026-03-30T12:05:00Z");
            if restarts {
                process = world.started(right);
            }
            // Two days, and halfway the moment at which it was made comes by.
            for minutes in (0..2 * 24 * 60).step_by(5) {
                let passed = Duration::from_secs(1 + 60 * minutes);
                let status = process.look(right + passed, passed).await.unwrap();
                assert!(
                    status.fired <= 1 && status.next.unwrap().duration_since(right) < SignedDuration::from_hours(49)
                );
            }
            let messages = world.messages().await;
            let ids: BTreeSet<_> = messages.iter().map(|message| &message.message_id).collect();
            assert_eq!((ids.len(), messages.len()), (runs, runs), "{restarts}");
        }
    }
}

// S002-66: nothing is due from before a schedule was made.
#[tokio::test]
async fn a_new_schedule_waits_for_its_first_run() {
    for missed in ["skip", "once", "all"] {
        let world = World::new();
        world.put("hello", every("15m", missed), "2026-03-01T12:00:00.7Z").await;
        for now in ["12:00:00.8", "12:00:30", "12:14:59.9"] {
            assert_eq!(world.activate(&format!("2026-03-01T{now}Z")).await, 0, "{missed} {now}");
        }
        assert_eq!(world.activate("2026-03-01T12:15:00Z").await, 1, "{missed}");
        assert_eq!(world.fired("hello").await, ["2026-03-01T12:15:00Z"]);
    }
}

// S002-66: a small step is a clock being set right.
#[tokio::test]
async fn a_step_of_some_seconds_skips_nothing() {
    let world = World::new();
    world.put("hello", every("2s", "skip"), "2026-03-01T12:00:00Z").await;
    let process = world.started(at("2026-03-01T12:00:00Z"));
    assert_eq!(pass(&process, 0..11, 0).await, 5);
    assert_eq!(pass(&process, 11..12, 9).await, 5);
    assert_eq!(pass(&process, 12..31, 0).await, 5);
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

// S002-66: what is kept of how far a schedule has come has fewer digits than an instant may have.
#[tokio::test]
async fn an_instant_with_many_digits_runs_once() {
    let world = World::new();
    let body =
        json!({ "at": "2026-03-01T12:00:00.123456789Z", "message_type": "scheduler_test", "payload": { "text": "x" } });
    world.put("party", body, "2026-03-01T00:00:00Z").await;
    let kept = world.scheduler().get("party").await.unwrap().unwrap();
    assert_eq!(kept.definition.at.as_deref(), Some("2026-03-01T12:00:00.123Z"));
    // One of an earlier version has all of them, and it has fired, too.
    let done = "2026-03-01T12:00:00.123456Z";
    let mut old = kept.to_item().unwrap().with("id", "old").with("at", "2026-03-01T12:00:00.123456789Z");
    old = old.with("done_until", done);
    world.store.transact(vec![Write::put(tidings::schedules::table(), old)]).await.unwrap();
    assert_eq!(world.activate("2026-03-01T12:00:00.5Z").await, 1);
    assert_eq!(world.fired("party").await, ["2026-03-01T12:00:00.123Z"]);
    let party = world.scheduler().get("party").await.unwrap().unwrap();
    assert_eq!(party.done_until, at("2026-03-01T12:00:00.123Z"));
    // Its message is gone one day, and does not come again.
    let table = record::table("dev");
    let gone = Write::delete(&table, tidings_store::Key::new(world.messages().await[0].message_id.as_str()));
    world.store.transact(vec![gone]).await.unwrap();
    assert_eq!(world.activate("2026-09-01T12:00:00Z").await, 0);
    assert_eq!(world.scheduler().get("old").await.unwrap().unwrap().done_until, at(done));
}

fn configured(text: &str) -> Vec<tidings::config::schedules::Schedule> {
    let text = format!("[[schedules]]\nname = \"daily-hello\"\nmessage_type = \"scheduled_hello\"\n{text}\n");
    Config::parse(&text, std::iter::empty()).unwrap().schedules
}

// S002-66, SX-19: numbers and instants are kept in another way than they are written, and are still the same.
#[tokio::test]
async fn a_start_with_the_same_file_changes_nothing() {
    for text in [
        "every = \"1h\"\npayload = { text = \"x\", ratio = 1.0, list = [-0.0, { a = 2.50, b = 1e100 }] }",
        "at = 2027-03-01T12:00:00.123456789Z\npayload = { text = \"x\" }",
        "at = \"2027-03-01T12:00:00.1234+01:00\"\npayload = { text = \"x\" }",
    ] {
        let world = World::new();
        let (scheduler, configured) = (world.scheduler(), configured(text));
        let told = Told { audit: &world.audit, user: "test", correlation_id: "c-1" };
        scheduler.load(&configured, told, at("2026-03-01T08:00:00Z")).await.unwrap();
        let first = scheduler.get("daily-hello").await.unwrap();
        scheduler.load(&configured, told, at("2026-03-01T09:00:00Z")).await.unwrap();
        assert_eq!(scheduler.get("daily-hello").await.unwrap(), first, "{text}");
    }
}

// S002-66: the worker comes in between, and what the file no longer has goes all the same.
#[tokio::test]
async fn a_schedule_that_fires_while_it_is_taken_out_is_taken_out() {
    let mut world = World::new();
    let faulty = Arc::new(Faulty::new(Arc::clone(&world.store)));
    world.store = faulty.clone();
    world.audit = Audit::new(faulty.clone(), Arc::new(ManualClock::new(at("2026-01-01T00:00:00Z"))));
    let scheduler = world.scheduler();
    let told = Told { audit: &world.audit, user: "test", correlation_id: "c-1" };
    let configured = configured("every = \"1m\"\npayload = { text = \"x\" }");
    scheduler.load(&configured, told, at("2026-03-01T08:00:00Z")).await.unwrap();
    let gate = faulty.hold(Moment::Before);
    let fires = async {
        gate.arrived(1).await;
        faulty.hold(Moment::Before).open();
        assert_eq!(world.activate("2026-03-01T08:01:00Z").await, 1);
        gate.open();
    };
    let (taken, ()) = tokio::join!(scheduler.load(&[], told, at("2026-03-01T08:01:00Z")), fires);
    taken.unwrap();
    assert!(scheduler.list().await.unwrap().is_empty());
}

#[tokio::test]
async fn the_file_brings_schedules_and_takes_them_away() {
    let world = World::new();
    let configured = configured("cron = \"0 9 * * *\"\npayload = { text = \"x\" }");
    let scheduler = world.scheduler();
    let load = async |schedules: &[_], now| {
        let told = Told { audit: &world.audit, user: "test", correlation_id: "c-1" };
        scheduler.load(schedules, told, at(now)).await.unwrap();
    };
    load(&configured, "2026-03-01T08:00:00Z").await;
    assert_eq!(world.activate("2026-03-01T09:00:00Z").await, 1);
    // A restart with the same file changes nothing, and what was missed in between is made up for.
    load(&configured, "2026-03-02T12:00:00Z").await;
    assert_eq!(world.activate("2026-03-02T12:00:01Z").await, 1);
    load(&[], "2026-03-02T13:00:00Z").await;
    assert!(scheduler.list().await.unwrap().is_empty());
}
