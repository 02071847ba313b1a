//! Errors as ntfy's clients know them: a status, a code of five digits that begins with it, and a sentence.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// Why a request to the push server is not carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refusal {
    code: u32,
    http: u16,
    error: String,
    #[serde(skip)]
    retry_after_seconds: Option<u64>,
}

impl Refusal {
    fn new(code: u32, error: impl Into<String>) -> Self {
        // Codes are a status with two digits after it.
        let http = u16::try_from(code / 100).unwrap_or(500);
        Self { code, http, error: error.into(), retry_after_seconds: None }
    }

    pub fn delayed() -> Self {
        Self::new(40004, "invalid delay parameter: this server does not delay; use deliver_at of POST /api/messages")
    }

    pub fn priority() -> Self {
        Self::new(40007, "invalid priority parameter")
    }

    pub fn since() -> Self {
        Self::new(40008, "invalid since parameter: all, none, latest, a message id, a unix time or a duration")
    }

    pub fn topic(why: &str) -> Self {
        Self::new(40009, format!("invalid topic: {why}"))
    }

    pub fn reserved_topic() -> Self {
        Self::new(40010, "invalid topic: this name is reserved")
    }

    pub fn not_utf8() -> Self {
        Self::new(40011, "invalid message: message must be UTF-8 encoded")
    }

    pub fn parameter(name: &str) -> Self {
        let name: String = name.chars().take(64).collect();
        Self::new(40011, format!("invalid request: {name} must be UTF-8 encoded"))
    }

    pub fn attachment_url() -> Self {
        Self::new(40013, "invalid request: attachment URL is invalid")
    }

    pub fn attachments() -> Self {
        Self::new(40014, "invalid request: attachments not allowed")
    }

    pub fn email() -> Self {
        Self::new(40001, "e-mail notifications are not enabled")
    }

    pub fn json(why: &str) -> Self {
        Self::new(40017, format!("invalid request: request body must be message JSON: {why}"))
    }

    pub fn actions(why: &str) -> Self {
        Self::new(40018, format!("invalid request: actions invalid, {why}"))
    }

    pub fn icon() -> Self {
        Self::new(40021, "invalid request: icon URL is invalid")
    }

    pub fn unauthorized() -> Self {
        Self::new(40101, "unauthorized")
    }

    pub fn forbidden() -> Self {
        Self::new(40301, "forbidden")
    }

    pub fn not_found() -> Self {
        Self::new(40401, "page not found")
    }

    pub fn method() -> Self {
        Self::new(40501, "method not allowed")
    }

    pub fn timed_out() -> Self {
        Self::new(40801, "the body did not arrive in time")
    }

    pub fn message_too_large(most: usize) -> Self {
        Self::new(41301, format!("message too large: at most {most} bytes, and attachments are not allowed"))
    }

    pub fn json_too_large(most: usize) -> Self {
        Self::new(41303, format!("JSON payload too large: at most {most} bytes"))
    }

    pub fn head_too_large(why: &str) -> Self {
        Self::new(43101, format!("request too large: {why}"))
    }

    pub fn too_many_requests() -> Self {
        Self { retry_after_seconds: Some(1), ..Self::new(42901, "limit reached: too many requests") }
    }

    pub fn too_many_failures(seconds: u64) -> Self {
        Self { retry_after_seconds: Some(seconds), ..Self::new(42909, "limit reached: too many auth failures") }
    }

    fn internal() -> Self {
        Self::new(50001, "internal server error")
    }

    /// The sentence, for a person.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.error
    }

    #[must_use]
    pub fn status(&self) -> u16 {
        self.http
    }
}

impl From<tidings_store::Error> for Refusal {
    fn from(error: tidings_store::Error) -> Self {
        use tidings_store::Error;
        match &error {
            Error::Full(_) => Self { retry_after_seconds: Some(30), ..Self::new(50701, error.to_string()) },
            Error::ReadOnly(_) => Self { retry_after_seconds: Some(30), ..Self::new(50301, error.to_string()) },
            Error::Unreachable(_) => {
                let why = "the store does not answer; whether this was stored is not known";
                Self { retry_after_seconds: Some(5), ..Self::new(50301, why) }
            }
            Error::Throttled(_) | Error::Conflict { .. } => {
                Self { retry_after_seconds: Some(1), ..Self::new(50301, "busy; try again") }
            }
            Error::Invalid(_) | Error::Corrupt(_) | Error::Open(_) | Error::Failed { .. } => {
                tracing::error!(%error, "the store failed a push");
                Self::internal()
            }
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.http).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_string(&self).unwrap_or_default();
        let mut response = (status, [(header::CONTENT_TYPE, "application/json")], body).into_response();
        if let Some(seconds) = self.retry_after_seconds {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
