//! The connections beneath: kept open for each host, to addresses that the guard let pass, with the certificates that the
//! operating system trusts.

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use rustc_hash::FxHashMap;
use rustls::ClientConfig;
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::time::{Instant, timeout_at};
use tower_service::Service;

use super::guard::{Guard, Resolver, SystemResolver};
use super::line::{Line, Unanswered};

/// How long a connection that nobody uses is kept.
const IDLE: Duration = Duration::from_secs(60);
/// How often it is looked for those.
const LOOK: Duration = Duration::from_secs(15);
/// A peer that has vanished is noticed.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_RETRIES: u32 = 3;
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

pub(super) type Stream = <InTime as Service<Uri>>::Response;
type Boxed = Box<dyn std::error::Error + Send + Sync>;
type Soon<T> = Pin<Box<dyn Future<Output = Result<T, Boxed>> + Send>>;

/// Opens connections, and keeps those that are free.
#[derive(Clone)]
pub(super) struct Pool {
    connector: InTime,
    free: Arc<Free>,
}

/// The connections that nobody uses.
struct Free {
    /// Of one origin at the most.
    most: usize,
    lines: Mutex<Lines>,
}

#[derive(Default)]
struct Lines {
    by_origin: FxHashMap<String, Vec<(Box<Line>, Instant)>>,
    /// Whether somebody looks for those that were not used for long.
    is_watched: bool,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failed {
    #[error("cannot connect")]
    Connect(#[source] Boxed),
    #[error("the exchange failed")]
    Exchange(#[from] hyper::Error),
    #[error("there is no answer in time")]
    Late,
}

impl From<Unanswered> for Failed {
    fn from(unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::Broken(error, _) => error.into(),
            Unanswered::Late => Self::Late,
        }
    }
}

/// Connections of which at most so many to one host are kept while nobody uses them. Connecting, from the name to the end
/// of the handshake, has so much time.
///
/// # Errors
///
/// If TLS cannot be set up.
pub(super) fn open(guard: Option<Guard>, connect: Duration, most_idle: usize) -> Result<Pool, rustls::Error> {
    // The first provider stays; there is only this one in the program.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let tls = ClientConfig::builder().with_platform_verifier()?.with_no_client_auth();
    let mut plain = HttpConnector::new_with_resolver(Names(guard));
    plain.enforce_http(false);
    plain.set_nodelay(true);
    plain.set_keepalive(Some(KEEPALIVE));
    plain.set_keepalive_interval(Some(KEEPALIVE));
    plain.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
    #[cfg(target_os = "linux")]
    plain.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    let inner = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(plain);
    let free = Free { most: most_idle, lines: Mutex::default() };
    Ok(Pool { connector: InTime { inner, limit: connect }, free: Arc::new(free) })
}

impl Pool {
    /// Sends a request to an origin, and gives the head of its answer with the connection that the rest comes by, unless
    /// that takes until that moment. `uri` says where to connect.
    pub(super) async fn request(
        &self,
        origin: &str,
        mut request: Request<Full<Bytes>>,
        uri: impl FnOnce() -> Result<Uri, http::uri::InvalidUri>,
        until: Instant,
    ) -> Result<(Response<Incoming>, Box<Line>), Failed> {
        while let Some(mut line) = self.free.take(origin) {
            // The other side may have closed it meanwhile.
            if !line.is_free().await {
                continue;
            }
            match line.exchange(request, until).await {
                Ok(answer) => return Ok((answer, line)),
                // It was closed in this moment, before anything was sent.
                Err(Unanswered::Broken(_, Some(unsent))) => request = *unsent,
                Err(unanswered) => return Err(unanswered.into()),
            }
        }
        // Most need no new connection, and no room for it.
        let connecting = Box::pin(timeout_at(until, self.connect(uri)));
        let mut line = connecting.await.map_err(|_| Failed::Late)??;
        Ok((line.exchange(request, until).await?, line))
    }

    async fn connect(&self, uri: impl FnOnce() -> Result<Uri, http::uri::InvalidUri>) -> Result<Box<Line>, Failed> {
        let uri = uri().map_err(|error| Failed::Connect(error.into()))?;
        let mut connector = self.connector.clone();
        std::future::poll_fn(|cx| connector.poll_ready(cx)).await.map_err(Failed::Connect)?;
        let stream = connector.call(uri).await.map_err(Failed::Connect)?;
        Ok(Box::new(Line::new(stream).await?))
    }

    /// Keeps a connection whose last answer was read to its end, if it can be used again.
    pub(super) async fn give_back(&self, origin: &str, mut line: Box<Line>) {
        if line.is_free().await {
            self.free.put(origin, line);
        }
    }
}

impl Free {
    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one that was used last: the others grow old.
    fn take(&self, origin: &str) -> Option<Box<Line>> {
        self.lines().by_origin.get_mut(origin)?.pop().map(|(line, _)| line)
    }

    fn put(self: &Arc<Self>, origin: &str, line: Box<Line>) {
        let mut lines = self.lines();
        match lines.by_origin.get_mut(origin) {
            Some(known) if known.len() >= self.most => return,
            Some(known) => known.push((line, Instant::now())),
            None => drop(lines.by_origin.insert(origin.to_owned(), vec![(line, Instant::now())])),
        }
        if !std::mem::replace(&mut lines.is_watched, true) {
            drop(tokio::spawn(watch(Arc::downgrade(self))));
        }
    }
}

/// Closes what was not used for long, until nothing is left.
async fn watch(free: Weak<Free>) {
    loop {
        tokio::time::sleep(LOOK).await;
        let Some(free) = free.upgrade() else { return };
        let mut lines = free.lines();
        lines.by_origin.retain(|_, known| {
            known.retain(|(_, since)| since.elapsed() < IDLE);
            !known.is_empty()
        });
        if lines.by_origin.is_empty() {
            lines.is_watched = false;
            return;
        }
    }
}

/// Marks, in the chain of causes that comes back through the client, that connecting took too long.
#[derive(Debug, thiserror::Error)]
#[error("it took too long")]
pub(super) struct TooSlow;

/// Connects within a limit.
#[derive(Clone)]
pub(super) struct InTime {
    inner: HttpsConnector<HttpConnector<Names>>,
    limit: Duration,
}

impl Service<Uri> for InTime {
    type Response = <HttpsConnector<HttpConnector<Names>> as Service<Uri>>::Response;
    type Error = Boxed;
    type Future = Soon<Self::Response>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Boxed>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = tokio::time::timeout(self.limit, self.inner.call(uri));
        Box::pin(async move { connecting.await.map_err(|_| Boxed::from(TooSlow))? })
    }
}

/// Where names become addresses: by the guard, which judges them, or as the operating system says.
#[derive(Clone)]
pub(super) struct Names(Option<Guard>);

impl Service<Name> for Names {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = Boxed;
    type Future = Soon<Self::Response>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Boxed>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let guard = self.0.clone();
        Box::pin(async move {
            let addresses: Vec<IpAddr> = match guard {
                Some(guard) => guard.addresses(name.as_str()).await?,
                None => SystemResolver.lookup(name.as_str()).await?,
            };
            // The client puts the URL's port in.
            Ok(addresses.into_iter().map(|ip| SocketAddr::new(ip, 0)).collect::<Vec<_>>().into_iter())
        })
    }
}
