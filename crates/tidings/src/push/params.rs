//! ntfy's parameters: each may be a header or in the query, under several names.

use axum::http::HeaderMap;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::refusal::Refusal;
use crate::http::not_text;

/// The headers that are parameters, under all their names.
#[rustfmt::skip]
const HEADERS: [&str; 58] = [
    "a", "action", "actions", "at", "attach", "auth", "cache", "call", "click", "content-type", "delay", "e", "e-mail", "email",
    "f", "file", "filename", "icon", "id", "in", "m", "mail", "markdown", "md", "message", "p", "po", "poll", "prio", "priority",
    "si", "since", "t", "ta", "tag", "tags", "ti", "title", "x-actions", "x-at", "x-attach", "x-cache", "x-call", "x-click",
    "x-delay", "x-e-mail", "x-email", "x-filename", "x-icon", "x-id", "x-in", "x-markdown", "x-message", "x-poll", "x-priority",
    "x-since", "x-tags", "x-title",
];

/// The parameters of one request.
#[derive(Default)]
pub struct Params {
    headers: Vec<(String, String)>,
    query: Vec<(String, String)>,
}

impl Params {
    /// Reads them. One that is no UTF-8 is refused: with something else in its place it would be another text. Headers that are
    /// nobody's parameters may be whatever they are.
    pub fn read(headers: &HeaderMap, query: Option<&str>) -> Result<Self, Refusal> {
        let mut read = Vec::with_capacity(headers.len());
        for (name, value) in headers {
            let name = name.as_str();
            match std::str::from_utf8(value.as_bytes()) {
                Ok(value) if is_http_priority(name, value.trim()) => {}
                Ok(value) => read.push((name.to_owned(), decode_words(value.trim()))),
                Err(_) if HEADERS.contains(&name) => return Err(Refusal::parameter(name)),
                Err(_) => {}
            }
        }
        let query = query.unwrap_or_default();
        if let Some(error) = not_text(query.as_bytes()).first() {
            return Err(Refusal::parameter(&error.field));
        }
        let query = form_urlencoded::parse(query.as_bytes())
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        Ok(Self { headers: read, query })
    }

    /// The value under the first of these names that has one; headers come before the query.
    #[must_use]
    pub fn get(&self, names: &[&str]) -> Option<&str> {
        let find = |pairs: &'_ [(String, String)], name: &str| {
            pairs.iter().position(|(known, value)| known == name && !value.is_empty())
        };
        names
            .iter()
            .find_map(|name| find(&self.headers, name).and_then(|place| self.headers.get(place)))
            .or_else(|| names.iter().find_map(|name| find(&self.query, name).and_then(|place| self.query.get(place))))
            .map(|(_, value)| value.as_str())
    }

    /// A switch; anything but these words leaves it as it is by default.
    #[must_use]
    pub fn flag(&self, names: &[&str], default: bool) -> bool {
        self.get(names).and_then(switch).unwrap_or(default)
    }

    /// The parts of a list with commas.
    #[must_use]
    pub fn list(&self, names: &[&str]) -> Vec<String> {
        list(self.get(names).unwrap_or_default()).collect()
    }
}

/// The parts of a list with commas.
pub fn list(text: &str) -> impl Iterator<Item = String> + use<'_> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(ToOwned::to_owned)
}

/// Whether a word switches on or off, if it is one of those that do.
#[must_use]
pub fn switch(word: &str) -> Option<bool> {
    match word.to_ascii_lowercase().as_str() {
        "1" | "yes" | "true" => Some(true),
        "0" | "no" | "false" => Some(false),
        _ => None,
    }
}

/// Browsers send the header `Priority` of RFC 9218 on every request, which has nothing to do with ntfy's. What passes for it
/// is what passes for ntfy; the rest is a priority that nobody knows.
fn is_http_priority(name: &str, value: &str) -> bool {
    let is_digit = |text: &str| text.len() == 1 && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some(value) = value.strip_prefix("u=").filter(|_| name == "priority") else { return false };
    match value.split_once(',') {
        Some((urgency, more)) => {
            let more = more.trim_ascii_start();
            is_digit(urgency) && (more == "i" || is_digit(more))
        }
        None => is_digit(value),
    }
}

/// Replaces the encoded words of RFC 2047, the way to send other letters than ASCII in a header. Those in other charsets than
/// UTF-8 and ISO-8859-1 stay as they are.
fn decode_words(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    let mut after_word = false;
    while let Some(start) = rest.find("=?") {
        let (before, candidate) = rest.split_at(start);
        let Some((word, after)) = decode_word(candidate) else {
            let (kept, after) = candidate.split_at(2);
            out.push_str(before);
            out.push_str(kept);
            (rest, after_word) = (after, false);
            continue;
        };
        // White space between two encoded words is only there to separate them.
        if !(after_word && before.trim().is_empty()) {
            out.push_str(before);
        }
        out.push_str(&word);
        (rest, after_word) = (after, true);
    }
    out.push_str(rest);
    out
}

/// How an encoded word's bytes are letters.
#[derive(Clone, Copy)]
enum Charset {
    Utf8,
    Latin1,
}

/// Reads `=?utf-8?B?…?=` or `=?utf-8?Q?…?=` from the beginning of the text.
fn decode_word(text: &str) -> Option<(String, &str)> {
    let mut parts = text.strip_prefix("=?")?.splitn(3, '?');
    let (charset, encoding, tail) = (parts.next()?, parts.next()?, parts.next()?);
    let (encoded, after) = tail.split_once("?=")?;
    let charset = match charset.to_ascii_lowercase().as_str() {
        "utf-8" | "us-ascii" => Charset::Utf8,
        "iso-8859-1" | "latin1" => Charset::Latin1,
        _ => return None,
    };
    let bytes = match encoding {
        "B" | "b" => BASE64_STANDARD.decode(encoded).ok()?,
        "Q" | "q" => {
            percent_encoding::percent_decode_str(&encoded.replace('%', "%25").replace('=', "%").replace('_', " "))
                .collect()
        }
        _ => return None,
    };
    let text = match charset {
        Charset::Utf8 => String::from_utf8(bytes).ok()?,
        // Its characters are the first of Unicode.
        Charset::Latin1 => bytes.into_iter().map(char::from).collect(),
    };
    Some((text, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_words_are_read() {
        for (text, read) in [
            ("plain", "plain"),
            ("=?UTF-8?B?w6TDtg==?= x", "äö x"),
            ("a =?utf-8?q?=C3=A4_b%?= =?utf-8?Q?c?=", "a ä b%c"),
            ("=?utf-8?B?!!?=", "=?utf-8?B?!!?="),
            ("=?iso-8859-1?Q?=E4?= =?ISO-8859-1?B?9g==?=", "äö"),
            ("=?koi8-r?Q?=E4?=", "=?koi8-r?Q?=E4?="),
            ("1 =? 2", "1 =? 2"),
        ] {
            assert_eq!(decode_words(text), read);
        }
    }

    #[test]
    fn what_is_no_text_is_refused() {
        let with = |name: &'static str, value: &[u8], query: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, axum::http::HeaderValue::from_bytes(value).unwrap());
            Params::read(&headers, Some(query)).is_ok()
        };
        assert!(with("x-title", "ä".as_bytes(), "m=%C3%A4"));
        for name in ["user-agent", "x-sender", "from", "subject"] {
            assert!(with(name, b"M\xfcller", ""), "{name}");
        }
        for name in ["x-title", "title", "t", "tags", "message"] {
            assert!(!with(name, b"M\xfcller", ""), "{name}");
        }
        assert!(!with("x-title", b"a", "m=%ff") && !with("x-title", b"a", "%ff=m"));
    }

    #[test]
    fn headers_come_first_and_names_in_order() {
        let mut headers = HeaderMap::new();
        headers.insert("priority", "u=1, i".parse().unwrap());
        headers.insert("t", "short".parse().unwrap());
        headers.insert("cache", "no".parse().unwrap());
        let params = Params::read(&headers, Some("Title=q&p=4&tags=a,%20b,,&x=")).unwrap();
        assert_eq!(params.get(&["x-title", "title", "t"]), Some("short"));
        assert_eq!(params.get(&["x-priority", "priority", "prio", "p"]), Some("4"));
        assert_eq!(params.list(&["tags"]), ["a", "b"]);
        assert_eq!(params.get(&["x"]), None);
        assert!(!params.flag(&["cache"], true) && params.flag(&["other"], true));
    }

    // RFC 9218, as far as ntfy knows it
    #[test]
    fn only_what_browsers_send_is_no_priority() {
        for value in ["u=0", "u=9", "u=1,i", "u=1, i", "u=1,\t 2"] {
            assert!(is_http_priority("priority", value) && !is_http_priority("x-priority", value), "{value}");
        }
        for value in
            ["i", "important", "u=", "u=12", "u=x", "u=1,", "u=1, ii", "u=1, i=?0", "u=1 , i", "u=1,i,2", "u=1;i"]
        {
            assert!(!is_http_priority("priority", value), "{value}");
        }
        let params = Params::read(&HeaderMap::new(), Some("priority=u%3D1")).unwrap();
        assert_eq!(params.get(&["priority"]), Some("u=1"));
    }
}
