//! Events that nothing follows from, as most of a crowd are: no rule matches them, nobody listens, they go nowhere on the
//! bus. All there is to do is to store them, straight from the request that brought them.

use tidings_core::envelope::Lent;
use tidings_store::Write;

use super::noted::Noted;
use super::{Ingest, STORED_BYTES};
use crate::business::event::Kind;
use crate::events::record::{self, EventKey, Moment};

/// What was found out about the type of the last event: those that come together are mostly of one type.
#[derive(Default)]
pub struct Sieved {
    event_type: String,
    is_plain: Option<bool>,
}

/// The days on which the events of one request happened.
#[derive(Default)]
pub struct Days {
    /// One that is on record.
    known: String,
    /// Those that are put there, and by which events.
    noted: Vec<(usize, String)>,
}

impl Days {
    /// The day that an event puts on record, if it does.
    pub fn noted_by(&mut self, place: usize) -> Option<String> {
        // Most put none there.
        let found = self.noted.iter().position(|(noted, _)| *noted == place)?;
        Some(self.noted.swap_remove(found).1)
    }

    /// What is left to do for an event.
    pub fn of(&mut self, place: usize) -> Noted {
        let day = self.noted_by(place);
        let companions = 2 + usize::from(day.is_some());
        Noted { day, announcement: None, companions, reacted: None }
    }
}

impl Ingest {
    /// Whether there is nothing to do about an event but to store it.
    pub fn is_plain(&self, event: &Lent<'_>, sieved: &mut Sieved) -> bool {
        let Some(event_type) = event.only_type() else { return false };
        let is_plain = match sieved.is_plain {
            Some(known) if sieved.event_type == event_type => known,
            _ => {
                let is_plain = Kind::of_type(event_type).is_none() && !self.rules.may_match(event_type);
                event_type.clone_into(&mut sieved.event_type);
                *sieved.is_plain.insert(is_plain)
            }
        };
        is_plain && event.most_json_bytes() <= STORED_BYTES && self.live.listeners() == 0
    }

    /// The transaction of such an event.
    pub fn plain_transaction(&self, place: usize, event: &Lent<'_>, days: &mut Days, moment: &Moment) -> Vec<Write> {
        let key = EventKey::new(event.event_timestamp, self.unique());
        let mut note_day = None;
        if days.known != key.day {
            note_day = self.day_to_note(&key.day, moment.now);
            match note_day {
                Some(_) => days.noted.push((place, key.day.clone())),
                None => days.known.clone_from(&key.day),
            }
        }
        let mut writes = Vec::from(record::writes(&event.into(), key, event.to_json(), None, moment));
        writes.extend(note_day);
        writes
    }
}
