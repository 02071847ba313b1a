//! SMTP: one transaction for each recipient over one connection, so that each has its own answer.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lettre::message::Mailbox;
use percent_encoding::percent_decode_str;
use reqwest::Url;

use super::super::quote;
use super::session::{Failure, Session};
use super::wire::Wire;
use super::{Copy, Outcome, Pace, Report, late};
use crate::config::Secret;

const NO_STARTTLS: &str = "the server offers no STARTTLS, and `email.smtp_url` requires it";
const NO_PASSWORD: &str = "the server offers no STARTTLS, and the password is not sent in the clear";
/// How long a server may take to say good-bye.
const QUIT_TIMEOUT: Duration = Duration::from_secs(1);

/// How the connection is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tls {
    /// From the first byte: `smtps://`.
    Implicit,
    /// STARTTLS or nothing.
    Required,
    /// STARTTLS if it is offered. A password is sent only if it was.
    Opportunistic,
    None,
}

/// What `email.smtp_url` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub host: String,
    pub port: u16,
    pub tls: Tls,
    pub user: Option<String>,
    pub password: Option<Secret>,
}

impl Server {
    /// `smtp://user:password@host:587?tls=required|opportunistic|none` or `smtps://host:465`. Without `tls` it is
    /// required.
    ///
    /// # Errors
    ///
    /// What is wrong, without showing any of it.
    pub fn parse(url: &str) -> Result<Self, &'static str> {
        let url = Url::parse(url).map_err(|_| "`email.smtp_url` cannot be read")?;
        let tls_option = url.query_pairs().find(|(key, _)| key == "tls").map(|(_, value)| value.into_owned());
        let tls = match (url.scheme(), tls_option.as_deref()) {
            ("smtps", None | Some("required")) => Tls::Implicit,
            ("smtp", None | Some("required")) => Tls::Required,
            ("smtp", Some("opportunistic")) => Tls::Opportunistic,
            ("smtp", Some("none")) => Tls::None,
            ("smtps", _) => {
                return Err("`email.smtp_url` has smtps://, which is always encrypted: only `tls=required` fits it");
            }
            _ => return Err("`email.smtp_url` must be smtp:// with tls=required, opportunistic or none, or smtps://"),
        };
        let default_port = match tls {
            Tls::Implicit => 465,
            Tls::Required => 587,
            Tls::Opportunistic | Tls::None => 25,
        };
        let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err("`email.smtp_url` names no host");
        }
        let decode = |text: &str| percent_decode_str(text).decode_utf8().map(std::borrow::Cow::into_owned);
        let user = decode(url.username()).map_err(|_| "the user in `email.smtp_url` is not UTF-8")?;
        let password = url.password().map(decode).transpose();
        let password = password.map_err(|_| "the password in `email.smtp_url` is not UTF-8")?;
        Ok(Self {
            host,
            port: url.port().unwrap_or(default_port),
            tls,
            user: Some(user).filter(|user| !user.is_empty()),
            password: password.map(Secret::new),
        })
    }
}

#[derive(Clone, Debug)]
pub(super) struct Client {
    server: Server,
    hello: String,
}

impl Client {
    pub(super) fn new(server: Server, from: &Mailbox) -> Self {
        // A name that is none would be refused by stricter servers; an address is none.
        let domain = from.email.domain();
        let hello = if domain.contains('.') { domain } else { "[127.0.0.1]" }.to_owned();
        Self { server, hello }
    }

    /// Each copy has the pace's time for all of it, a new connection included.
    pub(super) async fn send(&self, copies: Vec<(String, Copy)>, pace: Pace<'_>, report: &mut Report) {
        let Pace { timeout, goes_on } = pace;
        let mut open = None;
        let mut copies = copies.into_iter();
        while let Some((recipient, copy)) = goes_on().then(|| copies.next()).flatten() {
            let mut connected = false;
            let sending = async {
                let session = match still_ready(open.take()).await {
                    Some(session) => open.insert(session),
                    None => open.insert(self.connect().await?),
                };
                connected = true;
                session.send(&copy).await
            };
            let outcome = match tokio::time::timeout(timeout, sending).await {
                Ok(Ok(answer)) => {
                    let said = answer.lines.first().map_or("", String::as_str);
                    let detail = format!("{} {}", answer.code, quote(said, &self.secrets()));
                    Outcome::Delivered { id: None, detail: detail.trim_end().to_owned() }
                }
                Ok(Err(failure)) => {
                    let left = if matches!(failure, Failure::Unable(_)) { None } else { open.take() };
                    // Nothing more is said to a server whose answers do not fit.
                    if let (Failure::Refused(_), Some(session)) = (&failure, left) {
                        let _ = tokio::time::timeout(QUIT_TIMEOUT, session.quit()).await;
                    }
                    self.outcome(failure)
                }
                Err(_) => {
                    open = None;
                    late(timeout)
                }
            };
            report.add(recipient, outcome.clone());
            if !connected {
                // The server's fault, not the recipient's: the others need not find it out one by one.
                copies.by_ref().for_each(|(recipient, _)| report.add(recipient, outcome.clone()));
            }
        }
        if let Some(session) = open {
            let _ = tokio::time::timeout(QUIT_TIMEOUT, session.quit()).await;
        }
    }

    async fn connect(&self) -> Result<Session, Failure> {
        let Server { host, port, tls, .. } = &self.server;
        let mut wire = Wire::connect(host, *port).await?;
        if *tls == Tls::Implicit {
            wire = wire.encrypted(host).await?;
        }
        let mut is_encrypted = *tls == Tls::Implicit;
        let mut session = Session::begin(wire, &self.hello).await?;
        match tls {
            Tls::Required if !session.can_encrypt() => return Err(Failure::Unprotected(NO_STARTTLS)),
            Tls::Required | Tls::Opportunistic if session.can_encrypt() => {
                session = session.encrypted(host, &self.hello).await?;
                is_encrypted = true;
            }
            _ => {}
        }
        if let Some(user) = &self.server.user {
            if *tls == Tls::Opportunistic && !is_encrypted {
                return Err(Failure::Unprotected(NO_PASSWORD));
            }
            session.log_in(user, self.password()).await?;
        }
        Ok(session)
    }

    /// 4xx, and whatever happens to a connection, may go better another time; 5xx will not.
    fn outcome(&self, failure: Failure) -> Outcome {
        let quoted = |text: &str| quote(text, &self.secrets());
        match failure {
            Failure::Refused(answer) => {
                let is_permanent = answer.code >= 500;
                let kind = if is_permanent { "permanent" } else { "transient" };
                let said = format!("{kind} error ({}): {}", answer.code, answer.text());
                let (error, code) = (quoted(said.trim_end_matches(": ")), Some(answer.code));
                match is_permanent {
                    true => Outcome::Reject { error, code, disable_target: false },
                    false => Outcome::Retry { after: None, error, code },
                }
            }
            Failure::Unexpected { to, answer } => {
                let said = format!("the mail server answered {} to {to}: {}", answer.code, answer.text());
                Outcome::retry(quoted(said.trim_end_matches(": ")))
            }
            Failure::Unable(why) => Outcome::reject(why),
            Failure::Unprotected(why) => Outcome::retry(why),
            Failure::Fault(fault) => Outcome::retry(quoted(&fault.to_string())),
        }
    }

    fn password(&self) -> &str {
        self.server.password.as_ref().map_or("", Secret::expose)
    }

    /// The password as it is and as AUTH sends it, should the server repeat it.
    fn secrets(&self) -> Vec<String> {
        let Some(password) = &self.server.password else { return Vec::new() };
        let (user, password) = (self.server.user.as_deref().unwrap_or_default(), password.expose());
        let plain = STANDARD.encode(format!("\0{user}\0{password}"));
        vec![plain, STANDARD.encode(password), password.to_owned()]
    }
}

/// A session that can be used again: what its server has said beyond its answers would count for the next recipient.
async fn still_ready(session: Option<Session>) -> Option<Session> {
    let mut session = session?;
    session.is_ready().await.then_some(session)
}
