//! Writes groups: each as one batch with one fsync, and only then answers everybody in it.
//!
//! A write or fsync that fails ends all writing for good: nothing is acknowledged any more, because after a failed fsync
//! nobody can know what is on disk.

use std::sync::Arc;
use std::time::Duration;

use fjall::{Database, OwnedWriteBatch, PersistMode};
use tokio::sync::oneshot;

use super::ahead::Ahead;
use super::group::{Group, Listed};
use super::{Keyspaces, SEQUENCE_KEY, Shared};
use crate::Error;

/// Bytes that may be in memory and not yet in tables: each keyspace's own share, twice.
const UNWRITTEN_BYTES: u64 = 144 * 1024 * 1024;
/// How long to wait for them between two looks, and how often.
const HELD_BACK: Duration = Duration::from_millis(2);
const HELD_BACK_TIMES: usize = 500;

pub struct Writer {
    pub db: Database,
    pub spaces: Keyspaces,
    pub shared: Arc<Shared>,
    pub listed: Listed,
    pub ahead: Ahead,
    /// Where callers live. To wake many of them from inside costs less than to call each from outside.
    pub callers: Option<tokio::runtime::Handle>,
    /// For the negative control of the crash tests only: acknowledge what is not on disk yet.
    pub acknowledge_before_fsync: bool,
}

/// What to tell a caller once the group is on disk, or is not.
pub enum Answer {
    One(oneshot::Sender<Result<(), Error>>, Result<(), Error>),
    Each(oneshot::Sender<Vec<Result<(), Error>>>, Vec<Result<(), Error>>),
    Swept(oneshot::Sender<Result<usize, Error>>, Result<usize, Error>),
}

impl Answer {
    /// A caller who has gone does not hear it.
    fn tell(self, written: &Result<(), Refusal>) {
        let refusal = written.as_ref().err();
        match self {
            Self::One(reply, decided) => drop(reply.send(refusal.map_or(decided, |refusal| Err(refusal.into())))),
            Self::Swept(reply, decided) => drop(reply.send(refusal.map_or(decided, |refusal| Err(refusal.into())))),
            Self::Each(reply, mut decided) => {
                for answer in &mut decided {
                    if let Some(refusal) = refusal {
                        *answer = Err(refusal.into());
                    }
                }
                drop(reply.send(decided));
            }
        }
    }
}

/// Why a whole group was not written.
#[derive(Clone)]
pub enum Refusal {
    Full(String),
    Broken(String),
}

impl From<&Refusal> for Error {
    fn from(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::Full(why) => Self::Full(why.clone()),
            Refusal::Broken(why) => Self::ReadOnly(why.clone()),
        }
    }
}

impl Writer {
    /// Makes a group durable and tells everybody in it.
    pub fn carry_out(&mut self, group: &mut Group, answers: Vec<Answer>) -> Result<(), Refusal> {
        let (count, bytes) = (group.transactions, group.bytes);
        let started = self.shared.clock.monotonic();
        let outcome = self.write(group, started);
        if outcome.is_ok() {
            self.shared.observer.committed(count, bytes, self.shared.clock.monotonic().saturating_sub(started));
        }
        self.tell(answers, outcome.clone());
        if outcome.is_ok() {
            self.ahead.committed(bytes);
            self.hold_back();
        }
        outcome
    }

    pub fn tell(&self, answers: Vec<Answer>, outcome: Result<(), Refusal>) {
        let tell = move || {
            for answer in answers {
                answer.tell(&outcome);
            }
        };
        match &self.callers {
            Some(callers) => drop(callers.spawn(async move { tell() })),
            None => tell(),
        }
    }

    fn write(&mut self, group: &mut Group, now: Duration) -> Result<(), Refusal> {
        if let Some(why) = self.shared.broken() {
            return Err(Refusal::Broken(why));
        }
        if group.is_empty() {
            return Ok(());
        }
        if let Some(why) = self.shared.space.shortage(now) {
            return Err(Refusal::Full(why));
        }
        let sequence = self.shared.next_sequence();
        let mut batch = OwnedWriteBatch::with_capacity(self.db.clone(), group.writes_about());
        group.write_to(&mut batch, &self.spaces, &mut self.listed, sequence);
        batch.insert(&self.spaces.items, SEQUENCE_KEY, sequence.to_be_bytes().to_vec());
        let mode = if self.acknowledge_before_fsync { PersistMode::Buffer } else { PersistMode::SyncData };
        match batch.durability(Some(mode)).commit() {
            Ok(()) => {
                self.shared.committed(sequence);
                Ok(())
            }
            Err(e) => {
                let cause = match e {
                    fjall::Error::Io(e) => e.to_string(),
                    fjall::Error::Poisoned => "a background write failed".to_owned(),
                    e => e.to_string(),
                };
                Err(Refusal::Broken(self.shared.break_down(&cause)))
            }
        }
    }

    /// Waits while too much is in memory that the tables on disk do not have yet: who sends faster than they can be
    /// written would fill the memory. For a while only, since whoever writes them may have failed, which the next commit
    /// will hear.
    fn hold_back(&self) {
        for _ in 0..HELD_BACK_TIMES {
            if self.db.write_buffer_size() <= UNWRITTEN_BYTES {
                return;
            }
            std::thread::sleep(HELD_BACK);
        }
    }
}
