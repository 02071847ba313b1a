//! The scenarios about events: sending them one by one, sending them in batches, reading them page by page.

use std::borrow::Cow;
use std::hash::{BuildHasher, Hasher, RandomState};

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{Caller, Load, Options};
use crate::bench::client::{self, Response};

/// The eventId is the only part that differs between the events; `{id}` is replaced by 36 characters. There is no
/// timestamp and no correlation id: the server has to make both, as for most senders.
const EVENT: &str = concat!(
    r#"{"eventId":"{id}","eventType":"deployment.finished","eventVersion":"1.0","source":"bench","#,
    r#""subject":"service/checkout","data":{"env":"prod","service":"checkout","version":"2026.11.3","#,
    r#""commit":"9f2c4e1b7a6d5038c1e2f3a4b5968778695a4b3c","success":true,"durationMs":48213,"#,
    r#""actor":{"id":"svc-cicd@organization.com","name":"Release pipeline"},"region":"eu-central-1","#,
    r#""stages":[{"name":"build","seconds":17.2},{"name":"test","seconds":24.9},{"name":"deploy","seconds":6.1}],"#,
    r#""text":"Version 2026.11.3 of checkout was deployed to prod: \"three stages\", no rollback."}}"#
);
const HOLE: &str = "{id}";
const UUID_SHAPE: &[u8; 36] = b"xxxxxxxx-xxxx-4xxx-8xxx-xxxxxxxxxxxx";
const PAGE: u32 = 50;
/// Events in one request, if nothing else is asked for.
const BATCH: u32 = 100;
/// Pages that are followed by their cursor before reading starts again at the newest.
const PAGES_DEEP: u32 = 20;

/// `POST /events` with one event.
pub fn ingest(options: &Options) -> Box<dyn Load> {
    Box::new(Posting::new(&options.token, 1, sample()))
}

/// `POST /events` with an array of `options.batch` events.
pub fn ingest_batch(options: &Options) -> Box<dyn Load> {
    let batch = options.batch_or(BATCH);
    let events = vec![sample(); batch as usize];
    Box::new(Posting::new(&options.token, batch, format!("[{}]", events.join(","))))
}

/// `GET /events?limit=50`, then the pages that follow it.
pub fn read(options: &Options) -> Box<dyn Load> {
    Box::new(Read { token: options.token.clone() })
}

/// An event of the size and shape that `ingest` sends.
pub fn sample() -> String {
    // The hole becomes as long as an id, and is still recognised by its braces.
    EVENT.replace(HOLE, &format!("{HOLE:-<36}"))
}

#[derive(Debug)]
struct Posting {
    request: Vec<u8>,
    holes: Vec<usize>,
    batch: u32,
}

impl Posting {
    fn new(token: &str, batch: u32, body: String) -> Self {
        let request = client::request("POST", "/events", token, Some(("application/json", body.as_bytes())));
        let first = request.len() - body.len();
        let holes = body.match_indices(HOLE).map(|(at, _)| first + at).collect();
        Self { request, holes, batch }
    }
}

impl Load for Posting {
    fn batch(&self) -> u32 {
        self.batch
    }

    fn caller(&self) -> Box<dyn Caller> {
        Box::new(Sender {
            request: self.request.clone(),
            holes: self.holes.clone(),
            ids: EventIds::new(),
            batch: u64::from(self.batch),
        })
    }
}

/// Patches new ids into the same bytes for every request.
#[derive(Debug)]
struct Sender {
    request: Vec<u8>,
    holes: Vec<usize>,
    ids: EventIds,
    batch: u64,
}

impl Caller for Sender {
    fn request(&mut self) -> &[u8] {
        for hole in &self.holes {
            if let Some(place) = self.request.get_mut(*hole..*hole + UUID_SHAPE.len()) {
                place.copy_from_slice(&self.ids.next());
            }
        }
        &self.request
    }

    fn check(&mut self, response: Response<'_>) -> Option<u64> {
        (response.status == 202 && accepted(response.body) == Some(self.batch)).then_some(self.batch)
    }
}

/// How many events the server says it accepted. A duplicate or a rejected event is none, or it would count as written.
fn accepted(body: &[u8]) -> Option<u64> {
    // The count stands first, so the list of ids, of which there may be hundreds, need not be parsed.
    const START: &[u8] = br#"{"accepted":"#;
    if let Some(rest) = body.strip_prefix(START) {
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit());
        return Some(digits.fold(0_u64, |count, digit| count.saturating_mul(10) + u64::from(digit - b'0')));
    }
    #[derive(Deserialize)]
    struct Answer {
        accepted: u64,
    }
    serde_json::from_slice::<Answer>(body).ok().map(|answer| answer.accepted)
}

/// Identifiers in the shape of random UUIDs, made in nanoseconds. They are spread evenly, as the ids of real senders
/// are, so that no index of the server has it easier than in life.
#[derive(Debug)]
pub(super) struct EventIds {
    /// Differs between callers, processes and machines.
    seed: u64,
    count: u64,
}

impl EventIds {
    pub(super) fn new() -> Self {
        // Every RandomState has keys of its own, so the hash of nothing is a random number.
        Self { seed: RandomState::new().build_hasher().finish(), count: 0 }
    }

    pub(super) fn next(&mut self) -> [u8; 36] {
        self.count += 1;
        let mut nibbles = (u128::from(mix(self.count ^ self.seed)) << 64) | u128::from(self.seed);
        UUID_SHAPE.map(|shape| {
            if shape != b'x' {
                return shape;
            }
            nibbles = nibbles.rotate_left(4);
            match (nibbles & 15) as u8 {
                digit @ 0..=9 => b'0' + digit,
                digit => b'a' + digit - 10,
            }
        })
    }
}

/// The finalizer of splitmix64: one-to-one, so different counts stay different.
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[derive(Debug)]
struct Read {
    token: String,
}

impl Load for Read {
    fn caller(&self) -> Box<dyn Caller> {
        let mut reader = Reader { token: self.token.clone(), request: Vec::new(), depth: 0 };
        reader.aim(None);
        Box::new(reader)
    }
}

/// Reads the newest page, then a few older ones, then the newest again.
#[derive(Debug)]
struct Reader {
    token: String,
    request: Vec<u8>,
    depth: u32,
}

impl Reader {
    fn aim(&mut self, cursor: Option<&str>) {
        let mut path = format!("/events?limit={PAGE}");
        if let Some(cursor) = cursor {
            path.push_str("&cursor=");
            percent_encode(cursor, &mut path);
        }
        self.request = client::request("GET", &path, &self.token, None);
    }
}

impl Caller for Reader {
    fn request(&mut self) -> &[u8] {
        &self.request
    }

    fn check(&mut self, response: Response<'_>) -> Option<u64> {
        #[derive(Deserialize)]
        struct Page<'a> {
            items: Vec<IgnoredAny>,
            #[serde(borrow)]
            cursor: Option<Cow<'a, str>>,
        }
        let page = response.is_success().then(|| serde_json::from_slice::<Page>(response.body).ok()).flatten();
        // Reading an empty store is quick and says nothing; only the last page of many may be empty.
        let page = page.filter(|page| self.depth > 0 || !page.items.is_empty());
        let cursor = page.as_ref().and_then(|page| page.cursor.as_deref()).filter(|_| self.depth < PAGES_DEEP);
        self.depth = if cursor.is_some() { self.depth + 1 } else { 0 };
        self.aim(cursor);
        page.map(|_| 1)
    }
}

fn percent_encode(text: &str, into: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            into.push(char::from(byte));
        } else {
            into.push_str(&format!("%{byte:02X}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn options(batch: u32) -> Options {
        Options { batch, rules: 0, entries: 0, token: "secret".into() }
    }

    fn body(request: &[u8]) -> serde_json::Value {
        let text = std::str::from_utf8(request).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(
            head.contains(&format!("content-length: {}\r\n", body.len())) || head.ends_with(&body.len().to_string())
        );
        serde_json::from_str(body).unwrap()
    }

    #[test]
    fn an_event_has_about_600_bytes() {
        assert!((580..620).contains(&sample().len()), "{}", sample().len());
    }

    #[test]
    fn no_two_events_have_the_same_id() {
        let (one, many) = (ingest(&options(1)), ingest_batch(&options(100)));
        let mut callers = [one.caller(), one.caller(), many.caller(), many.caller()];
        let mut ids = BTreeSet::new();
        let mut count = 0;
        for caller in &mut callers {
            for _ in 0..20 {
                let body = body(caller.request());
                let events = body.as_array().cloned().unwrap_or_else(|| vec![body]);
                for event in events {
                    let id = event["eventId"].as_str().unwrap().to_owned();
                    assert_eq!((id.len(), id.matches('-').count(), &id[14..15]), (36, 4, "4"), "{id}");
                    ids.insert(id);
                    count += 1;
                }
            }
        }
        assert_eq!((ids.len(), count), (count, 2 * 20 + 2 * 20 * 100));
    }

    #[test]
    fn only_accepted_events_count() {
        let mut caller = ingest_batch(&options(3)).caller();
        let mut check = |status, body: &str| caller.check(Response { status, body: body.as_bytes() });
        assert_eq!(check(202, r#"{"accepted":3,"duplicates":0,"rejected":0,"events":[]}"#), Some(3));
        assert_eq!(check(202, r#"{ "duplicates":0, "accepted":3}"#), Some(3));
        assert_eq!(check(202, r#"{"accepted":2,"duplicates":1}"#), None);
        assert_eq!(check(503, r#"{"accepted":3}"#), None);
        assert_eq!(check(202, ""), None);
    }

    #[test]
    fn reading_follows_the_cursor_and_starts_again() {
        let mut caller = read(&options(1)).caller();
        let first = caller.request().to_vec();
        assert!(first.starts_with(b"GET /events?limit=50 HTTP/1.1\r\n"));
        let page = Response { status: 200, body: br#"{"items":[{}],"cursor":"a+b="}"# };
        for _ in 0..PAGES_DEEP {
            assert_eq!(caller.check(page), Some(1));
            assert!(caller.request().starts_with(b"GET /events?limit=50&cursor=a%2Bb%3D HTTP/1.1\r\n"));
        }
        assert_eq!(caller.check(page), Some(1));
        assert_eq!(caller.request(), first);
        let last = Response { status: 200, body: br#"{"items":[],"cursor":null}"# };
        assert_eq!(caller.check(last), None, "there is nothing to read");
        assert_eq!(caller.check(page), Some(1));
        assert_eq!(caller.check(last), Some(1));
        assert_eq!(caller.check(Response { status: 400, body: b"{}" }), None);
    }
}
