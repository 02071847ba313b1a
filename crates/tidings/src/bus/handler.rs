//! Handlers: consumers in this process (S003-77, S003-78, S003-80, S003-82).
//!
//! A handler gets a message and a deadline, in a task of its own: one that panics or hangs fails for its message and for
//! nobody else. The lock is renewed while it runs. What it wants written, the record that it has handled the message and
//! the end of the message are one transaction, so an effect comes about exactly once, however often it is delivered.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tidings_core::retry::Policy;
use tidings_core::time::Timestamp;
use tidings_store::{Condition, Error, Item, Key, Write};

use super::line::{Line, LineError};
use super::message::Stored;
use super::pool::{Pool, Priority, Turn};
use super::settle::{Settlement, Why};
use super::state::Taken;
use super::{Bus, Path, seen_table};
use crate::workers::turned_true;

/// How long it is remembered that a message was handled.
const REMEMBERED_SECONDS: i64 = 7 * 86_400;
/// How long a consumer waits for a message before it looks again whether its line is still the same.
const WAIT: Duration = Duration::from_secs(60);
/// After something that should not be.
const PAUSE: Duration = Duration::from_secs(1);

/// What handles messages.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// For records and logs; two handlers of one path have different names.
    fn name(&self) -> &'static str;

    async fn handle(&self, delivery: &Delivery) -> Verdict;

    /// There will be no other delivery, and the handler may not know: the process may have ended in the last one. Comes
    /// before the message becomes a dead letter, and again if that fails.
    ///
    /// # Errors
    ///
    /// The store's; then the message stays where it is for now.
    async fn given_up(&self, _message: &Stored, _why: &str) -> Result<(), Error> {
        Ok(())
    }
}

/// A message to be handled.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub path: String,
    pub message: Arc<Stored>,
    /// 1 for the first.
    pub number: u32,
    /// If it fails, there is no other.
    pub last: bool,
    /// By the wall clock; the handler is stopped then.
    pub deadline: Timestamp,
}

/// What came of it.
#[derive(Debug)]
pub enum Verdict {
    /// Done; these writes are its effect.
    Done(Vec<Write>),
    /// It failed, and may succeed later.
    Retry(String),
    /// It cannot succeed (S003-92).
    Permanent(String),
}

/// How messages are handed to a handler.
#[derive(Debug, Clone)]
pub struct Consumer {
    /// For one message.
    pub timeout: Duration,
    /// Messages at the same time; one after the other by default.
    pub concurrency: usize,
    /// Waits between deliveries where the entity has no policy of its own.
    pub retry: Policy,
    /// The workers that it shares with other handlers, and who goes first; absent: it has its own.
    pub pool: Option<(Arc<Pool>, Priority)>,
}

impl Default for Consumer {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(60), concurrency: 1, retry: Policy::default(), pool: None }
    }
}

impl Bus {
    /// Lets a handler have the messages of a path until the server stops.
    pub fn register(self: &Arc<Self>, path: Path, handler: Arc<dyn Handler>, consumer: Consumer) {
        self.shared.handlers.add(path.to_string(), &handler);
        for _ in 0..consumer.concurrency.max(1) {
            let (bus, path, handler, consumer) =
                (Arc::clone(self), path.clone(), Arc::clone(&handler), consumer.clone());
            drop(tokio::spawn(async move { bus.consume(&path, &handler, &consumer).await }));
        }
    }

    async fn consume(&self, path: &Path, handler: &Arc<dyn Handler>, consumer: &Consumer) {
        let mut stopping = self.shared.stopping.clone();
        while !*stopping.borrow() {
            let received = match self.line(path) {
                Ok(line) => match line.receive(1, WAIT, Some(handler.name())).await {
                    Ok(taken) => Ok((line, taken)),
                    Err(LineError::Elsewhere) => {
                        line.wait_for_ours(PAUSE, &mut stopping).await;
                        continue;
                    }
                    Err(error) => Err(error.to_string()),
                },
                Err(error) => Err(error.to_string()),
            };
            match received {
                Ok((line, taken)) => {
                    for taken in taken {
                        line.handle(taken, handler, consumer).await;
                        self.shared.handled.send_modify(|count| *count += 1);
                    }
                }
                Err(error) => {
                    tracing::warn!(handler = handler.name(), %path, error, "cannot receive; it will be tried again");
                    tokio::select! {
                        () = tokio::time::sleep(PAUSE) => {}
                        () = turned_true(&mut stopping) => {}
                    }
                }
            }
        }
    }
}

/// Who handles the messages of which line, in this process, for as long as they do.
#[derive(Default)]
pub(super) struct Handlers(RwLock<BTreeMap<String, Vec<Weak<dyn Handler>>>>);

impl Handlers {
    fn add(&self, path: String, handler: &Arc<dyn Handler>) {
        let mut handlers = self.0.write().unwrap_or_else(PoisonError::into_inner);
        handlers.entry(path).or_default().push(Arc::downgrade(handler));
    }

    fn of(&self, path: &str) -> Vec<Arc<dyn Handler>> {
        let handlers = self.0.read().unwrap_or_else(PoisonError::into_inner);
        handlers.get(path).into_iter().flatten().filter_map(Weak::upgrade).collect()
    }
}

impl Line {
    /// Tells those who handle messages of this line that one is given up.
    pub(super) async fn tell_given_up(&self, message: &Stored, why: &str) -> Result<(), Error> {
        let handlers = self.shared.handlers.of(&self.path);
        for handler in &handlers {
            handler.given_up(message, why).await?;
        }
        if !handlers.is_empty() {
            self.shared.handled.send_modify(|count| *count += 1);
        }
        Ok(())
    }

    /// Has one message handled and settles it.
    pub async fn handle(self: &Arc<Self>, taken: Taken, handler: &Arc<dyn Handler>, consumer: &Consumer) {
        let marker = self.marker(handler.name(), &taken);
        let known = self.shared.store.get(seen_table(), &marker).await;
        let verdict = match known {
            // It was done before, and its end was not seen: nothing is done twice.
            Ok(Some(_)) => Verdict::Done(Vec::new()),
            Ok(None) => {
                let _turn = self.wait_for_turn(&taken, consumer).await;
                self.run_handler(&taken, handler, consumer).await
            }
            Err(error) => Verdict::Retry(error.to_string()),
        };
        let settlement = match verdict {
            Verdict::Done(effect) => match self.finish(&taken, marker, effect).await {
                Ok(()) => return,
                Err(error) => Some(error.to_string()),
            },
            Verdict::Retry(why) => Some(why),
            Verdict::Permanent(why) => {
                let settlement = Settlement::dead_letter("HandlerRefused", why);
                self.settle_logged(&taken, settlement, handler.name()).await;
                return;
            }
        };
        let delay = self.settings().retry.is_none().then(|| {
            let mut random = [0; 8];
            self.shared.ids.random(&mut random);
            let policy = Policy { max_retries: u32::MAX, ..consumer.retry.clone() };
            policy.delay(taken.held.deliveries.max(1), u64::from_le_bytes(random)).unwrap_or_default()
        });
        let why = Why { reason: Some("HandlerFailed".to_owned()), description: settlement };
        self.settle_logged(&taken, Settlement::Abandon { delay, why }, handler.name()).await;
    }

    /// Waits for one of the pool's workers; the message stays ours meanwhile.
    async fn wait_for_turn(self: &Arc<Self>, taken: &Taken, consumer: &Consumer) -> Option<Turn> {
        let (pool, priority) = consumer.pool.as_ref()?;
        let turn = pool.turn(*priority);
        tokio::pin!(turn);
        let every = (self.settings().lock / 3).max(Duration::from_millis(100));
        loop {
            tokio::select! {
                turn = &mut turn => return Some(turn),
                () = tokio::time::sleep(every) => drop(self.settle_one(taken.token, Settlement::Renew).await),
            }
        }
    }

    async fn run_handler(self: &Arc<Self>, taken: &Taken, handler: &Arc<dyn Handler>, consumer: &Consumer) -> Verdict {
        let now = self.now();
        let delivery = Delivery {
            path: self.path.clone(),
            message: Arc::clone(&taken.held.message),
            number: taken.held.deliveries,
            last: self.settings().max_deliveries.is_some_and(|most| taken.held.deliveries >= most),
            deadline: now.wall.saturating_add(consumer.timeout).unwrap_or(Timestamp::MAX),
        };
        let handler = Arc::clone(handler);
        let mut task = tokio::spawn(async move { handler.handle(&delivery).await });
        let timeout = tokio::time::sleep(consumer.timeout);
        tokio::pin!(timeout);
        let every = (self.settings().lock / 3).max(Duration::from_millis(100));
        loop {
            tokio::select! {
                ended = &mut task => return match ended {
                    Ok(verdict) => verdict,
                    Err(error) => Verdict::Retry(panicked(error)),
                },
                () = &mut timeout => {
                    task.abort();
                    let took = consumer.timeout.as_millis();
                    return Verdict::Retry(format!("the handler did not end within {took} ms"));
                }
                () = tokio::time::sleep(every) => {
                    // A lock that is lost shows when the message is settled.
                    drop(self.settle_one(taken.token, Settlement::Renew).await);
                }
            }
        }
    }

    async fn finish(self: &Arc<Self>, taken: &Taken, marker: Key, mut effect: Vec<Write>) -> Result<(), LineError> {
        let until = self.shared.clock.now().as_second().saturating_add(REMEMBERED_SECONDS);
        let item: Item = seen_table().key_item(&marker).with("ttl", until);
        if effect.is_empty() {
            // Nothing that could be done twice.
            effect.push(Write::put(seen_table(), item));
        } else {
            effect.push(Write::put(seen_table(), item).when(Condition::NotExists));
        }
        self.complete_with(taken.token, effect).await
    }

    fn marker(&self, handler: &str, taken: &Taken) -> Key {
        Key::with_sort(format!("handled/{}/{handler}", self.path), taken.held.message.message.id.as_str())
    }

    async fn settle_logged(self: &Arc<Self>, taken: &Taken, settlement: Settlement, handler: &'static str) {
        let id = &taken.held.message.message.id;
        tracing::warn!(handler, line = self.path, message = id, ?settlement, "a message was not handled");
        if let Err(error) = self.settle_one(taken.token, settlement).await {
            tracing::warn!(handler, line = self.path, message = id, %error, "and could not be settled");
        }
    }
}

fn panicked(error: tokio::task::JoinError) -> String {
    match error.try_into_panic() {
        Ok(panic) => {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            format!("the handler panicked: {}", text.unwrap_or_else(|| "without a word".to_owned()))
        }
        Err(_) => "the handler was stopped".to_owned(),
    }
}
