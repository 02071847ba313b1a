//! The other side of the `messages` scenarios: an ntfy server that takes everything, and knows when.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use memchr::memmem::Finder;
use rustc_hash::FxHashMap;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::error::Error;
use super::histogram::Histogram;
use super::stopwatch;

/// Stands before a message's number in its text.
pub const MARK: &str = "bench no. ";
const TAKEN: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 21\r\n\r\n{\"id\":\"hwQ2YpKdmgXK\"}";
const REFUSED: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";

/// Made once, not for each message.
static HEAD_END: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new(b"\r\n\r\n"));
static NUMBER: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new(MARK));

/// How long a slow one takes.
const SLOW: Duration = Duration::from_millis(2);

/// A server in this process; dropping it closes the door.
#[derive(Debug)]
pub struct Sink {
    pub address: SocketAddr,
    state: Arc<State>,
    /// Dropped, it ends the conversations.
    _accepting: JoinSet<()>,
}

#[derive(Debug, Default)]
struct State {
    messages: Mutex<Messages>,
    /// Rung when a message has come.
    came: Notify,
    sent: AtomicU64,
    taken: AtomicU64,
    is_dead: AtomicBool,
    /// Takes its time for each.
    is_slow: AtomicBool,
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
}

/// Messages that one side has spoken of and the other not yet.
#[derive(Debug, Default)]
struct Messages {
    created: FxHashMap<u64, Instant>,
    taken: FxHashMap<u64, Instant>,
    latencies: Histogram,
}

impl Sink {
    /// It is served by the thread that sends, which has time for both: one more thread would take the cores from the
    /// server, a switch for each message.
    pub fn open() -> Result<Self, Error> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let (address, state) = (listener.local_addr()?, Arc::<State>::default());
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(TcpListener::from_std(listener)?, Arc::clone(&state)));
        Ok(Self { address, state, _accepting: accepting })
    }

    /// The number of a message that is about to be sent to the server.
    pub fn next(&self) -> u64 {
        self.state.sent.fetch_add(1, Ordering::Relaxed)
    }

    /// The server has not taken the message, so that it will not come.
    pub fn lost(&self) {
        self.state.taken.fetch_add(1, Ordering::Relaxed);
        self.state.came.notify_waiters();
    }

    /// The server says that it has the message.
    pub fn created(&self, number: u64) {
        let now = stopwatch::now();
        let mut messages = self.state.messages();
        match messages.taken.remove(&number) {
            // It was here before its sender heard of it.
            Some(taken) => messages.latencies.record(taken.saturating_duration_since(now)),
            None => drop(messages.created.insert(number, now)),
        }
    }

    /// Messages that are on their way.
    #[must_use]
    pub fn pending(&self) -> u64 {
        self.state.sent.load(Ordering::Relaxed).saturating_sub(self.state.taken.load(Ordering::Relaxed))
    }

    /// Waits until fewer than `most` are on their way.
    pub async fn room(&self, most: u64) {
        loop {
            let came = self.state.came.notified();
            if self.pending() < most {
                return;
            }
            came.await;
        }
    }

    /// Whether the server is dead: it refuses everything.
    pub fn set_dead(&self, is_dead: bool) {
        self.state.is_dead.store(is_dead, Ordering::Relaxed);
    }

    /// Whether the server takes its time, so that it is seen how many come at once.
    pub fn set_slow(&self, is_slow: bool) {
        self.state.is_slow.store(is_slow, Ordering::Relaxed);
    }

    /// From created to here, since the last call.
    #[must_use]
    pub fn latencies(&self) -> Histogram {
        std::mem::take(&mut self.state.messages().latencies)
    }

    /// The most requests that were here at once, since the last call.
    #[must_use]
    pub fn most_at_once(&self) -> usize {
        self.state.most_at_once.swap(0, Ordering::Relaxed)
    }
}

impl State {
    fn messages(&self) -> MutexGuard<'_, Messages> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, number: u64) {
        let now = stopwatch::now();
        let mut messages = self.messages();
        match messages.created.remove(&number) {
            Some(created) => messages.latencies.record(now.saturating_duration_since(created)),
            None => drop(messages.taken.insert(number, now)),
        }
        drop(messages);
        self.taken.fetch_add(1, Ordering::Relaxed);
        self.came.notify_waiters();
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    let mut conversations = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        conversations.spawn(converse(stream, Arc::clone(&state)));
        while conversations.try_join_next().is_some() {}
    }
}

async fn converse(mut stream: TcpStream, state: Arc<State>) {
    let _ = stream.set_nodelay(true);
    let mut received = Vec::with_capacity(8192);
    loop {
        let Some(length) = request_length(&received) else {
            match stream.read_buf(&mut received).await {
                Ok(read) if read > 0 => continue,
                _ => return,
            }
        };
        let at_once = state.at_once.fetch_add(1, Ordering::Relaxed) + 1;
        state.most_at_once.fetch_max(at_once, Ordering::Relaxed);
        let is_dead = state.is_dead.load(Ordering::Relaxed);
        if !is_dead && let Some(number) = received.get(..length).and_then(number_in) {
            state.take(number);
        }
        received.drain(..length);
        if state.is_slow.load(Ordering::Relaxed) {
            tokio::time::sleep(SLOW).await;
        }
        let sent = stream.write_all(if is_dead { REFUSED } else { TAKEN }).await;
        state.at_once.fetch_sub(1, Ordering::Relaxed);
        if sent.is_err() {
            return;
        }
    }
}

/// The length of the request at the beginning, once all of it is there.
fn request_length(bytes: &[u8]) -> Option<usize> {
    let head = HEAD_END.find(bytes)?;
    let (mut line, mut length) = (0, 0);
    for end in memchr::memchr_iter(b'\n', bytes.get(..head)?).chain([head]) {
        // Almost every header is of no interest, and a look at its first letter says so.
        if matches!(bytes.get(line), Some(b'c' | b'C')) {
            length = bytes.get(line..end).and_then(length_in).unwrap_or(length);
        }
        line = end + 1;
    }
    let whole = head + 4 + length;
    (bytes.len() >= whole).then_some(whole)
}

fn length_in(line: &[u8]) -> Option<usize> {
    let (name, value) = std::str::from_utf8(line).ok()?.split_once(':')?;
    name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
}

fn number_in(request: &[u8]) -> Option<u64> {
    let after = request.get(NUMBER.find(request)? + MARK.len()..)?;
    let mut digits = after.iter().take_while(|byte| byte.is_ascii_digit());
    let number = |sum: u64, byte: &u8| sum.checked_mul(10)?.checked_add(u64::from(byte - b'0'));
    digits.try_fold(None, |sum: Option<u64>, byte| number(sum.unwrap_or(0), byte).map(Some))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_whole_when_its_body_is() {
        let request = b"POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody";
        assert_eq!(request_length(request), Some(request.len()));
        assert_eq!(request_length(&request[..request.len() - 1]), None);
        assert_eq!(request_length(b"POST / HTTP/1.1\r\n"), None);
        assert_eq!(request_length(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\nGET"), Some(37));
        assert_eq!(number_in(b"{\"message\":\"bench no. 4711\"}"), Some(4711));
        assert_eq!(number_in(b"{\"message\":\"else\"}"), None);
    }

    #[tokio::test]
    async fn messages_are_counted_once_both_sides_know_them() {
        let sink = Sink::open().unwrap();
        assert_eq!((sink.next(), sink.next(), sink.pending()), (0, 1, 2));
        sink.created(0);
        sink.state.take(0);
        sink.state.take(1);
        sink.created(1);
        assert_eq!(sink.pending(), 0);
        assert_eq!(sink.latencies().count(), 2);
        sink.room(1).await;
    }
}
