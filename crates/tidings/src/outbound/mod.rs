//! The one HTTP client that leaves this process.
//!
//! [`Outbound::guarded`] is for addresses that came through the API: it refuses private, local and reserved ones when
//! it connects, after names were resolved. [`Outbound::trusted`] is for servers that the configuration file names.
//! Neither follows redirects or uses a proxy, and no error shows more of a URL than scheme, host and port.

pub mod address;
mod guard;
pub mod trace;

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method};
use reqwest::Url;

use self::guard::{Forbidden, Guard};
pub use self::guard::{Resolver, SystemResolver};
use crate::config;

/// Of an answer, this much is read; nobody has a use for more.
pub const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// Of a URL.
pub const MAX_URL_BYTES: usize = 2048;
const IDLE_CONNECTIONS_PER_HOST: usize = 4;
/// To a server that the configuration names, most of what leaves goes.
const IDLE_CONNECTIONS_TRUSTED: usize = 128;
/// What a side does that takes too long to be connected to.
const CONNECTING: &str = "take the connection";
const USER_AGENT: &str = concat!("tidings/", env!("CARGO_PKG_VERSION"));

/// How long to wait for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Resolving the name, the connection, and TLS.
    pub connect: Duration,
    /// From the connection to the answer's status line.
    pub first_byte: Duration,
    /// Everything, so that a trickling answer ends too.
    pub total: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: Duration::from_secs(5), first_byte: Duration::from_secs(15), total: Duration::from_secs(30) }
    }
}

#[derive(Clone)]
pub struct Outbound {
    client: reqwest::Client,
    guard: Option<Guard>,
    timeouts: Timeouts,
}

#[derive(Clone, Debug)]
pub struct Request {
    pub method: Method,
    pub url: Url,
    pub headers: HeaderMap,
    pub body: Bytes,
}

#[derive(Clone, Debug)]
pub struct Response {
    pub status: u16,
    pub headers: HeaderMap,
    /// At most [`MAX_ANSWER_BYTES`] of it, unless more was asked for.
    pub body: Bytes,
}

/// Why there is no answer. The texts name no more of the URL than its origin: the rest may hold secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("the URL {0}")]
    Url(&'static str),
    /// The same words whatever is, or is not, at the address.
    #[error(
        "{origin} may not be reached: its address is private, local or reserved, and `outbound.allow` does not list it"
    )]
    Forbidden { origin: String },
    #[error("cannot connect to {origin}: {why}")]
    Connect { origin: String, why: String },
    #[error("{origin} took longer than {} s to {what}", .limit.as_secs_f64())]
    Timeout { origin: String, what: &'static str, limit: Duration },
    #[error("the exchange with {origin} broke off: {why}")]
    Broken { origin: String, why: String },
    #[error("the HTTP client cannot be set up: {0}")]
    Setup(String),
}

impl Error {
    /// Whether trying again is pointless.
    #[must_use]
    pub const fn is_permanent(&self) -> bool {
        matches!(self, Self::Url(_) | Self::Forbidden { .. })
    }

    /// Whether the other side may have got the request, or a part of it.
    #[must_use]
    pub fn was_sent(&self) -> bool {
        match self {
            Self::Url(_) | Self::Forbidden { .. } | Self::Connect { .. } | Self::Setup(_) => false,
            Self::Timeout { what, .. } => *what != CONNECTING,
            Self::Broken { .. } => true,
        }
    }
}

impl Outbound {
    /// For addresses named through the API.
    ///
    /// # Errors
    ///
    /// If TLS cannot be set up.
    pub fn guarded(config: &config::outbound::Outbound) -> Result<Self, Error> {
        Self::guarded_with(config, Arc::new(SystemResolver), Timeouts::default())
    }

    /// The same with another resolver and other timeouts.
    ///
    /// # Errors
    ///
    /// If TLS cannot be set up.
    pub fn guarded_with(
        config: &config::outbound::Outbound,
        resolver: Arc<dyn Resolver>,
        timeouts: Timeouts,
    ) -> Result<Self, Error> {
        Self::build(Some(Guard::new(config.allowed(), resolver)), timeouts)
    }

    /// For servers named in the configuration file.
    ///
    /// # Errors
    ///
    /// If TLS cannot be set up.
    pub fn trusted() -> Result<Self, Error> {
        Self::trusted_with(Timeouts::default())
    }

    /// The same with other timeouts.
    ///
    /// # Errors
    ///
    /// If TLS cannot be set up.
    pub fn trusted_with(timeouts: Timeouts) -> Result<Self, Error> {
        Self::build(None, timeouts)
    }

    /// Reads a URL and judges what can be judged without a lookup: for the moment when somebody names it.
    ///
    /// # Errors
    ///
    /// If it is no `http` or `https` URL, holds a user or password, or names a forbidden address.
    pub fn check(&self, url: &str) -> Result<Url, Error> {
        if url.len() > MAX_URL_BYTES {
            return Err(Error::Url("is too long"));
        }
        let url = Url::parse(url).map_err(|_| Error::Url("cannot be read"))?;
        self.judge(&url)?;
        Ok(url)
    }

    /// The same, and looks its name up: so that whoever names it learns at once. Connecting judges again.
    ///
    /// # Errors
    ///
    /// As [`Outbound::check`], and if the name's addresses are all forbidden. A name that does not resolve passes.
    pub async fn check_resolved(&self, url: &str) -> Result<Url, Error> {
        let url = self.check(url)?;
        if let (Some(guard), Some(name)) = (&self.guard, url.domain())
            && let Err(error) = guard.addresses(name).await
            && error.is::<Forbidden>()
        {
            return Err(Error::Forbidden { origin: origin(&url) });
        }
        Ok(url)
    }

    /// One exchange. Every status is an answer, redirects too: what to make of it is the caller's business.
    ///
    /// # Errors
    ///
    /// If there is no answer.
    pub async fn send(&self, request: Request) -> Result<Response, Error> {
        self.send_up_to(request, MAX_ANSWER_BYTES).await
    }

    /// The same, and reads up to `most` bytes of the answer.
    ///
    /// # Errors
    ///
    /// If there is no answer.
    pub async fn send_up_to(&self, request: Request, most: usize) -> Result<Response, Error> {
        self.judge(&request.url)?;
        let origin = origin(&request.url);
        let exchange = self.exchange(request, &origin, most);
        let total = self.timeouts.total;
        match tokio::time::timeout(total, exchange).await {
            Ok(result) => result,
            Err(_) => Err(Error::Timeout { origin, what: "answer", limit: total }),
        }
    }

    /// An exchange whose answer has no end: its head has come, the rest comes when it comes.
    ///
    /// # Errors
    ///
    /// If there is no answer.
    pub async fn open(&self, request: Request) -> Result<reqwest::Response, Error> {
        self.judge(&request.url)?;
        let origin = origin(&request.url);
        self.begin(request, &origin).await
    }

    async fn begin(&self, request: Request, origin: &str) -> Result<reqwest::Response, Error> {
        let sent = self.client.request(request.method, request.url).headers(request.headers).body(request.body).send();
        let first_byte = self.timeouts.connect + self.timeouts.first_byte;
        match tokio::time::timeout(first_byte, sent).await {
            Ok(answer) => answer.map_err(|error| self.classify(error, origin)),
            Err(_) => Err(Error::Timeout { origin: origin.to_owned(), what: "begin to answer", limit: first_byte }),
        }
    }

    async fn exchange(&self, request: Request, origin: &str, most: usize) -> Result<Response, Error> {
        let mut answer = self.begin(request, origin).await?;
        let mut body = BytesMut::new();
        while let Some(chunk) = answer.chunk().await.map_err(|error| self.classify(error, origin))? {
            let room = most - body.len();
            body.extend_from_slice(chunk.get(..room).unwrap_or(&chunk));
            if body.len() >= most {
                break;
            }
        }
        Ok(Response {
            status: answer.status().as_u16(),
            headers: std::mem::take(answer.headers_mut()),
            body: body.freeze(),
        })
    }

    fn judge(&self, url: &Url) -> Result<(), Error> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Error::Url("must begin with http:// or https://"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Error::Url("must not hold a user or password"));
        }
        if url.host_str().is_none_or(str::is_empty) {
            return Err(Error::Url("names no host"));
        }
        match &self.guard {
            Some(guard) => guard.check_literal(url).map_err(|Forbidden| Error::Forbidden { origin: origin(url) }),
            None => Ok(()),
        }
    }

    fn classify(&self, error: reqwest::Error, origin: &str) -> Error {
        let origin = origin.to_owned();
        let (connecting, timed_out) = (error.is_connect(), error.is_timeout());
        // The text of the outer layers shows the URL; the innermost cause is what happened.
        let mut innermost: &(dyn std::error::Error + 'static) = &error;
        while let Some(source) = innermost.source() {
            innermost = source;
        }
        if innermost.is::<Forbidden>() {
            return Error::Forbidden { origin };
        }
        if connecting && timed_out {
            return Error::Timeout { origin, what: CONNECTING, limit: self.timeouts.connect };
        }
        let why = if innermost.is::<reqwest::Error>() { "it failed".to_owned() } else { innermost.to_string() };
        if connecting { Error::Connect { origin, why } } else { Error::Broken { origin, why } }
    }

    fn build(guard: Option<Guard>, timeouts: Timeouts) -> Result<Self, Error> {
        // The first provider stays; there is only this one in the program.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .user_agent(USER_AGENT)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .referer(false)
            .connect_timeout(timeouts.connect)
            .pool_max_idle_per_host(if guard.is_some() { IDLE_CONNECTIONS_PER_HOST } else { IDLE_CONNECTIONS_TRUSTED })
            .pool_idle_timeout(Duration::from_secs(60));
        if let Some(guard) = &guard {
            builder = builder.dns_resolver(Arc::new(guard.clone()));
        }
        let client = builder.build().map_err(|error| Error::Setup(error.without_url().to_string()))?;
        Ok(Self { client, guard, timeouts })
    }
}

impl std::fmt::Debug for Outbound {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if self.guard.is_some() { "Outbound::guarded" } else { "Outbound::trusted" };
        formatter.debug_struct(kind).field("timeouts", &self.timeouts).finish_non_exhaustive()
    }
}

/// `https://host:port`: all that may be shown of a URL, since its path can be as secret as its query.
#[must_use]
pub fn origin(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{}://{host}:{port}", url.scheme()),
        None => format!("{}://{host}", url.scheme()),
    }
}

#[cfg(test)]
mod tests;
