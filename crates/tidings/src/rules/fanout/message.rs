//! A job and its messages: each of those whom they go to hears of the event once over a channel.

use std::collections::BTreeSet;

use tidings_store::{Error, Write};
use uuid::Uuid;

use super::{Fanout, Moved, settled};
use crate::bus::{self, BusError};
use crate::messages::Message;
use crate::rules::chunk::{Chunk, Piece};
use crate::rules::job::{Cursor, Job};
use crate::rules::notice::Occurrence;
use crate::rules::outcome::LeftOut;
use crate::rules::rule::{Rule, Target};
use crate::rules::served::Served;
use crate::rules::window::Windows;

impl Fanout {
    /// Who is told already.
    pub(super) async fn served<'a>(&self, job: &'a mut Job) -> Result<&'a mut Served, Error> {
        let known = match job.served.take() {
            Some(known) => known,
            None => Served::of_job(&*self.store, &job.id).await?,
        };
        Ok(job.served.insert(known))
    }

    /// Sends a message to those whose windows are not open and whom nobody has told.
    pub(super) async fn message(
        &self,
        job: &mut Job,
        rule: &Rule,
        number: usize,
        message: &Message,
        windows: Option<&Windows<'_>>,
        past: Cursor,
    ) -> Result<Moved, Error> {
        let each = windows.filter(|_| Windows::are_apart(message));
        let mut silent: BTreeSet<Uuid> = BTreeSet::new();
        loop {
            let mut message = message.clone();
            let (mut opened, repeats) =
                windows.map(|windows| windows.message(&mut message, |id| silent.contains(id))).unwrap_or_default();
            if windows.is_some() && opened.is_empty() {
                return self.pass_over(job, rule, past).await;
            }
            let taken = self.served(job).await?.take_out(&rule.name, number, &mut message);
            let Some(share) = taken.share else { return self.leave_out(job, &taken.left_out, past).await };
            if let Some(windows) = each {
                // Who is left out has not heard it from this rule.
                opened = windows.message(&mut message, |_| false).0;
            }
            let pieces = message.parted().into_iter().map(|part| Piece::Message(Box::new(part))).collect();
            let chunk = Chunk { pieces, after: past.clone(), repeats };
            let mut writes = self.writes(job, &chunk)?;
            let moved = writes.remove(0);
            writes.insert(0, job.leaving_out(moved, &taken.left_out));
            let (id, expires_at) = (job.id.clone(), job.expires_at);
            writes.push(self.served(job).await?.kept(&id, expires_at, &share));
            let first = writes.len();
            writes.extend(windows.iter().flat_map(|windows| opened.iter().map(|id| windows.open(*id))));
            let result = self.store.transact(writes).await;
            let there = |place: usize| result.as_ref().is_err_and(|error| error.conflict_on(place).is_some());
            let known = silent.len();
            silent.extend(opened.iter().enumerate().filter(|(place, _)| there(first + place)).map(|(_, id)| *id));
            if silent.len() > known && !there(0) {
                continue;
            }
            if there(1) && !there(0) {
                // The message is there already.
                let write = job.moved(&past, 0, 0);
                return self.step(job, vec![write], past).await;
            }
            if result.is_ok() {
                self.signals.created(chunk.pieces.iter().filter_map(Piece::message));
                self.served(job).await?.add_kept(share);
            }
            return settled(job, result, past);
        }
    }

    /// Moves the job past a target that leads only to those who are told already; to nobody, if it was done before.
    async fn leave_out(&self, job: &mut Job, left_out: &[LeftOut], past: Cursor) -> Result<Moved, Error> {
        if !left_out.is_empty() {
            self.metrics.rules("served", 1);
        }
        let moved = job.moved(&past, 0, 0);
        let write = job.leaving_out(moved, left_out);
        self.step(job, vec![write], past).await
    }

    /// Puts the event on the bus in the transaction that moves the job, if that is where the target leads.
    pub(super) async fn on_bus(
        &self,
        job: &mut Job,
        rule: &Rule,
        number: usize,
        event: &Occurrence<'_>,
        past: &Cursor,
    ) -> Result<Option<Moved>, Error> {
        let (Some(bus), Some(Target::Queue { entity })) = (&self.bus, rule.targets.get(number)) else {
            return Ok(None);
        };
        let taken = self.served(job).await?.entity(&rule.name, number, entity);
        let Some(share) = taken.share else {
            return self.leave_out(job, &taken.left_out, past.clone()).await.map(Some);
        };
        let prepared = match bus.prepare(entity, bus::of_event(event.envelope, Some(&rule.name))).await {
            Ok(prepared) => prepared,
            Err(BusError::Store(error)) => return Err(error),
            Err(_) => return Ok(None),
        };
        let mut writes: Vec<Write> = vec![job.moved(past, 0, 1)];
        // What nobody on the bus wants is told to nobody.
        let share = Some(share).filter(|_| !prepared.sent.is_empty());
        let (id, expires_at) = (job.id.clone(), job.expires_at);
        if let Some(share) = &share {
            writes.push(self.served(job).await?.kept(&id, expires_at, share));
        }
        writes.extend(prepared.writes());
        let result = self.store.transact(writes).await;
        prepared.resolve(&result);
        if let (Ok(()), Some(share)) = (&result, share) {
            self.served(job).await?.add_kept(share);
        }
        settled(job, result, past.clone()).map(Some)
    }
}
