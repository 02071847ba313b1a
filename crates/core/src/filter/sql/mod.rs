//! The SQL of Service Bus: filters and actions. `lexer` cuts the text, `parser` checks it and builds an `Expr`, `eval`
//! asks it of a message, `action` changes one.

mod action;
mod eval;
mod expr;
mod lexer;
mod parser;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::EvaluationError;
use super::value::Value;
use super::view::{System, View};
use expr::Expr;
use parser::Parser;

pub use action::SqlAction;

/// Values for `@names` in a text, by name without the `@`.
pub type Parameters = BTreeMap<String, Value<'static>>;

/// A checked SQL filter. Cheap to clone.
#[derive(Debug, Clone)]
pub struct SqlFilter {
    text: Arc<str>,
    condition: Arc<Expr>,
}

/// Why a text is no filter or no action.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at character {at}: {message}")]
pub struct SqlError {
    /// Counted in characters, from 1.
    pub at: usize,
    pub message: String,
}

impl SqlFilter {
    pub fn parse(text: &str) -> Result<SqlFilter, SqlError> {
        SqlFilter::parse_with(text, &Parameters::new())
    }

    /// A text with `@names` in it, which stand for the values given here.
    pub fn parse_with(text: &str, parameters: &Parameters) -> Result<SqlFilter, SqlError> {
        let condition = Parser::new(text, parameters)?.filter()?;
        Ok(SqlFilter { text: text.into(), condition: Arc::new(condition) })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The properties of the broker that it asks for by name.
    pub fn asks_for(&self) -> BTreeSet<System> {
        let mut asked = BTreeSet::new();
        self.condition.each_system(&mut |property| {
            asked.insert(property);
        });
        asked
    }

    pub fn matches(&self, view: &dyn View) -> bool {
        self.evaluate(view).unwrap_or(false)
    }

    /// What is unknown in the end does not match; what cannot be computed is an error.
    pub fn evaluate(&self, view: &dyn View) -> Result<bool, EvaluationError> {
        Ok(eval::truth(&self.condition, view)?.unwrap_or(false))
    }
}

impl PartialEq for SqlFilter {
    fn eq(&self, other: &SqlFilter) -> bool {
        self.condition == other.condition
    }
}
