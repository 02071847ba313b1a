//! `serve --demo`: a small company at work, so that there is something to see.

use std::time::Duration;

use serde_json::{Value, json};
use tidings_core::envelope::{self, Defaults};

use crate::app::Services;
use crate::ingest::Draft;

const EVERY: Duration = Duration::from_millis(700);

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
            services.ingest.accept(vec![draft]).await.map(drop).map_err(|error| error.to_string())
        }
    });
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
