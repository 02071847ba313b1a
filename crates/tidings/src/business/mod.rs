//! The business parts of seed 003: invoices, service requests and ownership transfers, and the four events that move
//! them. `event` judges payloads at the door, `message` carries them over the bus, `handlers` does what they are for;
//! the rest is a folder each, with its record, its states and its API.

pub mod catalogue;
pub mod event;
pub mod handled;
pub mod handlers;
pub mod invoices;
pub mod message;
pub mod origin;
pub mod service_requests;
pub mod transfers;

use std::sync::Arc;

use tidings_store::Table;

pub use event::Kind;

use self::handlers::Handlers;
use self::invoices::Invoices;
use self::service_requests::ServiceRequests;
use self::service_requests::notify::Notifier;
use self::transfers::Transfers;
use crate::audit::Audit;
use crate::audit::persist::Persister;
use crate::bus::Bus;
use crate::config::Config;
use crate::http::Route;
use crate::ingest::Ingest;
use crate::messages::Messages;

/// The business parts of a running server.
pub struct Business {
    pub invoices: Arc<Invoices>,
    pub service_requests: ServiceRequests,
    pub transfers: Arc<Transfers>,
    pub handlers: Arc<Handlers>,
}

impl Business {
    #[must_use]
    pub fn new(
        ingest: &Arc<Ingest>,
        bus: &Arc<Bus>,
        messages: &Arc<Messages>,
        audit: &Arc<Audit>,
        config: &Config,
    ) -> Self {
        let invoices = Arc::new(Invoices::new(ingest, config));
        let transfers = Arc::new(Transfers::new(ingest, Arc::clone(bus), config));
        let handlers = Arc::new(Handlers {
            clock: Arc::clone(&ingest.clock),
            invoices: Arc::clone(&invoices),
            notifier: Notifier::new(ingest, Arc::clone(messages), config),
            transfers: Arc::clone(&transfers),
            persister: Persister::new(Arc::clone(audit), config.audit.critical_actions.clone()),
        });
        Self { invoices, service_requests: ServiceRequests::new(ingest), transfers, handlers }
    }
}

#[must_use]
pub fn tables() -> [&'static Table; 4] {
    [handled::table(), invoices::table(), service_requests::table(), transfers::table()]
}

#[must_use]
pub fn routes() -> Vec<Route> {
    [catalogue::routes(), invoices::http::routes(), service_requests::http::routes(), transfers::http::routes()]
        .concat()
}
