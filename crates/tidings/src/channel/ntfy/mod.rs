//! ntfy: push messages through any ntfy server, ours included. Published as JSON, so that no text ends up in a header.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::Method;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use serde::{Deserialize, Serialize};
use tidings_core::time::Timestamp;
use uuid::Uuid;

use super::answer::{self, Meaning};
use super::{Notice, Outcome, byte_prefix, is_page, on_one_line, one_line, quote};
use crate::config::Secret;
use crate::outbound::{self, Call, Outbound, Place, Response};

/// Longer messages become attachments. S002-64
const MAX_MESSAGE_BYTES: usize = 4096;
/// ntfy reads twice the message limit of a JSON body.
const MAX_BODY_BYTES: usize = 2 * MAX_MESSAGE_BYTES;
const MAX_TITLE_CHARS: usize = 250;
/// Headers of a request, those included that the client adds.
const HEADERS: usize = 8;
/// Bytes of a request's JSON beside title and text, about.
const JSON_BYTES: usize = 256;
/// Pages of an ntfy server, of ours as of any other: none can be a topic.
pub const RESERVED: [&str; 10] =
    ["docs", "static", "file", "app", "metrics", "account", "settings", "signup", "login", "v1"];
/// Why not.
pub const KEPT: &str = "must not be a name that ntfy servers keep for themselves";

/// The push server in this process. It is called without a detour over the network, and so needs no token.
#[async_trait]
pub trait BuiltIn: Send + Sync {
    /// Publishes once for each message, however often it is tried.
    async fn publish(&self, publish: Publish<'_>, message_id: Uuid, correlation_id: &str) -> Outcome;
}

#[derive(Clone)]
pub enum Sender {
    BuiltIn(Arc<dyn BuiltIn>),
    Remote(Box<Remote>),
}

/// A server somewhere else.
#[derive(Clone)]
pub struct Remote {
    outbound: Outbound,
    server: Place,
    token: Option<Secret>,
    /// What the token is as a header, if it fits in one.
    authorization: Option<HeaderValue>,
}

impl Sender {
    /// `server` is the address the server is reached at, without a topic.
    ///
    /// # Errors
    ///
    /// If that is no address this client may use.
    pub fn new(outbound: Outbound, server: &str, token: Option<Secret>) -> Result<Self, outbound::Error> {
        let server = outbound.place(outbound.check(server)?)?;
        let authorization = token.as_ref().and_then(|token| {
            let mut value = HeaderValue::from_str(&format!("Bearer {}", token.expose())).ok()?;
            value.set_sensitive(true);
            Some(value)
        });
        Ok(Self::Remote(Box::new(Remote { outbound, server, token, authorization })))
    }

    /// Whether the server is somewhere else.
    #[must_use]
    pub const fn is_remote(&self) -> bool {
        matches!(self, Self::Remote(_))
    }

    /// For the push server in this process.
    #[must_use]
    pub fn built_in(server: Arc<dyn BuiltIn>) -> Self {
        Self::BuiltIn(server)
    }

    /// Publishes the notice once, within the client's own limits.
    pub async fn send(&self, notice: &Notice<'_>, topic: &str, now: Timestamp) -> Outcome {
        self.send_within(None, notice, topic, now).await
    }

    /// The same, and a limit takes the place of the client's.
    pub async fn send_within(
        &self,
        limit: Option<Duration>,
        notice: &Notice<'_>,
        topic: &str,
        now: Timestamp,
    ) -> Outcome {
        if !is_topic(topic) {
            return Outcome::reject("the topic must be 1 to 64 letters, digits, `_` or `-`");
        }
        match self {
            Self::Remote(remote) => remote.send(limit, notice, topic, now).await,
            Self::BuiltIn(server) => {
                let (bounded, _) = bounded(notice, topic);
                server.publish(bounded.publish(), notice.message_id, &notice.correlation_id).await
            }
        }
    }
}

impl Remote {
    async fn send(&self, limit: Option<Duration>, notice: &Notice<'_>, topic: &str, now: Timestamp) -> Outcome {
        let Some(headers) = self.headers(notice) else {
            return Outcome::reject("the ntfy token does not fit in a header");
        };
        let body = body(notice, topic);
        let call = Call { method: Method::POST, headers, body };
        match self.outbound.call(&self.server, call, limit).await {
            Ok(response) => self.outcome(&response, now),
            Err(error) => error.into(),
        }
    }

    fn headers(&self, notice: &Notice<'_>) -> Option<HeaderMap> {
        let mut headers = HeaderMap::with_capacity(HEADERS);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let mut id = Uuid::encode_buffer();
        let id = notice.message_id.hyphenated().encode_lower(&mut id);
        outbound::trace::insert(&mut headers, &notice.correlation_id, notice.trace_id.as_deref(), id);
        if self.token.is_some() {
            headers.insert(AUTHORIZATION, self.authorization.clone()?);
        }
        Some(headers)
    }

    fn outcome(&self, response: &Response, now: Timestamp) -> Outcome {
        let status = response.status;
        match answer::of_ntfy(status) {
            Meaning::Delivered => {
                let published: Published = serde_json::from_slice(&response.body).unwrap_or_default();
                let id = published.id.map(|id| one_line(&id, 64)).filter(|id| !id.is_empty());
                Outcome::Delivered { id, detail: format!("answered {status}") }
            }
            Meaning::Retry => {
                let after = answer::retry_after(&response.headers, now);
                Outcome::Retry { after, error: self.error(response), code: Some(status) }
            }
            Meaning::Reject | Meaning::Gone => {
                Outcome::Reject { error: self.error(response), code: Some(status), disable_target: false }
            }
        }
    }

    /// `answered 429 (ntfy 42901): limit reached`
    fn error(&self, response: &Response) -> String {
        let refused: Refused = serde_json::from_slice(&response.body).unwrap_or_default();
        let code = refused.code.map(|code| format!(" (ntfy {code})")).unwrap_or_default();
        let why = refused.error.map(|error| format!(": {}", quote(&error, &self.secrets()))).unwrap_or_default();
        format!("answered {}{code}{why}", response.status)
    }

    /// The token, and what a URL may hide.
    fn secrets(&self) -> [&str; 3] {
        let server = self.server.url();
        let path = server.path().trim_matches('/');
        [self.token.as_ref().map_or("", Secret::expose), server.query().unwrap_or_default(), path]
    }
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let server = match self {
            Self::BuiltIn(_) => "built-in".to_owned(),
            Self::Remote(remote) => remote.server.origin().to_owned(),
        };
        formatter.debug_struct("ntfy::Sender").field("server", &server).finish_non_exhaustive()
    }
}

/// A notice as ntfy's JSON has it, within ntfy's limits.
#[derive(Serialize)]
pub struct Publish<'a> {
    pub topic: &'a str,
    pub message: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub title: &'a str,
    /// JSON wants the number; a name is an error 40017.
    pub priority: u8,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub tags: &'a [Cow<'a, str>],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub click: Option<&'a str>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Published {
    id: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Refused {
    code: Option<u32>,
    error: Option<String>,
}

fn is_topic(topic: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    (1..=64).contains(&topic.len()) && topic.chars().all(allowed)
}

/// What a notice becomes once its text is cut to size.
struct Bounded<'a> {
    notice: &'a Notice<'a>,
    topic: &'a str,
    title: Cow<'a, str>,
    message: Cow<'a, str>,
    tags: &'a [Cow<'a, str>],
    click: Option<&'a str>,
}

impl Bounded<'_> {
    fn publish(&self) -> Publish<'_> {
        Publish {
            topic: self.topic,
            message: &self.message,
            title: &self.title,
            priority: self.notice.priority.number(),
            tags: self.tags,
            click: self.click,
        }
    }

    fn to_json(&self) -> Vec<u8> {
        let mut json = Vec::with_capacity(self.title.len() + self.message.len() + JSON_BYTES);
        serde_json::to_writer(&mut json, &self.publish()).expect("strings and numbers are JSON");
        json
    }
}

fn body(notice: &Notice<'_>, topic: &str) -> Bytes {
    Bytes::from(bounded(notice, topic).1)
}

/// The notice cut to size, and its JSON.
fn bounded<'a>(notice: &'a Notice<'a>, topic: &'a str) -> (Bounded<'a>, Vec<u8>) {
    let title = on_one_line(&notice.title, MAX_TITLE_CHARS);
    // An empty message would read "triggered".
    let text = if notice.text.trim().is_empty() { title.clone() } else { Cow::Borrowed(&*notice.text) };
    let click = notice.click_url.as_deref().or(notice.link.as_deref()).filter(|url| is_page(url));
    let mut bounded = Bounded { notice, topic, title, message: Cow::Borrowed(""), tags: &notice.tags, click };
    let mut most = MAX_MESSAGE_BYTES;
    loop {
        bounded.message = shorten(&text, most, notice.link.as_deref());
        let json = bounded.to_json();
        let excess = json.len().saturating_sub(MAX_BODY_BYTES);
        if excess == 0 {
            return (bounded, json);
        }
        // Where there is no room for any text, it goes without the page, and then without its tags.
        if bounded.message.is_empty() {
            if bounded.click.take().is_none() && std::mem::take(&mut bounded.tags).is_empty() {
                return (bounded, json);
            }
            most = MAX_MESSAGE_BYTES;
            continue;
        }
        // Text that needs many escapes: a byte of it can be six of JSON.
        most = most.min(bounded.message.len()).saturating_sub(excess.div_ceil(6));
    }
}

/// The text within so many bytes; where it was cut, the link to all of it follows. S002-64
fn shorten<'a>(text: &Cow<'a, str>, most: usize, link: Option<&str>) -> Cow<'a, str> {
    if text.len() <= most {
        return text.clone();
    }
    let rest = link.map_or_else(|| "…".to_owned(), |link| format!("…\n{link}"));
    match most.checked_sub(rest.len()) {
        Some(room) => format!("{}{rest}", byte_prefix(text, room)).into(),
        None => byte_prefix(text, most).to_owned().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::tests::notice;

    fn published(notice: &Notice<'_>) -> serde_json::Value {
        serde_json::from_slice(&body(notice, "ops")).unwrap()
    }

    // S002-57, S002-58, S002-61, S002-68
    #[test]
    fn a_notice_becomes_ntfys_json() {
        let mut notice = notice();
        notice.tags = vec!["wave".into(), "a,b".into()];
        notice.priority = "urgent".parse().unwrap();
        notice.title = "Line 1\r\nX-Evil: 1".into();
        let published = published(&notice);
        assert_eq!(published["topic"], "ops");
        assert_eq!(published["priority"], 5);
        assert_eq!(published["tags"], serde_json::json!(["wave", "a,b"]));
        assert_eq!(published["title"], "Line 1 X-Evil: 1");
        assert_eq!(published["click"], "https://click.example/");
        notice.click_url = Some("javascript:alert(1)".into());
        assert_eq!(self::published(&notice).get("click"), None);
    }

    // S002-64
    #[test]
    fn long_texts_are_cut_between_characters_and_link_to_the_rest() {
        for text in
            ["x".repeat(5000), "é".repeat(3000), "😀".repeat(2000), "\u{1}".repeat(5000), "\n".repeat(4096) + "x"]
        {
            let notice = Notice { text: text.into(), ..notice() };
            assert!(body(&notice, "ops").len() <= MAX_BODY_BYTES);
            let message = published(&notice)["message"].as_str().unwrap().to_owned();
            assert!(message.len() <= MAX_MESSAGE_BYTES, "{}", message.len());
            assert!(message.ends_with("…\nhttps://tidings.example/ui/messages/1"), "{message}");
        }
        let whole = Notice { text: "y".repeat(4096).into(), ..notice() };
        assert_eq!(published(&whole)["message"], "y".repeat(4096));
        // Long tags, and a page with a long address, leave no room for a text: that comes first.
        let (tags, page) = (vec!["😀".repeat(64).into(); 20], format!("https://a.example/{}", "é".repeat(2000)).into());
        for click_url in [None, Some(page)] {
            let notice = Notice { text: "\u{1}".repeat(5000).into(), tags: tags.clone(), click_url, ..notice() };
            assert!(body(&notice, "ops").len() <= MAX_BODY_BYTES);
            assert!(published(&notice)["message"].as_str().is_some_and(|text| text.len() > 200));
        }
        let empty = Notice { text: " ".into(), ..notice() };
        assert_eq!(published(&empty)["message"], "Disk full");
    }
}
