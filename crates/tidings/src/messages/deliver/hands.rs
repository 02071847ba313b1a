//! Those who make the attempts of one channel: tasks that stay, each of which makes one attempt after the other. An attempt
//! takes some thousand bytes of a task's memory; to make and to drop a task for each would cost as much as a good part of
//! what it does.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use tidings_store::Error;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::PAUSE;
use super::attempt::{Desk, Known, Looked, attempt};
use super::window::Stub;

/// Tasks that stay when nobody needs them.
const KEPT: usize = 128;

/// An attempt that has ended, and what came of it.
pub(super) type Ended = (Stub, Result<Looked, Error>);

pub(super) struct Hands {
    table: Arc<Table>,
    /// Ended with this.
    tasks: JoinSet<()>,
    /// Attempts that were begun, and of whose end nobody has taken note.
    under_way: usize,
}

/// What is handed over between those who attempt and who has them do so.
struct Table {
    desk: Arc<Desk>,
    state: Mutex<State>,
    /// Rung for a task when there is an attempt to be made.
    begun: Notify,
    /// Rung when one has ended.
    ended: Notify,
}

#[derive(Default)]
struct State {
    /// Still to be made.
    next: VecDeque<Stub>,
    /// Ended, and not yet taken note of. Of one that panicked it is not known whose it was.
    ended: Vec<Result<Ended, String>>,
    tasks: usize,
    /// Tasks that make an attempt, or are about to.
    busy: usize,
}

impl Hands {
    pub(super) fn new(desk: Arc<Desk>) -> Self {
        let (begun, ended) = (Notify::new(), Notify::new());
        let table = Table { desk, state: Mutex::default(), begun, ended };
        Self { table: Arc::new(table), tasks: JoinSet::new(), under_way: 0 }
    }

    /// How many attempts are under way.
    pub(super) const fn len(&self) -> usize {
        self.under_way
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.under_way == 0
    }

    /// Has an attempt made.
    pub(super) fn begin(&mut self, stub: Stub) {
        self.under_way += 1;
        let mut state = self.table.state();
        state.next.push_back(stub);
        state.busy += 1;
        let is_new = state.busy > state.tasks;
        state.tasks += usize::from(is_new);
        drop(state);
        if is_new {
            // Those that were not needed any more are gone.
            while self.tasks.try_join_next().is_some() {}
            self.tasks.spawn(work(Arc::clone(&self.table)));
        } else {
            // Whoever worked last has it all at hand.
            self.table.begun.notify_last();
        }
    }

    /// Waits until an attempt has ended; gives all that have. Without any under way, for ever.
    pub(super) async fn ended(&mut self) -> Vec<Result<Ended, String>> {
        loop {
            let ended = std::mem::take(&mut self.table.state().ended);
            if !ended.is_empty() {
                self.under_way -= ended.len();
                return ended;
            }
            self.table.ended.notified().await;
        }
    }
}

impl Table {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes one attempt after the other.
async fn work(table: Arc<Table>) {
    loop {
        let Some(stub) = next(&table).await else { return };
        let ended = AssertUnwindSafe(try_once(&table.desk, stub)).catch_unwind().await;
        let mut state = table.state();
        state.busy -= 1;
        state.ended.push(ended.map_err(|panic| said(&*panic)));
        drop(state);
        table.ended.notify_one();
    }
}

/// The next attempt to be made; `None` if there is none and others are there to wait for one.
async fn next(table: &Table) -> Option<Stub> {
    loop {
        let mut begun = pin!(table.begun.notified());
        // From now on it is heard when there is one, also before the look for it has ended.
        begun.as_mut().enable();
        {
            let mut state = table.state();
            if let Some(stub) = state.next.pop_front() {
                return Some(stub);
            }
            if state.tasks > KEPT.max(state.busy) {
                state.tasks -= 1;
                return None;
            }
        }
        begun.await;
    }
}

async fn try_once(desk: &Desk, mut stub: Stub) -> Ended {
    // What is being written of it at this moment must not come between.
    let at_once = stub.is_new && !stub.queueing;
    let known = stub.stored.take().map(|stored| Known { stored, seen: stub.seen });
    let looked = attempt(desk, &stub.message_id, known, at_once).await;
    if looked.is_err() {
        // A store that fails is not to be asked again at once.
        tokio::time::sleep(PAUSE).await;
    }
    (stub, looked)
}

/// What a panic says.
fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("for no reason that can be told").to_owned()
}
