//! Delivery: for each channel, take what is due, a bounded number at a time, and never let one destination hold up the
//! others.
//!
//! A [`Deliverer`] keeps a small window of due messages in memory; everything else stays in `due-index`, so that a
//! backlog costs no memory. Messages that are made while nobody waits come by hand ([`super::Signal`]); the index is read
//! after a start, when a moment has come, and when more came than the window holds. `limiter` says who may go, and
//! `ledger` writes what many of them have to write at once. When the window is full of messages whose destination is left
//! alone or has its hands full, those are *parked*: moved, once each, to a partition of `due-index` of their own, from
//! where they come back when the destination takes them. What follows them in the common partitions is then next.
//!
//! A message that has to wait here becomes `queued` (S002-44): at once if its destination is left alone or it is parked,
//! else after [`QUEUED_AFTER`]. One that can go is taken up straight away, and its `queued_at` says so: that costs no
//! write of its own.
//!
//! [`Deliverer::activate`] starts what can be started and says when to come back; `run` calls it whenever a message is
//! made, an attempt ends or a moment has come, and [`Deliverer::drain`] until nothing is left to do, which is how tests
//! move through hours of retries.

mod attempt;
pub mod expiry;
mod lane;
mod ledger;
mod park;
pub mod senders;
pub mod targets;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tidings_core::message::{Input, Status};
use tidings_core::time::Timestamp;
use tidings_store::{Change, Condition, Error, Item, Write};
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::attempt::{Desk, Looked, attempt};
use self::lane::Lane;
use self::ledger::Ledger;
use self::park::Parked;
use super::record::{self, CHANNELS, DUE_PARTS};
use super::transition::Stored;
use crate::app::Services;
use crate::channel::limiter::{Admission, Health, Limiter, Limits};
use crate::workers::turned_true;

/// Messages in the window at the most.
const WINDOW: usize = 512;
/// Read of one partition at a time, so that all have their turn.
const PORTION: usize = 64;
/// How often everything is looked at again although nobody said a word: another node may have made messages.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// The same on a store that other processes share: their new messages are not announced to us.
const LOOK_FORWARD: Duration = Duration::from_secs(2);
/// Who waits in the window for longer is `queued`. At a few hundred messages a second nobody does, so that a server with
/// much to do is spared a write for each.
pub const QUEUED_AFTER: Duration = Duration::from_secs(5);
/// A message of more bytes is not kept in the window, but read again when its turn comes.
const KEPT_BYTES: usize = 8 * 1024;
/// Attempts at the same time to a server that the configuration names; part of each is spent in our own store.
const PER_SERVER: u32 = 64;
const PER_PUSH_SERVER: u32 = 128;
/// How long attempts that are under way may take once the server stops.
const LAST_ATTEMPTS: Duration = Duration::from_secs(6);
/// After the store failed.
const PAUSE: Duration = Duration::from_secs(1);

/// A message that waits for its attempt.
#[derive(Debug, Clone)]
struct Stub {
    message_id: String,
    destination: String,
    revision: i64,
    /// As it was read, unless it is large.
    stored: Option<Box<Stored>>,
    /// On the monotonic clock.
    since: Duration,
    /// It is being made `queued`.
    queueing: bool,
}

/// A message that was to become `queued`, and how it is since; `None` if somebody else changed it.
type Queued = (String, Option<Box<Stored>>);

/// Sends the messages of one channel.
pub struct Deliverer {
    services: Services,
    channel: &'static str,
    desk: Arc<Desk>,
    concurrency: usize,
    limiter: Limiter,
    lanes: VecDeque<Lane>,
    window: VecDeque<Stub>,
    /// In the window, or under way.
    held: HashSet<String>,
    parked: Parked,
    running: JoinSet<(Stub, Result<Looked, Error>)>,
    /// Some of the window are being made `queued`; nobody waits for that.
    queueing: JoinSet<Vec<Queued>>,
    /// The next moment at which something is due; `None`: unknown.
    upcoming: Option<Option<Timestamp>>,
    looked_again: Option<Duration>,
    /// Whether the lanes may hold something due that was not read.
    unread: bool,
    looked_forward: Duration,
    last_now: Timestamp,
}

/// Starts a worker for each channel.
pub fn start(services: &Services) {
    for channel in CHANNELS {
        let deliverer = Deliverer::new(services, channel);
        services.workers.run(channel, run(deliverer, services.workers.stopping()));
    }
    let expiring = services.clone();
    services.workers.spawn("expiry", expiry::EVERY, move || {
        let services = expiring.clone();
        async move { expiry::expire(&services).await.map(drop).map_err(|error| error.to_string()) }
    });
}

/// Delivers until told to stop, then lets attempts under way end.
async fn run(mut deliverer: Deliverer, mut stop: watch::Receiver<bool>) {
    let services = deliverer.services.clone();
    let Some(signal) = services.messages.signals.of(deliverer.channel) else { return };
    loop {
        let pause = match deliverer.activate().await {
            Ok(next) => deliverer.pause_until(next),
            Err(error) => {
                tracing::warn!(channel = deliverer.channel, %error, "delivery failed; it will be tried again");
                PAUSE
            }
        };
        tokio::select! {
            () = deliverer.ended() => {}
            () = signal.noted() => {}
            () = tokio::time::sleep(pause) => {}
            () = turned_true(&mut stop) => break,
        }
    }
    let rest = async {
        while !deliverer.running.is_empty() {
            deliverer.ended().await
        }
    };
    if tokio::time::timeout(LAST_ATTEMPTS, rest).await.is_err() {
        tracing::warn!(channel = deliverer.channel, "some attempts did not end in time; they will be made again");
    }
}

impl Deliverer {
    #[must_use]
    pub fn new(services: &Services, channel: &'static str) -> Self {
        let config = &services.config.delivery;
        let per_destination = match channel {
            "webhook" => config.concurrency_per_host,
            "ntfy" => PER_PUSH_SERVER,
            _ => PER_SERVER,
        };
        let limits = Limits { concurrency: per_destination, ..Limits::default() };
        let now = services.clock.now();
        Self {
            services: services.clone(),
            channel,
            desk: Arc::new(Desk {
                services: services.clone(),
                owner: services.ids.uuid(now).to_string(),
                ledger: Ledger::new(Arc::clone(&services.store)),
            }),
            concurrency: usize::try_from(config.concurrency).unwrap_or(usize::MAX),
            limiter: Limiter::new(limits),
            lanes: (0..DUE_PARTS).map(|part| Lane::new(record::due_part(channel, part))).collect(),
            window: VecDeque::new(),
            held: HashSet::new(),
            parked: Parked::new(channel),
            running: JoinSet::new(),
            queueing: JoinSet::new(),
            upcoming: None,
            looked_again: None,
            unread: true,
            looked_forward: Duration::ZERO,
            last_now: now,
        }
    }

    /// Starts what is due and may go; gives the moment at which something more can be done, unless an attempt that is
    /// under way ends before.
    pub async fn activate(&mut self) -> Result<Option<Timestamp>, Error> {
        let (now, monotonic) = (self.services.clock.now(), self.services.clock.monotonic());
        self.look_again(now, monotonic).await?;
        self.hear(now, monotonic)?;
        if self.upcoming.is_none_or(|upcoming| upcoming.is_some_and(|due| due <= now)) {
            self.unread = true;
        }
        loop {
            if self.unread {
                self.unread = !self.fill(now, monotonic).await?;
            }
            // Parked ones first: a destination that has none left is served from the window again.
            self.start_parked(now, monotonic).await?;
            let blocked = self.start_window(monotonic);
            if !self.unread || self.running.len() >= self.concurrency {
                break;
            }
            // Whoever is blocked and has others waiting behind makes room for them.
            if self.window.len() >= WINDOW && !self.park(&blocked).await? {
                break;
            }
        }
        self.queue_up(now, monotonic);
        let open = self.limiter.open(monotonic);
        self.services.metrics.delivery.seen(self.channel, self.window.len(), self.running.len(), open);
        let due = self.next_due(now).await?;
        Ok(due.into_iter().chain(self.opens(now, monotonic)).min())
    }

    /// When the first destination that somebody waits for is tried again.
    fn opens(&self, now: Timestamp, monotonic: Duration) -> Option<Timestamp> {
        // With one destination, the first speaks for all.
        let several = if self.channel == "webhook" { usize::MAX } else { 1 };
        let waiting = self.window.iter().take(several).map(|stub| stub.destination.as_str());
        let waiting: BTreeSet<&str> = waiting.chain(self.parked.destinations()).collect();
        let opens = waiting.into_iter().filter_map(|destination| self.limiter.opens(destination, monotonic)).min();
        opens.map(|after| now.saturating_add(after).unwrap_or(Timestamp::MAX))
    }

    /// Waits until one of the attempts under way has ended, and takes note of all that have. Without any, for ever.
    pub async fn ended(&mut self) {
        let Some(joined) = self.running.join_next().await else { return std::future::pending().await };
        self.end(joined);
        while let Some(joined) = self.running.try_join_next() {
            self.end(joined);
        }
    }

    fn end(&mut self, joined: Result<(Stub, Result<Looked, Error>), tokio::task::JoinError>) {
        let monotonic = self.services.clock.monotonic();
        match joined {
            Ok((stub, looked)) => {
                self.held.remove(&stub.message_id);
                let looked = looked.unwrap_or_else(|error| {
                    tracing::warn!(channel = self.channel, message_id = stub.message_id, %error, "an attempt failed in the store");
                    // It stays in the index; somebody has to come back for it.
                    self.looked_again = None;
                    Looked { health: Health::Untried, due: None }
                });
                self.limiter.end(&stub.destination, looked.health, monotonic);
                if let Some(due) = looked.due {
                    // Whoever read on while it was in our hands has passed it by.
                    self.lanes.iter_mut().for_each(|lane| lane.back_to(due));
                    if let Some(upcoming) = &mut self.upcoming {
                        *upcoming = Some(upcoming.map_or(due, |known| known.min(due)));
                    }
                }
            }
            // Nothing in an attempt panics on purpose; whose it was is not known, so that everything is read again.
            Err(error) => {
                tracing::error!(channel = self.channel, %error, "an attempt panicked");
                self.looked_again = None;
            }
        }
    }

    /// Delivers until nothing more can be done at this moment; gives the next one.
    pub async fn drain(&mut self) -> Result<Option<Timestamp>, Error> {
        self.unread = true;
        loop {
            let next = self.activate().await?;
            if let Some(joined) = self.queueing.join_next().await {
                self.take_queued(joined.unwrap_or_default());
            } else if self.running.is_empty() {
                return Ok(next);
            } else {
                self.ended().await;
            }
        }
    }

    /// Attempts under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.running.len()
    }

    /// Now and then, and when the clock was set back, reads everything from its start.
    async fn look_again(&mut self, now: Timestamp, monotonic: Duration) -> Result<(), Error> {
        let long_ago = self.looked_again.is_none_or(|at| monotonic.saturating_sub(at) >= LOOK_AGAIN);
        let set_back = now < self.last_now;
        self.last_now = now;
        if !long_ago && !set_back {
            let shared = self.services.embedded.is_none();
            if shared && monotonic.saturating_sub(self.looked_forward) >= LOOK_FORWARD {
                (self.unread, self.looked_forward) = (true, monotonic);
            }
            return Ok(());
        }
        self.parked.load(&*self.services.store).await?;
        if self.looked_again.is_none() && self.services.embedded.is_some() {
            self.take_over(now).await?;
        }
        self.lanes.iter_mut().for_each(Lane::rewind);
        (self.upcoming, self.unread) = (None, true);
        self.limiter.forget_idle(monotonic);
        self.looked_again = Some(monotonic);
        Ok(())
    }

    /// On the embedded store there is no other process: whoever else has a lease is gone, and need not be waited for.
    async fn take_over(&mut self, now: Timestamp) -> Result<(), Error> {
        let until = now.saturating_add(attempt::longest_lease()).unwrap_or(Timestamp::MAX);
        let (store, table) = (&*self.services.store, &self.services.messages.table);
        for lane in self.lanes.iter().chain(self.parked.lanes()) {
            let mut after = None;
            loop {
                let page = lane.between(store, table, (now, until), after).await?;
                for item in &page.items {
                    let Some(write) = self.release(item, now) else { continue };
                    match store.transact(vec![write]).await {
                        Ok(()) | Err(Error::Conflict { .. }) => {}
                        Err(error) => return Err(error),
                    }
                }
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// The write that ends a dead process's lease. The state stays; the attempt is closed by whoever takes it up.
    fn release(&self, item: &Item, now: Timestamp) -> Option<Write> {
        let owner = item.str("lease_owner").filter(|owner| *owner != self.desk.owner)?;
        let changes = vec![
            Change::Set("next_attempt_at".into(), tidings_core::time::iso_millis(now).into()),
            Change::Add("revision".into(), 1),
        ];
        let write = Write::update(&self.services.messages.table, record::key(item.str("message_id")?), changes);
        Some(write.when(Condition::Equals("lease_owner".into(), owner.into())))
    }

    /// Takes note of what was made since: into the window if nobody waits before it, else it is found in the index.
    fn hear(&mut self, now: Timestamp, monotonic: Duration) -> Result<(), Error> {
        let Some(signal) = self.services.messages.signals.of(self.channel) else { return Ok(()) };
        let news = signal.take();
        let by_hand = !self.unread && self.window.len() + news.messages.len() <= WINDOW;
        let mut left = news.earliest.into_iter().collect::<Vec<_>>();
        for message in news.messages {
            let due = message.due_at().unwrap_or(now);
            if !by_hand || due > now {
                left.push(due);
                continue;
            }
            let stub = Stub::of(Stored::just_made(message)?, monotonic);
            if self.held.insert(stub.message_id.clone()) {
                self.window.push_back(stub);
            }
        }
        let Some(due) = left.into_iter().min() else { return Ok(()) };
        self.lanes.iter_mut().for_each(|lane| lane.back_to(due));
        if due <= now {
            self.unread = true;
        } else if let Some(upcoming) = &mut self.upcoming {
            *upcoming = Some(upcoming.map_or(due, |known| known.min(due)));
        }
        Ok(())
    }

    /// Fills the window; `true` if everything that is due is in it.
    async fn fill(&mut self, now: Timestamp, monotonic: Duration) -> Result<bool, Error> {
        let mut all_read = 0;
        while all_read < self.lanes.len() && self.window.len() < WINDOW {
            let Some(mut lane) = self.lanes.pop_front() else { break };
            let limit = PORTION.min(WINDOW - self.window.len());
            let read = lane.read(&*self.services.store, &self.services.messages.table, now, limit).await;
            self.lanes.push_back(lane);
            let (items, end) = read?;
            all_read = if end { all_read + 1 } else { 0 };
            for item in items {
                let stub = Stub::of(Stored::read(item)?, monotonic);
                if self.held.insert(stub.message_id.clone()) {
                    self.window.push_back(stub);
                }
            }
        }
        Ok(all_read >= self.lanes.len())
    }

    /// Those who have to wait become `queued`; all of them in as few transactions as they fit in, while others go on.
    fn queue_up(&mut self, now: Timestamp, monotonic: Duration) {
        while let Some(joined) = self.queueing.try_join_next() {
            self.take_queued(joined.unwrap_or_default());
        }
        if !self.queueing.is_empty() {
            return;
        }
        let mut waiting = Vec::new();
        for stub in &mut self.window {
            let Some(stored) = stub.stored.as_deref().filter(|_| !stub.queueing) else { continue };
            let left_alone =
                || self.parked.has(&stub.destination) || self.limiter.opens(&stub.destination, monotonic).is_some();
            let long = monotonic.saturating_sub(stub.since) >= QUEUED_AFTER;
            if stored.message.delivery.status != Status::Created || !(long || left_alone()) {
                continue;
            }
            if let Ok(transition) = self.services.messages.transition(stored, Input::Queued, now, |_| {}) {
                stub.queueing = true;
                waiting.push(transition);
            }
        }
        if waiting.is_empty() {
            return;
        }
        let desk = Arc::clone(&self.desk);
        self.queueing.spawn(async move {
            let entered = waiting.into_iter().map(|transition| {
                let (desk, after) = (&desk, transition.after);
                async move {
                    let id = after.message.message_id.clone();
                    let entered = desk.ledger.enter(transition.writes, transition.tally).await;
                    (id, entered.is_ok().then(|| Box::new(after)))
                }
            });
            join_all(entered).await
        });
    }

    /// What was changed, or by somebody else, is known anew or read again when its turn comes.
    fn take_queued(&mut self, queued: Vec<Queued>) {
        let mut queued: HashMap<String, Option<Box<Stored>>> = queued.into_iter().collect();
        for stub in &mut self.window {
            if let Some(stored) = queued.remove(&stub.message_id) {
                stub.revision = stored.as_ref().map_or(stub.revision, |stored| stored.message.revision);
                stub.stored = stored;
                stub.queueing = false;
            }
        }
    }

    /// Starts what may go of the window; gives the destinations that may not.
    fn start_window(&mut self, monotonic: Duration) -> BTreeSet<String> {
        let mut blocked = BTreeSet::new();
        for _ in 0..self.window.len() {
            if self.running.len() >= self.concurrency {
                break;
            }
            let Some(stub) = self.window.pop_front() else { break };
            // Whoever has parked messages is served from there, in their order.
            let may_go = !blocked.contains(&stub.destination)
                && !self.parked.has(&stub.destination)
                && self.limiter.admit(&stub.destination, monotonic) == Admission::Go;
            if may_go {
                self.spawn(stub);
                continue;
            }
            blocked.insert(stub.destination.clone());
            if self.channel != "webhook" {
                // All go to the same place.
                self.window.push_front(stub);
                break;
            }
            self.window.push_back(stub);
        }
        blocked
    }

    async fn start_parked(&mut self, now: Timestamp, monotonic: Duration) -> Result<(), Error> {
        let destinations: Vec<String> = self.parked.destinations().map(ToOwned::to_owned).collect();
        for destination in destinations {
            while self.running.len() < self.concurrency {
                if self.limiter.admit(&destination, monotonic) != Admission::Go {
                    break;
                }
                let (store, table) = (&*self.services.store, &self.services.messages.table);
                let next = self.parked.next(&destination, store, table, now, &mut self.held).await;
                match next {
                    Ok(Some(stub)) => self.spawn(stub),
                    other => {
                        self.limiter.end(&destination, Health::Untried, monotonic);
                        other?;
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    fn spawn(&mut self, mut stub: Stub) {
        let desk = Arc::clone(&self.desk);
        self.running.spawn(async move {
            let looked = Box::pin(attempt(&desk, &stub.message_id, stub.stored.take())).await;
            if looked.is_err() {
                // A store that fails is not to be asked again at once.
                tokio::time::sleep(PAUSE).await;
            }
            (stub, looked)
        });
    }

    /// Parks what is blocked; `true` if that made room.
    async fn park(&mut self, blocked: &BTreeSet<String>) -> Result<bool, Error> {
        // With one destination there is nobody to make room for.
        if self.channel != "webhook" {
            return Ok(false);
        }
        let window = std::mem::take(&mut self.window).into_iter();
        let (going, staying): (Vec<Stub>, Vec<Stub>) = window.partition(|stub| blocked.contains(&stub.destination));
        self.window = VecDeque::from(staying);
        for stub in &going {
            self.held.remove(&stub.message_id);
        }
        self.parked.park(&self.services, &going).await?;
        Ok(!going.is_empty())
    }

    async fn next_due(&mut self, now: Timestamp) -> Result<Option<Timestamp>, Error> {
        if let Some(known) = self.upcoming
            && known.is_none_or(|due| due > now)
        {
            return Ok(known);
        }
        let mut first = None;
        for lane in &self.lanes {
            let due = lane.upcoming(&*self.services.store, &self.services.messages.table, now).await?;
            first = first.into_iter().chain(due).min();
        }
        self.upcoming = Some(first);
        Ok(first)
    }

    fn pause_until(&self, next: Option<Timestamp>) -> Duration {
        let now = self.services.clock.now();
        let wait = next.map(|next| Duration::try_from(next.duration_since(now)).unwrap_or_default());
        let longest = if self.services.embedded.is_none() {
            LOOK_FORWARD
        } else if self.window.is_empty() {
            LOOK_AGAIN
        } else {
            // They may have to be `queued` by then.
            QUEUED_AFTER
        };
        wait.unwrap_or(longest).min(longest)
    }
}

impl Stub {
    fn of(stored: Stored, since: Duration) -> Self {
        let message = &stored.message;
        Self {
            message_id: message.message_id.clone(),
            destination: senders::destination(message),
            revision: message.revision,
            stored: (stored.size() <= KEPT_BYTES).then(|| Box::new(stored)),
            since,
            queueing: false,
        }
    }
}
