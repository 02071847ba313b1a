//! Whether this process may change what an entity holds.
//!
//! On the embedded store it always may. On one that several nodes share, an entity's lines belong to one node at a time.
//! The lease says to which, and the entity's counts say in which epoch: nearly every transaction of a line changes the
//! counts anyway, so the condition costs nothing, and a node that takes over raises the epoch there before it reads a
//! single message. A transaction that was put together before that fails, whenever it comes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidings_store::{Change, Condition, Error, Item, Write};

use super::layout;
use crate::nodes::record::signed;

/// Of what is not shared.
const ALWAYS: u64 = 1;
const NAME: &str = "epoch";

pub struct Fence {
    shared: bool,
    /// The entity's.
    generation: String,
    /// 0: another node's, or nobody's.
    epoch: AtomicU64,
    /// It is about to be another node's: nothing more is handed out.
    leaving: AtomicBool,
    /// When that began, or when it was given up because of locks that last.
    turned: Mutex<Option<Duration>>,
    /// Transactions of one entity one after the other: they all change its counts, and would only be in each other's way.
    pub(super) turn: Arc<tokio::sync::Mutex<()>>,
}

impl Fence {
    pub(super) fn new(shared: bool, generation: &str) -> Self {
        Self {
            shared,
            generation: generation.to_owned(),
            epoch: AtomicU64::new(if shared { 0 } else { ALWAYS }),
            leaving: AtomicBool::new(false),
            turned: Mutex::default(),
            turn: Arc::default(),
        }
    }

    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// 0 while it is not ours.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    pub(super) fn set(&self, epoch: u64) {
        self.leaving.store(false, Ordering::Release);
        *self.turned() = None;
        self.epoch.store(epoch, Ordering::Release);
    }

    pub(super) fn begin_to_leave(&self, now: Duration) {
        self.leaving.store(true, Ordering::Release);
        *self.turned() = Some(now);
    }

    /// Locks are out that last: it is handed out from as before, and tried again later.
    pub(super) fn stay(&self, now: Duration) {
        self.leaving.store(false, Ordering::Release);
        *self.turned() = Some(now);
    }

    /// For how long it has been leaving, or has not tried to; `None`: it never tried.
    pub(super) fn since_turned(&self, now: Duration) -> Option<Duration> {
        self.turned().map(|at| now.saturating_sub(at))
    }

    fn turned(&self) -> MutexGuard<'_, Option<Duration>> {
        self.turned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Acquire)
    }

    /// What must hold for a write of that epoch; nothing where nobody else writes.
    #[must_use]
    pub fn condition(&self, epoch: u64) -> Option<Condition> {
        self.shared.then(|| Condition::Equals(NAME.into(), signed(epoch).into()))
    }

    /// Whether a transaction was refused because another node has the entity.
    #[must_use]
    pub fn is_lost(&self, error: &Error) -> bool {
        let Error::Conflict { failed } = error else { return false };
        let counts = layout::counts_key(&self.generation);
        let is_counts = |item: &Item| layout::table().key_of(item).is_ok_and(|key| key == counts);
        failed.iter().any(|failed| failed.found.as_ref().is_some_and(is_counts))
    }

    /// The same as a write of its own.
    #[must_use]
    pub fn check(&self, epoch: u64) -> Option<Write> {
        let key = layout::counts_key(&self.generation);
        self.condition(epoch).map(|condition| Write::check(layout::table(), key, condition))
    }

    /// The write that shuts out everybody of an earlier epoch.
    #[must_use]
    pub fn raise(generation: &str, epoch: u64) -> Write {
        let change = Change::Set(NAME.into(), signed(epoch).into());
        Write::update(layout::table(), layout::counts_key(generation), vec![change])
    }

    /// The name of its lease.
    #[must_use]
    pub fn lease(generation: &str) -> String {
        format!("bus/{generation}")
    }
}

/// The fences of all entities.
#[derive(Default)]
pub struct Fences(Mutex<HashMap<String, Arc<Fence>>>);

impl Fences {
    pub(super) fn of(&self, generation: &str, shared: bool) -> Arc<Fence> {
        let mut fences = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fence = fences.entry(generation.to_owned()).or_insert_with(|| Arc::new(Fence::new(shared, generation)));
        Arc::clone(fence)
    }

    /// Forgets those of entities that are no more.
    pub(super) fn retain(&self, is_known: impl Fn(&str) -> bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|generation, _| is_known(generation));
    }
}
