//! Finding what is due: told by hand, read from the index, taken over from a process that died.

use std::collections::BTreeMap;
use std::time::Duration;

use tidings_core::time::Timestamp;
use tidings_store::{Change, Condition, Error, Item, Query, Write};

use super::attempt::longest_lease;
use super::lane::Lane;
use super::window::Stub;
use super::{Deliverer, LOOK_AGAIN, LOOK_FORWARD, WINDOW};
use crate::app::Services;
use crate::messages::transition::Stored;
use crate::messages::{Status, record};

/// Read of one partition at a time, so that all have their turn.
const PORTION: usize = 64;
/// What is written is in the index by then.
const SHOWN_AFTER: Duration = Duration::from_secs(10);
/// Between the node and the rest in the name of an owner.
const OF_NODE: char = '/';

/// A name for the leases of one deliverer, which says on a shared store which node it is of.
pub(super) fn owner(services: &Services, now: Timestamp) -> String {
    let own = services.ids.uuid(now).to_string();
    match &services.nodes {
        Some(nodes) => format!("{}{OF_NODE}{own}", nodes.me),
        None => own,
    }
}

impl Deliverer {
    /// Now and then, and when the clock was set back, reads everything from its start.
    pub(super) async fn look_again(&mut self, now: Timestamp, monotonic: Duration) -> Result<(), Error> {
        let long_ago = self.looked_again.is_none_or(|at| monotonic.saturating_sub(at) >= LOOK_AGAIN);
        let set_back = now < self.last_now;
        self.last_now = now;
        if !long_ago && !set_back {
            let shared = self.services.embedded.is_none();
            if shared && monotonic.saturating_sub(self.looked_forward) >= LOOK_FORWARD {
                self.look_for_the_dead(now, monotonic).await?;
                (self.unread, self.looked_forward) = (true, monotonic);
            }
            return Ok(());
        }
        self.parked.load(&*self.services.store).await?;
        if self.looked_again.is_none() && self.services.embedded.is_some() {
            self.take_over(now).await?;
        }
        self.look_for_the_dead(now, monotonic).await?;
        self.rewind();
        self.window.wake_all();
        self.limiter.forget_idle(monotonic);
        self.looked_again = Some(monotonic);
        Ok(())
    }

    fn rewind(&mut self) {
        self.lanes.iter_mut().for_each(Lane::rewind);
        (self.upcoming, self.unread) = (None, true);
    }

    /// Takes over what a node had in hand that is dead: it will not say how that ended. An index may show what was released
    /// a little later, so that it is read again for a while.
    async fn look_for_the_dead(&mut self, now: Timestamp, monotonic: Duration) -> Result<(), Error> {
        let Some(nodes) = &self.services.nodes else { return Ok(()) };
        let living = nodes.living();
        // The first time it is not known who was there before.
        if self.looked_again.is_none() || !self.living.is_subset(&living) {
            self.take_over(now).await?;
            self.parked.load(&*self.services.store).await?;
            self.bereaved = Some(monotonic);
        }
        self.living = living;
        if self.bereaved.is_some_and(|at| monotonic.saturating_sub(at) < SHOWN_AFTER) {
            self.rewind();
        }
        Ok(())
    }

    /// Ends the leases of processes that are gone. On the embedded store that is every other one.
    async fn take_over(&mut self, now: Timestamp) -> Result<(), Error> {
        let mut gone = BTreeMap::new();
        self.services.messages.holds.count_change();
        let was_ahead = self.services.embedded.is_some() && self.clock_was_ahead(now).await?;
        let until = now.saturating_add(longest_lease()).ok().filter(|_| !was_ahead).unwrap_or(Timestamp::MAX);
        let (store, table) = (&*self.services.store, &self.services.messages.table);
        for lane in self.lanes.iter().chain(self.parked.lanes().iter().map(|(_, parked)| parked.lane())) {
            let mut after = None;
            loop {
                let page = lane.between(store, table, (now, until), after).await?;
                for item in &page.items {
                    let write = match item.str("lease_owner") {
                        Some(owner) if owner == self.desk.owner || !self.is_gone(owner, &mut gone).await? => continue,
                        Some(owner) => self.release(item, owner, now),
                        None => self.bring_forward(item, now),
                    };
                    let Some(write) = write else { continue };
                    match store.transact(vec![write]).await {
                        Ok(()) | Err(Error::Conflict { .. }) => {}
                        Err(error) => return Err(error),
                    }
                }
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Whether the clock was set back while nobody was here: what waited for its turn then lies ahead now.
    async fn clock_was_ahead(&self, now: Timestamp) -> Result<bool, Error> {
        let messages = &self.services.messages;
        let newest = Query::new(messages.stage()).index("stage-created_date-index").descending().limit(1);
        let page = self.services.store.query(&messages.table, &newest).await?;
        let ahead = page.items.first().is_some_and(|item| is_of_the_future(item, now));
        if ahead {
            tracing::warn!("the clock was ahead when messages were made; those that wait for nothing else are due now");
        }
        Ok(ahead)
    }

    /// The write that makes a message due of which nobody said that it should wait, if its time has not come only because
    /// the clock was set back.
    fn bring_forward(&self, item: &Item, now: Timestamp) -> Option<Write> {
        let untried = item.str("status") != Some(Status::Processing.as_str());
        if !untried || item.get("deliver_at").is_some() || !is_of_the_future(item, now) {
            return None;
        }
        let at = tidings_core::time::iso_millis(now);
        let changes = vec![
            Change::Set("deliver_at".into(), at.as_str().into()),
            Change::Set("next_attempt_at".into(), at.into()),
            Change::Add("revision".into(), 1),
        ];
        let write = Write::update(&self.services.messages.table, record::key(item.str("message_id")?), changes);
        Some(write.when(Condition::Equals("status".into(), item.get("status")?.clone())))
    }

    /// Whether whoever has a lease is no more; `known` says it of those who were asked about before.
    async fn is_gone(&self, owner: &str, known: &mut BTreeMap<String, bool>) -> Result<bool, Error> {
        let Some(nodes) = &self.services.nodes else { return Ok(true) };
        // One without a node is not of this kind; its lease runs out.
        let Some((node, _)) = owner.split_once(OF_NODE) else { return Ok(false) };
        if let Some(gone) = known.get(node) {
            return Ok(*gone);
        }
        let gone = nodes.is_gone(node).await?;
        known.insert(node.to_owned(), gone);
        Ok(gone)
    }

    /// The write that ends a dead process's lease. The state stays; the attempt is closed by whoever takes it up.
    fn release(&self, item: &Item, owner: &str, now: Timestamp) -> Option<Write> {
        let changes = vec![
            Change::Set("next_attempt_at".into(), tidings_core::time::iso_millis(now).into()),
            Change::Add("revision".into(), 1),
        ];
        let write = Write::update(&self.services.messages.table, record::key(item.str("message_id")?), changes);
        Some(write.when(Condition::Equals("lease_owner".into(), owner.into())))
    }

    /// Takes note of what was made since: into the window if nobody waits before it, else it is found in the index.
    pub(super) fn hear(&mut self, now: Timestamp, monotonic: Duration) -> Result<(), Error> {
        let Some(signal) = self.services.messages.signals.of(self.channel) else { return Ok(()) };
        let news = signal.take();
        let by_hand = !self.unread && self.window.len() + news.messages.len() <= WINDOW;
        let mut left = news.earliest.into_iter().collect::<Vec<_>>();
        for made in news.messages {
            let due = made.stored.message.due_at().unwrap_or(now);
            if !by_hand || due > now {
                left.push(due);
                continue;
            }
            let stub = Stub { is_new: true, seen: made.seen, ..Stub::of(made.stored, monotonic) };
            if self.held.insert(stub.message_id.clone()) {
                self.window.push(stub);
            }
        }
        let Some(due) = left.into_iter().min() else { return Ok(()) };
        self.lanes.iter_mut().for_each(|lane| lane.back_to(due));
        if due <= now {
            self.unread = true;
        } else if let Some(upcoming) = &mut self.upcoming {
            *upcoming = Some(upcoming.map_or(due, |known| known.min(due)));
        }
        Ok(())
    }

    /// Fills the window; `true` if everything that is due is in it. A lane that has come to its end is not read again: what is
    /// due at this very moment would come once more, and lanes that begin anew in turn would never be at their ends together.
    pub(super) async fn fill(&mut self, now: Timestamp, monotonic: Duration) -> Result<bool, Error> {
        // They stand at the front, those that are at their ends behind them.
        let mut unread = self.lanes.len();
        while unread > 0 && self.window.len() < WINDOW {
            let Some(mut lane) = self.lanes.pop_front() else { break };
            let limit = PORTION.min(WINDOW - self.window.len());
            let read = lane.read(&*self.services.store, &self.services.messages.table, now, limit).await;
            let is_at_end = matches!(read, Ok((_, true)));
            self.lanes.insert(if is_at_end { self.lanes.len() } else { unread - 1 }, lane);
            unread -= usize::from(is_at_end);
            for item in read?.0 {
                let stub = Stub::of(Box::new(Stored::read(item)?), monotonic);
                if self.held.insert(stub.message_id.clone()) {
                    self.window.push(stub);
                }
            }
        }
        Ok(unread == 0)
    }

    pub(super) async fn next_due(&mut self, now: Timestamp) -> Result<Option<Timestamp>, Error> {
        if let Some(known) = self.upcoming
            && known.is_none_or(|due| due > now)
        {
            return Ok(known);
        }
        let mut first = None;
        for lane in &self.lanes {
            let due = lane.upcoming(&*self.services.store, &self.services.messages.table, now).await?;
            first = first.into_iter().chain(due).min();
        }
        self.upcoming = Some(first);
        Ok(first)
    }
}

/// Whether a message was made later than now.
fn is_of_the_future(item: &Item, now: Timestamp) -> bool {
    item.str("created_date").and_then(|at| at.parse::<Timestamp>().ok()).is_some_and(|made| made > now)
}
