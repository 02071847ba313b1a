//! A decorator that makes any store fail on purpose: at chosen transactions, by chance from a seed, or by
//! holding transactions back until the test lets them go. It also counts what is asked of the store.
//!
//! Nothing here sleeps or reads a clock: the same calls in the same order fail in the same way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::sync::watch;

use crate::{Error, Health, Item, Key, Page, Query, Store, Table, Write};

/// A store that does what the one inside does, except where it was told to fail.
pub struct Faulty {
    inner: Arc<dyn Store>,
    state: Mutex<State>,
}

/// A way to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing is written: [`Error::Throttled`].
    Throttled,
    /// Nothing is written: [`Error::Full`].
    Full,
    /// Nothing is written, now or later: [`Error::ReadOnly`], until [`Faulty::heal`].
    ReadOnly,
    /// The transaction is carried out, but its answer does not come back: [`Error::Failed`].
    ReplyLost,
}

/// How many of 1000 calls fail.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Chances {
    /// Transactions that fail with [`Fault::Throttled`].
    pub throttled: u16,
    /// Transactions that fail with [`Fault::Full`].
    pub full: u16,
    /// Transactions that fail with [`Fault::ReplyLost`].
    pub reply_lost: u16,
    /// Gets and queries that fail with [`Error::Throttled`].
    pub reads: u16,
}

/// What was asked of the store, whether it failed or not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub gets: u64,
    pub queries: u64,
    pub transacts: u64,
    /// Writes in all transactions together.
    pub writes: u64,
}

/// Where a [`Gate`] stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Before the transaction is carried out.
    Before,
    /// When it is durable, but before its answer.
    After,
}

/// Holds transactions back until it is opened or dropped.
pub struct Gate(Arc<GateState>);

struct GateState {
    moment: Moment,
    arrived: watch::Sender<usize>,
    open: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    counts: Counts,
    /// By number of the transaction, counted from the start.
    planned: BTreeMap<u64, Fault>,
    /// Transactions since the start, which [`Faulty::reset_counts`] leaves alone.
    transacts: u64,
    chances: Chances,
    random: SplitMix,
    read_only: bool,
    gate: Option<Arc<GateState>>,
}

impl Faulty {
    /// A decorator that fails nowhere yet.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, state: Mutex::default() }
    }

    /// Lets the `nth` transaction from now fail; 1 is the next one.
    pub fn fail_nth(&self, nth: u64, fault: Fault) {
        let mut state = self.lock();
        let number = state.transacts.saturating_add(nth);
        state.planned.insert(number, fault);
    }

    /// Lets calls fail by chance from now on; planned faults come first.
    pub fn fail_at_random(&self, seed: u64, chances: Chances) {
        let mut state = self.lock();
        state.random = SplitMix(seed);
        state.chances = chances;
    }

    /// Holds back every transaction that starts from now on, until the gate is opened. A later gate takes the
    /// place of an earlier one for the transactions that start after it.
    #[must_use]
    pub fn hold(&self, moment: Moment) -> Gate {
        let gate = Arc::new(GateState { moment, arrived: watch::Sender::new(0), open: watch::Sender::new(false) });
        self.lock().gate = Some(gate.clone());
        Gate(gate)
    }

    /// Forgets every plan and chance, and takes writes again after [`Fault::ReadOnly`].
    pub fn heal(&self) {
        let mut state = self.lock();
        state.planned.clear();
        state.chances = Chances::default();
        state.read_only = false;
    }

    #[must_use]
    pub fn counts(&self) -> Counts {
        self.lock().counts
    }

    /// Counts from 0 again, and gives what was counted.
    pub fn reset_counts(&self) -> Counts {
        std::mem::take(&mut self.lock().counts)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gate {
    /// Waits until that many transactions, counted from the start of the gate, have come to it.
    pub async fn arrived(&self, transactions: usize) {
        // The gate holds the sender, so the channel cannot close while somebody waits here.
        let _ = self.0.arrived.subscribe().wait_for(|arrived| *arrived >= transactions).await;
    }

    /// Lets everybody through, now and from now on.
    pub fn open(&self) {
        self.0.open.send_replace(true);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}

impl GateState {
    async fn pass(&self, moment: Moment) {
        if self.moment == moment {
            self.arrived.send_modify(|arrived| *arrived += 1);
            let _ = self.open.subscribe().wait_for(|open| *open).await;
        }
    }
}

impl State {
    fn start_transaction(&mut self, writes: usize) -> Option<Fault> {
        self.transacts += 1;
        self.counts.transacts += 1;
        self.counts.writes += u64::try_from(writes).unwrap_or(u64::MAX);
        let chances = self.chances;
        let drawn = self.random.below_1000();
        let by_chance = [
            (chances.throttled, Fault::Throttled),
            (chances.full, Fault::Full),
            (chances.reply_lost, Fault::ReplyLost),
        ];
        let mut edge = 0;
        let by_chance = by_chance.into_iter().find_map(|(chance, fault)| {
            edge += u64::from(chance);
            (drawn < edge).then_some(fault)
        });
        let fault = self.planned.remove(&self.transacts).or(by_chance);
        self.read_only |= fault == Some(Fault::ReadOnly);
        if self.read_only { Some(Fault::ReadOnly) } else { fault }
    }

    fn start_read(&mut self) -> Result<(), Error> {
        let failed = self.random.below_1000() < u64::from(self.chances.reads);
        if failed { Err(Error::Throttled("a fault was injected into a read".to_owned())) } else { Ok(()) }
    }
}

#[async_trait]
impl Store for Faulty {
    async fn get(&self, table: &Table, key: &Key) -> Result<Option<Item>, Error> {
        {
            let mut state = self.lock();
            state.counts.gets += 1;
            state.start_read()?;
        }
        self.inner.get(table, key).await
    }

    async fn query(&self, table: &Table, query: &Query) -> Result<Page, Error> {
        {
            let mut state = self.lock();
            state.counts.queries += 1;
            state.start_read()?;
        }
        self.inner.query(table, query).await
    }

    async fn transact(&self, writes: Vec<Write>) -> Result<(), Error> {
        let (fault, gate) = {
            let mut state = self.lock();
            (state.start_transaction(writes.len()), state.gate.clone())
        };
        if let Some(gate) = &gate {
            gate.pass(Moment::Before).await;
        }
        let why = "a fault was injected into a transaction".to_owned();
        match fault {
            Some(Fault::Throttled) => return Err(Error::Throttled(why)),
            Some(Fault::Full) => return Err(Error::Full(why)),
            Some(Fault::ReadOnly) => return Err(Error::ReadOnly(why)),
            Some(Fault::ReplyLost) | None => {}
        }
        let result = self.inner.transact(writes).await;
        if let Some(gate) = &gate {
            gate.pass(Moment::After).await;
        }
        match fault {
            Some(_) => Err(Error::failed(why, std::io::Error::from(std::io::ErrorKind::TimedOut))),
            None => result,
        }
    }

    async fn transact_each(&self, transactions: Vec<Vec<Write>>) -> Vec<Result<(), Error>> {
        crate::transact_one_by_one(self, transactions).await
    }

    fn health(&self) -> Health {
        if self.lock().read_only {
            return Health::ReadOnly("a fault was injected into a transaction".to_owned());
        }
        self.inner.health()
    }
}

/// Sebastiano Vigna's splitmix64: small, and the same everywhere.
#[derive(Default)]
struct SplitMix(u64);

impl SplitMix {
    fn below_1000(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % 1000
    }
}
