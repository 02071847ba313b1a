//! Filters: which messages a subscription of the bus takes, and actions: what becomes of their properties on the way.
//!
//! A [`Filter`] is asked about a [`View`] of a message. There are four kinds besides everything and nothing: SQL texts
//! and correlation as Service Bus has them, patterns as rules have them (over the message's JSON), and dotted keys with
//! wildcards. A [`SqlAction`] changes properties through [`Change`].
//!
//! # SQL
//!
//! * `NOT`, `AND`, `OR` bind in this order; comparisons bind tighter, then `+ -`, then `* / %`, then signs.
//! * Three values: a property that is absent or null is unknown, and so is whatever is computed from it; `AND` is false
//!   if one side is, `OR` true if one side is. What is unknown in the end does not match.
//! * `IS NULL` is true of what is absent; `EXISTS` is true of what is there, even if it is null.
//! * Names have no case. A name without a scope is a property of the sender (`user.`). `sys.` takes the names of
//!   [`System`] and no others; one that this message does not carry is unknown, or an error ([`View::is_strict`]).
//! * Texts compare by code point, and case counts. An integer beside a double is taken as a double. `=` between
//!   different kinds is false and `<>` is true; to order them is an error.
//! * Integers are of 64 bits and division between them drops the rest. Overflow, division by zero and results that are
//!   no number are errors. `+` joins texts, also a text and anything else but null.
//! * `IN` is the `OR` of its comparisons. `LIKE` knows `%`, `_` and `ESCAPE`.
//! * A boolean property may stand alone where a condition is wanted.
//! * `SET` on a double keeps it a double if the new value is an integer; other kinds are replaced. Properties of the
//!   broker hold texts. What is unknown is set as null; a property of the broker is taken away instead.
//!
//! # Keys
//!
//! A key is words between dots; the empty key has none, and between two dots is an empty word. `*` in a pattern stands
//! for exactly one word, `#` for any number of them, none included. Case counts.

mod correlation;
mod key;
mod key_index;
mod like;
pub mod limits;
mod sql;
mod value;
mod view;

use crate::pattern::Pattern;

pub use correlation::{Correlation, CorrelationError};
pub use key::{KeyError, KeyPattern};
pub use key_index::KeyIndex;
pub use like::{Like, LikeError};
pub use sql::{Parameters, SqlAction, SqlError, SqlFilter};
pub use value::Value;
pub use view::{Change, Properties, System, View, same_name};

/// Which messages are taken.
#[derive(Debug, Clone)]
pub enum Filter {
    All,
    Nothing,
    Sql(SqlFilter),
    Correlation(Correlation),
    Pattern(Pattern),
    Key(KeyPattern),
}

/// Why a filter or an action came to no answer on one message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EvaluationError(pub(crate) String);

impl Filter {
    /// Whether the message is taken. One that the filter cannot be decided on is not.
    pub fn matches(&self, view: &dyn View) -> bool {
        self.evaluate(view).unwrap_or(false)
    }

    /// The same, but tells a message that cannot be decided on from one that is not wanted.
    pub fn evaluate(&self, view: &dyn View) -> Result<bool, EvaluationError> {
        match self {
            Filter::All => Ok(true),
            Filter::Nothing => Ok(false),
            Filter::Sql(sql) => sql.evaluate(view),
            Filter::Correlation(correlation) => Ok(correlation.matches(view)),
            Filter::Key(pattern) => Ok(view.key().is_some_and(|key| pattern.matches(&key))),
            // A body that is no JSON object has none of the fields a pattern could ask for.
            Filter::Pattern(pattern) => Ok(view.document().is_some_and(|text| pattern.matches(&text).unwrap_or(false))),
        }
    }
}
