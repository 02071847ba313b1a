//! Entries as the API shows them, written straight from the stored item: a page is read far more often than changed.

use tidings_store::{Item, Value};

use super::record::ALL;

/// Writes one entry as a JSON object (S001-85 to S001-88).
pub fn write(out: &mut Vec<u8>, item: &Item) {
    let text = |name: &str| item.str(name);
    let kind = text("event_type").unwrap_or_default();
    let status = text("status_ordenar").and_then(|key| key.split('#').next());
    let mut fields = Fields { out, first: true };
    fields.text("user", text("cod_chav_patc"));
    fields.text("productid", text("product_id"));
    fields.text("question", text("question"));
    fields.text("type", Some(if kind == "question" { "compliance" } else { kind }));
    fields.text("event_type", Some(kind));
    fields.value("old_score", item.get("old_score"));
    fields.value("new_score", item.get("new_score"));
    fields.text("compliance", compliance(item));
    fields.text("env", text("env"));
    fields.text("notification_identifier", text("cod_ordenar_chav"));
    fields.text("status", status);
    fields.text("time", text("created_at"));
    fields.text("read_at", text("read_at"));
    fields.text("link", text("link"));
    fields.text("title", text("title"));
    fields.text("text", text("text"));
    fields.out.push(b'}');
}

/// The part of an entry's key that all its keys share.
#[must_use]
pub fn time_of(item: &Item) -> Option<&str> {
    item.str("cod_ordenar_chav")?.strip_prefix(ALL)
}

/// `false` in the store is `pending` for people (S001-87).
fn compliance(item: &Item) -> Option<&'static str> {
    match item.get("compliance") {
        Some(Value::Bool(false)) => Some("pending"),
        Some(Value::Bool(true)) => Some("compliant"),
        _ => None,
    }
}

struct Fields<'a> {
    out: &'a mut Vec<u8>,
    first: bool,
}

impl Fields<'_> {
    fn name(&mut self, name: &str) {
        self.out.extend_from_slice(if self.first { b"{\"" } else { b",\"" });
        self.first = false;
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
    }

    fn text(&mut self, name: &str, text: Option<&str>) {
        self.name(name);
        match text {
            Some(text) => write_text(self.out, text),
            None => self.out.extend_from_slice(b"null"),
        }
    }

    /// A number or text; scores are either.
    fn value(&mut self, name: &str, value: Option<&Value>) {
        match value {
            Some(Value::N(number)) => {
                self.name(name);
                self.out.extend_from_slice(number.to_string().as_bytes());
            }
            other => self.text(name, other.and_then(Value::as_str)),
        }
    }
}

/// Writes text as a JSON string.
pub fn write_text(out: &mut Vec<u8>, text: &str) {
    // Writing text into memory cannot fail.
    let _ = serde_json::to_writer(out, text);
}
