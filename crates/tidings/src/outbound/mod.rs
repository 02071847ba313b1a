//! The one HTTP client that leaves this process.
//!
//! [`Outbound::guarded`] is for addresses that came through the API: it refuses private, local and reserved ones when
//! it connects, after names were resolved. [`Outbound::trusted`] is for servers that the configuration file names.
//! Neither follows redirects or uses a proxy, and no error shows more of a URL than scheme, host and port.

pub mod address;
mod guard;
mod line;
mod place;
mod pool;
pub mod trace;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, HOST, HeaderValue, USER_AGENT};
use http::{HeaderMap, Method, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use reqwest::Url;
use tokio::time::Instant;

use self::guard::{Forbidden, Guard};
pub use self::guard::{Resolver, SystemResolver};
use self::line::Line;
pub use self::place::Place;
use self::pool::{Failed, Pool, TooSlow};
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
/// What it does that takes too long in all.
const ANSWERING: &str = "answer";
const WHO_WE_ARE: HeaderValue = HeaderValue::from_static(concat!("tidings/", env!("CARGO_PKG_VERSION")));

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

impl Timeouts {
    /// The same for an exchange that as a whole has so much time, of which all may pass before the answer begins.
    #[must_use]
    pub const fn within(self, limit: Duration) -> Self {
        Self { connect: self.connect, first_byte: limit, total: limit }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: Duration::from_secs(5), first_byte: Duration::from_secs(15), total: Duration::from_secs(30) }
    }
}

#[derive(Clone)]
pub struct Outbound {
    pool: Pool,
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

/// A request without its address.
#[derive(Clone, Debug)]
pub struct Call {
    pub method: Method,
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

/// An answer of which the head has come.
pub struct Begun {
    pub status: u16,
    pub headers: HeaderMap,
    rest: Incoming,
    /// What the rest comes by.
    line: Box<Line>,
}

impl Begun {
    /// The next piece of the body; `None` at its end.
    ///
    /// # Errors
    ///
    /// If the exchange breaks off.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, hyper::Error> {
        while let Some(frame) = self.line.frame(&mut self.rest).await {
            // What is no data are fields that follow the body.
            if let Ok(data) = frame?.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }
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
        let url = read(url)?;
        self.judge(&url)?;
        Ok(url)
    }

    /// What is to be known of an address to send something there, judged as by [`Outbound::check`].
    ///
    /// # Errors
    ///
    /// If it is none that this client may use.
    pub fn place(&self, url: Url) -> Result<Place, Error> {
        self.judge(&url)?;
        Place::new(url)
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

    /// The same within a limit that takes the place of this client's own; connecting keeps to its own.
    ///
    /// # Errors
    ///
    /// If there is no answer.
    pub async fn send_within(&self, limit: Duration, request: Request) -> Result<Response, Error> {
        self.exchange(request, MAX_ANSWER_BYTES, self.timeouts.within(limit)).await
    }

    /// The same, and reads up to `most` bytes of the answer.
    ///
    /// # Errors
    ///
    /// If there is no answer.
    pub async fn send_up_to(&self, request: Request, most: usize) -> Result<Response, Error> {
        self.exchange(request, most, self.timeouts).await
    }

    /// One exchange with a place that was judged before, within this client's own limits or another one.
    ///
    /// # Errors
    ///
    /// If there is no answer.
    pub async fn call(&self, place: &Place, call: Call, limit: Option<Duration>) -> Result<Response, Error> {
        let timeouts = limit.map_or(self.timeouts, |limit| self.timeouts.within(limit));
        self.exchange_with(place, call, MAX_ANSWER_BYTES, timeouts).await
    }

    async fn exchange(&self, request: Request, most: usize, timeouts: Timeouts) -> Result<Response, Error> {
        let Request { method, url, headers, body } = request;
        let place = self.place(url)?;
        self.exchange_with(&place, Call { method, headers, body }, most, timeouts).await
    }

    async fn exchange_with(
        &self,
        place: &Place,
        call: Call,
        most: usize,
        timeouts: Timeouts,
    ) -> Result<Response, Error> {
        let (begun, origin) = (Instant::now(), place.origin());
        let mut answer = self.begin(place, call, timeouts, begun).await?;
        let total = timeouts.total;
        let body = {
            let mut reading = pin!(self.body(&mut answer, origin, most));
            // Most of it came with the head, and is read without a timer.
            match poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx))).await {
                Poll::Ready(body) => Ok(body),
                Poll::Pending => tokio::time::timeout_at(begun + total, reading).await,
            }
        };
        let late = |_| Error::Timeout { origin: origin.to_owned(), what: ANSWERING, limit: total };
        let body = body.map_err(late)??;
        let Begun { status, headers, line, .. } = answer;
        self.pool.give_back(origin, line).await;
        Ok(Response { status, headers, body })
    }

    /// An exchange whose answer has no end: its head has come, the rest comes when it comes.
    ///
    /// # Errors
    ///
    /// If there is no answer.
    pub async fn open(&self, request: Request) -> Result<Begun, Error> {
        let Request { method, url, headers, body } = request;
        let place = self.place(url)?;
        self.begin(&place, Call { method, headers, body }, self.timeouts, Instant::now()).await
    }

    async fn begin(&self, place: &Place, call: Call, timeouts: Timeouts, begun: Instant) -> Result<Begun, Error> {
        let origin = place.origin();
        let mut sent = http::Request::new(Full::new(call.body));
        *sent.method_mut() = call.method;
        // The rest of the address says where to connect.
        *sent.uri_mut() = place.target().clone();
        *sent.headers_mut() = call.headers;
        sent.headers_mut().entry(HOST).or_insert_with(|| place.host().clone());
        sent.headers_mut().entry(USER_AGENT).or_insert(WHO_WE_ARE);
        sent.headers_mut().entry(ACCEPT).or_insert(HeaderValue::from_static("*/*"));
        let (first_byte, total) = (timeouts.connect + timeouts.first_byte, timeouts.total);
        let (what, limit) = if first_byte <= total { ("begin to answer", first_byte) } else { (ANSWERING, total) };
        let uri = || Uri::try_from(place.url().as_str());
        match self.pool.request(origin, sent, uri, begun + limit).await {
            Ok((answer, line)) => {
                let (head, rest) = answer.into_parts();
                Ok(Begun { status: head.status.as_u16(), headers: head.headers, rest, line })
            }
            Err(Failed::Late) => Err(Error::Timeout { origin: origin.to_owned(), what, limit }),
            Err(error) => Err(self.classify(&error, matches!(error, Failed::Connect(_)), origin)),
        }
    }

    async fn body(&self, answer: &mut Begun, origin: &str, most: usize) -> Result<Bytes, Error> {
        let mut body = BytesMut::new();
        while let Some(chunk) = answer.chunk().await.map_err(|error| self.classify(&error, false, origin))? {
            let room = most - body.len();
            body.extend_from_slice(chunk.get(..room).unwrap_or(&chunk));
            if body.len() >= most {
                break;
            }
        }
        Ok(body.freeze())
    }

    fn judge(&self, url: &Url) -> Result<(), Error> {
        check_form(url)?;
        match &self.guard {
            Some(guard) => guard.check_literal(url).map_err(|Forbidden| Error::Forbidden { origin: origin(url) }),
            None => Ok(()),
        }
    }

    fn classify(&self, error: &(dyn std::error::Error + 'static), connecting: bool, origin: &str) -> Error {
        let origin = origin.to_owned();
        // The outer layers say what was tried; the innermost cause is what happened.
        let mut innermost = error;
        let mut timed_out = false;
        while let Some(source) = innermost.source() {
            innermost = source;
            let io = innermost.downcast_ref::<std::io::Error>();
            timed_out |= innermost.is::<TooSlow>() || io.is_some_and(|io| io.kind() == std::io::ErrorKind::TimedOut);
        }
        if innermost.is::<Forbidden>() {
            return Error::Forbidden { origin };
        }
        if connecting && timed_out {
            return Error::Timeout { origin, what: CONNECTING, limit: self.timeouts.connect };
        }
        let why = innermost.to_string();
        if connecting { Error::Connect { origin, why } } else { Error::Broken { origin, why } }
    }

    fn build(guard: Option<Guard>, timeouts: Timeouts) -> Result<Self, Error> {
        let most_idle = if guard.is_some() { IDLE_CONNECTIONS_PER_HOST } else { IDLE_CONNECTIONS_TRUSTED };
        let pool = pool::open(guard.clone(), timeouts.connect, most_idle);
        Ok(Self { pool: pool.map_err(|error| Error::Setup(error.to_string()))?, guard, timeouts })
    }
}

impl std::fmt::Debug for Begun {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Begun").field("status", &self.status).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Outbound {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if self.guard.is_some() { "Outbound::guarded" } else { "Outbound::trusted" };
        formatter.debug_struct(kind).field("timeouts", &self.timeouts).finish_non_exhaustive()
    }
}

/// A URL of a form that a client of ours may use, wherever it leads.
///
/// # Errors
///
/// [`Error::Url`] if it is too long, no `http` or `https` URL, or holds a user or password.
pub fn read(url: &str) -> Result<Url, Error> {
    if url.len() > MAX_URL_BYTES {
        return Err(Error::Url("is too long"));
    }
    let url = Url::parse(url).map_err(|_| Error::Url("cannot be read"))?;
    check_form(&url)?;
    Ok(url)
}

fn check_form(url: &Url) -> Result<(), Error> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(Error::Url("must begin with http:// or https://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Error::Url("must not hold a user or password"));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err(Error::Url("names no host"));
    }
    Ok(())
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
