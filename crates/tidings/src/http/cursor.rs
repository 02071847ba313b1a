//! Sealed cursors: what a page ended at, encrypted, and bound to who asked what (SX-10).

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use tidings_core::ids::IdSource;

use super::problem::Problem;
use crate::secrets::cipher::Cipher;

/// Seals and opens cursors with this installation's key.
pub struct Sealer(Cipher);

impl Sealer {
    pub fn new(key: &[u8; 32], ids: std::sync::Arc<dyn IdSource>) -> Self {
        Self(Cipher::new(key, ids))
    }

    /// Seals `content` for `context`: who asks, which call, which filters.
    #[must_use]
    pub fn seal(&self, context: &str, content: &[u8]) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(self.0.seal(context, content))
    }

    /// The content of a cursor that was sealed for the same context.
    pub fn open(&self, field: &str, context: &str, cursor: &str) -> Result<Vec<u8>, Problem> {
        let sealed = BASE64_URL_SAFE_NO_PAD.decode(cursor).ok();
        sealed.and_then(|sealed| self.0.open(context, &sealed)).ok_or_else(|| {
            Problem::invalid_field(field, "is no cursor of this list with these filters; start again without it")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_opens_only_unchanged_and_in_its_own_context() {
        let sealer = Sealer::new(&[7; 32], std::sync::Arc::new(crate::clock::SystemIds::default()));
        let cursor = sealer.seal("u1 /events type=a", b"position");
        assert_eq!(sealer.open("cursor", "u1 /events type=a", &cursor).unwrap(), b"position");
        assert!(sealer.open("cursor", "u2 /events type=a", &cursor).is_err());
        assert!(sealer.open("cursor", "u1 /events type=b", &cursor).is_err());
        for place in 0..cursor.len() {
            let mut changed = cursor.clone().into_bytes();
            changed[place] = if changed[place] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            // The last letter may carry bits that no byte uses; those are refused as well.
            assert!(sealer.open("cursor", "u1 /events type=a", &changed).is_err(), "{place}");
        }
        assert!(sealer.open("cursor", "", "").is_err());
    }
}
