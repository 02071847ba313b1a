//! Service requests: a request of a user, and its status, of whose changes the user hears (EVT_002).
//!
//! A change is one transaction with its event `ServiceRequestStatusChanged`, which goes on the bus with it;
//! `SendServiceStatusNotification` (`notify`) makes the user's inbox entry and push of it. What changes nothing tells
//! nothing.

pub mod http;
pub mod notify;

use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};
use serde_json::json;
use tidings_core::time::{self, Clock};
use tidings_store::{Condition, Error, Item, Key, KeyKind, Store, Table, Write};
use uuid::Uuid;

use super::event::Kind;
use super::origin::{Origin, Told, tell};
use crate::http::Problem;
use crate::ingest::Ingest;

/// The source of their events.
pub const SOURCE: &str = "tidings/service-requests";
/// How a request begins.
pub const OPEN: &str = "open";
const TRIES: usize = 20;

#[must_use]
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        Table::new("tidings-service-requests", "serviceRequestId", KeyKind::S).index(
            "user-index",
            ("userId".into(), KeyKind::S),
            Some(("createdAt".into(), KeyKind::S)),
        )
    });
    &TABLE
}

/// A request, as it is stored and shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceRequest {
    pub service_request_id: String,
    pub user_id: String,
    pub description: String,
    pub status: String,
    pub created_at: String,
    pub updated_at: String,
    /// Of the call that made it.
    pub correlation_id: String,
    /// Counts the changes.
    pub revision: i64,
}

/// The service requests of this installation.
pub struct ServiceRequests {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    ingest: Arc<Ingest>,
}

impl ServiceRequests {
    #[must_use]
    pub fn new(ingest: &Arc<Ingest>) -> Self {
        Self { store: Arc::clone(&ingest.store), clock: Arc::clone(&ingest.clock), ingest: Arc::clone(ingest) }
    }

    pub async fn get(&self, id: &str) -> Result<Option<ServiceRequest>, Error> {
        self.store.get(table(), &Key::new(id)).await?.map(|item| item.to_record()).transpose()
    }

    /// Makes a request. The ids make it the same one if the call comes again.
    pub async fn create(
        &self,
        user_id: String,
        description: String,
        origin: Origin<'_>,
        (id, event_id): (Uuid, Uuid),
    ) -> Result<ServiceRequest, Problem> {
        let now = self.clock.now();
        let request = ServiceRequest {
            service_request_id: id.to_string(),
            user_id,
            description,
            status: OPEN.to_owned(),
            created_at: time::iso_micros(now),
            updated_at: time::iso_micros(now),
            correlation_id: origin.correlation_id.to_owned(),
            revision: 1,
        };
        let told = Told {
            event_type: "servicerequest.created",
            event_id,
            source: SOURCE,
            subject: subject(&request),
            at: now,
            data: json!({
                "serviceRequestId": request.service_request_id, "userId": request.user_id,
                "description": request.description, "status": request.status, "createdBy": origin.by,
            }),
        };
        let writes = vec![Write::insert(table(), Item::from_record(&request)?)];
        match tell(&self.ingest, told, origin, writes).await?.status {
            "accepted" => Ok(request),
            _ => self.get(&request.service_request_id).await?.ok_or_else(not_found),
        }
    }

    /// Changes the status. The status it has already changes nothing, and nobody is told (S003-16).
    pub async fn set_status(
        &self,
        id: &str,
        status: &str,
        origin: Origin<'_>,
        event_id: Uuid,
    ) -> Result<ServiceRequest, Problem> {
        for _ in 0..TRIES {
            let before = self.get(id).await?.ok_or_else(not_found)?;
            if before.status == status {
                return Ok(before);
            }
            let now = self.clock.now();
            let after = ServiceRequest {
                status: status.to_owned(),
                updated_at: time::iso_micros(now).max(before.updated_at.clone()),
                revision: before.revision + 1,
                ..before.clone()
            };
            let unchanged = Condition::Equals("revision".into(), before.revision.into());
            let write = Write::put(table(), Item::from_record(&after)?).when(unchanged);
            let told = Told {
                event_type: Kind::StatusChanged.event_type(),
                event_id,
                source: SOURCE,
                subject: subject(&after),
                at: now,
                data: json!({
                    "serviceRequestId": after.service_request_id, "userId": after.user_id,
                    "oldStatus": before.status, "newStatus": after.status,
                }),
            };
            match tell(&self.ingest, told, origin, vec![write]).await {
                Ok(_) => return Ok(after),
                Err(Error::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Throttled("the service request is contended".to_owned()).into())
    }
}

fn subject(request: &ServiceRequest) -> String {
    format!("service-request/{}", request.service_request_id)
}

fn not_found() -> Problem {
    Problem::not_found("there is no service request of this id")
}
