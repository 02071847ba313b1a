//! The bus's dead letters in the one place for all of them (SX-08): each has a small entry there, made and removed in the
//! transactions that bring and take the letter itself.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use tidings_core::time::iso_millis;
use tidings_store::{Error, Item, Key, Store, Write};

use super::layout::{self, LaneId, Place};
use super::line::Line;
use super::message::Stored;
use super::path::Path;
use super::rest::Claim;
use super::{Bus, BusError};
use crate::messages::dead::{self, OnBus};

/// What the entries say instead of a channel.
pub const CHANNEL: &str = "bus";

/// What is done with a letter.
#[derive(Debug, Clone)]
pub enum Deed {
    /// Back to where it came from, with this body if it is to have another.
    SendBack(Option<Bytes>),
    Remove,
}

/// What somebody writes together with so many letters that are dealt with.
pub type Beside = dyn Fn(usize) -> Write + Send + Sync;

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
pub enum LetterError {
    #[error("there is no dead letter of this id any more")]
    Gone,
    #[error("somebody has received this dead letter; it can be dealt with when they give it back")]
    Locked,
    #[error(transparent)]
    Bus(#[from] BusError),
}

impl From<Error> for LetterError {
    fn from(error: Error) -> Self {
        match error {
            // It was there a moment ago.
            Error::Conflict { .. } => Self::Gone,
            error => Self::Bus(error.into()),
        }
    }
}

/// What was done to several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Done {
    pub done: u64,
    pub locked: u64,
}

#[must_use]
pub fn id(generation: &str, number: u64) -> String {
    // As wide as in the layout: letters of one moment stay in order.
    format!("bus-{generation}-{}", layout::digits(number))
}

/// The write by which a letter is found whose message was pushed as the message of this id, for as long as that is kept.
pub(super) fn found_by(pushed: &str, at: &OnBus, until: i64) -> Write {
    let item = layout::seen_table()
        .key_item(&pushed_key(pushed))
        .with("path", &at.path)
        .with("generation", &at.generation)
        .with("number", i64::try_from(at.number).unwrap_or(i64::MAX))
        .with("ttl", until);
    Write::put(layout::seen_table(), item)
}

/// The letter that there was of a message which was pushed as the message of this id. It may be gone by now.
pub async fn of_pushed(store: &dyn Store, pushed: &str) -> Result<Option<OnBus>, Error> {
    let found = store.get(layout::seen_table(), &pushed_key(pushed)).await?;
    Ok(found.as_ref().and_then(OnBus::from_item))
}

fn pushed_key(pushed: &str) -> Key {
    Key::with_sort(format!("pushed/{pushed}"), "letter")
}

impl Line {
    /// The entry of a letter that comes to this line of dead letters.
    pub(super) fn entry(&self, letter: &Stored) -> Option<Write> {
        let dead = letter.dead.as_ref()?;
        let correlation = super::history::correlation(letter);
        let item = Item::new()
            .with("id", id(self.layout.generation(), letter.sequence))
            .with("source", dead::SOURCE)
            .with("time", iso_millis(dead.at))
            .with("reason", &dead.reason)
            .with("channel", CHANNEL)
            .with("message_type", letter.kind().unwrap_or_default())
            .with_some("correlation_id", dead::found_by(correlation))
            .with("path", &dead.source)
            .with("generation", self.layout.generation())
            .with("number", i64::try_from(letter.sequence).unwrap_or(i64::MAX));
        Some(Write::put(dead::table(), item))
    }

    /// The write that takes the entry away.
    pub(super) fn no_entry(&self, letter: &Stored) -> Option<Write> {
        letter.dead.as_ref()?;
        Some(Write::delete(dead::table(), Key::new(id(self.layout.generation(), letter.sequence))))
    }
}

impl Bus {
    /// The line that an entry is about, if that is still the same.
    fn dead_line(&self, at: &OnBus) -> Option<Arc<Line>> {
        let line = self.line(&Path::parse(&at.path)?.dead_letters()).ok()?;
        (line.layout.generation() == at.generation).then_some(line)
    }

    /// The letter that an entry is about; none if it was purged, or is being moved.
    pub async fn letter(&self, at: &OnBus) -> Result<Option<Stored>, Error> {
        let Some(line) = self.dead_line(at) else { return Ok(None) };
        let key = line.layout.key(Place::Lane(LaneId::Main, at.number));
        let item = self.shared.store.get(layout::table(), &key).await?;
        item.as_ref().map(Stored::from_item).transpose()
    }

    /// Does something to one letter; `commit` carries out the writes, with others of its own. Gives the number that a
    /// message which was sent back has now.
    pub async fn deal_with<F>(
        &self,
        at: &OnBus,
        deed: &Deed,
        commit: impl FnOnce(Vec<Write>) -> F,
    ) -> Result<Option<u64>, LetterError>
    where
        F: Future<Output = Result<(), Error>>,
    {
        let dead = self.dead_line(at).ok_or(LetterError::Gone)?;
        let to = self.destination(at, deed)?;
        // Nobody reads meanwhile: what we move cannot come into the window behind our back.
        let _turn = dead.loading.lock().await;
        let (letter, claim) = self.claim(&dead, at.number, deed).await?;
        let outcome = match dead.prepare_back(to.as_ref(), at.number, &letter, deed).await {
            Ok(prepared) => {
                let number = prepared.sent.first().map(|sent| sent.sequence);
                let outcome = commit(prepared.writes()).await;
                prepared.resolve(&outcome);
                outcome.map(|()| number)
            }
            Err(error) => Err(error),
        };
        let mut state = dead.state();
        match &outcome {
            Ok(_) => state.main.gone(at.number),
            Err(_) => state.unclaim(at.number, claim),
        }
        Ok(outcome?)
    }

    /// Does the same to several letters of one line, with little more effort than to one. Those that are not there any
    /// more do not count. What is `beside` so many is written with them.
    pub async fn deal_with_all(
        &self,
        of: &OnBus,
        numbers: &[u64],
        deed: &Deed,
        beside: Option<&Beside>,
    ) -> Result<Done, LetterError> {
        let mut done = Done::default();
        let Some(dead) = self.dead_line(of) else { return Ok(done) };
        let to = self.destination(of, deed)?;
        let _turn = dead.loading.lock().await;
        let mut chosen = Vec::with_capacity(numbers.len());
        for number in numbers {
            match self.claim(&dead, *number, deed).await {
                Ok((letter, claim)) => chosen.push((*number, letter, claim)),
                Err(LetterError::Locked) => done.locked += 1,
                Err(LetterError::Gone) => {}
                Err(error) => {
                    dead.unclaim_all(chosen);
                    return Err(error);
                }
            }
        }
        done.done = dead.move_back(to.as_ref(), chosen, deed, beside).await?;
        Ok(done)
    }

    fn destination(&self, at: &OnBus, deed: &Deed) -> Result<Option<Arc<Line>>, LetterError> {
        if matches!(deed, Deed::Remove) {
            return Ok(None);
        }
        let path = Path::parse(&at.path).ok_or(LetterError::Gone)?;
        Ok(Some(self.line(&path)?))
    }

    /// Takes a letter out of the window, if it is in it, so that nobody else gets it.
    async fn claim(&self, dead: &Line, number: u64, deed: &Deed) -> Result<(Stored, Claim), LetterError> {
        if !dead.is_ours() {
            return Err(super::line::elsewhere().into());
        }
        let claim = dead.state().claim(number).ok_or(LetterError::Locked)?;
        let key = dead.layout.key(Place::Lane(LaneId::Main, number));
        let found = self.shared.store.get(layout::table(), &key).await;
        match found.and_then(|item| item.as_ref().map(Stored::from_item).transpose()) {
            Ok(Some(letter)) => match deed.check(&letter) {
                Ok(()) => Ok((letter, claim)),
                Err(error) => {
                    dead.state().unclaim(number, claim);
                    Err(error.into())
                }
            },
            Ok(None) => {
                dead.state().main.gone(number);
                Err(LetterError::Gone)
            }
            Err(error) => {
                dead.state().unclaim(number, claim);
                Err(error.into())
            }
        }
    }
}
