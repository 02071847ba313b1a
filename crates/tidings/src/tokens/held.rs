//! Answers without an end, which end with the token of whoever asked for them (SX-20).

use std::convert::Infallible;
use std::pin::Pin;
use std::time::Duration;

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use tokio::sync::watch;

use super::Caller;
use crate::app::Services;

/// How often to look whether the token still holds, where nothing is sent: it may have expired, or another node may have
/// revoked it.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How long what a look found is believed. With the time between two looks: five seconds at the most.
const BELIEVED: Duration = Duration::from_secs(3);

/// Server-Sent Events for a caller, until the token is revoked or expires.
pub fn event_stream<S>(services: &Services, caller: &Caller, frames: S) -> Response
where
    S: Stream<Item = Result<Bytes, Infallible>> + Send + 'static,
{
    let frames = while_held(services, &caller.token.id, frames);
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(frames)).into_response()
}

struct Held<S> {
    frames: Pin<Box<S>>,
    services: Services,
    token: String,
    revoked: watch::Receiver<()>,
}

/// The same frames, until the token of this id is revoked or expires.
pub fn while_held<S>(services: &Services, token: &str, frames: S) -> impl Stream<Item = S::Item> + Send + use<S>
where
    S: Stream + Send,
    S::Item: Send,
{
    let revoked = services.tokens.revoked.subscribe();
    let held = Held { frames: Box::pin(frames), services: services.clone(), token: token.to_owned(), revoked };
    stream::unfold(held, |mut held| async move {
        loop {
            let frame = tokio::select! {
                frame = held.frames.next() => Some(frame?),
                _ = held.revoked.changed() => None,
                () = tokio::time::sleep(LOOK_EVERY) => None,
            };
            // Before each frame, too. Where the token cannot be looked up, nobody knows; who may, comes back.
            let holder = held.services.tokens.holder_within(&held.token, BELIEVED).await;
            if !matches!(holder, Ok(Some(_))) {
                return None;
            }
            if let Some(frame) = frame {
                return Some((frame, held));
            }
        }
    })
}
