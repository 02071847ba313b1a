//! Calls that need what another node has in memory go there: one hop, with the caller's own credentials.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use reqwest::Url;
use serde_json::Value;
use uuid::Uuid;

use crate::app::Services;
use crate::bus::{Path, Where, letters};
use crate::http::{CorrelationId, Problem};
use crate::messages::dead;
use crate::outbound::{self, Outbound, Timeouts};

/// Says that a call was forwarded; it is not forwarded again.
pub(super) const FORWARDED: HeaderName = HeaderName::from_static("x-tidings-forwarded");
/// The kind of problem that says that a node does not have it after all.
const ELSEWHERE: &str = "elsewhere";
/// The kind that says that a call may have been carried out, or not.
pub(crate) const UNKNOWN: &str = "outcome-unknown";
/// Of an answer; a batch of the largest messages is less.
const MOST_BYTES: usize = 64 * 1024 * 1024;
/// For other nodes that are asked for what they can add.
const PATIENCE: Duration = Duration::from_secs(2);
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

/// What came of asking another node.
enum Asked {
    Answered(outbound::Response),
    /// It heard nothing of it.
    Unreached,
    /// It may have heard, and may have done it or may do it yet; nobody knows.
    Unanswered,
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
        // Every call passes here and few go on: the others need no room for it.
        Box::pin(async {
            match self.path_of(parts).await? {
                Some(path) => self.forward_for(&path, parts, body, correlation).await,
                None => Ok(None),
            }
        })
        .await
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
        let is_forwarded = is_forwarded(call.headers);
        for again in [false, true] {
            if again {
                self.look_at_nodes().await?;
            }
            match self.bus.whereabouts(path).await? {
                Where::Here => return Ok(None),
                Where::At(address) if !is_forwarded => match self.ask(forwarder, &address, call).await {
                    Asked::Answered(answer) if !is_elsewhere(&answer) => return Ok(Some(answer)),
                    // It must not be done twice, and whoever has the entity next cannot know that it was done once.
                    Asked::Unanswered if !is_harmless(call) => return Err(unknown()),
                    _ => {}
                },
                Where::At(_) | Where::Nowhere => {}
            }
        }
        Err(moved())
    }

    /// What every other node that is alive says to a call, beside each other, and within [`PATIENCE`]; nothing if the call
    /// is another node's. Who does not answer is left out.
    pub(crate) async fn ask_others(&self, call: Call<'_>) -> Vec<outbound::Response> {
        let (Some(forwarder), Some(nodes)) = (&self.forwarder, &self.nodes) else { return Vec::new() };
        if is_forwarded(call.headers) {
            return Vec::new();
        }
        let others: Vec<String> =
            nodes.alive().into_iter().filter(|(id, _)| *id != nodes.me).map(|(_, address)| address).collect();
        let asked = others.iter().map(|address| tokio::time::timeout(PATIENCE, self.ask(forwarder, address, call)));
        let answers = futures_util::future::join_all(asked).await.into_iter();
        answers.filter_map(|asked| if let Ok(Asked::Answered(answer)) = asked { Some(answer) } else { None }).collect()
    }

    /// What the other node says, unless it is not there or dies meanwhile.
    async fn ask(&self, forwarder: &Forwarder, address: &str, call: Call<'_>) -> Asked {
        let Ok(mut url) = Url::parse(address) else { return Asked::Unreached };
        url.set_path(call.path);
        url.set_query(call.query);
        let mut headers: HeaderMap = call.headers.clone();
        OWN.iter().for_each(|name| drop(headers.remove(name)));
        headers.insert(FORWARDED, HeaderValue::from_static("1"));
        if let Ok(value) = HeaderValue::from_str(&call.correlation.0) {
            headers.insert(&crate::http::CORRELATION_HEADER, value);
        }
        let request = outbound::Request { method: call.method.clone(), url, headers, body: call.body.clone() };
        let answer = forwarder.0.send_up_to(request, MOST_BYTES);
        tokio::pin!(answer);
        loop {
            tokio::select! {
                answer = &mut answer => return match answer {
                    Ok(answer) => Asked::Answered(answer),
                    Err(error) => {
                        tracing::warn!(%error, "a call that was forwarded has no answer");
                        if error.was_sent() { Asked::Unanswered } else { Asked::Unreached }
                    }
                },
                () = tokio::time::sleep(LOOK) => {
                    // Who sleeps keeps connections open; nobody must wait for that.
                    let there = self.nodes.as_ref().is_some_and(|nodes| nodes.alive().values().any(|at| at == address));
                    if !there {
                        return Asked::Unanswered;
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

/// Whether it is another node that calls.
pub(crate) fn is_forwarded(headers: &HeaderMap) -> bool {
    headers.contains_key(FORWARDED)
}

/// Whether a call may be made again although it may have been carried out: one that only looks, one that receives under a
/// lock, which is lost if nobody hears of it, and one that renews a lock.
fn is_harmless(call: Call<'_>) -> bool {
    if matches!(*call.method, Method::GET | Method::HEAD) {
        return true;
    }
    if *call.method != Method::POST || !call.path.starts_with("/bus/") {
        return false;
    }
    let mut parts = call.path.rsplit('/');
    match (parts.next().unwrap_or_default(), parts.nth(1)) {
        ("receive", _) => {
            let body: Option<Value> = serde_json::from_slice(call.body).ok();
            call.body.is_empty() || body.is_some_and(|body| body.get("settle").is_none_or(Value::is_null))
        }
        ("head", _) => true,
        (token, Some("messages")) => Uuid::parse_str(token).is_ok(),
        _ => false,
    }
}

fn unknown() -> Problem {
    let detail = "the node that has this entity was told and did not answer: whether it was done is not known. Look before \
                  you do it again; a message that was not settled is received again";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, UNKNOWN, detail)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn harmless(method: &Method, path: &str, body: &str) -> bool {
        let (headers, correlation) = (HeaderMap::new(), CorrelationId::alone("c".to_owned()));
        let body = Bytes::from(body.to_owned());
        is_harmless(Call { method, path, query: None, headers: &headers, body: &body, correlation: &correlation })
    }

    #[test]
    fn only_what_does_no_harm_is_done_again() {
        let (get, post, put, delete) = (Method::GET, Method::POST, Method::PUT, Method::DELETE);
        for (method, path, body) in [
            (&get, "/bus/q/messages", ""),
            (&post, "/bus/q/messages/head", ""),
            (&post, "/bus/t/subscriptions/s/$deadletterqueue/messages/head", ""),
            (&post, "/bus/q/messages/7/6e9e2bd2-2f8c-4e62-a4b0-0d1f9ba9d9a5", ""),
            (&post, "/bus/q/receive", ""),
            (&post, "/bus/q/receive", r#"{"max":5,"settle":null}"#),
        ] {
            assert!(harmless(method, path, body), "{method} {path} {body}");
        }
        for (method, path, body) in [
            (&delete, "/bus/q/messages/head", ""),
            (&delete, "/bus/q/messages/7/6e9e2bd2-2f8c-4e62-a4b0-0d1f9ba9d9a5", ""),
            (&put, "/bus/q/messages/7/6e9e2bd2-2f8c-4e62-a4b0-0d1f9ba9d9a5", ""),
            (&post, "/bus/q/receive", r#"{"settle":[{"lockToken":"x","action":"complete"}]}"#),
            (&post, "/bus/q/receive", "no JSON"),
            (&post, "/bus/q/settle", "[]"),
            (&post, "/bus/q/purge", ""),
            (&post, "/bus/messages/purge", ""),
            (&post, "/bus/messages/settle", "[]"),
            (&post, "/bus/messages/$deadletterqueue/resubmit", "{}"),
            (&post, "/api/messages/x/retry", ""),
            (&post, "/dead-letters/x/resubmit", ""),
            (&delete, "/bus/q", ""),
        ] {
            assert!(!harmless(method, path, body), "{method} {path} {body}");
        }
    }
}
