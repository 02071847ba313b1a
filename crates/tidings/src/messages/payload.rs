//! What a payload may be, wherever it comes in: the API, batches, schedules, the dashboard, edits of dead letters. What is
//! taken must still fit when attempts, recipients and a dead letter are written with it.

use std::io;

use serde_json::{Map, Value as Json};
use tidings_store::{Error, Item, Value, limits};

use super::dead;

/// Bytes of a payload as JSON without blanks.
pub const BYTES: usize = 256 * 1024;
/// Levels of objects and lists, of which the payload itself is the first. An item has 32, and a dead letter has the
/// message inside.
pub const DEPTH: usize = 24;
/// Bytes of it in the store, where a short number takes more than its digit. The rest of an item is for what is written
/// later.
const STORED_BYTES: usize = limits::ITEM_BYTES - 80 * 1024;

/// A payload of so many bytes as JSON has room in the store: none of its characters takes more than twenty there.
const SURELY_STORED: usize = STORED_BYTES / 20;
/// Of a whole number with what stands around it; around a text, a list or an object is less.
const VALUE_BYTES: usize = 32;
/// Of a byte that JSON has to write as an escape.
const ESCAPED_BYTES: usize = 6;

/// # Errors
///
/// Why it cannot be taken, as the rest of a sentence that begins with its name.
pub fn check(payload: &Map<String, Json>) -> Result<(), String> {
    // Most are small and plain, and need neither be counted exactly nor be looked at as the store would hold them.
    if is_surely_taken(payload) {
        return Ok(());
    }
    let bytes = json_bytes(payload);
    if bytes > BYTES {
        return Err(format!("has {bytes} bytes, at most {BYTES} are allowed"));
    }
    if !payload.values().all(|value| is_within(value, DEPTH - 1)) {
        return Err(format!("is nested deeper than {DEPTH} levels"));
    }
    if !payload.iter().all(|(name, value)| !name.is_empty() && is_named(value)) {
        return Err("must have no empty name: every attribute needs one".to_owned());
    }
    let words = |error: Error| match error {
        Error::Invalid(why) => format!("cannot be stored: {why}"),
        error => format!("cannot be stored: {error}"),
    };
    let value = Value::from_record(payload).map_err(words)?;
    let stored = value.size();
    if stored > STORED_BYTES {
        return Err(format!("takes {stored} bytes in the store, at most {STORED_BYTES} are allowed"));
    }
    // Whatever else an item cannot hold.
    dead::table().check_item(&Item::new().with("id", "payload").with("payload", value)).map_err(words)
}

/// Writes numbers as they come back from the store, where 1.0 is 1: whoever is answered sees what everybody sees later
/// (S002-77).
pub fn keep_numbers(payload: &mut Map<String, Json>) {
    payload.values_mut().for_each(keep_number);
}

fn keep_number(value: &mut Json) {
    match value {
        Json::Number(number) if number.is_f64() => {
            // One that the store does not take is refused when it is written.
            if let Ok(kept) = Value::from_record(&*value).and_then(|kept| kept.to_record()) {
                *value = kept;
            }
        }
        Json::Array(list) => list.iter_mut().for_each(keep_number),
        Json::Object(map) => map.values_mut().for_each(keep_number),
        _ => {}
    }
}

/// Whether every limit holds, even if each character took as much room as one can: no level too many, each name has a
/// letter, and no number has a fraction or an exponent.
fn is_surely_taken(payload: &Map<String, Json>) -> bool {
    let mut left = SURELY_STORED;
    takes_map(payload, DEPTH - 1, &mut left).is_some()
}

/// Takes off what a value has as JSON at the most; `None` if it is not plain, or too large or too deep for that.
fn takes(value: &Json, levels: usize, left: &mut usize) -> Option<()> {
    *left = left.checked_sub(VALUE_BYTES)?;
    match value {
        Json::Null | Json::Bool(_) => {}
        Json::Number(number) if number.is_i64() || number.is_u64() => {}
        Json::Number(_) => return None,
        Json::String(text) => *left = left.checked_sub(text.len() * ESCAPED_BYTES)?,
        Json::Array(list) => {
            let levels = levels.checked_sub(1)?;
            list.iter().try_for_each(|value| takes(value, levels, left))?;
        }
        Json::Object(map) => takes_map(map, levels.checked_sub(1)?, left)?,
    }
    Some(())
}

fn takes_map(map: &Map<String, Json>, levels: usize, left: &mut usize) -> Option<()> {
    map.iter().try_for_each(|(name, value)| {
        *left = left.checked_sub(name.len() * ESCAPED_BYTES).filter(|_| !name.is_empty())?;
        takes(value, levels, left)
    })
}

fn json_bytes(payload: &Map<String, Json>) -> usize {
    struct Count(usize);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // A tree of JSON can always be written, and nothing fails that only counts.
    serde_json::to_writer(&mut count, payload).map_or(usize::MAX, |()| count.0)
}

/// Whether everything in a value has a name that is one.
fn is_named(value: &Json) -> bool {
    match value {
        Json::Array(list) => list.iter().all(is_named),
        Json::Object(map) => map.iter().all(|(name, value)| !name.is_empty() && is_named(value)),
        _ => true,
    }
}

/// Whether a value has at most so many levels.
fn is_within(value: &Json, levels: usize) -> bool {
    match value {
        Json::Array(list) => levels > 0 && list.iter().all(|value| is_within(value, levels - 1)),
        Json::Object(map) => levels > 0 && map.values().all(|value| is_within(value, levels - 1)),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fits(payload: Json) -> bool {
        check(payload.as_object().unwrap()).is_ok()
    }

    /// Objects in objects, the outermost counted.
    fn nested(levels: usize) -> Json {
        (0..levels).fold(json!(1), |inner, _| json!({ "a": inner }))
    }

    // SX-27
    #[test]
    fn limits_hold_to_the_last_one() {
        for (bytes, good) in [(BYTES - 1, true), (BYTES, true), (BYTES + 1, false)] {
            // {"z":""} has 8.
            assert_eq!(fits(json!({ "z": "a".repeat(bytes - 8) })), good, "{bytes}");
        }
        for (levels, good) in [(DEPTH - 1, true), (DEPTH, true), (DEPTH + 1, false)] {
            assert_eq!(fits(nested(levels)), good, "{levels}");
            let lists = (1..levels).fold(json!(1), |inner, _| json!([inner]));
            assert_eq!(fits(json!({ "a": lists })), good, "{levels} of lists");
        }
        assert!(!fits(json!({ "a": vec![7; 130_000] })), "short numbers take more in the store");
        assert!(!fits(json!({ "": 1 })) && !fits(json!({ "a": { "": 1 } })));
    }
}
