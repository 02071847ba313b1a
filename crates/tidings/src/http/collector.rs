//! How Splunk's HTTP event collector answers, for senders that know nothing else (S000-76).

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;

use super::Problem;

/// What the collector says to everything, and the number it has for it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Said {
    pub text: String,
    pub code: u16,
}

/// What is taken.
#[must_use]
pub fn success() -> Said {
    Said { text: "Success".to_owned(), code: 0 }
}

/// A problem in the collector's words: its own status and number, and our reason.
#[must_use]
pub fn refusal(problem: &Problem) -> Response {
    let (status, code, text) = match problem.status {
        StatusCode::UNAUTHORIZED if problem.detail.starts_with("this call needs") => {
            (StatusCode::UNAUTHORIZED, 2, "Token is required")
        }
        StatusCode::UNAUTHORIZED => (StatusCode::FORBIDDEN, 4, "Invalid token"),
        StatusCode::FORBIDDEN => (StatusCode::FORBIDDEN, 1, "Token disabled"),
        StatusCode::BAD_REQUEST if problem.kind == "no-data" => (StatusCode::BAD_REQUEST, 5, "No data"),
        status @ (StatusCode::TOO_MANY_REQUESTS
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::INSUFFICIENT_STORAGE) => (status, 9, "Server is busy"),
        status if status.is_server_error() => (status, 8, "Internal server error"),
        status => (status, 6, "Invalid data format"),
    };
    let said = Said { text: format!("{text}: {}", problem.detail), code };
    let said = if code == 6 { said } else { Said { text: text.to_owned(), code } };
    let body = serde_json::to_string(&said).unwrap_or_default();
    let mut response = (status, body).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(seconds) = problem.retry_after_seconds {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}
