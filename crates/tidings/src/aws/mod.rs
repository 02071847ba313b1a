//! Calls to AWS that are one signed POST: SES, Systems Manager, DynamoDB's streams. The store on DynamoDB has the SDK, in a
//! crate of its own.

pub mod sigv4;

use bytes::Bytes;
use http::Method;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::Url;
use serde::Deserialize;
use tidings_core::time::Timestamp;

use self::sigv4::Scope;
use crate::config::Secret;
use crate::outbound::{self, Outbound, Request};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    pub access_key_id: String,
    pub secret_access_key: Secret,
    pub session_token: Option<Secret>,
}

impl Credentials {
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

    /// What must not show in what is said of a call.
    #[must_use]
    pub fn secrets(&self) -> Vec<&str> {
        let token = self.session_token.as_ref();
        [Some(&self.secret_access_key), token].into_iter().flatten().map(Secret::expose).collect()
    }
}

/// What an answer says that is an error.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Refusal {
    #[serde(rename = "__type")]
    pub kind: String,
    #[serde(alias = "Message")]
    pub message: String,
}

/// Where calls of one service go, and who makes them.
#[derive(Clone, Debug)]
pub struct Service {
    url: Url,
    host: String,
    region: String,
    name: &'static str,
    pub credentials: Credentials,
}

impl Service {
    /// # Errors
    ///
    /// If the address is none that may be called.
    pub fn new(
        outbound: &Outbound,
        url: &str,
        (name, region): (&'static str, String),
        credentials: Credentials,
    ) -> Result<Self, outbound::Error> {
        let url = outbound.check(url)?;
        let host = url.host_str().unwrap_or_default();
        let host = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        Ok(Self { url, host, region, name, credentials })
    }

    /// A signed call; `target` is what services that have one address for everything are asked to do.
    #[must_use]
    pub fn post(
        &self,
        media_type: &'static str,
        target: Option<&'static str>,
        body: String,
        now: Timestamp,
    ) -> Request {
        let date = sigv4::amz_date(now);
        let token = self.credentials.session_token.as_ref().map(Secret::expose);
        let mut signed = vec![("content-type", media_type), ("host", &*self.host), ("x-amz-date", &*date)];
        signed.extend(token.map(|token| ("x-amz-security-token", token)));
        signed.extend(target.map(|target| ("x-amz-target", target)));
        let to_sign = sigv4::Request {
            method: "POST",
            path: self.url.path(),
            query: "",
            headers: &signed,
            body: body.as_bytes(),
        };
        let scope = Scope { region: &self.region, service: self.name };
        let authorization = sigv4::authorization(&to_sign, scope, &self.credentials, now);
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
        if let Some(target) = target {
            headers.insert(HeaderName::from_static("x-amz-target"), HeaderValue::from_static(target));
        }
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
}
