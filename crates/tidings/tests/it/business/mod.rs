//! The business parts from the outside: invoices that Tesseract reads, service requests, transfers and the audit log.

mod actions;
mod auditing;
mod catalogue;
mod doors;
mod fetched;
mod invoices;
mod reading;
mod service_requests;
mod transfers;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tidings::config::{Config, Listen};

use crate::support::{Answer, Client, TestServer};

/// Renders the invoices of `render.py` into a directory.
pub fn render(directory: &Path) {
    let python = std::env::var("TIDINGS_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/business/render.py");
    let ended = Command::new(python).arg(script).arg(directory).output().unwrap();
    assert!(
        ended.status.success(),
        "this test needs the Python packages pillow and reportlab: {}",
        String::from_utf8_lossy(&ended.stderr)
    );
}

/// For how long nothing may happen that a test waits for.
const PATIENCE: Duration = Duration::from_secs(120);

/// Asks, and again whenever a handler was done with a message or a delivery was recorded, until the answer is as wanted.
pub async fn until(server: &TestServer, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let (mut handled, mut recorded) = (server.services.bus.handled(), server.services.messages.recorded.subscribe());
    let client = server.client();
    loop {
        // Whatever happens from here on is seen.
        handled.mark_unchanged();
        recorded.mark_unchanged();
        let answer = client.get(path).await;
        if answer.status == 200 && wanted(&answer.json()) {
            return answer.json();
        }
        let news = async {
            tokio::select! {
                changed = handled.changed() => changed,
                changed = recorded.changed() => changed,
            }
        };
        let heard = tokio::time::timeout(PATIENCE, news).await;
        assert!(heard.is_ok_and(|heard| heard.is_ok()), "{path} did not become as wanted: {}", answer.text());
    }
}

/// A server whose workers work: it delivers, and has a push server.
pub async fn lively(change: impl FnOnce(&mut Config)) -> TestServer {
    TestServer::start_with(|config| {
        config.push.listen = Listen::on(SocketAddr::from(([127, 0, 0, 1], 0)));
        config.delivery.enabled = true;
        change(config);
    })
    .await
}

/// Posts with a correlation id.
pub async fn post(client: &Client, path: &str, correlation: &str, body: &Value) -> Answer {
    let headers = [("content-type", "application/json"), ("x-correlation-id", correlation)];
    client.post_with(path, &headers, body.to_string()).await
}
