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
mod hands;
mod lane;
mod look;
mod park;
mod queueing;
mod roster;
pub mod senders;
pub mod targets;
mod window;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashSet;
use tidings_core::time::Timestamp;
use tidings_store::Error;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::attempt::{Desk, Known, Looked, attempt};
use self::hands::{Ended, Hands, Work};
use self::lane::Lane;
use self::park::{Parked, Parking};
use self::queueing::Queued;
use self::window::{Stub, Window};
use super::ledger::Ledger;
use super::record::{self, CHANNELS, DUE_PARTS};
use crate::alarm::Alarm;
use crate::app::Services;
use crate::channel::limiter::{Admission, Health, Limiter, Limits};
use crate::workers::turned_true;

/// Messages in the window at the most.
const WINDOW: usize = 1024;
/// Where all go to the same place, the index is read again when the window is half empty: larger portions cost less.
const REFILLED_AT: usize = WINDOW / 2;
/// How often everything is looked at again although nobody said a word: another node may have made messages.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// The same on a store that other processes share: their new messages are not announced to us.
const LOOK_FORWARD: Duration = Duration::from_secs(2);
/// Who waits in the window for longer is `queued`. At a few hundred messages a second nobody does, so that a server with
/// much to do is spared a write for each.
pub const QUEUED_AFTER: Duration = Duration::from_secs(5);
/// Attempts at the same time to a server that the configuration names; part of each is spent in our own store.
const PER_SERVER: u32 = 64;
const PER_PUSH_SERVER: u32 = 128;
/// How long attempts that are under way may take once the server stops.
const LAST_ATTEMPTS: Duration = Duration::from_secs(6);
/// How long of that the copy of a mail may take that is under way; then what became of the others is recorded.
const LAST_COPY: Duration = Duration::from_secs(4);
/// After the store failed.
const PAUSE: Duration = Duration::from_secs(1);

/// Sends the messages of one channel.
pub struct Deliverer {
    services: Services,
    channel: &'static str,
    desk: Arc<Desk>,
    concurrency: usize,
    limiter: Limiter,
    lanes: VecDeque<Lane>,
    window: Window,
    /// In the window, or under way.
    held: FxHashSet<String>,
    parked: Parked,
    /// Attempts under way.
    running: Hands<Desk>,
    /// Some of the window are being made `queued`; nobody waits for that.
    queueing: JoinSet<Vec<Queued>>,
    parking: Parking,
    /// The next moment at which something is due; `None`: unknown.
    upcoming: Option<Option<Timestamp>>,
    looked_again: Option<Duration>,
    /// Whether the lanes may hold something due that was not read.
    unread: bool,
    looked_forward: Duration,
    /// On a shared store: the nodes that lived when it was last looked, and when one of them was found dead.
    living: BTreeSet<String>,
    bereaved: Option<Duration>,
    last_now: Timestamp,
}

/// Where a channel's attempts are written down. A store of our own does one thing after the other anyway, and makes the
/// most of what comes together; over a network, one channel does not wait for another.
fn ledger(services: &Services) -> Ledger {
    match &services.embedded {
        Some(_) => services.messages.ledger.clone(),
        None => Ledger::new(Arc::clone(&services.store), 1),
    }
}

/// Starts a worker for each channel.
pub fn start(services: &Services) {
    for channel in CHANNELS {
        let deliverer = Deliverer::new(services, channel);
        services.workers.run(channel, run(deliverer, services.workers.stopping()));
    }
    let (expiring, watch) = (services.clone(), Arc::new(expiry::Watch::default()));
    services.workers.spawn("expiry", expiry::EVERY, move || {
        let (services, watch) = (expiring.clone(), Arc::clone(&watch));
        async move { expiry::expire(&services, &watch).await.map(drop).map_err(|error| error.to_string()) }
    });
}

/// Delivers until told to stop, then lets attempts under way end.
async fn run(mut deliverer: Deliverer, mut stop: watch::Receiver<bool>) {
    let services = deliverer.services.clone();
    let Some(signal) = services.messages.signals.of(deliverer.channel) else { return };
    let mut alarm = std::pin::pin!(tokio::time::sleep(Duration::ZERO));
    loop {
        match deliverer.activate().await {
            Ok(next) => {
                let at = Instant::now() + deliverer.pause_until(next);
                // One that rings too early does no harm, and most are far away: a timer is not set anew for each look.
                if alarm.is_elapsed() || at < alarm.deadline() {
                    alarm.as_mut().reset(at);
                }
            }
            Err(error) => {
                tracing::warn!(channel = deliverer.channel, %error, "delivery failed; it will be tried again");
                alarm.as_mut().reset(Instant::now() + PAUSE);
            }
        }
        tokio::select! {
            // First, or what ends because of it would be taken up again.
            biased;
            () = turned_true(&mut stop) => break,
            () = deliverer.ended() => {}
            () = signal.noted() => {}
            () = alarm.as_mut() => {}
        }
        // Whoever is about to come comes along: a look for many costs little more than one for one.
        tokio::task::yield_now().await;
    }
    let rest = async {
        while !deliverer.running.is_empty() {
            deliverer.ended().await
        }
    };
    if tokio::time::timeout(LAST_ATTEMPTS, rest).await.is_err() {
        tracing::warn!(
            channel = deliverer.channel,
            "some attempts did not end in time; they count as failed, and messages that have one left are tried again"
        );
    }
}

/// Attempts, each of a message that may go.
impl Work for Desk {
    type Piece = Stub;
    type Done = (Stub, Result<Looked, Error>);
    type Kit = Alarm;

    async fn work(&self, alarm: &mut Alarm, mut stub: Stub) -> Self::Done {
        // What is being written of it at this moment must not come between.
        let at_once = stub.is_new && !stub.queueing;
        let known = stub.stored.take().map(|stored| Known { stored, seen: stub.seen });
        let looked = attempt(self, alarm, &stub.message_id, known, at_once).await;
        if looked.is_err() {
            // A store that fails is not to be asked again at once.
            tokio::time::sleep(PAUSE).await;
        }
        (stub, looked)
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
        let concurrency = usize::try_from(config.concurrency).unwrap_or(usize::MAX);
        let limits = Limits { concurrency: per_destination, ..Limits::default() };
        // Only webhooks go to many: any number of those that never answer leaves half of the hands to the others.
        let limits = match channel {
            "webhook" => Limits { unknown: 1, unknown_in_all: (concurrency / 2).max(1), ..limits },
            _ => limits,
        };
        let now = services.clock.now();
        let desk = Arc::new(Desk {
            services: services.clone(),
            owner: look::owner(services, now),
            ledger: ledger(services),
            stop: services.workers.stopping(),
        });
        Self {
            services: services.clone(),
            channel,
            running: Hands::new(Arc::clone(&desk)),
            desk,
            concurrency,
            limiter: Limiter::new(limits),
            lanes: (0..DUE_PARTS).map(|part| Lane::new(record::due_part(channel, part))).collect(),
            window: Window::default(),
            held: FxHashSet::default(),
            parked: Parked::new(channel),
            queueing: JoinSet::new(),
            parking: Parking::default(),
            upcoming: None,
            looked_again: None,
            unread: true,
            looked_forward: Duration::ZERO,
            living: BTreeSet::new(),
            bereaved: None,
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
        // With one destination there is nobody behind who could go.
        let refilled_at = if self.has_many_destinations() { WINDOW - 1 } else { REFILLED_AT };
        loop {
            if self.unread && self.window.len() <= refilled_at {
                self.unread = !self.fill(now, monotonic).await?;
            }
            // Parked ones first: a destination that has none left is served from the window again.
            self.start_parked(now, monotonic).await?;
            self.start_window(monotonic);
            if !self.unread || self.running.len() >= self.concurrency {
                break;
            }
            // Whoever is left cannot go, and makes room for others behind.
            if self.window.len() > refilled_at && !self.park() {
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
        let (window, parked) = (self.window.lines(), self.parked.lanes());
        let opens = |destination| self.limiter.opens(destination, monotonic);
        let wakes = window.next_wake().into_iter().chain(parked.next_wake());
        let wakes = wakes.map(|until| until.saturating_sub(monotonic));
        let opens = window.awake().chain(parked.awake()).filter_map(opens).chain(wakes).min();
        opens.map(|after| now.saturating_add(after).unwrap_or(Timestamp::MAX))
    }

    /// Waits until one of the attempts under way has ended, or what is written of the window; takes note of all that has.
    /// Without any, for ever.
    pub async fn ended(&mut self) {
        tokio::select! {
            ended = self.running.ended() => {
                let monotonic = self.services.clock.monotonic();
                for ended in ended {
                    self.end(ended, monotonic);
                }
            }
            Some(queued) = self.queueing.join_next() => self.take_queued(queued.unwrap_or_default()),
            (stubs, parked) = self.parking.ended() => self.take_parked(&stubs, parked),
        }
    }

    fn end(&mut self, ended: Ended<Desk>, monotonic: Duration) {
        match ended {
            Ok((stub, looked)) => {
                self.held.remove(&stub.message_id);
                let looked = looked.unwrap_or_else(|error| {
                    tracing::warn!(channel = self.channel, message_id = stub.message_id, %error, "an attempt failed in the store");
                    // It stays in the index; somebody has to come back for it.
                    self.looked_again = None;
                    Looked { health: Health::Untried, due: None }
                });
                self.limiter.end(&stub.destination, looked.health, monotonic);
                self.window.wake(&stub.destination);
                self.parked.wake(&stub.destination);
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
                tracing::error!(channel = self.channel, error, "an attempt panicked");
                self.looked_again = None;
            }
        }
    }

    /// Delivers until nothing more can be done at this moment; gives the next one.
    pub async fn drain(&mut self) -> Result<Option<Timestamp>, Error> {
        self.unread = true;
        loop {
            let next = self.activate().await?;
            if self.running.is_empty() && self.queueing.is_empty() && self.parking.is_empty() {
                return Ok(next);
            }
            self.ended().await;
        }
    }

    /// Whether one destination can hold up another. Mail and push go to one server each.
    fn has_many_destinations(&self) -> bool {
        self.channel == "webhook"
    }

    /// Attempts under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.running.len()
    }

    /// Messages in memory, under way or not; the others are in the store alone.
    #[must_use]
    pub fn in_memory(&self) -> usize {
        self.held.len()
    }

    /// Starts what may go of the window. With room left for more attempts, nobody who stays there may.
    fn start_window(&mut self, monotonic: Duration) {
        let room = self.concurrency.saturating_sub(self.running.len());
        let (parked, limiter) = (&self.parked, &mut self.limiter);
        let admit = |destination: &str| {
            if parked.has(destination) {
                // Whoever has parked messages is served from there, in their order; who comes later waits until all are gone.
                Admission::Open { until: Duration::MAX }
            } else {
                limiter.admit(destination, monotonic)
            }
        };
        for stub in self.window.take(room, monotonic, admit) {
            self.running.begin(stub);
        }
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
