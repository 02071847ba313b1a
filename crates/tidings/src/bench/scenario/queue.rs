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

/// Send, receive, complete, and again: the call that receives the next completes the one before. Operations are messages
/// that are completed.
pub fn whole(options: &Options) -> Box<dyn Load> {
    Box::new(Queue::new(options, QUEUE, &[Turn::Send, Turn::Next]))
}

/// The same with a call for each.
pub fn apart(options: &Options) -> Box<dyn Load> {
    Box::new(Queue::new(options, QUEUE, &[Turn::Send, Turn::Receive, Turn::Settle]))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Send,
    Receive,
    Settle,
    /// Settles what was received and receives more.
    Next,
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
            turn: 0,
            batch: self.batch,
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
    turn: usize,
    batch: u32,
    send: Vec<u8>,
    receive: Vec<u8>,
    /// Settles what was received; with `Turn::Next` it asks for more, too.
    settle: Vec<u8>,
    settling: u64,
}

impl Worker {
    fn turn(&self) -> Turn {
        self.turns.get(self.turn).copied().unwrap_or(Turn::Send)
    }

    fn advance(&mut self) {
        self.turn = (self.turn + 1) % self.turns.len();
    }

    /// Prepares the settlement of what was received.
    fn received(&mut self, tokens: &[&str]) {
        self.settling = tokens.len() as u64;
        let list: Vec<String> =
            tokens.iter().map(|token| format!(r#"{{"lockToken":"{token}","action":"complete"}}"#)).collect();
        let list = format!("[{}]", list.join(","));
        let (path, body) = match self.turn() {
            Turn::Next => ("receive", format!(r#"{{"max":{},"settle":{list}}}"#, self.batch)),
            _ => ("settle", list),
        };
        let path = format!("/bus/{}/{path}", self.queue);
        self.settle = client::request("POST", &path, &self.token, Some((JSON, body.as_bytes())));
    }

    /// How many were settled, if all that should be were.
    fn settled(&mut self, results: &[u8]) -> Option<u64> {
        let settled = results.windows(13).filter(|part| part == br#""status":"ok""#).count() as u64;
        (std::mem::take(&mut self.settling) == settled).then_some(settled)
    }
}

/// The messages and the settlements in an answer.
fn parts(body: &[u8]) -> Option<(&str, &str)> {
    let text = std::str::from_utf8(body).ok()?;
    Some(text.rsplit_once(r#""settled":["#).unwrap_or((text, "")))
}

/// The lock tokens of messages; they are searched, not parsed, for the client shares the machine with the server.
fn tokens(messages: &str) -> Option<Vec<&str>> {
    const FIELD: &str = r#""lockToken":""#;
    messages.match_indices(FIELD).map(|(at, _)| messages.get(at + FIELD.len()..at + FIELD.len() + 36)).collect()
}

impl Caller for Worker {
    fn request(&mut self) -> &[u8] {
        match self.turn() {
            Turn::Send => &self.send,
            Turn::Next if self.settling == 0 => &self.receive,
            Turn::Receive => &self.receive,
            Turn::Settle | Turn::Next => &self.settle,
        }
    }

    fn check(&mut self, response: Response<'_>) -> Option<u64> {
        let turn = self.turn();
        if response.status != if turn == Turn::Send { 201 } else { 200 } {
            return None;
        }
        let done = match turn {
            Turn::Send if self.turns.len() == 1 => u64::from(self.batch),
            Turn::Send => 0,
            Turn::Receive => {
                let tokens = tokens(parts(response.body)?.0)?;
                self.received(&tokens);
                if tokens.is_empty() {
                    // Somebody else was quicker; there is nothing to settle.
                    self.advance();
                }
                0
            }
            Turn::Settle => self.settled(response.body)?,
            Turn::Next => {
                let (messages, results) = parts(response.body)?;
                let done = self.settled(results.as_bytes())?;
                self.received(&tokens(messages)?);
                done
            }
        };
        self.advance();
        Some(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_and_settlements_are_found_in_an_answer() {
        let token = "01890a5d-ac96-774b-bcce-b302099a8057";
        let settled = format!(r#""settled":[{{"lockToken":"{token}","status":"ok"}}]"#);
        let body =
            format!(r#"{{"messages":[{{"lockToken":"{token}","body":"x"}},{{"lockToken":"{token}"}}],{settled}}}"#);
        let (messages, results) = parts(body.as_bytes()).unwrap();
        assert_eq!(tokens(messages).unwrap(), [token, token]);
        assert!(results.contains("ok"));
        assert!(tokens("{}").unwrap().is_empty());
    }
}
