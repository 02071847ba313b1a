//! Accepting connections: bounded in number, patient only for so long, and closed in order at the end.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderValue, Request, StatusCode, Version, header};
use axum::response::Response;
use axum::routing::future::RouteFuture;
use futures_util::future::{Either, Ready, ready};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidings_core::ids::IdSource;
use tidings_core::time::Clock;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tower_service::Service as _;

use super::gate::Peer;
use super::metrics::Metrics;
use super::problem::Problem;
use super::unread::{LINGER, Spoken, Turn, Wire, closing};
use crate::workers::turned_true;

/// Bytes of a request's head; more is answered with 431.
pub const HEAD_BYTES: usize = 64 * 1024;
/// How long answers that are under way may take once the server stops.
const DRAIN: Duration = Duration::from_secs(8);
/// Files that are no connections to us: the store's, and connections to others.
const OTHER_FILES: usize = 256;

pub struct Server {
    pub listener: TcpListener,
    pub router: Router,
    pub metrics: Arc<Metrics>,
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<dyn IdSource>,
    pub connections: usize,
    pub header_timeout: Duration,
}

impl Server {
    /// Serves until `stop` turns true, then lets requests under way finish.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        let permits = Arc::new(Semaphore::new(self.connections));
        let mut open = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = turned_true(&mut stop) => break,
                Some(_) = open.join_next(), if !open.is_empty() => continue,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file descriptors, most likely: those that are open go on, and some will close.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            match Arc::clone(&permits).try_acquire_owned() {
                Ok(permit) => {
                    let connection = self.serve(stream, peer, stop.clone());
                    let metrics = Arc::clone(&self.metrics);
                    open.spawn(async move {
                        metrics.connections.inc();
                        connection.await;
                        metrics.connections.dec();
                        drop(permit);
                    });
                }
                Err(_) => {
                    let correlation_id = self.ids.uuid(self.clock.now()).to_string();
                    drop(tokio::spawn(turn_away(stream, correlation_id)));
                }
            }
        }
        drop(self.listener);
        if tokio::time::timeout(DRAIN, async { while open.join_next().await.is_some() {} }).await.is_err() {
            tracing::warn!(connections = open.len(), "some connections did not finish in time and are cut");
        }
    }

    fn serve(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        mut stop: watch::Receiver<bool>,
    ) -> impl Future<Output = ()> + use<> {
        let router = self.router.clone();
        let (clock, ids) = (Arc::clone(&self.clock), Arc::clone(&self.ids));
        let service = OneHost { router, peer: Peer(peer), clock: Arc::clone(&clock), ids: Arc::clone(&ids) };
        let turn = Arc::new(Turn::default());
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(self.header_timeout)
            .max_buf_size(HEAD_BYTES)
            .keep_alive(true);
        async move {
            let _ = stream.set_nodelay(true);
            let wire = Wire::new(stream, Arc::clone(&turn), move || ids.uuid(clock.now()).to_string());
            let service = service_fn(move |request| {
                turn.begin();
                let (answering, turn) = (service.call(request), Arc::clone(&turn));
                async move { answering.await.map(|answer| answer.map(|body| Spoken::new(body, turn))) }
            });
            let connection = builder.serve_connection(TokioIo::new(wire), service);
            let mut connection = std::pin::pin!(connection);
            let ended = tokio::select! {
                ended = connection.as_mut() => ended,
                () = turned_true(&mut stop) => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(error) = ended {
                tracing::debug!(%error, %peer, "connection ended");
            }
        }
    }
}

/// Gives requests to the router, with the address they come from. Refuses what says no host, or two (RFC 9112, 3.2):
/// whoever stands before us may have understood another one.
struct OneHost {
    router: Router,
    peer: Peer,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
}

impl hyper::service::Service<Request<Incoming>> for OneHost {
    type Response = Response;
    type Error = Infallible;
    type Future = Either<Ready<Result<Response, Infallible>>, RouteFuture<Infallible>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let hosts = request.headers().get_all(header::HOST).iter().count();
        if hosts == 1 || (hosts == 0 && request.version() < Version::HTTP_11) {
            request.extensions_mut().insert(self.peer);
            // A router is always ready.
            return Either::Right(self.router.clone().call(request));
        }
        let correlation_id = self.ids.uuid(self.clock.now()).to_string();
        let problem = Problem::bad_request("a request has exactly one Host header");
        let mut response = problem.render(&correlation_id);
        let headers = response.headers_mut();
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Ok(id) = HeaderValue::from_str(&correlation_id) {
            headers.insert(&super::correlation::HEADER, id);
        }
        Either::Left(ready(Ok(response)))
    }
}

/// The answer to a connection too many.
async fn turn_away(mut stream: TcpStream, correlation_id: String) {
    let why = "too many connections; try again in a moment";
    let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", why).retry_after(1);
    let answer = async {
        stream.write_all(&closing(&problem, &correlation_id, None)).await?;
        stream.shutdown().await?;
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await
    };
    let _ = tokio::time::timeout(LINGER, answer).await;
}

/// Allows as many open files as the system lets us: a connection is one.
pub fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// How many connections can be open on a listener of several, if `wanted` are: the store and what goes out need files, too.
pub fn connections_within_file_limit(wanted: usize, listeners: usize) -> usize {
    let files = getrlimit(Resource::Nofile).current.and_then(|files| usize::try_from(files).ok());
    let Some(files) = files else { return wanted };
    let possible = (files.saturating_sub(OTHER_FILES) / listeners.max(1)).max(1);
    if possible < wanted {
        tracing::warn!(
            possible,
            wanted,
            "the system allows fewer open files than `limits.connections` needs (ulimit -n)"
        );
    }
    wanted.min(possible)
}
