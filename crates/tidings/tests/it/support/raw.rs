//! Connections that send what no proper client would.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub struct Raw(TcpStream);

/// An answer as it came over the wire.
#[derive(Debug)]
pub struct RawAnswer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Raw {
    pub async fn connect(address: SocketAddr) -> Self {
        Self(TcpStream::connect(address).await.unwrap())
    }

    /// Sends bytes; the server may have gone by then.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.0.write_all(bytes.as_ref()).await.is_ok()
    }

    /// Says that nothing more will be sent.
    pub async fn finish(&mut self) {
        let _ = self.0.shutdown().await;
    }

    /// Everything until the server closes the connection.
    pub async fn read_to_end(&mut self) -> String {
        let mut bytes = Vec::new();
        // A reset is a way to close, too.
        let _ = self.0.read_to_end(&mut bytes).await;
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The only answer of a connection that the server closes after it.
    pub async fn last_answer(&mut self) -> RawAnswer {
        RawAnswer::parse(&self.read_to_end().await)
    }

    /// Reads until `text` has come.
    pub async fn read_until(&mut self, text: &str) -> String {
        let mut seen = String::new();
        let mut piece = [0; 4096];
        while !seen.contains(text) {
            let read = self.0.read(&mut piece).await.unwrap();
            assert!(read > 0, "closed before {text:?} came: {seen}");
            seen.push_str(&String::from_utf8_lossy(&piece[..read]));
        }
        seen
    }
}

impl RawAnswer {
    fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    pub fn problem(&self, status: u16) -> serde_json::Value {
        assert_eq!(self.status, status, "{self:?}");
        assert!(self.head.contains("content-type: application/problem+json"), "{self:?}");
        let problem: serde_json::Value = serde_json::from_str(&self.body).unwrap();
        assert_eq!(problem["status"], status);
        problem
    }
}

/// The head of a request with a token, up to but without the empty line.
pub fn head(method: &str, path: &str, token: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {token}\r\n")
}
