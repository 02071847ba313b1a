//! A keep-alive HTTP/1.1 client made for load: one connection, one request at a time, one buffer used again and again.
//!
//! It shares the machine's cores with the server it measures, so it does as little as possible: a request is bytes that
//! the scenario built beforehand, a response is read into the same buffer every time and handed out as a slice of it.
//! Plain HTTP only; what it cannot read (an endless head, a body beyond the limit) is an error, never a hang.

use std::io;
use std::net::SocketAddr;

use memchr::memmem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const HEAD_MAX: usize = 64 << 10;
const RESPONSE_MAX: usize = 64 << 20;
const BUFFER_START: usize = 16 << 10;

/// What the server answered. The body is valid until the next call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response<'a> {
    pub status: u16,
    pub body: &'a [u8],
}

impl Response<'_> {
    #[must_use]
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// One open connection.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    filled: usize,
}

/// The parts of a response's head that decide where the response ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    status: u16,
    bytes: usize,
    body: Body,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Body {
    Length(usize),
    Chunked,
}

impl Connection {
    pub async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; BUFFER_START], filled: 0 })
    }

    /// Sends a whole request and reads its whole response. After an error the connection is of no more use.
    pub async fn call(&mut self, request: &[u8]) -> io::Result<Response<'_>> {
        self.stream.write_all(request).await?;
        self.filled = 0;
        let head = loop {
            self.read_more().await?;
            match parse_head(self.received())? {
                Some(head) => break head,
                None if self.filled > HEAD_MAX => return Err(invalid("the response's head is too long")),
                None => {}
            }
        };
        let length = match head.body {
            Body::Length(length) => {
                self.read_up_to(head.bytes.saturating_add(length)).await?;
                length
            }
            Body::Chunked => self.read_chunks(head.bytes).await?,
        };
        let body = self.buffer.get(head.bytes..head.bytes + length).unwrap_or_default();
        Ok(Response { status: head.status, body })
    }

    fn received(&self) -> &[u8] {
        self.buffer.get(..self.filled).unwrap_or_default()
    }

    async fn read_up_to(&mut self, end: usize) -> io::Result<()> {
        if end > RESPONSE_MAX {
            return Err(invalid("the response is too long"));
        }
        if self.buffer.len() < end {
            self.buffer.resize(end, 0);
        }
        while self.filled < end {
            self.read_more().await?;
        }
        // Nothing was asked for yet, so nothing may follow.
        if self.filled > end { Err(invalid("the response is longer than it says")) } else { Ok(()) }
    }

    /// Reads all chunks and moves their contents together, right behind the head. Returns the length of the body.
    async fn read_chunks(&mut self, start: usize) -> io::Result<usize> {
        let (mut read, mut written) = (start, start);
        loop {
            let line = self.line_from(read).await?;
            let size = chunk_size(self.received().get(read..line).unwrap_or_default())?;
            let data = line + 2;
            if size == 0 {
                // Trailers, if any, end with an empty line.
                let mut from = data;
                loop {
                    let end = self.line_from(from).await?;
                    if end == from {
                        return Ok(written - start);
                    }
                    from = end + 2;
                }
            }
            if data.saturating_add(size) > RESPONSE_MAX {
                return Err(invalid("the response is too long"));
            }
            while self.filled < data + size + 2 {
                self.read_more().await?;
            }
            self.buffer.copy_within(data..data + size, written);
            written += size;
            read = data + size + 2;
        }
    }

    /// Where the line that begins at `from` ends, after reading as much as that takes.
    async fn line_from(&mut self, from: usize) -> io::Result<usize> {
        loop {
            let rest = self.received().get(from..).unwrap_or_default();
            if let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") {
                return Ok(from + end);
            }
            if rest.len() > HEAD_MAX {
                return Err(invalid("a line of the response is too long"));
            }
            self.read_more().await?;
        }
    }

    async fn read_more(&mut self) -> io::Result<()> {
        if self.filled == self.buffer.len() {
            if self.filled >= RESPONSE_MAX {
                return Err(invalid("the response is too long"));
            }
            self.buffer.resize(self.filled * 2, 0);
        }
        let free = self.buffer.get_mut(self.filled..).unwrap_or_default();
        match self.stream.read(free).await? {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")),
            more => {
                self.filled += more;
                Ok(())
            }
        }
    }
}

/// The head at the beginning of `bytes`, or none while it is incomplete.
fn parse_head(bytes: &[u8]) -> io::Result<Option<Head>> {
    let Some(end) = memmem::find(bytes, b"\r\n\r\n") else {
        return Ok(None);
    };
    let mut lines = bytes.get(..end).unwrap_or_default().split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
    let status = lines.next().and_then(parse_status).ok_or_else(|| invalid("the response is not HTTP/1.1"))?;
    let mut body = None;
    for line in lines {
        // Almost every header is of no interest, and a look at its first letter says so.
        if !matches!(line.first(), Some(b'c' | b'C' | b't' | b'T')) {
            continue;
        }
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            return Err(invalid("a header of the response has no colon"));
        };
        let (name, value) = line.split_at(colon);
        let value = value.get(1..).unwrap_or_default().trim_ascii();
        if name.eq_ignore_ascii_case(b"content-length") {
            let length = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
            body = Some(Body::Length(length.ok_or_else(|| invalid("the response's length is no number"))?));
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") && value.eq_ignore_ascii_case(b"chunked") {
            body = Some(Body::Chunked);
        }
    }
    let body = match body {
        _ if matches!(status, 204 | 304) => Body::Length(0),
        Some(body) => body,
        None => return Err(invalid("the response does not say how long it is")),
    };
    Ok(Some(Head { status, bytes: end + 4, body }))
}

fn parse_status(line: &[u8]) -> Option<u16> {
    let rest = line.strip_prefix(b"HTTP/1.1 ")?;
    let digits = std::str::from_utf8(rest.get(..3)?).ok()?;
    digits.parse().ok()
}

fn chunk_size(line: &[u8]) -> io::Result<usize> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let size = std::str::from_utf8(digits).ok().and_then(|text| usize::from_str_radix(text, 16).ok());
    size.filter(|size| *size <= RESPONSE_MAX).ok_or_else(|| invalid("a chunk of the response has no valid size"))
}

fn invalid(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// The bytes of a request, ready to be sent any number of times.
#[must_use]
pub fn request(method: &str, path: &str, token: &str, body: Option<(&str, &[u8])>) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n");
    if !token.is_empty() {
        head += &format!("authorization: Bearer {token}\r\n");
    }
    if let Some((content_type, body)) = body {
        head += &format!("content-type: {content_type}\r\ncontent-length: {}\r\n", body.len());
    }
    let mut bytes = (head + "\r\n").into_bytes();
    bytes.extend_from_slice(body.map(|(_, body)| body).unwrap_or_default());
    bytes
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::net::TcpListener;

    use super::*;

    /// Answers each request on one connection with the next reply, in pieces of `piece` bytes.
    async fn answering(replies: Vec<&'static str>, piece: usize) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            let mut request = [0; 1024];
            for reply in replies {
                assert!(stream.read(&mut request).await.unwrap() > 0);
                for part in reply.as_bytes().chunks(piece) {
                    stream.write_all(part).await.unwrap();
                    tokio::time::sleep(Duration::from_micros(200)).await;
                }
            }
        });
        address
    }

    const PLAIN: &str = "HTTP/1.1 202 Accepted\r\nContent-Length: 5\r\nx-other: 1\r\n\r\nhello";
    const EMPTY: &str = "HTTP/1.1 204 No Content\r\ndate: now\r\n\r\n";
    const CHUNKED: &str =
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5;a=b\r\nhello\r\nA\r\n, \r\n world\r\n0\r\nx: y\r\n\r\n";

    #[tokio::test]
    async fn lengths_and_chunks_are_read_in_pieces_of_any_size() {
        for piece in [1, 2, 3, 7, 1000] {
            let address = answering(vec![PLAIN, EMPTY, CHUNKED, PLAIN], piece).await;
            let mut connection = Connection::open(address).await.unwrap();
            let request = request("GET", "/", "", None);
            for (status, body) in [(202, "hello"), (204, ""), (200, "hello, \r\n world"), (202, "hello")] {
                let response = connection.call(&request).await.unwrap();
                assert_eq!((response.status, std::str::from_utf8(response.body).unwrap()), (status, body), "{piece}");
            }
            assert!(connection.call(&request).await.is_err(), "the server closed");
        }
    }

    #[tokio::test]
    async fn a_body_larger_than_the_buffer_is_read() {
        let reply = format!("HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n{}", "x".repeat(100_000));
        let address = answering(vec![reply.leak()], 5000).await;
        let mut connection = Connection::open(address).await.unwrap();
        let response = connection.call(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        assert_eq!((response.status, response.body.len()), (200, 100_000));
    }

    #[tokio::test]
    async fn nonsense_is_an_error() {
        for reply in [
            "SSH-2.0-OpenSSH\r\n\r\n",
            "HTTP/1.1 2x0 OK\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\nserver: endless\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\ntoo long",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        ] {
            let address = answering(vec![reply], 1000).await;
            let mut connection = Connection::open(address).await.unwrap();
            assert!(connection.call(b"GET / HTTP/1.1\r\n\r\n").await.is_err(), "{reply}");
        }
    }

    #[test]
    fn a_request_is_complete() {
        let bytes = request("POST", "/events", "secret", Some(("application/json", b"{}")));
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            "POST /events HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer secret\r\n\
             content-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
        );
    }
}
