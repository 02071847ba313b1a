//! The connections beneath: kept open for each host, to addresses that the guard let pass, with the certificates that the
//! operating system trusts.

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;
use rustls_platform_verifier::BuilderVerifierExt;
use tower_service::Service;

use super::guard::{Guard, Resolver, SystemResolver};

/// How long a connection that nobody uses is kept.
const IDLE: Duration = Duration::from_secs(60);
/// A peer that has vanished is noticed.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_RETRIES: u32 = 3;
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

pub(super) type Pool = Client<InTime, Full<Bytes>>;
type Boxed = Box<dyn std::error::Error + Send + Sync>;
type Soon<T> = Pin<Box<dyn Future<Output = Result<T, Boxed>> + Send>>;

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
    let mut builder = Client::builder(TokioExecutor::new());
    builder.timer(TokioTimer::new()).pool_timer(TokioTimer::new());
    builder.pool_idle_timeout(IDLE).pool_max_idle_per_host(most_idle);
    Ok(builder.build(InTime { inner, limit: connect }))
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
