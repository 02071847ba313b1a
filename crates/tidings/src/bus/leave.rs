//! The writes by which a message leaves its place: for good, to the dead letters, or to wait for its next delivery.

use std::sync::Arc;

use tidings_core::time::Timestamp;
use tidings_store::{Condition, Error, Write};

use super::history::End;
use super::layout::{self, Delta, LaneId, Place};
use super::line::Line;
use super::message::Stored;
use super::prepared::Prepared;
use super::state::Held;

impl Line {
    /// The writes by which a message waits for its next delivery.
    pub(super) fn put_return(
        self: &Arc<Self>,
        place: Place,
        message: Stored,
        due: Timestamp,
        prepared: &mut Prepared,
    ) -> Result<(), Error> {
        match place {
            Place::Deferred(_) => {
                let not_before = Some(due).filter(|due| *due > self.shared.clock.now());
                prepared.put(self.layout.key(place), &Stored { not_before, ..message })?;
            }
            Place::Lane(lane, position) if self.settings().keeps_place() => {
                let item = self.deliveries_item(lane, position, message.deliveries, &message.attempts);
                let due = i64::try_from(layout::micros(due)).unwrap_or(i64::MAX);
                prepared.write(Write::put(layout::table(), item.with("due", due)));
                return Ok(());
            }
            Place::Lane(..) => {
                self.remove(place, &message, true, prepared);
                prepared.count(self, Delta { waiting: -1, scheduled: 1, ..Delta::default() });
                let message = Stored { returning: true, ..message };
                prepared.arrive_timed(self, due, message.sequence, &message)?;
            }
        }
        // What is gone does not come back.
        prepared.demand_first(Condition::Exists);
        Ok(())
    }

    /// The write by which a failure is known of a message that stays where it is.
    pub(super) fn put_failure(&self, place: Place, message: &Stored, prepared: &mut Prepared) -> Result<(), Error> {
        match place {
            Place::Deferred(_) => {
                prepared.put(self.layout.key(place), message)?;
                // What is gone does not come back.
                prepared.demand_first(Condition::Exists);
            }
            Place::Lane(lane, position) => {
                let item = self.deliveries_item(lane, position, message.deliveries, &message.attempts);
                prepared.write(Write::put(layout::table(), item));
            }
        }
        Ok(())
    }

    pub(super) fn complete(self: &Arc<Self>, held: &Held, prepared: &mut Prepared) {
        // What was delivered once is part of a handout, and has no record of its own.
        let delivered = held.message.deliveries > 0;
        self.take_away_from(held.place, &held.message, delivered, Delta { outgoing: 1, ..Delta::default() }, prepared);
        self.completed_row(held).into_iter().for_each(|row| prepared.write(row));
    }

    /// Takes a message away for good, and counts that with what else is to be counted.
    pub(super) fn take_away(self: &Arc<Self>, place: Place, message: &Stored, delta: Delta, prepared: &mut Prepared) {
        self.take_away_from(place, message, true, delta, prepared);
    }

    fn take_away_from(
        self: &Arc<Self>,
        place: Place,
        message: &Stored,
        delivered: bool,
        delta: Delta,
        prepared: &mut Prepared,
    ) {
        self.remove(place, message, delivered, prepared);
        let from = match place {
            Place::Lane(..) => Delta { waiting: -1, ..delta },
            Place::Deferred(_) => Delta { deferred: -1, ..delta },
        };
        let no_entry = if self.is_of_dead_letters() { self.no_entry(message) } else { None };
        if let Some(no_entry) = no_entry {
            prepared.write(no_entry);
            prepared.count(self, Delta { bytes: -dead_bytes(message), ..from });
        } else {
            prepared.count(self, from);
        }
    }

    /// Takes a message away from where it is. `delivered`: there may be a record of its deliveries.
    pub(super) fn remove(&self, place: Place, message: &Stored, delivered: bool, prepared: &mut Prepared) {
        prepared.write(Write::delete(layout::table(), self.layout.key(place)));
        if let Place::Lane(lane, position) = place {
            if delivered {
                prepared.write(Write::delete(layout::table(), self.layout.deliveries(lane, position)));
            }
            if let Some(at) = message.expires_at {
                prepared.write(Write::delete(layout::table(), self.layout.expiry(at, lane, position)));
            }
        }
    }

    /// Moves a message to the dead letters.
    pub(super) async fn bury(
        self: &Arc<Self>,
        place: Place,
        message: &Stored,
        reason: &str,
        description: Option<&str>,
        prepared: &mut Prepared,
    ) -> Result<(), Error> {
        self.take_away(place, message, Delta::default(), prepared);
        self.put_dead(message, reason, description, prepared).await
    }

    pub(super) async fn put_dead(
        &self,
        message: &Stored,
        reason: &str,
        description: Option<&str>,
        prepared: &mut Prepared,
    ) -> Result<(), Error> {
        if let Some(dead) = self.dead() {
            let position = dead.begin(LaneId::Main).await?;
            let mut letter = message.dead_letter(reason, description, &self.path, self.shared.clock.now());
            letter.sequence = position;
            let bytes = dead_bytes(&letter);
            prepared.count(&dead, Delta { waiting: 1, incoming: 1, bytes, ..Delta::default() });
            dead.entry(&letter).into_iter().for_each(|entry| prepared.write(entry));
            self.row(&letter, End::DeadLettered, letter.deliveries).into_iter().for_each(|row| prepared.write(row));
            prepared.arrive(&dead, LaneId::Main, position, letter)?;
        }
        Ok(())
    }
}

/// What a dead letter counts for; the same when it comes and when it goes.
pub(super) fn dead_bytes(message: &Stored) -> i64 {
    i64::try_from(message.bytes()).unwrap_or(i64::MAX)
}
