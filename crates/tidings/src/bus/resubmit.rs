//! Dead letters back to where they came from: one, some by pattern, all; as they are or edited (S003-86, S003-97).

use std::sync::Arc;

use bytes::Bytes;
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
    /// By number or by message id.
    Ids(Vec<String>),
    /// By a pattern over the message as it is shown, its body as JSON where it is JSON.
    Where(Pattern),
}

/// What is to be done.
#[derive(Debug, Clone)]
pub struct Resubmit {
    pub which: Which,
    /// Takes the place of the message's own body.
    pub body: Option<Bytes>,
    /// At most so many in this call.
    pub limit: usize,
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
}

impl Which {
    fn takes(&self, stored: &Stored) -> bool {
        match self {
            Self::All => true,
            Self::Ids(ids) => {
                let number = stored.sequence.to_string();
                ids.iter().any(|id| *id == number || *id == stored.message.id)
            }
            Self::Where(pattern) => pattern.matches(&document(stored).to_string()).unwrap_or(false),
        }
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
        if last == 0 {
            return Ok(done);
        }
        let range = Range::Between(layout::digits(1).into(), layout::digits(last).into());
        let mut query = Query::new(self.layout.partition(LaneId::Main.letter())).range(range).limit(PAGE);
        loop {
            let page = self.shared.store.query(layout::table(), &query).await?;
            let mut chosen = Vec::new();
            for item in &page.items {
                let stored = Stored::from_item(item)?;
                if !what.which.takes(&stored) {
                    continue;
                }
                if done.resubmitted + chosen.len() as u64 >= what.limit as u64 {
                    done.more = true;
                    break;
                }
                if let Err(error) = deed.check(&stored) {
                    self.unclaim_all(chosen);
                    return Err(error);
                }
                let position = layout::number_of(item).unwrap_or(stored.sequence);
                match self.state().claim(position) {
                    Some(claim) => chosen.push((position, stored, claim)),
                    None => done.locked += 1,
                }
            }
            done.resubmitted += self.move_back(Some(to), chosen, &deed, None).await?;
            if done.more || page.next.is_none() {
                return Ok(done);
            }
            query = query.after(page.next);
        }
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
