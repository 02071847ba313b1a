//! Events between the door and the store.

use tidings_core::envelope::{Envelope, Lent};
use tidings_store::Write;

use super::noted::Noted;
use super::{Arrival, Companions, Receipt};
use crate::bus::Prepared;

impl From<Envelope> for Box<Arrival> {
    fn from(envelope: Envelope) -> Self {
        Self::new(Arrival { envelope, with: Companions::default() })
    }
}

/// An event on its way in.
pub enum Coming<'a> {
    /// One that nothing follows from: see [`Ingest::is_plain`].
    Plain(Lent<'a>),
    Arrival(Box<Arrival>),
}

/// The same with its transaction, if that is not made in a moment.
pub enum Ready<'a> {
    Plain(Lent<'a>),
    Made(Box<Made>),
    Rejected(Receipt),
}

pub struct Made {
    pub arrival: Arrival,
    pub writes: Vec<Write>,
    pub noted: Noted,
    pub forwarded: Prepared,
}

/// What the sender of an event hears that nothing follows from.
pub fn accepted(event: Lent<'_>) -> Receipt {
    Receipt {
        event_id: Some(event.event_id.into_owned()),
        correlation_id: Some(event.correlation_id.into_owned()),
        status: "accepted",
        errors: Vec::new(),
        too_large: false,
        matched: 0,
    }
}
