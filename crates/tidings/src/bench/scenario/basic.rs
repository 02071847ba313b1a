//! The scenarios that send the same bytes every time: the physical limit and the bare HTTP server.

use super::{Caller, Load, Options, events};
use crate::bench::client::{self, Response};

/// `POST /limit` with the body that `ingest` sends: the handler appends it, waits for the sync and answers.
pub fn limit(options: &Options) -> Box<dyn Load> {
    let body = events::sample();
    Box::new(Fixed(client::request("POST", "/limit", &options.token, Some(("application/json", body.as_bytes())))))
}

/// `GET /healthz`: what the HTTP server can do when the handler has nothing to do.
pub fn health(_options: &Options) -> Box<dyn Load> {
    Box::new(Fixed(client::request("GET", "/healthz", "", None)))
}

/// One request, repeated; any 2xx is right.
#[derive(Debug, Clone)]
struct Fixed(Vec<u8>);

impl Load for Fixed {
    fn caller(&self) -> Box<dyn Caller> {
        Box::new(self.clone())
    }
}

impl Caller for Fixed {
    fn request(&mut self) -> &[u8] {
        &self.0
    }

    fn check(&mut self, response: Response<'_>) -> Option<u64> {
        response.is_success().then_some(1)
    }
}
