//! A tiny HTTP server for the tests of the load generator.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::server::Target;

/// Answers every request, given as text with its body, with what `reply` makes of it.
pub async fn server(reply: impl Fn(&str) -> String + Clone + Send + 'static) -> Target {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(converse(stream, reply.clone()));
        }
    });
    Target { address, token: "secret".into() }
}

/// A response with this status and body.
pub fn response(status: u16, body: &str) -> String {
    format!("HTTP/1.1 {status} Whatever\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

async fn converse(mut stream: TcpStream, reply: impl Fn(&str) -> String) {
    let mut received = Vec::new();
    while stream.read_buf(&mut received).await.is_ok_and(|read| read > 0) {
        let text = std::str::from_utf8(&received).unwrap();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if body.len() < length.map_or(0, |length| length.parse().unwrap()) {
            continue;
        }
        stream.write_all(reply(text).as_bytes()).await.unwrap();
        received.clear();
    }
}
