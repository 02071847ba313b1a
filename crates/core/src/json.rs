//! JSON at the door: well-formed, not too deep, and the top-level fields of an object without a tree.

use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::limits::JSON_DEPTH;

/// The text is no acceptable JSON; the sentence says where and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadJson(pub String);

/// Refuses text that is nested deeper than [`JSON_DEPTH`], before any parser recurses into it.
pub fn check_depth(text: &str) -> Result<(), BadJson> {
    // Where there are few brackets, there is no need to see which are inside which.
    if brackets(text) <= JSON_DEPTH {
        return Ok(());
    }
    let mut depth = 0_usize;
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'{' | b'[' => {
                depth += 1;
                if depth > JSON_DEPTH {
                    return Err(BadJson(format!("the JSON is nested deeper than {JSON_DEPTH} levels")));
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => loop {
                match bytes.next() {
                    Some(b'\\') => drop(bytes.next()),
                    Some(b'"') | None => break,
                    Some(_) => {}
                }
            },
            _ => {}
        }
    }
    Ok(())
}

/// How many brackets open in a text, wherever they stand.
#[must_use]
pub fn brackets(text: &str) -> usize {
    // Counted in bytes, as many as one can hold, which the processor adds up many at a time. The two brackets differ by
    // one bit, which no other byte has in common with them.
    let open = |byte: &u8| u8::from(byte | 0x20 == b'{');
    text.as_bytes().chunks(255).map(|chunk| usize::from(chunk.iter().map(open).sum::<u8>())).sum()
}

/// Bytes as JSON text: UTF-8, not too deep.
pub fn text(bytes: &[u8]) -> Result<&str, BadJson> {
    let text = utf8(bytes)?;
    check_depth(text)?;
    Ok(text)
}

/// Bytes as text.
pub fn utf8(bytes: &[u8]) -> Result<&str, BadJson> {
    std::str::from_utf8(bytes).map_err(|e| BadJson(format!("the text is not UTF-8 at byte {}", e.valid_up_to())))
}

/// Parses a whole text into `T`, with a sentence about where it failed.
pub fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, BadJson> {
    serde_json::from_str(text).map_err(|e| BadJson(format!("the JSON is not acceptable: {e}")))
}

/// The fields of an object in their order, each with the text of its value.
#[derive(Debug)]
pub struct Fields<'a>(pub Vec<(std::borrow::Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = Vec::with_capacity(12);
                while let Some(BorrowedName(name)) = map.next_key()? {
                    fields.push((name, map.next_value()?));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

/// A name that borrows unless it has escapes.
#[derive(Deserialize)]
struct BorrowedName<'a>(#[serde(borrow)] std::borrow::Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_limited_at_64() {
        let nested = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
        assert!(check_depth(&nested(JSON_DEPTH - 1)).is_ok());
        assert!(check_depth(&nested(JSON_DEPTH)).is_ok());
        assert!(check_depth(&nested(JSON_DEPTH + 1)).is_err());
        assert!(check_depth(&format!(r#"{{"a":"{}\"{{"}}"#, "[".repeat(100))).is_ok(), "brackets in text do not count");
    }

    #[test]
    fn fields_keep_the_text_of_their_values() {
        let fields: Fields = parse(r#"{"a\n": 1.50, "b":{"x" : [ ]} }"#).unwrap();
        let shown: Vec<_> = fields.0.iter().map(|(name, value)| (name.as_ref(), value.get())).collect();
        assert_eq!(shown, [("a\n", "1.50"), ("b", r#"{"x" : [ ]}"#)]);
        assert!(parse::<Fields>("[]").is_err());
        assert!(parse::<Fields>("{} x").is_err());
    }
}
