//! Asks an expression of a message. Unknown is `Null` among values and `None` among truths.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::expr::{Comparison, Expr, Property, Sum, Wanted};
use super::parser::single_char;
use crate::filter::EvaluationError;
use crate::filter::like::Like;
use crate::filter::limits::{MAX_LIKE_CHARS, MAX_TEXT_BYTES};
use crate::filter::value::Value;
use crate::filter::view::{System, View};

type Evaluated<T> = Result<T, EvaluationError>;

pub(super) fn truth(expr: &Expr, view: &dyn View) -> Evaluated<Option<bool>> {
    match expr {
        Expr::Not(inner) => Ok(truth(inner, view)?.map(|truth| !truth)),
        Expr::And(parts) => decided(parts, false, view),
        Expr::Or(parts) => decided(parts, true, view),
        Expr::Compare(comparison, left, right) => compare(*comparison, &value(left, view)?, &value(right, view)?),
        Expr::IsNull { of, not } if of.is_property() => {
            Ok(Some((find(of, view)?.unwrap_or(Value::Null) == Value::Null) != *not))
        }
        Expr::IsNull { of, not } => Ok(Some((value(of, view)? == Value::Null) != *not)),
        Expr::Exists(of) => Ok(Some(find(of, view)?.is_some())),
        Expr::In { value: of, list, not } => Ok(among(of, list, view)?.map(|found| found != *not)),
        Expr::Like { text, pattern, not } => Ok(like(text, pattern, view)?.map(|alike| alike != *not)),
        Expr::Constant(_)
        | Expr::Property(_)
        | Expr::Named(_)
        | Expr::NewId(_)
        | Expr::Sign { .. }
        | Expr::Compute(..) => match value(expr, view)? {
            Value::Null => Ok(None),
            Value::Bool(truth) => Ok(Some(truth)),
            other => Err(EvaluationError(format!("a condition is wanted where {} stands", other.kind()))),
        },
    }
}

pub(super) fn value<'a>(expr: &'a Expr, view: &'a dyn View) -> Evaluated<Value<'a>> {
    match expr {
        Expr::Constant(value) => Ok(borrow(value)),
        Expr::Property(_) | Expr::Named(_) => match find(expr, view)? {
            Some(value) => Ok(value),
            None => absent(expr, view).map(|()| Value::Null),
        },
        Expr::NewId(nth) => Ok(Value::Text(Cow::Owned(view.new_id(*nth)))),
        Expr::Sign { minus, of } => sign(*minus, value(of, view)?),
        Expr::Compute(sum, left, right) => compute(*sum, value(left, view)?, value(right, view)?),
        Expr::Not(_)
        | Expr::And(_)
        | Expr::Or(_)
        | Expr::Compare(..)
        | Expr::IsNull { .. }
        | Expr::In { .. }
        | Expr::Like { .. }
        | Expr::Exists(_) => Ok(truth(expr, view)?.map_or(Value::Null, Value::Bool)),
    }
}

fn borrow<'a>(value: &'a Value<'static>) -> Value<'a> {
    match value {
        Value::Text(text) => Value::text(text),
        other => other.clone(),
    }
}

/// `None` if the message does not have it.
fn find<'a>(expr: &'a Expr, view: &'a dyn View) -> Evaluated<Option<Value<'a>>> {
    match expr {
        Expr::Property(Property::System(property)) => Ok(view.system(*property)),
        Expr::Property(Property::User(name)) => Ok(view.user(name)),
        Expr::Named(name) => match value(name, view)? {
            Value::Null => Ok(None),
            Value::Text(name) => named(&name, view),
            other => Err(EvaluationError(format!("property() wants a name, not {}", other.kind()))),
        },
        _ => Ok(None),
    }
}

/// What a message does not have is unknown; of the broker's properties that may be an error.
fn absent(expr: &Expr, view: &dyn View) -> Evaluated<()> {
    let property = match expr {
        Expr::Property(Property::System(property)) => Some(*property),
        Expr::Named(name) => match value(name, view)? {
            Value::Text(name) => name
                .split_once('.')
                .filter(|(scope, _)| scope.eq_ignore_ascii_case("sys"))
                .and_then(|(_, name)| System::named(name)),
            _ => None,
        },
        _ => None,
    };
    match property.filter(|_| view.is_strict()) {
        Some(property) => Err(EvaluationError(format!("the message has no sys.{}", property.name()))),
        None => Ok(()),
    }
}

/// A name that was computed may have its scope in front.
fn named<'a>(name: &str, view: &'a dyn View) -> Evaluated<Option<Value<'a>>> {
    match name.split_once('.') {
        Some((scope, name)) if scope.eq_ignore_ascii_case("sys") => match System::named(name) {
            Some(property) => Ok(view.system(property)),
            None => Err(EvaluationError(format!("there is no system property `{name}`"))),
        },
        Some((scope, name)) if scope.eq_ignore_ascii_case("user") => Ok(view.user(name)),
        _ => Ok(view.user(name)),
    }
}

/// AND is decided by the first false, OR by the first true; else by whether any part is unknown.
fn decided(parts: &[Expr], by: bool, view: &dyn View) -> Evaluated<Option<bool>> {
    let mut answer = Some(!by);
    for part in parts {
        match truth(part, view)? {
            Some(truth) if truth == by => return Ok(Some(by)),
            Some(_) => {}
            None => answer = None,
        }
    }
    Ok(answer)
}

fn compare(comparison: Comparison, left: &Value<'_>, right: &Value<'_>) -> Evaluated<Option<bool>> {
    if *left == Value::Null || *right == Value::Null {
        return Ok(None);
    }
    let order = match comparison {
        Comparison::Equal => return Ok(Some(left.equals(right))),
        Comparison::NotEqual => return Ok(Some(!left.equals(right))),
        Comparison::Less | Comparison::LessOrEqual | Comparison::Greater | Comparison::GreaterOrEqual => left
            .order(right)
            .ok_or_else(|| EvaluationError(format!("{} cannot be ordered with {}", left.kind(), right.kind())))?,
    };
    Ok(Some(match comparison {
        Comparison::Less => order == Ordering::Less,
        Comparison::LessOrEqual => order != Ordering::Greater,
        Comparison::Greater => order == Ordering::Greater,
        Comparison::GreaterOrEqual => order != Ordering::Less,
        Comparison::Equal | Comparison::NotEqual => false,
    }))
}

fn among(of: &Expr, list: &[Expr], view: &dyn View) -> Evaluated<Option<bool>> {
    let of = value(of, view)?;
    let mut answer = Some(false);
    for item in list {
        match compare(Comparison::Equal, &of, &value(item, view)?)? {
            Some(true) => return Ok(Some(true)),
            Some(false) => {}
            None => answer = None,
        }
    }
    Ok(answer)
}

fn like(text: &Expr, wanted: &Wanted, view: &dyn View) -> Evaluated<Option<bool>> {
    let text = match value(text, view)? {
        Value::Null => return Ok(None),
        Value::Text(text) => text,
        other => return Err(EvaluationError(format!("LIKE wants a string, not {}", other.kind()))),
    };
    let (pattern, escape) = match wanted {
        Wanted::Known(like) => return Ok(Some(like.matches(&text))),
        Wanted::Computed { pattern, escape } => (pattern, escape),
    };
    let pattern = match value(pattern, view)? {
        Value::Null => return Ok(None),
        Value::Text(pattern) => pattern,
        other => return Err(EvaluationError(format!("a LIKE pattern is a string, not {}", other.kind()))),
    };
    if pattern.chars().count() > MAX_LIKE_CHARS {
        return Err(EvaluationError(format!("a LIKE pattern is longer than {MAX_LIKE_CHARS} characters")));
    }
    let escape = match escape.as_deref().map(|escape| value(escape, view)).transpose()? {
        None => None,
        Some(Value::Null) => return Ok(None),
        Some(value) => Some(
            single_char(&value).ok_or_else(|| EvaluationError("ESCAPE wants a string of one character".to_owned()))?,
        ),
    };
    let like = Like::parse(&pattern, escape).map_err(|error| EvaluationError(error.to_string()))?;
    Ok(Some(like.matches(&text)))
}

fn sign<'a>(minus: bool, value: Value<'a>) -> Evaluated<Value<'a>> {
    match (minus, value) {
        (_, Value::Null) => Ok(Value::Null),
        (false, number @ (Value::Integer(_) | Value::Float(_))) => Ok(number),
        (true, Value::Integer(number)) => number.checked_neg().map(Value::Integer).ok_or_else(overflow),
        (true, Value::Float(number)) => Ok(Value::Float(-number)),
        (_, other) => Err(EvaluationError(format!("a sign cannot stand before {}", other.kind()))),
    }
}

fn compute<'a>(sum: Sum, left: Value<'a>, right: Value<'a>) -> Evaluated<Value<'a>> {
    match (left, right) {
        (Value::Null, _) | (_, Value::Null) => Ok(Value::Null),
        (Value::Integer(a), Value::Integer(b)) => integers(sum, a, b).map(Value::Integer),
        (left @ Value::Text(_), right) | (left, right @ Value::Text(_)) if sum == Sum::Add => {
            let joined = format!("{left}{right}");
            match joined.len() <= MAX_TEXT_BYTES {
                true => Ok(Value::Text(Cow::Owned(joined))),
                false => Err(EvaluationError(format!("a text would be longer than {MAX_TEXT_BYTES} bytes"))),
            }
        }
        (left, right) => match (left.as_f64(), right.as_f64()) {
            (Some(a), Some(b)) => doubles(sum, a, b).map(Value::Float),
            _ => Err(EvaluationError(format!("no arithmetic between {} and {}", left.kind(), right.kind()))),
        },
    }
}

fn integers(sum: Sum, a: i64, b: i64) -> Evaluated<i64> {
    if b == 0 && matches!(sum, Sum::Divide | Sum::Remainder) {
        return Err(EvaluationError("division by zero".to_owned()));
    }
    let result = match sum {
        Sum::Add => a.checked_add(b),
        Sum::Subtract => a.checked_sub(b),
        Sum::Multiply => a.checked_mul(b),
        Sum::Divide => a.checked_div(b),
        Sum::Remainder => a.checked_rem(b),
    };
    result.ok_or_else(overflow)
}

fn doubles(sum: Sum, a: f64, b: f64) -> Evaluated<f64> {
    let result = match sum {
        Sum::Add => a + b,
        Sum::Subtract => a - b,
        Sum::Multiply => a * b,
        Sum::Divide => a / b,
        Sum::Remainder => a % b,
    };
    match result.is_finite() {
        true => Ok(result),
        false if b == 0.0 => Err(EvaluationError("division by zero".to_owned())),
        false => Err(overflow()),
    }
}

fn overflow() -> EvaluationError {
    EvaluationError("a number is too large".to_owned())
}
