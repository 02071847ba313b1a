//! The writer: one thread that makes groups durable, each as one batch with one fsync, and only then answers.
//!
//! A write or fsync that fails ends it for good: nothing is acknowledged any more, because after a failed fsync nobody
//! can know what is on disk. So a group that was decided upon the one before is never written without it.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use fjall::{OwnedWriteBatch, PersistMode};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::Shared;
use crate::Error;

/// What to tell a caller once the group is on disk, or is not.
pub type Answer = Box<dyn FnOnce(Result<(), Refusal>) + Send>;

#[derive(Clone)]
pub enum Refusal {
    Full(String),
    Broken(String),
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Full(why) => Self::Full(why),
            Refusal::Broken(why) => Self::ReadOnly(why),
        }
    }
}

/// A group, decided.
pub struct Batch {
    /// What to write, and the number of the commit.
    pub writes: Option<(u64, OwnedWriteBatch)>,
    /// Why nothing of it is written.
    pub refusal: Option<Refusal>,
    pub answers: Vec<Answer>,
    pub transactions: usize,
    pub bytes: usize,
}

pub struct Writer {
    pub shared: Arc<Shared>,
    pub batches: Receiver<Batch>,
    pub idle: Arc<Semaphore>,
    /// Where callers live. To wake many of them from inside costs less than to call each from outside.
    pub callers: Option<Handle>,
    /// For the negative control of the crash tests only: acknowledge what is not on disk yet.
    pub acknowledge_before_fsync: bool,
}

impl Writer {
    pub fn run(self) {
        while let Ok(batch) = self.batches.recv() {
            let Batch { writes, refusal, answers, transactions, bytes } = batch;
            let started = self.shared.clock.monotonic();
            let outcome = match (refusal, self.shared.broken()) {
                (_, Some(why)) => Err(Refusal::Broken(why)),
                (Some(refusal), None) => Err(refusal),
                (None, None) => writes.map_or(Ok(()), |(sequence, batch)| self.write(sequence, batch)),
            };
            self.idle.add_permits(1);
            if outcome.is_ok() {
                let took = self.shared.clock.monotonic().saturating_sub(started);
                self.shared.observer.committed(transactions, bytes, took);
            }
            self.answer(answers, outcome);
        }
    }

    fn write(&self, sequence: u64, batch: OwnedWriteBatch) -> Result<(), Refusal> {
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

    fn answer(&self, answers: Vec<Answer>, outcome: Result<(), Refusal>) {
        let tell = move || {
            for answer in answers {
                answer(outcome.clone());
            }
        };
        match &self.callers {
            Some(callers) => drop(callers.spawn(async move { tell() })),
            None => tell(),
        }
    }
}
