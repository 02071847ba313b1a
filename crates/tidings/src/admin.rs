//! `/admin`: backup, reload. And `/limit`, which only `bench` switches on.

use std::io::{self, Write};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use tokio::sync::mpsc;

use crate::app::Services;
use crate::audit::Action;
use crate::config::Difference;
use crate::http::{CorrelationId, Json, Problem, Route};
use crate::tokens::{Caller, Scope};

/// Pieces of a backup that may wait for a slow reader.
const PIECES: usize = 16;
const PIECE_BYTES: usize = 256 * 1024;

#[must_use]
pub fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/admin/backup", "A consistent copy of everything, while the server goes on", backup)
            .answer_as::<String>(200, "The backup, for `tidings restore`", "application/octet-stream"),
        Route::new(Method::POST, "/admin/reload", "Read the configuration again and take over what can change", reload)
            .answer::<ReloadAnswer>(200, "What took effect, and what waits for the next start"),
    ]
}

/// The keys of the configuration that differ from before.
#[derive(Serialize, JsonSchema)]
struct ReloadAnswer {
    changed: Vec<String>,
    needs_restart: Vec<String>,
}

async fn reload(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
) -> Result<impl IntoResponse, Problem> {
    let Difference { changed, needs_restart } = services.reload(&caller.name(), &correlation.0).await?;
    Ok(Json(StatusCode::OK, ReloadAnswer { changed, needs_restart }))
}

/// The physical limit that `bench` measures the server against.
#[must_use]
pub fn limit_route() -> Route {
    Route::new(Method::POST, "/limit", "Append the body to a file", limit).scopes(&[Scope::Ingest])
}

async fn backup(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
) -> Result<Response, Problem> {
    let embedded = services.embedded.clone().ok_or_else(|| {
        Problem::new(StatusCode::NOT_IMPLEMENTED, "not-here", "on DynamoDB, use its own point-in-time recovery")
    })?;
    let action = Action::new("backup.create", "backup", "store").details(json!({ "sequence": embedded.sequence() }));
    services.audit.record_with(&caller.name(), &correlation.0, action, Vec::new()).await?;
    let (sender, receiver) = mpsc::channel(PIECES);
    tokio::task::spawn_blocking(move || {
        let mut pieces = Pieces { sender, piece: Vec::with_capacity(PIECE_BYTES) };
        if let Err(error) = Arc::clone(&embedded).backup(&mut pieces) {
            // The reader sees a stream that breaks off, and the file lacks its end: restore refuses it.
            tracing::warn!(%error, "backup broke off");
            let _ = pieces.sender.blocking_send(Err(io::Error::other("the backup broke off")));
        }
    });
    let pieces = futures_util::stream::unfold(receiver, |mut receiver| async {
        let piece = receiver.recv().await?;
        Some((piece, receiver))
    });
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], Body::from_stream(pieces)).into_response())
}

/// Hands what is written to it on, in pieces, to whoever streams it out.
struct Pieces {
    sender: mpsc::Sender<io::Result<Bytes>>,
    piece: Vec<u8>,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let piece = Bytes::from(std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES)));
        self.sender.blocking_send(Ok(piece)).map_err(|_| io::Error::other("nobody reads the backup"))
    }
}

async fn limit(State(services): State<Services>, body: Bytes) -> Result<StatusCode, Problem> {
    let appender = services.limit.as_ref().ok_or_else(|| Problem::not_found("not switched on"))?;
    let appended = appender.append(body).await;
    appended.map_err(|error| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", error.to_string()))?;
    Ok(StatusCode::ACCEPTED)
}
