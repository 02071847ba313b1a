//! Calls that need what another node has in memory go there: one hop, with the caller's own credentials.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use reqwest::Url;

use crate::app::Services;
use crate::bus::{Path, Where};
use crate::http::{CorrelationId, Problem};
use crate::outbound::{self, Outbound, Timeouts};

/// Says that a call was forwarded; it is not forwarded again.
const FORWARDED: HeaderName = HeaderName::from_static("x-tidings-forwarded");
/// The kind of problem that says that a node does not have it after all.
const ELSEWHERE: &str = "elsewhere";
/// Of an answer; a batch of the largest messages is less.
const MOST_BYTES: usize = 64 * 1024 * 1024;
/// How often it is looked whether the other node is still alive.
const LOOK: Duration = Duration::from_millis(500);
/// Headers that belong to one connection, or to the body as it came.
const OWN: [HeaderName; 7] = [
    header::HOST,
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
}

impl Services {
    /// The answer of the node that has the entity which the path names; `None` if that is this one.
    pub(crate) async fn forward(
        &self,
        parts: &mut Parts,
        body: &Bytes,
        correlation: &CorrelationId,
    ) -> Result<Option<Response>, Problem> {
        let Some(forwarder) = &self.forwarder else { return Ok(None) };
        let Some(path) = path_of(parts).await else { return Ok(None) };
        let moved = || {
            let detail = "another node has this entity, or is about to; try again in a moment";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, ELSEWHERE, detail).retry_after(1)
        };
        let is_forwarded = parts.headers.contains_key(FORWARDED);
        for again in [false, true] {
            if again {
                self.look_at_nodes().await?;
            }
            match self.bus.whereabouts(&path).await? {
                Where::Here => return Ok(None),
                Where::At(address) if !is_forwarded => {
                    let answer = self.ask(forwarder, &address, parts, body, correlation).await;
                    match answer {
                        Some(answer) if !is_elsewhere(&answer) => return respond(answer).map(Some),
                        _ => {}
                    }
                }
                Where::At(_) | Where::Nowhere => {}
            }
        }
        Err(moved())
    }

    /// What the other node says, unless it is not there or dies meanwhile.
    async fn ask(
        &self,
        forwarder: &Forwarder,
        address: &str,
        parts: &Parts,
        body: &Bytes,
        correlation: &CorrelationId,
    ) -> Option<outbound::Response> {
        let mut url = Url::parse(address).ok()?;
        url.set_path(parts.uri.path());
        url.set_query(parts.uri.query());
        let mut headers: HeaderMap = parts.headers.clone();
        OWN.iter().for_each(|name| drop(headers.remove(name)));
        headers.insert(FORWARDED, HeaderValue::from_static("1"));
        if let Ok(value) = HeaderValue::from_str(&correlation.0) {
            headers.insert(crate::http::CORRELATION_HEADER, value);
        }
        let request = outbound::Request { method: parts.method.clone(), url, headers, body: body.clone() };
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
}

async fn path_of(parts: &mut Parts) -> Option<Path> {
    let params = RawPathParams::from_request_parts(parts, &()).await.ok()?;
    let named = |wanted: &str| params.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.to_owned());
    Some(Path { entity: named("entity")?, subscription: named("subscription"), dead: false })
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
