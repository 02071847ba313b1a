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
//! locks, order, waits. `line` and `settle` carry it out, `timed` does what the clock demands, `worker` is the clock.
//! `prepared` holds writes and what to tell the lines once they are durable. `entity`, `definition` and `manage` are queues,
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
pub mod history;
pub mod http;
pub mod lane;
pub mod layout;
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
pub mod settle;
mod shared;
pub mod state;
mod timed;
pub mod worker;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tidings_core::envelope::FieldError;
use tidings_core::ids::IdSource;
use tidings_core::time::{self, Clock};
use tidings_store::{Error, Item, Store, Write};
use tokio::sync::{mpsc, watch};

use definition::Kind;
use entity::{Body, Entity, Record, Subscription};
pub use layout::{seen_table, table};
use line::{Line, LineError, Shared};
pub use message::Message;
pub use ownership::Where;
pub use path::Path;
pub use prepared::{Prepared, Sent};

use crate::nodes::Nodes;

/// Bytes of a message: its body and its properties together, and its properties alone.
pub const MESSAGE_BYTES: usize = 262_144;
pub const PROPERTY_BYTES: usize = 65_536;
/// What a message may take in the store, with room left for what becomes of it.
const STORED_BYTES: usize = 340_000;

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
        let pair = match &path.subscription {
            Some(name) => self.subscription(&path.entity, name)?.pair.clone(),
            None => match &self.entity(&path.entity)?.body {
                Body::Queue(pair) => pair.clone(),
                Body::Topic(_) => {
                    let why = format!("{} is a topic; messages are received from its subscriptions", path.entity);
                    return Err(BusError::WrongKind(why));
                }
            },
        };
        Ok(if path.dead { pair.dead } else { pair.main })
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

    // ---- sending -------------------------------------------------------------------------------------------------

    /// Sends messages to a queue or topic; durable when it returns. A message whose id was seen within the entity's
    /// window is taken and dropped. Nothing is sent if one of them cannot be.
    pub async fn send(&self, entity: &str, messages: Vec<Message>) -> Result<Vec<Sent>, BusError> {
        self.send_from(self.shared.sources(), entity, messages).await
    }

    /// The same for what a part of the house sends: it is no foreign source.
    pub async fn send_own(&self, entity: &str, messages: Vec<Message>) -> Result<Vec<Sent>, BusError> {
        self.send_from(&[], entity, messages).await
    }

    async fn send_from(
        &self,
        sources: &[String],
        entity: &str,
        mut messages: Vec<Message>,
    ) -> Result<Vec<Sent>, BusError> {
        let entity = self.entity_anywhere(entity).await?;
        for message in &messages {
            check_size(message)?;
        }
        if let Some(full) = entity.lines().find(|line| line.is_full()) {
            return Err(BusError::Full(full.path.clone()));
        }
        self.judge(&entity, &mut messages, sources)?;
        if self.shared.nodes.is_some() {
            return self.send_among(&entity, messages).await;
        }
        Ok(self.send_by(&entity, messages, Way::Straight).await?.0)
    }

    /// What was sent, and what was not because the entity is no longer ours.
    async fn send_by(
        &self,
        entity: &Entity,
        messages: Vec<Message>,
        way: Way,
    ) -> Result<(Vec<Sent>, Vec<Message>), BusError> {
        let mut transactions: Vec<Prepared> = Vec::new();
        let detects = entity.record.definition.duplicate_window_seconds > 0;
        // What is refused must be there to be posted.
        let may_be_refused = way == Way::Straight && self.shared.nodes.is_some();
        let mut groups: Vec<Vec<Message>> = Vec::new();
        let mut rest = messages.into_iter();
        while let Some(mut message) = rest.next() {
            let marker = self.marker(entity, &message);
            let kept = may_be_refused.then(|| message.clone());
            let mark = message.mark.take();
            let mut prepared = match Box::pin(self.prepare_for(entity, message, way)).await {
                Err(BusError::Store(Error::Throttled(_))) if may_be_refused => {
                    transactions.into_iter().for_each(Prepared::aborted);
                    return Ok((Vec::new(), groups.into_iter().flatten().chain(kept).chain(rest).collect()));
                }
                prepared => prepared?,
            };
            if let Some(mark) = mark {
                prepared.write(mark.of(&prepared.sent));
            }
            if let Some(marker) = marker {
                prepared.write_first(marker);
            }
            match transactions.last() {
                // A duplicate must not take others with it.
                Some(last) if !detects && last.fits(&prepared) => {
                    let last = transactions.pop().unwrap_or_default();
                    transactions.push(last.and(prepared));
                    if let Some(group) = groups.last_mut() {
                        group.extend(kept);
                    }
                }
                _ => {
                    transactions.push(prepared);
                    groups.push(kept.into_iter().collect());
                }
            }
        }
        let (mut sent, mut refused) = (Vec::new(), Vec::new());
        let sents: Vec<Vec<Sent>> = transactions.iter().map(|prepared| prepared.sent.clone()).collect();
        let empty: Vec<bool> = transactions.iter().map(Prepared::is_empty).collect();
        transactions.retain(|prepared| !prepared.is_empty());
        let mut outcomes = Prepared::run_each(&*self.shared.store, transactions).await.into_iter();
        for ((done, is_empty), group) in sents.into_iter().zip(empty).zip(groups) {
            match if is_empty { Ok(()) } else { outcomes.next().unwrap_or(Ok(())) } {
                Err(error) if detects && error.conflict_on(0).is_some() => sent.extend(done),
                Err(Error::Conflict { .. }) if may_be_refused => refused.extend(group),
                Ok(()) => sent.extend(done),
                Err(error) => return Err(error.into()),
            }
        }
        Ok((sent, refused))
    }

    /// What is a business event must be a good one, by whatever door it comes (S003-71), and says what it is.
    fn judge(&self, entity: &Entity, messages: &mut [Message], sources: &[String]) -> Result<(), BusError> {
        let now = self.shared.clock.now();
        let (mut errors, count) = (Vec::new(), messages.len());
        for (place, message) in messages.iter_mut().enumerate() {
            let wrong = crate::business::message::admit(&entity.record.path, message, sources, now);
            errors.extend(wrong.into_iter().map(|error| match count {
                1 => error,
                _ => FieldError::new(format!("[{place}].{}", error.field), error.message),
            }));
        }
        if errors.is_empty() { Ok(()) } else { Err(BusError::Invalid(errors)) }
    }

    /// The writes that send a message, for the caller's own transaction. Empty if nobody would get it, or if its id was
    /// seen before.
    pub async fn prepare(&self, entity: &str, message: Message) -> Result<Prepared, BusError> {
        let entity = self.entity_anywhere(entity).await?;
        // What is inside already is as large as it is; its properties are beside it.
        check_room(&message)?;
        let marker = self.marker(&entity, &message);
        if let Some(Write::Put { table, item, .. }) = &marker
            && self.shared.store.get(table, &table.key_of(item)?).await?.is_some()
        {
            return Ok(Prepared::default());
        }
        // A transaction that is not the bus's own must not fail because a line changes hands.
        let way = self.way();
        // Many hold this within theirs: it keeps them small.
        let mut prepared = Box::pin(self.prepare_for(&entity, message, way)).await?;
        if let Some(marker) = marker {
            prepared.write_first(marker.when(tidings_store::Condition::None));
        }
        Ok(prepared)
    }

    /// The writes that cancel the scheduled messages with this business key, and how many they are.
    pub async fn prepare_cancel(&self, entity: &str, key: &str) -> Result<(Prepared, usize), BusError> {
        let line = self.line(&Path::queue(entity))?;
        Ok(line.prepare_cancel(key).await?)
    }

    async fn prepare_for(&self, entity: &Entity, message: Message, way: Way) -> Result<Prepared, BusError> {
        let now = self.shared.clock.now();
        let subscriptions = match &entity.body {
            Body::Queue(pair) => return Ok(pair.main.prepare(message, now, way).await?),
            Body::Topic(subscriptions) => subscriptions,
        };
        let mut message = message;
        let ttl = entity.record.definition.settings().ttl;
        message.ttl = match (message.ttl, ttl) {
            (Some(own), Some(most)) => Some(own.min(most)),
            (own, most) => own.or(most),
        };
        self.prepare_copies(entity, subscriptions, message, now, way).await
    }

    /// The write that remembers a message's id, if the entity does that.
    fn marker(&self, entity: &Entity, message: &Message) -> Option<Write> {
        let seconds = entity.record.definition.duplicate_window_seconds;
        let until = time::second_after(self.shared.clock.now(), seconds);
        let item = Item::new().with("line", &entity.record.generation).with("id", &message.id).with("ttl", until);
        (seconds > 0).then(|| Write::insert(seen_table(), item))
    }
}

/// How a message comes to its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// To its place, by whoever has the line.
    Straight,
    /// By post: whoever has the line takes it in.
    Post,
    /// The same, behind everything that was posted by then, on whichever node.
    PostAfter(tokio::time::Instant),
}

/// An event as a message: its envelope is the body, and its type the subject, by which subscriptions choose.
#[must_use]
pub fn of_event(envelope: &tidings_core::envelope::Envelope, rule: Option<&str>) -> Message {
    let texts = [
        ("eventType", Some(envelope.event_type.as_str())),
        ("eventVersion", Some(envelope.event_version.as_str())),
        ("source", envelope.source.as_deref()),
        ("rule", rule),
    ];
    let properties = texts.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text?.into())));
    Message {
        id: envelope.event_id.clone(),
        body: bytes::Bytes::from(envelope.to_json()),
        content_type: Some("application/json".to_owned()),
        correlation_id: Some(envelope.correlation_id.clone()),
        subject: Some(envelope.event_type.clone()),
        properties: properties.collect(),
        ..Message::default()
    }
}

fn check_size(message: &Message) -> Result<(), BusError> {
    let properties = message.property_bytes();
    if properties > PROPERTY_BYTES {
        let why = format!("the message's properties have {properties} bytes, at most {PROPERTY_BYTES} are allowed");
        return Err(BusError::TooLarge(why));
    }
    let bytes = properties + message.body.len();
    if bytes > MESSAGE_BYTES {
        let why = format!("the message has {bytes} bytes with its properties, at most {MESSAGE_BYTES} are allowed");
        return Err(BusError::TooLarge(why));
    }
    check_room(message)
}

/// What cannot be stored cannot be sent.
fn check_room(message: &Message) -> Result<(), BusError> {
    // Properties that need much escaping take more room than they have bytes.
    let may_swell = message.property_bytes() > (STORED_BYTES - MESSAGE_BYTES) / 6 || message.body.len() > MESSAGE_BYTES;
    if may_swell && message.body.len() + serde_json::to_string(message).map_or(0, |head| head.len()) > STORED_BYTES {
        return Err(BusError::TooLarge("the message takes too much room in the store with its properties".to_owned()));
    }
    Ok(())
}
