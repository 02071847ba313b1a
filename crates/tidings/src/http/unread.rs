//! Requests that cannot be read. hyper answers them by itself, with a bare status and before any of our code has seen
//! them; here its answer is exchanged for a problem document like every other (SX-24).
//!
//! `Turn` knows whose words go over a connection: from the moment a request is handed to the service until its answer is
//! flushed they are ours, and whatever is written at any other moment is hyper's.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use hyper::body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::problem::Problem;
use super::server::HEAD_BYTES;

/// How long a client may go on sending before it listens: closing over what is unread would reset the connection, and
/// the answer with it.
pub(super) const LINGER: Duration = Duration::from_secs(1);

/// Nobody has been asked anything, and nothing is left to be flushed.
const IDLE: u8 = 0;
/// The service has a request, or hyper has not got all of its answer.
const OURS: u8 = 1;
/// hyper has all of the answer.
const WHOLE: u8 = 2;

/// Whose words go over one connection.
#[derive(Debug, Default)]
pub(super) struct Turn(AtomicU8);

impl Turn {
    /// The service is given a request.
    pub(super) fn begin(&self) {
        self.0.store(OURS, Ordering::Relaxed);
    }

    fn is_idle(&self) -> bool {
        self.0.load(Ordering::Relaxed) == IDLE
    }

    /// Everything that was written is on its way.
    fn flushed(&self) {
        let _ = self.0.compare_exchange(WHOLE, IDLE, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// The body of an answer, which says when hyper has got all of it.
pub(super) struct Spoken {
    body: Body,
    turn: Arc<Turn>,
}

impl Spoken {
    pub(super) const fn new(body: Body, turn: Arc<Turn>) -> Self {
        Self { body, turn }
    }
}

impl Drop for Spoken {
    fn drop(&mut self) {
        self.turn.0.store(WHOLE, Ordering::Relaxed);
    }
}

impl hyper::body::Body for Spoken {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection on which hyper's own answers are exchanged; `id` gives each of ours its correlation id.
pub(super) struct Wire<S, I> {
    stream: S,
    turn: Arc<Turn>,
    id: I,
    last: Option<Last>,
}

/// The last answer of a connection.
struct Last {
    bytes: Vec<u8>,
    written: usize,
    is_shut: bool,
    patience: Option<Pin<Box<Sleep>>>,
}

impl<S, I: Fn() -> String> Wire<S, I> {
    pub(super) const fn new(stream: S, turn: Arc<Turn>, id: I) -> Self {
        Self { stream, turn, id, last: None }
    }

    /// Whether this is an answer of hyper's own; then ours takes its place.
    fn exchange(&mut self, bytes: &[u8]) -> bool {
        if !self.turn.is_idle() || self.last.is_some() {
            return false;
        }
        let Some((problem, date)) = std::str::from_utf8(bytes).ok().and_then(bare) else { return false };
        let bytes = closing(&problem, &(self.id)(), date);
        self.last = Some(Last { bytes, written: 0, is_shut: false, patience: None });
        true
    }
}

impl<S: AsyncWrite + Unpin, I> Wire<S, I> {
    /// Writes what is left of our own answer.
    fn poll_last(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(last) = &mut self.last else { return Poll::Ready(Ok(())) };
        while let Some(rest) = last.bytes.get(last.written..).filter(|rest| !rest.is_empty()) {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => last.written += written,
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin, I: Unpin> AsyncRead for Wire<S, I> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin, I: Fn() -> String + Unpin> AsyncWrite for Wire<S, I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.exchange(bytes) {
            return Poll::Ready(Ok(bytes.len()));
        }
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let [only] = slices
            && self.exchange(only)
        {
            return Poll::Ready(Ok(only.len()));
        }
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_last(cx))?;
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.turn.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_last(cx))?;
        let Self { stream, last, .. } = &mut *self;
        let Some(last) = last else { return Pin::new(stream).poll_shutdown(cx) };
        if !last.is_shut {
            ready!(Pin::new(&mut *stream).poll_shutdown(cx))?;
            last.is_shut = true;
        }
        let patience = last.patience.get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER)));
        let mut rest = [0; 4096];
        loop {
            if patience.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
            let mut rest = ReadBuf::new(&mut rest);
            match ready!(Pin::new(&mut *stream).poll_read(cx, &mut rest)) {
                Ok(()) if !rest.filled().is_empty() => {}
                _ => return Poll::Ready(Ok(())),
            }
        }
    }
}

/// What to say instead of an answer of hyper's own, and the date in it; `None` if it is none.
fn bare(text: &str) -> Option<(Problem, Option<&str>)> {
    let head = text.strip_prefix("HTTP/1.1 ")?.strip_suffix("\r\n\r\n")?;
    let status = StatusCode::from_bytes(head.get(..3)?.as_bytes()).ok()?;
    let (kind, detail) = match status {
        StatusCode::BAD_REQUEST => {
            ("bad-request", "the request cannot be read: its first line or one of its headers is malformed".to_owned())
        }
        StatusCode::URI_TOO_LONG => ("uri-too-long", "the address in the request's first line is too long".to_owned()),
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
            ("head-too-large", format!("the request has too many headers, or they are longer than {HEAD_BYTES} bytes"))
        }
        _ => return None,
    };
    let date = head.split("\r\n").find(|line| line.starts_with("date: "));
    Some((Problem::new(status, kind, detail), date))
}

/// A whole answer, after which the connection is closed; `date` is a whole line.
pub(super) fn closing(problem: &Problem, correlation_id: &str, date: Option<&str>) -> Vec<u8> {
    let body = problem.document(correlation_id);
    let retry = problem.retry_after_seconds.map(|seconds| format!("retry-after: {seconds}\r\n"));
    let date = date.map(|line| format!("{line}\r\n"));
    let (status, retry, date) = (problem.status, retry.unwrap_or_default(), date.unwrap_or_default());
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/problem+json\r\n{retry}x-correlation-id: {correlation_id}\r\n\
         x-content-type-options: nosniff\r\ncache-control: no-store\r\nconnection: close\r\n{date}\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
