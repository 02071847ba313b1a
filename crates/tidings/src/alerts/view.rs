//! An alert as JSON and as a line of CSV: straight from its item, in the seed's order.

use std::fmt::Write as _;

use tidings_store::{Item, Value};

use super::record::{ATTRIBUTES, SUPPRESSED_BY};
use crate::http::csv;

/// Appends an alert as a JSON object: the seed's attributes that it has.
pub fn push_json(out: &mut String, item: &Item) {
    out.push('{');
    let mut first = true;
    for name in ATTRIBUTES.into_iter().chain([SUPPRESSED_BY]) {
        let Some(value) = item.get(name) else { continue };
        if !std::mem::take(&mut first) {
            out.push(',');
        }
        let _ = write!(out, "\"{name}\":");
        match value {
            Value::S(text) => push_text(out, text),
            Value::N(number) => drop(write!(out, "{number}")),
            Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
            _ => out.push_str("null"),
        }
    }
    out.push('}');
}

fn push_text(out: &mut String, text: &str) {
    // What needs no escape is copied as it is.
    if text.bytes().any(|byte| byte < 0x20 || byte == b'"' || byte == b'\\') {
        out.push_str(&serde_json::to_string(text).unwrap_or_default());
    } else {
        out.push('"');
        out.push_str(text);
        out.push('"');
    }
}

/// The first line of a CSV file: the attributes' names.
#[must_use]
pub fn csv_header() -> String {
    csv::row(&ATTRIBUTES)
}

/// Appends an alert as a line of CSV; what it does not have is an empty cell.
pub fn push_csv(out: &mut String, item: &Item) {
    for (place, name) in ATTRIBUTES.into_iter().enumerate() {
        if place > 0 {
            out.push(',');
        }
        match item.get(name) {
            Some(Value::S(text)) => csv::push_cell(out, text),
            Some(Value::N(number)) => drop(write!(out, "{number}")),
            Some(Value::Bool(flag)) => out.push_str(if *flag { "true" } else { "false" }),
            _ => {}
        }
    }
    out.push_str("\r\n");
}
