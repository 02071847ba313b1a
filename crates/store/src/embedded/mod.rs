//! The embedded engine: items, items kept apart, and index entries, first in a log and in memory, then in three fjall
//! keyspaces.
//!
//! `layout` is the data directory, `database` what fjall has in it, `tables` those that are open, `keys` and `codec` the
//! bytes, `scratch` where they are put together, `plan` what happens before the committer, `binding` which new items become
//! a `sheaf`, `commit` the one thread that writes, `group` and `crowds` what it decides, `log` what it writes, `front` the
//! same in memory, `settle` what brings it into fjall's tables, `view` all of it as one, `stored` and `lists` items and
//! entries wherever they stand, `read` the queries, `sweep` what removes expired items, `orphans` what a crash leaves
//! behind, `backup` the way out and back in.

mod absent;
mod aside;
mod backup;
mod binding;
mod commit;
mod crowds;
mod database;
mod front;
mod group;
mod journal;
mod keys;
mod layout;
mod lists;
mod log;
mod orphans;
mod plan;
mod read;
mod scratch;
mod settle;
mod sheaf;
mod space;
mod stored;
mod sweep;
mod tables;
mod versions;
mod view;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use async_trait::async_trait;
use fjall::Database;
use tidings_core::time::Clock;
use tokio::sync::{mpsc, oneshot};

pub use backup::{BackupSummary, restore};
pub use layout::require_unlocked;
pub use sweep::Archive;

use crate::codec;
use crate::item::{Item, Key};
use crate::query::{Page, Query};
use crate::table::Table;
use crate::write::Write;
use crate::{Error, Health, Store, limits};
use commit::{Committer, Request};
use database::{Keyspaces, build_new_indexes, open_database, read_ids, read_sequence, record_ids};
use front::{Front, Space};
use orphans::SecondNames;
use read::{Reader, read_failed};
use stored::StoredItems;
use tables::Tables;
use view::View;

/// Transactions that may wait for the committer; more callers than that wait to hand theirs in.
const QUEUE: usize = 4096;
/// Items of a query that are read in one go: commits wait for it.
const STRETCH: usize = 100;
/// How often the high-water mark follows the commits.
const HIGH_WATER_EVERY: Duration = Duration::from_secs(1);
/// Nobody seems to want anything when there were no more than so many commits between two looks, so many times in a row.
const QUIET_COMMITS: u64 = 4;
const QUIET_TIMES: u32 = 3;

/// How to open the store.
#[derive(Debug, Clone)]
pub struct Options {
    pub dir: PathBuf,
    /// Bytes of blocks kept in memory.
    pub cache_bytes: u64,
    /// Free bytes on the disk below which writes are refused.
    pub reserve_bytes: u64,
    /// Bytes of commits in memory at which they are written into tables.
    pub sheet_bytes: usize,
    /// Only for the negative control of the crash tests: acknowledges what a power cut would lose.
    pub acknowledge_before_fsync: bool,
    /// The runtime whose tasks use the store, if it is one for as long as the store is open: answering is cheaper then.
    pub callers: Option<tokio::runtime::Handle>,
}

impl Options {
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            cache_bytes: 32 * 1024 * 1024,
            reserve_bytes: 256 * 1024 * 1024,
            sheet_bytes: 32 * 1024 * 1024,
            acknowledge_before_fsync: false,
            callers: None,
        }
    }
}

/// Hears of every group commit, for metrics.
pub trait Observer: Send + Sync + 'static {
    fn committed(&self, transactions: usize, bytes: usize, took: Duration);
}

/// An observer that does not care.
impl Observer for () {
    fn committed(&self, _transactions: usize, _bytes: usize, _took: Duration) {}
}

/// The engine on a local directory. Cheap to share behind an `Arc`; closes when the last one goes.
pub struct Embedded {
    db: Database,
    database: PathBuf,
    spaces: Keyspaces,
    shared: Arc<Shared>,
    requests: Option<mpsc::Sender<Request>>,
    threads: Vec<std::thread::JoinHandle<()>>,
    /// Dropping these tells threads to stop that go through a table.
    going_through: Vec<std::sync::mpsc::Sender<()>>,
    _lock: layout::Lock,
}

/// What the committer and the callers both see.
struct Shared {
    clock: Arc<dyn Clock>,
    observer: Arc<dyn Observer>,
    tables: Tables,
    /// What is not in fjall's tables yet.
    front: RwLock<Front>,
    space: space::Space,
    /// The last commit known to be durable.
    sequence: AtomicU64,
    broken: Mutex<Option<String>>,
}

impl Embedded {
    /// Tables that hold something and were not opened: another configuration's.
    pub fn unopened(&self) -> Result<Vec<String>, Error> {
        let record = read_ids(&self.spaces.items)?;
        let front = self.shared.front();
        let view = View::new(&front, &self.db, &self.spaces);
        let mut names = Vec::new();
        for (name, id) in record.iter().filter(|(name, _)| !name.contains('/')) {
            let apart = record.contains_key(&format!("{name}/"));
            let first = view.prefix(Space::items(apart), &id.to_be_bytes()).next();
            if !self.shared.tables.is_open(name) && first.is_some() {
                names.push(name.clone());
            }
        }
        Ok(names)
    }

    /// Opens or makes the store in a directory, for `tables`.
    pub fn open(
        options: &Options,
        tables: &[Table],
        clock: Arc<dyn Clock>,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, Error> {
        let dir = &options.dir;
        layout::make_dir(dir)?;
        let lock = layout::lock(dir)?;
        layout::check_restored(dir)?;
        layout::check_format(dir)?;
        let high_water = layout::HighWater::of(dir);
        let (db, spaces, log::Recovered { sheet, sequence, log }, second_names) = recover(options, &high_water)?;

        let record = read_ids(&spaces.items)?;
        let (ids, added) = layout::assign_ids(&record, tables)?;
        let tables = Tables::new(tables, ids);
        record_ids(&db, &spaces.items, &added)?;
        build_new_indexes(&db, &spaces, &tables, &added, &sheet)?;
        tables.note_present(&sheet);

        let space =
            space::Space { dir: dir.clone(), reserve_bytes: options.reserve_bytes, room_until: AtomicU64::new(0) };
        let shared = Arc::new(Shared {
            clock,
            observer,
            tables,
            front: RwLock::new(Front { open: sheet, closed: Vec::new() }),
            space,
            sequence: AtomicU64::new(sequence),
            broken: Mutex::new(None),
        });
        let (requests, receiver) = mpsc::channel(QUEUE);
        let (settler, settling) = settle::Settler::start(&db, &spaces, &shared)?;
        aside::step_aside();
        // What was found in the log has its place in the tables.
        settler.settle(shared.front_mut().close(log.segment(), sequence));
        let committer = Committer {
            db: db.clone(),
            spaces: spaces.clone(),
            shared: Arc::clone(&shared),
            requests: receiver,
            listed: crowds::Listed::default(),
            log,
            settler,
            sheet_bytes: options.sheet_bytes,
            callers: options.callers.clone(),
            acknowledge_before_fsync: options.acknowledge_before_fsync,
        };
        let (stop, stopped) = std::sync::mpsc::channel();
        let watched = Arc::clone(&shared);
        // Weak: who watches does not keep the committer waiting for more.
        let quiet = requests.downgrade();
        let committer = spawn("committer", move || {
            committer.run();
            drop(stop);
        })?;
        let marker = spawn("high-water", move || keep_high_water(&high_water, &watched, sequence, &quiet, &stopped))?;
        let mut threads = vec![committer, settling, marker, spawn("orphans", move || second_names.remove())?];
        let mut going_through = Vec::new();
        for tables::Opened { ids, absent, .. } in shared.tables.all() {
            let Some(absent) = absent.as_ref().map(Arc::clone) else { continue };
            let (stop, stopped) = std::sync::mpsc::channel();
            let (items, id) = (spaces.items(ids.apart).clone(), ids.table);
            threads.push(spawn("absent", move || absent.go_through(&items, id, &stopped))?);
            going_through.push(stop);
        }
        Ok(Self {
            db,
            database: dir.join(layout::DATABASE),
            spaces,
            shared,
            requests: Some(requests),
            threads,
            going_through,
            _lock: lock,
        })
    }

    /// The number of the last durable commit.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.shared.sequence.load(Ordering::Acquire)
    }

    /// Bytes the store takes on disk.
    pub fn disk_bytes(&self) -> Result<u64, Error> {
        Ok(self.db.disk_space().map_err(read_failed)? + log::disk_bytes(&self.database))
    }

    fn stored(&self) -> StoredItems<'_> {
        StoredItems { db: &self.db, spaces: &self.spaces, shared: &self.shared }
    }

    async fn submit<T>(&self, make: impl FnOnce(oneshot::Sender<T>) -> Request) -> Result<T, Error> {
        let gone = || Error::ReadOnly(self.shared.broken().unwrap_or_else(|| "the store is closed".to_owned()));
        let (reply, answer) = oneshot::channel();
        let requests = self.requests.as_ref().ok_or_else(gone)?;
        requests.send(make(reply)).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())
    }
}

#[async_trait]
impl Store for Embedded {
    async fn get(&self, table: &Table, key: &Key) -> Result<Option<Item>, Error> {
        table.check_key(key)?;
        let opened = self.shared.tables.opened(table)?;
        let bytes = self.stored().item(opened, &keys::item(opened.ids.table, key))?;
        let item = bytes.map(|bytes| codec::decode(&bytes)).transpose()?;
        let now = self.shared.clock.now().as_second();
        Ok(item.filter(|item| !table.is_expired(item, now)))
    }

    async fn query(&self, table: &Table, query: &Query) -> Result<Page, Error> {
        let opened = self.shared.tables.opened(table)?;
        let now = self.shared.clock.now().as_second();
        let mut stretch = Query { limit: query.limit.min(STRETCH), ..query.clone() };
        let (mut page, mut bytes) = (Page::default(), 0);
        loop {
            let front = self.shared.front();
            let view = View::new(&front, &self.db, &self.spaces);
            let found = Reader { view: &view, now, bytes }.query(opened, &stretch)?;
            drop(view);
            drop(front);
            let left = query.limit.saturating_sub(page.items.len() + found.items.len());
            let goes_on = found.next.is_some() && left > 0;
            bytes += if goes_on { found.items.iter().map(Item::size).sum() } else { 0 };
            page.items.extend(found.items);
            if !goes_on || bytes >= limits::PAGE_BYTES {
                page.next = found.next;
                return Ok(page);
            }
            stretch = Query { limit: left.min(STRETCH), after: found.next, ..stretch };
        }
    }

    async fn transact(&self, writes: Vec<Write>) -> Result<(), Error> {
        let plan = plan::plan(&self.shared.tables, writes)?;
        self.submit(|reply| Request::Transact(plan, reply)).await?
    }

    async fn transact_each(&self, transactions: Vec<Vec<Write>>) -> Vec<Result<(), Error>> {
        self.transact_made(&mut transactions.into_iter()).await
    }

    async fn transact_made(
        &self,
        transactions: &mut (dyn Iterator<Item = Vec<Write>> + Send),
    ) -> Vec<Result<(), Error>> {
        let (mut plans, mut answers) = plan::plan_each(&self.shared.tables, transactions);
        // Most requests bring one event, and one answer needs no list.
        let decided = if let Some(plan) = plans.all.pop_if(|_| answers.len() == 1) {
            self.submit(|reply| Request::Transact(plan, reply)).await.map(|decided| vec![decided])
        } else {
            self.submit(|reply| Request::Each(plans, reply)).await
        };
        let mut decided = match decided {
            Ok(decided) => decided.into_iter(),
            Err(error) => return answers.into_iter().map(|_| Err(again(&error))).collect(),
        };
        for answer in answers.iter_mut().filter(|answer| answer.is_ok()) {
            *answer = decided.next().unwrap_or_else(|| Err(Error::ReadOnly("the store is closed".to_owned())));
        }
        answers
    }

    fn health(&self) -> Health {
        match self.shared.broken().or_else(|| self.shared.space.shortage(self.shared.clock.monotonic())) {
            Some(why) => Health::ReadOnly(why),
            None => Health::Ready,
        }
    }
}

/// The same answer for another caller of a store that is closed or broken.
fn again(error: &Error) -> Error {
    Error::ReadOnly(match error {
        Error::ReadOnly(why) => why.clone(),
        other => other.to_string(),
    })
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.requests = None;
        self.going_through.clear();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn next_sequence(&self) -> u64 {
        self.sequence.load(Ordering::Acquire) + 1
    }

    fn committed(&self, sequence: u64) {
        self.sequence.store(sequence, Ordering::Release);
    }

    fn front(&self) -> RwLockReadGuard<'_, Front> {
        self.front.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn front_mut(&self) -> RwLockWriteGuard<'_, Front> {
        self.front.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn broken(&self) -> Option<String> {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends all writing, with the reason that everybody will be told from now on.
    fn break_down(&self, cause: &str) -> String {
        let why = format!("a write to disk failed ({cause}); check the disk, then start tidings again");
        tracing::error!(cause, "a write to disk failed: the store is read-only until it is opened again");
        *self.broken.lock().unwrap_or_else(PoisonError::into_inner) = Some(why.clone());
        why
    }
}

/// Opens or makes the database in a directory, and reads what the log has beyond it. Damage is found before anything is
/// changed.
fn recover(
    options: &Options,
    high_water: &layout::HighWater,
) -> Result<(Database, Keyspaces, log::Recovered, SecondNames), Error> {
    let dir = &options.dir;
    let database = dir.join(layout::DATABASE);
    if !database.exists() {
        layout::build(dir, |unfinished| {
            drop(open_database(unfinished, options.cache_bytes)?);
            log::make(unfinished)
        })?;
    }
    layout::close_to_others(&database).map_err(|e| Error::failed("cannot close the store to others", e))?;
    versions::check(&database)?;
    let journals = journal::check(&database)?;
    let found = log::look(&database)?;
    if let Some(sequence) = if found.is_there() { found.sequence } else { journals.sequence } {
        // Before anything is changed; without a commit in the log, the tables tell.
        high_water.check(sequence)?;
    }
    journals.mend()?;
    let second_names = SecondNames::of(&database);
    let (db, spaces) = open_database(&database, options.cache_bytes)?;
    let settled = read_sequence(&spaces.items)?;
    journals.agree_with(settled)?;
    high_water.check(found.sequence.unwrap_or(settled).max(settled))?;
    Ok((db, spaces, found.recover(settled)?, second_names))
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<std::thread::JoinHandle<()>, Error> {
    let thread = std::thread::Builder::new().name(format!("store-{name}")).spawn(run);
    thread.map_err(|e| Error::failed("cannot start a thread", e))
}

/// Notes the last durable commit now and then, and once more at the end. It may lag; it must never lead. Tells the committer
/// when there were few for a while.
fn keep_high_water(
    mark: &layout::HighWater,
    shared: &Shared,
    mut noted: u64,
    quiet: &mpsc::WeakSender<Request>,
    stopped: &std::sync::mpsc::Receiver<()>,
) {
    let (mut warned, mut last, mut quiet_for) = (false, noted, 0);
    loop {
        let running = matches!(stopped.recv_timeout(HIGH_WATER_EVERY), Err(std::sync::mpsc::RecvTimeoutError::Timeout));
        let sequence = shared.sequence.load(Ordering::Acquire);
        let is_quiet = sequence - std::mem::replace(&mut last, sequence) <= QUIET_COMMITS;
        quiet_for = if is_quiet { quiet_for + 1 } else { 0 };
        if quiet_for == QUIET_TIMES {
            quiet_for = 0;
            // One that has so much to do that it takes nothing more is not quiet.
            let _ = quiet.upgrade().map(|committer| committer.try_send(Request::Quiet));
        }
        if sequence > noted && shared.broken().is_none() {
            match mark.write(sequence) {
                Ok(()) => (noted, warned) = (sequence, false),
                // Somebody else took the last of the disk, reserve and all, or all files that may be open. No commit failed,
                // and there will be room again.
                Err(e) if layout::is_shortage(&e) => {
                    if !std::mem::replace(&mut warned, true) {
                        tracing::warn!(error = %layout::cause_of(&e), "the last durable commit cannot be noted yet");
                    }
                }
                // The same disk holds the journal.
                Err(e) => drop(shared.break_down(&layout::cause_of(&e))),
            }
        }
        if !running {
            return;
        }
    }
}
