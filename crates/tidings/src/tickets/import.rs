//! Tickets from elsewhere: the seed's documents, plain or in DynamoDB's typed form (S004-31, S004-32).

use serde_json::{Map, Value};
use tidings_core::envelope::FieldError;
use tidings_core::time::Timestamp;
use uuid::Uuid;

use super::callers::Callers;
use super::read::check_text;
use super::record::{Comment, Ticket, to_micros};
use super::{Status, redact};

/// Reads one ticket; `at` is its place in the request, for the errors.
pub fn ticket(at: &str, value: &Value, callers: &Callers) -> Result<Ticket, Vec<FieldError>> {
    let Some(fields) = value.as_object() else { return Err(vec![FieldError::new(at, "must be an object")]) };
    let fields = plain(fields);
    let mut reader = Reader { at, fields: &fields, errors: Vec::new() };
    let ticket_id = reader.field("ticket_id", |text| {
        Uuid::try_parse(text).map(|id| id.hyphenated().to_string()).map_err(|_| "must be a UUID".to_owned())
    });
    let caller_id = reader.field("caller_id", |text| callers.id(text));
    let issue_description =
        reader.field("issue_description", |text| check_text(text, usize::MAX).map(|()| redact(text).0));
    let status = reader.field("status", |text| {
        Status::parse(text).ok_or_else(|| "must be open, in_progress, resolved or closed".to_owned())
    });
    let created_at = reader.field("created_at", time);
    let updated_at = reader.field("updated_at", time);
    let comments = reader.comments();
    let (Some(ticket_id), Some(caller_id), Some(issue_description), Some(status), Some(created_at), Some(updated_at)) =
        (ticket_id, caller_id, issue_description, status, created_at, updated_at)
    else {
        return Err(reader.errors);
    };
    if !reader.errors.is_empty() {
        return Err(reader.errors);
    }
    // S004-25
    let last = comments.iter().map(|comment| comment.added_at).max();
    let updated_at = updated_at.max(created_at).max(last.unwrap_or(updated_at));
    Ok(Ticket { ticket_id, caller_id, issue_description, status, created_at, updated_at, comments, expires_at: None })
}

struct Reader<'a> {
    at: &'a str,
    fields: &'a Map<String, Value>,
    errors: Vec<FieldError>,
}

impl Reader<'_> {
    fn field<T>(&mut self, name: &str, read: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let read = match self.fields.get(name) {
            Some(Value::String(text)) => read(text),
            None | Some(Value::Null) => Err("is required".to_owned()),
            Some(_) => Err("must be a string".to_owned()),
        };
        read.map_err(|why| self.errors.push(FieldError::new(format!("{}.{name}", self.at), why))).ok()
    }

    fn comments(&mut self) -> Vec<Comment> {
        let list = match self.fields.get("comments") {
            None | Some(Value::Null) => return Vec::new(),
            Some(Value::Array(list)) => list,
            Some(_) => {
                self.errors.push(FieldError::new(format!("{}.comments", self.at), "must be a list"));
                return Vec::new();
            }
        };
        let mut comments = Vec::with_capacity(list.len());
        for (place, value) in list.iter().enumerate() {
            let at = format!("{}.comments[{place}]", self.at);
            let Some(fields) = value.as_object() else {
                self.errors.push(FieldError::new(at, "must be an object"));
                continue;
            };
            let mut reader = Reader { at: &at, fields, errors: Vec::new() };
            let text = reader.field("comment_text", |text| check_text(text, usize::MAX).map(|()| redact(text).0));
            let added_at = reader.field("added_at", time);
            let author = fields.get("author").and_then(Value::as_str).map(ToOwned::to_owned);
            self.errors.append(&mut reader.errors);
            if let (Some(comment_text), Some(added_at)) = (text, added_at) {
                comments.push(Comment { comment_text, added_at, author });
            }
        }
        comments
    }
}

fn time(text: &str) -> Result<Timestamp, String> {
    let at = tidings_core::envelope::read_time(&Value::from(text).to_string())?;
    Ok(to_micros(at))
}

/// The fields without DynamoDB's types, if they have them.
fn plain(fields: &Map<String, Value>) -> Map<String, Value> {
    let typed = fields.get("ticket_id").is_some_and(Value::is_object);
    if !typed {
        return fields.clone();
    }
    fields.iter().map(|(name, value)| (name.clone(), untyped(value, 0))).collect()
}

/// `{"S": "x"}` is `"x"`, and so on through lists and maps.
fn untyped(value: &Value, depth: usize) -> Value {
    let Some((kind, inner)) = value.as_object().filter(|one| one.len() == 1).and_then(|one| one.iter().next()) else {
        return value.clone();
    };
    match (kind.as_str(), inner) {
        ("S" | "N" | "BOOL", inner) => inner.clone(),
        ("NULL", _) => Value::Null,
        ("L", Value::Array(list)) if depth < 32 => list.iter().map(|value| untyped(value, depth + 1)).collect(),
        ("M", Value::Object(map)) if depth < 32 => {
            Value::Object(map.iter().map(|(name, value)| (name.clone(), untyped(value, depth + 1))).collect())
        }
        _ => value.clone(),
    }
}
