//! A trace is the same on every node: what waits or is locked is in the memory of the one that has its queue, and is asked
//! for there, at the same address and with the caller's own credentials.

use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::app::Services;
use crate::bus::history::Fate;
use crate::http::{CorrelationId, Json};
use crate::nodes::forward::{Call, is_forwarded};

/// What a node says to another one.
#[derive(Serialize, Deserialize)]
struct Live {
    live: Vec<Fate>,
}

/// What this node has of a correlation id, if it is another node that asks.
pub(crate) fn live_here(services: &Services, headers: &HeaderMap, correlation_id: &str) -> Option<Response> {
    is_forwarded(headers)
        .then(|| Json(StatusCode::OK, Live { live: services.bus.live(correlation_id) }).into_response())
}

impl Services {
    /// What the other nodes have of what is shown at that address. One that does not answer is left out.
    pub(crate) async fn live_elsewhere(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        correlation: &CorrelationId,
    ) -> Vec<Fate> {
        let (path, query, body) = (uri.path(), uri.query(), &Bytes::new());
        let call = Call { method: &Method::GET, path, query, headers, body, correlation };
        let answers = self.ask_others(call).await;
        let read = |body: &Bytes| serde_json::from_slice::<Live>(body).ok();
        answers
            .iter()
            .filter(|answer| answer.status == 200)
            .filter_map(|answer| read(&answer.body))
            .flat_map(|said| said.live)
            .collect()
    }
}
