//! An alert as JSON and as a line of CSV: straight from its item, in the seed's order.

use std::fmt::Write as _;

use tidings_store::{Item, Number, Value};

use super::record::{ATTRIBUTES, DELIVERY_ID, SUPPRESSED_BY};
use crate::http::csv;

/// Appends an alert as a JSON object: the seed's attributes that it has.
pub fn push_json(out: &mut String, item: &Item) {
    out.push('{');
    let mut first = true;
    for name in ATTRIBUTES.into_iter().chain([SUPPRESSED_BY, DELIVERY_ID]) {
        let Some(value) = item.get(name) else { continue };
        if !std::mem::take(&mut first) {
            out.push(',');
        }
        out.push('"');
        out.push_str(name);
        out.push_str("\":");
        match value {
            Value::S(text) => push_text(out, text),
            Value::N(number) => push_number(out, number),
            Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
            _ => out.push_str("null"),
        }
    }
    out.push('}');
}

fn push_number(out: &mut String, number: &Number) {
    let _ = match number.to_i64() {
        Some(whole) => write!(out, "{whole}"),
        None => write!(out, "{number}"),
    };
}

/// A string of JSON. Most of an alert is text, so stretches that need no escape are copied as they are.
fn push_text(out: &mut String, text: &str) {
    out.push('"');
    let mut copied = 0;
    for (place, byte) in text.bytes().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.push_str(text.get(copied..place).unwrap_or_default());
        copied = place + 1;
        let _ = match byte {
            b'"' => out.write_str("\\\""),
            b'\\' => out.write_str("\\\\"),
            b'\n' => out.write_str("\\n"),
            b'\r' => out.write_str("\\r"),
            b'\t' => out.write_str("\\t"),
            _ => write!(out, "\\u{byte:04x}"),
        };
    }
    out.push_str(text.get(copied..).unwrap_or_default());
    out.push('"');
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
            Some(Value::N(number)) => push_number(out, number),
            Some(Value::Bool(flag)) => out.push_str(if *flag { "true" } else { "false" }),
            _ => {}
        }
    }
    out.push_str("\r\n");
}

#[cfg(test)]
mod tests {
    use super::push_text;

    #[test]
    fn a_text_is_read_back_as_it_was() {
        let every: String = (0..0x2_0000_u32).filter_map(char::from_u32).collect();
        for text in ["", "plain", "\"", "\\", "a\"b\\c\nd", "\u{0}\u{1f}\u{7f}", &every] {
            let mut out = String::new();
            push_text(&mut out, text);
            assert_eq!(serde_json::from_str::<String>(&out).unwrap(), text);
        }
    }
}
