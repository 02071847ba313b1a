//! The business parts of seed 003: invoices, service requests and ownership transfers, and the four events that move
//! them. `event` judges payloads at the door; the rest is a folder each, with its record, its states and its API.

pub mod event;
pub mod handled;
pub mod invoices;
pub mod origin;
pub mod service_requests;

use std::sync::Arc;

use tidings_store::Table;

pub use event::Kind;

use self::invoices::Invoices;
use self::service_requests::ServiceRequests;
use crate::config::Config;
use crate::http::Route;
use crate::ingest::Ingest;

/// The business parts of a running server.
pub struct Business {
    pub invoices: Arc<Invoices>,
    pub service_requests: ServiceRequests,
}

impl Business {
    #[must_use]
    pub fn new(ingest: &Arc<Ingest>, config: &Config) -> Self {
        Self { invoices: Arc::new(Invoices::new(ingest, config)), service_requests: ServiceRequests::new(ingest) }
    }
}

#[must_use]
pub fn tables() -> [&'static Table; 3] {
    [handled::table(), invoices::table(), service_requests::table()]
}

#[must_use]
pub fn routes() -> Vec<Route> {
    [invoices::http::routes(), service_requests::http::routes()].concat()
}
