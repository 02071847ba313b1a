//! Errors as RFC 9457 problem documents (SX-24): one type, one way out.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tidings_core::envelope::FieldError;
use tidings_core::json::BadJson;

/// An answer that says what is wrong and what to do.
#[derive(Debug, Clone)]
pub struct Problem {
    pub status: StatusCode,
    /// The kind of problem, as the last part of its `type`.
    pub kind: &'static str,
    pub detail: String,
    pub errors: Vec<FieldError>,
    pub retry_after_seconds: Option<u64>,
}

impl Problem {
    pub fn new(status: StatusCode, kind: &'static str, detail: impl Into<String>) -> Self {
        Self { status, kind, detail: detail.into(), errors: Vec::new(), retry_after_seconds: None }
    }

    pub fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-request", detail)
    }

    /// 400 with every field that is wrong.
    #[must_use]
    pub fn invalid(errors: Vec<FieldError>) -> Self {
        let named: Vec<_> = errors.iter().map(|e| format!("{} {}", e.field, e.message).trim().to_owned()).collect();
        let detail = format!("the request is not valid: {}", named.join("; "));
        Self { errors, ..Self::new(StatusCode::BAD_REQUEST, "invalid-fields", detail) }
    }

    pub fn invalid_field(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::invalid(vec![FieldError::new(field, message)])
    }

    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", detail)
    }

    pub fn conflict(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", detail)
    }

    pub fn too_large(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", detail)
    }

    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after_seconds = Some(seconds);
        self
    }

    /// The document; `correlation_id` stands in it.
    pub(super) fn document(&self, correlation_id: &str) -> String {
        let document = Document {
            r#type: format!("urn:tidings:problem:{}", self.kind),
            title: self.status.canonical_reason().unwrap_or("Error"),
            status: self.status.as_u16(),
            detail: &self.detail,
            correlation_id,
            errors: &self.errors,
        };
        serde_json::to_string(&document).unwrap_or_default()
    }

    /// The response with its document.
    #[must_use]
    pub fn render(&self, correlation_id: &str) -> Response {
        let mut response = (self.status, self.document(correlation_id)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after_seconds {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

#[derive(Serialize)]
struct Document<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    detail: &'a str,
    #[serde(rename = "correlationId")]
    correlation_id: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    errors: &'a [FieldError],
}

/// The problem travels in the response's extensions; the gate, which knows the correlation id, renders it.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl From<BadJson> for Problem {
    fn from(bad: BadJson) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-json", bad.0)
    }
}

impl From<tidings_store::Error> for Problem {
    fn from(error: tidings_store::Error) -> Self {
        use tidings_store::Error;
        let unavailable = |detail: String| Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail);
        match &error {
            Error::Full(_) => {
                Self::new(StatusCode::INSUFFICIENT_STORAGE, "disk-full", error.to_string()).retry_after(30)
            }
            Error::ReadOnly(_) => unavailable(error.to_string()).retry_after(30),
            Error::Throttled(_) => unavailable(error.to_string()).retry_after(1),
            Error::Conflict { .. } => {
                unavailable("somebody else changed the same thing at the same time; try again".to_owned())
                    .retry_after(1)
            }
            Error::Invalid(_) | Error::Corrupt(_) | Error::Open(_) | Error::Failed { .. } => {
                tracing::error!(error = %error, source = ?std::error::Error::source(&error), "the store failed a request");
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the store failed; the log says why")
            }
        }
    }
}
