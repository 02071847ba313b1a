//! Amazon SES v2: one HTTPS call for each copy, signed by [`super::sigv4`].

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Method;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::Url;
use serde::Deserialize;
use serde_json::json;
use tidings_core::time::Timestamp;

use super::super::{answer, one_line, quote};
use super::sigv4::{self, Scope};
use super::{Copy, Outcome};
use crate::config::{Secret, email::Email};
use crate::outbound::{Outbound, Request, Response};

const PATH: &str = "/v2/email/outbound-emails";
/// These say "later", whatever their status.
const TRANSIENT: [&str; 6] = [
    "TooManyRequestsException",
    "LimitExceededException",
    "Throttling",
    "ThrottlingException",
    "RequestTimeout",
    "ServiceUnavailable",
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    pub access_key_id: String,
    pub secret_access_key: Secret,
    pub session_token: Option<Secret>,
}

impl Credentials {
    /// Those of the configuration, else those of the variables that every AWS tool reads.
    #[must_use]
    pub fn find(config: &Email, variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        match (&config.access_key_id, &config.secret_access_key) {
            (Some(id), Some(secret)) => {
                Some(Self { access_key_id: id.clone(), secret_access_key: secret.clone(), session_token: None })
            }
            _ => Self::from_variables(variable),
        }
    }

    /// From the variables every AWS tool reads.
    #[must_use]
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let given = |name: &str| variable(name).filter(|value| !value.is_empty());
        Some(Self {
            access_key_id: given("AWS_ACCESS_KEY_ID")?,
            secret_access_key: Secret::new(given("AWS_SECRET_ACCESS_KEY")?),
            session_token: given("AWS_SESSION_TOKEN").map(Secret::new),
        })
    }
}

#[derive(Clone, Debug)]
pub(super) struct Client {
    outbound: Outbound,
    url: Url,
    host: String,
    region: String,
    credentials: Credentials,
}

impl Client {
    pub(super) fn new(config: &Email, credentials: Credentials, outbound: Outbound) -> Result<Self, String> {
        let region = config.region.clone().ok_or("SES needs `email.region`, or AWS_REGION")?;
        let endpoint = config.endpoint.clone().unwrap_or_else(|| format!("https://email.{region}.amazonaws.com"));
        let url = outbound
            .check(&format!("{}{PATH}", endpoint.trim_end_matches('/')))
            .map_err(|error| format!("`email.endpoint`: {error}"))?;
        let name = url.host_str().unwrap_or_default();
        let host = url.port().map_or_else(|| name.to_owned(), |port| format!("{name}:{port}"));
        Ok(Self { outbound, url, host, region, credentials })
    }

    pub(super) async fn send(&self, copies: Vec<(String, Copy)>, now: Timestamp) -> Vec<(String, Outcome)> {
        let mut outcomes = Vec::with_capacity(copies.len());
        for (recipient, copy) in copies {
            let outcome = match self.outbound.send(self.request(&copy, now)).await {
                Ok(response) => self.outcome(&response, now),
                Err(error) => error.into(),
            };
            outcomes.push((recipient, outcome));
        }
        outcomes
    }

    fn request(&self, copy: &Copy, now: Timestamp) -> Request {
        let body = json!({
            "FromEmailAddress": copy.from.to_string(),
            "Destination": { "ToAddresses": [copy.to.email.to_string()] },
            "Content": { "Raw": { "Data": STANDARD.encode(&copy.bytes) } },
        })
        .to_string();
        let date = sigv4::amz_date(now);
        let token = self.credentials.session_token.as_ref().map(Secret::expose);
        let mut signed = vec![("content-type", "application/json"), ("host", &*self.host), ("x-amz-date", &*date)];
        signed.extend(token.map(|token| ("x-amz-security-token", token)));
        let to_sign = sigv4::Request {
            method: "POST",
            path: self.url.path(),
            query: "",
            headers: &signed,
            body: body.as_bytes(),
        };
        let scope = Scope { region: &self.region, service: "ses" };
        let authorization = sigv4::authorization(&to_sign, scope, &self.credentials, now);
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let mut secret = |name: HeaderName, value: &str| {
            // A credential with a line feed makes an unsigned call, which is refused.
            if let Ok(mut value) = HeaderValue::from_str(value) {
                value.set_sensitive(true);
                headers.insert(name, value);
            }
        };
        secret(HeaderName::from_static("x-amz-date"), &date);
        secret(AUTHORIZATION, &authorization);
        if let Some(token) = token {
            secret(HeaderName::from_static("x-amz-security-token"), token);
        }
        Request { method: Method::POST, url: self.url.clone(), headers, body: Bytes::from(body) }
    }

    fn outcome(&self, response: &Response, now: Timestamp) -> Outcome {
        let status = response.status;
        let answer: Answer = serde_json::from_slice(&response.body).unwrap_or_default();
        if (200..300).contains(&status) {
            let id = answer.message_id.map(|id| one_line(&id, 128));
            return Outcome::Delivered { id, detail: format!("SES answered {status}") };
        }
        let named = response.headers.get("x-amzn-errortype").and_then(|value| value.to_str().ok());
        let kind = named.map(str::to_owned).or(answer.kind).unwrap_or_default();
        // `MessageRejected:http://…` and `com.amazonaws.ses#MessageRejected` are both seen.
        let kind = kind.split(':').next().unwrap_or_default().rsplit('#').next().unwrap_or_default();
        let mut secrets = vec![self.credentials.secret_access_key.expose()];
        secrets.extend(self.credentials.session_token.as_ref().map(Secret::expose));
        let why = quote(&format!("{kind} {}", answer.message.unwrap_or_default()), &secrets);
        let error = format!("SES answered {status}: {why}");
        if matches!(status, 408 | 429 | 500..=599) || TRANSIENT.contains(&kind) {
            Outcome::Retry { after: answer::retry_after(&response.headers, now), error, code: Some(status) }
        } else {
            Outcome::Reject { error, code: Some(status), disable_target: false }
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Answer {
    #[serde(rename = "MessageId")]
    message_id: Option<String>,
    #[serde(rename = "__type", alias = "code")]
    kind: Option<String>,
    #[serde(alias = "Message")]
    message: Option<String>,
}
