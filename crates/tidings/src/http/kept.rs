//! An answer in bytes, to be given again: its headers as a line of JSON, then its body; packed if that is much.

use std::io::{Read, Write};

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;

/// Answers of this size are packed.
const PACKED_BYTES: usize = 8 * 1024;
/// What packed bytes begin with, and JSON does not.
const GZIP: [u8; 2] = [0x1f, 0x8b];

pub struct Kept {
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Kept {
    #[must_use]
    pub fn pack(&self) -> Vec<u8> {
        let text =
            |(name, value): (&HeaderName, &HeaderValue)| Some((name.to_string(), value.to_str().ok()?.to_owned()));
        let headers: Vec<(String, String)> = self.headers.iter().filter_map(text).collect();
        let line = serde_json::to_vec(&headers).unwrap_or_default();
        let whole = [line.as_slice(), b"\n", &self.body].concat();
        if whole.len() < PACKED_BYTES {
            return whole;
        }
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        match packed.write_all(&whole).and_then(|()| packed.finish()) {
            Ok(packed) => packed,
            Err(_) => whole,
        }
    }

    #[must_use]
    pub fn unpack(mut kept: Vec<u8>) -> Option<Self> {
        if kept.starts_with(&GZIP) {
            let mut whole = Vec::new();
            flate2::read::GzDecoder::new(kept.as_slice()).read_to_end(&mut whole).ok()?;
            kept = whole;
        }
        let end = kept.iter().position(|byte| *byte == b'\n')?;
        let body = Bytes::from(kept.split_off(end + 1));
        kept.truncate(end);
        let mut headers = HeaderMap::new();
        for (name, value) in serde_json::from_slice::<Vec<(String, String)>>(&kept).ok()? {
            headers.append(HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?);
        }
        Some(Self { headers, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_comes_back_as_it_was() {
        for length in [0, 1, PACKED_BYTES, 100_000] {
            let mut headers = HeaderMap::new();
            headers.append("content-type", HeaderValue::from_static("text/plain"));
            headers.append("x", HeaderValue::from_static("1"));
            headers.append("x", HeaderValue::from_static("\"2\""));
            let kept = Kept { headers, body: Bytes::from("\nm".repeat(length)) };
            let again = Kept::unpack(kept.pack()).unwrap();
            assert_eq!((&again.headers, &again.body), (&kept.headers, &kept.body), "{length}");
        }
        assert!(Kept::unpack(b"no answer".to_vec()).is_none());
    }
}
