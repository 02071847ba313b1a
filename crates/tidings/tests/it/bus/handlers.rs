//! Handlers in this process: deadline, isolation, order, and effects that come about once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tidings::bus::definition::{Definition, Kind, Retry};
use tidings::bus::entity::Origin;
use tidings::bus::handler::{Consumer, Delivery, Handler, Verdict};
use tidings::bus::{Bus, Message, Path};
use tidings::clock::SystemIds;
use tidings_core::time::{Clock, ManualClock};
use tidings_store::memory::Memory;
use tidings_store::{Change, Item, Key, KeyKind, Store, Table, Write};
use tokio::sync::{mpsc, watch};

use crate::support::server;

/// A broker with a queue `q`, and what its handlers need.
struct World {
    bus: Arc<Bus>,
    store: Arc<dyn Store>,
    clock: Arc<ManualClock>,
    _stop: watch::Sender<bool>,
}

impl World {
    async fn new(definition: Definition) -> Self {
        let clock = server::clock();
        let store: Arc<dyn Store> = Arc::new(Memory::new(clock.clone()));
        let (stop, stopping) = watch::channel(false);
        let ids = Arc::new(SystemIds::default());
        let bus = Bus::open(Arc::clone(&store), clock.clone() as Arc<dyn Clock>, ids, stopping).await.unwrap();
        bus.declare(&[(Path::queue("q"), definition, Origin::File)]).await.unwrap();
        Self { bus, store, clock, _stop: stop }
    }

    async fn send(&self, ids: &[&str]) {
        let messages = ids.iter().map(|id| Message { id: (*id).to_owned(), ..Message::default() });
        self.bus.send("q", messages.collect()).await.unwrap();
    }

    /// The sum that the handlers have added up.
    async fn sum(&self) -> i64 {
        let item = self.store.get(&sums(), &Key::new("sum")).await.unwrap();
        item.and_then(|item: Item| item.int("n")).unwrap_or(0)
    }
}

fn queue() -> Definition {
    let retry = Retry { base_seconds: 1.0, jitter: false, ..Retry::default() };
    Definition { max_delivery_count: 3, retry: Some(retry), ..Definition::new(Kind::Queue) }
}

fn sums() -> Table {
    Table::new("sums", "id", KeyKind::S)
}

/// The sample: adds one for each message. What it is told to do with some of them stands in their ids.
struct Adder {
    handled: mpsc::UnboundedSender<String>,
    running: AtomicUsize,
    most: AtomicUsize,
}

impl Adder {
    fn new() -> (Arc<Self>, mpsc::UnboundedReceiver<String>) {
        let (handled, heard) = mpsc::unbounded_channel();
        (Arc::new(Self { handled, running: AtomicUsize::new(0), most: AtomicUsize::new(0) }), heard)
    }
}

#[async_trait]
impl Handler for Adder {
    fn name(&self) -> &'static str {
        "adder"
    }

    async fn handle(&self, delivery: &Delivery) -> Verdict {
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
        let id = delivery.message.message.id.clone();
        tokio::time::sleep(Duration::from_millis(10)).await;
        self.running.fetch_sub(1, Ordering::SeqCst);
        let _ = self.handled.send(format!("{id}/{}", delivery.number));
        match id.as_str() {
            "panics" => panic!("on purpose"),
            "hangs" => std::future::pending().await,
            "retries" if delivery.number < 3 => Verdict::Retry("not yet".to_owned()),
            "refused" => Verdict::Permanent("bad schema".to_owned()),
            _ => Verdict::Done(vec![Write::update(&sums(), Key::new("sum"), vec![Change::Add("n".into(), 1)])]),
        }
    }
}

async fn heard(heard: &mut mpsc::UnboundedReceiver<String>, count: usize) -> Vec<String> {
    let mut all = Vec::new();
    while all.len() < count {
        all.push(heard.recv().await.unwrap());
    }
    all
}

/// Lets time pass by all clocks until the queue is as wanted.
async fn until(world: &World, done: impl Fn(&tidings::bus::figures::Figures) -> bool) {
    let line = world.bus.line(&Path::queue("q")).unwrap();
    for _ in 0..1000 {
        if done(&line.figures()) {
            return;
        }
        world.clock.advance(Duration::from_millis(100));
        world.bus.settle_time().await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("it does not come to an end: {:?}", line.figures());
}

// S003-77: one after the other by default.
#[tokio::test(start_paused = true)]
async fn messages_are_handled_one_after_the_other_in_order() {
    let world = World::new(queue()).await;
    let (adder, mut hears) = Adder::new();
    world.bus.register(Path::queue("q"), adder.clone(), Consumer::default());
    world.send(&["a", "b", "c"]).await;
    assert_eq!(heard(&mut hears, 3).await, ["a/1", "b/1", "c/1"]);
    until(&world, |figures| figures.outgoing == 3).await;
    assert_eq!((world.sum().await, adder.most.load(Ordering::SeqCst)), (3, 1));
}

#[tokio::test(start_paused = true)]
async fn more_are_handled_at_once_where_that_is_wanted() {
    let world = World::new(queue()).await;
    let (adder, mut hears) = Adder::new();
    world.bus.register(Path::queue("q"), adder.clone(), Consumer { concurrency: 4, ..Consumer::default() });
    world.send(&["a", "b", "c", "d", "e", "f"]).await;
    heard(&mut hears, 6).await;
    until(&world, |figures| figures.outgoing == 6).await;
    assert_eq!(adder.most.load(Ordering::SeqCst), 4);
}

// S003-78, S003-82, S003-92: what one message does to its handler is that message's failure alone.
#[tokio::test(start_paused = true)]
async fn panics_hangs_and_refusals_end_among_the_dead_letters_and_hold_nobody_up() {
    let world = World::new(queue()).await;
    let (adder, _hears) = Adder::new();
    let consumer = Consumer { timeout: Duration::from_secs(2), ..Consumer::default() };
    world.bus.register(Path::queue("q"), adder, consumer);
    world.send(&["panics", "hangs", "refused", "retries", "good"]).await;
    until(&world, |figures| figures.outgoing == 2 && figures.dead_lettered == 3).await;
    assert_eq!(world.sum().await, 2);
    let dead = world.bus.line(&Path::queue("q").dead_letters()).unwrap();
    let mut letters: Vec<_> = dead.receive(9, Duration::ZERO, None).await.unwrap();
    letters.sort_by_key(|taken| taken.held.message.message.id.clone());
    let told: Vec<_> = letters
        .iter()
        .map(|taken| {
            let letter = taken.held.message.dead.clone().unwrap();
            (taken.held.message.message.id.clone(), letter.reason, letter.deliveries)
        })
        .collect();
    assert_eq!(
        told,
        [
            ("hangs".to_owned(), "MaxDeliveryCountExceeded".to_owned(), 3),
            ("panics".to_owned(), "MaxDeliveryCountExceeded".to_owned(), 3),
            ("refused".to_owned(), "HandlerRefused".to_owned(), 1),
        ]
    );
    let attempts = &letters[1].held.message.attempts;
    assert_eq!(attempts.len(), 3);
    assert_eq!(attempts[0].description.as_deref(), Some("the handler panicked: on purpose"));
    assert_eq!(
        letters[0].held.message.attempts[0].description.as_deref(),
        Some("the handler did not end within 2000 ms")
    );
    assert_eq!(attempts[0].consumer.as_deref(), Some("adder"));
}

// S003-80, S003-111: the same message sent twice has its effect once.
#[tokio::test(start_paused = true)]
async fn an_effect_comes_about_once_for_each_message_id() {
    let world = World::new(queue()).await;
    let (adder, mut hears) = Adder::new();
    world.bus.register(Path::queue("q"), adder, Consumer::default());
    world.send(&["same"]).await;
    heard(&mut hears, 1).await;
    until(&world, |figures| figures.outgoing == 1).await;
    world.send(&["same", "other"]).await;
    assert_eq!(heard(&mut hears, 1).await, ["other/1"]);
    until(&world, |figures| figures.outgoing == 3).await;
    assert_eq!(world.sum().await, 2);
}

// S003-14: the lock is shorter than the handler takes, and is renewed.
#[tokio::test(start_paused = true)]
async fn the_lock_is_renewed_while_a_handler_runs() {
    struct Slow(mpsc::UnboundedSender<()>, Arc<ManualClock>);
    #[async_trait]
    impl Handler for Slow {
        fn name(&self) -> &'static str {
            "slow"
        }

        async fn handle(&self, _: &Delivery) -> Verdict {
            for _ in 0..20 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                self.1.advance(Duration::from_secs(1));
            }
            let _ = self.0.send(());
            Verdict::Done(Vec::new())
        }
    }
    let world = World::new(Definition { lock_seconds: 5, ..queue() }).await;
    let (sender, mut done) = mpsc::unbounded_channel();
    world.bus.register(Path::queue("q"), Arc::new(Slow(sender, world.clock.clone())), Consumer::default());
    world.send(&["long"]).await;
    done.recv().await.unwrap();
    until(&world, |figures| figures.outgoing == 1).await;
    assert!(done.try_recv().is_err(), "handled once");
}
