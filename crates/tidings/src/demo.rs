//! `serve --demo`: a small company at work, so that there is something to see.

use std::time::Duration;

use serde_json::{Value, json};
use tidings_core::envelope::{self, Defaults};

use crate::app::Services;
use crate::config::Config;
use crate::config::schedules::Schedule;
use crate::ingest::Draft;
use crate::messages;

const EVERY: Duration = Duration::from_millis(700);

/// What the demo has in its configuration beside what is there: the seed's daily hello.
pub fn configure(config: &mut Config) {
    let name = "daily-hello";
    if config.schedules.iter().any(|schedule| schedule.name == name) {
        return;
    }
    let payload = json!({ "text": "hello world", "priority": "default", "tags": ["scheduled", "daily"] });
    config.schedules.push(Schedule {
        name: name.to_owned(),
        cron: Some("0 9 * * *".to_owned()),
        message_type: "scheduled_hello".to_owned(),
        payload: serde_json::from_value(payload).unwrap_or_default(),
        ..Schedule::default()
    });
}

/// Starts playing; it stops with the server.
pub fn play(services: &Services) {
    let player = services.clone();
    let count = std::sync::atomic::AtomicUsize::new(0);
    services.workers.spawn("demo", EVERY, move || {
        let services = player.clone();
        let n = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        async move {
            let now = services.clock.now();
            let correlation = services.ids.uuid(now).to_string();
            let draft = {
                let make_id = || services.ids.uuid(now).to_string();
                let defaults = Defaults { now, correlation_id: &correlation, event_id: &make_id };
                let event = envelope::read(&sample(n).to_string(), &defaults);
                event.map_or_else(|errors| Draft::Bad { errors, too_large: false }, Draft::Good)
            };
            services.ingest.accept(vec![draft]).await.map_err(|error| error.to_string())?;
            notify(&services, n, &correlation).await
        }
    });
}

/// After every fifth event, a message: most of them at once, some a little later.
async fn notify(services: &Services, n: usize, correlation_id: &str) -> Result<(), String> {
    if n % 5 != 4 {
        return Ok(());
    }
    let now = services.clock.now();
    let (message_type, text) = match n % 15 {
        4 => ("deployment_notification", format!("Version 1.{}.{} is deployed", n / 50, n % 50)),
        9 => ("reminder", "The weekly review begins soon".to_owned()),
        _ => ("manual_notification", "Somebody asks you to look at the dashboard".to_owned()),
    };
    let payload =
        json!({ "text": text, "priority": if n.is_multiple_of(2) { "default" } else { "high" }, "tags": ["demo"] });
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

/// The `n`th event of the company's day.
fn sample(n: usize) -> Value {
    let pick = |list: &[&str], step: usize| list.get((n / step) % list.len()).copied().unwrap_or_default().to_owned();
    let product = pick(&["checkout", "billing", "search", "accounts"], 3);
    let person = pick(&["ana", "bruno", "chen", "dora", "emil"], 2);
    match n % 5 {
        0 => json!({ "eventType": "process.changed", "source": "azure-devops", "subject": product,
            "data": { "actor": person, "action": "Process.Field.Add", "field": "Custom.RiskScore" } }),
        1 => json!({ "eventType": "score.changed", "source": "quality", "subject": product,
            "data": { "product": product, "env": "dev", "old": n % 40, "new": (n * 7) % 40 } }),
        2 => json!({ "eventType": "servicerequest.status.changed", "source": "service-desk",
            "data": { "user": person, "oldStatus": "open", "newStatus": "in_progress" } }),
        3 => json!({ "eventType": "ticket.created", "source": "service-desk",
            "data": { "caller": person, "issue": format!("{product} is slow today") } }),
        _ => json!({ "eventType": "deployment.finished", "source": "pipeline", "subject": product,
            "data": { "product": product, "version": format!("1.{}.{}", n / 50, n % 50), "by": person } }),
    }
}
