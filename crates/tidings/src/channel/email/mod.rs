//! E-mail: by SMTP, through Amazon SES, or as `.eml` files in the outbox.
//!
//! Each recipient gets a copy of its own and has an outcome of its own ([`Report`]), so that a second attempt goes
//! only to those who did not get it, and nobody learns who else did.

mod answer;
mod compose;
mod file;
pub mod ses;
mod session;
mod smtp;
mod wire;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use lettre::Address;
use lettre::message::Mailbox;
use tidings_core::time::Timestamp;

pub(crate) use self::compose::escape;
pub use self::smtp::{Server as SmtpServer, Tls as SmtpTls};
use super::{Notice, Outcome};
use crate::config;
use crate::outbound::Outbound;

/// How long one copy may take, unless whoever sends says otherwise.
const COPY_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct Sender {
    from: Mailbox,
    transport: Transport,
    timeout: Duration,
}

#[derive(Debug)]
enum Transport {
    File(file::Outbox),
    Smtp(smtp::Client),
    Ses(Box<ses::Client>),
}

/// Why there is no sender, as a sentence for the operator. Holds no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("e-mail cannot be set up: {0}")]
pub struct SetupError(String);

/// How long the copies of a mail may take.
#[derive(Clone, Copy)]
pub struct Pace<'a> {
    /// For each of them.
    pub timeout: Duration,
    /// Asked before each of them: after a `false` none is begun, and the rest is not in the report.
    pub goes_on: &'a (dyn Fn() -> bool + Sync),
}

/// What became of each recipient's copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub recipients: Vec<(String, Outcome)>,
}

impl Sender {
    /// `outbox` is the data directory's; `credentials` and `outbound` (the trusted one) are for SES.
    ///
    /// # Errors
    ///
    /// If the configuration lacks what its transport needs.
    pub fn new(
        config: &config::email::Email,
        outbox: &Path,
        credentials: Option<crate::aws::Credentials>,
        outbound: Outbound,
    ) -> Result<Self, SetupError> {
        let from = mailbox(&config.from).ok_or_else(|| SetupError("`email.from` is no address".to_owned()))?;
        let transport = match config.transport {
            config::email::Transport::File => Transport::File(file::Outbox::new(outbox)),
            config::email::Transport::Smtp => {
                let url =
                    config.smtp_url.as_ref().ok_or_else(|| SetupError("`email.smtp_url` is missing".to_owned()))?;
                let server = SmtpServer::parse(url.expose()).map_err(|why| SetupError(why.to_owned()))?;
                Transport::Smtp(smtp::Client::new(server, &from))
            }
            config::email::Transport::Ses => {
                let credentials =
                    credentials.ok_or_else(|| SetupError("SES needs `email.access_key_id` and its secret, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY".to_owned()))?;
                Transport::Ses(Box::new(ses::Client::new(config, credentials, outbound).map_err(SetupError)?))
            }
        };
        Ok(Self { from, transport, timeout: COPY_TIMEOUT })
    }

    /// The same with another limit for one copy.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Sends one copy to each, in their order. Hand in only those who have not got it yet.
    pub async fn send(&self, notice: &Notice<'_>, recipients: &[String], now: Timestamp) -> Report {
        let mut report = Report::default();
        self.send_within(Pace { timeout: self.timeout, goes_on: &|| true }, notice, recipients, now, &mut report).await;
        report
    }

    /// The same at a pace of the caller's. What became of a copy is in the report as soon as it is known, so that a caller
    /// who waits no longer still knows who has got one.
    pub async fn send_within(
        &self,
        pace: Pace<'_>,
        notice: &Notice<'_>,
        recipients: &[String],
        now: Timestamp,
        report: &mut Report,
    ) {
        let mut copies = Vec::with_capacity(recipients.len());
        let mut seen = BTreeSet::new();
        for recipient in recipients {
            let copy = mailbox(recipient)
                .ok_or_else(|| "it is no e-mail address".to_owned())
                .and_then(|to| Copy::new(notice, &self.from, to, now));
            match copy {
                _ if !seen.insert(recipient) => {}
                Ok(copy) => copies.push((recipient.clone(), copy)),
                Err(why) => report.add(recipient.clone(), Outcome::reject(why)),
            }
        }
        match &self.transport {
            Transport::File(outbox) => outbox.send(copies, pace, report).await,
            Transport::Smtp(client) => client.send(copies, pace, report).await,
            Transport::Ses(client) => client.send(copies, pace, now, report).await,
        }
        let place = |(recipient, _): &(String, Outcome)| recipients.iter().position(|other| other == recipient);
        report.recipients.sort_by_cached_key(place);
    }
}

/// What is said of a copy that took too long.
fn late(timeout: Duration) -> Outcome {
    Outcome::retry(format!("no answer within {} s", timeout.as_secs_f64()))
}

/// One recipient's mail, ready to hand over.
#[derive(Clone, Debug)]
struct Copy {
    message_id: uuid::Uuid,
    correlation_id: String,
    trace_id: Option<String>,
    from: Mailbox,
    to: Mailbox,
    bytes: Vec<u8>,
}

impl Copy {
    fn new(notice: &Notice<'_>, from: &Mailbox, to: Mailbox, now: Timestamp) -> Result<Self, String> {
        let bytes = compose::compose(notice, from, &to, now)?;
        Ok(Self {
            message_id: notice.message_id,
            correlation_id: notice.correlation_id.clone().into_owned(),
            trace_id: notice.trace_id.clone().map(Cow::into_owned),
            from: from.clone(),
            to,
            bytes,
        })
    }
}

impl Report {
    fn add(&mut self, recipient: String, outcome: Outcome) {
        self.recipients.push((recipient, outcome));
    }

    /// Those of `recipients` of whom nothing is known by now are to be tried again, for this reason.
    pub fn give_up(&mut self, recipients: &[String], why: &str) {
        for recipient in recipients {
            if !self.recipients.iter().any(|(known, _)| known == recipient) {
                self.add(recipient.clone(), Outcome::retry(why));
            }
        }
    }

    /// Those who have to be tried again.
    #[must_use]
    pub fn pending(&self) -> Vec<String> {
        let pending = self.recipients.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Retry { .. }));
        pending.map(|(recipient, _)| recipient.clone()).collect()
    }

    /// Those who have it.
    #[must_use]
    pub fn delivered(&self) -> Vec<String> {
        let delivered = self.recipients.iter().filter(|(_, outcome)| outcome.is_delivered());
        delivered.map(|(recipient, _)| recipient.clone()).collect()
    }

    /// The whole message's outcome: to be tried again while anybody is pending; refused if anybody was; else delivered.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let mut failures: Vec<_> = self.recipients.iter().filter(|(_, outcome)| !outcome.is_delivered()).collect();
        failures.sort_by_key(|(_, outcome)| matches!(outcome, Outcome::Reject { .. }));
        let texts = failures.iter().map(|(recipient, outcome)| format!("{recipient}: {}", outcome.text()));
        let error = texts.collect::<Vec<_>>().join("; ");
        match failures.first() {
            None => self.recipients.first().map_or_else(
                || Outcome::reject("it has no recipient"),
                |(_, first)| match first {
                    Outcome::Delivered { id, detail } if self.recipients.len() == 1 => {
                        Outcome::Delivered { id: id.clone(), detail: detail.clone() }
                    }
                    _ => Outcome::Delivered { id: None, detail: format!("{} copies", self.recipients.len()) },
                },
            ),
            Some((_, Outcome::Retry { code, .. })) => {
                let longest = failures.iter().filter_map(|(_, outcome)| match outcome {
                    Outcome::Retry { after, .. } => *after,
                    _ => None,
                });
                Outcome::Retry { after: longest.max(), error, code: *code }
            }
            Some((_, outcome)) => {
                let code = if let Outcome::Reject { code, .. } = outcome { *code } else { None };
                Outcome::Reject { error, code, disable_target: false }
            }
        }
    }
}

/// `name@example.com` or `Name <name@example.com>`. Nothing that could end a line or an address early: the library
/// checks addresses too, but a mistake there would let a stranger write our SMTP commands.
pub fn mailbox(text: &str) -> Option<Mailbox> {
    let ends_a_line = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    if text.chars().any(ends_a_line) {
        return None;
    }
    let Mailbox { name, email } = text.trim().parse().ok()?;
    let mailbox = Mailbox::new(name, in_ascii(email)?);
    is_plain(&mailbox.email).then_some(mailbox)
}

/// The same address with its domain as DNS has it: few mail servers take it in another script.
fn in_ascii(address: Address) -> Option<Address> {
    if address.domain().is_ascii() {
        return Some(address);
    }
    Address::new(address.user(), idna::domain_to_ascii(address.domain()).ok()?).ok()
}

/// Without quotes, blanks or brackets, which are legal in an address, and which nobody has.
fn is_plain(address: &Address) -> bool {
    let text: &str = address.as_ref();
    text.len() <= 254 && !text.chars().any(|c| c.is_whitespace() || c.is_control() || "\"<>(),:;\\".contains(c))
}

#[cfg(test)]
mod tests;
