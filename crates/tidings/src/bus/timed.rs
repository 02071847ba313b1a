//! Messages by the clock: scheduled ones whose time comes, returned ones whose wait is over, and those that expire.

use std::sync::Arc;

use tidings_core::time::Timestamp;
use tidings_store::{Condition, Error, Item, Query, Range, Write, limits};

use super::history::End;
use super::layout::{self, Delta, LaneId, Place};
use super::line::Line;
use super::message::Stored;
use super::prepared::Prepared;

/// Messages that are read and moved in one go.
const ROUND: usize = 512;

impl Line {
    /// Moves what is due, in the order of time, and says when there is more.
    pub(super) async fn move_due(self: &Arc<Self>, now: Timestamp) -> Result<(), Error> {
        let _turn = self.timing.lock().await;
        loop {
            if !self.is_ours() {
                return Ok(());
            }
            // Whatever is stored from here on says so again.
            self.state().next_due = None;
            let until = format!("{}~", layout::digits(layout::micros(now)));
            let query = Query::new(self.layout.partition("s")).range(Range::AtMost(until.into())).limit(ROUND);
            let outcome = self.move_page(query, now).await;
            match outcome {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    self.due_at(now);
                    return Err(error);
                }
            }
        }
        let query = Query::new(self.layout.partition("s")).limit(1);
        let page = self.shared.store.query(layout::table(), &query).await.inspect_err(|_| self.due_at(now))?;
        if let Some(due) = page.items.first().and_then(due_of) {
            self.due_at(due);
        }
        Ok(())
    }

    async fn move_page(self: &Arc<Self>, query: Query, now: Timestamp) -> Result<bool, Error> {
        let page = self.shared.store.query(layout::table(), &query).await?;
        let mut transactions: Vec<Prepared> = Vec::new();
        for item in &page.items {
            self.prepare_due(item, now).await?.join(&mut transactions);
        }
        let mut again = page.next.is_some();
        for outcome in Prepared::run_each(&*self.shared.store, transactions).await {
            match outcome {
                // One of them was cancelled in this moment, or another node has the line: what is left is looked up.
                Err(Error::Conflict { .. }) => {
                    self.shared.doubt();
                    again = true;
                }
                outcome => outcome?,
            }
        }
        Ok(again)
    }

    async fn prepare_due(self: &Arc<Self>, item: &Item, now: Timestamp) -> Result<Prepared, Error> {
        let mut stored = Stored::from_item(item)?;
        let mut prepared = Prepared::default();
        self.unschedule(item, &stored, &mut prepared)?;
        // Whoever cancels it at the same time wins, or loses, but not both.
        prepared.demand_first(Condition::Exists);
        let number = stored.sequence;
        if stored.returning {
            prepared.count(self, Delta { scheduled: -1, waiting: 1, ..Delta::default() });
            if stored.is_expired(now) {
                prepared.count(self, Delta { waiting: -1, ..Delta::default() });
                if self.settings().dead_letter_expired {
                    let description = "the message was not received within its time to live";
                    self.put_dead(&stored, super::message::EXPIRED, Some(description), &mut prepared).await?;
                } else {
                    let row = self.row(&stored, End::Expired, stored.deliveries);
                    row.into_iter().for_each(|row| prepared.write(row));
                }
                return Ok(prepared);
            }
            stored.returning = false;
            let position = self.begin(LaneId::Front).await?;
            prepared.arrive(self, LaneId::Front, position, stored)?;
        } else {
            prepared.count(self, Delta { scheduled: -1, waiting: 1, ..Delta::default() });
            let position = self.begin(LaneId::Main).await?;
            stored.enqueued_sequence = Some(number);
            stored.sequence = position;
            prepared.arrive(self, LaneId::Main, position, stored)?;
        }
        Ok(prepared)
    }

    /// Takes away a scheduled message and what leads to it.
    fn unschedule(&self, item: &Item, stored: &Stored, prepared: &mut Prepared) -> Result<(), Error> {
        prepared.write(Write::delete(layout::table(), layout::table().key_of(item)?));
        if !stored.returning {
            prepared.write(Write::delete(layout::table(), self.layout.numbered(stored.sequence)));
            for key in stored.message.cancel_keys() {
                prepared.write(Write::delete(layout::table(), self.layout.keyed(key, stored.sequence)));
            }
        }
        Ok(())
    }

    /// The writes that cancel a scheduled message by its number; empty if there is none.
    pub async fn prepare_cancel_of(self: &Arc<Self>, number: u64) -> Result<Prepared, Error> {
        match self.shared.store.get(layout::table(), &self.layout.numbered(number)).await? {
            Some(pointer) => self.cancellation(&pointer, number).await,
            None => Ok(Prepared::default()),
        }
    }

    /// The writes that cancel every scheduled message with this business key, and how many there are.
    pub async fn prepare_cancel(self: &Arc<Self>, key: &str) -> Result<(Prepared, usize), Error> {
        let mut all = Prepared::default();
        let mut count = 0;
        // Longer than what is kept of any message: none has it.
        if key.len() + 20 > limits::SORT_KEY_BYTES {
            return Ok((all, count));
        }
        let mut query = Query::new(self.layout.partition("k")).prefix(format!("{key}#"));
        loop {
            let page = self.shared.store.query(layout::table(), &query).await?;
            for pointer in &page.items {
                let same = pointer.str("at").is_some_and(|at| at.len() == key.len() + 20);
                let Some(number) = layout::number_of(pointer).filter(|_| same) else { continue };
                let one = self.cancellation(pointer, number).await?;
                if !one.is_empty() {
                    all = all.and(one);
                    count += 1;
                }
                if all.len() > limits::TRANSACTION_WRITES - 10 {
                    return Ok((all, count));
                }
            }
            if page.next.is_none() {
                return Ok((all, count));
            }
            query = query.after(page.next);
        }
    }

    async fn cancellation(self: &Arc<Self>, pointer: &Item, number: u64) -> Result<Prepared, Error> {
        let due = pointer.int("due").and_then(|due| u64::try_from(due).ok()).map(layout::from_micros);
        let due = due.ok_or_else(|| Error::Corrupt("a scheduled message has no time".to_owned()))?;
        let mut prepared = Prepared::default();
        let Some(item) = self.shared.store.get(layout::table(), &self.layout.timed(due, number)).await? else {
            return Ok(prepared);
        };
        let stored = Stored::from_item(&item)?;
        self.unschedule(&item, &stored, &mut prepared)?;
        self.row(&stored, End::Cancelled, 0).into_iter().for_each(|row| prepared.write(row));
        // Whoever moves it at the same time wins, or loses, but not both.
        prepared.demand_first(Condition::Exists);
        prepared.count_anyhow(self, Delta { scheduled: -1, ..Delta::default() });
        Ok(prepared)
    }

    /// Takes away what has expired, and says when the next one does.
    pub(super) async fn expire_due(self: &Arc<Self>, now: Timestamp) -> Result<(), Error> {
        let _turn = self.timing.lock().await;
        let epoch = self.epoch();
        if !self.is_ours() || epoch == 0 {
            return Ok(());
        }
        self.state().next_expiry = None;
        let mut query = Query::new(self.layout.partition("x")).limit(ROUND);
        loop {
            let page = self.shared.store.query(layout::table(), &query).await.inspect_err(|_| self.expiry_at(now))?;
            for item in &page.items {
                let at = due_of(item).unwrap_or(Timestamp::MIN);
                if at > now {
                    self.expiry_at(at);
                    return Ok(());
                }
                if let Err(error) = self.expire_one(item, now, epoch).await {
                    self.expiry_at(now);
                    return Err(error);
                }
            }
            if page.next.is_none() {
                return Ok(());
            }
            query = query.after(page.next);
        }
    }

    async fn expire_one(self: &Arc<Self>, item: &Item, now: Timestamp, epoch: u64) -> Result<(), Error> {
        let (lane, position) = layout::expiring(item)?;
        let place = Place::Lane(lane, position);
        let (known, out, unread) = {
            let mut state = self.state();
            let lane = state.lane(lane);
            (lane.take(position), lane.is_out(position), lane.is_unread(position))
        };
        if let Some(message) = known {
            let outcome = self.expire(place, &message).await;
            let mut state = self.state();
            match outcome {
                Ok(()) => state.lane(lane).gone(position),
                Err(_) => state.lane(lane).put_back(position, message),
            }
            return outcome;
        }
        if out {
            // Somebody has it; when they give it back it is over.
            self.expiry_at(now.saturating_add(super::worker::TICK).unwrap_or(now));
            return Ok(());
        }
        let found = match unread {
            true => self.shared.store.get(layout::table(), &self.layout.key(place)).await?,
            false => None,
        };
        match found {
            Some(found) => self.expire(place, &Stored::from_item(&found)?).await,
            None => {
                let key = layout::table().key_of(item)?;
                let delete = Write::delete(layout::table(), key);
                match self.shared.store.transact(std::iter::once(delete).chain(self.fence.check(epoch)).collect()).await
                {
                    Err(Error::Conflict { .. }) => {
                        self.shared.doubt();
                        Err(super::line::elsewhere())
                    }
                    outcome => outcome,
                }
            }
        }
    }

    fn expiry_at(&self, at: Timestamp) {
        let mut state = self.state();
        if state.next_expiry.is_none_or(|known| at < known) {
            state.next_expiry = Some(at);
        }
    }
}

/// The moment at the beginning of a sort key.
fn due_of(item: &Item) -> Option<Timestamp> {
    item.str("at")?.get(..19)?.parse().ok().map(layout::from_micros)
}
