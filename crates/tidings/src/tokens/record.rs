//! A token as it is stored: never the token itself, only what recognises it.

use std::sync::LazyLock;

use tidings_core::time::Timestamp;
use tidings_store::{Error, Item, Key, KeyKind, Table, Value};

use super::Scope;

#[must_use]
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> =
        LazyLock::new(|| Table::new("tidings-tokens", "kind", KeyKind::S).sort("id", KeyKind::S).ttl("ttl"));
    &TABLE
}

/// All tokens stand in one partition: they are few, and listed together.
const KIND: &str = "token";
/// An expired token stays on the list so long, so that "why was I refused" has an answer.
const KEPT_AFTER_EXPIRY_SECONDS: i64 = 30 * 86_400;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub id: String,
    pub name: String,
    pub scopes: Vec<Scope>,
    /// SHA-256 of the secret part.
    pub hash: Vec<u8>,
    pub created_at: Timestamp,
    pub created_by: String,
    pub expires_at: Option<Timestamp>,
}

#[must_use]
pub fn key(id: &str) -> Key {
    Key::with_sort(KIND, id)
}

#[must_use]
pub fn partition() -> &'static str {
    KIND
}

impl Token {
    #[must_use]
    pub fn to_item(&self) -> Item {
        let scopes = self.scopes.iter().map(|scope| Value::from(scope.to_string())).collect::<Vec<_>>();
        Item::new()
            .with("kind", KIND)
            .with("id", &self.id)
            .with("name", &self.name)
            .with("scopes", scopes)
            .with("hash", self.hash.clone())
            .with("createdAt", self.created_at.as_microsecond())
            .with("createdBy", &self.created_by)
            .with_some("expiresAt", self.expires_at.map(|at| at.as_microsecond()))
            .with_some("ttl", self.expires_at.map(|at| at.as_second() + KEPT_AFTER_EXPIRY_SECONDS))
    }

    pub fn from_item(item: &Item) -> Result<Self, Error> {
        let read = || {
            let scopes = match item.get("scopes")? {
                Value::L(list) => list.iter().map(|scope| scope.as_str()?.parse().ok()).collect::<Option<Vec<_>>>()?,
                _ => return None,
            };
            let hash = match item.get("hash")? {
                Value::B(bytes) => bytes.clone(),
                _ => return None,
            };
            Some(Self {
                id: item.str("id")?.to_owned(),
                name: item.str("name")?.to_owned(),
                scopes,
                hash,
                created_at: Timestamp::from_microsecond(item.int("createdAt")?).ok()?,
                created_by: item.str("createdBy")?.to_owned(),
                expires_at: item.int("expiresAt").and_then(|at| Timestamp::from_microsecond(at).ok()),
            })
        };
        read().ok_or_else(|| Error::Corrupt("a token's record cannot be read".to_owned()))
    }
}
