//! `Idempotency-Key` on any POST (SX-09): the same key and body replay the first answer; another body is refused.
//!
//! The answer is stored after the effect. A crash between the two would let a retry run the handler again, so
//! handlers that make ids take them from the key's [`IdempotencySeed`]: the second run then finds its own work done.

use std::sync::LazyLock;

use std::collections::HashSet;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use http_body_util::BodyExt;
use ring::digest::{Context, SHA256};
use tidings_core::ids::IdSource;
use tidings_core::time::{Clock, Timestamp};
use tidings_store::{Item, Key, KeyKind, Store, Table, Value, Write};
use uuid::Uuid;

use super::problem::Problem;
use crate::tokens::Caller;

const KEY_CHARS: usize = 256;
/// Answers larger than this are not kept: an item holds at most 400 KB.
const ANSWER_BYTES: usize = 390 * 1024;
const KEPT_HEADERS: [HeaderName; 2] = [header::CONTENT_TYPE, header::LOCATION];

#[must_use]
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(|| Table::new("tidings-idempotency", "id", KeyKind::S).ttl("ttl"));
    &TABLE
}

pub struct Idempotency {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    kept_seconds: i64,
    /// Keys whose first request is still running here.
    running: Mutex<HashSet<String>>,
}

/// A request's key, and what it stands for.
pub struct RequestKey {
    id: String,
    body_hash: Vec<u8>,
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
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, kept_hours: u64) -> Self {
        let kept_seconds = i64::try_from(kept_hours.saturating_mul(3600)).unwrap_or(i64::MAX);
        Self { store, clock, kept_seconds, running: Mutex::default() }
    }

    pub fn key(
        &self,
        caller: &Caller,
        route: &str,
        path: &str,
        key: &HeaderValue,
        body: &Bytes,
    ) -> Result<RequestKey, Problem> {
        let key = key.to_str().ok().filter(|key| (1..=KEY_CHARS).contains(&key.len())).ok_or_else(|| {
            Problem::invalid_field("Idempotency-Key", format!("must be 1 to {KEY_CHARS} printable ASCII characters"))
        })?;
        let mut context = Context::new(&SHA256);
        for part in [caller.token.id.as_str(), route, path, key] {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part.as_bytes());
        }
        let id = context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let body_hash = ring::digest::digest(&SHA256, body).as_ref().to_vec();
        Ok(RequestKey { id, body_hash })
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
                .with("answer", body.to_vec())
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
    let body = match item.get("answer") {
        Some(Value::B(bytes)) => bytes.clone(),
        _ => Vec::new(),
    };
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
