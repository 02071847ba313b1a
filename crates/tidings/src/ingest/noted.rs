//! What is remembered of an event from the making of its transaction until that is decided.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidings_core::envelope::Envelope;
use tidings_store::Error;
use uuid::Uuid;

use crate::bus::Prepared;
use crate::messages::Message;
use crate::rules::{Outcome, Rule};

/// What is left to do once an event is stored.
pub struct Noted {
    /// The day that its transaction puts on record.
    pub day: Option<String>,
    /// What listeners will see, if there are any.
    pub announcement: Option<String>,
    /// The place of the first write of its companions.
    pub companions: usize,
    pub reacted: Option<Box<Reacted>>,
}

/// What is known of an event that rules match.
pub struct Reacted {
    pub json: String,
    pub rules: Vec<Arc<Rule>>,
    /// The writes of the transaction that open windows, and which.
    pub markers: Vec<(usize, Uuid)>,
    pub outcome: Outcome,
    pub messages: Vec<Message>,
    /// Users with a new inbox entry.
    pub told: BTreeSet<String>,
    /// What goes on the bus.
    pub bus: Prepared,
}

impl Noted {
    /// Tells the bus how the transaction went, if anything goes on there.
    pub fn resolve(&mut self, outcome: &Result<(), Error>) {
        if let Some(reacted) = &mut self.reacted {
            std::mem::take(&mut reacted.bus).resolve(outcome);
        }
    }
}

/// An envelope's text with what came of it, for those who watch.
pub fn with_outcome(mut json: String, envelope: &Envelope, outcome: &str) -> String {
    let has_its_own = envelope.extensions.iter().any(|(name, _)| name == "outcome");
    if !has_its_own && json.pop().is_some() {
        json.push_str(",\"outcome\":");
        json.push_str(outcome);
        json.push('}');
    }
    json
}
