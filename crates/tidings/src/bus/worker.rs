//! The clock of the bus: ends locks, moves what is due, takes away what expires, keeps the heads, sweeps what is left
//! of deleted lines, and clears up doubts.

use std::sync::Arc;
use std::time::Duration;

use tidings_store::{Condition, Error, Query, Write, limits};
use tokio::sync::{mpsc, watch};

use super::Bus;
use super::entity::Record;
use super::line::Line;
use super::message::Stored;
use super::prepared::Prepared;
use super::{layout, letters};
use crate::workers::turned_true;

/// The longest time without a look at the clock.
pub const TICK: Duration = Duration::from_secs(1);
/// Items that are swept at once, and how often in a second.
const SWEEP: usize = 1000;
const SWEEPS: usize = 16;

impl Bus {
    /// Works until told to stop.
    pub async fn run(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let doubts = self.doubts.lock().await.take();
        let solving = tokio::spawn(solve(Arc::clone(&self), doubts));
        let collecting = self.shared.nodes.is_some().then(|| tokio::spawn(Arc::clone(&self).collect(stop.clone())));
        let copying = tokio::spawn(Arc::clone(&self).copy());
        let mut flushed = tokio::time::Instant::now();
        loop {
            let next = self.activate().await;
            if flushed.elapsed() >= TICK {
                flushed = tokio::time::Instant::now();
                self.flush(false).await;
                let here = self.shared.nodes.as_ref().is_none_or(|nodes| nodes.wants("bus-sweep"));
                for _ in 0..if here { SWEEPS } else { 0 } {
                    match self.sweep().await {
                        Ok(true) => {}
                        Ok(false) => break,
                        Err(error) => {
                            tracing::warn!(%error, "what is left of deleted entities could not be removed; later");
                            break;
                        }
                    }
                }
            }
            tokio::select! {
                () = tokio::time::sleep(next) => {}
                () = self.shared.alarm.notified() => {}
                () = turned_true(&mut stop) => break,
            }
        }
        solving.abort();
        if let Some(collecting) = collecting {
            let _ = collecting.await;
        }
        copying.abort();
    }

    /// Does what is due by now in every line; says how long until there is more.
    pub async fn activate(&self) -> Duration {
        let mut next = TICK;
        for line in self.lines().into_iter().filter(|line| line.is_ours()) {
            if let Some(soon) = line.tick() {
                next = next.min(soon);
            }
            // After a restart nobody may have come yet, and the age of what waits is wanted.
            line.read_ahead();
            let now = self.shared.clock.now();
            let (due, expiry) = {
                let state = line.state();
                (state.next_due, state.next_expiry)
            };
            for (at, what) in [(due, What::Due), (expiry, What::Expiry)] {
                match at {
                    Some(at) if at <= now => run_line(&line, what),
                    Some(at) => next = next.min(Duration::try_from(at.duration_since(now)).unwrap_or_default()),
                    None => {}
                }
            }
        }
        next.max(Duration::from_millis(1))
    }

    /// Does everything that is due, and waits for it: for tests, and for the last moment.
    pub async fn settle_time(&self) -> Result<(), Error> {
        if let Some(nodes) = self.shared.nodes.as_ref().filter(|nodes| !nodes.believes()) {
            nodes.look().await?;
            self.tend().await?;
        }
        self.copy_all().await?;
        for line in self.lines() {
            line.take_in().await?;
            let (actions, _) = line.end_locks();
            Arc::clone(&line).carry_out(actions).await;
            let now = self.shared.clock.now();
            line.move_due(now).await?;
            line.expire_due(now).await?;
        }
        Ok(())
    }

    /// Keeps the places of heads that have moved, and removes the records of handouts that are over.
    pub async fn flush(&self, last: bool) {
        let lines = self.lines();
        let mut writes: Vec<Vec<Write>> = lines.iter().filter_map(|line| line.flush(last)).collect();
        writes.extend(lines.iter().flat_map(|line| line.forget_handouts()));
        if !writes.is_empty() {
            // What is not kept costs a longer way from the old head after a restart, and nothing else.
            drop(self.shared.store.transact_each(writes).await);
        }
    }

    /// Removes a part of what deleted and purged lines left behind; says whether there was anything.
    pub async fn sweep(&self) -> Result<bool, Error> {
        let trash = self.shared.store.query(layout::table(), &Query::new(layout::TRASH).limit(1)).await?;
        let Some(entry) = trash.items.first() else { return Ok(false) };
        if let Some((path, topic)) = entry.str("path").zip(entry.str("topic")) {
            if !self.sweep_subscriptions(path, topic).await? {
                let key = layout::table().key_of(entry)?;
                self.shared.store.transact(vec![Write::delete(layout::table(), key)]).await?;
            }
            return Ok(true);
        }
        let generations = ["at", "and"].into_iter().filter_map(|name| entry.str(name));
        let partitions = generations.flat_map(|generation| layout::PARTITIONS.map(|kind| (generation, kind)));
        for (generation, kind) in partitions {
            let query = Query::new(format!("{generation}/{kind}")).limit(SWEEP);
            let page = self.shared.store.query(layout::table(), &query).await?;
            if page.items.is_empty() {
                continue;
            }
            let mut writes = Vec::with_capacity(page.items.len());
            for item in &page.items {
                writes.push(Write::delete(layout::table(), layout::table().key_of(item)?));
                writes.extend(entry_of(item, generation)?);
            }
            let chunks = writes.chunks(limits::TRANSACTION_WRITES).map(<[Write]>::to_vec).collect();
            for outcome in self.shared.store.transact_each(chunks).await {
                outcome?;
            }
            return Ok(true);
        }
        let key = layout::table().key_of(entry)?;
        self.shared.store.transact(vec![Write::delete(layout::table(), key)]).await?;
        Ok(true)
    }
}

impl Bus {
    /// Deletes some subscriptions of a topic that is deleted; says whether there were any.
    async fn sweep_subscriptions(&self, path: &str, topic: &str) -> Result<bool, Error> {
        let mut query = Query::new(layout::ENTITIES).prefix(format!("{path}/subscriptions/")).limit(SWEEP);
        loop {
            let page = self.shared.store.query(layout::table(), &query).await?;
            let mut transactions = Vec::new();
            for item in &page.items {
                let record = Record::from_item(item)?;
                // One of the same name may belong to a new topic.
                if record.topic.as_deref() == Some(topic) {
                    let unchanged = Condition::Equals("main".into(), record.main.clone().into());
                    transactions.push(vec![
                        Write::delete(layout::table(), Record::key(&record.path)).when(unchanged),
                        record.trash(),
                        Write::delete(layout::table(), layout::counts_key(&record.generation)),
                    ]);
                }
            }
            if !transactions.is_empty() {
                for outcome in self.shared.store.transact_each(transactions).await {
                    outcome?;
                }
                return Ok(true);
            }
            if page.next.is_none() {
                return Ok(false);
            }
            query = query.after(page.next);
        }
    }
}

/// The write that takes a dead letter's entry away, if that is what is swept.
fn entry_of(item: &tidings_store::Item, generation: &str) -> Result<Option<Write>, Error> {
    // Only a dead letter's head has this; others need not be read.
    if !item.str("head").is_some_and(|head| head.contains("\"dead\":")) {
        return Ok(None);
    }
    let stored = Stored::from_item(item)?;
    let key = tidings_store::Key::new(letters::id(generation, stored.sequence));
    Ok(stored.dead.is_some().then(|| Write::delete(crate::messages::dead::table(), key)))
}

#[derive(Clone, Copy)]
enum What {
    Due,
    Expiry,
}

/// In a task of its own, unless one is at it: a line with much to do holds up no other.
fn run_line(line: &Arc<Line>, what: What) {
    if line.timing.try_lock().is_err() {
        return;
    }
    let line = Arc::clone(line);
    drop(tokio::spawn(async move {
        let now = line.shared.clock.now();
        let outcome = match what {
            What::Due => line.move_due(now).await,
            What::Expiry => line.expire_due(now).await,
        };
        if let Err(error) = outcome {
            tracing::warn!(line = line.path, %error, "what is due could not be moved; it will be tried again");
            tokio::time::sleep(TICK).await;
        }
        line.shared.alarm.notify_one();
    }));
}

/// Finds out how transactions went of which nobody knows.
async fn solve(bus: Arc<Bus>, doubts: Option<mpsc::UnboundedReceiver<Prepared>>) {
    let Some(mut doubts) = doubts else { return };
    while let Some(doubt) = doubts.recv().await {
        if let Err(unsolved) = doubt.look_up(&*bus.shared.store).await {
            tokio::time::sleep(TICK).await;
            drop(unsolved);
        }
    }
}
