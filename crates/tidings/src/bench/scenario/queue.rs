//! The scenarios about the bus: sending alone, and from sent to completed.

use super::{Caller, Load, Options};
use crate::bench::client::{self, Connection, Response};
use crate::bench::error::Error;
use crate::bench::tally::describe;

const QUEUE: &str = "bench";
const JSON: &str = "application/json";
const BATCH: &str = "application/vnd.microsoft.servicebus.json";
/// What each message carries, without anything that JSON would have to escape.
const BODY_BYTES: usize = 600;

/// `POST /bus/bench/messages`; nobody receives.
pub fn send(options: &Options) -> Box<dyn Load> {
    Box::new(Queue::new(options, "bench-send", &[Turn::Send]))
}

/// Send, receive, complete, and again. Operations are messages that are completed.
pub fn whole(options: &Options) -> Box<dyn Load> {
    Box::new(Queue::new(options, QUEUE, &[Turn::Send, Turn::Receive, Turn::Settle]))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Send,
    Receive,
    Settle,
}

#[derive(Debug)]
struct Queue {
    token: String,
    queue: &'static str,
    turns: &'static [Turn],
    batch: u32,
    send: Vec<u8>,
    receive: Vec<u8>,
}

impl Queue {
    fn new(options: &Options, queue: &'static str, turns: &'static [Turn]) -> Self {
        let (token, batch) = (&options.token, options.batch_or(1));
        let body = "m".repeat(BODY_BYTES);
        let send = if batch == 1 {
            client::request("POST", &format!("/bus/{queue}/messages"), token, Some(("text/plain", body.as_bytes())))
        } else {
            let list = vec![format!(r#"{{"Body":"{body}"}}"#); batch as usize];
            let list = format!("[{}]", list.join(","));
            client::request("POST", &format!("/bus/{queue}/messages"), token, Some((BATCH, list.as_bytes())))
        };
        let ask = format!(r#"{{"max":{batch}}}"#);
        let receive = client::request("POST", &format!("/bus/{queue}/receive"), token, Some((JSON, ask.as_bytes())));
        Self { token: token.clone(), queue, turns, batch, send, receive }
    }
}

#[async_trait::async_trait]
impl Load for Queue {
    async fn prepare(&self, connection: &mut Connection) -> Result<(), Error> {
        let body = br#"{"kind":"queue","lockSeconds":300,"maxDeliveryCount":100}"#;
        let request = client::request("PUT", &format!("/bus/{}", self.queue), &self.token, Some((JSON, body)));
        let unreachable =
            |source| Error::Unreachable { scenario: self.queue.to_owned(), address: "the server".to_owned(), source };
        let response = connection.call(&request).await.map_err(unreachable)?;
        if response.is_success() {
            return Ok(());
        }
        Err(Error::Refused { scenario: self.queue.to_owned(), reply: describe(response) })
    }

    fn batch(&self) -> u32 {
        self.batch
    }

    fn caller(&self) -> Box<dyn Caller> {
        Box::new(Worker {
            token: self.token.clone(),
            queue: self.queue,
            turns: self.turns,
            next: 0,
            batch: u64::from(self.batch),
            send: self.send.clone(),
            receive: self.receive.clone(),
            settle: Vec::new(),
            settling: 0,
        })
    }
}

/// One connection: its turns, one after the other.
#[derive(Debug)]
struct Worker {
    token: String,
    queue: &'static str,
    turns: &'static [Turn],
    next: usize,
    batch: u64,
    send: Vec<u8>,
    receive: Vec<u8>,
    settle: Vec<u8>,
    settling: u64,
}

impl Worker {
    fn turn(&self) -> Turn {
        self.turns.get(self.next).copied().unwrap_or(Turn::Send)
    }

    fn advance(&mut self) {
        self.next = (self.next + 1) % self.turns.len();
    }

    /// Prepares the settlement of what was received.
    fn received(&mut self, body: &[u8]) -> Option<u64> {
        let tokens = tokens(body)?;
        self.settling = tokens.len() as u64;
        self.advance();
        if tokens.is_empty() {
            // Somebody else was quicker; there is nothing to settle.
            self.advance();
            return Some(0);
        }
        let list: Vec<String> =
            tokens.iter().map(|token| format!(r#"{{"lockToken":"{token}","action":"complete"}}"#)).collect();
        let list = format!("[{}]", list.join(","));
        let path = format!("/bus/{}/settle", self.queue);
        self.settle = client::request("POST", &path, &self.token, Some((JSON, list.as_bytes())));
        Some(0)
    }
}

/// The lock tokens in an answer; it is searched, not parsed, for the client shares the machine with the server.
fn tokens(body: &[u8]) -> Option<Vec<String>> {
    const FIELD: &str = r#""lockToken":""#;
    let text = std::str::from_utf8(body).ok()?;
    text.match_indices(FIELD)
        .map(|(at, _)| text.get(at + FIELD.len()..at + FIELD.len() + 36).map(ToOwned::to_owned))
        .collect()
}

impl Caller for Worker {
    fn request(&mut self) -> &[u8] {
        match self.turn() {
            Turn::Send => &self.send,
            Turn::Receive => &self.receive,
            Turn::Settle => &self.settle,
        }
    }

    fn check(&mut self, response: Response<'_>) -> Option<u64> {
        match self.turn() {
            Turn::Send => {
                let sent = (response.status == 201).then_some(self.batch)?;
                self.advance();
                Some(if self.turns.len() == 1 { sent } else { 0 })
            }
            Turn::Receive => {
                if response.status != 200 {
                    return None;
                }
                self.received(response.body)
            }
            Turn::Settle => {
                let settled = std::mem::take(&mut self.settling);
                self.advance();
                let done = response.body.windows(13).filter(|part| part == br#""status":"ok""#).count() as u64;
                (response.status == 200 && done == settled).then_some(done)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_found_in_an_answer() {
        let token = "01890a5d-ac96-774b-bcce-b302099a8057";
        let body = format!(r#"{{"messages":[{{"lockToken":"{token}","body":"x"}},{{"lockToken":"{token}"}}]}}"#);
        assert_eq!(tokens(body.as_bytes()).unwrap(), [token, token]);
        assert!(tokens(b"{}").unwrap().is_empty());
    }
}
