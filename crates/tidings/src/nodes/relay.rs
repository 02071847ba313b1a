//! A stream of what happens on every node: beside its own, a node passes on what the others send at the same address.
//!
//! Events are announced where they are accepted, and nowhere is there a list of them in the order of their arrival to be
//! followed. So a node that is asked for a stream asks the others for theirs, with the caller's own credentials, and mixes
//! what they send into its own. It costs a connection to each node for as long as somebody listens, and no request to the
//! store.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, Stream, StreamExt};
use reqwest::Url;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::Nodes;
use super::forward::FORWARDED;
use crate::app::Services;
use crate::outbound::{Outbound, Request};
use crate::workers::turned_true;

/// For another node to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often it is looked whether nodes have come or gone.
const LOOK: Duration = Duration::from_millis(500);
/// Frames of other nodes that wait for a slow reader; then their senders wait, and say what was missed.
const WAITING: usize = 64;
/// No frame is longer: an event has 400 KB at the most, and what came of it is less.
const MOST_BYTES: usize = 8 * 1024 * 1024;
/// What shows who calls and what they want.
const PASSED_ON: [HeaderName; 3] = [header::AUTHORIZATION, header::COOKIE, header::ACCEPT];

type Frame = Result<Bytes, Infallible>;

impl Services {
    /// What a stream sends: its own frames, and those of the same stream on the other nodes. It ends with its own.
    /// Nobody is answered before the others listen, too: what happens afterwards is heard, wherever it happens.
    pub(crate) async fn with_other_nodes<S>(
        &self,
        own: S,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> impl Stream<Item = Frame> + use<S>
    where
        S: Stream<Item = Frame> + Send + 'static,
    {
        let theirs = match (&self.nodes, &self.forwarder) {
            (Some(nodes), Some(forwarder)) if !headers.contains_key(FORWARDED) => {
                let mut passed: HeaderMap = HeaderMap::new();
                for name in &PASSED_ON {
                    passed.extend(headers.get_all(name).iter().map(|value| (name.clone(), value.clone())));
                }
                passed.insert(FORWARDED, HeaderValue::from_static("1"));
                let (sender, receiver) = mpsc::channel(WAITING);
                let (ready, mut all_ready) = mpsc::channel(1);
                let relay = Relay {
                    nodes: Arc::clone(nodes),
                    client: forwarder.client().clone(),
                    path: uri.path().to_owned(),
                    query: uri.query().map(ToOwned::to_owned),
                    headers: passed,
                    sender,
                };
                let mut stop = self.workers.stopping();
                tokio::spawn(async move {
                    tokio::select! {
                        () = relay.run(ready) => {}
                        () = turned_true(&mut stop) => {}
                    }
                });
                let _ = tokio::time::timeout(PATIENCE, all_ready.recv()).await;
                Some(receiver)
            }
            _ => None,
        };
        let own = own.map(Some).chain(stream::iter([None]));
        let theirs = stream::unfold(theirs, |receiver| async move {
            let mut receiver = receiver?;
            let frame = receiver.recv().await?;
            Some((Some(Ok(frame)), Some(receiver)))
        });
        // The end of its own is the end of all.
        stream::select(own, theirs)
            .take_while(|frame| std::future::ready(frame.is_some()))
            .filter_map(std::future::ready)
    }
}

struct Relay {
    nodes: Arc<Nodes>,
    client: Outbound,
    path: String,
    query: Option<String>,
    headers: HeaderMap,
    sender: mpsc::Sender<Bytes>,
}

/// Listening to one node; it ends when it is dropped.
struct Listening(JoinHandle<()>);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Relay {
    /// Listens to whoever is there, until nobody wants to know.
    async fn run(self, ready: mpsc::Sender<()>) {
        let mut listening: BTreeMap<String, Listening> = BTreeMap::new();
        let mut ready = Some(ready);
        loop {
            let alive = self.nodes.alive();
            listening.retain(|id, listening| alive.contains_key(id) && !listening.0.is_finished());
            for (id, address) in alive {
                if id != self.nodes.me && !listening.contains_key(&id) {
                    let task = self.listen(&address, ready.clone());
                    listening.extend(task.map(|task| (id, Listening(tokio::spawn(task)))));
                }
            }
            ready = None;
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = self.sender.closed() => return,
            }
        }
    }

    /// `ready` is let go of when the other node listens.
    fn listen(
        &self,
        address: &str,
        ready: Option<mpsc::Sender<()>>,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        let mut url = Url::parse(address).ok()?;
        url.set_path(&self.path);
        url.set_query(self.query.as_deref());
        let request = Request { method: Method::GET, url, headers: self.headers.clone(), body: Bytes::new() };
        let (client, sender) = (self.client.clone(), self.sender.clone());
        Some(async move {
            let Ok(Ok(mut answer)) = tokio::time::timeout(PATIENCE, client.open(request)).await else { return };
            drop(ready);
            if answer.status != 200 {
                tracing::debug!(status = answer.status, "another node does not let this caller listen");
                return;
            }
            let mut text = BytesMut::new();
            while let Ok(Some(piece)) = answer.chunk().await {
                text.extend_from_slice(&piece);
                while let Some(frame) = take_frame(&mut text) {
                    // Its signs of life are not ours.
                    if !frame.starts_with(b":") && sender.send(frame).await.is_err() {
                        return;
                    }
                }
                if text.len() > MOST_BYTES {
                    return;
                }
            }
        })
    }
}

/// The first whole frame, with its end.
fn take_frame(text: &mut BytesMut) -> Option<Bytes> {
    let end = text.windows(2).position(|pair| pair == b"\n\n")?;
    Some(text.split_to(end + 2).freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_taken_whole() {
        let mut text = BytesMut::from(&b"event: a\ndata: 1\n\n: alive\n\nevent: b\n"[..]);
        assert_eq!(take_frame(&mut text).unwrap(), "event: a\ndata: 1\n\n");
        assert_eq!(take_frame(&mut text).unwrap(), ": alive\n\n");
        assert_eq!(take_frame(&mut text), None);
        text.extend_from_slice(b"data: 2\n\n");
        assert_eq!(take_frame(&mut text).unwrap(), "event: b\ndata: 2\n\n");
    }
}
