//! From a store's cursor to a sealed one and back.

use serde::Serialize;
use tidings_store::{Item, codec};

use super::cursor::Sealer;
use super::problem::Problem;
use crate::tokens::Caller;

/// What a cursor is bound to: who asks, which list, which filters.
#[must_use]
pub fn context(caller: &Caller, list: &str, filter: &impl Serialize) -> String {
    format!("{} {list} {}", caller.token.id, serde_json::to_string(filter).unwrap_or_default())
}

#[must_use]
pub fn seal(sealer: &Sealer, context: &str, next: Option<&Item>) -> Option<String> {
    next.map(|item| sealer.seal(context, &codec::encode(item)))
}

pub fn open(sealer: &Sealer, context: &str, cursor: Option<&str>) -> Result<Option<Item>, Problem> {
    let Some(cursor) = cursor else { return Ok(None) };
    let bytes = sealer.open("cursor", context, cursor)?;
    Ok(Some(codec::decode(&bytes)?))
}
