//! Standard Webhooks signatures: made for what we send, and checked for what others send us.

use std::fmt;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use ring::hmac;
use serde_json::Value;
use tidings_core::time::Timestamp;

use crate::config::Secret;
use crate::mask::HIDDEN;

pub(crate) const BAD_SECRET: &str = "the webhook's secret must be `whsec_` and the base64 of 24 to 64 bytes";
/// The same of a field that somebody has just written.
pub(crate) const SECRET_FORM: &str = "must be `whsec_` and the base64 of 24 to 64 bytes, as \
                                      `echo whsec_$(openssl rand -base64 32)` makes one";
const NONE_TO_KEEP: &str = "is hidden, and there is none for this URL to keep";
/// How far the sender's clock may be from ours.
const TOLERANCE_SECONDS: i64 = 300;
const MAX_SIGNATURES: usize = 32;
/// Padding is often lost when secrets are copied.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A secret as a field gives it; what is hidden there is the one that was `kept` for the URL. One that cannot sign is
/// refused: it would let every call fail, and nobody know why.
pub(crate) fn given(
    value: Option<&Value>,
    kept: impl FnOnce() -> Option<Secret>,
) -> Result<Option<Secret>, &'static str> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text == HIDDEN => kept().map(Some).ok_or(NONE_TO_KEEP),
        Some(Value::String(text)) if Key::parse(text).is_ok() => Ok(Some(Secret::new(text))),
        Some(_) => Err(SECRET_FORM),
    }
}

/// A decoded secret.
#[derive(Clone)]
pub struct Key(hmac::Key);

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Key(***)")
    }
}

/// The text says nothing of the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", BAD_SECRET)]
pub struct BadSecret;

impl Key {
    /// # Errors
    ///
    /// If it is not `whsec_` (which may be missing) and the base64 of 24 to 64 bytes.
    pub fn parse(secret: &str) -> Result<Self, BadSecret> {
        let bytes = BASE64.decode(secret.strip_prefix("whsec_").unwrap_or(secret)).map_err(|_| BadSecret)?;
        if !(24..=64).contains(&bytes.len()) {
            return Err(BadSecret);
        }
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, &bytes)))
    }
}

/// The value of `webhook-signature`: one signature for each key.
#[must_use]
pub fn sign(keys: &[Key], id: &str, timestamp: i64, body: &[u8]) -> String {
    let signed = signed_text(id, timestamp, body);
    let signatures = keys.iter().map(|key| format!("v1,{}", BASE64.encode(hmac::sign(&key.0, &signed))));
    signatures.collect::<Vec<_>>().join(" ")
}

/// What a receiver got.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    pub id: &'a str,
    /// The header as it came.
    pub timestamp: &'a str,
    pub signature: &'a str,
    pub body: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    #[error("the webhook's id is missing or holds a dot")]
    Id,
    #[error("the webhook's timestamp is missing, no number, or more than 5 minutes off")]
    Timestamp,
    #[error("no signature fits")]
    Signature,
}

/// Whether it was signed with one of the keys, not more than five minutes from `now`. Takes the same time for every
/// wrong signature.
///
/// # Errors
///
/// What is wrong with it.
pub fn verify(keys: &[Key], received: &Received<'_>, now: Timestamp) -> Result<(), Invalid> {
    // With a dot in it, id and timestamp could be told apart in two ways.
    if received.id.is_empty() || received.id.contains('.') {
        return Err(Invalid::Id);
    }
    let digits = !received.timestamp.is_empty() && received.timestamp.bytes().all(|byte| byte.is_ascii_digit());
    let timestamp: i64 = received.timestamp.parse().ok().filter(|_| digits).ok_or(Invalid::Timestamp)?;
    if timestamp.abs_diff(now.as_second()) > TOLERANCE_SECONDS.unsigned_abs() {
        return Err(Invalid::Timestamp);
    }
    let signed = signed_text(received.id, timestamp, received.body);
    let mut fits = false;
    for signature in received.signature.split(' ').take(MAX_SIGNATURES) {
        let Some(encoded) = signature.strip_prefix("v1,") else { continue };
        let Ok(tag) = BASE64.decode(encoded) else { continue };
        for key in keys {
            // Compares all bytes, in constant time, and refuses any other length.
            fits |= hmac::verify(&key.0, &signed, &tag).is_ok();
        }
    }
    if fits { Ok(()) } else { Err(Invalid::Signature) }
}

fn signed_text(id: &str, timestamp: i64, body: &[u8]) -> Vec<u8> {
    let mut signed = format!("{id}.{timestamp}.").into_bytes();
    signed.extend_from_slice(body);
    signed
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const AT: i64 = 1_614_265_330;

    fn key() -> Key {
        Key::parse(SECRET).unwrap()
    }

    fn check(timestamp: &str, signature: &str, body: &[u8], now: i64) -> Result<(), Invalid> {
        let received = Received { id: ID, timestamp, signature, body };
        verify(&[key()], &received, Timestamp::from_second(now).unwrap())
    }

    // The example of the Standard Webhooks libraries' own tests.
    #[test]
    fn signs_as_the_reference_does() {
        assert_eq!(sign(&[key()], ID, AT, BODY), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    // SX-20, CVE-2024-21491
    #[test]
    fn everything_but_the_true_signature_is_refused() {
        let good = sign(&[key()], ID, AT, BODY);
        assert_eq!(check(&AT.to_string(), &good, BODY, AT), Ok(()));
        let other = sign(&[Key::parse(&BASE64.encode([7; 32])).unwrap()], ID, AT, BODY);
        for bad in [
            "",
            " ",
            "v1",
            "v1,",
            "v1,=",
            &good[..20],
            &good[..good.len() - 4],
            &good.replace("v1,", "v2,"),
            &good.replace("v1,", "v1a,"),
            &good.replace("v1,", ""),
            &good.to_lowercase(),
            &format!("{good}AAAA"),
            &other,
            "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
        ] {
            assert_eq!(check(&AT.to_string(), bad, BODY, AT), Err(Invalid::Signature), "{bad}");
        }
        assert_eq!(check(&AT.to_string(), &good, b"{\"test\": 2432232315}", AT), Err(Invalid::Signature));
        assert_eq!(check(&(AT + 1).to_string(), &good, BODY, AT), Err(Invalid::Signature));
    }

    #[test]
    fn timestamps_may_be_five_minutes_off() {
        let good = sign(&[key()], ID, AT, BODY);
        for now in [AT - 300, AT, AT + 300] {
            assert_eq!(check(&AT.to_string(), &good, BODY, now), Ok(()));
        }
        for now in [AT - 360, AT - 301, AT + 301, AT + 360] {
            assert_eq!(check(&AT.to_string(), &good, BODY, now), Err(Invalid::Timestamp));
        }
        for nonsense in ["", "now", "+1614265330", "-1", "1614265330.0", " 1614265330", "99999999999999999999"] {
            assert_eq!(check(nonsense, &good, BODY, AT), Err(Invalid::Timestamp), "{nonsense}");
        }
    }

    #[test]
    fn either_secret_fits_during_rotation() {
        let (old, new) = (key(), Key::parse(&BASE64.encode([9; 24])).unwrap());
        let both = sign(&[old.clone(), new.clone()], ID, AT, BODY);
        assert_eq!(both.split(' ').count(), 2);
        for keys in [vec![old.clone()], vec![new.clone()], vec![new, old]] {
            let received = Received { id: ID, timestamp: &AT.to_string(), signature: &both, body: BODY };
            assert_eq!(verify(&keys, &received, Timestamp::from_second(AT).unwrap()), Ok(()));
            let received = Received { id: "a.b", ..received };
            assert_eq!(verify(&keys, &received, Timestamp::from_second(AT).unwrap()), Err(Invalid::Id));
        }
    }

    #[test]
    fn secrets_are_24_to_64_bytes_of_base64() {
        let of = |length: usize| Key::parse(&format!("whsec_{}", BASE64.encode(vec![1; length]))).is_ok();
        assert_eq!([0, 23, 24, 64, 65].map(of), [false, false, true, true, false]);
        assert!(Key::parse("whsec_not base64!").is_err());
        assert!(!format!("{:?}", key()).contains("MfKQ"));
    }
}
