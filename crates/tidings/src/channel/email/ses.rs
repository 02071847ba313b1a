//! Amazon SES v2: one HTTPS call for each copy, signed by [`crate::aws`].

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lettre::message::header::{From, Headers};
use lettre::message::{Mailbox, Mailboxes};
use serde::Deserialize;
use serde_json::json;
use tidings_core::time::Timestamp;

use super::super::{answer, one_line, quote};
use super::{Copy, Outcome, Pace, Report, late};
use crate::aws::{Credentials, Service};
use crate::config::email::Email;
use crate::outbound::{Error, Outbound, Request, Response, trace};

const PATH: &str = "/v2/email/outbound-emails";
/// These say "later", whatever their status.
const TRANSIENT: [&str; 6] = [
    "TooManyRequestsException",
    "LimitExceededException",
    "Throttling",
    "ThrottlingException",
    "RequestTimeout",
    "ServiceUnavailable",
];

/// The credentials of the configuration, else those of the variables that every AWS tool reads.
#[must_use]
pub fn credentials(config: &Email, variable: impl Fn(&str) -> Option<String>) -> Option<Credentials> {
    match (&config.access_key_id, &config.secret_access_key) {
        (Some(id), Some(secret)) => {
            Some(Credentials { access_key_id: id.clone(), secret_access_key: secret.clone(), session_token: None })
        }
        _ => Credentials::from_variables(variable),
    }
}

#[derive(Clone, Debug)]
pub(super) struct Client {
    outbound: Outbound,
    service: Service,
}

impl Client {
    pub(super) fn new(config: &Email, credentials: Credentials, outbound: Outbound) -> Result<Self, String> {
        let region = config.region.clone().ok_or("SES needs `email.region`, or AWS_REGION")?;
        let endpoint = config.endpoint.clone().unwrap_or_else(|| format!("https://email.{region}.amazonaws.com"));
        let url = format!("{}{PATH}", endpoint.trim_end_matches('/'));
        let service = Service::new(&outbound, &url, ("ses", region), credentials)
            .map_err(|error| format!("`email.endpoint`: {error}"))?;
        Ok(Self { outbound, service })
    }

    pub(super) async fn send(&self, copies: Vec<(String, Copy)>, pace: Pace<'_>, now: Timestamp, report: &mut Report) {
        let Pace { timeout, goes_on } = pace;
        for (recipient, copy) in copies {
            if !goes_on() {
                return;
            }
            let outcome = match self.outbound.send_within(timeout, self.request(&copy, now)).await {
                Ok(response) => self.outcome(&response, now),
                Err(Error::Timeout { limit, .. }) if limit == timeout => late(timeout),
                Err(error) => error.into(),
            };
            report.add(recipient, outcome);
        }
    }

    fn request(&self, copy: &Copy, now: Timestamp) -> Request {
        let body = json!({
            "FromEmailAddress": encoded(&copy.from),
            "Destination": { "ToAddresses": [copy.to.email.to_string()] },
            "Content": { "Raw": { "Data": STANDARD.encode(&copy.bytes) } },
        })
        .to_string();
        let mut request = self.service.post("application/json", None, body, now);
        // Not signed: SES does not look at them, whoever stands between reads them (SX-20).
        let id = copy.message_id.to_string();
        trace::insert(&mut request.headers, &copy.correlation_id, copy.trace_id.as_deref(), &id);
        request
    }

    fn outcome(&self, response: &Response, now: Timestamp) -> Outcome {
        let status = response.status;
        let answer: Answer = serde_json::from_slice(&response.body).unwrap_or_default();
        if (200..300).contains(&status) {
            let id = answer.message_id.map(|id| one_line(&id, 128));
            return Outcome::Delivered { id, detail: format!("SES answered {status}") };
        }
        let named = response.headers.get("x-amzn-errortype").and_then(|value| value.to_str().ok());
        let kind = named.map(str::to_owned).or(answer.kind).unwrap_or_default();
        // `MessageRejected:http://…` and `com.amazonaws.ses#MessageRejected` are both seen.
        let kind = kind.split(':').next().unwrap_or_default().rsplit('#').next().unwrap_or_default();
        let secrets = self.service.credentials.secrets();
        let why = quote(&format!("{kind} {}", answer.message.unwrap_or_default()), &secrets);
        let error = format!("SES answered {status}: {why}");
        if matches!(status, 408 | 429 | 500..=599) || TRANSIENT.contains(&kind) {
            Outcome::Retry { after: answer::retry_after(&response.headers, now), error, code: Some(status) }
        } else {
            Outcome::Reject { error, code: Some(status), disable_target: false }
        }
    }
}

/// As a header has it, on one line: SES takes a name beyond ASCII only as RFC 2047 writes it.
fn encoded(from: &Mailbox) -> String {
    let mut headers = Headers::new();
    headers.set(From::from(Mailboxes::from(from.clone())));
    let header = headers.to_string().replace("\r\n", "");
    header.trim_start_matches("From:").trim().to_owned()
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Answer {
    #[serde(rename = "MessageId")]
    message_id: Option<String>,
    #[serde(rename = "__type", alias = "code")]
    kind: Option<String>,
    #[serde(alias = "Message")]
    message: Option<String>,
}
