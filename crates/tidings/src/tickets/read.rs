//! What comes in for a ticket, judged: every field that is wrong is named.

use serde_json::{Map, Value};
use tidings_core::envelope::FieldError;

use super::callers::Callers;
use super::{NewTicket, Status};

/// Characters of what is wrong (S004-08), and of a comment (S004-13).
pub const DESCRIPTION_CHARS: usize = 10_000;
pub const COMMENT_CHARS: usize = 4_000;

/// What the server alone says of a ticket and of a comment (S004-05, S004-18).
const OF_THE_TICKET: [&str; 5] = ["ticket_id", "status", "created_at", "updated_at", "comments"];
const OF_THE_COMMENT: [&str; 2] = ["added_at", "author"];

pub fn new_ticket(fields: &Map<String, Value>, callers: &Callers) -> Result<NewTicket, Vec<FieldError>> {
    let mut errors = set_by_server(fields, &OF_THE_TICKET);
    let caller_id = string(fields, "caller_id").and_then(|text| callers.id(text));
    let caller_id = caller_id.unwrap_or_else(|why| note(&mut errors, "caller_id", why));
    let issue_description = text(fields, "issue_description", DESCRIPTION_CHARS);
    let issue_description = issue_description.unwrap_or_else(|why| note(&mut errors, "issue_description", why));
    if errors.is_empty() { Ok(NewTicket { caller_id, issue_description }) } else { Err(errors) }
}

pub fn comment(fields: &Map<String, Value>) -> Result<String, Vec<FieldError>> {
    let mut errors = set_by_server(fields, &OF_THE_COMMENT);
    let comment_text = text(fields, "comment_text", COMMENT_CHARS);
    let comment_text = comment_text.unwrap_or_else(|why| note(&mut errors, "comment_text", why));
    if errors.is_empty() { Ok(comment_text) } else { Err(errors) }
}

pub fn status(fields: &Map<String, Value>) -> Result<Status, Vec<FieldError>> {
    let known = string(fields, "status")
        .and_then(|text| Status::parse(text).ok_or_else(|| "must be open, in_progress, resolved or closed".to_owned()));
    known.map_err(|why| vec![FieldError::new("status", why)])
}

/// The fields among `names` that are given although only the server sets them.
pub fn set_by_server(fields: &Map<String, Value>, names: &[&str]) -> Vec<FieldError> {
    let given = names.iter().filter(|name| fields.contains_key(**name));
    given.map(|name| FieldError::new(*name, "is set by the server; leave it out")).collect()
}

fn note(errors: &mut Vec<FieldError>, field: &str, why: String) -> String {
    errors.push(FieldError::new(field, why));
    String::new()
}

fn string<'a>(fields: &'a Map<String, Value>, name: &str) -> Result<&'a str, String> {
    match fields.get(name) {
        None | Some(Value::Null) => Err("is required".to_owned()),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err("must be a string".to_owned()),
    }
}

fn text(fields: &Map<String, Value>, name: &str, most: usize) -> Result<String, String> {
    let text = string(fields, name)?;
    check_text(text, most)?;
    Ok(text.to_owned())
}

/// Words that people say: not empty, not too long, and nothing but lines of text.
pub fn check_text(text: &str, most: usize) -> Result<(), String> {
    if text.trim().is_empty() {
        Err("must not be empty".to_owned())
    } else if text.chars().count() > most {
        Err(format!("must have at most {most} characters"))
    } else if text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t')) {
        Err("must not contain control characters other than line breaks and tabs".to_owned())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    // S004-08, S004-13: at the limits.
    #[test]
    fn texts_are_limited() {
        for (most, length) in [(DESCRIPTION_CHARS, "issue_description"), (COMMENT_CHARS, "comment_text")] {
            for (more, good) in [(most - 1, true), (most, true), (most + 1, false)] {
                assert_eq!(check_text(&"é".repeat(more), most).is_ok(), good, "{length} {more}");
            }
        }
        assert!(check_text(" \n\t ", 10).is_err());
        assert!(check_text("a\u{0}b", 10).is_err());
        assert!(check_text("a\r\n\tb", 10).is_ok());
    }

    // S004-18: forbidden fields are all named, unknown ones are not looked at.
    #[test]
    fn every_mistake_is_named() {
        let callers = Callers::new(&[1; 32]);
        let fields = object(json!({ "caller_id": 7, "status": "closed", "comments": [], "more": 1 }));
        let errors = new_ticket(&fields, &callers).unwrap_err();
        let fields: Vec<_> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields, ["status", "comments", "caller_id", "issue_description"]);
        let good = object(json!({ "caller_id": "c", "issue_description": "x", "more": 1 }));
        assert_eq!(new_ticket(&good, &callers).unwrap().caller_id, "c");
        assert!(comment(&object(json!({ "comment_text": "x", "added_at": "now" }))).is_err());
        assert!(status(&object(json!({ "status": "done" }))).is_err());
        assert_eq!(status(&object(json!({ "status": "in_progress" }))).unwrap(), Status::InProgress);
    }
}
