//! SQL actions: what becomes of a message's properties when a rule has taken it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::eval::value;
use super::expr::{Expr, Property};
use super::parser::Parser;
use super::{Parameters, SqlError};
use crate::filter::EvaluationError;
use crate::filter::value::Value;
use crate::filter::view::{Change, System};

/// Checked `SET` and `REMOVE` statements. Cheap to clone.
#[derive(Debug, Clone)]
pub struct SqlAction {
    text: Arc<str>,
    statements: Arc<[Statement]>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Statement {
    Set(Property, Expr),
    Remove(Property),
}

impl SqlAction {
    pub fn parse(text: &str) -> Result<SqlAction, SqlError> {
        SqlAction::parse_with(text, &Parameters::new())
    }

    /// A text with `@names` in it, which stand for the values given here.
    pub fn parse_with(text: &str, parameters: &Parameters) -> Result<SqlAction, SqlError> {
        let statements = Parser::new(text, parameters)?.statements()?;
        Ok(SqlAction { text: text.into(), statements: statements.into() })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The properties of the broker that it reads by name.
    pub fn asks_for(&self) -> BTreeSet<System> {
        let mut asked = BTreeSet::new();
        for statement in &*self.statements {
            if let Statement::Set(_, to) = statement {
                to.each_system(&mut |property| {
                    asked.insert(property);
                });
            }
        }
        asked
    }

    /// Does the statements in order; each sees what those before it did. After an error the message may be changed in
    /// part, so hand in a copy that can be thrown away.
    pub fn apply<M: Change>(&self, message: &mut M) -> Result<(), EvaluationError> {
        for statement in &*self.statements {
            match statement {
                Statement::Remove(Property::User(name)) => message.remove_user(name),
                Statement::Remove(Property::System(property)) => message.set_system(*property, None),
                Statement::Set(Property::User(name), to) => {
                    let new = value(to, &*message)?.into_owned();
                    let new = like_the_old(message.user(name), new);
                    message.set_user(name, new);
                }
                Statement::Set(Property::System(property), to) => {
                    let new = system_text(*property, value(to, &*message)?)?;
                    message.set_system(*property, new);
                }
            }
        }
        Ok(())
    }
}

impl PartialEq for SqlAction {
    fn eq(&self, other: &SqlAction) -> bool {
        self.statements == other.statements
    }
}

/// An integer widens to the double that it replaces. Nothing else converts by itself.
fn like_the_old(old: Option<Value<'_>>, new: Value<'static>) -> Value<'static> {
    match (old, new) {
        (Some(Value::Float(_)), Value::Integer(integer)) => Value::Float(integer as f64),
        (_, new) => new,
    }
}

fn system_text(property: System, value: Value<'_>) -> Result<Option<String>, EvaluationError> {
    match value {
        Value::Null if property == System::MessageId => {
            Err(EvaluationError("sys.MessageId cannot be set to null: every message has one".to_owned()))
        }
        Value::Null => Ok(None),
        other => Ok(Some(other.to_string())),
    }
}
