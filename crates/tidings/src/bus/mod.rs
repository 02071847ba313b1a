//! The bus: durable queues, topics with subscriptions, dead letters and schedules (seed 003), in the words of Azure
//! Service Bus. This is the broker; `http` is one face of it, and it knows nothing of faces.
//!
//! # For other parts of the program
//!
//! ```text
//! // A message of its own: durable when it returns.
//! bus.send("ocr-processing-queue", vec![Message::json("id", &json!({ "invoiceId": … }))]).await?;
//!
//! // A message in somebody else's transaction: both, or neither.
//! let prepared = bus.prepare("domain-events-topic", message).await?;   // fan-out to subscriptions happens here
//! let prepared = prepared.and(bus.prepare("other-queue", another).await?);   // always join before use
//! writes.extend(prepared.writes());
//! let outcome = store.transact(writes).await;
//! prepared.resolve(&outcome);           // or `committed()` / `aborted()`; what is dropped is looked up in the store
//!
//! // A scheduled message (`deliver_at`) with a business key (`key`), and its cancellation in a transaction.
//! let (prepared, count) = bus.prepare_cancel("transfer-expiration-queue", "transfer-7").await?;
//!
//! // A handler: a consumer in this process.
//! bus.register(Path::queue("ocr-processing-queue"), Arc::new(MyHandler), Consumer { timeout, ..Consumer::default() });
//! ```
//!
//! A handler (`handler::Handler`) gets a delivery and a deadline and answers `Done(writes)`, `Retry(why)` or
//! `Permanent(why)`. `Done`'s writes, the record that it was handled and the end of the message are one transaction.
//!
//! # How it is built
//!
//! `layout` is what lies where in the store. `lane`, `state` and `rest` decide, purely: a bounded window on each lane,
//! locks, order, waits. `line`, `send`, `receive`, `settle` and `leave` carry it out, `timed` does what the clock demands,
//! `worker` is the clock. `prepared` holds writes and what to tell the lines once they are durable. `entity`, `definition` and `manage` are queues,
//! topics and subscriptions, `push` and `pump` those that call an endpoint; `filter` decides who gets a copy, `fanout`
//! makes those that are too many for one transaction; `desk` deals with dead letters, `letters` shows them at the desk for
//! all, `history` keeps what became of messages.
//!
//! Durable are messages, deliveries, schedules and dead letters. Windows, locks and timers are in memory and die with
//! the process: what was locked is delivered again, and counted.
//!
//! On a store that several nodes share, an entity's lines belong to one of them at a time (`ownership`, `fence`): its
//! writes carry its epoch as a condition, and `Prepared` is the one place they all pass. Whoever else has a message for a
//! line posts it (`posts`), and calls that need what is in memory are forwarded to the node that has it.

mod carry;
mod copies;
pub mod declared;
mod deferred;
pub mod definition;
pub mod desk;
pub mod doubts;
pub mod entity;
pub mod fanout;
pub mod fence;
pub mod figures;
pub mod filter;
pub mod handler;
pub mod handout;
pub mod history;
pub mod http;
pub mod lane;
pub mod layout;
mod leave;
pub mod letters;
pub mod line;
pub mod manage;
pub mod message;
mod metrics;
pub mod once;
mod ownership;
pub mod path;
pub mod pool;
mod posts;
pub mod prepared;
mod pump;
pub mod push;
mod receive;
pub mod rest;
pub mod resubmit;
mod send;
pub mod settle;
mod shared;
pub mod state;
mod timed;
pub mod worker;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tidings_core::envelope::FieldError;
use tidings_core::ids::IdSource;
use tidings_core::time::Clock;
use tidings_store::{Error, Store};
use tokio::sync::{mpsc, watch};

use definition::Kind;
use entity::{Body, Entity, Pair, Record, Subscription};
pub use layout::{seen_table, table};
use line::{Line, LineError, Shared};
pub use message::Message;
pub use ownership::Where;
pub use path::Path;
pub use prepared::{Prepared, Sent};
pub(crate) use send::Way;
pub use send::{MESSAGE_BYTES, PROPERTY_BYTES, of_event};

use crate::nodes::Nodes;

/// Why the bus does not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    #[error("there is no entity {0} on the bus")]
    NoEntity(String),
    #[error("it is a {0:?} already, and what an entity is cannot change")]
    OtherKind(Kind),
    #[error("{0}")]
    WrongKind(String),
    #[error("{0} already, and no more are possible")]
    TooMany(String),
    #[error(
        "{0} dead letters have this message id, and `body` can be that of one only: name it by its sequence number"
    )]
    Ambiguous(usize),
    #[error("{0}")]
    TooLarge(String),
    #[error("the dead letters of {0} have reached deadLetterMaxBytes; deal with them first")]
    Full(String),
    #[error("the message is no event of its kind: {}", .0.iter().map(|e| format!("{} {}", e.field, e.message)).collect::<Vec<_>>().join("; "))]
    Invalid(Vec<FieldError>),
    #[error(transparent)]
    Line(#[from] LineError),
    #[error(transparent)]
    Store(#[from] Error),
}

/// The broker.
pub struct Bus {
    pub shared: Arc<Shared>,
    entities: RwLock<BTreeMap<String, Arc<Entity>>>,
    /// Held by whoever opens lines, or changes who has them.
    changing: tokio::sync::Mutex<()>,
    /// The last change of entities that this process knows of.
    version: std::sync::atomic::AtomicI64,
    /// As of when it is known that there was no later one. Held by whoever takes changes over.
    known: tokio::sync::Mutex<Option<tokio::time::Instant>>,
    /// By the generation of a topic.
    fanouts: std::sync::Mutex<BTreeMap<String, Arc<fanout::Fanout>>>,
    doubts: tokio::sync::Mutex<Option<mpsc::UnboundedReceiver<Prepared>>>,
    /// Rung when a push subscription may have been made.
    pushing: tokio::sync::Notify,
    /// Held by whoever does something to many dead letters.
    pub desk: tokio::sync::Mutex<()>,
}

/// The bus with its entities, and those of the configuration.
pub async fn open(
    config: &crate::config::Config,
    store: &Arc<dyn Store>,
    clock: &Arc<dyn Clock>,
    ids: &Arc<dyn IdSource>,
    stopping: watch::Receiver<bool>,
    nodes: Option<&Arc<Nodes>>,
) -> Result<Arc<Bus>, Error> {
    let nodes = nodes.cloned();
    let bus = Bus::open_among(Arc::clone(store), Arc::clone(clock), Arc::clone(ids), stopping, nodes).await?;
    bus.shared.keep_history(config.retention.messages_days);
    bus.shared.take_from(&config.limits.event_sources);
    bus.declare(&declared::all(config)).await?;
    Ok(bus)
}

impl Bus {
    /// How many messages handlers of this process were done with so far.
    #[must_use]
    pub fn handled(&self) -> watch::Receiver<u64> {
        self.shared.handled.subscribe()
    }

    /// Opens the bus with the entities that are stored.
    pub async fn open(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
        stopping: watch::Receiver<bool>,
    ) -> Result<Arc<Self>, Error> {
        Self::open_among(store, clock, ids, stopping, None).await
    }

    /// The same on a store that other nodes work on, too.
    pub async fn open_among(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
        stopping: watch::Receiver<bool>,
        nodes: Option<Arc<Nodes>>,
    ) -> Result<Arc<Self>, Error> {
        let (sender, doubts) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared::new(store, clock, ids, sender, stopping, nodes));
        let bus = Arc::new(Self {
            shared,
            entities: RwLock::default(),
            changing: tokio::sync::Mutex::default(),
            version: std::sync::atomic::AtomicI64::new(0),
            known: tokio::sync::Mutex::default(),
            fanouts: std::sync::Mutex::default(),
            doubts: tokio::sync::Mutex::new(Some(doubts)),
            pushing: tokio::sync::Notify::new(),
            desk: tokio::sync::Mutex::default(),
        });
        bus.load().await?;
        Ok(bus)
    }

    // ---- finding -------------------------------------------------------------------------------------------------

    fn read_entities(&self) -> RwLockReadGuard<'_, BTreeMap<String, Arc<Entity>>> {
        self.entities.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_entities(&self) -> RwLockWriteGuard<'_, BTreeMap<String, Arc<Entity>>> {
        self.entities.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues and topics in the order of their names.
    #[must_use]
    pub fn entities(&self) -> Vec<Arc<Entity>> {
        self.read_entities().values().cloned().collect()
    }

    #[must_use]
    pub fn lines(&self) -> Vec<Arc<Line>> {
        self.read_entities().values().flat_map(|entity| entity.lines().cloned().collect::<Vec<_>>()).collect()
    }

    pub fn entity(&self, name: &str) -> Result<Arc<Entity>, BusError> {
        self.read_entities().get(name).cloned().ok_or_else(|| BusError::NoEntity(name.to_owned()))
    }

    fn topic(&self, name: &str) -> Result<Arc<Entity>, BusError> {
        let entity = self.entity(name)?;
        match entity.body {
            Body::Topic(_) => Ok(entity),
            Body::Queue(_) => Err(BusError::WrongKind(format!("{name} is a queue; only topics have subscriptions"))),
        }
    }

    pub fn subscription(&self, topic: &str, name: &str) -> Result<Arc<Subscription>, BusError> {
        let found = match &self.topic(topic)?.body {
            Body::Topic(subscriptions) => subscriptions.get(name).cloned(),
            Body::Queue(_) => None,
        };
        found.ok_or_else(|| BusError::NoEntity(Path::subscription(topic, name).to_string()))
    }

    /// What is received from under a path.
    pub fn line(&self, path: &Path) -> Result<Arc<Line>, BusError> {
        let line = |pair: &Pair| Arc::clone(if path.dead { &pair.dead } else { &pair.main });
        match &path.subscription {
            Some(name) => Ok(line(&self.subscription(&path.entity, name)?.pair)),
            None => match &self.entity(&path.entity)?.body {
                Body::Queue(pair) => Ok(line(pair)),
                Body::Topic(_) => {
                    let why = format!("{} is a topic; messages are received from its subscriptions", path.entity);
                    Err(BusError::WrongKind(why))
                }
            },
        }
    }

    #[must_use]
    pub fn record(&self, path: &Path) -> Option<Record> {
        match &path.subscription {
            Some(name) => self.subscription(&path.entity, name).ok().map(|found| found.record.clone()),
            None => self.entity(&path.entity).ok().map(|found| found.record.clone()),
        }
    }

    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        let mut records = Vec::new();
        for entity in self.entities() {
            records.push(entity.record.clone());
            if let Body::Topic(subscriptions) = &entity.body {
                records.extend(subscriptions.values().map(|subscription| subscription.record.clone()));
            }
        }
        records
    }
}
