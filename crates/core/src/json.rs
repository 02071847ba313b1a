//! JSON at the door: well-formed, not too deep, and the top-level fields of an object without a tree.

mod borrowed;
mod scan;

pub use borrowed::{Borrowed, Object};

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::limits::JSON_DEPTH;

/// The text is no acceptable JSON; the sentence says where and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadJson(pub String);

/// Refuses text that is nested deeper than [`JSON_DEPTH`], before any parser recurses into it.
pub fn check_depth(text: &str) -> Result<(), BadJson> {
    check_depth_within(text, 0)
}

/// The same for text that stands inside so many levels.
pub fn check_depth_within(text: &str, levels: usize) -> Result<(), BadJson> {
    // Where there are few brackets, there is no need to see which are inside which.
    if brackets(text) + levels <= JSON_DEPTH {
        return Ok(());
    }
    let mut depth = levels;
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

/// Refuses what is JSON by its grammar and still means nothing: half of a character that takes two escapes, and a number
/// that no double can hold. The text is well-formed.
pub fn check_values(text: &str) -> Result<(), BadJson> {
    let bytes = text.as_bytes();
    if !may_mean_nothing(bytes) {
        return Ok(());
    }
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        at = match byte {
            b'"' => check_text(bytes, at + 1)?,
            b'-' | b'0'..=b'9' => check_number(text, at)?,
            _ => at + 1,
        };
    }
    Ok(())
}

/// Whether there is an escape by number, an exponent, or a very long number: most texts have none of them, and one look
/// without a branch tells.
fn may_mean_nothing(bytes: &[u8]) -> bool {
    let rest = bytes.get(1..).unwrap_or_default();
    let suspect = |(a, b): (&u8, &u8)| (*a == b'\\') & (*b == b'u') | a.is_ascii_digit() & (b | 0x20 == b'e');
    bytes.iter().zip(rest).fold(false, |found, pair| found | suspect(pair))
        // Numbers beyond a double's range have more than three hundred digits, and so fill one of these.
        || bytes.chunks_exact(128).any(|chunk| chunk.iter().all(u8::is_ascii_digit))
}

/// Checks a JSON string from after its quote; gives where it ends.
fn check_text(bytes: &[u8], mut at: usize) -> Result<usize, BadJson> {
    loop {
        at = find_stop(bytes, at);
        match bytes.get(at) {
            None | Some(b'"') => return Ok(at + 1),
            Some(b'\\') => match escaped(bytes, at) {
                Some(0xD800..=0xDBFF) if matches!(escaped(bytes, at + 6), Some(0xDC00..=0xDFFF)) => at += 12,
                Some(half @ 0xD800..=0xDFFF) => {
                    return Err(BadJson(format!("has \\u{half:04x} alone, which is half of a character")));
                }
                _ => at += 2,
            },
            Some(_) => at += 1,
        }
    }
}

/// The number in an escape that begins here, if one does.
fn escaped(bytes: &[u8], at: usize) -> Option<u16> {
    let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Checks a number that begins here; gives where it ends.
fn check_number(text: &str, at: usize) -> Result<usize, BadJson> {
    let rest = text.get(at..).unwrap_or_default();
    let end = rest.find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-' | 'e' | 'E')).unwrap_or(rest.len());
    let number = rest.get(..end).unwrap_or_default();
    // What is short and has no exponent is within every double's range.
    let is_short = number.len() <= 300 && !number.contains(['e', 'E']);
    if is_short || number.parse::<f64>().is_ok_and(f64::is_finite) {
        return Ok(at + end);
    }
    let shown: String = number.chars().take(40).collect();
    let dots = if shown.len() < number.len() { "…" } else { "" };
    Err(BadJson(format!("has the number {shown}{dots}, which is too large")))
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// The first quote, backslash or control character from `at` on; eight bytes at a time.
#[inline]
pub(crate) fn find_stop(bytes: &[u8], mut at: usize) -> usize {
    while let Some(chunk) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let word = u64::from_le_bytes(*chunk);
        // The classic test for a zero byte. Borrows only disturb bytes above a true hit, so the lowest hit is right.
        let zero = |word: u64| word.wrapping_sub(ONES) & !word;
        let below_space = word.wrapping_sub(ONES * 0x20) & !word;
        let hits =
            (zero(word ^ (ONES * u64::from(b'"'))) | zero(word ^ (ONES * u64::from(b'\\'))) | below_space) & HIGHS;
        if hits != 0 {
            return at + (hits.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    while let Some(byte) = bytes.get(at) {
        if matches!(byte, b'"' | b'\\' | 0..=0x1f) {
            break;
        }
        at += 1;
    }
    at
}

/// Whether a text stands between quotes as it is, with nothing to escape.
#[must_use]
pub fn is_plain(text: &str) -> bool {
    find_stop(text.as_bytes(), 0) == text.len()
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

/// Bytes as text, without the byte order mark that some editors put before it.
pub fn utf8(bytes: &[u8]) -> Result<&str, BadJson> {
    let text = std::str::from_utf8(bytes)
        .map_err(|e| BadJson(format!("the text is not UTF-8 at byte {}", e.valid_up_to())))?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// Parses a whole text into `T`, with a sentence about where it failed.
pub fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, BadJson> {
    serde_json::from_str(text).map_err(|e| BadJson(format!("the JSON is not acceptable: {e}")))
}

/// The fields of an object in their order, each with the text of its value.
#[derive(Debug)]
pub struct Fields<'a>(pub Vec<(std::borrow::Cow<'a, str>, &'a RawValue)>);

/// Fields that most objects have room for from the start.
const ROOM: usize = 12;

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Filled)
    }
}

struct Filled;

impl<'de> Visitor<'de> for Filled {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
        let mut fields = Vec::with_capacity(ROOM);
        while let Some(BorrowedName(name)) = map.next_key()? {
            fields.push((name, map.next_value()?));
        }
        Ok(Fields(fields))
    }
}

/// The same as [`Fields`], found in one go.
#[derive(Debug)]
pub struct Members<'a> {
    pub all: Vec<(std::borrow::Cow<'a, str>, &'a str)>,
    /// Whether [`check_values`] is known to find nothing in them.
    pub(crate) is_sound: bool,
}

impl Members<'_> {
    fn with_room() -> Self {
        Self { all: Vec::with_capacity(ROOM), is_sound: false }
    }
}

impl<'a> From<Fields<'a>> for Members<'a> {
    fn from(Fields(fields): Fields<'a>) -> Self {
        Self { all: fields.into_iter().map(|(name, value)| (name, value.get())).collect(), is_sound: false }
    }
}

/// The fields of an object that is the whole text, with a sentence about where reading it failed.
pub fn object(text: &str) -> Result<Members<'_>, BadJson> {
    let (mut scan, mut fields) = (scan::Scan::new(text), Members::with_room());
    match scan.object(&mut fields, 1).and_then(|()| scan.ends()) {
        Some(()) => Ok(fields),
        None => parse::<Fields<'_>>(text).map(Members::from),
    }
}

/// Hands over the fields of each object in an array, one after the other, until one is refused. None is kept: an array of
/// many takes no more memory than its largest. `None` if it was, or if the text is anything else, or nested deeper than
/// [`JSON_DEPTH`].
pub fn each_object<'a>(text: &'a str, take: impl FnMut(&Members<'a>) -> Option<()>) -> Option<()> {
    let mut scan = scan::Scan::new(text);
    scan.each(take)?;
    scan.ends()
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
        assert!(check_depth_within(&nested(JSON_DEPTH - 2), 1).is_ok());
        assert!(check_depth_within(&nested(JSON_DEPTH - 1), 1).is_ok());
        assert!(check_depth_within(&nested(JSON_DEPTH), 1).is_err());
        assert!(check_depth(&format!(r#"{{"a":"{}\"{{"}}"#, "[".repeat(100))).is_ok(), "brackets in text do not count");
    }

    // SX-02
    #[test]
    fn halves_of_characters_and_numbers_beyond_a_double_are_refused() {
        let long = |digits: usize| format!("[{}]", "9".repeat(digits));
        let tiny = format!("[0.{}1]", "0".repeat(400));
        for good in [
            "{}",
            r#"{"x":"\ud83d\ude00","y":"\u00e9\n"}"#,
            r#"{"x":"\\ud800"}"#,
            r#"{"x":"a \\\ud83d\ude00\""}"#,
            r#"{"id":"1e400","n":1e308,"m":-1.7E+308,"z":1e-400}"#,
            &long(308),
            &tiny,
        ] {
            assert_eq!(check_values(good), Ok(()), "{good}");
        }
        for bad in [
            r#"{"\ud800":1}"#,
            r#"["\udc00"]"#,
            r#"["\ud800\ud800\udc00"]"#,
            r#"["\ud800x\udc00"]"#,
            r#"["\uDBFF"]"#,
            r#"["\ud800\\udc00"]"#,
            "[1e309]",
            "[-1E400]",
            "1e400",
            r#"{"3e":"2e1","n":[1.5, 1e999]}"#,
            &long(400),
        ] {
            assert!(check_values(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn fields_keep_the_text_of_their_values() {
        let fields: Fields = parse(r#"{"a\n": 1.50, "b":{"x" : [ ]} }"#).unwrap();
        let shown: Vec<_> = fields.0.iter().map(|(name, value)| (name.as_ref(), value.get())).collect();
        assert_eq!(shown, [("a\n", "1.50"), ("b", r#"{"x" : [ ]}"#)]);
        assert!(parse::<Fields>("[]").is_err());
        assert!(parse::<Fields>("{} x").is_err());
    }

    #[test]
    fn objects_of_an_array_come_one_after_the_other() {
        let names = |text: &str| {
            let mut names = Vec::new();
            let read = each_object(text, |fields| {
                names.push(fields.all.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>());
                (names.len() <= 2).then_some(())
            });
            (read.is_some(), names.concat())
        };
        assert_eq!(names(r#" [{"a":1,"b":[]}, {"\u0063":{}}] "#), (true, ["a", "b", "c"].map(String::from).to_vec()));
        assert_eq!(names("[]"), (true, Vec::new()));
        assert_eq!(names("[{},{},{},{}]"), (false, Vec::new()));
        for bad in ["{}", "[{}", "[{}] x", "[{},]", "[1]", "[{},[]]"] {
            assert!(!names(bad).0, "{bad}");
        }
    }
}
