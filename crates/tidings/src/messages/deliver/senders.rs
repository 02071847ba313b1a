//! The channels as delivery sees them: where a message goes, and one attempt to take it there.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use serde_json::Value;
use tidings_core::time::Timestamp;
use tidings_store::Store;
use tokio::sync::watch;

use super::LAST_COPY;
use crate::alerts::Alerts;
use crate::bus::{Bus, push};
use crate::channel::email::{self, Pace, ses};
use crate::channel::{Notice, Outcome, audit_log, ntfy, queue, stream, ticket, webhook};
use crate::config::Config;
use crate::ingest::Ingest;
use crate::messages::record::{CHANNELS, Message, Recipient};
use crate::outbound::{self, Outbound};
use crate::secrets::vault::HOW_TO_READ;
use crate::tickets::Tickets;
use crate::workers::turned_true;

/// The longest attempt: an e-mail to many recipients.
pub const LONGEST: Duration = Duration::from_secs(600);
/// Who keeps to a limit of his own says who was late; this is for what is around it.
const SPARE: Duration = Duration::from_secs(5);

/// What a channel that cannot be set up answers: a sentence for the operator.
type Ready<T> = Result<T, String>;

/// A sender for each channel.
pub struct Senders {
    email: Ready<email::Sender>,
    ntfy: Ready<ntfy::Sender>,
    webhook: Ready<webhook::Sender>,
    ticket: Ready<ticket::Sender>,
    queue: Ready<queue::Sender>,
    stream: Ready<stream::Sender>,
    audit_log: Ready<audit_log::Sender>,
    public_url: String,
}

/// What came of an attempt: of the whole, and of each recipient of an e-mail that is decided by now.
#[derive(Debug)]
pub struct Sent {
    pub outcome: Outcome,
    pub recipients: BTreeMap<String, Recipient>,
    /// Those of whom nothing is decided unless this was the last attempt, and what was said of them.
    pub undecided: BTreeMap<String, Recipient>,
    /// Some were not tried, because this process is about to end.
    pub is_cut_short: bool,
}

impl Senders {
    /// A channel that is not set up refuses its messages with the reason; the others do not suffer.
    #[must_use]
    pub fn new(config: &Config, built_in: Option<Arc<dyn ntfy::BuiltIn>>) -> Self {
        let trusted = || Outbound::trusted().map_err(|error| error.to_string());
        let email = trusted().and_then(|outbound| {
            let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
            let credentials = ses::credentials(&config.email, variable);
            let mut email = config.email.clone();
            email.region = email.region.or_else(|| variable("AWS_REGION")).or_else(|| variable("AWS_DEFAULT_REGION"));
            email::Sender::new(&email, &config.data_dir.join("outbox"), credentials, outbound)
                .map_err(|error| error.to_string())
        });
        let ntfy = match (&config.ntfy.server, built_in) {
            (Some(server), _) => trusted().and_then(|outbound| {
                ntfy::Sender::new(outbound, server, config.ntfy.token.clone()).map_err(|error| error.to_string())
            }),
            (None, Some(built_in)) => Ok(ntfy::Sender::built_in(built_in)),
            (None, None) => {
                Err("there is no ntfy server: set `ntfy.server`, or `push.listen` for the built-in one".to_owned())
            }
        };
        let webhook = Outbound::guarded(&config.outbound).map(webhook::Sender::new).map_err(|error| error.to_string());
        let ticket = Err("tickets are not part of this process".to_owned());
        let queue = Err("the bus is not part of this process".to_owned());
        let stream = Err("streams are not part of this process".to_owned());
        let audit_log = Err("audit logs are not part of this process".to_owned());
        Self { email, ntfy, webhook, ticket, queue, stream, audit_log, public_url: config.public_url.clone() }
    }

    /// The same, and rules' tickets are opened here.
    #[must_use]
    pub fn with_tickets(self, tickets: Arc<Tickets>) -> Self {
        Self { ticket: Ok(ticket::Sender::new(tickets)), ..self }
    }

    /// The same, and messages to queues and topics go over this bus.
    #[must_use]
    pub fn with_bus(self, bus: Arc<Bus>, store: Arc<dyn Store>) -> Self {
        Self { queue: Ok(queue::Sender::new(bus, store)), ..self }
    }

    /// The same, and records of streams are taken in here.
    #[must_use]
    pub fn with_ingest(self, ingest: Arc<Ingest>) -> Self {
        Self { stream: Ok(stream::Sender::new(ingest)), ..self }
    }

    /// The same, and entries of audit logs are taken in here.
    #[must_use]
    pub fn with_alerts(self, alerts: Arc<Alerts>, ingest: Arc<Ingest>) -> Self {
        Self { audit_log: Ok(audit_log::Sender::new(alerts, ingest)), ..self }
    }

    /// Makes one attempt, which may take that long; an e-mail has as many tries as it has recipients, of which none begins
    /// after `stop` has turned true.
    pub async fn attempt(
        &self,
        message: &Message,
        timeout: Duration,
        now: Timestamp,
        stop: &watch::Receiver<bool>,
    ) -> Sent {
        if message.channel == "email" {
            // Mails and webhooks take more room than a push, of which there are many at the same time.
            return Box::pin(self.mail(message, timeout, now, stop)).await;
        }
        let limit = match message.channel.as_str() {
            // Every part of an exchange over the network has its limit, and says who was late: no timer around it. What is
            // awaited where it is made is in memory once, and many are at the same time.
            "webhook" => None,
            "ntfy" if self.ntfy.as_ref().is_ok_and(ntfy::Sender::is_remote) => None,
            "ntfy" => Some(timeout + SPARE),
            _ => Some(timeout),
        };
        let Some(limit) = limit else { return self.send_within(message, timeout, now).await };
        let late = || Outcome::retry(format!("took longer than {} s", timeout.as_secs_f64())).into();
        let sending = Box::pin(tokio::time::timeout(limit, self.send_within(message, timeout, now)));
        sending.await.unwrap_or_else(|_| late())
    }

    async fn send_within(&self, message: &Message, timeout: Duration, now: Timestamp) -> Sent {
        let notice = message.notice(&self.public_url);
        match message.channel.as_str() {
            "ntfy" => {
                let topic = message.target.get("topic").and_then(Value::as_str).unwrap_or_default();
                self.push(&notice, topic, timeout, now).await.into()
            }
            // Without its signature nobody would believe it.
            "webhook" if message.lost_secret.is_some() => {
                Outcome::reject(format!("the webhook's secret {HOW_TO_READ}")).into()
            }
            "webhook" => {
                let url = message.target.get("url").and_then(Value::as_str).unwrap_or_default().to_owned();
                let target = webhook::Target { url, secrets: message.secret.iter().cloned().collect() };
                match message.message_type.as_str() {
                    push::MESSAGE_TYPE => Box::pin(self.deliver(message, &target, timeout, now)).await.into(),
                    _ => Box::pin(self.call(&notice, &target, timeout, now)).await.into(),
                }
            }
            "ticket" => match &self.ticket {
                Ok(sender) => Box::pin(sender.send(&notice, message)).await.into(),
                Err(why) => Outcome::reject(why).into(),
            },
            "queue" => match &self.queue {
                Ok(sender) => Box::pin(sender.send(message)).await.into(),
                Err(why) => Outcome::reject(why).into(),
            },
            stream::CHANNEL => match &self.stream {
                Ok(sender) => Box::pin(sender.send(message, now)).await.into(),
                Err(why) => Outcome::reject(why).into(),
            },
            audit_log::CHANNEL => match &self.audit_log {
                Ok(sender) => Box::pin(sender.send(message)).await.into(),
                Err(why) => Outcome::reject(why).into(),
            },
            _ => Outcome::reject("there is no such channel").into(),
        }
    }

    pub async fn push(&self, notice: &Notice<'_>, topic: &str, timeout: Duration, now: Timestamp) -> Outcome {
        match &self.ntfy {
            Ok(sender) => sender.send_within(Some(timeout), notice, topic, now).await,
            Err(why) => Outcome::reject(why),
        }
    }

    pub async fn call(
        &self,
        notice: &Notice<'_>,
        target: &webhook::Target,
        timeout: Duration,
        now: Timestamp,
    ) -> Outcome {
        match &self.webhook {
            Ok(sender) => sender.send_within(Some(timeout), notice, target, now).await,
            Err(why) => Outcome::reject(why),
        }
    }

    /// A message of a push subscription: its body as it was sent.
    async fn deliver(&self, message: &Message, target: &webhook::Target, timeout: Duration, now: Timestamp) -> Outcome {
        let sender = match &self.webhook {
            Ok(sender) => sender,
            Err(why) => return Outcome::reject(why),
        };
        let (content_type, body) = push::body_of(&message.payload);
        // A first attempt may be written down only with its outcome.
        let attempt = message.delivery.tries() + u32::from(!message.delivery.in_flight());
        let call = webhook::Call {
            id: &message.message_id,
            correlation_id: &message.correlation_id,
            trace_id: message.trace_id.as_deref(),
            content_type: &content_type,
            headers: push::headers_of(&message.payload, attempt),
            body,
        };
        sender.call(Some(timeout), call, target, now).await
    }

    /// One copy to each, which may take that long.
    pub async fn copies(&self, notice: &Notice<'_>, to: &[String], timeout: Duration, now: Timestamp) -> email::Report {
        match &self.email {
            Ok(sender) => {
                let mut report = email::Report::default();
                sender.send_within(Pace { timeout, goes_on: &|| true }, notice, to, now, &mut report).await;
                report
            }
            Err(why) => refused(to, why),
        }
    }

    /// Only those of whom nothing is decided get a copy; nobody gets two. Who has got it is not forgotten because
    /// somebody else takes too long.
    async fn mail(&self, message: &Message, timeout: Duration, now: Timestamp, stop: &watch::Receiver<bool>) -> Sent {
        let to = message.pending_recipients();
        let mut is_cut_short = false;
        let report = match &self.email {
            Ok(sender) => {
                let notice = message.notice(&self.public_url);
                let mut report = email::Report::default();
                let pace = Pace { timeout, goes_on: &|| !*stop.borrow() };
                let limit = longest(timeout, to.len());
                tokio::select! {
                    biased;
                    () = sender.send_within(pace, &notice, &to, now, &mut report) => {}
                    () = tokio::time::sleep(limit + SPARE) => {}
                    () = long_after(stop.clone()) => {}
                }
                is_cut_short = *stop.borrow() && report.recipients.len() < to.len();
                if is_cut_short {
                    report.give_up(&to, "not sent before the server stopped");
                } else {
                    report.give_up(&to, &format!("not tried within {} s", limit.as_secs_f64()));
                }
                report
            }
            Err(why) => refused(&to, why),
        };
        let (mut recipients, mut undecided) = (message.recipients.clone(), BTreeMap::new());
        for (recipient, outcome) in &report.recipients {
            let is_open = matches!(outcome, Outcome::Retry { .. });
            let known = Recipient { delivered: outcome.is_delivered(), detail: outcome.text().to_owned() };
            if is_open { &mut undecided } else { &mut recipients }.insert(recipient.clone(), known);
        }
        // Whoever was refused in an earlier attempt is part of what came of it.
        let refused = message.recipients.iter().filter(|(_, known)| !known.delivered);
        let refused: Vec<_> = refused.map(|(to, known)| format!("{to}: {}", known.detail)).collect();
        let with = |error: String| std::iter::once(error).chain(refused.iter().cloned()).collect::<Vec<_>>().join("; ");
        let outcome = match report.outcome() {
            outcome if refused.is_empty() => outcome,
            Outcome::Delivered { .. } => Outcome::reject(refused.join("; ")),
            Outcome::Retry { after, error, code } => Outcome::Retry { after, error: with(error), code },
            Outcome::Reject { error, code, disable_target } => {
                Outcome::Reject { error: with(error), code, disable_target }
            }
        };
        Sent { outcome, recipients, undecided, is_cut_short }
    }
}

/// Ends when the copy that was under way at the stop must not take longer.
async fn long_after(mut stop: watch::Receiver<bool>) {
    turned_true(&mut stop).await;
    tokio::time::sleep(LAST_COPY).await;
}

/// Nobody gets anything, for this reason.
fn refused(to: &[String], why: &str) -> email::Report {
    email::Report { recipients: to.iter().map(|to| (to.clone(), Outcome::reject(why))).collect() }
}

/// How long an attempt with so many copies may take.
#[must_use]
pub fn longest(timeout: Duration, copies: usize) -> Duration {
    timeout.saturating_mul(u32::try_from(copies).unwrap_or(u32::MAX).max(1)).min(LONGEST)
}

impl From<Outcome> for Sent {
    fn from(outcome: Outcome) -> Self {
        Self { outcome, recipients: BTreeMap::new(), undecided: BTreeMap::new(), is_cut_short: false }
    }
}

/// A name of what suffers together. Most are a channel's, and need no copy.
pub type Destination = Cow<'static, str>;

/// What suffers together when it fails: the one mail or push server, or a webhook's host.
#[must_use]
pub fn destination(message: &Message) -> Destination {
    if message.channel != "webhook" {
        let known = CHANNELS.into_iter().find(|known| *known == message.channel);
        return known.map_or_else(|| message.channel.clone().into(), Cow::Borrowed);
    }
    let url = message.target.get("url").and_then(Value::as_str).unwrap_or_default();
    Url::parse(url).map_or(Cow::Borrowed("invalid"), |url| outbound::origin(&url).into())
}
