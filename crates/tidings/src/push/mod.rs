//! The built-in push server: ntfy's HTTP protocol, so that ntfy's clients work with it (S002-68).
//!
//! `http` serves it on a listener of its own, `publish` reads what somebody sends (`actions` its buttons), `subscribe` is
//! what a listener gets, `access` says who may. Messages are kept in the store for a while; those who listen are woken after
//! the commit.
//! The `ntfy` channel publishes here without a detour over the network when no other server is configured.

mod access;
mod actions;
mod ago;
mod http;
mod params;
mod publish;
mod record;
mod refusal;
mod subscribe;

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tidings_core::ids::IdSource;
use tidings_core::time::Clock;
use tidings_store::{Error, Query, Store, Write};
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::task::JoinHandle;
use uuid::Uuid;

use self::publish::Draft;
use self::record::{Event, Message};
use crate::channel::{Outcome, ntfy};

pub use http::router;
pub use record::table;
pub use refusal::Refusal;

/// Messages a slow subscriber may be behind before it has to read from the store again.
const BEHIND: usize = 1024;
/// Messages that wait to be written; more publishers wait at the door.
const WAITING: usize = 1024;
/// How far ahead numbers are reserved, in microseconds: one more write each second, at the most.
const RESERVED_AHEAD: i64 = 1_000_000;
/// Messages written at once.
const BATCH: usize = 100;
/// The characters of ntfy's ids, and how long those of messages and of actions are.
const ID_CHARACTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const ID_LEN: usize = 12;
const ACTION_ID_LEN: usize = 10;

/// The messages of the push server.
pub struct Push {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    keep_seconds: i64,
    /// Other nodes publish, too, and nobody here hears of it at once.
    shared: AtomicBool,
    waiting: mpsc::Sender<Waiting>,
    live: broadcast::Sender<Arc<Message>>,
    /// The `seq` of the last message that was announced.
    head: Arc<AtomicI64>,
    /// The task that writes, and what tells it to end.
    writer: Mutex<Option<(oneshot::Sender<()>, JoinHandle<()>)>>,
}

/// A message on its way to the store, and who wants to know what became of it.
struct Waiting {
    message: Message,
    done: oneshot::Sender<Result<Arc<Message>, Error>>,
}

impl Push {
    /// Begins where the last one ended. A task of its own writes the messages.
    pub async fn open(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
        keep_hours: u64,
    ) -> Result<Arc<Self>, Error> {
        let reserved = record::read_reserved(&*store).await?;
        let (waiting, queue) = mpsc::channel(WAITING);
        let live = broadcast::channel(BEHIND).0;
        let head = Arc::new(AtomicI64::new(reserved));
        let writer = Writer {
            store: Arc::clone(&store),
            clock: Arc::clone(&clock),
            live: live.clone(),
            head: Arc::clone(&head),
            reserved,
        };
        let (close, closing) = oneshot::channel();
        let writer = Mutex::new(Some((close, tokio::spawn(writer.run(queue, closing)))));
        let keep_seconds = i64::try_from(keep_hours.saturating_mul(3600)).unwrap_or(i64::MAX / 2);
        let shared = AtomicBool::new(false);
        Ok(Arc::new(Self { store, clock, ids, keep_seconds, shared, waiting, live, head, writer }))
    }

    /// Looks now and then for what other nodes have published.
    pub fn share(&self) {
        self.shared.store(true, Ordering::Release);
    }

    fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Acquire)
    }

    /// Writes what is waiting, and nothing more: for the end, when nobody publishes any longer.
    pub async fn close(&self) {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((close, ended)) = writer {
            drop(close);
            let _ = ended.await;
        }
    }

    async fn publish(&self, id: String, mut draft: Draft, correlation_id: &str) -> Result<Arc<Message>, Error> {
        draft.name_actions(|| self.random_id(ACTION_ID_LEN));
        let time = self.clock.now().as_second();
        let message = Message {
            id,
            time,
            expires: draft.keep.then(|| time.saturating_add(self.keep_seconds)),
            event: Event::Message,
            topic: draft.topic,
            content: draft.content,
            seq: 0,
            correlation_id: correlation_id.to_owned(),
        };
        let ended = || Error::Throttled("the push server is stopping".to_owned());
        let (done, outcome) = oneshot::channel();
        self.waiting.send(Waiting { message, done }).await.map_err(|_| ended())?;
        outcome.await.map_err(|_| ended())?
    }

    /// The message of that id, if it is kept.
    async fn find(&self, id: &str) -> Result<Option<Message>, Error> {
        let page = self.store.query(table(), &Query::new(id).index("id-index").limit(1)).await?;
        page.items.first().map(Message::from_item).transpose()
    }

    fn new_id(&self) -> String {
        self.random_id(ID_LEN)
    }

    fn random_id(&self, len: usize) -> String {
        let mut random = [0; 16];
        self.ids.random(&mut random);
        id_from(u128::from_be_bytes(random), len)
    }
}

/// An id as ntfy makes them, from a number.
fn id_from(number: u128, len: usize) -> String {
    let mut rest = number;
    let mut digit = || {
        let place = usize::try_from(rest % 62).unwrap_or(0);
        rest /= 62;
        char::from(ID_CHARACTERS.get(place).copied().unwrap_or(b'0'))
    };
    (0..len).map(|_| digit()).collect()
}

/// The one that writes: whoever reads `since` a message has seen all before it, because they are committed in order.
struct Writer {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    live: broadcast::Sender<Arc<Message>>,
    head: Arc<AtomicI64>,
    /// Numbers up to this one are ours, and will not be given again after a restart.
    reserved: i64,
}

impl Writer {
    async fn run(mut self, mut queue: mpsc::Receiver<Waiting>, mut closing: oneshot::Receiver<()>) {
        let mut batch = Vec::with_capacity(BATCH);
        let mut open = true;
        loop {
            tokio::select! {
                count = queue.recv_many(&mut batch, BATCH) => match count {
                    0 => return,
                    _ => self.write(std::mem::take(&mut batch)).await,
                },
                _ = &mut closing, if open => {
                    open = false;
                    queue.close();
                }
            }
        }
    }

    async fn write(&mut self, batch: Vec<Waiting>) {
        let mut seq = self.head.load(Ordering::Acquire);
        let mut messages = Vec::with_capacity(batch.len());
        for Waiting { mut message, done } in batch {
            // The wall clock may jump back; the order must not.
            seq = self.clock.now().as_microsecond().max(seq.saturating_add(1));
            message.seq = seq;
            messages.push((Arc::new(message), done));
        }
        if let Err(error) = self.reserve(seq).await {
            let error = error.to_string();
            messages.into_iter().for_each(|(_, done)| drop(done.send(Err(Error::Throttled(error.clone())))));
            return;
        }
        let kept = messages.iter().filter(|(message, _)| message.expires.is_some());
        let writes: Vec<_> = kept.map(|(message, _)| vec![Write::insert(table(), message.to_item())]).collect();
        let mut answers =
            if writes.is_empty() { Vec::new() } else { self.store.transact_each(writes).await }.into_iter();
        for (message, done) in messages {
            let answer = if message.expires.is_some() { answers.next().unwrap_or(Ok(())) } else { Ok(()) };
            if answer.is_ok() {
                self.head.store(message.seq, Ordering::Release);
                let _ = self.live.send(Arc::clone(&message));
            }
            let _ = done.send(answer.map(|()| message));
        }
    }

    /// Makes sure that no number up to `seq` is given again, not even by a clock that stands further back next time.
    async fn reserve(&mut self, seq: i64) -> Result<(), Error> {
        if seq > self.reserved {
            let ahead = seq.saturating_add(RESERVED_AHEAD);
            match self.store.transact(vec![record::reservation(ahead)]).await {
                // Another node has reserved more.
                Ok(()) | Err(Error::Conflict { .. }) => self.reserved = ahead,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The channel's way in. The id follows from the message's, so that an attempt that is repeated after a crash finds what
/// the first one left instead of publishing it again.
#[async_trait]
impl ntfy::BuiltIn for Push {
    async fn publish(&self, notice: ntfy::Publish<'_>, message_id: Uuid, correlation_id: &str) -> Outcome {
        let id = id_from(Uuid::new_v5(&Uuid::NAMESPACE_OID, message_id.as_bytes()).as_u128(), ID_LEN);
        let params = params::Params::default();
        let json = serde_json::to_vec(&notice).expect("strings and numbers are JSON");
        let draft = match publish::from_json(&params, &json) {
            Ok(draft) => draft,
            Err(refusal) => return Outcome::reject(refusal.text()),
        };
        let published = match self.find(&id).await {
            Ok(None) => Self::publish(self, id.clone(), draft, correlation_id).await.map(|_| ()),
            found => found.map(|_| ()),
        };
        match published {
            Ok(()) => Outcome::Delivered { id: Some(id), detail: "published by the built-in push server".to_owned() },
            Err(error) => Outcome::retry(error.to_string()),
        }
    }
}
