//! `GET /event-types`: what seed 003 says of its four events, for those who send or handle them (S003-03 to S003-54).

use axum::extract::State;
use axum::http::{Method, StatusCode};
use axum::response::IntoResponse;
use schemars::JsonSchema;
use serde::Serialize;
use std::time::Duration;

use super::event::Kind;
use crate::app::Services;
use crate::bus::pool::Priority;
use crate::http::{Json, Problem, Route};
use crate::tokens::Scope;

#[must_use]
pub fn routes() -> Vec<Route> {
    vec![
        Route::new(
            Method::GET,
            "/event-types",
            "The four business events: who sends them, who handles them, how",
            list,
        )
        .scopes(&[Scope::Read, Scope::Ingest, Scope::Consume])
        .answer::<Catalogue>(200, "All of them"),
    ]
}

#[derive(Serialize, JsonSchema)]
struct Catalogue {
    items: Vec<EventType>,
    /// Always null: there is one page.
    cursor: Option<String>,
}

/// One of the events.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventType {
    /// As in EVT_001.
    pub id: &'static str,
    /// The `eventType` of its envelopes.
    pub name: &'static str,
    /// `command`, `domain`, `system` or `integration`.
    pub r#type: &'static str,
    pub category: &'static str,
    pub source: &'static str,
    pub targets: [&'static str; 1],
    pub required: Vec<&'static str>,
    pub optional: Vec<&'static str>,
    pub frequency: &'static str,
    pub criticality: &'static str,
    /// Who goes first where handlers share workers: `high` or `medium`.
    pub priority: &'static str,
    /// What of the sender's own data it tells of; for most the row and the event belong into one transaction.
    pub data_source: Option<DataSource>,
    pub queue: Option<&'static str>,
    pub exchange: Option<&'static str>,
    pub routing_key: Option<&'static str>,
    pub consumer: Consumer,
    /// `exponential` or `fixed`.
    pub retry_strategy: &'static str,
    pub dead_letter_queue: &'static str,
    pub timeout_ms: u64,
    /// The requirement it comes from.
    pub dependencies: [&'static str; 1],
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct DataSource {
    pub database: &'static str,
    pub table: &'static str,
    pub operation: &'static str,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Consumer {
    pub service: &'static str,
    pub handler: &'static str,
    pub processing_type: &'static str,
}

async fn list(State(_): State<Services>) -> Result<impl IntoResponse, Problem> {
    let items = Kind::ALL.into_iter().map(EventType::of).collect();
    Ok(Json(StatusCode::OK, Catalogue { items, cursor: None }))
}

impl Kind {
    /// The handler's name.
    #[must_use]
    pub const fn handler(self) -> &'static str {
        match self {
            Self::InvoiceUploaded => "ProcessInvoice",
            Self::StatusChanged => "SendServiceStatusNotification",
            Self::TransferExpired => "ExpireOwnershipTransfer",
            Self::ActionOccurred => "PersistAuditLog",
        }
    }

    /// How long handling one may take (S003-14, S003-26, S003-39, S003-52).
    #[must_use]
    pub const fn timeout(self) -> Duration {
        Duration::from_secs(match self {
            Self::InvoiceUploaded => 300,
            Self::StatusChanged | Self::TransferExpired => 60,
            Self::ActionOccurred => 30,
        })
    }

    /// Id, type, category, source, target, frequency, criticality and requirement, as the seed has them.
    const fn described(self) -> [&'static str; 8] {
        match self {
            Self::InvoiceUploaded => [
                "EVT_001",
                "command",
                "File Processing",
                "Product Management",
                "Background Worker Service",
                "medium",
                "normal",
                "REQ-DATA-001",
            ],
            Self::StatusChanged => [
                "EVT_002",
                "domain",
                "Service Management",
                "Service Request Management",
                "Notification Management",
                "high",
                "important",
                "REQ-INTG-001",
            ],
            Self::TransferExpired => [
                "EVT_003",
                "system",
                "Workflow Management",
                "Product Management",
                "Background Worker Service",
                "low",
                "normal",
                "REQ-BR-002",
            ],
            Self::ActionOccurred => {
                ["EVT_004", "integration", "Auditing", "Multiple", "Auditing", "high", "important", "REQ-AUDIT-001"]
            }
        }
    }

    const fn data_source(self) -> Option<DataSource> {
        let (table, operation) = match self {
            Self::InvoiceUploaded => ("Invoice", "create"),
            Self::StatusChanged => ("ServiceRequest", "update"),
            Self::TransferExpired => ("OwnershipTransferRequest", "create"),
            Self::ActionOccurred => return None,
        };
        Some(DataSource { database: "PostgreSQL", table, operation })
    }

    const fn consumer(self) -> &'static str {
        match self {
            Self::InvoiceUploaded => "OCR Processing Worker",
            Self::StatusChanged => "Notification Service",
            Self::TransferExpired => "Scheduled Job Worker",
            Self::ActionOccurred => "Background Worker Service",
        }
    }

    const fn dead_letter_queue(self) -> &'static str {
        match self {
            Self::InvoiceUploaded => "ocr-processing-queue/$deadletterqueue",
            Self::StatusChanged => "domain-events-topic/Subscriptions/notifications-sub/$deadletterqueue",
            Self::TransferExpired => "transfer-expiration-queue/$deadletterqueue",
            Self::ActionOccurred => "system-events-topic/Subscriptions/auditing-sub/$deadletterqueue",
        }
    }
}

impl EventType {
    fn of(kind: Kind) -> Self {
        let [id, r#type, category, source, target, frequency, criticality, requirement] = kind.described();
        let on_topic = kind.routing_key().is_some();
        Self {
            id,
            name: kind.event_type(),
            r#type,
            category,
            source,
            targets: [target],
            required: kind.field_names(true),
            optional: kind.field_names(false),
            frequency,
            criticality,
            priority: match kind.priority() {
                Priority::High => "high",
                Priority::Medium => "medium",
            },
            data_source: kind.data_source(),
            queue: (!on_topic).then_some(kind.entity()),
            exchange: on_topic.then_some(kind.entity()),
            routing_key: kind.routing_key(),
            consumer: Consumer { service: kind.consumer(), handler: kind.handler(), processing_type: "async" },
            retry_strategy: if kind == Kind::TransferExpired { "fixed" } else { "exponential" },
            dead_letter_queue: kind.dead_letter_queue(),
            timeout_ms: u64::try_from(kind.timeout().as_millis()).unwrap_or(u64::MAX),
            dependencies: [requirement],
        }
    }
}
