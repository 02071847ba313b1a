//! Finding what is due: told by hand, read from the index, taken over from a process that died.

use std::time::Duration;

use tidings_core::time::Timestamp;
use tidings_store::{Change, Condition, Error, Item, Write};

use super::attempt::longest_lease;
use super::lane::Lane;
use super::window::Stub;
use super::{Deliverer, LOOK_AGAIN, LOOK_FORWARD, WINDOW};
use crate::messages::record;
use crate::messages::transition::Stored;

/// Read of one partition at a time, so that all have their turn.
const PORTION: usize = 64;

impl Deliverer {
    /// Now and then, and when the clock was set back, reads everything from its start.
    pub(super) async fn look_again(&mut self, now: Timestamp, monotonic: Duration) -> Result<(), Error> {
        let long_ago = self.looked_again.is_none_or(|at| monotonic.saturating_sub(at) >= LOOK_AGAIN);
        let set_back = now < self.last_now;
        self.last_now = now;
        if !long_ago && !set_back {
            let shared = self.services.embedded.is_none();
            if shared && monotonic.saturating_sub(self.looked_forward) >= LOOK_FORWARD {
                (self.unread, self.looked_forward) = (true, monotonic);
            }
            return Ok(());
        }
        self.parked.load(&*self.services.store).await?;
        if self.looked_again.is_none() && self.services.embedded.is_some() {
            self.take_over(now).await?;
        }
        self.lanes.iter_mut().for_each(Lane::rewind);
        (self.upcoming, self.unread) = (None, true);
        self.limiter.forget_idle(monotonic);
        self.looked_again = Some(monotonic);
        Ok(())
    }

    /// On the embedded store there is no other process: whoever else has a lease is gone, and need not be waited for.
    async fn take_over(&mut self, now: Timestamp) -> Result<(), Error> {
        let until = now.saturating_add(longest_lease()).unwrap_or(Timestamp::MAX);
        let (store, table) = (&*self.services.store, &self.services.messages.table);
        for lane in self.lanes.iter().chain(self.parked.lanes()) {
            let mut after = None;
            loop {
                let page = lane.between(store, table, (now, until), after).await?;
                for item in &page.items {
                    let Some(write) = self.release(item, now) else { continue };
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

    /// The write that ends a dead process's lease. The state stays; the attempt is closed by whoever takes it up.
    fn release(&self, item: &Item, now: Timestamp) -> Option<Write> {
        let owner = item.str("lease_owner").filter(|owner| *owner != self.desk.owner)?;
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
            let due = made.message.due_at().unwrap_or(now);
            if !by_hand || due > now {
                left.push(due);
                continue;
            }
            let stub = Stub { is_new: true, ..Stub::of(made, monotonic) };
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

    /// Fills the window; `true` if everything that is due is in it.
    pub(super) async fn fill(&mut self, now: Timestamp, monotonic: Duration) -> Result<bool, Error> {
        let mut all_read = 0;
        while all_read < self.lanes.len() && self.window.len() < WINDOW {
            let Some(mut lane) = self.lanes.pop_front() else { break };
            let limit = PORTION.min(WINDOW - self.window.len());
            let read = lane.read(&*self.services.store, &self.services.messages.table, now, limit).await;
            self.lanes.push_back(lane);
            let (items, end) = read?;
            all_read = if end { all_read + 1 } else { 0 };
            for item in items {
                let stub = Stub::of(Stored::read(item)?, monotonic);
                if self.held.insert(stub.message_id.clone()) {
                    self.window.push(stub);
                }
            }
        }
        Ok(all_read >= self.lanes.len())
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
