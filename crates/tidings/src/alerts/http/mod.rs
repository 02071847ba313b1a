//! `/ingest/azure-devops`, `/alerts` and `/authorized-accounts`.

mod accounts;
mod export;
pub mod history;
mod ingest;

use schemars::JsonSchema;

use crate::http::Route;

#[must_use]
pub fn routes() -> Vec<Route> {
    let mut routes = ingest::routes();
    routes.extend(history::routes());
    routes.extend(export::routes());
    routes.extend(accounts::routes());
    routes
}

/// A change of a process, with the seed's attribute names.
#[derive(JsonSchema)]
#[schemars(rename_all = "PascalCase")]
#[expect(dead_code, reason = "describes what is written straight from the stored item")]
struct ProcessChangeEvent {
    /// The month of the event in UTC, as in 2025-12.
    partition_key: String,
    /// `{CorrelationId}-{EventTimestamp}`, and `-2`, `-3` for more of the same second.
    sort_key: String,
    /// When it arrived, in milliseconds since 1970.
    timestamp: i64,
    /// When it happened, in seconds since 1970.
    event_timestamp: i64,
    actor_id: String,
    actor_display_name: String,
    /// `unknown` for services, which have none.
    #[schemars(rename = "ActorIP")]
    actor_ip: String,
    action: String,
    /// Always `Process`.
    area: String,
    /// `Create`, `Modify` or `Delete`.
    category: String,
    details: String,
    #[schemars(skip_serializing_if = "Option::is_none")]
    process_name: Option<String>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    work_item_type: Option<String>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    field_reference_name: Option<String>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    state_name: Option<String>,
    correlation_id: String,
    /// The mail server has taken the mail.
    alert_sent: bool,
    #[schemars(skip_serializing_if = "Option::is_none")]
    alert_sent_timestamp: Option<i64>,
    /// The last attempt to send it failed.
    #[schemars(skip_serializing_if = "Option::is_none")]
    alert_failed: Option<bool>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    retry_count: Option<i64>,
    /// When it ceases to exist, in seconds since 1970.
    #[schemars(rename = "TTL")]
    ttl: i64,
    /// The event as it came, to the byte.
    raw_event_json: String,
    /// The authorised account whose change it is; such a change is never alerted.
    #[schemars(skip_serializing_if = "Option::is_none")]
    suppressed_by: Option<String>,
    /// The message that tells of it together with others, if `process_alerts.digest_seconds` is set.
    #[schemars(skip_serializing_if = "Option::is_none")]
    delivery_id: Option<String>,
}
