//! Settlements of which nobody knows how they went: a store over a network did not answer, and may have carried them out
//! all the same. Who settled must not be told that the lock is lost, and the message must not be handed out again, before
//! that is found out. Nobody but a line's owner takes messages away from it, so whether the message is there says it, for
//! as long as the line is ours.

use std::cmp::Ordering;
use std::collections::{BTreeSet, VecDeque};
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;

use tidings_store::{Condition, Error, Write};
use uuid::Uuid;

use super::line::{Line, LineError};
use super::settle::{Move, Settled, Settlement};
use super::state::Now;
use super::worker::TICK;
use super::{history, layout};
use crate::workers::turned_true;

/// Settlements that turned out to be done and are remembered, for those who ask again.
const REMEMBERED: usize = 256;

/// What is known of a settlement that was in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// Nothing yet.
    Open,
    /// The same was wanted before, and is done.
    Done,
}

/// The settlements in doubt, by their lock tokens.
#[derive(Debug, Default)]
pub struct Doubts {
    open: BTreeSet<Uuid>,
    done: VecDeque<(Uuid, Discriminant<Settlement>)>,
}

impl Doubts {
    #[must_use]
    pub fn of(&self, token: &Uuid, settlement: &Settlement) -> Option<Doubt> {
        if self.open.contains(token) {
            return Some(Doubt::Open);
        }
        self.done.contains(&(*token, discriminant(settlement))).then_some(Doubt::Done)
    }

    fn begin(&mut self, token: Uuid) {
        self.open.insert(token);
    }

    fn end(&mut self, token: Uuid, done: Option<&Settlement>) {
        if self.open.remove(&token)
            && let Some(settlement) = done
        {
            self.done.truncate(REMEMBERED - 1);
            self.done.push_front((token, discriminant(settlement)));
        }
    }
}

/// How it went.
enum Found {
    Done,
    /// The message is where it was, and the lock as it was.
    NotDone,
    /// The message is gone, and not by this.
    Lost,
    /// Another node has the message.
    Elsewhere,
    /// Another node has the line, and the message is gone, by this or by whoever received it there.
    Unknown,
}

impl Line {
    /// Whether an error leaves open what became of a settlement; on the embedded store none does, for nothing is written
    /// after it.
    pub(super) fn is_in_doubt(&self, error: &Error) -> bool {
        let open = matches!(error, Error::Conflict { .. } | Error::Unreachable(_) | Error::Failed { .. });
        open && self.fence.is_shared()
    }

    /// What to say of settlements of one transaction that was refused, or of which nobody knows how it went. What cannot
    /// be found out now is found out later, and until then the messages are nobody's.
    pub(super) async fn clear_up(
        self: &Arc<Self>,
        steps: Vec<Move>,
        error: &Error,
        now: Now,
    ) -> Vec<(usize, Result<Settled, LineError>)> {
        let refused = matches!(error, Error::Conflict { .. });
        let lost = self.fence.is_lost(error);
        let (mut outcomes, mut open) = (Vec::with_capacity(steps.len()), Vec::new());
        for step in steps {
            let found = match (lost, open.is_empty()) {
                (true, _) => Some(Found::Elsewhere),
                (false, true) => self.find_out(&step, refused).await.ok(),
                // Who did not answer to one would not to the next, and somebody waits.
                (false, false) => None,
            };
            if let Some(found) = found {
                outcomes.push((step.place, self.settle_as(&step, &found, now)));
                continue;
            }
            self.state().doubts.begin(step.token);
            outcomes.push((step.place, Err(LineError::Unknown)));
            open.push(step);
        }
        if !open.is_empty() {
            drop(tokio::spawn(Arc::clone(self).find_out_later(open, refused, now)));
        }
        outcomes
    }

    /// Looks whether the message is there, and whether the line is ours. `refused`: the settlement was not carried out.
    async fn find_out(&self, step: &Move, refused: bool) -> Result<Found, Error> {
        let there = Write::check(layout::table(), self.layout.key(step.held.place), Condition::Exists);
        let ours = self.fence.check(step.held.epoch);
        let looked = self.shared.store.transact(std::iter::once(there).chain(ours).collect()).await;
        let (gone, lost) = match &looked {
            Ok(()) => (false, false),
            Err(error @ Error::Conflict { .. }) => (error.conflict_on(0).is_some(), error.conflict_on(1).is_some()),
            Err(_) => return looked.map(|()| Found::Unknown),
        };
        Ok(match (gone, lost) {
            (false, false) => Found::NotDone,
            (false, true) => Found::Elsewhere,
            (true, false) if refused => Found::Lost,
            (true, false) => Found::Done,
            (true, true) if refused => Found::Elsewhere,
            (true, true) => self.ask_history(step).await?,
        })
    }

    /// What the history says of a message that is gone: whoever receives it after this delivery has a higher number.
    async fn ask_history(&self, step: &Move) -> Result<Found, Error> {
        let row = self.completed_row(&step.held).filter(|_| step.recorded && !self.is_of_dead_letters());
        let Some(row) = row.filter(|_| step.settlement == Settlement::Complete) else { return Ok(Found::Unknown) };
        let found = self.shared.store.get(history::table(), &row.key()?).await?;
        let completed = found.filter(|row| row.str("state") == Some(history::End::Completed.as_str()));
        Ok(match completed.and_then(|row| row.int("n")).map(|n| n.cmp(&i64::from(step.held.deliveries))) {
            Some(Ordering::Equal) => Found::Done,
            Some(Ordering::Greater) => Found::Elsewhere,
            Some(Ordering::Less) | None => Found::Unknown,
        })
    }

    /// Does what follows for the message, and says what to tell who settled.
    fn settle_as(self: &Arc<Self>, step: &Move, found: &Found, now: Now) -> Result<Settled, LineError> {
        let token = &step.token;
        match found {
            Found::Done => {
                self.left(std::slice::from_ref(step), now);
                Ok(Settled::Done)
            }
            Found::Lost => {
                self.state().settled(token);
                Err(LineError::LockLost)
            }
            Found::NotDone => {
                self.state().unsettled(token);
                Err(Error::Throttled("the store did not take the settlement".to_owned()).into())
            }
            Found::Elsewhere | Found::Unknown => {
                self.state().unsettled(token);
                self.shared.doubt();
                Err(if matches!(found, Found::Unknown) { LineError::Unknown } else { LineError::Elsewhere })
            }
        }
    }

    /// Goes on until it is known, or the line is another node's.
    async fn find_out_later(self: Arc<Self>, mut open: Vec<Move>, refused: bool, now: Now) {
        let mut stopping = self.shared.stopping.clone();
        while !open.is_empty() {
            tokio::select! {
                () = tokio::time::sleep(TICK) => {}
                () = turned_true(&mut stopping) => return,
            }
            let mut left = Vec::new();
            for step in open {
                if self.is_closed() || self.epoch() != step.held.epoch {
                    continue;
                }
                let Ok(found) = self.find_out(&step, refused).await else {
                    left.push(step);
                    continue;
                };
                let done = matches!(found, Found::Done).then_some(&step.settlement);
                self.state().doubts.end(step.token, done);
                drop(self.settle_as(&step, &found, now));
                self.wake(1);
            }
            open = left;
        }
    }
}
