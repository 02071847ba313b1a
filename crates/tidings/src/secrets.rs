//! Keys this installation makes for itself, kept in the store so that a backup has them too; and what is encrypted with
//! them (`cipher`), or with one that the configuration gives (`vault`).

pub mod cipher;
pub mod vault;

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use tidings_core::ids::IdSource;
use tidings_store::{Condition, Error, Item, Key, KeyKind, Store, Table, Value, Write};

pub use vault::Vault;

use crate::config::Secret;

#[must_use]
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(|| Table::new("tidings-secrets", "name", KeyKind::S));
    &TABLE
}

/// A key as the configuration gives it: 32 bytes in base64.
#[must_use]
pub fn configured(secret: &Secret) -> Option<[u8; 32]> {
    BASE64.decode(secret.expose().trim()).ok()?.try_into().ok()
}

/// The 32-byte key of that name; made at the first call, the same ever after, on every node.
pub async fn key(store: &dyn Store, ids: &dyn IdSource, name: &str) -> Result<[u8; 32], Error> {
    loop {
        if let Some(item) = store.get(table(), &Key::new(name)).await? {
            let key = match item.get("key") {
                Some(Value::B(bytes)) => <[u8; 32]>::try_from(bytes.as_slice()).ok(),
                _ => None,
            };
            return key.ok_or_else(|| Error::Corrupt(format!("the key `{name}` cannot be read")));
        }
        let mut bytes = [0; 32];
        ids.random(&mut bytes);
        let item = Item::new().with("name", name).with("key", bytes.to_vec());
        match store.transact(vec![Write::insert(table(), item)]).await {
            // Another node made it first: take that one.
            Ok(()) | Err(Error::Conflict { .. }) => {}
            Err(error) => return Err(error),
        }
    }
}

/// What is noted under a name, for what an installation does once.
pub async fn noted(store: &dyn Store, name: &str) -> Result<Option<String>, Error> {
    let item = store.get(table(), &Key::new(name)).await?;
    Ok(item.and_then(|item| item.str("note").map(ToOwned::to_owned)))
}

/// The write that notes it, if nobody has noted anything else since `before` was read.
#[must_use]
pub fn note(name: &str, text: &str, before: Option<&str>) -> Write {
    let unchanged = match before {
        Some(before) => Condition::Equals("note".into(), before.into()),
        None => Condition::NotExists,
    };
    Write::put(table(), Item::new().with("name", name).with("note", text)).when(unchanged)
}
