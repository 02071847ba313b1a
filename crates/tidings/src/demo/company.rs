//! Northwind, a small company: who hears of what, and what comes by the clock.

use std::net::SocketAddr;

use serde_json::{Map, Value, json};
use tidings_store::Write;

use crate::app::Services;
use crate::audit::Action;
use crate::inbox::map;
use crate::rules::{Author, Origin, read};
use crate::schedules;

const DEMO: &str = "demo";
/// The account whose changes are expected.
pub const PIPELINE: &str = "svc-pipeline@northwind.example";
pub const ARCHITECTS: &str = "architecture@northwind.example";

/// Products, and the support group of each with its people.
const PRODUCTS: [(&str, &str, [&str; 2]); 4] = [
    ("checkout", "payments", ["ana", "bruno"]),
    ("billing", "payments", ["bruno", "chen"]),
    ("search", "discovery", ["dora", "emil"]),
    ("accounts", "identity", ["ana", "emil"]),
];

/// Sets the company up.
pub async fn found(services: &Services, receiver: SocketAddr) -> Result<(), String> {
    let maps = PRODUCTS.map(|(product, group, users)| {
        let users: Vec<String> = users.iter().map(ToString::to_string).collect();
        Write::put(crate::inbox::record::table(), map::item(product, group, &users))
    });
    services.store.transact(maps.to_vec()).await.map_err(|error| error.to_string())?;
    for (name, rule) in rules(receiver) {
        put_rule(services, name, &rule).await?;
    }
    for (name, schedule) in clockwork() {
        put_schedule(services, name, &schedule).await?;
    }
    Ok(())
}

fn rules(receiver: SocketAddr) -> Vec<(&'static str, Value)> {
    vec![
        (
            "score-drops",
            json!({
                "pattern": { "eventType": ["score.changed"], "data": { "env": ["prod"], "new": [{ "numeric": ["<", 60] }] } },
                "title": "{{ subject }} fell from {{ data.old }} to {{ data.new }}",
                "targets": [{ "channel": "inbox", "map": { "product": "{{ data.product }}" } }],
                "dedupe_seconds": 5,
            }),
        ),
        (
            "service-requests",
            json!({
                "pattern": { "eventType": ["servicerequest.created", "ServiceRequestStatusChanged"] },
                "title": "Service request: {{ data.newStatus or data.status }}", "text": "{{ data.description }}",
                "targets": [{ "channel": "inbox", "users": ["dora"] }, { "channel": "ntfy", "topic": "requests" }],
            }),
        ),
        (
            "invoices-read",
            json!({
                "pattern": { "eventType": ["invoice.processed", "invoice.failed"] },
                "title": "{{ eventType }}: {{ data.fields.vendor or data.invoiceId }}",
                "targets": [{ "channel": "inbox", "users": ["chen"] }],
            }),
        ),
        (
            "tickets-to-the-desk",
            json!({
                "pattern": { "eventType": [{ "prefix": "ticket." }] },
                "title": "{{ data.caller_id }}: {{ data.issue_description }}", "text": "The ticket is {{ data.status }}.",
                "targets": [{ "channel": "inbox", "users": ["chen", "dora"] }, { "channel": "ntfy", "topic": "service-desk" }],
            }),
        ),
        (
            "deployments",
            json!({
                "pattern": { "eventType": ["deployment.finished"] },
                "title": "{{ subject }} {{ data.version }} is out",
                "targets": [{ "channel": "webhook", "url": format!("http://{receiver}/build-board") }],
            }),
        ),
        (
            "transfers",
            json!({
                "pattern": { "eventType": [{ "prefix": "transfer." }] },
                "title": "{{ eventType }}", "text": "It is {{ data.status }}; it expires at {{ data.expiresAt }}.",
                "targets": [{ "channel": "inbox", "users": ["emil"] }],
            }),
        ),
        (
            "legacy-billing",
            json!({
                "pattern": { "eventType": ["invoice.corrupt"] },
                "title": "Invoice {{ data.invoiceId }} cannot be read",
                "targets": [{ "channel": "webhook", "url": format!("http://{receiver}/legacy-billing") }, { "channel": "ticket", "caller": "billing-robot" }],
            }),
        ),
    ]
}

fn clockwork() -> Vec<(&'static str, Value)> {
    vec![
        (
            "weekday-summary",
            json!({
                "cron": "0 9 * * 1-5", "timezone": "Europe/Berlin", "message_type": "reminder",
                "payload": { "text": "Look at the dead letters before the day begins" },
            }),
        ),
        (
            "heartbeat",
            json!({
                "every": "15s", "message_type": "scheduled_hello", "payload": { "text": "Northwind is alive" },
            }),
        ),
    ]
}

fn fields(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

async fn put_rule(services: &Services, name: &str, rule: &Value) -> Result<(), String> {
    let rule = read::rule(name, &fields(rule), Origin::Api, None).map_err(|errors| format!("{name}: {errors:?}"))?;
    let correlation = services.ids.uuid(services.clock.now()).to_string();
    let author = Author { user: DEMO, correlation_id: &correlation };
    services.rules.put(rule, &services.audit, &author).await.map(drop).map_err(|error| error.to_string())
}

async fn put_schedule(services: &Services, name: &str, schedule: &Value) -> Result<(), String> {
    let now = services.clock.now();
    let definition = services.schedules.read(&fields(schedule), now).map_err(|errors| format!("{name}: {errors:?}"))?;
    let before = services.schedules.get(name).await.map_err(|error| error.to_string())?;
    let written = services.schedules.writing(name, definition, schedules::Origin::Api, DEMO, before.as_ref(), now);
    let (_, write) = written.map_err(|error| error.to_string())?;
    let correlation = services.ids.uuid(now).to_string();
    let action = Action::new("schedule.put", "schedule", name);
    services.audit.record_with(DEMO, &correlation, action, vec![write]).await.map_err(|error| error.to_string())?;
    services.schedules.notice_change();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_of_the_company_is_a_rule() {
        for (name, rule) in rules(SocketAddr::from(([127, 0, 0, 1], 80))) {
            read::rule(name, &fields(&rule), Origin::Api, None).unwrap_or_else(|errors| panic!("{name}: {errors:?}"));
        }
    }
}
