//! Reading messages: one by its id and a page by stage and status, in turn (S002-30, S002-82).

use super::{Caller, Load, Options};
use crate::bench::client::{self, Response};

/// A message for a day far away, so that nobody sends it meanwhile.
const BODY: &str = r#"{"message_type":"reminder","payload":{"text":"bench"},"deliver_at":"DAY"}"#;
const DAYS: i64 = 30;

pub fn read(options: &Options) -> Box<dyn Load> {
    Box::new(Desk { token: options.token.clone() })
}

#[derive(Debug)]
struct Desk {
    token: String,
}

impl Load for Desk {
    fn caller(&self) -> Box<dyn Caller> {
        let mut reader = Reader { token: self.token.clone(), message: None, list: false, request: Vec::new() };
        reader.aim();
        Box::new(reader)
    }
}

/// One connection, with a message of its own.
#[derive(Debug)]
struct Reader {
    token: String,
    /// `None`: one has to be made first.
    message: Option<String>,
    list: bool,
    request: Vec<u8>,
}

impl Reader {
    fn aim(&mut self) {
        self.request = match &self.message {
            None => {
                let day = crate::bench::stopwatch::days_from_now(DAYS);
                let body = BODY.replace("DAY", &day);
                client::request("POST", "/api/messages", &self.token, Some(("application/json", body.as_bytes())))
            }
            Some(_) if self.list => {
                client::request("GET", "/api/messages?stage=dev&status=created&limit=50", &self.token, None)
            }
            Some(id) => client::request("GET", &format!("/api/messages/{id}"), &self.token, None),
        };
    }
}

impl Caller for Reader {
    fn request(&mut self) -> &[u8] {
        &self.request
    }

    fn check(&mut self, response: Response<'_>) -> Option<u64> {
        let right = match &self.message {
            None => {
                self.message = made(response);
                self.message.is_some()
            }
            // An empty list is quick and says nothing.
            Some(_) if self.list => response.status == 200 && !response.body.starts_with(br#"{"items":[]"#),
            Some(_) => response.status == 200,
        };
        if right && self.message.is_some() {
            self.list = !self.list;
        }
        self.aim();
        right.then_some(1)
    }
}

/// The id of the message that was made.
fn made(response: Response<'_>) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Made {
        message_id: String,
    }
    let made = (response.status == 201).then(|| serde_json::from_slice::<Made>(response.body).ok())?;
    made.map(|made| made.message_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_made_once_and_then_read_and_listed() {
        let options = Options { batch: 1, rules: 0, entries: 0, token: "secret".into() };
        let mut caller = read(&options).caller();
        let line = |request: &[u8]| String::from_utf8_lossy(request).lines().next().unwrap().to_owned();
        assert_eq!(line(caller.request()), "POST /api/messages HTTP/1.1");
        assert_eq!(caller.check(Response { status: 201, body: br#"{"message_id":"m-1"}"# }), Some(1));
        let page = Response { status: 200, body: br#"{"items":[{}]}"# };
        for _ in 0..2 {
            assert!(line(caller.request()).starts_with("GET /api/messages?stage=dev&status=created"));
            assert_eq!(caller.check(page), Some(1));
            assert_eq!(line(caller.request()), "GET /api/messages/m-1 HTTP/1.1");
            assert_eq!(caller.check(page), Some(1));
        }
        assert_eq!(caller.check(Response { status: 200, body: br#"{"items":[]}"# }), None);
    }
}
