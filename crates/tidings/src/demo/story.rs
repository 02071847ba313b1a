//! The company's day, event by event: always the same one, so that what is seen can be told.

use std::time::Duration;

use serde_json::{Value, json};

use crate::app::Services;
use crate::messages;

/// The `n`th event of the day.
#[must_use]
pub fn event(n: usize) -> Value {
    let pick = |list: &[&str], step: usize| list.get((n / step) % list.len()).copied().unwrap_or_default().to_owned();
    let product = pick(&["checkout", "billing", "search", "accounts"], 3);
    let person = pick(&["ana", "bruno", "chen", "dora", "emil"], 2);
    let other = pick(&["chen", "dora", "emil", "ana", "bruno"], 2);
    // Every so often something that the old billing system cannot take, however often it is tried.
    if n % 37 == 9 {
        return json!({ "eventType": "invoice.corrupt", "source": "billing", "subject": product,
            "data": { "invoiceId": format!("INV-{:05}", 4100 + n), "reason": "unreadable scan" } });
    }
    match n % 8 {
        0 => json!({ "eventType": "process.changed", "source": "azure-devops", "subject": product,
            "data": { "actor": person, "action": "Process.Field.Add", "field": "Custom.RiskScore" } }),
        1 => json!({ "eventType": "score.changed", "source": "quality", "subject": product,
            "data": { "product": product, "env": if n.is_multiple_of(3) { "dev" } else { "prod" },
                "old": 55 + n % 40, "new": 35 + (n * 7) % 60 } }),
        2 => json!({ "eventType": "servicerequest.status.changed", "source": "service-desk",
            "data": { "user": person, "requestId": format!("SR-{}", 700 + n), "oldStatus": "open",
                "newStatus": "in_progress" } }),
        3 => json!({ "eventType": "ticket.created", "source": "service-desk",
            "data": { "caller": person, "issue": pick(&["the page is slow today", "cannot sign in", "wrong total on an invoice"], 5) } }),
        4 => json!({ "eventType": "deployment.finished", "source": "pipeline", "subject": product,
            "data": { "product": product, "version": format!("1.{}.{}", n / 50, n % 50), "by": person } }),
        5 => json!({ "eventType": "invoice.uploaded", "source": "billing",
            "data": { "invoiceId": format!("INV-{:05}", 4100 + n), "user": person, "bytes": 48_000 + n * 311 } }),
        6 => json!({ "eventType": "transfer.expiring", "source": "transfers",
            "data": { "productId": product, "fromUser": person, "toUser": other, "hours": 1 + n % 71 } }),
        _ => json!({ "eventType": "ticket.commented", "source": "service-desk",
            "data": { "caller": other, "issue": "any news?", "by": person } }),
    }
}

/// After every fifth event, a message that somebody asks for: most of them at once, some a little later.
pub async fn message(services: &Services, n: usize, correlation_id: &str) -> Result<(), String> {
    if n % 5 != 4 {
        return Ok(());
    }
    let now = services.clock.now();
    let (message_type, text) = match n % 15 {
        4 => ("deployment_notification", format!("Version 1.{}.{} is deployed", n / 50, n % 50)),
        9 => ("reminder", "The weekly review begins soon".to_owned()),
        _ => ("manual_notification", "Somebody asks you to look at the dashboard".to_owned()),
    };
    let priority = if n.is_multiple_of(2) { "default" } else { "high" };
    let payload = json!({ "text": text, "priority": priority, "tags": ["demo"] });
    let later = (message_type == "reminder").then(|| now.saturating_add(Duration::from_secs(10)).unwrap_or(now));
    let request = messages::Request {
        message_type: message_type.to_owned(),
        payload: payload.as_object().cloned().unwrap_or_default(),
        stage: None,
        deliver_at: later,
    };
    let origin = messages::Origin { created_by: "user:demo", correlation_id };
    let message = services.messages.compose(request, origin, services.ids.uuid(now), now);
    let message = message.map_err(|errors| format!("{errors:?}"))?;
    services.messages.create(vec![message]).await.map(drop).map_err(|error| error.to_string())
}
