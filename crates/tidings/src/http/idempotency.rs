//! `Idempotency-Key` on any POST (SX-09): the same key and body replay the first answer; another body is refused. What a
//! request says in its query and headers counts as its body does: of a CloudEvent in binary mode or a message of the bus,
//! most may be there.
//!
//! One home for all of them: the gate brings every POST here, with its body whole or, of an upload, as it comes; only a form
//! in parts, whose bytes are others each time it is sent, comes here by its own handler, with what it says.
//!
//! A key is claimed before the handler runs, and its answer is stored after the effect. A crash between the two lets a
//! retry run the handler again, so handlers that make ids take them from the claim's [`IdempotencySeed`]: the second run
//! then finds its own work done, or leave the claim's mark beside what they do ([`Claim`]). A claim is forgotten with its answer, so that the same key makes other ids a day later.
//! What was refused has changed nothing, and leaves no claim.
//!
//! An answer may hold a secret that is kept nowhere else (a new token), so it is stored encrypted with a key that is
//! made from the caller's own token, of which the store has only a hash.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use http_body_util::BodyExt;
use ring::digest::{Context, SHA256};
use tidings_core::ids::IdSource;
use tidings_core::time::{Clock, Timestamp};
use tidings_store::{Item, Key, KeyKind, Store, Table, Value, Write};
use uuid::Uuid;

use super::content::Content;
use super::cursor::Sealer;
use super::kept::Kept;
use super::problem::Problem;
use crate::tokens::Caller;

pub static HEADER: HeaderName = HeaderName::from_static("idempotency-key");
const KEY_CHARS: usize = 256;
/// The attribute for the hash of what a request says beside its body.
const HEAD: &str = "headHash";
/// Packed answers larger than this are not kept: an item holds at most 400 KB, and sealing makes four bytes of three.
const ANSWER_BYTES: usize = 290 * 1024;

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
    /// Seals the answer for the caller alone.
    sealer: Sealer,
    /// The hash of what the request says beside its body.
    head: Option<[u8; 32]>,
}

impl RequestKey {
    /// The key of a request that says this beside its body.
    #[must_use]
    pub fn saying(self, head: [u8; 32]) -> Self {
        Self { head: Some(head), ..self }
    }

    /// Whether the request is the one that a key stands for, as far as its body is not concerned. What an older version
    /// noted knows the body alone.
    fn fits(&self, item: &Item) -> bool {
        match (item.get(HEAD), &self.head) {
            (Some(known), Some(head)) => *known == Value::B(head.to_vec()),
            _ => true,
        }
    }
}

/// Makes the ids of a request that has a key: the same claim gives the same ids.
#[derive(Debug, Clone)]
pub struct IdempotencySeed {
    claim: String,
    /// Until when the key is remembered.
    until: i64,
    is_again: bool,
}

/// The mark of a request that has a key, for what has no id of its own to be known by: it goes into the transaction of
/// the effect, and who comes again with the key finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub id: Uuid,
    /// Until when it is to be found, in seconds since 1970.
    pub until: i64,
    /// Whether an earlier run may have done something.
    pub is_again: bool,
}

impl IdempotencySeed {
    #[must_use]
    pub fn claim(&self) -> Claim {
        let id = Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("{}/claim", self.claim).as_bytes());
        Claim { id, until: self.until, is_again: self.is_again }
    }

    /// The `n`th id of the request.
    #[must_use]
    pub fn uuid(&self, n: usize) -> Uuid {
        Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("{}/{n}", self.claim).as_bytes())
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

    /// Whether they are made for this request alone, so that nothing can be stored under them.
    #[must_use]
    pub const fn are_new(&self) -> bool {
        matches!(self, Self::Fresh(..))
    }
}

impl Idempotency {
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, ids: Arc<dyn IdSource>, kept_hours: u64) -> Self {
        let kept_seconds = i64::try_from(kept_hours.saturating_mul(3600)).unwrap_or(i64::MAX);
        Self { store, clock, ids, kept_seconds, running: Mutex::default() }
    }

    /// The key of a request: by whom and with which token, to which route and path.
    pub fn key(
        &self,
        (caller, bearer): (&Caller, &str),
        (route, path): (&str, &str),
        headers: &HeaderMap,
    ) -> Result<RequestKey, Problem> {
        let key = headers.get(&HEADER).and_then(|value| value.to_str().ok());
        let key = key.filter(|key| (1..=KEY_CHARS).contains(&key.len())).ok_or_else(|| {
            Problem::invalid_field("Idempotency-Key", format!("must be 1 to {KEY_CHARS} printable ASCII characters"))
        })?;
        let id = digest([&caller.token.id, route, path, key]).iter().map(|byte| format!("{byte:02x}")).collect();
        let sealer = Sealer::new(&digest(["answer", bearer, path, key]), Arc::clone(&self.ids));
        Ok(RequestKey { id, sealer, head: None })
    }

    /// The first answer to this key, from the store or by running the handler.
    pub async fn once<F: Future<Output = Response>>(
        &self,
        key: RequestKey,
        content: Content,
        handler: impl FnOnce(IdempotencySeed, Body) -> F,
    ) -> Result<Response, Problem> {
        let _running = Running::start(&self.running, &key.id)?;
        let hash = content.hash();
        let (claim, is_first) = match self.claim(&key, hash.as_ref()).await? {
            Claimed::Now(claim) => (claim, true),
            Claimed::Before(item) => {
                if !key.fits(&item) {
                    return Err(reused());
                }
                if item.get("status").is_some() {
                    return replay_if(&item, &key, &content.into_hash().await?);
                }
                // What was broken off while it came in left no hash to compare with.
                if hash.is_some_and(|hash| !is_same(&item, &hash)) {
                    return Err(reused());
                }
                // Nobody knows how far it came.
                (item.str("claim").unwrap_or_default().to_owned(), false)
            }
        };
        let until = self.until();
        let seed = IdempotencySeed { claim: format!("{}/{claim}", key.id), until, is_again: !is_first };
        let (body, hashing) = content.into_body();
        let response = handler(seed, body).await;
        // What failed for our own reasons may succeed the next time; it is no answer to keep.
        if response.status().is_server_error() {
            return Ok(response);
        }
        if response.extensions().get::<Problem>().is_some() {
            // A second run may be refused because of what the first one did, and comes no further with other ids.
            if !is_first {
                return Ok(response);
            }
            self.store.transact(vec![Write::delete(table(), Key::new(&key.id))]).await?;
            return Ok(response);
        }
        let (parts, body) = response.into_parts();
        let body = body.collect().await.map_err(|_| Problem::bad_request("the answer cannot be read"))?.to_bytes();
        let item = self.row(&key, &claim, hashing.finish().as_ref()).with("status", i64::from(parts.status.as_u16()));
        let answer = Kept { headers: parts.headers.clone(), body: body.clone() }.pack();
        let answer = (answer.len() <= ANSWER_BYTES).then(|| key.sealer.seal(&key.id, &answer));
        self.store.transact(vec![Write::put(table(), item.with_some("answer", answer))]).await?;
        Ok(Response::from_parts(parts, Body::from(body)))
    }

    async fn claim(&self, key: &RequestKey, hash: Option<&Vec<u8>>) -> Result<Claimed, Problem> {
        if let Some(item) = self.store.get(table(), &Key::new(&key.id)).await? {
            return Ok(Claimed::Before(item));
        }
        let claim = self.ids.uuid(self.clock.now()).to_string();
        match self.store.transact(vec![Write::insert(table(), self.row(key, &claim, hash))]).await {
            Ok(()) => Ok(Claimed::Now(claim)),
            // Another node was first.
            Err(error) => match error.conflict_on(0).and_then(|conflict| conflict.found.clone()) {
                Some(item) => Ok(Claimed::Before(item)),
                None => Err(error.into()),
            },
        }
    }

    fn row(&self, key: &RequestKey, claim: &str, hash: Option<&Vec<u8>>) -> Item {
        Item::new()
            .with("id", &key.id)
            .with_some("bodyHash", hash.cloned())
            .with_some(HEAD, key.head.map(|head| head.to_vec()))
            .with("claim", claim)
            .with("ttl", self.until())
    }

    fn until(&self) -> i64 {
        self.clock.now().as_second().saturating_add(self.kept_seconds)
    }
}

/// Who has a key.
enum Claimed {
    /// This request, as of now.
    Now(String),
    /// An earlier one, which may have been answered.
    Before(Item),
}

/// Whether a key stands for this body, as far as that is known.
fn is_same(item: &Item, hash: &[u8]) -> bool {
    item.get("bodyHash").is_none_or(|known| *known == Value::B(hash.to_vec()))
}

/// The answer that was kept, if it was to the same body.
fn replay_if(item: &Item, key: &RequestKey, hash: &[u8]) -> Result<Response, Problem> {
    if is_same(item, hash) { replay(item, key) } else { Err(reused()) }
}

fn reused() -> Problem {
    let detail = "this Idempotency-Key was used with another request: its body, its query, its content type or the headers \
        that are part of a message were others; use a new key for a new request";
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "idempotency-key-reused", detail)
}

fn replay(item: &Item, key: &RequestKey) -> Result<Response, Problem> {
    let Some(sealed) = item.str("answer") else {
        let detail = "the request of this Idempotency-Key was carried out; its answer was too large to be kept";
        return Err(Problem::new(StatusCode::CONFLICT, "answer-not-kept", detail));
    };
    let unreadable = || tidings_store::Error::Corrupt("the answer to an Idempotency-Key cannot be read".to_owned());
    let kept = key.sealer.open("answer", &key.id, sealed).map_err(|_| unreadable())?;
    let Kept { headers, body } = Kept::unpack(kept).ok_or_else(unreadable)?;
    let mut response = Response::new(Body::from(body));
    let status = item.int("status").and_then(|status| u16::try_from(status).ok());
    *response.status_mut() = status.and_then(|status| StatusCode::from_u16(status).ok()).unwrap_or(StatusCode::OK);
    *response.headers_mut() = headers;
    response.headers_mut().insert("idempotent-replay", HeaderValue::from_static("true"));
    Ok(response)
}

/// The hash of what a request says beside its body: its query, but for the token that may be in it, and the headers that are
/// part of a message, here or, by `names`, on its route. What is another each time it is sent (a trace, a date) is not.
pub fn head(parts: &Parts, token_in_query: bool, names: fn(&str) -> bool) -> [u8; 32] {
    let everywhere = |name: &str| name.starts_with("ce-") || matches!(name, "content-type" | "brokerproperties");
    let mut headers: Vec<(&str, &[u8])> =
        parts.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    headers.retain(|(name, _)| everywhere(name) || names(name));
    // Those of one name stay in their order, which may mean something.
    headers.sort_by_key(|(name, _)| *name);
    let query = form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes());
    let query = query.filter(|(name, _)| !(token_in_query && name == "key"));
    let query = query.flat_map(|(name, value)| [name.into_owned().into_bytes(), value.into_owned().into_bytes()]);
    let said = headers.iter().flat_map(|(name, value)| [name.as_bytes().to_vec(), value.to_vec()]);
    // What separates the two can be neither.
    digest(query.chain([b"\0headers".to_vec()]).chain(said))
}

/// The hash of several parts, each with its length before it, so that none can pass for the end of its neighbour.
fn digest<T: AsRef<[u8]>>(parts: impl IntoIterator<Item = T>) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    for part in parts {
        let part = part.as_ref();
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
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
