//! AWS Signature Version 4, as much of it as a signed POST needs.

use std::fmt::Write;

use ring::{digest, hmac};
use tidings_core::time::Timestamp;

use super::Credentials;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// The parts of a request that are signed. Header names in lower case, in order.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    pub method: &'a str,
    /// Already encoded.
    pub path: &'a str,
    /// Already encoded and in order.
    pub query: &'a str,
    pub headers: &'a [(&'a str, &'a str)],
    pub body: &'a [u8],
}

/// Where the signature counts.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    pub region: &'a str,
    pub service: &'a str,
}

/// The value of `Authorization`. The headers must hold `x-amz-date` with [`amz_date`] of the same instant.
#[must_use]
pub fn authorization(request: &Request<'_>, scope: Scope<'_>, credentials: &Credentials, now: Timestamp) -> String {
    let amz_date = amz_date(now);
    let date = amz_date.get(..8).unwrap_or_default();
    let names = request.headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
    let mut canonical = format!("{}\n{}\n{}\n", request.method, request.path, request.query);
    for (name, value) in request.headers {
        let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
        let _ = writeln!(canonical, "{name}:{value}");
    }
    let _ = write!(canonical, "\n{names}\n{}", hex(sha256(request.body).as_ref()));
    let credential = format!("{date}/{}/{}/aws4_request", scope.region, scope.service);
    let to_sign = format!("{ALGORITHM}\n{amz_date}\n{credential}\n{}", hex(sha256(canonical.as_bytes()).as_ref()));
    let signature = hex(sign(&signing_key(credentials, date, scope), to_sign.as_bytes()).as_ref());
    let id = &credentials.access_key_id;
    format!("{ALGORITHM} Credential={id}/{credential}, SignedHeaders={names}, Signature={signature}")
}

/// `20150830T123600Z`
#[must_use]
pub fn amz_date(now: Timestamp) -> String {
    format!("{now:.0}").replace(['-', ':'], "")
}

fn signing_key(credentials: &Credentials, date: &str, scope: Scope<'_>) -> hmac::Tag {
    let first = hmac::Key::new(hmac::HMAC_SHA256, format!("AWS4{}", credentials.secret_access_key.expose()).as_bytes());
    let mut key = hmac::sign(&first, date.as_bytes());
    for part in [scope.region, scope.service, "aws4_request"] {
        key = sign(&key, part.as_bytes());
    }
    key
}

fn sign(key: &hmac::Tag, text: &[u8]) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key.as_ref()), text)
}

fn sha256(bytes: &[u8]) -> digest::Digest {
    digest::digest(&digest::SHA256, bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    /// The key of AWS's documentation and its published test suite.
    fn credentials() -> Credentials {
        Credentials {
            access_key_id: "AKIDEXAMPLE".to_owned(),
            secret_access_key: Secret::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
            session_token: None,
        }
    }

    fn signature(method: &str, query: &str, headers: &[(&str, &str)], service: &str) -> String {
        let request = Request { method, path: "/", query, headers, body: b"" };
        let now = "2015-08-30T12:36:00Z".parse().unwrap();
        let text = authorization(&request, Scope { region: "us-east-1", service }, &credentials(), now);
        text.rsplit_once("Signature=").unwrap().1.to_owned()
    }

    // "get-vanilla" and "post-vanilla" of the test suite
    #[test]
    fn signs_as_the_published_test_suite() {
        let headers = [("host", "example.amazonaws.com"), ("x-amz-date", "20150830T123600Z")];
        let get = signature("GET", "", &headers, "service");
        assert_eq!(get, "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
        let post = signature("POST", "", &headers, "service");
        assert_eq!(post, "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b");
    }

    // The worked example of the documentation
    #[test]
    fn signs_as_the_documentation() {
        let headers = [
            ("content-type", "application/x-www-form-urlencoded; charset=utf-8"),
            ("host", "iam.amazonaws.com"),
            ("x-amz-date", "20150830T123600Z"),
        ];
        let signed = signature("GET", "Action=ListUsers&Version=2010-05-08", &headers, "iam");
        assert_eq!(signed, "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7");
        let key = signing_key(&credentials(), "20150830", Scope { region: "us-east-1", service: "iam" });
        assert_eq!(hex(key.as_ref()), "c4afb1cc5771d871763a393e44b703571b55cc28424d1a5e86da6ed3c154a4b9");
    }

    #[test]
    fn dates_have_no_punctuation() {
        assert_eq!(amz_date("2015-08-30T12:36:00.987Z".parse().unwrap()), "20150830T123600Z");
    }
}
