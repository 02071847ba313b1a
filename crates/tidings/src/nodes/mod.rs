//! Several servers on one store: who is there, and who has what.
//!
//! Each node writes a heartbeat every quarter of a lease and reads those of the others. A heartbeat that has not moved
//! for a whole lease, by the reader's own monotonic clock, is that of a dead node; clocks are never compared. What only
//! one node may do at a time (the lines of a queue, the monitors, reading a source) is a lease: who has it, and an epoch
//! that rises whenever it changes hands. Every write of the holder carries the epoch as a condition, in the same
//! transaction, so one that was paused and wakes up too late changes nothing. Which node should have a lease follows from
//! its name and from who is alive (rendezvous hashing): a node that comes or goes moves only its share, and nobody leads.
//!
//! On the embedded store there are no nodes: everything is ours, and nothing of this is written.

pub mod forward;
pub mod http;
pub mod record;
mod relay;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ring::digest::{SHA256, digest};
use tidings_core::ids::IdSource;
use tidings_core::time::{self, Clock};
use tidings_store::{Change, Condition, Error, Item, Query, Store, Write};
use tokio::sync::Notify;

pub use record::{Lease, table};
use record::{number, signed};

/// A node that has been silent for so many leases is forgotten.
const FORGOTTEN: u32 = 60;

/// The nodes of an installation, as this one knows them.
pub struct Nodes {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// Another one at every start: a node that was gone is a new one.
    pub me: String,
    /// Where the others reach this one.
    pub address: String,
    pub lease: Duration,
    known: Mutex<Known>,
    /// One look at a time.
    turn: tokio::sync::Mutex<()>,
    /// Rung when something does not look as it should: look at once.
    pub doubt: Notify,
}

#[derive(Default)]
struct Known {
    beat: u64,
    /// When our last heartbeat began that went through.
    beaten: Option<Duration>,
    gone: bool,
    others: BTreeMap<String, Seen>,
    leases: BTreeMap<String, Lease>,
    /// Leases that this node has taken or given back since the look under way began: of them it knows more than is read.
    touched: BTreeSet<String>,
    /// What of [`work`] this node would do, and what it does, with its epochs.
    offered: BTreeSet<String>,
    working: BTreeMap<String, u64>,
}

/// Another node.
#[derive(Debug, Clone)]
struct Seen {
    address: String,
    beat: u64,
    /// When its heartbeat was last seen to move.
    at: Duration,
}

/// Where a lease is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    Me,
    /// A node that is alive, at this address.
    At(String),
    Nobody,
}

impl Nodes {
    pub fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        ids: &dyn IdSource,
        address: String,
        lease: Duration,
    ) -> Arc<Self> {
        let me = ids.uuid(clock.now()).simple().to_string();
        let (known, turn, doubt) = (Mutex::default(), tokio::sync::Mutex::default(), Notify::new());
        Arc::new(Self { store, clock, me, address, lease, known, turn, doubt })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often to look.
    #[must_use]
    pub fn every(&self) -> Duration {
        self.lease / 4
    }

    /// Shows that this node is alive, and sees who else is and who has what.
    ///
    /// # Errors
    ///
    /// If the store does not answer. What was known stays, until the lease has run out.
    pub async fn look(&self) -> Result<(), Error> {
        let _turn = self.turn.lock().await;
        let began = self.clock.monotonic();
        let beat = {
            let mut known = self.known();
            if known.gone {
                return Ok(());
            }
            known.touched.clear();
            known.beat + 1
        };
        let item = table().key_item(&record::node_key(&self.me)).with("address", &self.address);
        let item = item.with("beat", signed(beat)).with("at", time::iso_millis(self.clock.now()));
        self.store.transact(vec![Write::put(table(), item)]).await?;
        let nodes = self.all(record::NODE).await?;
        let leases = self.all(record::LEASE).await?;
        let forgotten = self.take_in(beat, began, &nodes, &leases);
        for write in forgotten {
            match self.store.transact(vec![write]).await {
                Ok(()) | Err(Error::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn all(&self, kind: &'static str) -> Result<Vec<Item>, Error> {
        let mut items = Vec::new();
        let mut query = Query::new(kind).limit(1000);
        loop {
            let page = self.store.query(table(), &query).await?;
            items.extend(page.items);
            if page.next.is_none() {
                return Ok(items);
            }
            query = query.after(page.next);
        }
    }

    fn take_in(&self, beat: u64, began: Duration, nodes: &[Item], leases: &[Item]) -> Vec<Write> {
        let now = self.clock.monotonic();
        let mut known = self.known();
        (known.beat, known.beaten) = (beat, Some(began));
        let mut others = BTreeMap::new();
        let mut forgotten = Vec::new();
        for item in nodes {
            let (Some(id), Some(address)) = (item.str("name"), item.str("address")) else { continue };
            if id == self.me {
                continue;
            }
            let beat = number(item, "beat");
            let at = known.others.get(id).filter(|seen| seen.beat == beat).map_or(now, |seen| seen.at);
            if now.saturating_sub(at) > self.lease * FORGOTTEN {
                let same = Condition::Equals("beat".into(), signed(beat).into());
                forgotten.push(Write::delete(table(), record::node_key(id)).when(same));
                continue;
            }
            others.insert(id.to_owned(), Seen { address: address.to_owned(), beat, at });
        }
        known.others = others;
        let named = leases.iter().filter_map(|item| Some((item.str("name")?.to_owned(), Lease::read(item))));
        let mut leases: BTreeMap<_, _> = named.collect();
        for name in std::mem::take(&mut known.touched) {
            match known.leases.get(&name) {
                Some(own) => drop(leases.insert(name, own.clone())),
                None => drop(leases.remove(&name)),
            }
        }
        known.leases = leases;
        forgotten
    }

    /// Whether this node's own lease on life has not run out: others may think otherwise afterwards.
    #[must_use]
    pub fn believes(&self) -> bool {
        let known = self.known();
        !known.gone && known.beaten.is_some_and(|at| self.clock.monotonic().saturating_sub(at) < self.lease)
    }

    fn is_alive(&self, known: &Known, id: &str) -> bool {
        let seen = known.others.get(id);
        id == self.me || seen.is_some_and(|seen| self.clock.monotonic().saturating_sub(seen.at) < self.lease)
    }

    /// The addresses of the nodes that are alive, by their ids; this one among them.
    #[must_use]
    pub fn alive(&self) -> BTreeMap<String, String> {
        let known = self.known();
        let others = known.others.iter().filter(|(id, _)| self.is_alive(&known, id));
        let mut alive: BTreeMap<_, _> = others.map(|(id, seen)| (id.clone(), seen.address.clone())).collect();
        if !known.gone {
            alive.insert(self.me.clone(), self.address.clone());
        }
        alive
    }

    /// The nodes that are not known to be dead, this one among them.
    #[must_use]
    pub fn living(&self) -> BTreeSet<String> {
        let known = self.known();
        let others = known.others.iter().filter(|(_, seen)| !self.was_silent(&known, seen)).map(|(id, _)| id.clone());
        others.chain([self.me.clone()]).collect()
    }

    /// Whether a node is dead: it had been silent for a lease when this one last looked, or has left. One that has just come
    /// and was not seen yet is not.
    ///
    /// # Errors
    ///
    /// If the store does not answer.
    pub async fn is_gone(&self, id: &str) -> Result<bool, Error> {
        {
            let known = self.known();
            if id == self.me {
                return Ok(false);
            }
            if let Some(seen) = known.others.get(id) {
                return Ok(self.was_silent(&known, seen));
            }
        }
        Ok(self.store.get(table(), &record::node_key(id)).await?.is_none())
    }

    /// By what was seen, and not by how much time has passed since: whoever cannot look knows nothing of others.
    fn was_silent(&self, known: &Known, seen: &Seen) -> bool {
        known.beaten.is_some_and(|looked| looked.saturating_sub(seen.at) >= self.lease)
    }

    /// Whether nobody else has been seen lately, as of the last look.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.known().others.is_empty()
    }

    /// Whether there are other nodes, as the store says now. One that starts after this reads everything afterwards.
    ///
    /// # Errors
    ///
    /// If the store does not answer.
    pub async fn are_others(&self) -> Result<bool, Error> {
        let nodes = self.store.query(table(), &Query::new(record::NODE).limit(2)).await?;
        Ok(nodes.items.iter().any(|item| item.str("name") != Some(&self.me)))
    }

    /// Whether this node should have that lease, as things are.
    #[must_use]
    pub fn wants(&self, lease: &str) -> bool {
        self.wanted(lease).is_some_and(|(id, _)| id == self.me)
    }

    /// The address of another node that should have it.
    #[must_use]
    pub fn wanted_at(&self, lease: &str) -> Option<String> {
        self.wanted(lease).filter(|(id, _)| *id != self.me).map(|(_, address)| address)
    }

    fn wanted(&self, lease: &str) -> Option<(String, String)> {
        self.alive().into_iter().max_by_key(|(id, _)| (weight(id, lease), id.clone()))
    }

    #[must_use]
    pub fn lease_of(&self, name: &str) -> Option<Lease> {
        self.known().leases.get(name).cloned()
    }

    /// Who has a lease, as of the last look.
    #[must_use]
    pub fn holder(&self, name: &str) -> Holder {
        let known = self.known();
        let Some(owner) = known.leases.get(name).and_then(|lease| lease.owner.as_ref()) else { return Holder::Nobody };
        if *owner == self.me {
            return Holder::Me;
        }
        match known.others.get(owner).filter(|_| self.is_alive(&known, owner)) {
            Some(seen) => Holder::At(seen.address.clone()),
            None => Holder::Nobody,
        }
    }

    /// Whether nobody who is alive has it, except perhaps this node.
    #[must_use]
    pub fn is_free(&self, name: &str) -> bool {
        !matches!(self.holder(name), Holder::At(_))
    }

    /// Takes a lease that nobody has, together with writes that depend on its epoch. `None`: another one was faster.
    ///
    /// # Errors
    ///
    /// If the store does not answer.
    pub async fn take(&self, name: &str, with: impl Fn(u64) -> Vec<Write> + Send) -> Result<Option<u64>, Error> {
        if !self.believes() || !self.is_free(name) {
            return Ok(None);
        }
        let before = self.lease_of(name);
        let epoch = before.as_ref().map_or(0, |lease| lease.epoch) + 1;
        let mut writes = vec![Lease::taking(name, before.as_ref(), &self.me, epoch)];
        writes.extend(with(epoch));
        match self.store.transact(writes).await {
            Ok(()) => {
                let lease = Lease { owner: Some(self.me.clone()), epoch };
                let mut known = self.known();
                known.leases.insert(name.to_owned(), lease);
                known.touched.insert(name.to_owned());
                Ok(Some(epoch))
            }
            Err(Error::Conflict { .. }) => {
                self.doubt.notify_one();
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Gives a lease back, so that another node can have it at once.
    ///
    /// # Errors
    ///
    /// If the store does not answer; then the lease ends with this node's heartbeats.
    pub async fn give_back(&self, name: &str, epoch: u64) -> Result<(), Error> {
        self.forget_owner(name, epoch);
        let free = Write::update(table(), record::key(name), vec![Change::Remove("owner".into())]);
        match self.store.transact(vec![free.when(Lease::held(&self.me, epoch))]).await {
            Ok(()) | Err(Error::Conflict { .. }) => {
                // A look that began meanwhile may have read it as it was.
                self.forget_owner(name, epoch);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn forget_owner(&self, name: &str, epoch: u64) {
        let mut known = self.known();
        if let Some(lease) = known.leases.get_mut(name)
            && lease.epoch == epoch
        {
            lease.owner = None;
            known.touched.insert(name.to_owned());
        }
    }

    /// Forgets a lease on something that is no more.
    ///
    /// # Errors
    ///
    /// If the store does not answer.
    pub async fn drop_lease(&self, name: &str) -> Result<(), Error> {
        {
            let mut known = self.known();
            known.leases.remove(name);
            known.touched.insert(name.to_owned());
        }
        self.store.transact(vec![Write::delete(table(), record::key(name))]).await
    }

    /// The leases whose names begin so.
    #[must_use]
    pub fn leases(&self, prefix: &str) -> Vec<String> {
        self.known().leases.keys().filter(|name| name.starts_with(prefix)).cloned().collect()
    }

    /// Shows no more signs of life, as if it were dead: for tests.
    pub fn pretend_to_be_dead(&self) {
        self.known().gone = true;
    }

    /// Says that this node is gone, so that the others need not wait until they notice.
    pub async fn leave(&self) {
        let _turn = self.turn.lock().await;
        self.known().gone = true;
        if let Err(error) = self.store.transact(vec![Write::delete(table(), record::node_key(&self.me))]).await {
            tracing::warn!(%error, "the other nodes will notice by themselves that this one is gone");
        }
    }
}

/// What decides between nodes: the same on all of them.
fn weight(node: &str, lease: &str) -> u64 {
    let hash = digest(&SHA256, format!("{node}\n{lease}").as_bytes());
    let first = hash.as_ref().first_chunk().copied().unwrap_or_default();
    u64::from_be_bytes(first)
}
