//! Webhooks: a signed POST to an address that somebody named, as Standard Webhooks describes it.

pub mod signature;

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde_json::json;
use tidings_core::time::{Timestamp, iso_millis};

use self::signature::Key;
use super::answer::{self, Meaning};
use super::{Notice, Outcome};
use crate::config::Secret;
use crate::mask;
use crate::outbound::{Outbound, Request, trace};

/// Where to, and what signs it: several secrets while one replaces another; none: unsigned.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    pub url: String,
    pub secrets: Vec<Secret>,
}

/// The path of many a webhook's URL is its password.
impl std::fmt::Debug for Target {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Target").field("url", &mask::url(&self.url)).field("secrets", &self.secrets).finish()
    }
}

/// A body that is not made from a notice: what a push subscription delivers.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    /// `webhook-id`: the same on every attempt.
    pub id: &'a str,
    pub correlation_id: &'a str,
    pub trace_id: Option<&'a str>,
    pub content_type: &'a str,
    /// What else goes with it. What the channel says of itself comes first.
    pub headers: HeaderMap,
    pub body: Bytes,
}

#[derive(Clone, Debug)]
pub struct Sender {
    outbound: Outbound,
}

impl Sender {
    /// `outbound` must be the guarded one for addresses that came through the API.
    #[must_use]
    pub const fn new(outbound: Outbound) -> Self {
        Self { outbound }
    }

    /// Sends the notice once, within the client's own limits.
    pub async fn send(&self, notice: &Notice<'_>, target: &Target, now: Timestamp) -> Outcome {
        self.send_within(None, notice, target, now).await
    }

    /// The same, and a limit takes the place of the client's.
    pub async fn send_within(
        &self,
        limit: Option<Duration>,
        notice: &Notice<'_>,
        target: &Target,
        now: Timestamp,
    ) -> Outcome {
        let id = notice.message_id.to_string();
        let call = Call {
            id: &id,
            correlation_id: &notice.correlation_id,
            trace_id: notice.trace_id.as_deref(),
            content_type: "application/json",
            headers: HeaderMap::new(),
            body: body(notice),
        };
        self.call(limit, call, target, now).await
    }

    /// Sends any body once.
    pub async fn call(&self, limit: Option<Duration>, call: Call<'_>, target: &Target, now: Timestamp) -> Outcome {
        let url = match self.outbound.check(&target.url) {
            Ok(url) => url,
            Err(error) => return error.into(),
        };
        let headers = match headers(&call, target, now) {
            Ok(headers) => headers,
            Err(why) => return Outcome::reject(why),
        };
        let request = Request { method: Method::POST, url, headers, body: call.body };
        let answered = match limit {
            Some(limit) => self.outbound.send_within(limit, request).await,
            None => self.outbound.send(request).await,
        };
        match answered {
            Ok(response) => outcome(response.status, &response.headers, now),
            Err(error) => error.into(),
        }
    }
}

/// The receiver's words are not repeated: whoever named the address could otherwise read what it answers.
fn outcome(status: u16, headers: &HeaderMap, now: Timestamp) -> Outcome {
    let code = Some(status);
    match answer::of_webhook(status) {
        Meaning::Delivered => Outcome::Delivered { id: None, detail: format!("answered {status}") },
        Meaning::Retry => {
            let after = answer::retry_after(headers, now);
            Outcome::Retry { after, error: format!("answered {status}"), code }
        }
        Meaning::Reject if (300..400).contains(&status) => {
            let error = format!("answered {status}; redirects are not followed, so the address must be the final one");
            Outcome::Reject { error, code, disable_target: false }
        }
        Meaning::Reject => Outcome::Reject { error: format!("answered {status}"), code, disable_target: false },
        Meaning::Gone => {
            let error = format!("answered {status}: it does not want to be called any more");
            Outcome::Reject { error, code, disable_target: true }
        }
    }
}

fn headers(call: &Call<'_>, target: &Target, now: Timestamp) -> Result<HeaderMap, &'static str> {
    let value = |text: &str| HeaderValue::from_str(text).map_err(|_| "its id does not fit in a header");
    let mut headers = call.headers.clone();
    let content_type = HeaderValue::from_str(call.content_type);
    headers.insert(CONTENT_TYPE, content_type.unwrap_or(HeaderValue::from_static("application/octet-stream")));
    headers.insert(HeaderName::from_static("webhook-id"), value(call.id)?);
    headers.insert(HeaderName::from_static("webhook-timestamp"), HeaderValue::from(now.as_second()));
    trace::insert(&mut headers, call.correlation_id, call.trace_id, call.id);
    if !target.secrets.is_empty() {
        let keys = target.secrets.iter().map(|secret| Key::parse(secret.expose())).collect::<Result<Vec<_>, _>>();
        let keys = keys.map_err(|_| signature::BAD_SECRET)?;
        let mut signed = value(&signature::sign(&keys, call.id, now.as_second(), &call.body))?;
        signed.set_sensitive(true);
        headers.insert(HeaderName::from_static("webhook-signature"), signed);
    }
    Ok(headers)
}

/// The same bytes on every attempt.
fn body(notice: &Notice<'_>) -> Bytes {
    let body = json!({
        "type": notice.message_type,
        "timestamp": iso_millis(notice.created_at),
        "data": {
            "message_id": notice.message_id.to_string(),
            "correlation_id": notice.correlation_id,
            "title": notice.title,
            "text": notice.text,
            "priority": notice.priority,
            "tags": notice.tags,
            "click_url": notice.click_url,
            "link": notice.link,
            "payload": notice.payload,
        },
    });
    Bytes::from(body.to_string())
}
