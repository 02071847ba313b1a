//! Reads one shard, page by page: records are taken in, then it is noted how far that was.

use std::cmp::Ordering;
use std::time::Duration;

use serde_json::Value;
use tidings_core::time::Timestamp;
use tidings_store::{Error as StoreError, Write};
use tokio::sync::watch;

use super::api::{Api, Error, Page};
use super::checkpoint::{Checkpoint, Position};
use super::gap::Gap;
use super::shards::{Shard, compare};
use crate::app::Services;
use crate::centre::batch::{self, Outcome};
use crate::centre::change;
use crate::sources::{Failed, Trouble};

/// Records asked for at once, and pages of one shard in one turn.
pub const LIMIT: usize = 250;
const PAGES: usize = 40;
/// A shard has stretches without records; so many empty pages are passed before the end is believed.
const EMPTY_PAGES: usize = 4;
/// Iterators of one turn that may turn out to be of no use.
const RENEWALS: usize = 2;

/// What reading a shard needs.
pub struct Context {
    pub services: Services,
    /// The source's.
    pub name: String,
    pub api: Api,
    pub stop: watch::Receiver<bool>,
}

/// A shard, and how far it has been read.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    pub stream: String,
    pub table: String,
    pub shard: Shard,
    pub position: Position,
    /// Of the stored checkpoint; 0: there is none.
    pub revision: i64,
    /// Where the next page is, if that is known.
    pub iterator: Option<String>,
    /// Whether to begin with what comes from now on.
    pub latest: bool,
    /// What is older is left out.
    pub skip_before: Option<Timestamp>,
    /// Turns that failed in a row, and when to try again.
    pub failures: u32,
    pub not_before: Duration,
    /// How old the last record was, while more may be waiting.
    pub lag_seconds: u64,
}

/// How a turn with a shard ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ended {
    /// There is more to read at once.
    pub more: bool,
    pub finished: bool,
}

impl Context {
    /// Reads what there is, up to so many pages.
    pub async fn read(&self, progress: &mut Progress) -> Result<Ended, Failed> {
        let (mut renewals, mut empty, mut trimmed) = (0, 0, false);
        let mut patience = if progress.iterator.is_none() { EMPTY_PAGES } else { 1 };
        for _ in 0..PAGES {
            if *self.stop.borrow() {
                return Ok(Ended::default());
            }
            let iterator = match &progress.iterator {
                Some(iterator) => iterator.clone(),
                None => self.begin(progress).await?,
            };
            let page = match self.api.records(&iterator, LIMIT).await {
                Ok(page) => page,
                Err(Error::Failed(failed)) => return Err(failed),
                Err(error) => {
                    progress.iterator = None;
                    renewals += 1;
                    if renewals > RENEWALS {
                        return Err(error.into());
                    }
                    // An iterator may be outdated although nothing is lost (DynamoDB Local's are, when other tables are
                    // written to). A new one says it: it is refused where the next record is gone. Of a shard of which
                    // nothing was read there is no next one; it begins with the oldest.
                    if matches!(error, Error::Trimmed) {
                        if trimmed && matches!(progress.position, Position::After(_)) {
                            self.lost(progress).await?;
                        }
                        trimmed = true;
                    }
                    patience = EMPTY_PAGES;
                    continue;
                }
            };
            empty = if page.records.is_empty() { empty + 1 } else { 0 };
            self.take(progress, page).await?;
            if progress.position == Position::Finished {
                return Ok(Ended { more: true, finished: true });
            }
            if empty >= patience && !progress.shard.closed {
                return Ok(Ended::default());
            }
        }
        Ok(Ended { more: empty == 0, finished: false })
    }

    /// An iterator for where the shard stands.
    async fn begin(&self, progress: &mut Progress) -> Result<String, Failed> {
        if let (Position::After(last), Some(first)) = (&progress.position, &progress.shard.first)
            && compare(last, first) == Some(Ordering::Less)
        {
            self.lost(progress).await?;
        }
        let latest = std::mem::take(&mut progress.latest);
        let found = match self.iterator(progress, latest).await {
            Err(Error::Trimmed) => {
                self.lost(progress).await?;
                self.iterator(progress, false).await
            }
            found => found,
        };
        progress.skip_before = match &progress.position {
            Position::Since(at) if !latest => Some(*at),
            _ => None,
        };
        let iterator = found?;
        progress.iterator = Some(iterator.clone());
        Ok(iterator)
    }

    async fn iterator(&self, progress: &Progress, latest: bool) -> Result<String, Error> {
        self.api.iterator(&progress.stream, &progress.shard.id, &progress.position, latest).await
    }

    /// Takes a page in, then notes it. What fails in between is read again, and known by then.
    async fn take(&self, progress: &mut Progress, page: Page) -> Result<(), Failed> {
        let Page { mut records, next } = page;
        let read = records.len();
        let end = records.last().and_then(sequence).map(ToOwned::to_owned);
        let newest = records.last().and_then(change::changed_at);
        if let Some(since) = progress.skip_before {
            records.retain(|record| change::changed_at(record).is_none_or(|at| at >= since));
        }
        self.count("skipped", read - records.len());
        for record in &mut records {
            name_stream(record, &progress.stream);
        }
        let (taken, failed) = self.take_in(&records).await?;
        let position = match (&failed, next.is_some(), end) {
            (Some(_), ..) => taken.map(Position::After),
            (None, false, _) => Some(Position::Finished),
            (None, true, end) => end.map(Position::After),
        };
        // Should noting it fail, the same page is read again.
        if let Some(position) = position {
            self.note(progress, position).await?;
        }
        let now = self.services.clock.now();
        let age = newest.filter(|_| next.is_some()).map(|at| now.duration_since(at).as_secs());
        progress.lag_seconds = age.and_then(|age| u64::try_from(age).ok()).unwrap_or(0);
        progress.iterator = next.filter(|_| failed.is_none());
        failed.map_or(Ok(()), |error| Err(Failed::new(Trouble::Store, error.to_string())))
    }

    /// Makes events of records; gives the number of the last one before the first that the store did not take.
    async fn take_in(&self, records: &[Value]) -> Result<(Option<String>, Option<StoreError>), Failed> {
        if records.is_empty() {
            return Ok((None, None));
        }
        let correlation = self.services.ids.uuid(self.services.clock.now()).to_string();
        let outcomes = batch::take(&self.services, records, &correlation).await;
        let outcomes = outcomes.map_err(|error| Failed::new(Trouble::Store, error.to_string()))?;
        let mut taken = None;
        for (record, outcome) in records.iter().zip(outcomes) {
            let result = match outcome {
                Outcome::Accepted { .. } => "accepted",
                Outcome::Duplicate => "duplicate",
                Outcome::Rejected(_) if !change::is_known(record) => "unknown",
                Outcome::Rejected(reason) => {
                    let id = change::id_of(record);
                    tracing::warn!(source = self.name, id, reason, "a record of the stream is a dead letter");
                    "rejected"
                }
                Outcome::NotStored(error) => return Ok((taken, Some(error))),
            };
            self.count(result, 1);
            taken = sequence(record).map(ToOwned::to_owned).or(taken);
        }
        Ok((taken, None))
    }

    fn count(&self, result: &'static str, count: usize) {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.services.metrics.sources.records(&self.name, result, count);
        self.services.sources.note(&self.name, |state| state.records = state.records.saturating_add(count));
    }

    /// What comes next in the shard is gone: says so, and goes on with the oldest that is there.
    async fn lost(&self, progress: &mut Progress) -> Result<(), Failed> {
        let checkpoint = self.checkpoint(progress, &Position::Start);
        let after = match &progress.position {
            Position::After(sequence) => Some(sequence.as_str()),
            _ => None,
        };
        let gap = Gap {
            table: &progress.table,
            stream: &progress.stream,
            shard: &progress.shard.id,
            after,
            reason: "records were removed from the stream before they were read",
        };
        self.tell(&gap, checkpoint.put()?).await?;
        (progress.position, progress.revision) = (Position::Start, checkpoint.revision);
        Ok(())
    }

    /// Notes how far a shard has been read, unless another node has taken over.
    async fn note(&self, progress: &mut Progress, position: Position) -> Result<(), Failed> {
        if progress.position != position {
            let checkpoint = self.checkpoint(progress, &position);
            self.store(vec![checkpoint.put()?]).await?;
            (progress.position, progress.revision) = (position, checkpoint.revision);
        }
        Ok(())
    }

    fn checkpoint(&self, progress: &Progress, position: &Position) -> Checkpoint {
        let (stream, shard) = (&progress.stream, &progress.shard.id);
        Checkpoint::new(&self.name, stream, shard, position, progress.revision, self.services.clock.now())
    }

    /// Writes, on the condition that this node is still the one to read the source.
    pub async fn store(&self, writes: Vec<Write>) -> Result<(), Failed> {
        let fence = self.services.fence_of_source(&self.name);
        Ok(self.services.store.transact(writes.into_iter().chain(fence).collect()).await?)
    }
}

fn sequence(record: &Value) -> Option<&str> {
    record.pointer("/dynamodb/SequenceNumber")?.as_str().filter(|number| !number.is_empty())
}

/// As a Lambda function gets it: with the name of its stream.
fn name_stream(record: &mut Value, stream: &str) {
    if let Value::Object(fields) = record {
        fields.entry("eventSourceARN").or_insert_with(|| stream.into());
    }
}
