//! Patterns: who hears of what. The whole Amazon EventBridge pattern language, and `changed` of our own.
//!
//! [`Pattern`] is one checked and compiled pattern. [`RuleSet`] holds many and finds those that match an event in one
//! walk over its text. The way of a pattern: `json` reads it, `compile` and `operators` check it and lay it out as
//! fields and combinations. The way of an event: `scan` and `walk` note the leaves at the paths in `paths`, `index`
//! calls up candidates, `verify` decides; `sieve` spares most events all of it. `naive` decides the same from a parsed
//! event, plainly.
//!
//! # What matches
//!
//! * Fields are ANDed, the values of a field's list are ORed, `$or` takes any of its objects. A key with a dot in it is
//!   one key. Where `$or` names a field a second time, both lists must be satisfied.
//! * A field looks at leaves: strings, numbers, booleans, null. The elements of an array stand at the array's own path,
//!   however deep arrays are nested, and any one of them will do. `{}` and `[]` hold no leaf and count as absent.
//! * Fields found inside elements of one array must be found in the same element.
//! * `{"exists": false}` and `changed` look at all values of a path in the event, whatever element they are in.
//! * Numbers compare by value: exactly if they are integers of 64 bits, else as doubles. `numeric` takes ends within
//!   ±5.0e9, as EventBridge does, but compares events' numbers of any size. Strings and numbers are never equal.
//! * `anything-but` is satisfied by any leaf, of any type, that it does not exclude; by an array, if any element is.
//! * Case is ignored by comparing lower case, character by character.
//! * A repeated key in an event: the last one counts. In a pattern it is refused.
//!
//! # `changed`
//!
//! `{"changed": true}` stands on a field whose path has a segment `OldImage` or `NewImage`, `oldImage` or `newImage`,
//! `old` or `new`, `before` or `after`; the outermost such segment counts. The field is compared with the same path on
//! the other side; it does not matter on which side the operator is written. `true` matches if the values differ, or if
//! only one of the two is there; `false` if both are there and equal; neither, if neither is there. Values are compared
//! whole, so the field may also be an object or array; numbers by value, arrays in order, objects in any order. A value
//! is there if its key is, even with null, `[]` or `{}`.
//!
//! `{"changed": {"from": […], "to": […]}}`, alone in its list, also says what the old and the new value must be, each as
//! a field's list does; either may be left out.

mod changed;
mod compile;
mod index;
mod json;
pub mod limits;
mod naive;
mod number;
mod operators;
mod paths;
mod predicate;
mod ruleset;
mod scan;
mod sieve;
mod verify;
mod walk;
mod wildcard;
pub mod workload;

use std::sync::Arc;

use compile::Compiled;
use paths::Paths;
use verify::Seen;
use walk::{Record, walk};

pub use ruleset::{RuleSet, Scratch};

/// Keys that are repeated in their object, at any depth of a JSON text: a reader that keeps the last would hide it.
#[must_use]
pub fn repeated_keys(text: &str) -> Vec<PatternError> {
    compile::repeated_keys(text)
}

/// A checked and compiled pattern. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Pattern {
    compiled: Arc<Compiled>,
}

/// Why a text is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct PatternError {
    /// The place, such as `$.data.env[1]`. For malformed JSON it is `$`, and the message has line and column.
    pub path: String,
    pub message: String,
}

/// Why a text is no event that can be matched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an event, at byte {at}: {reason}")]
pub struct EventError {
    at: usize,
    reason: &'static str,
}

impl Pattern {
    /// Reads and checks a pattern. What EventBridge refuses is refused, and what exceeds [`limits`].
    /// Names the first mistake.
    pub fn parse(text: &str) -> Result<Pattern, PatternError> {
        Self::parse_all(text).map_err(|errors| {
            let nothing = || PatternError { path: "$".to_owned(), message: "is no pattern".to_owned() };
            errors.into_iter().next().unwrap_or_else(nothing)
        })
    }

    /// The same, but names every mistake, up to twenty of them.
    pub fn parse_all(text: &str) -> Result<Pattern, Vec<PatternError>> {
        Ok(Pattern { compiled: Arc::new(compile::compile(text)?) })
    }

    /// Whether one event matches. For many patterns or many events, a [`RuleSet`] is faster.
    pub fn matches(&self, event: &str) -> Result<bool, EventError> {
        let mut paths = Paths::new();
        let nodes = verify::acquire(&self.compiled, &mut paths);
        let mut record = Record::default();
        walk(event, &paths, &mut record)?;
        Ok(Seen { text: event, record: &record }.satisfies(&self.compiled, &nodes, None))
    }

    /// The same answer, found plainly from a parsed event: the measure for everything else here.
    pub fn naive_matches(&self, event: &serde_json::Value) -> bool {
        naive::matches(&self.compiled, event)
    }
}
