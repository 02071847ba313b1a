//! SMTP by lettre. One transaction for each recipient over one connection, so that each has its own answer.

use std::io;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lettre::address::Envelope;
use lettre::message::Mailbox;
use lettre::transport::smtp;
use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{AsyncSmtpConnection, AsyncTokioStream, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use percent_encoding::percent_decode_str;
use reqwest::Url;

use super::super::quote;
use super::wire::Wire;
use super::{Copy, Outcome, Report, late};
use crate::config::Secret;

const NO_SMTPUTF8: &str =
    "an address has letters beyond ASCII before the `@`, and the mail server does not take such (SMTPUTF8)";

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
    hello: ClientId,
}

impl Client {
    pub(super) fn new(server: Server, from: &Mailbox) -> Self {
        // A name that is none would be refused by stricter servers; the library's default is an address.
        let domain = from.email.domain();
        let hello = if domain.contains('.') { ClientId::Domain(domain.to_owned()) } else { ClientId::default() };
        Self { server, hello }
    }

    /// Each copy has `timeout` for all of it, a new connection included.
    pub(super) async fn send(&self, copies: Vec<(String, Copy)>, timeout: Duration, report: &mut Report) {
        let mut open = None;
        let mut copies = copies.into_iter();
        while let Some((recipient, copy)) = copies.next() {
            let mut connected = open.is_some();
            let sending = async {
                let connection = match open.as_mut() {
                    Some(connection) => connection,
                    None => open.insert(self.connect().await?),
                };
                connected = true;
                self.send_one(connection, &copy).await
            };
            let sent = tokio::time::timeout(timeout, sending).await.unwrap_or_else(|_| Err(late(timeout)));
            if sent.is_err() {
                // After a failure nobody knows what is still to be read on it.
                open = None;
            }
            let outcome = sent.unwrap_or_else(|failure| failure);
            report.add(recipient, outcome.clone());
            if !connected {
                // The server's fault, not the recipient's: the others need not find it out one by one.
                copies.by_ref().for_each(|(recipient, _)| report.add(recipient, outcome.clone()));
            }
        }
        if let Some(mut connection) = open {
            let _ = tokio::time::timeout(Duration::from_secs(1), connection.quit()).await;
        }
    }

    async fn send_one(&self, connection: &mut AsyncSmtpConnection, copy: &Copy) -> Result<Outcome, Outcome> {
        let envelope = Envelope::new(Some(copy.from.email.clone()), vec![copy.to.email.clone()])
            .map_err(|error| Outcome::reject(error.to_string()))?;
        let is_ascii = [&copy.from, &copy.to].into_iter().all(|mailbox| mailbox.email.user().is_ascii());
        let response = connection.send(&envelope, &copy.bytes).await.map_err(|error| match error {
            error if error.is_client() && !is_ascii => Outcome::reject(NO_SMTPUTF8),
            error => self.outcome(&error),
        })?;
        let said = response.message().next().unwrap_or_default();
        Ok(Outcome::Delivered { id: None, detail: format!("{} {}", response.code(), quote(said, &self.secrets())) })
    }

    async fn connect(&self) -> Result<AsyncSmtpConnection, Outcome> {
        let tls = || TlsParameters::new(self.server.host.clone()).map_err(|error| self.outcome(&error));
        let stream = self.open().await.map_err(|error| Outcome::retry(format!("Connection error: {error}")))?;
        let mut connection = AsyncSmtpConnection::connect_with_transport(stream, &self.hello)
            .await
            .map_err(|error| self.outcome(&error))?;
        match self.server.tls {
            Tls::Required if !connection.can_starttls() => {
                return Err(Outcome::retry("the server offers no STARTTLS, and `email.smtp_url` requires it"));
            }
            Tls::Required | Tls::Opportunistic if connection.can_starttls() => {
                connection.starttls(tls()?, &self.hello).await.map_err(|error| self.outcome(&error))?;
            }
            _ => {}
        }
        if let Some(user) = &self.server.user {
            if self.server.tls == Tls::Opportunistic && !connection.is_encrypted() {
                return Err(Outcome::retry("the server offers no STARTTLS, and the password is not sent in the clear"));
            }
            let credentials = Credentials::new(user.clone(), self.password().to_owned());
            let mechanisms = [Mechanism::Plain, Mechanism::Login];
            connection.auth(&mechanisms, &credentials).await.map_err(|error| self.outcome(&error))?;
        }
        Ok(connection)
    }

    async fn open(&self) -> io::Result<Box<dyn AsyncTokioStream>> {
        let Server { host, port, tls, .. } = &self.server;
        Ok(match tls {
            Tls::Implicit => Box::new(Wire::encrypted(host, *port).await?),
            tls => Box::new(Wire::plain(host, *port, *tls != Tls::None).await?),
        })
    }

    /// 4xx, and whatever happens to a connection, may go better another time; 5xx will not.
    fn outcome(&self, error: &smtp::Error) -> Outcome {
        let text = quote(&error.to_string(), &self.secrets());
        let code = error.status().map(u16::from);
        if error.is_permanent() || error.is_client() {
            Outcome::Reject { error: text, code, disable_target: false }
        } else {
            Outcome::Retry { after: None, error: text, code }
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
