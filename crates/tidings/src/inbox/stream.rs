//! `GET /notifications/stream`: new entries as Server-Sent Events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use bytes::Bytes;
use tidings_store::{Item, Store};
use tokio::sync::watch;

use super::http::named_user;
use super::live::{Listener, Position};
use super::view;
use crate::app::Services;
use crate::http::{Params, Problem};
use crate::tokens::{Caller, event_stream};
use crate::workers::turned_true;

/// How often a silent stream shows that it is alive, and looks for what another node has stored.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const LAST_EVENT_ID: &str = "last-event-id";

/// A stream that is being sent.
struct Sending {
    store: Arc<dyn Store>,
    user: String,
    listener: Listener,
    position: Position,
    /// Read and not yet sent.
    ready: VecDeque<Item>,
    stop: watch::Receiver<bool>,
    /// The first frame: it says where the stream begins, so that a client that loses it at once can come back there.
    begun: bool,
}

pub async fn stream(
    State(services): State<Services>,
    caller: Caller,
    mut params: Params,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let user = named_user(&caller, &mut params)?;
    params.finish()?;
    // Listening begins before reading: what is stored in between is announced.
    let listener = services.inbox.live.listen(&user);
    let position =
        match headers.get(LAST_EVENT_ID).map(|value| value.to_str().unwrap_or("?")).filter(|id| !id.is_empty()) {
            Some(id) => {
                let position = Position::parse(id).ok_or_else(|| {
                    Problem::invalid_field("Last-Event-ID", "is no id of this stream; connect without it")
                })?;
                position.resolved(&*services.store, &user).await?
            }
            None => Position::at_end(&*services.store, &user).await?,
        };
    let sending = Sending {
        store: Arc::clone(&services.store),
        user,
        listener,
        position,
        ready: VecDeque::new(),
        stop: services.workers.stopping(),
        begun: false,
    };
    let frames = futures_util::stream::unfold(sending, |mut sending| async move {
        let frame = sending.frame().await?;
        Some((Ok::<_, Infallible>(Bytes::from(frame)), sending))
    });
    Ok(event_stream(&services, &caller, frames))
}

impl Sending {
    /// The next frame; `None` ends the stream.
    async fn frame(&mut self) -> Option<Vec<u8>> {
        if !std::mem::replace(&mut self.begun, true) {
            return Some(format!("id: {}\n: listening\n\n", self.position.id()).into_bytes());
        }
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(self.entry(&item));
            }
            // Taken before the store is read, so that an announcement in between is not missed.
            let news = self.listener.news().notified();
            tokio::pin!(news);
            news.as_mut().enable();
            match self.position.next(&*self.store, &self.user).await {
                Ok(items) => self.ready = items.into(),
                Err(error) => {
                    tracing::warn!(%error, "a stream of notifications ends");
                    return None;
                }
            }
            if !self.ready.is_empty() {
                continue;
            }
            let waited = tokio::select! {
                waited = tokio::time::timeout(KEEP_ALIVE, news) => waited,
                () = turned_true(&mut self.stop) => return None,
            };
            if waited.is_err() {
                return Some(b": alive\n\n".to_vec());
            }
        }
    }

    fn entry(&mut self, item: &Item) -> Vec<u8> {
        if let Some(time) = view::time_of(item) {
            self.position.sent(time);
        }
        let mut frame = format!("id: {}\nevent: notification\ndata: ", self.position.id()).into_bytes();
        view::write(&mut frame, item);
        frame.extend_from_slice(b"\n\n");
        frame
    }
}
