//! Reading bodies: bounded in size before and after decompression, and in time.

use std::io::{Read, Write};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use bytes::{Bytes, BytesMut};
use futures_util::{FutureExt, StreamExt};
use http_body_util::{BodyExt, LengthLimitError, Limited};

use super::problem::Problem;

/// Bytes of a document that is too large which are read all the same, and how long that may take: most clients listen only
/// when they have sent everything, and to a connection that is closed before they never do.
const DRAINED_BYTES: usize = 16 * 1024 * 1024;
const DRAINED_FOR: Duration = Duration::from_secs(5);
/// Bytes that are unpacked at once: gzip makes of one a thousand at the most.
const PACKED_BYTES: usize = 4096;

/// The whole body, unpacked; at most `most` bytes either way.
pub async fn read(headers: &HeaderMap, mut body: Body, most: usize, patience: Duration) -> Result<Bytes, Problem> {
    let too_large = || Problem::too_large(format!("the body is larger than {most} bytes"));
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if let Some(announced) = announced.filter(|len| *len > most as u64) {
        // Who asks first whether to send hears it before sending.
        if announced <= DRAINED_BYTES as u64 && !headers.contains_key(header::EXPECT) {
            drain(body, DRAINED_BYTES as u64, DRAINED_FOR).await;
        }
        return Err(too_large());
    }
    let read = {
        let mut reading = std::pin::pin!(whole(Limited::new(&mut body, most)));
        // Most are there with their heads, and need no clock.
        match reading.as_mut().now_or_never() {
            Some(read) => Ok(read),
            None => tokio::time::timeout(patience, reading).await,
        }
    };
    let bytes = match read {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(e)) if e.is::<LengthLimitError>() => {
            drain(body, DRAINED_BYTES as u64, DRAINED_FOR).await;
            return Err(too_large());
        }
        Ok(Err(_)) => return Err(Problem::bad_request("the body ended too early")),
        Err(_) => {
            let detail = format!("the body did not arrive within {} s", patience.as_secs());
            return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "timeout", detail));
        }
    };
    check_transfer(headers)?;
    match coding(headers) {
        Coding::Plain => Ok(bytes),
        Coding::Gzip => gunzip(&bytes, most)?.ok_or_else(too_large),
        Coding::Other => Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported-encoding",
            "the only Content-Encoding accepted is gzip",
        )),
    }
}

/// How a body is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coding {
    Plain,
    Gzip,
    Other,
}

/// What its headers say of that: several are one list.
fn coding(headers: &HeaderMap) -> Coding {
    let mut coding = Coding::Plain;
    for value in headers.get_all(header::CONTENT_ENCODING) {
        for name in value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            coding = match name.to_ascii_lowercase().as_slice() {
                b"" | b"identity" => coding,
                b"gzip" | b"x-gzip" if coding == Coding::Plain => Coding::Gzip,
                _ => return Coding::Other,
            };
        }
    }
    coding
}

/// Refuses a body that is packed for the way: nobody would unpack it.
fn check_transfer(headers: &HeaderMap) -> Result<(), Problem> {
    let is_chunked = |value: &HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
    if headers.get_all(header::TRANSFER_ENCODING).iter().all(is_chunked) {
        return Ok(());
    }
    let detail = "the only Transfer-Encoding accepted is chunked; send a packed body with Content-Encoding: gzip";
    Err(Problem::bad_request(detail))
}

/// All of a body. Most come in one piece, which is taken as it is.
pub async fn whole<B: HttpBody<Data = Bytes> + Unpin>(mut body: B) -> Result<Bytes, B::Error> {
    let first = next_piece(&mut body).await?.unwrap_or_default();
    if body.is_end_stream() {
        return Ok(first);
    }
    let Some(second) = next_piece(&mut body).await? else { return Ok(first) };
    // What is still to come is known, or at least some of it.
    let more = usize::try_from(body.size_hint().lower()).unwrap_or(0);
    let mut all = BytesMut::with_capacity(first.len() + second.len() + more);
    all.extend_from_slice(&first);
    all.extend_from_slice(&second);
    while let Some(piece) = next_piece(&mut body).await? {
        all.extend_from_slice(&piece);
    }
    Ok(all.freeze())
}

async fn next_piece<B: HttpBody<Data = Bytes> + Unpin>(body: &mut B) -> Result<Option<Bytes>, B::Error> {
    while let Some(frame) = body.frame().await.transpose()? {
        if let Ok(piece) = frame.into_data() {
            return Ok(Some(piece));
        }
    }
    Ok(None)
}

/// A file that is taken as it comes, unpacked on the way. Whoever reads it counts what is unpacked.
pub fn unpacked(headers: &HeaderMap, body: Body) -> Result<Body, Problem> {
    check_transfer(headers)?;
    if coding(headers) != Coding::Gzip {
        return check_unpacked(headers).map(|()| body);
    }
    let start = (body.into_data_stream(), flate2::write::MultiGzDecoder::new(Vec::new()), Bytes::new(), false);
    let pieces = futures_util::stream::try_unfold(start, |(mut packed, mut decoder, mut rest, mut ended)| async move {
        while !ended {
            if rest.is_empty() {
                match packed.next().await {
                    Some(piece) => rest = piece.map_err(std::io::Error::other)?,
                    None => ended = true,
                }
            }
            let some = rest.split_to(rest.len().min(PACKED_BYTES));
            if ended {
                decoder.try_finish()?
            } else {
                decoder.write_all(&some)?
            }
            let plain = std::mem::take(decoder.get_mut());
            if !plain.is_empty() {
                return Ok::<_, std::io::Error>(Some((Bytes::from(plain), (packed, decoder, rest, ended))));
            }
        }
        Ok(None)
    });
    Ok(Body::from_stream(pieces))
}

/// Refuses what is packed where a file is taken as it comes.
pub fn check_unpacked(headers: &HeaderMap) -> Result<(), Problem> {
    check_transfer(headers)?;
    match coding(headers) {
        Coding::Plain => Ok(()),
        Coding::Gzip | Coding::Other => Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported-encoding",
            "an upload is taken as it comes: send it without a Content-Encoding",
        )),
    }
}

/// Reads what is left of a body, within bounds, and keeps nothing of it.
pub async fn drain(mut body: Body, most: u64, patience: Duration) {
    let rest = async {
        let mut left = most;
        while let (Some(Ok(frame)), true) = (body.frame().await, left > 0) {
            left = left.saturating_sub(frame.data_ref().map_or(0, |data| data.len() as u64));
        }
    };
    let _ = tokio::time::timeout(patience, rest).await;
}

/// The unpacked bytes, or `None` if they are more than `most`.
fn gunzip(bytes: &[u8], most: usize) -> Result<Option<Bytes>, Problem> {
    let mut out = Vec::with_capacity(bytes.len().saturating_mul(3).min(most));
    // One byte more than allowed tells "too large" from "just fits" without unpacking the rest of a bomb.
    let mut reader = flate2::read::MultiGzDecoder::new(bytes).take(most as u64 + 1);
    reader.read_to_end(&mut out).map_err(|_| Problem::bad_request("the body is not valid gzip"))?;
    Ok((out.len() <= most).then(|| Bytes::from(out)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    // SX-27: the limit holds on the unpacked size.
    #[test]
    fn unpacking_stops_at_the_limit() {
        for (len, fits) in [(999, true), (1000, true), (1001, false), (10_000_000, false)] {
            assert_eq!(gunzip(&zip(&vec![0; len]), 1000).unwrap().is_some(), fits, "{len}");
        }
        assert!(gunzip(b"not gzip", 1000).is_err());
        let cut = zip(b"some text");
        assert!(gunzip(&cut[..cut.len() - 4], 1000).is_err());
    }

    #[tokio::test]
    async fn a_body_is_whole_in_however_many_pieces_it_comes() {
        let pieces: [&[&str]; 5] = [&[], &["abc"], &["", "abc"], &["a", "bc"], &["a", "", "b", "c"]];
        for pieces in pieces {
            let wanted = pieces.concat();
            let pieces: Vec<_> = pieces.iter().map(|piece| Ok::<_, std::io::Error>(piece.to_string())).collect();
            let body = Body::from_stream(futures_util::stream::iter(pieces));
            assert_eq!(whole(body).await.unwrap(), wanted);
        }
        assert_eq!(whole(Body::from("abc")).await.unwrap(), "abc");
    }
}
