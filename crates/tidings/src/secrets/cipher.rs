//! What is readable only to whoever has the key, and only as what it was sealed for.

use std::sync::Arc;

use ring::{aead, digest};
use tidings_core::ids::IdSource;

const NONCE_BYTES: usize = 12;

/// Seals and opens with one key (AES-256-GCM).
pub struct Cipher {
    key: aead::LessSafeKey,
    /// Tells keys apart, and says nothing else about them.
    id: [u8; 4],
    ids: Arc<dyn IdSource>,
}

impl Cipher {
    #[must_use]
    pub fn new(key: &[u8; 32], ids: Arc<dyn IdSource>) -> Self {
        let hash = digest::digest(&digest::SHA256, &[b"tidings key ".as_slice(), key].concat());
        let id = hash.as_ref().first_chunk().copied().unwrap_or_default();
        let key = aead::UnboundKey::new(&aead::AES_256_GCM, key).expect("the key has the algorithm's length");
        Self { key: aead::LessSafeKey::new(key), id, ids }
    }

    #[must_use]
    pub const fn id(&self) -> [u8; 4] {
        self.id
    }

    /// Seals `content` for `context`.
    #[must_use]
    pub fn seal(&self, context: &str, content: &[u8]) -> Vec<u8> {
        let mut nonce = [0; NONCE_BYTES];
        self.ids.random(&mut nonce);
        let mut sealed = content.to_vec();
        let nonce_value = aead::Nonce::assume_unique_for_key(nonce);
        self.key
            .seal_in_place_append_tag(nonce_value, aead::Aad::from(context.as_bytes()), &mut sealed)
            .expect("what is sealed is far below the algorithm's limit");
        [&nonce[..], &sealed].concat()
    }

    /// What was sealed for the same context.
    #[must_use]
    pub fn open(&self, context: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_BYTES>()?;
        let mut sealed = sealed.to_vec();
        let nonce = aead::Nonce::assume_unique_for_key(*nonce);
        let content = self.key.open_in_place(nonce, aead::Aad::from(context.as_bytes()), &mut sealed).ok()?;
        Some(content.to_vec())
    }
}
