//! Objects taken apart in one go over their text: where each field's value begins and ends, whether all of it is JSON, and
//! not too deep. What it does not like it only leaves alone: another reader finds the words for it.

use std::borrow::Cow;

use super::{Members, find_stop};
use crate::limits::JSON_DEPTH;

/// Characters of a number without an exponent that is within every double's range.
const SHORT_NUMBER: usize = 128;

pub(super) struct Scan<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    /// Whether nothing was met that may be JSON and still mean nothing: see [`super::check_values`].
    is_sound: bool,
}

impl<'a> Scan<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, bytes: text.as_bytes(), at: 0, is_sound: true }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// The next byte after white space.
    fn next(&mut self) -> Option<u8> {
        loop {
            match self.peek()? {
                b' ' | b'\n' | b'\r' | b'\t' => self.at += 1,
                byte => return Some(byte),
            }
        }
    }

    /// Passes over one byte, after white space; `None` if it is another one.
    fn pass(&mut self, wanted: u8) -> Option<()> {
        (self.next()? == wanted).then(|| self.at += 1)
    }

    /// Whether there is nothing but white space left.
    pub(super) fn ends(&mut self) -> Option<()> {
        self.next().is_none().then_some(())
    }

    /// Hands over the fields of each object of an array, in the same place, until one is refused.
    pub(super) fn each(&mut self, mut take: impl FnMut(&Members<'a>) -> Option<()>) -> Option<()> {
        self.pass(b'[')?;
        if self.next()? == b']' {
            self.at += 1;
            return Some(());
        }
        let mut fields = Members::with_room();
        loop {
            self.object(&mut fields, 2)?;
            take(&fields)?;
            match self.next()? {
                b',' => self.at += 1,
                b']' => {
                    self.at += 1;
                    return Some(());
                }
                _ => return None,
            }
        }
    }

    /// Puts the fields of an object, which is the level `level`, in place of those that are there.
    pub(super) fn object(&mut self, fields: &mut Members<'a>, level: usize) -> Option<()> {
        fields.all.clear();
        self.is_sound = true;
        self.pass(b'{')?;
        if self.next()? == b'}' {
            self.at += 1;
        } else {
            loop {
                let name = self.name()?;
                self.pass(b':')?;
                self.next()?;
                let start = self.at;
                self.skip(level)?;
                fields.all.push((name, self.text.get(start..self.at)?));
                let byte = self.next()?;
                self.at += 1;
                match byte {
                    b',' => {}
                    b'}' => break,
                    _ => return None,
                }
            }
        }
        fields.is_sound = self.is_sound;
        Some(())
    }

    fn name(&mut self) -> Option<Cow<'a, str>> {
        self.next()?;
        let start = self.at;
        let is_plain = self.string()?;
        let quoted = self.text.get(start..self.at)?;
        if is_plain { quoted.get(1..quoted.len() - 1).map(Cow::Borrowed) } else { serde_json::from_str(quoted).ok() }
    }

    /// Passes over a string; gives whether it has no escapes.
    fn string(&mut self) -> Option<bool> {
        (self.peek()? == b'"').then_some(())?;
        let mut at = find_stop(self.bytes, self.at + 1);
        let mut is_plain = true;
        loop {
            match self.bytes.get(at)? {
                b'"' => {
                    self.at = at + 1;
                    return Some(is_plain);
                }
                b'\\' => {
                    is_plain = false;
                    at = match self.bytes.get(at + 1)? {
                        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => at + 2,
                        b'u' => {
                            self.is_sound = false;
                            self.bytes.get(at + 2..at + 6)?.iter().all(u8::is_ascii_hexdigit).then_some(at + 6)?
                        }
                        _ => return None,
                    };
                    at = find_stop(self.bytes, at);
                }
                _ => return None,
            }
        }
    }

    /// Passes over a value inside so many levels.
    fn skip(&mut self, levels: usize) -> Option<()> {
        // The innermost is the lowest bit: set for an object. There is a bit for each level that there may be.
        let (mut objects, mut depth) = (0_u64, 0);
        loop {
            match self.peek()? {
                b'"' => drop(self.string()?),
                open @ (b'{' | b'[') => {
                    self.at += 1;
                    depth += 1;
                    if depth + levels > JSON_DEPTH {
                        return None;
                    }
                    objects = objects << 1 | u64::from(open == b'{');
                    // The two that close differ from those that open by the same.
                    if self.next()? != open + 2 {
                        self.member(objects)?;
                        continue;
                    }
                    self.at += 1;
                    depth -= 1;
                    objects >>= 1;
                }
                b'-' | b'0'..=b'9' => self.number()?,
                b't' => self.word(b"true")?,
                b'f' => self.word(b"false")?,
                b'n' => self.word(b"null")?,
                _ => return None,
            }
            loop {
                if depth == 0 {
                    return Some(());
                }
                let byte = self.next()?;
                self.at += 1;
                match (byte, objects & 1) {
                    (b',', _) => break,
                    (b'}', 1) | (b']', 0) => {
                        depth -= 1;
                        objects >>= 1;
                    }
                    _ => return None,
                }
            }
            self.member(objects)?;
        }
    }

    /// Goes to the next value in what is innermost: in an object, past its name.
    fn member(&mut self, objects: u64) -> Option<()> {
        self.next()?;
        if objects & 1 == 1 {
            self.string()?;
            self.pass(b':')?;
            self.next()?;
        }
        Some(())
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        let is_there = self.bytes.get(self.at..)?.starts_with(word);
        is_there.then(|| self.at += word.len())
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }

    fn number(&mut self) -> Option<()> {
        let start = self.at;
        if self.peek()? == b'-' {
            self.at += 1;
        }
        if self.peek()? == b'0' {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.is_sound = false;
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        self.is_sound &= self.at - start <= SHORT_NUMBER;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Fields, check_values, parse};
    use super::*;

    fn scanned(text: &str) -> Option<Members<'_>> {
        let (mut scan, mut fields) = (Scan::new(text), Members::with_room());
        scan.object(&mut fields, 1)?;
        scan.ends().map(|()| fields)
    }

    /// The same as the other reader, if it can be read at all.
    fn compare(text: &str) {
        let (ours, theirs) = (scanned(text), parse::<Fields<'_>>(text).ok().map(Members::from));
        assert_eq!(ours.as_ref().map(|fields| &fields.all), theirs.as_ref().map(|fields| &fields.all), "{text}");
        if let Some(fields) = ours.filter(|fields| fields.is_sound) {
            assert!(fields.all.iter().all(|(_, value)| check_values(value).is_ok()), "{text}");
        }
    }

    const PIECES: [&str; 44] = [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "\"a\"",
        "\"a\":",
        "\"ü\"",
        "\\",
        "\\\"",
        "\\u00e9",
        "\\ud800",
        "\\u12x",
        "\\x",
        "\\n",
        "\n",
        "\t",
        " ",
        "\u{1}",
        "\u{7f}",
        "0",
        "1",
        "-",
        "-0",
        "01",
        "1.5",
        "1.",
        ".5",
        "1e5",
        "1E+5",
        "1e",
        "1e-",
        "1e999",
        "true",
        "false",
        "null",
        "tru",
        "nul",
        "{}",
        "[]",
        "{\"a\":{\"b\":[1,{}]},\"c\":\"d\"}",
        "\"long text \\/ \"",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn whatever_it_is_it_is_read_as_by_the_other_reader(
            pieces in prop::collection::vec(prop::sample::select(&PIECES[..]), 0..12),
        ) {
            let inner = pieces.concat();
            compare(&inner);
            compare(&format!("{{{inner}}}"));
            compare(&format!("{{\"a\":{inner}}}"));
            compare(&format!("{{\"a\":[{inner}],\"b\":{{\"c\":{inner}}}}} "));
        }

        #[test]
        fn whole_texts_and_damaged_ones_are_read_alike(place in any::<prop::sample::Index>(), byte in 0_u8..128) {
            let text = r#"{"a":{"b":[1, -2.5e3, {"c": null}], "d": "e\n\u00e9 f"}, "g\t": true,"h" :[[],{}, false ]}"#;
            compare(text);
            let mut bytes = text.as_bytes().to_vec();
            let at = place.index(bytes.len());
            bytes[at] = byte;
            compare(std::str::from_utf8(&bytes).unwrap());
            bytes.remove(at);
            compare(std::str::from_utf8(&bytes).unwrap());
        }
    }

    #[test]
    fn what_is_too_deep_is_left_alone() {
        let nested = |levels: usize| format!(r#"{{"a":{}1{}}}"#, "[".repeat(levels), "]".repeat(levels));
        assert!(scanned(&nested(JSON_DEPTH - 2)).is_some());
        assert!(scanned(&nested(JSON_DEPTH - 1)).is_some());
        assert!(scanned(&nested(JSON_DEPTH)).is_none());
        let objects = |levels: usize| format!(r#"{{"a":{}1{}}}"#, r#"{"b":"#.repeat(levels), "}".repeat(levels));
        assert!(scanned(&objects(JSON_DEPTH - 1)).is_some());
        assert!(scanned(&objects(JSON_DEPTH)).is_none());
    }

    #[test]
    fn what_may_mean_nothing_is_noticed() {
        let is_sound = |value: &str| scanned(&format!(r#"{{"a":1,"b":{value}}}"#)).unwrap().is_sound;
        assert!(is_sound(r#"[1.5, "\n\\", "1e5", {}]"#));
        let long = "9".repeat(400);
        for unsure in [r#""\ud800""#, "1e5", "[1E5]", r#"{"\udc00":1}"#, &*long] {
            assert!(!is_sound(unsure), "{unsure}");
        }
    }
}
