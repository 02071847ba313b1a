//! A connection that is kept open, and nothing hidden: when the server dies, the caller sees it.

use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// An answer that arrived in full.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub content_type: String,
    pub body: Value,
}

pub struct Connection {
    stream: BufReader<TcpStream>,
    token: String,
}

impl Connection {
    pub fn open(address: &str, token: &str) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        // Far beyond any answer: a server that hangs fails the test instead of stopping it.
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Self { stream: BufReader::new(stream), token: token.to_owned() })
    }

    pub fn get(&mut self, path: &str) -> Result<Answer> {
        self.request("GET", path, "")
    }

    pub fn post(&mut self, path: &str, body: &str) -> Result<Answer> {
        self.request("POST", path, body)
    }

    fn request(&mut self, method: &str, path: &str, body: &str) -> Result<Answer> {
        let (token, len) = (&self.token, body.len());
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: tidings\r\nauthorization: Bearer {token}\r\n\
             content-type: application/json\r\ncontent-length: {len}\r\n\r\n{body}"
        );
        self.stream.get_mut().write_all(request.as_bytes())?;
        self.answer()
    }

    fn answer(&mut self) -> Result<Answer> {
        let bad = |what: &str| Error::new(ErrorKind::InvalidData, what.to_owned());
        let status = self.line()?.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(|| bad("status"))?;
        let (mut len, mut content_type) = (None, String::new());
        loop {
            let line = self.line()?.to_ascii_lowercase();
            match line.split_once(": ") {
                Some(("content-length", value)) => len = value.parse::<usize>().ok(),
                Some(("content-type", value)) => value.clone_into(&mut content_type),
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; len.ok_or_else(|| bad("an answer without a length"))?];
        self.stream.read_exact(&mut body)?;
        let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
        Ok(Answer { status, content_type, body })
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 || !line.ends_with('\n') {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }
}
