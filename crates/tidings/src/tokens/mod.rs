//! Tokens: who may call, and what (SX-20). Stored hashed, compared in constant time, shown once.

mod held;
pub mod http;
mod record;
mod scope;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use subtle::ConstantTimeEq;
use tidings_core::ids::IdSource;
use tidings_core::time::{Clock, Timestamp};
use tidings_store::{Error, Query, Store, Write};
use tokio::sync::watch;
use uuid::Uuid;

pub use held::{event_stream, while_held};
pub use record::{Token, table};
pub use scope::{ANY_USER, Scope};

const PREFIX: &str = "tdg_";
const SECRET_BYTES: usize = 24;
/// How long a token that was looked up is believed before it is looked up again: the longest that a token
/// revoked on another node still works here.
const BELIEVED: Duration = Duration::from_secs(5);

/// Who is calling.
#[derive(Debug, Clone)]
pub struct Caller {
    pub token: Arc<Token>,
}

impl Caller {
    #[must_use]
    pub fn may(&self, demands: &[Scope]) -> bool {
        self.token.scopes.iter().any(|have| *have == Scope::Admin || demands.iter().any(|demand| have.meets(demand)))
    }

    /// How records and the audit log name the caller.
    #[must_use]
    pub fn name(&self) -> String {
        ["token:", &self.token.id].concat()
    }
}

/// What somebody asks for who wants a token.
#[derive(Debug, Clone)]
pub struct NewToken {
    pub name: String,
    pub scopes: Vec<Scope>,
    pub expires_at: Option<Timestamp>,
    pub created_by: String,
}

/// The tokens of this installation.
pub struct Tokens {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    known: RwLock<HashMap<String, (Arc<Token>, Duration)>>,
    /// Told when a token was revoked here.
    revoked: watch::Sender<()>,
}

impl Tokens {
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, ids: Arc<dyn IdSource>) -> Self {
        Self { store, clock, ids, known: RwLock::default(), revoked: watch::Sender::default() }
    }

    /// The caller behind a bearer token, if it is known, unchanged and not expired.
    pub async fn recognise(&self, bearer: &str) -> Result<Option<Caller>, Error> {
        let Some((id, secret)) = split(bearer) else { return Ok(None) };
        let Some(token) = self.find(id, BELIEVED).await? else { return Ok(None) };
        let hash = digest(secret);
        let same = bool::from(hash.as_ref().ct_eq(&token.hash));
        let expired = token.expires_at.is_some_and(|at| at <= self.clock.now());
        Ok((same && !expired).then_some(Caller { token }))
    }

    /// The caller that a token of this id is, if it is known and not expired. For those who have shown it before.
    pub async fn holder(&self, id: &str) -> Result<Option<Caller>, Error> {
        self.holder_within(id, BELIEVED).await
    }

    /// The same, by what is known no longer than `believed`.
    async fn holder_within(&self, id: &str, believed: Duration) -> Result<Option<Caller>, Error> {
        let token = self.find(id, believed).await?;
        let now = self.clock.now();
        Ok(token.filter(|token| token.expires_at.is_none_or(|at| at > now)).map(|token| Caller { token }))
    }

    /// Makes a token; its text is given here and never again. The write is part of a transaction of the caller's.
    pub fn make(&self, new: NewToken) -> (Token, String, Write) {
        let id = self.ids.uuid(self.clock.now()).simple().to_string();
        let (token, text) = self.token(id, new);
        let write = Write::insert(table(), token.to_item());
        (token, text, write)
    }

    /// The same for a request that has an idempotency key, and so an id. If it was carried out before and its answer
    /// lost, nobody has the first text: this one takes its place, and there is still one token.
    pub fn make_once(&self, id: Uuid, new: NewToken) -> (Token, String, Write) {
        let (token, text) = self.token(id.simple().to_string(), new);
        let write = Write::put(table(), token.to_item());
        (token, text, write)
    }

    fn token(&self, id: String, new: NewToken) -> (Token, String) {
        let now = self.clock.now();
        let mut secret = [0; SECRET_BYTES];
        self.ids.random(&mut secret);
        let secret = BASE64_URL_SAFE_NO_PAD.encode(secret);
        let text = format!("{PREFIX}{id}_{secret}");
        let token = Token {
            id,
            name: new.name,
            scopes: new.scopes,
            hash: digest(&secret).as_ref().to_vec(),
            created_at: now,
            created_by: new.created_by,
            expires_at: new.expires_at,
        };
        (token, text)
    }

    /// All tokens, oldest first.
    pub async fn list(&self) -> Result<Vec<Token>, Error> {
        let mut tokens = Vec::new();
        let mut query = Query::new(record::partition()).limit(500);
        loop {
            let page = self.store.query(table(), &query).await?;
            for item in &page.items {
                tokens.push(Token::from_item(item)?);
            }
            if page.next.is_none() {
                return Ok(tokens);
            }
            query = query.after(page.next);
        }
    }

    pub async fn get(&self, id: &str) -> Result<Option<Token>, Error> {
        if id.is_empty() || id.len() > 64 {
            return Ok(None);
        }
        self.store.get(table(), &record::key(id)).await?.map(|item| Token::from_item(&item)).transpose()
    }

    /// The write that revokes a token; [`Tokens::forget`] it once the write is done.
    #[must_use]
    pub fn revocation(&self, id: &str) -> Write {
        Write::delete(table(), record::key(id))
    }

    pub fn forget(&self, id: &str) {
        self.known.write().unwrap_or_else(PoisonError::into_inner).remove(id);
        self.revoked.send_replace(());
    }

    async fn find(&self, id: &str, believed: Duration) -> Result<Option<Arc<Token>>, Error> {
        let now = self.clock.monotonic();
        if let Some((token, at)) = self.known.read().unwrap_or_else(PoisonError::into_inner).get(id)
            && now.saturating_sub(*at) < believed
        {
            return Ok(Some(Arc::clone(token)));
        }
        let Some(token) = self.get(id).await?.map(Arc::new) else {
            self.known.write().unwrap_or_else(PoisonError::into_inner).remove(id);
            return Ok(None);
        };
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.insert(id.to_owned(), (Arc::clone(&token), now));
        Ok(Some(token))
    }
}

fn split(bearer: &str) -> Option<(&str, &str)> {
    let (id, secret) = bearer.strip_prefix(PREFIX)?.split_once('_')?;
    (id.len() == 32 && secret.len() <= 64).then_some((id, secret))
}

fn digest(secret: &str) -> ring::digest::Digest {
    ring::digest::digest(&ring::digest::SHA256, secret.as_bytes())
}
