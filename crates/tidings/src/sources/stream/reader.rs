//! Takes turns: finds out which shards there are, reads those whose turn it is, a few at a time, and forgets what is gone.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};

use super::api::{Api, Description};
use super::checkpoint::{self, Begun, Checkpoint, Position};
use super::gap::Gap;
use super::shard::{Context, Ended, Progress};
use super::shards::{Place, Shards, place};
use crate::app::Services;
use crate::config::sources::{Source as Settings, Start};
use crate::sources::{self, Failed, Trouble, Turn, backoff};

/// Shards that are read at once.
const AT_ONCE: usize = 8;
/// How often to ask for new shards while the known ones go on.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// After a shard could not be read: the first wait, doubled each time, and the longest.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Where "latest" has to be remembered as a time, our clock may be ahead by so much; more than that AWS would refuse.
const SKEW: Duration = Duration::from_secs(300);
/// Writes of one transaction, with room for the fence.
const WRITES: usize = 90;

/// One source.
pub struct Reader {
    context: Context,
    table: Option<String>,
    stream: Option<String>,
    start: Start,
    known: Option<Known>,
}

/// The stream that is being read, as it was last seen.
struct Known {
    all: Shards,
    shards: BTreeMap<String, Progress>,
    seen_at: Duration,
    /// Something has changed since.
    stale: bool,
}

impl Reader {
    /// # Errors
    ///
    /// What is wrong with the source, as a sentence.
    pub fn new(services: &Services, settings: &Settings) -> Result<Self, String> {
        let context = Context {
            services: services.clone(),
            name: settings.name.clone(),
            api: Api::new(services, settings)?,
            stop: services.workers.stopping(),
        };
        let (table, stream, start) = (settings.table.clone(), settings.stream_arn.clone(), settings.start);
        Ok(Self { context, table, stream, start, known: None })
    }

    /// Reads every shard that can be read, a bounded piece of each.
    ///
    /// # Errors
    ///
    /// If the stream cannot be read at all. A shard that is slow to answer holds up no other.
    pub async fn activate(&mut self) -> Result<Turn, Failed> {
        let now = self.context.services.clock.monotonic();
        if self.known.as_ref().is_none_or(|known| known.is_old(now)) {
            self.find_out().await?;
        }
        let Some(known) = &mut self.known else { return Ok(Turn::default()) };
        let mut due = Vec::new();
        for id in known.ready() {
            if known.shards.get(&id).is_some_and(|progress| progress.not_before <= now) {
                due.extend(known.shards.remove(&id));
            }
        }
        let context = &self.context;
        let reading = stream::iter(due).map(|mut progress| async move {
            let ended = context.read(&mut progress).await;
            (progress, ended)
        });
        let read: Vec<_> = reading.buffer_unordered(AT_ONCE).collect().await;
        let turn = known.settle(read, context);
        known.report(context);
        turn
    }

    /// Looks at the stream and at what is noted of it, and begins if this is the first time.
    async fn find_out(&mut self) -> Result<(), Failed> {
        let context = &self.context;
        let streams = self.streams().await?;
        let (begun, mut checkpoints) = checkpoint::load(&*context.services.store, &context.name).await?;
        let of = self.table.as_ref().or(self.stream.as_ref()).cloned().unwrap_or_default();
        if begun.as_ref().is_some_and(|begun| begun.of != of) {
            tracing::info!(source = context.name, of, "the source is another one than before, and begins anew");
            for some in checkpoints.values().map(Checkpoint::forget).collect::<Vec<_>>().chunks(WRITES) {
                context.store(some.to_vec()).await?;
            }
            checkpoints.clear();
        }
        let mut fresh = false;
        if begun.is_none_or(|begun| begun.of != of) {
            self.begin(&streams, &of, &mut checkpoints).await?;
            fresh = true;
        }
        let described = self.describe(&streams, &checkpoints).await?;
        self.clean_up(&streams, &described, &mut checkpoints).await?;
        let Some(current) = described.into_iter().next_back() else { return Ok(()) };
        let mut old = self.known.take().map(|known| known.shards).unwrap_or_default();
        let shards = current.shards.values().map(|shard| {
            let checkpoint = checkpoints.get(&checkpoint::name(&current.arn, &shard.id));
            let position = checkpoint.map(Checkpoint::position).unwrap_or_default();
            let revision = checkpoint.map_or(0, |checkpoint| checkpoint.revision);
            let kept = old.remove(&shard.id).filter(|old| old.stream == current.arn && old.revision == revision);
            let latest = fresh && matches!(position, Position::Since(_));
            let new = Progress { position, revision, latest, ..Progress::default() };
            let (stream, table) = (current.arn.clone(), current.table.clone());
            (shard.id.clone(), Progress { stream, table, shard: shard.clone(), ..kept.unwrap_or(new) })
        });
        let shards: BTreeMap<_, _> = shards.collect();
        let seen_at = context.services.clock.monotonic();
        let ended = current.status == "DISABLED" && shards.values().all(Progress::is_finished);
        self.known = Some(Known { all: current.shards, shards, seen_at, stale: false });
        if ended {
            let why = format!(
                "the stream of table {} is switched off, and read to its end; switch it on with new and old images",
                current.table
            );
            return Err(Failed::new(Trouble::Missing, why));
        }
        Ok(())
    }

    /// The streams to read, oldest first: a table whose stream was switched off and on again has more than one.
    async fn streams(&self) -> Result<Vec<String>, Failed> {
        let Some(table) = &self.table else { return Ok(self.stream.iter().cloned().collect()) };
        let streams = self.context.api.streams(table).await?;
        if streams.is_empty() {
            let why =
                format!("there is no table {table} here, or it has no stream; switch it on with new and old images");
            return Err(Failed::new(Trouble::Missing, why));
        }
        Ok(streams)
    }

    /// The streams in order, up to the first that is not read to its end.
    async fn describe(
        &self,
        streams: &[String],
        checkpoints: &BTreeMap<String, Checkpoint>,
    ) -> Result<Vec<Description>, Failed> {
        let mut described: Vec<Description> = Vec::new();
        for (place, arn) in streams.iter().enumerate() {
            let is_last = place + 1 == streams.len();
            let description = match self.context.api.describe(arn).await {
                Err(failed) if failed.trouble == Trouble::Missing && !is_last => continue,
                description => description?,
            };
            if matches!(description.view.as_str(), "KEYS_ONLY" | "OLD_IMAGE") {
                let (view, table) = (&description.view, &description.table);
                let why = format!("the stream of table {table} has {view}; it must have NEW_AND_OLD_IMAGES");
                if is_last {
                    return Err(Failed::new(Trouble::Unreadable, why));
                }
                tracing::warn!(source = self.context.name, stream = arn, why, "a former stream is left out");
                continue;
            }
            let finished = |id: &String| {
                checkpoints.get(&checkpoint::name(arn, id)).is_some_and(|c| c.position() == Position::Finished)
            };
            let over = description.status == "DISABLED" && description.shards.keys().all(finished);
            described.push(description);
            if !over {
                break;
            }
        }
        Ok(described)
    }

    /// Notes that the source has begun. From "latest" on, what is there already counts as read.
    async fn begin(
        &self,
        streams: &[String],
        of: &str,
        checkpoints: &mut BTreeMap<String, Checkpoint>,
    ) -> Result<(), Failed> {
        let (context, now) = (&self.context, self.context.services.clock.now());
        if self.start == Start::Latest {
            let since = now.saturating_sub(SKEW).unwrap_or(now);
            for arn in streams {
                let description = context.api.describe(arn).await?;
                for shard in description.shards.values() {
                    let open = !shard.closed && description.status != "DISABLED";
                    let position = if open { Position::Since(since) } else { Position::Finished };
                    let name = checkpoint::name(arn, &shard.id);
                    // One that is there is of a beginning that was broken off.
                    checkpoints
                        .entry(name)
                        .or_insert_with(|| Checkpoint::new(&context.name, arn, &shard.id, &position, 0, now));
                }
            }
            let new: Vec<_> = checkpoints.values().filter(|checkpoint| checkpoint.revision == 1).cloned().collect();
            for some in new.chunks(WRITES) {
                let mut writes = Vec::with_capacity(some.len());
                for checkpoint in some {
                    writes.push(checkpoint.put_anyway()?);
                }
                context.store(writes).await?;
            }
        }
        context.store(vec![Begun::new(&context.name, of, now).put()?]).await?;
        tracing::info!(source = context.name, of, start = ?self.start, "the stream is read from now on");
        Ok(())
    }

    /// Forgets shards that the stream has no more. One that was not read to its end takes what was left with it.
    async fn clean_up(
        &self,
        streams: &[String],
        described: &[Description],
        checkpoints: &mut BTreeMap<String, Checkpoint>,
    ) -> Result<(), Failed> {
        let mut gone = Vec::new();
        for (name, checkpoint) in checkpoints.iter() {
            let stream = described.iter().find(|stream| stream.arn == checkpoint.stream);
            let is_gone = match stream {
                Some(stream) => !stream.shards.contains_key(&checkpoint.shard_id),
                None => !streams.contains(&checkpoint.stream),
            };
            if is_gone {
                gone.push(name.clone());
            }
        }
        for name in gone {
            let Some(checkpoint) = checkpoints.remove(&name) else { continue };
            if checkpoint.position() == Position::Finished {
                self.context.store(vec![checkpoint.forget()]).await?;
                continue;
            }
            let table = checkpoint.stream.split_once(":table/").and_then(|(_, rest)| rest.split('/').next());
            let gap = Gap {
                table: self.table.as_deref().or(table).unwrap_or_default(),
                stream: &checkpoint.stream,
                shard: &checkpoint.shard_id,
                after: checkpoint.sequence.as_deref(),
                reason: "the shard was removed from the stream before it was read to its end",
            };
            self.context.tell(&gap, checkpoint.forget()).await?;
        }
        Ok(())
    }
}

impl Known {
    fn is_old(&self, now: Duration) -> bool {
        let nothing_left = self.shards.values().all(Progress::is_finished);
        self.stale || nothing_left || now.saturating_sub(self.seen_at) >= LOOK_EVERY
    }

    fn place_of(&self, id: &str) -> Option<Place> {
        let finished = |id: &str| self.shards.get(id).is_some_and(Progress::is_finished);
        self.all.get(id).map(|shard| place(shard, &self.all, finished))
    }

    /// The shards that can be read.
    fn ready(&self) -> Vec<String> {
        self.shards.keys().filter(|id| self.place_of(id) == Some(Place::Ready)).cloned().collect()
    }

    /// Takes back what was read; says when to come again.
    fn settle(&mut self, read: Vec<(Progress, Result<Ended, Failed>)>, context: &Context) -> Result<Turn, Failed> {
        let now = context.services.clock.monotonic();
        let (mut turn, mut fatal) = (Turn::default(), None);
        for (mut progress, ended) in read {
            match ended {
                Ok(Ended { more, finished }) => {
                    progress.failures = 0;
                    self.stale |= finished;
                    if more {
                        turn.sooner = Some(Duration::ZERO);
                    }
                }
                Err(failed) => {
                    progress.failures = progress.failures.saturating_add(1);
                    let wait = backoff(FIRST_WAIT, progress.failures, LONGEST_WAIT, &*context.services.ids);
                    progress.not_before = now.saturating_add(wait.max(failed.after.unwrap_or_default()));
                    match failed.trouble {
                        // About the stream, not about the shard.
                        Trouble::Denied | Trouble::Missing | Trouble::Superseded => fatal = Some(failed),
                        _ => turn.trouble = Some(failed),
                    }
                }
            }
            self.shards.insert(progress.shard.id.clone(), progress);
        }
        if let Some(failed) = fatal {
            self.stale = true;
            return Err(failed);
        }
        // A child can be read as soon as its parent has been.
        let failing = self.shards.values().filter(|progress| progress.failures > 0);
        let again = failing.map(|progress| progress.not_before.saturating_sub(now)).min();
        turn.sooner = [turn.sooner, again].into_iter().flatten().min();
        Ok(turn)
    }

    /// Shows how things are.
    fn report(&self, context: &Context) {
        let mut shards = sources::board::Shards::default();
        for id in self.shards.keys() {
            match self.place_of(id) {
                Some(Place::Ready) => shards.reading += 1,
                Some(Place::Waiting) => shards.waiting += 1,
                _ => shards.finished += 1,
            }
        }
        let behind = self.shards.values().filter(|progress| !progress.is_finished());
        let lag = behind.map(|progress| progress.lag_seconds).max().unwrap_or(0);
        context.services.metrics.sources.lag(&context.name, lag);
        context.services.sources.note(&context.name, |state| {
            state.shards = Some(shards);
            state.lag_seconds = Some(lag);
        });
    }
}

impl Progress {
    fn is_finished(&self) -> bool {
        self.position == Position::Finished
    }
}

impl sources::Source for Reader {
    const LONGEST_WAIT: Duration = LONGEST_WAIT;

    async fn look(&mut self) -> Result<Turn, Failed> {
        self.activate().await
    }

    fn forget(&mut self) {
        self.known = None;
    }
}
