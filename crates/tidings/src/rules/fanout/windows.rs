//! A job and the windows of its rules: who was told the same not long ago is passed over.

use std::collections::BTreeSet;

use tidings_store::{Error, Write};
use uuid::Uuid;

use super::{Fanout, Moved, settled};
use crate::messages::Message;
use crate::rules::chunk::{Chunk, Piece};
use crate::rules::job::{Cursor, Job};
use crate::rules::rule::{Rule, Target};
use crate::rules::window::Windows;

impl Fanout {
    /// Opens the window of the rule's fixed targets, or passes these over if it is open.
    pub(super) async fn open_window(&self, job: &mut Job, rule: &Rule, windows: &Windows<'_>) -> Result<Moved, Error> {
        let into = Cursor { stage: 1, ..job.cursor.clone() };
        let past = match rule.targets.iter().all(Target::is_fixed) {
            true => Cursor { rule: job.cursor.rule + 1, ..Cursor::default() },
            false => Cursor { quiet: true, ..into.clone() },
        };
        self.open_or_pass(job, rule, windows.open(windows.fixed()), into, past).await
    }

    /// Opens a window and moves the job on, or moves it past what the window keeps back.
    pub(super) async fn open_or_pass(
        &self,
        job: &mut Job,
        rule: &Rule,
        window: Write,
        into: Cursor,
        past: Cursor,
    ) -> Result<Moved, Error> {
        match self.store.transact(vec![job.moved(&into, 0, 0), window]).await {
            Err(error) if error.conflict_on(0).is_none() && error.conflict_on(1).is_some() => {
                self.pass_over(job, rule, past).await
            }
            result => settled(job, result, into),
        }
    }

    /// Moves the job past what was told already.
    async fn pass_over(&self, job: &mut Job, rule: &Rule, past: Cursor) -> Result<Moved, Error> {
        self.metrics.rules("deduplicated", 1);
        let write = job.noted(&past, "deduplicated", vec![rule.name.clone()]);
        self.step(job, vec![write], past).await
    }

    /// Sends a message to those whose windows are not open.
    pub(super) async fn to_others(
        &self,
        job: &mut Job,
        rule: &Rule,
        message: &Message,
        windows: &Windows<'_>,
        past: Cursor,
    ) -> Result<Moved, Error> {
        let mut silent: BTreeSet<Uuid> = BTreeSet::new();
        loop {
            let mut message = message.clone();
            let (opened, repeats) = windows.message(&mut message, |id| silent.contains(id));
            if opened.is_empty() {
                return self.pass_over(job, rule, past).await;
            }
            let chunk = Chunk { pieces: vec![Piece::Message(Box::new(message))], after: past.clone(), repeats };
            let mut writes = self.writes(job, &chunk)?;
            let first = writes.len();
            writes.extend(opened.iter().map(|id| windows.open(*id)));
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
            }
            return settled(job, result, past);
        }
    }
}
