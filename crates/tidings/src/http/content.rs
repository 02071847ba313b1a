//! What a request says, and the hash that tells it from another: of the whole, or taken while somebody reads it.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use bytes::Bytes;
use futures_util::stream::poll_fn;
use futures_util::{StreamExt, TryStreamExt};
use ring::digest::{Context, SHA256, digest};

use super::problem::Problem;

/// What a request says.
pub enum Content {
    Whole(Bytes),
    /// Whoever does what it asks for reads it: it may be larger than memory. Where it was done before it is read for its
    /// hash alone, up to so many bytes, none of which comes later than this after the one before.
    Coming {
        body: Body,
        most: u64,
        patience: Duration,
    },
}

/// The hash of a body that is being read.
pub struct Hashing(Arc<Mutex<Reading>>);

struct Reading {
    context: Context,
    ended: bool,
}

impl Content {
    /// The hash, if it is known before anybody reads.
    #[must_use]
    pub fn hash(&self) -> Option<Vec<u8>> {
        match self {
            Self::Whole(bytes) => Some(digest(&SHA256, bytes).as_ref().to_vec()),
            Self::Coming { .. } => None,
        }
    }

    /// For whoever reads it, and the hash once they have.
    pub fn into_body(self) -> (Body, Hashing) {
        let reading = Reading { context: Context::new(&SHA256), ended: false };
        let hashing = Arc::new(Mutex::new(reading));
        let body = match self {
            Self::Whole(bytes) => {
                let mut reading = hashing.lock().unwrap_or_else(PoisonError::into_inner);
                reading.context.update(&bytes);
                reading.ended = true;
                Body::from(bytes)
            }
            Self::Coming { body, .. } => {
                let (read, end) = (Arc::clone(&hashing), Arc::clone(&hashing));
                let pieces = body.into_data_stream().inspect_ok(move |piece| {
                    read.lock().unwrap_or_else(PoisonError::into_inner).context.update(piece);
                });
                let end = poll_fn(move |_| {
                    end.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
                    Poll::Ready(None)
                });
                Body::from_stream(pieces.chain(end))
            }
        };
        (body, Hashing(hashing))
    }

    /// Reads it for its hash alone.
    pub async fn into_hash(self) -> Result<Vec<u8>, Problem> {
        let Self::Coming { body, most, patience } = self else { return Ok(self.hash().unwrap_or_default()) };
        let (mut pieces, mut context, mut read) = (body.into_data_stream(), Context::new(&SHA256), 0_u64);
        loop {
            match tokio::time::timeout(patience, pieces.next()).await {
                Ok(Some(Ok(piece))) => {
                    read = read.saturating_add(piece.len() as u64);
                    if read > most {
                        return Err(Problem::too_large(format!("the body is larger than {most} bytes")));
                    }
                    context.update(&piece);
                }
                Ok(Some(Err(_))) => return Err(Problem::bad_request("the body ended too early")),
                Ok(None) => return Ok(context.finish().as_ref().to_vec()),
                Err(_) => return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "timeout", "the body stopped coming")),
            }
        }
    }
}

impl Hashing {
    /// The hash of the whole; none if somebody left off before its end.
    #[must_use]
    pub fn finish(&self) -> Option<Vec<u8>> {
        let reading = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reading.ended.then(|| reading.context.clone().finish().as_ref().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coming(pieces: &[&'static str]) -> Content {
        let pieces: Vec<_> =
            pieces.iter().map(|piece| Ok::<_, std::io::Error>(Bytes::from_static(piece.as_bytes()))).collect();
        let body = Body::from_stream(futures_util::stream::iter(pieces));
        Content::Coming { body, most: 6, patience: Duration::from_secs(1) }
    }

    #[tokio::test]
    async fn it_has_one_hash_however_it_comes() {
        let whole = Content::Whole(Bytes::from_static(b"abcdef")).hash();
        assert_eq!(coming(&["abc", "", "def"]).into_hash().await.ok(), whole);
        let (body, hashing) = coming(&["a", "bcdef"]).into_body();
        assert_eq!(hashing.finish(), None, "nobody has read it");
        assert_eq!(axum::body::to_bytes(body, 6).await.unwrap(), "abcdef");
        assert_eq!(hashing.finish(), whole);
        assert_eq!(coming(&["abcdef", "g"]).into_hash().await.unwrap_err().status, StatusCode::PAYLOAD_TOO_LARGE);
    }
}
