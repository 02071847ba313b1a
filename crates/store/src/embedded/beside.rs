//! Large groups are written by a thread of their own, while the committer decides about the next one.
//!
//! A small group costs least if whoever decided about it writes it, too: nothing is gained by handing it over, and the next
//! group would only be smaller. A large one keeps the disk busy for as long as the next takes to decide. There is one
//! [`Writer`], and it goes with the group: so groups reach the disk one after the other, as they were decided.

use std::sync::mpsc::{Receiver, Sender, channel};

use fjall::Slice;

use super::group::{Behind, Group};
use super::spawn;
use super::writer::{Answer, Refusal, Writer};
use crate::Error;

/// Bytes from which on a group is large.
const LARGE_BYTES: usize = 512 * 1024;

pub struct Beside {
    /// The writer, while no group is under way.
    writer: Option<Box<Writer>>,
    away: Sender<Away>,
    back: Receiver<(Box<Writer>, Result<(), Refusal>)>,
    /// What the group under way leaves behind.
    behind: Behind,
}

struct Away {
    writer: Box<Writer>,
    group: Group,
    answers: Vec<Answer>,
}

impl Beside {
    /// The thread ends when this is dropped and all is written.
    pub fn start(writer: Writer) -> Result<(Self, std::thread::JoinHandle<()>), Error> {
        let (away, groups) = channel::<Away>();
        let (written, back) = channel();
        let thread = spawn("writer", move || {
            for Away { mut writer, mut group, answers } in groups {
                let outcome = writer.carry_out(&mut group, answers);
                if written.send((writer, outcome)).is_err() {
                    return;
                }
            }
        })?;
        Ok((Self { writer: Some(Box::new(writer)), away, back, behind: Behind::default() }, thread))
    }

    /// The item as the group under way leaves it, as [`Group::item`].
    pub fn item(&self, item_key: &Slice) -> Option<Option<&Slice>> {
        self.behind.item(item_key)
    }

    /// Waits for the group under way, if there is one. If it was refused, whatever was decided meanwhile was decided on
    /// what is not there.
    pub fn landed(&mut self) -> Result<(), Refusal> {
        if self.writer.is_some() {
            return Ok(());
        }
        let gone = || Refusal::Broken("the store is closed".to_owned());
        let (writer, outcome) = self.back.recv().map_err(|_| gone())?;
        self.writer = Some(writer);
        self.behind = Behind::default();
        outcome
    }

    /// Writes a group after `landed`, or refuses it for the same reason.
    pub fn carry_out(&mut self, landed: Result<(), Refusal>, group: &mut Group, answers: Vec<Answer>) {
        let Some(mut writer) = self.writer.take() else { return };
        if landed.is_err() {
            writer.tell(answers, landed);
        } else if group.bytes >= LARGE_BYTES {
            self.behind = group.behind();
            // The thread is there for as long as this is; without it nobody is told, and the store is closed.
            let _ = self.away.send(Away { writer, group: std::mem::take(group), answers });
            return;
        } else {
            // Who comes next hears of a failure: it ends all writing.
            let _ = writer.carry_out(group, answers);
        }
        self.writer = Some(writer);
    }
}
