//! `/healthz`, `/readyz`, `/metrics`, `/openapi.json`.

use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use tidings_store::Health;

use super::extract::Json;
use super::metrics;
use super::problem::Problem;
use super::route::Route;
use crate::app::Services;
use crate::tokens::Scope;

#[must_use]
pub fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/healthz", "Whether the process is alive", alive)
            .public()
            .answer::<Status>(200, "It is"),
        Route::new(Method::GET, "/readyz", "Whether the store takes writes and the workers run", ready)
            .public()
            .answer::<Status>(200, "Ready")
            .answer_empty(503, "Not ready; the detail says why"),
        Route::new(Method::GET, "/metrics", "Metrics in Prometheus's text form", show_metrics)
            .scopes(&[Scope::Read])
            .answer_as::<String>(200, "The metrics", "application/openmetrics-text")
            .answer_as::<String>(200, "The metrics", "text/plain"),
        Route::new(Method::GET, "/openapi.json", "This description", description)
            .scopes(&[Scope::Read, Scope::Operate, Scope::Ingest, Scope::Consume])
            .answer::<serde_json::Value>(200, "OpenAPI 3.1"),
    ]
}

#[derive(Serialize, JsonSchema)]
struct Status {
    status: &'static str,
    version: &'static str,
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

async fn alive() -> impl IntoResponse {
    Json(StatusCode::OK, Status { status: "alive", version: VERSION })
}

async fn ready(State(services): State<Services>) -> Result<impl IntoResponse, Problem> {
    let not_ready = |why: String| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "not-ready", why).retry_after(5);
    if let Some(worker) = services.workers.stopped() {
        return Err(not_ready(format!("the worker `{worker}` has stopped; the log says why")));
    }
    match services.store.health() {
        Health::Ready => Ok(Json(StatusCode::OK, Status { status: "ready", version: VERSION })),
        Health::ReadOnly(why) => Err(not_ready(format!("the store takes no writes: {why}"))),
    }
}

async fn show_metrics(State(services): State<Services>, headers: HeaderMap) -> Response {
    services.metrics.store_ready.set(i64::from(services.store.health() == Health::Ready));
    if let Some(embedded) = &services.embedded {
        services.metrics.store_sequence.set(i64::try_from(embedded.sequence()).unwrap_or(i64::MAX));
        let disk = embedded.disk_bytes().ok().and_then(|bytes| i64::try_from(bytes).ok());
        services.metrics.store_disk_bytes.set(disk.unwrap_or(0));
    }
    let text = services.metrics.render(&services.bus.metrics());
    // Who asks for the older format only, and does not take the newer one as well, gets it.
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (content_type, text) = if accepted.contains("text/plain") && !accepted.contains("openmetrics") {
        ("text/plain; version=0.0.4; charset=utf-8", metrics::plain(&text))
    } else {
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", text)
    };
    ([(header::CONTENT_TYPE, content_type)], text).into_response()
}

async fn description() -> impl IntoResponse {
    Json(StatusCode::OK, super::openapi())
}
