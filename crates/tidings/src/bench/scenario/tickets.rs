//! The scenarios about tickets: the voice desk's four calls in turn, and reading alone.

use std::hash::{BuildHasher, Hasher, RandomState};

use super::{Caller, Load, Options};
use crate::bench::client::{self, Response};

const ISSUE: &str = "My laptop won't turn on after pressing the power button";
const COMMENT: &str = "Tried restarting but still not working";
const JSON: &str = "application/json";

/// Open, read, comment, list, and again with the next ticket.
pub fn all(options: &Options) -> Box<dyn Load> {
    Box::new(Desk { token: options.token.clone(), turns: &[Turn::Open, Turn::Read, Turn::Comment, Turn::List] })
}

/// One ticket for each connection, opened once and read from then on.
pub fn read(options: &Options) -> Box<dyn Load> {
    Box::new(Desk { token: options.token.clone(), turns: &[Turn::Read] })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Open,
    Read,
    Comment,
    List,
}

#[derive(Debug)]
struct Desk {
    token: String,
    turns: &'static [Turn],
}

impl Load for Desk {
    fn caller(&self) -> Box<dyn Caller> {
        // Every RandomState has keys of its own, so the hash of nothing is a random number.
        let whose = format!("bench-{:016x}", RandomState::new().build_hasher().finish());
        let mut agent =
            Agent { token: self.token.clone(), turns: self.turns, next: 0, whose, ticket: None, request: Vec::new() };
        agent.aim();
        Box::new(agent)
    }
}

/// One connection, with a caller of its own.
#[derive(Debug)]
struct Agent {
    token: String,
    turns: &'static [Turn],
    next: usize,
    whose: String,
    /// The ticket that is talked about; `None`: one has to be opened first.
    ticket: Option<String>,
    request: Vec<u8>,
}

impl Agent {
    fn turn(&self) -> Turn {
        match &self.ticket {
            None => Turn::Open,
            Some(_) => self.turns.get(self.next % self.turns.len()).copied().unwrap_or(Turn::Read),
        }
    }

    fn aim(&mut self) {
        let ticket = self.ticket.as_deref().unwrap_or_default();
        let (method, path, body) = match self.turn() {
            Turn::Open => {
                let body = serde_json::json!({ "caller_id": self.whose, "issue_description": ISSUE });
                ("POST", "/tickets".to_owned(), Some(body.to_string()))
            }
            Turn::Read => ("GET", format!("/tickets/{ticket}"), None),
            Turn::Comment => {
                let body = serde_json::json!({ "comment_text": COMMENT }).to_string();
                ("POST", format!("/tickets/{ticket}/comments"), Some(body))
            }
            Turn::List => ("GET", format!("/tickets?caller={}", self.whose), None),
        };
        let body = body.as_ref().map(|body| (JSON, body.as_bytes()));
        self.request = client::request(method, &path, &self.token, body);
    }
}

impl Caller for Agent {
    fn request(&mut self) -> &[u8] {
        &self.request
    }

    fn check(&mut self, response: Response<'_>) -> Option<u64> {
        let (turn, first) = (self.turn(), self.ticket.is_none());
        let right = match turn {
            Turn::Open => {
                self.ticket = opened(response);
                self.ticket.is_some()
            }
            Turn::Comment => response.status == 201,
            // An empty list is quick and says nothing.
            Turn::List => response.status == 200 && !response.body.starts_with(br#"{"tickets":[]"#),
            Turn::Read => response.status == 200,
        };
        // What was opened only to be read is not part of the turns.
        if right && (!first || self.turns.first() == Some(&Turn::Open)) {
            self.next += 1;
        }
        self.aim();
        right.then_some(1)
    }
}

/// The id of the ticket that was opened.
fn opened(response: Response<'_>) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Ticket {
        ticket_id: String,
    }
    (response.status == 201)
        .then(|| serde_json::from_slice::<Ticket>(response.body).ok())?
        .map(|ticket| ticket.ticket_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options { batch: 1, rules: 0, entries: 0, token: "secret".into() }
    }

    fn line(request: &[u8]) -> String {
        String::from_utf8_lossy(request).lines().next().unwrap().to_owned()
    }

    #[test]
    fn the_four_calls_come_in_turn() {
        let mut caller = all(&options()).caller();
        let ticket = Response { status: 201, body: br#"{"ticket_id":"t-1"}"# };
        let list = Response { status: 200, body: br#"{"tickets":[{}]}"# };
        for _ in 0..2 {
            assert_eq!(line(caller.request()), "POST /tickets HTTP/1.1");
            assert_eq!(caller.check(ticket), Some(1));
            assert_eq!(line(caller.request()), "GET /tickets/t-1 HTTP/1.1");
            assert_eq!(caller.check(list), Some(1));
            assert_eq!(line(caller.request()), "POST /tickets/t-1/comments HTTP/1.1");
            assert_eq!(caller.check(ticket), Some(1));
            assert!(line(caller.request()).starts_with("GET /tickets?caller=bench-"));
            assert_eq!(caller.check(list), Some(1));
        }
        assert_eq!(caller.check(Response { status: 503, body: b"" }), None);
    }

    #[test]
    fn reading_opens_one_ticket_and_stays_with_it() {
        let mut caller = read(&options()).caller();
        assert_eq!(line(caller.request()), "POST /tickets HTTP/1.1");
        assert_eq!(caller.check(Response { status: 201, body: br#"{"ticket_id":"t-1"}"# }), Some(1));
        for _ in 0..3 {
            assert_eq!(line(caller.request()), "GET /tickets/t-1 HTTP/1.1");
            assert_eq!(caller.check(Response { status: 200, body: b"{}" }), Some(1));
        }
        assert_eq!(caller.check(Response { status: 404, body: b"" }), None);
    }
}
