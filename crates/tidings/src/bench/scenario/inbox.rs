//! The scenarios about inboxes: reading pages of one, and filling many at once.
//!
//! Both need entries, which a fan-out makes quickly: one event to all users of a product is as many entries as there are
//! users, and a few hundred events are a million.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::json;
use tokio::time::sleep;

use super::events;
use super::{Caller, Load, Options};
use crate::bench::client::{self, Connection, Response};
use crate::bench::error::Error;
use crate::bench::tally::describe;

/// Users of the product that events are told to, as in the target.
const USERS: u32 = 10_000;
/// Entries of the one user who has many.
const MANY: u32 = 100_000;
const PAGE: usize = 20;
/// The page that `inbox-deep` reads, counted from 1.
const DEEP: usize = 100;
const TYPE_ALL: &str = "bench.inbox";
const TYPE_ONE: &str = "bench.inbox.one";
/// How often a fan-out under way is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Looks before it is given up: about ten minutes.
const LOOKS: u32 = 120_000;
const EVENTS_AT_ONCE: u32 = 500;

/// Pages of the newest unread, each connection those of another user.
pub fn read(options: &Options) -> Box<dyn Load> {
    Box::new(Reading {
        token: options.token.clone(),
        entries: options.entries,
        who: Who::Each,
        callers: AtomicU32::new(0),
    })
}

/// The same of a user who has 100,000.
pub fn read_many(options: &Options) -> Box<dyn Load> {
    Box::new(Reading {
        token: options.token.clone(),
        entries: options.entries,
        who: Who::Many,
        callers: AtomicU32::new(0),
    })
}

/// Page 100 of that user.
pub fn read_deep(options: &Options) -> Box<dyn Load> {
    Box::new(Reading {
        token: options.token.clone(),
        entries: options.entries,
        who: Who::Deep,
        callers: AtomicU32::new(0),
    })
}

/// One event to 10,000 users at a time; operations are entries.
pub fn fan_out(options: &Options) -> Box<dyn Load> {
    Box::new(FanOut { token: options.token.clone() })
}

/// Events as in `ingest`, while one connection more fans out all the time.
pub fn ingest_beside(options: &Options) -> Box<dyn Load> {
    Box::new(Beside {
        fan_out: FanOut { token: options.token.clone() },
        ingest: events::ingest(options),
        first: AtomicU32::new(0),
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Each,
    Many,
    Deep,
}

/// The user of that number.
fn user(number: u32) -> String {
    format!("bench-{number:05}")
}

/// A request and its answer, which must be a success.
async fn call(
    connection: &mut Connection,
    token: &str,
    method: &str,
    path: &str,
    body: Option<&str>,
) -> Result<Vec<u8>, Error> {
    let body = body.map(|body| ("application/json", body.as_bytes()));
    let request = client::request(method, path, token, body);
    let response = connection.call(&request).await?;
    if response.is_success() {
        return Ok(response.body.to_vec());
    }
    Err(Error::Refused { scenario: path.to_owned(), reply: describe(response) })
}

/// Makes the map and the rules that tell all users, and one of them alone.
async fn make_rules(connection: &mut Connection, token: &str) -> Result<(), Error> {
    let users: Vec<String> = (0..USERS).map(user).collect();
    let body = json!({ "users": users }).to_string();
    call(connection, token, "PUT", "/notification-map/bench/all", Some(&body)).await?;
    let target = json!([{ "channel": "inbox", "map": { "product": "bench" } }]);
    let one = json!([{ "channel": "inbox", "users": [user(0)] }]);
    for (name, event_type, targets) in [("bench-all", TYPE_ALL, target), ("bench-one", TYPE_ONE, one)] {
        let text = "Version 2026.11.3 of checkout was deployed to prod.";
        let rule =
            json!({ "pattern": { "eventType": [event_type] }, "targets": targets, "title": "Deployed", "text": text });
        call(connection, token, "PUT", &format!("/rules/{name}"), Some(&rule.to_string())).await?;
    }
    Ok(())
}

#[derive(Deserialize)]
struct Unread {
    unread: u64,
}

async fn unread(connection: &mut Connection, token: &str, user: &str) -> Result<u64, Error> {
    let body = call(connection, token, "GET", &format!("/notifications/count?user={user}"), None).await?;
    Ok(serde_json::from_slice::<Unread>(&body).map_or(0, |count| count.unread))
}

/// Fills inboxes until the last user has `each` entries and the first one `MANY`. What is there already stays.
async fn fill(connection: &mut Connection, token: &str, each: u64) -> Result<(), Error> {
    make_rules(connection, token).await?;
    let last = user(USERS - 1);
    let there = unread(connection, token, &last).await?;
    for _ in there..each {
        let event =
            json!({ "eventType": TYPE_ALL, "source": "bench", "data": { "event_type": "score", "env": "prod" } });
        call(connection, token, "POST", "/events", Some(&event.to_string())).await?;
    }
    let mut looks = 0;
    while unread(connection, token, &last).await? < each {
        looks += 1;
        if looks > LOOKS {
            return Err(Error::Stalled("the entries to be read".to_owned()));
        }
        sleep(LOOK_EVERY).await;
    }
    let first = user(0);
    let mut left = u64::from(MANY).saturating_sub(unread(connection, token, &first).await?);
    while left > 0 {
        let count = left.min(u64::from(EVENTS_AT_ONCE));
        let event =
            json!({ "eventType": TYPE_ONE, "source": "bench", "data": { "event_type": "score", "env": "prod" } });
        let events = vec![event; usize::try_from(count).unwrap_or(1)];
        call(connection, token, "POST", "/events", Some(&json!(events).to_string())).await?;
        left -= count;
    }
    Ok(())
}

#[derive(Debug)]
struct Reading {
    token: String,
    entries: u64,
    who: Who,
    callers: AtomicU32,
}

#[async_trait]
impl Load for Reading {
    async fn prepare(&self, connection: &mut Connection) -> Result<(), Error> {
        fill(connection, &self.token, self.entries.div_ceil(u64::from(USERS)).max(1)).await
    }

    fn caller(&self) -> Box<dyn Caller> {
        // Spread over all users; the first one is the one with many.
        let number = self.callers.fetch_add(1, Ordering::Relaxed);
        let user = if self.who == Who::Each { user(1 + number.wrapping_mul(149) % (USERS - 1)) } else { user(0) };
        let mut reader = Reader { token: self.token.clone(), user, request: Vec::new(), pages_to_go: 0 };
        if self.who == Who::Deep {
            reader.pages_to_go = DEEP - 1;
        }
        reader.aim(None);
        Box::new(reader)
    }
}

/// Reads one page over and over; first, if it lies deep, the pages before it.
#[derive(Debug)]
struct Reader {
    token: String,
    user: String,
    request: Vec<u8>,
    pages_to_go: usize,
}

impl Reader {
    fn aim(&mut self, after: Option<&str>) {
        let mut path = format!("/notifications?user={}&status=unread&limit={PAGE}", self.user);
        if let Some(after) = after {
            // Sealed keys are letters that stand for themselves.
            path.push_str("&lastitemretrieved=");
            path.push_str(after);
        }
        self.request = client::request("GET", &path, &self.token, None);
    }
}

impl Caller for Reader {
    fn request(&mut self) -> &[u8] {
        &self.request
    }

    fn check(&mut self, response: Response<'_>) -> Option<u64> {
        const KEY: &[u8] = b"\"LastEvaluatedKey\":\"";
        if response.status != 200 || !response.body.starts_with(b"{\"items\":[{") {
            return None;
        }
        if self.pages_to_go > 0 {
            let at = response.body.windows(KEY.len()).rposition(|window| window == KEY)?;
            let rest = response.body.get(at + KEY.len()..)?;
            let end = rest.iter().position(|byte| *byte == b'"')?;
            let key = std::str::from_utf8(rest.get(..end)?).ok()?.to_owned();
            self.pages_to_go -= 1;
            self.aim(Some(&key));
            // On the way there it is another page.
            return Some(0);
        }
        Some(1)
    }
}

#[derive(Debug, Clone)]
struct FanOut {
    token: String,
}

#[async_trait]
impl Load for FanOut {
    async fn prepare(&self, connection: &mut Connection) -> Result<(), Error> {
        make_rules(connection, &self.token).await
    }

    fn connections(&self, _asked: u32) -> u32 {
        1
    }

    fn batch(&self) -> u32 {
        USERS
    }

    fn caller(&self) -> Box<dyn Caller> {
        Box::new(Teller { token: self.token.clone(), request: Vec::new(), under_way: false, counts: true })
    }
}

/// Sends an event, then looks until all its entries are there, then the next one.
#[derive(Debug)]
struct Teller {
    token: String,
    request: Vec<u8>,
    under_way: bool,
    /// Whether entries are what is measured.
    counts: bool,
}

#[derive(Deserialize)]
struct Sent {
    events: Vec<SentEvent>,
}

#[derive(Deserialize)]
struct SentEvent {
    #[serde(rename = "eventId")]
    event_id: String,
}

impl Caller for Teller {
    fn request(&mut self) -> &[u8] {
        if !self.under_way {
            let event =
                json!({ "eventType": TYPE_ALL, "source": "bench", "data": { "event_type": "score", "env": "prod" } });
            self.request = client::request(
                "POST",
                "/events",
                &self.token,
                Some(("application/json", event.to_string().as_bytes())),
            );
        }
        &self.request
    }

    fn pause(&self) -> Option<Duration> {
        self.under_way.then_some(LOOK_EVERY)
    }

    fn check(&mut self, response: Response<'_>) -> Option<u64> {
        if !self.under_way {
            let sent: Sent = serde_json::from_slice(response.body).ok().filter(|_| response.status == 202)?;
            let id = &sent.events.first()?.event_id;
            self.request = client::request("GET", &format!("/events/{id}?source=bench"), &self.token, None);
            self.under_way = true;
            return Some(0);
        }
        let done = br#""state":"done""#;
        if response.status != 200 {
            self.under_way = false;
            return None;
        }
        let is_done = response.body.windows(done.len()).any(|window| window == done);
        self.under_way = !is_done;
        Some(if is_done && self.counts { u64::from(USERS) } else { 0 })
    }
}

struct Beside {
    fan_out: FanOut,
    ingest: Box<dyn Load>,
    first: AtomicU32,
}

#[async_trait]
impl Load for Beside {
    async fn prepare(&self, connection: &mut Connection) -> Result<(), Error> {
        self.fan_out.prepare(connection).await
    }

    fn connections(&self, asked: u32) -> u32 {
        asked.saturating_add(1)
    }

    fn caller(&self) -> Box<dyn Caller> {
        if self.first.fetch_add(1, Ordering::Relaxed) == 0 {
            let token = self.fan_out.token.clone();
            return Box::new(Teller { token, request: Vec::new(), under_way: false, counts: false });
        }
        self.ingest.caller()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options { batch: 1, rules: 0, entries: 1000, token: "secret".into() }
    }

    #[test]
    fn a_deep_page_is_reached_by_the_pages_before_it() {
        let mut caller = read_deep(&options()).caller();
        let page = Response { status: 200, body: br#"{"items":[{"a":1}],"LastEvaluatedKey":"abc-_","unread":5}"# };
        for _ in 1..DEEP {
            assert_eq!(caller.check(page), Some(0));
        }
        assert!(caller.request().starts_with(
            b"GET /notifications?user=bench-00000&status=unread&limit=20&lastitemretrieved=abc-_ HTTP/1.1"
        ));
        assert_eq!((caller.check(page), caller.check(page)), (Some(1), Some(1)));
        let empty = Response { status: 200, body: br#"{"items":[],"LastEvaluatedKey":null,"unread":0}"# };
        assert_eq!(caller.check(empty), None, "there is nothing to read");
    }

    #[test]
    fn each_connection_reads_another_inbox() {
        let load = read(&options());
        let requests: std::collections::BTreeSet<_> = (0..64).map(|_| load.caller().request().to_vec()).collect();
        assert_eq!(requests.len(), 64);
    }

    #[test]
    fn a_fan_out_counts_once_it_is_done() {
        let load = fan_out(&options());
        assert_eq!((load.connections(64), ingest_beside(&options()).connections(64)), (1, 65));
        let mut caller = load.caller();
        assert!(caller.request().starts_with(b"POST /events "));
        let sent = Response { status: 202, body: br#"{"accepted":1,"events":[{"eventId":"e1"}]}"# };
        assert_eq!((caller.check(sent), caller.pause()), (Some(0), Some(LOOK_EVERY)));
        assert!(caller.request().starts_with(b"GET /events/e1?source=bench "));
        let open = Response { status: 200, body: br#"{"outcome":{"fanout":{"state":"open"}}}"# };
        assert_eq!(caller.check(open), Some(0));
        let done = Response { status: 200, body: br#"{"outcome":{"fanout":{"state":"done"}}}"# };
        assert_eq!((caller.check(done), caller.pause()), (Some(10_000), None));
        assert!(caller.request().starts_with(b"POST /events "));
    }
}
