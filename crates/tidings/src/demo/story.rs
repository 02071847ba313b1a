//! The company's day, event by event: always the same one, so that what is seen can be told.

use std::time::Duration;

use serde_json::{Value, json};

use crate::app::Services;
use crate::messages;

/// One thing that happens, and by which way it comes in.
#[derive(Debug)]
pub enum Scene {
    /// `POST /events`
    Event(Value),
    /// `POST /ingest/azure-devops`
    Audit(Value),
    /// `POST /tickets`
    Ticket { caller_id: String, issue: String },
    /// A comment on the latest ticket, and the next state for it.
    Comment(String),
    /// `POST /invoices`, with a picture
    Invoice { product: String },
    /// A label for a parcel, into the printer's queue.
    Label { parcel: usize },
    /// `POST /service-requests`
    Request { person: String, text: String },
    /// `PATCH /service-requests/{id}`, of the latest.
    RequestMoves(&'static str),
    /// `POST /transfers`
    Transfer { product: String, from: String, to: String },
    /// `POST /transfers/{id}/accept` or `reject`, of the latest.
    TransferAnswered { accept: bool },
}

/// The `n`th scene of the day.
#[must_use]
pub fn scene(n: usize, now: &str) -> Scene {
    let pick = |list: &[&str], step: usize| list.get((n / step) % list.len()).copied().unwrap_or_default().to_owned();
    let product = pick(&["checkout", "billing", "search", "accounts"], 3);
    let person = pick(&["ana", "bruno", "chen", "dora", "emil"], 2);
    let other = pick(&["chen", "dora", "emil", "ana", "bruno"], 2);
    // Every so often something that the old billing system cannot take, however often it is tried.
    if n % 37 == 9 {
        return Scene::Event(json!({ "eventType": "invoice.corrupt", "source": "billing", "subject": product,
            "data": { "invoiceId": format!("INV-{:05}", 4100 + n), "reason": "unreadable scan" } }));
    }
    match n % 8 {
        0 => Scene::Audit(audit_entry(n, &person, now)),
        1 => Scene::Event(json!({ "eventType": "score.changed", "source": "quality", "subject": product,
            "data": { "product": product, "env": if n.is_multiple_of(3) { "dev" } else { "prod" },
                "old": 55 + n % 40, "new": 35 + (n * 7) % 60 } })),
        2 => match (n / 8) % 3 {
            0 => {
                let text =
                    pick(&["A second screen, please", "Access to the billing archive", "My chair is broken"], 24);
                Scene::Request { person, text }
            }
            1 => Scene::RequestMoves("in_progress"),
            _ => Scene::RequestMoves("resolved"),
        },
        3 => {
            let issue = pick(&["The page is slow today", "I cannot sign in", "The total on my invoice is wrong"], 5);
            Scene::Ticket { caller_id: format!("desk-{person}"), issue: format!("{issue} ({product})") }
        }
        4 => Scene::Event(json!({ "eventType": "deployment.finished", "source": "pipeline", "subject": product,
            "data": { "product": product, "version": format!("1.{}.{}", n / 50, n % 50), "by": person } })),
        // To read one takes a second of a processor.
        5 if (n / 8).is_multiple_of(3) => Scene::Invoice { product },
        5 => Scene::Label { parcel: n / 8 },
        // Two of three are answered; the third expires.
        6 => match (n / 8) % 5 {
            1 => Scene::TransferAnswered { accept: true },
            3 => Scene::TransferAnswered { accept: false },
            _ => Scene::Transfer { product, from: person, to: other },
        },
        _ => Scene::Comment(format!("{other} asks: any news?")),
    }
}

/// An entry of Azure DevOps' audit log. Every third is by the account that is expected to make changes.
fn audit_entry(n: usize, person: &str, now: &str) -> Value {
    let process = if n.is_multiple_of(2) { "Northwind Agile" } else { "Northwind Scrum" };
    let (action, category, details, data) = match (n / 8) % 3 {
        0 => (
            "Process.Field.Add",
            "create",
            format!("Field \"RiskScore\" was added to \"{process}\""),
            json!({ "ProcessName": process, "FieldReferenceName": "Custom.RiskScore" }),
        ),
        1 => (
            "Process.State.Create",
            "create",
            format!("State \"In review\" was created in \"{process}\""),
            json!({ "ProcessName": process, "WorkItemTypeName": "Bug", "StateName": "In review" }),
        ),
        _ => (
            "Process.Process.Edit",
            "modify",
            format!("Process \"{process}\" was edited"),
            json!({ "ProcessName": process }),
        ),
    };
    let (name, account) = match (n / 8) % 3 {
        2 => ("Pipeline".to_owned(), super::company::PIPELINE.to_owned()),
        _ => (person.to_owned(), format!("{person}@northwind.example")),
    };
    json!({
        "id": format!("demo-{n}-{now}"), "correlationId": format!("devops-{n}-{now}"), "actorUserId": format!("user-{name}"),
        "actorDisplayName": name, "actorUPN": account, "timestamp": now, "actionId": action, "category": category,
        "area": "Process", "details": details, "data": data, "ipAddress": "198.51.100.7",
    })
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
        cancel_key: None,
    };
    let origin = messages::Origin { created_by: "user:demo", correlation_id, trace_parent: None };
    let message = services.messages.compose(request, origin, services.ids.uuid(now), now);
    let message = message.map_err(|errors| format!("{errors:?}"))?;
    services.messages.create_one(message, |_| ()).await.map_err(|error| error.to_string())
}
