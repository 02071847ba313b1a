//! A line: whatever messages are received from (a queue, a subscription, the dead letters of either). Carries out in
//! the store what `state` decides, and wakes those who wait.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use tidings_core::ids::IdSource;
use tidings_core::time::{Clock, Timestamp};
use tidings_store::{Error, Store, Value, Write};
use tokio::sync::{Notify, mpsc, watch};

use super::figures::{Times, Watch};
use super::history::End;
use super::lane::Lane;
use super::layout::{self, Delta, LaneId, Layout};
use super::message::{Message, Stored};
use super::path::DEAD_LETTERS;
use super::prepared::{Prepared, Sent};
use super::state::{Now, Settings, State};

/// Numbers that are reserved at a time; a crash skips what is left of them.
const RESERVE: u64 = 65_536;
/// The head is written down when it has moved so far.
const HEAD_STEP: u64 = 512;

/// What all lines share.
pub struct Shared {
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<dyn IdSource>,
    /// Transactions of which nobody knows how they went.
    pub doubts: mpsc::UnboundedSender<Prepared>,
    /// Rung when something is due earlier than was known.
    pub alarm: Notify,
    /// Rung when a message is to be copied to the subscriptions of its topic.
    pub copying: Notify,
    pub stopping: watch::Receiver<bool>,
    pub times: Times,
    /// How many messages handlers of this process were done with: for those who wait for one.
    pub handled: watch::Sender<u64>,
    /// How long the history of messages is kept.
    history_seconds: AtomicI64,
}

/// Until the configuration says otherwise.
const HISTORY_DAYS: i64 = 90;
const DAY_SECONDS: i64 = 86_400;

impl Shared {
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
        doubts: mpsc::UnboundedSender<Prepared>,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        let history_seconds = AtomicI64::new(HISTORY_DAYS * DAY_SECONDS);
        Self {
            store,
            clock,
            ids,
            doubts,
            alarm: Notify::new(),
            copying: Notify::new(),
            stopping,
            times: Times::default(),
            handled: watch::Sender::new(0),
            history_seconds,
        }
    }

    pub fn keep_history(&self, days: u64) {
        let days = i64::try_from(days).unwrap_or(i64::MAX);
        self.history_seconds.store(days.saturating_mul(DAY_SECONDS), Ordering::Relaxed);
    }

    pub(super) fn history_seconds(&self) -> i64 {
        self.history_seconds.load(Ordering::Relaxed)
    }
}

/// Why a call on a line does nothing.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    #[error("there is no such entity any more")]
    Gone,
    #[error("the lock is lost or unknown: it expired, was settled, or never was")]
    LockLost,
    #[error("dead letters cannot be dead-lettered again")]
    AlreadyDead,
    #[error(transparent)]
    Store(#[from] Error),
}

pub struct Line {
    /// As in the API: `orders`, `orders/$deadletterqueue`, `events/subscriptions/audit`.
    pub path: String,
    /// Under which the entity's counts are kept.
    pub entity: String,
    pub layout: Layout,
    settings: RwLock<Arc<Settings>>,
    dead: RwLock<Option<Arc<Line>>>,
    state: Mutex<State>,
    /// Rung for each message that somebody could have.
    pub(super) ready: Notify,
    pub(super) waiting: AtomicUsize,
    closed: AtomicBool,
    reserving: tokio::sync::Mutex<()>,
    pub(super) loading: tokio::sync::Mutex<()>,
    /// Held by whoever moves scheduled or expired messages.
    pub(super) timing: tokio::sync::Mutex<()>,
    flushed: Mutex<(u64, u64)>,
    pub watch: Watch,
    pub shared: Arc<Shared>,
}

/// Where a line stands that is opened.
pub struct Origin {
    pub path: String,
    pub entity: String,
    pub generation: String,
    pub settings: Settings,
    pub dead: Option<Arc<Line>>,
}

impl Line {
    /// Opens a line where it was left.
    pub async fn open(shared: Arc<Shared>, origin: Origin, counts: Delta) -> Result<Arc<Self>, Error> {
        let layout = Layout::new(&origin.generation);
        let head = shared.store.get(layout::table(), &layout.head()).await?.unwrap_or_default();
        let number = |name: &str| head.int(name).and_then(|n| u64::try_from(n).ok()).unwrap_or(1);
        let next = number("reserved");
        let lane = |head: u64| if counts.waiting > 0 { Lane::new(head, next - 1) } else { Lane::new(next, next - 1) };
        let mut state = State::new(lane(number("front")), lane(number("main")), counts, next);
        // Whether anything is scheduled or expires is looked up when the clock first ticks.
        state.next_due = Some(Timestamp::MIN);
        state.next_expiry = Some(Timestamp::MIN);
        let watch = shared.times.of(&origin.path);
        Ok(Arc::new(Self {
            flushed: Mutex::new((state.front.head(), state.main.head())),
            path: origin.path,
            entity: origin.entity,
            layout,
            settings: RwLock::new(Arc::new(origin.settings)),
            dead: RwLock::new(origin.dead),
            state: Mutex::new(state),
            ready: Notify::new(),
            waiting: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            reserving: tokio::sync::Mutex::default(),
            loading: tokio::sync::Mutex::default(),
            timing: tokio::sync::Mutex::default(),
            watch,
            shared,
        }))
    }

    /// Whether this holds what was given up.
    #[must_use]
    pub fn is_of_dead_letters(&self) -> bool {
        self.path.ends_with(DEAD_LETTERS)
    }

    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn change_settings(&self, settings: Settings) {
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }

    pub fn dead(&self) -> Option<Arc<Line>> {
        self.dead.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn change_dead(&self, dead: Arc<Line>) {
        *self.dead.write().unwrap_or_else(PoisonError::into_inner) = Some(dead);
    }

    /// The line is deleted or purged: its locks are lost, and whoever waits hears of it.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.ready.notify_waiters();
    }

    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub fn now(&self) -> Now {
        Now { wall: self.shared.clock.now(), monotonic: self.shared.clock.monotonic() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ---- sending -------------------------------------------------------------------------------------------------

    /// The writes that bring a message into this line.
    pub(super) async fn prepare(self: &Arc<Self>, message: Message, now: Timestamp) -> Result<Prepared, Error> {
        self.prepare_from(message, now, None).await
    }

    /// The same; `from`: the dead letter it was.
    pub(super) async fn prepare_from(
        self: &Arc<Self>,
        message: Message,
        now: Timestamp,
        from: Option<String>,
    ) -> Result<Prepared, Error> {
        let settings = self.settings();
        let ttl = match (message.ttl, settings.ttl) {
            (Some(own), Some(most)) => Some(own.min(most)),
            (own, most) => own.or(most),
        };
        let mut prepared = Prepared::default();
        let due = message.deliver_at.filter(|at| *at > now);
        let mut stored =
            Stored { enqueued_at: due.unwrap_or(now), message, resubmitted_from: from, ..Stored::default() };
        stored.expires_at = ttl.map(|ttl| stored.enqueued_at.saturating_add(ttl).unwrap_or(Timestamp::MAX));
        let (id, path) = (stored.message.id.clone(), self.path.clone());
        let sequence = match due {
            None => {
                let position = self.begin(LaneId::Main).await?;
                stored.sequence = position;
                prepared.count(self, Delta { waiting: 1, incoming: 1, ..Delta::default() });
                prepared.arrive(self, LaneId::Main, position, stored)?;
                position
            }
            Some(due) => {
                let number = self.number().await?;
                stored.sequence = number;
                stored.accepted_at = Some(now);
                self.row(&stored, End::Scheduled, 0).into_iter().for_each(|row| prepared.write(row));
                prepared.write(layout::pointer(&self.layout.numbered(number), due));
                for key in stored.message.cancel_keys() {
                    prepared.write(layout::pointer(&self.layout.keyed(key, number), due));
                }
                prepared.count(self, Delta { scheduled: 1, incoming: 1, ..Delta::default() });
                prepared.arrive_timed(self, due, number, &stored)?;
                number
            }
        };
        prepared.sent.push(Sent { message_id: id, path, sequence });
        Ok(prepared)
    }

    /// The writes that bring a message straight to the dead letters: a rule could not be decided on it.
    pub(super) async fn prepare_dead(
        self: &Arc<Self>,
        message: Message,
        why: &str,
        now: Timestamp,
    ) -> Result<Prepared, Error> {
        let mut prepared = Prepared::default();
        let stored = Stored { message, enqueued_at: now, ..Stored::default() };
        self.put_dead(&stored, "FilterEvaluationException", Some(why), &mut prepared).await?;
        Ok(prepared)
    }

    /// A new position, which counts as under way from here on.
    pub(super) async fn begin(&self, lane: LaneId) -> Result<u64, Error> {
        loop {
            {
                let mut state = self.state();
                if let Some(position) = state.allocate() {
                    state.lane(lane).begin(position);
                    return Ok(position);
                }
            }
            self.reserve().await?;
        }
    }

    /// A new number.
    pub(super) async fn number(&self) -> Result<u64, Error> {
        loop {
            if let Some(number) = self.state().allocate() {
                return Ok(number);
            }
            self.reserve().await?;
        }
    }

    async fn reserve(&self) -> Result<(), Error> {
        let _turn = self.reserving.lock().await;
        let (next, reserved, heads) = {
            let state = self.state();
            (state.next, state.reserved, (state.front.head(), state.main.head()))
        };
        if next < reserved {
            return Ok(());
        }
        let reserved = reserved + RESERVE;
        self.shared.store.transact(vec![self.head_write(reserved, heads)]).await?;
        self.state().reserved = reserved;
        Ok(())
    }

    fn head_write(&self, reserved: u64, heads: (u64, u64)) -> Write {
        let number = |n: u64| Value::from(i64::try_from(n).unwrap_or(i64::MAX));
        let item = layout::table().key_item(&self.layout.head());
        let item = item.with("reserved", number(reserved)).with("front", number(heads.0)).with("main", number(heads.1));
        Write::put(layout::table(), item)
    }

    /// The write that keeps the place of the head, if it has moved far enough. `last`: nothing comes after this.
    pub(super) fn flush(&self, last: bool) -> Option<Write> {
        let state = self.state();
        let heads = (state.front.head(), state.main.head());
        let mut flushed = self.flushed.lock().unwrap_or_else(PoisonError::into_inner);
        let moved = heads.0.abs_diff(flushed.0).max(heads.1.abs_diff(flushed.1));
        if last {
            return (state.reserved > state.next || moved > 0).then(|| self.head_write(state.next, heads));
        }
        if moved < HEAD_STEP {
            return None;
        }
        *flushed = heads;
        Some(self.head_write(state.reserved, heads))
    }

    // ---- what transactions leave behind ---------------------------------------------------------------------------

    pub(super) fn counted(&self, delta: &Delta) {
        self.state().counts.add(delta);
    }

    pub(super) fn arrived(&self, lane: LaneId, position: u64, stored: Arc<Stored>) {
        let expires = stored.expires_at;
        let mut state = self.state();
        state.lane(lane).commit(position, stored);
        let earlier = expires.filter(|at| state.next_expiry.is_none_or(|known| *at < known));
        if earlier.is_some() {
            state.next_expiry = earlier;
        }
        drop(state);
        if earlier.is_some() {
            self.shared.alarm.notify_one();
        }
        self.wake(1);
    }

    pub(super) fn aborted(&self, lane: LaneId, position: u64) {
        self.state().lane(lane).abort(position);
        self.wake(1);
    }

    /// Something is due then.
    pub(super) fn due_at(&self, due: Timestamp) {
        let mut state = self.state();
        if state.next_due.is_none_or(|known| due < known) {
            state.next_due = Some(due);
            drop(state);
            self.shared.alarm.notify_one();
        }
    }

    pub(super) fn wake(&self, messages: usize) {
        let waiting = self.waiting.load(Ordering::Acquire);
        // At least one: somebody may be about to wait.
        for _ in 0..messages.min(waiting.max(1)) {
            self.ready.notify_one();
        }
    }
}
