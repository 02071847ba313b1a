//! Images of items: attributes by name, typed as DynamoDB has them (`{"S": "x"}`) or plain JSON (S001-16).

use serde_json::{Map, Number, Value};
use tidings_store::Number as Decimal;

/// DynamoDB's types, by the key that names them.
const TYPES: [&str; 10] = ["S", "N", "B", "BOOL", "NULL", "M", "L", "SS", "NS", "BS"];

/// One image of an item.
#[derive(Debug, Clone, Default)]
pub struct Image(Map<String, Value>);

impl Image {
    /// The image that a record has under a name; a record may have none.
    pub fn of(value: Option<&Value>) -> Result<Option<Self>, String> {
        match value {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Object(attributes)) => {
                Ok(Some(Self(attributes.iter().map(|(name, value)| (name.clone(), typed(value))).collect())))
            }
            Some(_) => Err("must be an object".to_owned()),
        }
    }

    /// With every value typed, whichever way it came.
    #[must_use]
    pub fn typed(&self) -> Value {
        Value::Object(self.0.clone())
    }

    fn get(&self, name: &str) -> Option<(&str, &Value)> {
        let (kind, value) = self.0.get(name)?.as_object()?.iter().next()?;
        (kind != "NULL").then_some((kind.as_str(), value))
    }

    /// An attribute that is text; an empty one counts as absent, as spreadsheets make them.
    pub fn text(&self, name: &str) -> Result<Option<&str>, String> {
        match self.get(name) {
            None => Ok(None),
            Some(("S", Value::String(text))) => Ok(Some(text.trim()).filter(|text| !text.is_empty())),
            Some(_) => Err(format!("{name} must be a string")),
        }
    }

    /// An attribute that is yes or no, however it is spelt (S001-26).
    pub fn truth(&self, name: &str) -> Result<Option<bool>, String> {
        match self.get(name) {
            None => Ok(None),
            Some(("BOOL", Value::Bool(truth))) => Ok(Some(*truth)),
            Some(("S", Value::String(text))) if text.trim().is_empty() => Ok(None),
            Some(("S", Value::String(text))) if text.trim().eq_ignore_ascii_case("true") => Ok(Some(true)),
            Some(("S", Value::String(text))) if text.trim().eq_ignore_ascii_case("false") => Ok(Some(false)),
            Some(_) => Err(format!("{name} must be true or false")),
        }
    }

    /// An attribute that is a number, or text that is one: as JSON's number if that says the same, else as its digits.
    pub fn number(&self, name: &str) -> Result<Option<Value>, String> {
        match self.get(name) {
            None => Ok(None),
            Some(("S", Value::String(text))) if text.trim().is_empty() => Ok(None),
            Some(("N" | "S", Value::String(text))) => {
                number(text.trim()).map(Some).ok_or_else(|| format!("{name} must be a number"))
            }
            Some(_) => Err(format!("{name} must be a number")),
        }
    }
}

/// A number in the one form that its value has, so that 24 and 24.0 are one score, and two that a double cannot tell apart
/// are two (S001-35).
fn number(text: &str) -> Option<Value> {
    let near = double(text);
    let Ok(exact) = text.parse::<Decimal>() else { return near.map(Value::Number) };
    let same = near.filter(|near| near.to_string().parse::<Decimal>().is_ok_and(|near| near == exact));
    Some(same.map_or_else(|| exact.to_string().into(), Value::Number))
}

/// The nearest number that JSON's readers can hold.
fn double(text: &str) -> Option<Number> {
    if let Ok(whole) = text.parse::<i64>() {
        return Some(whole.into());
    }
    let value: f64 = text.parse().ok()?;
    #[expect(clippy::cast_possible_truncation, reason = "only whole numbers that fit are taken")]
    if value.fract() == 0.0 && value.abs() < 9e15 {
        return Some((value as i64).into());
    }
    Number::from_f64(value)
}

/// A value with its type, if it has none yet.
fn typed(value: &Value) -> Value {
    let named = |kind: &str, value: Value| Value::Object(Map::from_iter([(kind.to_owned(), value)]));
    match value {
        Value::Object(fields) if fields.len() == 1 && fields.keys().all(|kind| TYPES.contains(&kind.as_str())) => {
            value.clone()
        }
        Value::Object(fields) => {
            named("M", Value::Object(fields.iter().map(|(name, value)| (name.clone(), typed(value))).collect()))
        }
        Value::Array(list) => named("L", Value::Array(list.iter().map(typed).collect())),
        Value::String(_) => named("S", value.clone()),
        Value::Number(number) => named("N", Value::String(number.to_string())),
        Value::Bool(_) => named("BOOL", value.clone()),
        Value::Null => named("NULL", Value::Bool(true)),
    }
}
