//! Calls that need what another node has in memory go there: one hop, with the caller's own credentials.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use reqwest::Url;

use crate::app::Services;
use crate::bus::{Path, Where, letters};
use crate::http::{CorrelationId, Problem};
use crate::messages::dead;
use crate::outbound::{self, Outbound, Timeouts};

/// Says that a call was forwarded; it is not forwarded again.
pub(super) const FORWARDED: HeaderName = HeaderName::from_static("x-tidings-forwarded");
/// The kind of problem that says that a node does not have it after all.
const ELSEWHERE: &str = "elsewhere";
/// Of an answer; a batch of the largest messages is less.
const MOST_BYTES: usize = 64 * 1024 * 1024;
/// How often it is looked whether the other node is still alive.
const LOOK: Duration = Duration::from_millis(500);
/// Headers that belong to one connection, or to the body as it came.
const OWN: [HeaderName; 8] = [
    header::HOST,
    // Compared with the host, where that matters, before it is forwarded.
    header::ORIGIN,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::CONTENT_ENCODING,
    header::TRANSFER_ENCODING,
    header::TE,
    header::UPGRADE,
];

/// What carries calls to other nodes.
pub struct Forwarder(Outbound);

impl Forwarder {
    /// # Errors
    ///
    /// If TLS cannot be set up.
    pub fn new() -> Result<Self, outbound::Error> {
        let wait = Duration::from_secs(crate::bus::http::WAIT_SECONDS as u64 + 20);
        let timeouts = Timeouts { connect: Duration::from_secs(2), first_byte: wait, total: wait };
        Ok(Self(Outbound::trusted_with(timeouts)?))
    }

    pub(super) const fn client(&self) -> &Outbound {
        &self.0
    }
}

/// A call as another node is to get it.
#[derive(Clone, Copy)]
pub(crate) struct Call<'c> {
    pub method: &'c Method,
    pub path: &'c str,
    pub query: Option<&'c str>,
    pub headers: &'c HeaderMap,
    pub body: &'c Bytes,
    pub correlation: &'c CorrelationId,
}

impl Services {
    /// The answer of the node that has the entity which the path names, or the dead letter's; `None` if that is this one.
    pub(crate) async fn forward(
        &self,
        parts: &mut Parts,
        body: &Bytes,
        correlation: &CorrelationId,
    ) -> Result<Option<Response>, Problem> {
        if self.forwarder.is_none() {
            return Ok(None);
        }
        match self.path_of(parts).await? {
            Some(path) => self.forward_for(&path, parts, body, correlation).await,
            None => Ok(None),
        }
    }

    /// The same for an entity that something else names.
    pub(crate) async fn forward_for(
        &self,
        path: &Path,
        parts: &Parts,
        body: &Bytes,
        correlation: &CorrelationId,
    ) -> Result<Option<Response>, Problem> {
        let (method, uri, headers) = (&parts.method, &parts.uri, &parts.headers);
        let call = Call { method, path: uri.path(), query: uri.query(), headers, body, correlation };
        self.at_owner(path, call).await?.map(respond).transpose()
    }

    /// What the node says that has an entity; `None` if that is this one.
    pub(crate) async fn at_owner(&self, path: &Path, call: Call<'_>) -> Result<Option<outbound::Response>, Problem> {
        let Some(forwarder) = &self.forwarder else { return Ok(None) };
        let moved = || {
            let detail = "another node has this entity, or is about to; try again in a moment";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, ELSEWHERE, detail).retry_after(1)
        };
        let is_forwarded = call.headers.contains_key(FORWARDED);
        for again in [false, true] {
            if again {
                self.look_at_nodes().await?;
            }
            match self.bus.whereabouts(path).await? {
                Where::Here => return Ok(None),
                Where::At(address) if !is_forwarded => match self.ask(forwarder, &address, call).await {
                    Some(answer) if !is_elsewhere(&answer) => return Ok(Some(answer)),
                    _ => {}
                },
                Where::At(_) | Where::Nowhere => {}
            }
        }
        Err(moved())
    }

    /// What the other node says, unless it is not there or dies meanwhile.
    async fn ask(&self, forwarder: &Forwarder, address: &str, call: Call<'_>) -> Option<outbound::Response> {
        let mut url = Url::parse(address).ok()?;
        url.set_path(call.path);
        url.set_query(call.query);
        let mut headers: HeaderMap = call.headers.clone();
        OWN.iter().for_each(|name| drop(headers.remove(name)));
        headers.insert(FORWARDED, HeaderValue::from_static("1"));
        if let Ok(value) = HeaderValue::from_str(&call.correlation.0) {
            headers.insert(crate::http::CORRELATION_HEADER, value);
        }
        let request = outbound::Request { method: call.method.clone(), url, headers, body: call.body.clone() };
        let answer = forwarder.0.send_up_to(request, MOST_BYTES);
        tokio::pin!(answer);
        loop {
            tokio::select! {
                answer = &mut answer => return match answer {
                    Ok(answer) => Some(answer),
                    Err(error) => {
                        tracing::warn!(%error, "a call could not be forwarded");
                        None
                    }
                },
                () = tokio::time::sleep(LOOK) => {
                    // Who sleeps keeps connections open; nobody must wait for that.
                    let there = self.nodes.as_ref().is_some_and(|nodes| nodes.alive().values().any(|at| at == address));
                    if !there {
                        return None;
                    }
                }
            }
        }
    }

    /// The entity that a path names by itself, or by the id of one of its dead letters or of what one was pushed as.
    async fn path_of(&self, parts: &mut Parts) -> Result<Option<Path>, Problem> {
        let Ok(params) = RawPathParams::from_request_parts(parts, &()).await else { return Ok(None) };
        let named = |wanted: &str| params.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.to_owned());
        if let Some(entity) = named("entity") {
            return Ok(Some(Path { entity, subscription: named("subscription"), dead: false }));
        }
        let Some(id) = named("id").or_else(|| named("message_id")) else { return Ok(None) };
        let at = match dead::get(&*self.store, &id).await?.and_then(|letter| letter.bus) {
            Some(at) => Some(at),
            None => letters::of_pushed(&*self.store, &id).await?,
        };
        Ok(at.and_then(|at| Path::parse(&at.path)))
    }
}

fn is_elsewhere(answer: &outbound::Response) -> bool {
    let kind = format!("urn:tidings:problem:{ELSEWHERE}");
    answer.status == 503 && answer.body.windows(kind.len()).any(|part| part == kind.as_bytes())
}

fn respond(answer: outbound::Response) -> Result<Response, Problem> {
    let mut response = Response::new(Body::from(answer.body));
    *response.status_mut() = StatusCode::from_u16(answer.status)
        .map_err(|_| Problem::new(StatusCode::BAD_GATEWAY, "bad-gateway", "the other node answered nonsense"))?;
    for (name, value) in &answer.headers {
        if !OWN.contains(name) {
            response.headers_mut().append(name.clone(), value.clone());
        }
    }
    Ok(response)
}
