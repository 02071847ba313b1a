//! Dead letters back to where they came from: one, some by pattern, all; as they are or edited (S003-86, S003-97).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json};
use tidings_core::pattern::Pattern;
use tidings_store::limits::TRANSACTION_WRITES;
use tidings_store::{Condition, Error, Query, Range};

use super::BusError;
use super::history::End;
use super::layout::{self, Delta, LaneId, Place};
use super::letters::{Beside, Deed};
use super::line::Line;
use super::message::{Message, Stored};
use super::prepared::Prepared;
use super::rest::Claim;
use super::send::check_size;

/// Dead letters that are read at once.
const PAGE: usize = 256;

/// Which dead letters are meant.
#[derive(Debug, Clone)]
pub enum Which {
    All,
    Ids(Vec<Id>),
    /// By a pattern over the message as it is shown, its body as JSON where it is JSON.
    Where(Pattern),
}

/// What names a dead letter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(untagged)]
pub enum Id {
    /// Its number among the dead letters.
    Number(u64),
    /// A message id; if no dead letter has it and it is a number, that.
    Text(String),
}

/// What is to be done.
#[derive(Debug, Clone)]
pub struct Resubmit {
    pub which: Which,
    /// Takes the place of the message's own body.
    pub body: Option<Bytes>,
    /// At most so many in this call, if others are to follow. In those a message id that was sent back must not be taken
    /// for a number.
    pub limit: Option<usize>,
    /// None with a higher number, so that what fails again meanwhile is not taken twice.
    pub up_to: Option<u64>,
}

/// What was done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resubmitted {
    pub resubmitted: u64,
    /// Somebody has them.
    pub locked: u64,
    /// There may be more under the same conditions, with this `up_to`.
    pub more: bool,
    pub up_to: u64,
    /// Ids that name none.
    pub missing: Vec<Id>,
}

/// The same as `Which`, with ids as the positions that they name.
enum Chosen<'a> {
    All,
    At(Named),
    Where(&'a Pattern),
}

/// What ids name.
#[derive(Default)]
struct Named {
    positions: BTreeSet<u64>,
    /// Numbers that nobody has looked at yet, and the ids that say them.
    numbers: BTreeMap<u64, Vec<Id>>,
    missing: Vec<Id>,
}

impl Chosen<'_> {
    fn takes(&mut self, position: u64, stored: &Stored) -> bool {
        match self {
            Self::All => true,
            Self::At(named) => {
                named.numbers.remove(&position);
                named.positions.contains(&position)
            }
            Self::Where(pattern) => pattern.matches(&document(stored).to_string()).unwrap_or(false),
        }
    }

    /// Where to look: not beyond `last`.
    fn range(&self, last: u64) -> Option<(u64, u64)> {
        match self {
            Self::All | Self::Where(_) => (last > 0).then_some((1, last)),
            Self::At(named) => {
                let range = named.positions.range(1..=last.max(1));
                let (first, last) = (range.clone().next()?, range.clone().next_back()?);
                Some((*first, *last))
            }
        }
    }

    /// The ids that name none, once everything up to a number was looked at.
    fn missing(self, last: u64) -> Vec<Id> {
        let Self::At(mut named) = self else { return Vec::new() };
        named.missing.extend(named.numbers.into_iter().filter(|(number, _)| *number <= last).flat_map(|(_, ids)| ids));
        named.missing
    }
}

impl Deed {
    /// What is sent back must not be larger than what is sent.
    pub(super) fn check(&self, dead: &Stored) -> Result<(), BusError> {
        match self {
            Self::SendBack(Some(body)) => check_size(&sent_back(dead, Some(body))),
            Self::SendBack(None) | Self::Remove => Ok(()),
        }
    }
}

/// A dead letter as the message it was, with this body if it is to have another.
fn sent_back(dead: &Stored, body: Option<&Bytes>) -> Message {
    let mut message = dead.message.clone();
    message.properties.remove("DeadLetterReason");
    message.properties.remove("DeadLetterErrorDescription");
    message.deliver_at = None;
    if let Some(body) = body {
        message.body = body.clone();
    }
    message
}

/// A message as patterns see it.
#[must_use]
pub fn document(stored: &Stored) -> Value {
    let message = &stored.message;
    let text = String::from_utf8_lossy(&message.body);
    let body = serde_json::from_str::<Value>(&text).unwrap_or_else(|_| text.clone().into());
    json!({
        "messageId": message.id,
        "sequenceNumber": stored.sequence,
        "correlationId": message.correlation_id,
        "subject": message.subject,
        "sessionId": message.session_id,
        "contentType": message.content_type,
        "properties": message.properties,
        "deadLetter": stored.dead,
        "body": body,
    })
}

impl Line {
    /// Moves dead letters of this line, which is one of dead letters, to the line they came from.
    pub async fn resubmit(self: &Arc<Self>, to: &Arc<Line>, what: &Resubmit) -> Result<Resubmitted, BusError> {
        if !self.is_ours() {
            return Err(super::line::elsewhere().into());
        }
        // Nobody reads meanwhile: what we move cannot come into the window behind our back.
        let _turn = self.loading.lock().await;
        let deed = Deed::SendBack(what.body.clone());
        let last = what.up_to.unwrap_or_else(|| self.state().next.saturating_sub(1));
        let mut done = Resubmitted { up_to: last, ..Resubmitted::default() };
        let mut choice = match &what.which {
            Which::All => Chosen::All,
            Which::Where(pattern) => Chosen::Where(pattern),
            Which::Ids(ids) => Chosen::At(self.named(ids, last, what.limit.is_none()).await?),
        };
        if let Chosen::At(Named { positions, .. }) = &choice
            && what.body.is_some()
            && positions.len() > 1
        {
            return Err(BusError::Ambiguous(positions.len()));
        }
        let Some((first, end)) = choice.range(last) else {
            done.missing = choice.missing(u64::MAX);
            return Ok(done);
        };
        let mut query = self.letters_between(first, end);
        loop {
            let page = self.shared.store.query(layout::table(), &query).await?;
            let mut chosen = Vec::new();
            let mut looked_at = 0;
            for item in &page.items {
                let stored = Stored::from_item(item)?;
                looked_at = layout::number_of(item).unwrap_or(stored.sequence);
                if !choice.takes(looked_at, &stored) {
                    continue;
                }
                if what.limit.is_some_and(|limit| done.resubmitted + chosen.len() as u64 >= limit as u64) {
                    done.more = true;
                    break;
                }
                if let Err(error) = deed.check(&stored) {
                    self.unclaim_all(chosen);
                    return Err(error);
                }
                match self.state().claim(looked_at) {
                    Some(claim) => chosen.push((looked_at, stored, claim)),
                    None => done.locked += 1,
                }
            }
            done.resubmitted += self.move_back(Some(to), chosen, &deed, None).await?;
            if done.more || page.next.is_none() {
                done.missing = choice.missing(if done.more { looked_at } else { u64::MAX });
                return Ok(done);
            }
            query = query.after(page.next);
        }
    }

    fn letters_between(&self, first: u64, last: u64) -> Query {
        let range = Range::Between(layout::digits(first).into(), layout::digits(last).into());
        Query::new(self.layout.partition(LaneId::Main.letter())).range(range).limit(PAGE)
    }

    /// What ids name among the letters up to a number; message ids are looked for, numbers are places. `numbers`: whether
    /// a text that is no message id may be one.
    async fn named(&self, ids: &[Id], last: u64, numbers: bool) -> Result<Named, Error> {
        let texts =
            ids.iter().filter_map(|id| if let Id::Text(text) = id { Some((text.as_str(), false)) } else { None });
        let mut texts: BTreeMap<&str, bool> = texts.collect();
        let mut named = Named::default();
        let mut query = (!texts.is_empty() && last > 0).then(|| self.letters_between(1, last));
        while let Some(asked) = query.take() {
            let page = self.shared.store.query(layout::table(), &asked).await?;
            for item in &page.items {
                let stored = Stored::from_item(item)?;
                if let Some(found) = texts.get_mut(stored.message.id.as_str()) {
                    *found = true;
                    named.positions.insert(layout::number_of(item).unwrap_or(stored.sequence));
                }
            }
            query = page.next.is_some().then(|| asked.after(page.next));
        }
        for id in ids.iter().collect::<BTreeSet<_>>() {
            let number = match id {
                Id::Number(number) => Some(*number),
                Id::Text(text) if texts.get(text.as_str()) == Some(&true) => continue,
                Id::Text(text) => text.parse().ok().filter(|_| numbers),
            };
            match number {
                Some(number) => {
                    named.positions.insert(number);
                    named.numbers.entry(number).or_default().push(id.clone());
                }
                None => named.missing.push(id.clone()),
            }
        }
        Ok(named)
    }

    /// Nothing is done with these after all.
    pub(super) fn unclaim_all(&self, chosen: Vec<(u64, Stored, Claim)>) {
        let mut state = self.state();
        chosen.into_iter().for_each(|(position, _, claim)| state.unclaim(position, claim));
    }

    /// Takes letters that are claimed out of this line, to where they came from or for good; says how many. What is to be
    /// written `beside` so many of them is part of their transaction.
    pub(super) async fn move_back(
        self: &Arc<Self>,
        to: Option<&Arc<Line>>,
        chosen: Vec<(u64, Stored, Claim)>,
        deed: &Deed,
        beside: Option<&Beside>,
    ) -> Result<u64, Error> {
        let mut transactions: Vec<Prepared> = Vec::new();
        let mut groups: Vec<Vec<(u64, Claim)>> = Vec::new();
        let mut failed = None;
        for (position, stored, claim) in chosen {
            let prepared = match self.prepare_back(to, position, &stored, deed).await {
                Ok(prepared) => prepared,
                Err(error) => {
                    self.state().unclaim(position, claim);
                    failed = Some(error);
                    continue;
                }
            };
            match (transactions.last(), groups.last_mut()) {
                (Some(last), Some(group))
                    if last.fits(&prepared) && last.len() + prepared.len() < TRANSACTION_WRITES =>
                {
                    let last = transactions.pop().unwrap_or_default();
                    transactions.push(last.and(prepared));
                    group.push((position, claim));
                }
                _ => {
                    transactions.push(prepared);
                    groups.push(vec![(position, claim)]);
                }
            }
        }
        if let Some(beside) = beside {
            for (transaction, group) in transactions.iter_mut().zip(&groups) {
                transaction.write(beside(group.len()));
            }
        }
        let mut moved = 0;
        let outcomes = Prepared::run_each(&*self.shared.store, transactions).await;
        for (group, outcome) in groups.into_iter().zip(outcomes) {
            let mut state = self.state();
            for (position, claim) in group {
                if outcome.is_ok() {
                    state.main.gone(position);
                    moved += 1;
                } else {
                    state.unclaim(position, claim);
                }
            }
            drop(state);
            failed = failed.or(outcome.err());
        }
        failed.map_or(Ok(moved), Err)
    }

    pub(super) async fn prepare_back(
        self: &Arc<Self>,
        to: Option<&Arc<Line>>,
        position: u64,
        dead: &Stored,
        deed: &Deed,
    ) -> Result<Prepared, Error> {
        let mut prepared = Prepared::default();
        let delta = Delta { outgoing: 1, ..Delta::default() };
        self.take_away(Place::Lane(LaneId::Main, position), dead, delta, &mut prepared);
        prepared.demand_first(Condition::Exists);
        let (Some(to), Deed::SendBack(body)) = (to, deed) else {
            self.row(dead, End::Removed, 0).into_iter().for_each(|row| prepared.write(row));
            return Ok(prepared);
        };
        self.row(dead, End::Resubmitted, 0).into_iter().for_each(|row| prepared.write(row));
        let message = sent_back(dead, body.as_ref());
        let from = format!("{}#{}", self.path, dead.sequence);
        let again = to.prepare_from(message, self.shared.clock.now(), Some(from)).await?;
        Ok(prepared.and(again))
    }
}
