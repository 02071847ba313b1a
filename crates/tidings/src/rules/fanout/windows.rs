//! A job and the windows of its rules: who was told the same not long ago is passed over.

use tidings_store::{Error, Write};

use super::{Fanout, Moved, settled};
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
    pub(super) async fn pass_over(&self, job: &mut Job, rule: &Rule, past: Cursor) -> Result<Moved, Error> {
        self.metrics.rules("deduplicated", 1);
        let write = job.noted(&past, "deduplicated", vec![rule.name.clone()]);
        self.step(job, vec![write], past).await
    }
}
