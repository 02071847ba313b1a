//! Who a ticket is for: a session's id as it is, a phone number only as a keyed hash (S004-36, S004-37).

use ring::hmac;
use tidings_core::envelope::check_name;
use tidings_core::ids::IdSource;
use tidings_store::{Error, Store};

use super::digits;
use crate::secrets;

/// Characters of a caller's id.
pub const CALLER_CHARS: usize = 256;
/// Digits of a phone number, country code included (E.164 allows 15).
const PHONE_DIGITS: std::ops::RangeInclusive<usize> = 7..=15;
/// Bytes of the hash that are kept; more than enough to keep two callers apart.
const HASH_BYTES: usize = 16;

/// Turns phone numbers into hashes that nobody without the key can make.
pub struct Callers(hmac::Key);

impl std::fmt::Debug for Callers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Callers")
    }
}

impl Callers {
    /// With the installation's own key.
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn open(store: &dyn Store, ids: &dyn IdSource) -> Result<Self, Error> {
        Ok(Self::new(&secrets::key(store, ids, "ticket-callers").await?))
    }

    #[must_use]
    pub fn new(key: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key))
    }

    /// The caller as it may be stored, or what is wrong with the text.
    pub fn id(&self, text: &str) -> Result<String, String> {
        let text = text.trim();
        check_name(text, CALLER_CHARS)?;
        Ok(phone_number(text).map_or_else(|| text.to_owned(), |number| self.hash(&number)))
    }

    fn hash(&self, number: &str) -> String {
        let tag = hmac::sign(&self.0, number.as_bytes());
        let hex: String = tag.as_ref().iter().take(HASH_BYTES).map(|byte| format!("{byte:02x}")).collect();
        format!("phone-{hex}")
    }
}

/// The digits of a phone number, the same however it is written; `None` for what looks like none.
fn phone_number(text: &str) -> Option<String> {
    let text = digits::folded(text);
    let text = text.trim();
    let scheme = ["tel:", "sip:", "phone:"]
        .into_iter()
        .find(|scheme| text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)));
    let text = text.get(scheme.map_or(0, str::len)..).unwrap_or_default().trim();
    let fits = |c: char| c.is_ascii_digit() || matches!(c, ' ' | '-' | '.' | '/' | '(' | ')' | '+' | '\u{a0}');
    if text.is_empty() || !text.chars().all(fits) || text.chars().skip(1).any(|c| c == '+' && !text.starts_with('(')) {
        return None;
    }
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let international = digits.strip_prefix("00").unwrap_or(&digits);
    PHONE_DIGITS.contains(&international.len()).then(|| international.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn callers() -> Callers {
        Callers::new(&[7; 32])
    }

    // S004-37
    #[test]
    fn a_phone_number_becomes_a_hash_however_it_is_written() {
        let hash = callers().id("+49 170 1234567").unwrap();
        assert!(hash.starts_with("phone-") && hash.len() == 38, "{hash}");
        for same in ["+491701234567", "0049 170 1234567", "+49 (170) 123-4567", "tel:+49-170-1234567", " 491701234567 "]
        {
            assert_eq!(callers().id(same).unwrap(), hash, "{same}");
        }
        // In other digits, with other signs, and with marks that nobody sees.
        for same in [
            "\u{ff0b}\u{ff14}\u{ff19}\u{3000}\u{ff11}\u{ff17}\u{ff10} \u{ff11}\u{ff12}\u{ff13}\u{ff14}\u{ff15}\u{ff16}\u{ff17}",
            "\u{660}\u{660}\u{664}\u{669}\u{661}\u{667}\u{660}\u{661}\u{662}\u{663}\u{664}\u{665}\u{666}\u{667}",
            "\u{200e}+49 170 123\u{2011}4567\u{200f}",
            "+49\u{2013}170\u{2009}1234567",
            "tel:+\u{96a}\u{96f} 170 1234567",
        ] {
            assert_eq!(callers().id(same).unwrap(), hash, "{same}");
        }
        assert_ne!(callers().id("+49 170 1234568").unwrap(), hash);
        assert_ne!(Callers::new(&[8; 32]).id("+49 170 1234567").unwrap(), hash, "the key decides");
        assert_eq!(callers().id(&hash).unwrap(), hash, "a hash is no number");
    }

    #[test]
    fn the_length_of_a_phone_number_decides() {
        for (text, is_phone) in
            [("123456", false), ("1234567", true), ("123456789012345", true), ("1234567890123456", false)]
        {
            assert_eq!(callers().id(text).unwrap().starts_with("phone-"), is_phone, "{text}");
        }
    }

    #[test]
    fn a_session_stays_as_it_is() {
        for session in
            ["poc-user-001", "session 12345678", "2026-02-09T12:32", "a+b", "33567ee8-f182-4f8a-b03e-2f1515915471"]
        {
            assert_eq!(callers().id(session).unwrap(), session);
        }
        assert!(callers().id("  ").is_err());
        assert!(callers().id(&"x".repeat(256)).is_ok());
        assert!(callers().id(&"x".repeat(257)).is_err());
        assert!(callers().id("a\nb").is_err());
    }
}
