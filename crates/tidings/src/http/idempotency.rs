//! `Idempotency-Key` on any POST (SX-09): the same key and body replay the first answer; another body is refused.
//!
//! The answer is stored after the effect. A crash between the two would let a retry run the handler again, so
//! handlers that make ids take them from the key's [`IdempotencySeed`]: the second run then finds its own work done.
//!
//! An answer may hold a secret that is kept nowhere else (a new token), so it is stored encrypted with a key that is
//! made from the caller's own token, of which the store has only a hash.

use std::sync::LazyLock;

use std::collections::HashSet;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use http_body_util::BodyExt;
use ring::digest::{Context, SHA256};
use tidings_core::ids::IdSource;
use tidings_core::time::{Clock, Timestamp};
use tidings_store::{Item, Key, KeyKind, Store, Table, Value, Write};
use uuid::Uuid;

use super::cursor::Sealer;
use super::problem::Problem;
use crate::tokens::Caller;

pub const HEADER: &str = "idempotency-key";
const KEY_CHARS: usize = 256;
/// Answers larger than this are not kept: an item holds at most 400 KB, and sealing makes four bytes of three.
const ANSWER_BYTES: usize = 290 * 1024;
const KEPT_HEADERS: [HeaderName; 2] = [header::CONTENT_TYPE, header::LOCATION];

#[must_use]
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(|| Table::new("tidings-idempotency", "id", KeyKind::S).ttl("ttl"));
    &TABLE
}

pub struct Idempotency {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    kept_seconds: i64,
    /// Keys whose first request is still running here.
    running: Mutex<HashSet<String>>,
}

/// A request's key, and what it stands for.
pub struct RequestKey {
    id: String,
    body_hash: Vec<u8>,
    /// Seals the answer for the caller alone.
    sealer: Sealer,
}

/// Makes the ids of a request that has a key: the same key gives the same ids.
#[derive(Debug, Clone)]
pub struct IdempotencySeed(String);

impl RequestKey {
    #[must_use]
    pub fn seed(&self) -> IdempotencySeed {
        IdempotencySeed(self.id.clone())
    }
}

impl IdempotencySeed {
    /// The `n`th id of the request.
    #[must_use]
    pub fn uuid(&self, n: usize) -> Uuid {
        Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("{}/{n}", self.0).as_bytes())
    }
}

/// The ids of a request: from its idempotency key if it has one, else new.
pub enum RequestIds<'a> {
    Seeded(IdempotencySeed),
    Fresh(&'a dyn IdSource, Timestamp),
}

impl RequestIds<'_> {
    #[must_use]
    pub fn uuid(&self, n: usize) -> Uuid {
        match self {
            Self::Seeded(seed) => seed.uuid(n),
            Self::Fresh(ids, now) => ids.uuid(*now),
        }
    }
}

impl Idempotency {
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, ids: Arc<dyn IdSource>, kept_hours: u64) -> Self {
        let kept_seconds = i64::try_from(kept_hours.saturating_mul(3600)).unwrap_or(i64::MAX);
        Self { store, clock, ids, kept_seconds, running: Mutex::default() }
    }

    pub fn key(
        &self,
        caller: &Caller,
        route: &str,
        path: &str,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Result<RequestKey, Problem> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let key = text(HEADER).filter(|key| (1..=KEY_CHARS).contains(&key.len())).ok_or_else(|| {
            Problem::invalid_field("Idempotency-Key", format!("must be 1 to {KEY_CHARS} printable ASCII characters"))
        })?;
        let id = digest(&[&caller.token.id, route, path, key]).iter().map(|byte| format!("{byte:02x}")).collect();
        let bearer =
            text("authorization").and_then(|value| value.split_once(' ')).map_or("", |(_, token)| token.trim());
        let sealer = Sealer::new(&digest(&["answer", bearer, path, key]), Arc::clone(&self.ids));
        let body_hash = ring::digest::digest(&SHA256, body).as_ref().to_vec();
        Ok(RequestKey { id, body_hash, sealer })
    }

    /// The first answer to this key, from the store or by running the handler.
    pub async fn once(&self, key: RequestKey, handler: impl Future<Output = Response>) -> Result<Response, Problem> {
        let _running = Running::start(&self.running, &key.id)?;
        if let Some(item) = self.store.get(table(), &Key::new(&key.id)).await? {
            return replay(&item, &key);
        }
        let response = handler.await;
        // What failed for our own reasons may succeed the next time; it is no answer to keep.
        if response.status().is_server_error() || response.extensions().get::<Problem>().is_some() {
            return Ok(response);
        }
        let (parts, body) = response.into_parts();
        let body = body.collect().await.map_err(|_| Problem::bad_request("the answer cannot be read"))?.to_bytes();
        if body.len() <= ANSWER_BYTES {
            let mut item = Item::new()
                .with("id", &key.id)
                .with("bodyHash", key.body_hash.clone())
                .with("status", i64::from(parts.status.as_u16()))
                .with("answer", key.sealer.seal(&key.id, &body))
                .with("ttl", self.clock.now().as_second().saturating_add(self.kept_seconds));
            for name in KEPT_HEADERS {
                let value = parts.headers.get(&name).and_then(|value| value.to_str().ok());
                item = item.with_some(name.to_string(), value);
            }
            self.store.transact(vec![Write::put(table(), item)]).await?;
        }
        Ok(Response::from_parts(parts, Body::from(body)))
    }
}

fn replay(item: &Item, key: &RequestKey) -> Result<Response, Problem> {
    if item.get("bodyHash") != Some(&Value::B(key.body_hash.clone())) {
        let detail = "this Idempotency-Key was used with another body; use a new key for a new request";
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "idempotency-key-reused", detail));
    }
    let sealed = item.str("answer").unwrap_or_default();
    let body = key
        .sealer
        .open("answer", &key.id, sealed)
        .map_err(|_| tidings_store::Error::Corrupt("the answer to an Idempotency-Key cannot be read".to_owned()))?;
    let mut response = Response::new(Body::from(body));
    let status = item.int("status").and_then(|status| u16::try_from(status).ok());
    *response.status_mut() = status.and_then(|status| StatusCode::from_u16(status).ok()).unwrap_or(StatusCode::OK);
    for name in KEPT_HEADERS {
        if let Some(value) = item.str(name.as_str()).and_then(|value| HeaderValue::from_str(value).ok()) {
            response.headers_mut().insert(name, value);
        }
    }
    response.headers_mut().insert("idempotent-replay", HeaderValue::from_static("true"));
    Ok(response)
}

/// The hash of several parts, each with its length before it, so that none can pass for the end of its neighbour.
fn digest(parts: &[&str]) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part.as_bytes());
    }
    let mut hash = [0; 32];
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

/// Marks a key as being worked on, until dropped.
struct Running<'a> {
    keys: &'a Mutex<HashSet<String>>,
    id: String,
}

impl<'a> Running<'a> {
    fn start(keys: &'a Mutex<HashSet<String>>, id: &str) -> Result<Self, Problem> {
        if keys.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned()) {
            return Ok(Self { keys, id: id.to_owned() });
        }
        let detail = "a request with this Idempotency-Key is still being worked on; try again in a moment";
        Err(Problem::new(StatusCode::CONFLICT, "still-running", detail).retry_after(1))
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}
