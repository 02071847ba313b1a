//! One conversation with a mail server, from its greeting to our QUIT (RFC 5321).
//!
//! Each answer must be of the kind that its question asks for. A `250` to DATA is no permission to send the mail, and a
//! `354` to the mail is no receipt; whoever says so is not listened to any more.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::Copy;
use super::answer::Answer;
use super::wire::{Fault, Wire};

const NO_SMTPUTF8: &str =
    "an address has letters beyond ASCII before the `@`, and the mail server does not take such (SMTPUTF8)";
const NO_8BITMIME: &str = "the mail has letters beyond ASCII, and the mail server does not take such (8BITMIME)";
const NO_MECHANISM: &str = "the mail server offers no way to log in that is known here (PLAIN, LOGIN)";

/// What a challenge of AUTH is answered with.
const CHALLENGE: u16 = 334;
/// What asks for the mail's text.
const GO_ON: u16 = 354;

/// Why something was not done.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server will not, now (4xx) or ever (5xx).
    Refused(Answer),
    /// What was asked has no such answer.
    Unexpected {
        to: &'static str,
        answer: Answer,
    },
    /// This server cannot; nothing was said to it.
    Unable(&'static str),
    /// The server does not protect what is to be said.
    Unprotected(&'static str),
    Fault(Fault),
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

#[derive(Debug)]
pub(super) struct Session {
    wire: Wire,
    /// What the server can do, a line for each.
    extensions: Vec<String>,
}

impl Session {
    /// `name` is ours.
    pub(super) async fn begin(wire: Wire, name: &str) -> Result<Self, Failure> {
        let mut session = Self { wire, extensions: Vec::new() };
        let greeting = session.wire.answer().await?;
        positive("the connection", greeting)?;
        session.greet(name).await?;
        Ok(session)
    }

    async fn greet(&mut self, name: &str) -> Result<(), Failure> {
        let answer = self.ask(&format!("EHLO {name}\r\n")).await?;
        // A server from before 1995, which can do nothing but the least.
        self.extensions = if matches!(answer.code, 500 | 502) {
            let answer = self.ask(&format!("HELO {name}\r\n")).await?;
            positive("HELO", answer)?;
            Vec::new()
        } else {
            positive("EHLO", answer)?.lines
        };
        Ok(())
    }

    /// The words after an extension's name, if the server has it.
    fn extension(&self, name: &str) -> Option<std::str::SplitAsciiWhitespace<'_>> {
        self.extensions.iter().find_map(|line| {
            let mut words = line.split_ascii_whitespace();
            words.next().filter(|word| word.eq_ignore_ascii_case(name)).map(|_| words)
        })
    }

    pub(super) fn can_encrypt(&self) -> bool {
        self.extension("STARTTLS").is_some()
    }

    /// The same conversation, encrypted. What was said before counts no more.
    pub(super) async fn encrypted(mut self, host: &str, name: &str) -> Result<Self, Failure> {
        let answer = self.ask("STARTTLS\r\n").await?;
        positive("STARTTLS", answer)?;
        let mut session = Self { wire: self.wire.encrypted(host).await?, extensions: Vec::new() };
        session.greet(name).await?;
        Ok(session)
    }

    pub(super) async fn log_in(&mut self, user: &str, password: &str) -> Result<(), Failure> {
        let offers = |wanted: &str| {
            self.extension("AUTH").is_some_and(|mut words| words.any(|word| word.eq_ignore_ascii_case(wanted)))
        };
        let plain = STANDARD.encode(format!("\0{user}\0{password}"));
        let said = if offers("PLAIN") {
            // Some servers ask for it although they were told.
            [format!("AUTH PLAIN {plain}"), plain, String::new()]
        } else if offers("LOGIN") {
            ["AUTH LOGIN".to_owned(), STANDARD.encode(user), STANDARD.encode(password)]
        } else {
            return Err(Failure::Unable(NO_MECHANISM));
        };
        let mut said = said.into_iter().filter(|said| !said.is_empty()).peekable();
        while let Some(line) = said.next() {
            let answer = self.ask(&format!("{line}\r\n")).await?;
            if answer.code != CHALLENGE || said.peek().is_none() {
                positive("AUTH", answer)?;
                return Ok(());
            }
        }
        Ok(())
    }

    /// Hands over one copy; gives what the server says of it.
    pub(super) async fn send(&mut self, copy: &Copy) -> Result<Answer, Failure> {
        let from = format!("MAIL FROM:<{}>{}\r\n", copy.from.email, self.needs_of(copy)?);
        let answer = self.ask(&from).await?;
        positive("MAIL", answer)?;
        let answer = self.ask(&format!("RCPT TO:<{}>\r\n", copy.to.email)).await?;
        positive("RCPT", answer)?;
        let answer = self.ask("DATA\r\n").await?;
        expect("DATA", answer, |code| code == GO_ON)?;
        self.wire.say(&with_dots(&copy.bytes)).await?;
        let answer = self.ask("\r\n.\r\n").await?;
        positive("the mail", answer)
    }

    /// What a mail needs of the server, as MAIL says it.
    fn needs_of(&self, copy: &Copy) -> Result<String, Failure> {
        let mut needs = String::new();
        let is_ascii = [&copy.from, &copy.to].into_iter().all(|mailbox| mailbox.email.user().is_ascii());
        if !is_ascii {
            self.extension("SMTPUTF8").ok_or(Failure::Unable(NO_SMTPUTF8))?;
            needs.push_str(" SMTPUTF8");
        }
        if !copy.bytes.is_ascii() {
            self.extension("8BITMIME").ok_or(Failure::Unable(NO_8BITMIME))?;
            needs.push_str(" BODY=8BITMIME");
        }
        Ok(needs)
    }

    /// Whether it can be used for another mail.
    pub(super) async fn is_ready(&mut self) -> bool {
        self.wire.check_turn().await.is_ok()
    }

    pub(super) async fn quit(mut self) {
        let _ = self.ask("QUIT\r\n").await;
    }

    async fn ask(&mut self, said: &str) -> Result<Answer, Fault> {
        self.wire.say(said.as_bytes()).await?;
        self.wire.answer().await
    }
}

fn positive(to: &'static str, answer: Answer) -> Result<Answer, Failure> {
    expect(to, answer, |code| (200..300).contains(&code))
}

fn expect(to: &'static str, answer: Answer, is_right: impl Fn(u16) -> bool) -> Result<Answer, Failure> {
    match answer.code {
        code if is_right(code) => Ok(answer),
        400..600 => Err(Failure::Refused(answer)),
        _ => Err(Failure::Unexpected { to, answer }),
    }
}

/// A mail in which no line is the dot that ends it.
fn with_dots(mail: &[u8]) -> Vec<u8> {
    let mut sent = Vec::with_capacity(mail.len());
    for line in mail.split_inclusive(|byte| *byte == b'\n') {
        if line.starts_with(b".") {
            sent.push(b'.');
        }
        sent.extend_from_slice(line);
    }
    sent
}
