//! The other side of the company's webhooks: one that is out of order now and then, and one that understands nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::workers::turned_true;

pub async fn run(listener: TcpListener, mut stop: watch::Receiver<bool>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let moody = move || {
        let call = calls.fetch_add(1, Ordering::Relaxed);
        async move {
            if call.is_multiple_of(4) {
                (StatusCode::SERVICE_UNAVAILABLE, "the build board is restarting")
            } else {
                (StatusCode::OK, "shown")
            }
        }
    };
    let legacy = || async { (StatusCode::UNPROCESSABLE_ENTITY, "line 1: no such invoice format") };
    let router = Router::new().route("/build-board", post(moody)).route("/legacy-billing", post(legacy));
    let serving = axum::serve(listener, router).with_graceful_shutdown(async move { turned_true(&mut stop).await });
    if let Err(error) = serving.await {
        tracing::warn!(%error, "the demo's receiver has ended");
    }
}
