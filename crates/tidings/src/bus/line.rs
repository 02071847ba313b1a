//! A line: whatever messages are received from (a queue, a subscription, the dead letters of either). Carries out in
//! the store what `state` decides, and wakes those who wait.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use tidings_core::time::Timestamp;
use tidings_store::{Error, Write};
use tokio::sync::Notify;

use super::Way;
use super::fence::Fence;
use super::figures::Watch;
use super::history::End;
use super::lane::Lane;
use super::layout::{self, Delta, LaneId, Layout};
use super::message::{Message, Stored};
use super::path::DEAD_LETTERS;
use super::prepared::{Prepared, Sent};
pub use super::shared::{LineError, Shared};
use super::state::{Now, Settings, State};

/// Numbers that are reserved at a time; a crash skips what is left of them.
pub(super) const RESERVE: u64 = 65_536;
/// The head is written down when it has moved so far.
const HEAD_STEP: u64 = 512;

pub struct Line {
    /// As in the API: `orders`, `orders/$deadletterqueue`, `events/subscriptions/audit`.
    pub path: String,
    /// Under which the entity's counts are kept.
    pub entity: String,
    pub layout: Layout,
    pub fence: Arc<Fence>,
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
    /// Held by whoever takes in what was posted.
    pub(super) taking_in: tokio::sync::Mutex<()>,
    pub(super) has_post: AtomicBool,
    /// The time of the last post that is known of, and when it was last looked for those of other nodes.
    pub(super) last_post: AtomicU64,
    pub(super) posts_seen: tokio::sync::Mutex<Option<tokio::time::Instant>>,
    /// Numbers for what is posted: the next one, and the first that may not be given out.
    pub(super) numbers: tokio::sync::Mutex<(u64, u64)>,
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
        let fence = shared.fence(&origin.entity);
        let state = match fence.epoch() {
            0 => not_ours(counts),
            epoch => read_state(&shared, &layout, counts, epoch).await?,
        };
        let watch = shared.times.of(&origin.path);
        Ok(Arc::new(Self {
            flushed: Mutex::new((state.front.head(), state.main.head())),
            path: origin.path,
            entity: origin.entity,
            layout,
            fence,
            settings: RwLock::new(Arc::new(origin.settings)),
            dead: RwLock::new(origin.dead),
            state: Mutex::new(state),
            ready: Notify::new(),
            waiting: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            reserving: tokio::sync::Mutex::default(),
            loading: tokio::sync::Mutex::default(),
            timing: tokio::sync::Mutex::default(),
            taking_in: tokio::sync::Mutex::default(),
            has_post: AtomicBool::new(true),
            last_post: AtomicU64::new(0),
            posts_seen: tokio::sync::Mutex::default(),
            numbers: tokio::sync::Mutex::default(),
            watch,
            shared,
        }))
    }

    /// The line is ours from here on: reads where the last one who had it left off.
    pub(super) async fn take_over(&self, counts: Delta, epoch: u64) -> Result<(), Error> {
        let state = read_state(&self.shared, &self.layout, counts, epoch).await?;
        *self.flushed() = (state.front.head(), state.main.head());
        *self.state() = state;
        self.has_post.store(true, Ordering::Release);
        Ok(())
    }

    /// The line is another node's: locks are lost, and whoever waits hears of it. Gives the writes that keep where it
    /// stands, for one that lets go of it: in one step with the end of our numbers, so that whatever is under way has its
    /// place between the head and the next number, where whoever has the line next reads. A number that was given out after
    /// the next one was noted would be given out again.
    pub(super) fn give_up(&self) -> Option<Vec<Write>> {
        let mut state = self.state();
        let kept = self.last_head(&state);
        *state = not_ours(state.counts);
        drop(state);
        self.ready.notify_waiters();
        kept
    }

    /// In which this process has it; 0: it does not.
    pub fn epoch(&self) -> u64 {
        if self.fence.is_shared() { self.state().epoch } else { self.fence.epoch() }
    }

    /// Whether this process has it, as far as it can know.
    pub fn is_ours(&self) -> bool {
        self.shared.nodes.as_ref().is_none_or(|nodes| self.fence.epoch() != 0 && nodes.believes())
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
    pub(super) async fn prepare(
        self: &Arc<Self>,
        message: Message,
        now: Timestamp,
        way: Way,
    ) -> Result<Prepared, Error> {
        match way {
            Way::Straight => self.prepare_from(message, now, None).await,
            Way::Post => self.prepare_post(message, now).await,
            Way::PostAfter(began) => {
                self.see_posts(began).await?;
                self.prepare_post(message, now).await
            }
        }
    }

    /// The same; `from`: the dead letter it was.
    pub(super) async fn prepare_from(
        self: &Arc<Self>,
        message: Message,
        now: Timestamp,
        from: Option<String>,
    ) -> Result<Prepared, Error> {
        let mut prepared = Prepared::default();
        self.prepare_into(message, now, from, &mut prepared).await?;
        Ok(prepared)
    }

    /// The same beside what is prepared already.
    pub(super) async fn prepare_into(
        self: &Arc<Self>,
        message: Message,
        now: Timestamp,
        from: Option<String>,
        prepared: &mut Prepared,
    ) -> Result<(), Error> {
        let stored = self.stored(message, now, from);
        let (id, path) = (stored.message.id.clone(), self.path.clone());
        let due = Some(stored.enqueued_at).filter(|due| *due > now);
        let sequence = self.enter(stored, due, prepared).await?;
        prepared.sent.push(Sent { message_id: id, path, sequence });
        Ok(())
    }

    /// A message as it will be stored; scheduled, if it is enqueued later than now.
    pub(super) fn stored(&self, message: Message, now: Timestamp, from: Option<String>) -> Stored {
        let settings = self.settings();
        let ttl = match (message.ttl, settings.ttl) {
            (Some(own), Some(most)) => Some(own.min(most)),
            (own, most) => own.or(most),
        };
        let due = message.deliver_at.filter(|at| *at > now);
        let mut stored =
            Stored { enqueued_at: due.unwrap_or(now), message, resubmitted_from: from, ..Stored::default() };
        stored.expires_at = ttl.map(|ttl| stored.enqueued_at.saturating_add(ttl).unwrap_or(Timestamp::MAX));
        stored.accepted_at = due.map(|_| now);
        stored
    }

    async fn enter(
        self: &Arc<Self>,
        mut stored: Stored,
        due: Option<Timestamp>,
        prepared: &mut Prepared,
    ) -> Result<u64, Error> {
        let Some(due) = due else {
            let position = self.begin(LaneId::Main).await?;
            stored.sequence = position;
            prepared.count(self, Delta { waiting: 1, incoming: 1, ..Delta::default() });
            prepared.arrive(self, LaneId::Main, position, stored)?;
            return Ok(position);
        };
        stored.sequence = self.number().await?;
        prepared.count(self, Delta { scheduled: 1, incoming: 1, ..Delta::default() });
        self.schedule(&stored, due, prepared)?;
        Ok(stored.sequence)
    }

    /// The writes that schedule a message under its number.
    pub(super) fn schedule(
        self: &Arc<Self>,
        stored: &Stored,
        due: Timestamp,
        prepared: &mut Prepared,
    ) -> Result<(), Error> {
        let number = stored.sequence;
        self.row(stored, End::Scheduled, 0).into_iter().for_each(|row| prepared.write(row));
        prepared.write(layout::pointer(&self.layout.numbered(number), due));
        for key in stored.message.cancel_keys() {
            prepared.write(layout::pointer(&self.layout.keyed(key, number), due));
        }
        prepared.arrive_timed(self, due, number, stored)
    }

    /// The writes that bring a message straight to the dead letters: a rule could not be decided on it.
    pub(super) async fn prepare_dead(
        self: &Arc<Self>,
        message: Message,
        why: &str,
        now: Timestamp,
        way: Way,
    ) -> Result<Prepared, Error> {
        let stored = Stored { message, enqueued_at: now, ..Stored::default() };
        if way != Way::Straight {
            return self.post_dead(&stored, why, now);
        }
        let mut prepared = Prepared::default();
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
        let (epoch, next, reserved, heads) = {
            let state = self.state();
            (state.epoch, state.next, state.reserved, (state.front.head(), state.main.head()))
        };
        if epoch == 0 {
            return Err(elsewhere());
        }
        if next < reserved {
            return Ok(());
        }
        let reserved = reserved + RESERVE;
        let mut writes = vec![layout::head(&self.layout, reserved, heads)];
        writes.extend(self.fence.check(epoch));
        match self.shared.store.transact(writes).await {
            Ok(()) => {
                let mut state = self.state();
                if state.epoch == epoch {
                    state.reserved = reserved;
                }
                Ok(())
            }
            Err(Error::Conflict { .. }) if self.fence.is_shared() => {
                self.shared.doubt();
                Err(elsewhere())
            }
            Err(error) => Err(error),
        }
    }

    /// The write that keeps the place of the head, if it has moved far enough. `last`: nothing comes after this; where
    /// several nodes share the store, [`Line::give_up`] says when that is.
    pub(super) fn flush(&self, last: bool) -> Option<Vec<Write>> {
        let state = self.state();
        if last {
            return if self.fence.is_shared() { None } else { self.last_head(&state) };
        }
        if state.epoch == 0 {
            return None;
        }
        let heads = (state.front.head(), state.main.head());
        if self.moved(heads) < HEAD_STEP {
            return None;
        }
        *self.flushed() = heads;
        // Without the numbers: more of them may be reserved before this is written.
        Some(self.fenced(layout::moved(&self.layout, heads), state.epoch))
    }

    fn last_head(&self, state: &State) -> Option<Vec<Write>> {
        let heads = (state.front.head(), state.main.head());
        let is_news = state.epoch != 0 && (state.reserved > state.next || self.moved(heads) > 0);
        is_news.then(|| self.fenced(layout::head(&self.layout, state.next, heads), state.epoch))
    }

    fn fenced(&self, write: Write, epoch: u64) -> Vec<Write> {
        std::iter::once(write).chain(self.fence.check(epoch)).collect()
    }

    fn moved(&self, heads: (u64, u64)) -> u64 {
        let flushed = self.flushed();
        heads.0.abs_diff(flushed.0).max(heads.1.abs_diff(flushed.1))
    }

    fn flushed(&self) -> MutexGuard<'_, (u64, u64)> {
        self.flushed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ---- what transactions leave behind ---------------------------------------------------------------------------

    /// What was counted in an epoch that is over, whoever has taken over since has read.
    pub(super) fn counted(&self, delta: &Delta, epoch: Option<u64>) {
        let mut state = self.state();
        if epoch.is_none_or(|epoch| epoch == state.epoch) {
            state.counts.add(delta);
        }
    }

    /// Messages of one transaction that came to their positions.
    pub(super) fn arrived(&self, epoch: u64, messages: Vec<(LaneId, u64, Arc<Stored>)>) {
        let (count, expires) = (messages.len(), messages.iter().filter_map(|(_, _, stored)| stored.expires_at).min());
        let mut state = self.state();
        if state.epoch != epoch {
            return;
        }
        for (lane, position, stored) in messages {
            state.lane(lane).commit(position, stored);
        }
        let earlier = expires.filter(|at| state.next_expiry.is_none_or(|known| *at < known));
        if earlier.is_some() {
            state.next_expiry = earlier;
        }
        drop(state);
        if earlier.is_some() {
            self.shared.alarm.notify_one();
        }
        self.wake(count);
    }

    pub(super) fn aborted(&self, epoch: u64, lane: LaneId, position: u64) {
        let mut state = self.state();
        if state.epoch == epoch {
            state.lane(lane).abort(position);
        }
        drop(state);
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

/// What a process knows of a line that it does not have.
fn not_ours(counts: Delta) -> State {
    State::new(Lane::new(1, 0), Lane::new(1, 0), counts, 1, 0)
}

/// The state of a line where it was left.
async fn read_state(shared: &Shared, layout: &Layout, counts: Delta, epoch: u64) -> Result<State, Error> {
    let head = shared.store.get(layout::table(), &layout.head()).await?.unwrap_or_default();
    let number = |name: &str| head.int(name).and_then(|n| u64::try_from(n).ok()).unwrap_or(1);
    let next = number("reserved");
    let lane = |head: u64| if counts.waiting > 0 { Lane::new(head, next - 1) } else { Lane::new(next, next - 1) };
    let mut state = State::new(lane(number("front")), lane(number("main")), counts, next, epoch);
    // Whether anything is scheduled or expires is looked up when the clock first ticks.
    state.next_due = Some(Timestamp::MIN);
    state.next_expiry = Some(Timestamp::MIN);
    Ok(state)
}

/// Nothing was done: another node has the line, or is about to.
pub(super) fn elsewhere() -> Error {
    Error::Throttled("another node has this line now".to_owned())
}
