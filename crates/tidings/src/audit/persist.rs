//! `PersistAuditLog` (EVT_004): what others say was done goes into the same log as what was done here (S003-42, S003-53).

use std::sync::Arc;

use serde_json::{Map, Value};
use tidings_core::envelope::Envelope;
use tidings_core::time::Clock;
use tidings_store::{Error, Store};

use super::{Action, Audit};
use crate::business::handled;

/// The name under which its work is remembered.
const HANDLER: &str = "PersistAuditLog";
/// Who did it, where the event does not say.
const UNKNOWN: &str = "unknown";

pub struct Persister {
    audit: Arc<Audit>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// The types of action that are critical: names, or beginnings followed by `*`.
    actions: Vec<String>,
}

impl Persister {
    #[must_use]
    pub fn new(audit: Arc<Audit>, actions: Vec<String>) -> Self {
        let (store, clock) = (Arc::clone(&audit.store), Arc::clone(&audit.clock));
        Self { audit, store, clock, actions }
    }

    /// Puts the action of an event on record, once.
    pub async fn persist(&self, envelope: &Envelope) -> Result<(), Error> {
        let data: Map<String, Value> = serde_json::from_str(&envelope.data).unwrap_or_default();
        let text = |name: &str| data.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let name = text("actionType");
        if !self.is_critical(&name) || handled::is_done(&*self.store, HANDLER, envelope).await? {
            return Ok(());
        }
        // A UUID: case does not count in it.
        let user = Some(text("userId").to_lowercase()).filter(|user| !user.is_empty());
        let user = user.unwrap_or_else(|| UNKNOWN.to_owned());
        let details = data.get("changeDetails").cloned().unwrap_or_default();
        let action = Action::new(name, text("targetEntity"), text("targetEntityId")).details(details);
        let done = handled::done(HANDLER, envelope, self.clock.now());
        match self.audit.record_with(&user, &envelope.correlation_id, action, vec![done]).await {
            Ok(_) => Ok(()),
            // Somebody else did it at the same time.
            Err(Error::Conflict { .. }) if handled::is_done(&*self.store, HANDLER, envelope).await? => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn is_critical(&self, action: &str) -> bool {
        self.actions.iter().any(|wanted| match wanted.strip_suffix('*') {
            Some(start) => action.starts_with(start),
            None => action == wanted,
        })
    }
}
