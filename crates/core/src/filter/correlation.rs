//! Correlation filters: a few properties, each of which must have exactly the value given.

use serde_json::Value as Json;

use super::limits::{MAX_CORRELATED, MAX_NAME_CHARS};
use super::value::Value;
use super::view::{System, View, same_name};

/// A checked correlation filter. All its conditions must hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Correlation {
    system: Vec<(System, Box<str>)>,
    user: Vec<(Box<str>, Value<'static>)>,
}

/// One thing wrong with a correlation filter. All of them are told at once.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct CorrelationError {
    /// Such as `properties.tenant`; empty for the filter as a whole.
    pub field: String,
    pub message: String,
}

impl Correlation {
    /// Reads `{"correlationId": "c1", "subject": "order", "properties": {"tenant": 7}}`. Names of the broker's
    /// properties count whatever their case (`label` is `subject`); any other name beside them that has a single value
    /// is a property of the sender, as inside `properties`.
    pub fn from_json(json: &Json) -> Result<Correlation, Vec<CorrelationError>> {
        let Json::Object(members) = json else {
            return Err(vec![error("", "must be an object of properties and the values they must have")]);
        };
        let mut filter = Correlation::default();
        let mut errors = Vec::new();
        for (name, value) in members {
            match (System::named(name).filter(|property| property.correlates()), value) {
                (Some(property), Json::String(text)) => filter.ask_system(property, text, name, &mut errors),
                (Some(_), _) => errors.push(error(name, "must be a string")),
                (None, Json::Object(user)) if name == "properties" => {
                    user.iter().for_each(|(inner, value)| {
                        filter.ask_user(inner, value, format!("properties.{inner}"), &mut errors);
                    });
                }
                (None, _) if name == "properties" => errors.push(error(name, "must be an object")),
                (None, _) => filter.ask_user(name, value, name.clone(), &mut errors),
            }
        }
        let asked = filter.system.len() + filter.user.len();
        if asked > MAX_CORRELATED {
            errors.push(error("", format!("asks for {asked} properties, more than {MAX_CORRELATED}")));
        }
        if asked == 0 && errors.is_empty() {
            errors.push(error("", "must ask for at least one property"));
        }
        if errors.is_empty() { Ok(filter) } else { Err(errors) }
    }

    pub fn matches(&self, view: &dyn View) -> bool {
        let text_is = |held: Option<Value<'_>>, text: &str| held.is_some_and(|held| held.equals(&Value::text(text)));
        self.system.iter().all(|(property, text)| text_is(view.system(*property), text))
            && self.user.iter().all(|(name, value)| view.user(name).is_some_and(|held| held.equals(value)))
    }

    /// What it asks of the broker's properties.
    pub fn system(&self) -> impl Iterator<Item = (System, &str)> {
        self.system.iter().map(|(property, text)| (*property, &**text))
    }

    /// What it asks of the sender's properties.
    pub fn user(&self) -> impl Iterator<Item = (&str, &Value<'static>)> {
        self.user.iter().map(|(name, value)| (&**name, value))
    }

    fn ask_system(&mut self, property: System, text: &str, field: &str, errors: &mut Vec<CorrelationError>) {
        if self.system.iter().any(|(known, _)| *known == property) {
            return errors.push(error(field, format!("asks a second time for {}", property.name())));
        }
        self.system.push((property, text.into()));
    }

    fn ask_user(&mut self, name: &str, json: &Json, field: String, errors: &mut Vec<CorrelationError>) {
        if name.is_empty() || name.chars().count() > MAX_NAME_CHARS {
            return errors.push(error(field, format!("a name has 1 to {MAX_NAME_CHARS} characters")));
        }
        if self.user.iter().any(|(known, _)| same_name(known, name)) {
            return errors.push(error(field, "asks a second time for the same property; case does not count in names"));
        }
        match Value::from_json(json) {
            None | Some(Value::Null) => errors.push(error(field, "must be a string, a number or a boolean")),
            Some(value) => self.user.push((name.into(), value.into_owned())),
        }
    }
}

fn error(field: impl Into<String>, message: impl Into<String>) -> CorrelationError {
    CorrelationError { field: field.into(), message: message.into() }
}
