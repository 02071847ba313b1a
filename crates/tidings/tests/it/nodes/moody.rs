//! A store as one node sees it, over a network that loses answers.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tidings_store::{Error, Health, Item, Key, KeyValue, Page, Query, Store, Table, Write};
use tokio::sync::{Semaphore, watch};

const PATIENCE: Duration = Duration::from_secs(30);

/// What becomes of changes of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    Well,
    /// They are carried out, and nobody hears of it.
    Lost,
    /// They do not arrive.
    Away,
    /// Nor can anybody find out.
    LostAndBlind,
    /// Who takes a line over waits for its counts.
    Slow,
    /// Who looks at the nodes hears late how they were.
    Late,
}

pub struct Moody {
    inner: Arc<dyn Store>,
    mood: watch::Sender<Mood>,
    /// The partition of a line's whose changes it is about.
    kind: &'static str,
    /// Changes that have met with the mood, and those that may be answered.
    met: watch::Sender<usize>,
    answers: Semaphore,
}

impl Moody {
    /// About the messages that wait (`m`), or their deliveries (`d`).
    pub fn over(inner: Arc<dyn Store>, kind: &'static str) -> Arc<Self> {
        let (mood, met) = (watch::Sender::new(Mood::Well), watch::Sender::new(0));
        Arc::new(Self { inner, mood, kind, met, answers: Semaphore::new(0) })
    }

    pub fn is_now(&self, mood: Mood) {
        self.mood.send_replace(mood);
    }

    /// Waits until so many changes have met with the mood.
    pub async fn met(&self, count: usize) {
        let mut met = self.met.subscribe();
        let reached = met.wait_for(|met| *met >= count);
        tokio::time::timeout(PATIENCE, reached).await.expect("a change comes").unwrap();
    }

    /// The next change that meets with the mood is answered, or one that waits for that.
    pub fn answer(&self) {
        self.answers.add_permits(1);
    }

    fn is_change(&self, write: &Write) -> bool {
        let Ok(Key { partition: KeyValue::S(partition), .. }) = write.key() else { return false };
        let (is_bus, is_check) = (write.table().name() == "tidings-bus", matches!(write, Write::Check { .. }));
        is_bus && !is_check && partition.rsplit('/').next() == Some(self.kind)
    }
}

#[async_trait]
impl Store for Moody {
    async fn get(&self, table: &Table, key: &Key) -> Result<Option<Item>, Error> {
        let is_counts = matches!(&key.partition, KeyValue::S(partition) if partition.ends_with("/c"));
        if is_counts && *self.mood.borrow() == Mood::Slow {
            self.met.send_modify(|met| *met += 1);
            self.answers.acquire().await.unwrap().forget();
        }
        self.inner.get(table, key).await
    }

    async fn query(&self, table: &Table, query: &Query) -> Result<Page, Error> {
        let page = self.inner.query(table, query).await;
        if table.name() == "tidings-nodes" && *self.mood.borrow() == Mood::Late {
            self.met.send_modify(|met| *met += 1);
            self.answers.acquire().await.unwrap().forget();
        }
        page
    }

    async fn transact(&self, writes: Vec<Write>) -> Result<(), Error> {
        let mood = *self.mood.borrow();
        let unreachable = || Err(Error::Unreachable("moody".to_owned()));
        if mood == Mood::LostAndBlind && writes.iter().all(|write| matches!(write, Write::Check { .. })) {
            return unreachable();
        }
        if matches!(mood, Mood::Well | Mood::Slow | Mood::Late) || !writes.iter().any(|write| self.is_change(write)) {
            return self.inner.transact(writes).await;
        }
        if mood != Mood::Away {
            self.inner.transact(writes).await?;
        }
        self.met.send_modify(|met| *met += 1);
        self.answers.acquire().await.unwrap().forget();
        unreachable()
    }

    async fn transact_each(&self, transactions: Vec<Vec<Write>>) -> Vec<Result<(), Error>> {
        let mut outcomes = Vec::new();
        for writes in transactions {
            outcomes.push(self.transact(writes).await);
        }
        outcomes
    }

    fn health(&self) -> Health {
        self.inner.health()
    }
}
