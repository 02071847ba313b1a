//! From a store's cursor to a sealed one and back.

use serde::Serialize;
use tidings_store::{Item, codec};

use super::cursor::Sealer;
use super::params::Params;
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

/// How much of a list somebody wants, and from where on: `limit` and `cursor`.
pub struct Asked {
    pub limit: usize,
    pub after: Option<Item>,
    context: String,
}

impl Asked {
    /// Reads the last two parameters of a list; `filter` is what the others said. A page has 1 to 100, by default 50.
    pub fn read(
        sealer: &Sealer,
        caller: &Caller,
        list: &str,
        filter: &impl Serialize,
        params: Params,
    ) -> Result<Self, Problem> {
        Self::up_to((100, 50), sealer, caller, list, filter, params)
    }

    /// The same where a page has up to `most`.
    pub fn up_to(
        (most, usual): (usize, usize),
        sealer: &Sealer,
        caller: &Caller,
        list: &str,
        filter: &impl Serialize,
        mut params: Params,
    ) -> Result<Self, Problem> {
        let limit = params.number("limit", 1..=most, usual);
        let cursor = params.text("cursor").map(ToOwned::to_owned);
        params.finish()?;
        let context = context(caller, list, filter);
        let after = open(sealer, &context, cursor.as_deref())?;
        Ok(Self { limit, after, context })
    }

    /// The cursor of the page after this one.
    #[must_use]
    pub fn cursor(&self, sealer: &Sealer, next: Option<&Item>) -> Option<String> {
        seal(sealer, &self.context, next)
    }
}
