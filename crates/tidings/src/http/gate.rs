//! The gate in front of every handler: who calls, may they, with which parameters and body, and has this been
//! answered before. It also puts the correlation id on every answer, renders problems, and counts.

use std::borrow::Cow;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use tower_service::Service;

use super::body;
use super::collector;
use super::content::Content;
use super::correlation::{self, CorrelationId};
use super::extract::Passed;
use super::finish::see_through;
use super::idempotency;
use super::metrics::RouteMetrics;
use super::params::Params;
use super::problem::Problem;
use super::route::{Access, Answer, Answering, BodyRule, Route};
use super::server::HEAD_BYTES;
use super::throttle::{FailedLogins, Rates};
use crate::app::Services;
use crate::tokens::{Caller, Scope};

/// Characters of an address that a refusal repeats.
const SHOWN_CHARS: usize = 200;

/// What all gates share.
pub struct Gatekeeper {
    services: Services,
    failed_logins: FailedLogins,
    rates: Rates,
}

/// The gate of one route.
pub struct Gate {
    keeper: Arc<Gatekeeper>,
    path: &'static str,
    access: Access,
    params: Vec<&'static str>,
    key_in_url: bool,
    at_owner: bool,
    /// Whether a call ends when its caller goes: one that changes nothing, or waits.
    ends_with_caller: bool,
    as_collector: bool,
    said_in_headers: fn(&str) -> bool,
    body_rule: BodyRule,
    handler: Answer,
    metrics: RouteMetrics,
}

/// Why a request reaches no route.
#[derive(Debug, Clone, Copy)]
pub enum Refusal {
    NotFound,
    Method,
}

/// The address of the other side.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub SocketAddr);

impl Gatekeeper {
    #[must_use]
    pub fn new(services: Services) -> Self {
        let limits = &services.config.limits;
        let failed_logins =
            FailedLogins::new(limits.failed_auth_attempts, Duration::from_secs(limits.failed_auth_window_seconds));
        let rates = Rates::new(limits.requests_per_second);
        Self { services, failed_logins, rates }
    }

    /// The answer to a request that no route takes.
    pub fn refuse(&self, request: &Request, refusal: Refusal) -> Response {
        let correlation = CorrelationId::of(request.headers(), &*self.services.ids, self.services.clock.now());
        let path = shown(request.uri().path());
        let problem = match refusal {
            Refusal::NotFound => {
                Problem::not_found(format!("there is nothing at {path}; GET /openapi.json lists what there is"))
            }
            Refusal::Method => {
                let detail = format!("{} is not possible on {path}; GET /openapi.json lists what is", request.method());
                Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", detail)
            }
        };
        finish(problem.into_response(), &correlation)
    }

    /// Who calls: by the token that the request has, in the header or elsewhere.
    async fn recognise(
        &self,
        headers: &HeaderMap,
        bearer: Option<&str>,
        peer: Option<IpAddr>,
        now: Duration,
    ) -> Result<Caller, Problem> {
        let unauthorized = |detail: &str| Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", detail);
        if bearer.is_none() && !headers.contains_key(header::AUTHORIZATION) {
            return Err(unauthorized("this call needs a token: send the header `Authorization: Bearer TOKEN`"));
        }
        let caller = match bearer {
            Some(bearer) => self.services.tokens.recognise(bearer).await?,
            None => None,
        };
        match caller {
            Some(caller) => self.within_rate(caller, now),
            // A known token always passes: others behind the same address must not be locked out with a guesser.
            None => match self.guessed(peer, now) {
                Some(seconds) => {
                    let detail = "too many unknown tokens came from this address; wait a moment";
                    Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "too-many-requests", detail).retry_after(seconds))
                }
                None => Err(unauthorized("the token is unknown, revoked or expired")),
            },
        }
    }

    fn within_rate(&self, caller: Caller, now: Duration) -> Result<Caller, Problem> {
        if self.rates.allow(&caller.token.id, now) {
            return Ok(caller);
        }
        let detail = "this token's requests per second are used up (limits.requests_per_second)";
        Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "too-many-requests", detail).retry_after(1))
    }

    /// Counts an unknown token; gives the seconds to wait if there were too many.
    fn guessed(&self, peer: Option<IpAddr>, now: Duration) -> Option<u64> {
        let peer = peer?;
        let blocked = self.failed_logins.blocked(peer, now);
        if blocked.is_none() {
            self.failed_logins.note(peer, now);
        }
        blocked
    }
}

impl Gate {
    #[must_use]
    pub fn new(keeper: Arc<Gatekeeper>, route: &Route) -> Self {
        let metrics = keeper.services.metrics.route(route.method.as_str(), route.path);
        Self {
            keeper,
            path: route.path,
            access: route.access.clone(),
            params: route.params.iter().map(|param| param.0).collect(),
            key_in_url: route.key_in_url,
            at_owner: route.at_owner,
            ends_with_caller: route.waits || matches!(route.method, Method::GET | Method::HEAD),
            as_collector: route.as_collector,
            said_in_headers: route.said_in_headers,
            body_rule: route.body_rule,
            handler: Arc::clone(&route.handler),
            metrics,
        }
    }

    async fn check(&self, request: Request, correlation: &CorrelationId, now: Duration) -> Result<Response, Problem> {
        let services = &self.keeper.services;
        let (mut parts, body) = request.into_parts();
        check_head(&parts)?;
        let peer = parts.extensions.get::<Peer>().map(|peer| peer.0.ip());
        let in_header = authorization(&parts.headers, "bearer").map(Cow::Borrowed);
        let bearer = in_header.or_else(|| if self.key_in_url { key_of(&parts.headers, &parts.uri) } else { None });
        let caller = match &self.access {
            Access::Public => None,
            Access::Scopes(scopes) => {
                let caller = self.keeper.recognise(&parts.headers, bearer.as_deref(), peer, now).await?;
                Some(permitted(caller, scopes)?)
            }
        };
        correlation::check(&parts.headers)?;
        let params = Params::gather(parts.uri.query(), &self.params);
        let refusal = params.refusal();
        let passed = |caller| Passed { correlation: correlation.clone(), params, caller, path: self.path };
        if let Some(refusal) = refusal {
            parts.extensions.insert(passed(caller));
            // Few are refused: the others need no room for it.
            return Box::pin(self.refused(refusal, parts)).await;
        }
        // Before anything is read: a key that is none is refused, whatever it comes with.
        let key = match &caller {
            Some(caller) if parts.method == Method::POST && parts.headers.contains_key(&idempotency::HEADER) => {
                let path = (self.path, parts.uri.path());
                let bearer = bearer.as_deref().unwrap_or_default();
                let key = services.idempotency.key((caller, bearer), path, &parts.headers)?;
                Some(key.saying(idempotency::head(&parts, self.key_in_url, self.said_in_headers)))
            }
            _ => None,
        };
        parts.extensions.insert(passed(caller));
        let limits = &services.limits;
        let content = match self.body_rule {
            BodyRule::Upload => self.coming(body::unpacked(&parts.headers, body)?),
            BodyRule::Parts => self.coming(body::check_unpacked(&parts.headers).map(|()| body)?),
            BodyRule::Document => {
                let has_body = !matches!(parts.method, Method::GET | Method::HEAD);
                let bytes = match has_body {
                    true => body::read(&parts.headers, body, limits.body_bytes(), limits.timeout()).await?,
                    false => Bytes::new(),
                };
                if self.at_owner
                    && let Some(answer) = services.forward(&mut parts, &bytes, correlation).await?
                {
                    return Ok(answer);
                }
                Content::Whole(bytes)
            }
        };
        if let Some(key) = key.filter(|_| self.body_rule != BodyRule::Parts) {
            let (services, handler) = (services.clone(), Arc::clone(&self.handler));
            // Few have a key: the others need no room for it.
            let answer = Box::pin(async move {
                let answer = |seed, body| {
                    parts.extensions.insert(seed);
                    handler(Request::from_parts(parts, body), services.clone())
                };
                services.idempotency.once(key, content, answer).await
            });
            return if self.ends_with_caller { answer.await } else { see_through(answer).await };
        }
        let body = match content {
            Content::Whole(bytes) => Body::from(bytes),
            Content::Coming { body, .. } => body,
        };
        let answer = self.ask(parts, body);
        Ok(if self.ends_with_caller { answer.await } else { see_through(answer).await })
    }

    fn ask(&self, parts: Parts, body: Body) -> Answering {
        (self.handler)(Request::from_parts(parts, body), self.keeper.services.clone())
    }

    /// What is read by whoever does what it asks for.
    fn coming(&self, body: Body) -> Content {
        let services = &self.keeper.services;
        Content::Coming { body, most: services.config.limits.upload_bytes, patience: services.limits.timeout() }
    }

    /// The answer to a call whose parameters are wrong. Of one that only reads, the handler may know of more that is wrong
    /// with them; nothing else comes of asking it, and what it says counts only if it has all of it.
    async fn refused(&self, refusal: Problem, parts: Parts) -> Result<Response, Problem> {
        if !matches!(parts.method, Method::GET | Method::HEAD) || self.at_owner {
            return Err(refusal);
        }
        let answer = self.ask(parts, Body::empty()).await;
        let all = answer.extensions().get::<Problem>().is_some_and(|problem| {
            problem.status == refusal.status && refusal.errors.iter().all(|error| problem.errors.contains(error))
        });
        if all { Ok(answer) } else { Err(refusal) }
    }
}

/// A gate as the router has it, in front of its handler.
#[derive(Clone)]
pub struct Gated(pub Arc<Gate>);

impl Service<Request> for Gated {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let gate = Arc::clone(&self.0);
        Box::pin(async move { Ok(pass(&gate, request).await) })
    }
}

/// Lets a request through to its handler, or answers it.
async fn pass(gate: &Gate, request: Request) -> Response {
    let services = &gate.keeper.services;
    let started = services.clock.monotonic();
    let correlation = CorrelationId::of(request.headers(), &*services.ids, services.clock.now());
    let method = request.method().clone();
    let response = gate.check(request, &correlation, started).await.unwrap_or_else(IntoResponse::into_response);
    let response = match response.extensions().get::<Problem>() {
        Some(problem) if gate.as_collector => collector::refusal(problem),
        _ => response,
    };
    let response = finish(response, &correlation);
    let took = services.clock.monotonic().saturating_sub(started);
    gate.metrics.observe(response.status(), took);
    tracing::debug!(
        %method, path = gate.path, status = response.status().as_u16(), took_us = took.as_micros(),
        correlation_id = correlation.0, "answered"
    );
    response
}

/// An address as an answer repeats it: so much of it that one knows it again.
fn shown(path: &str) -> Cow<'_, str> {
    match path.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => Cow::Owned(format!("{}…", path.get(..end).unwrap_or_default())),
        None => Cow::Borrowed(path),
    }
}

/// Refuses a head that is too long. The server's own buffer ends the worst of them, and only those.
pub fn check_head(parts: &Parts) -> Result<(), Problem> {
    let headers = parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum::<usize>();
    let target = parts.uri.path_and_query().map_or(0, |target| target.as_str().len());
    if headers + target <= HEAD_BYTES {
        return Ok(());
    }
    let detail = format!("the address and the headers have more than {HEAD_BYTES} bytes");
    Err(Problem::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "head-too-large", detail))
}

/// The token that a request has in its header.
pub fn bearer_of(headers: &HeaderMap) -> Option<String> {
    authorization(headers, "bearer").map(ToOwned::to_owned)
}

/// The token of an `Authorization` header of that scheme.
fn authorization<'a>(headers: &'a HeaderMap, wanted: &str) -> Option<&'a str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case(wanted).then(|| token.trim())
}

/// The token of a caller that cannot send it as others do: Event Grid has a header of its own, and URLs; Splunk's
/// senders have a scheme of their own.
fn key_of<'a>(headers: &'a HeaderMap, uri: &'a Uri) -> Option<Cow<'a, str>> {
    let header = headers.get("aeg-sas-key").and_then(|key| key.to_str().ok());
    let query = uri.query().unwrap_or_default().as_bytes();
    let in_url = || form_urlencoded::parse(query).find(|(name, _)| name == "key").map(|(_, key)| key);
    authorization(headers, "splunk").or(header).map(Cow::Borrowed).or_else(in_url)
}

fn permitted(caller: Caller, demands: &[Scope]) -> Result<Caller, Problem> {
    if caller.may(demands) {
        return Ok(caller);
    }
    let wanted: Vec<_> = demands.iter().map(ToString::to_string).chain(["admin".to_owned()]).collect();
    let detail = format!("this token's scopes do not allow it; it needs {}", wanted.join(" or "));
    Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail))
}

/// Renders a problem, and puts the correlation id and the safe defaults on the answer.
fn finish(response: Response, correlation: &CorrelationId) -> Response {
    let mut response = match response.extensions().get::<Problem>() {
        Some(problem) => {
            if problem.status.is_server_error() {
                tracing::warn!(
                    status = problem.status.as_u16(),
                    detail = problem.detail,
                    correlation_id = correlation.0,
                    "request failed"
                );
            }
            problem.render(&correlation.0)
        }
        // What the framework itself refuses (a path that is not UTF-8, a missing extension) has a plain text body.
        None if response.status().is_client_error() && !is_ours(&response) => {
            let detail = match response.status() {
                StatusCode::BAD_REQUEST => "the address cannot be read: what is percent-encoded in it must be UTF-8",
                status => status.canonical_reason().unwrap_or("the request cannot be understood"),
            };
            Problem::new(response.status(), "bad-request", detail).render(&correlation.0)
        }
        None => response,
    };
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&correlation.0) {
        headers.insert(&correlation::HEADER, value);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

fn is_ours(response: &Response) -> bool {
    let content_type = response.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    content_type.is_some_and(|value| value.starts_with(b"application/"))
}
