//! What handlers take and give.

use std::borrow::Cow;

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use tidings_core::envelope::FieldError;
use tidings_core::json;

use super::body;
use super::correlation::CorrelationId;
use super::params::Params;
use super::problem::Problem;
use crate::tokens::Caller;

/// A JSON answer with its status.
pub struct Json<T>(pub StatusCode, pub T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        json(self.0, &self.1, SMALL_BYTES)
    }
}

/// Room for most answers.
const SMALL_BYTES: usize = 128;

/// A JSON answer of about so many bytes.
pub fn json<T: Serialize>(status: StatusCode, value: &T, bytes: usize) -> Response {
    let mut body = Vec::with_capacity(bytes);
    match serde_json::to_writer(&mut body, value) {
        Ok(()) => json_text(status, body),
        Err(error) => {
            tracing::error!(%error, "an answer cannot be written as JSON");
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the answer cannot be written").into_response()
        }
    }
}

/// An answer whose JSON is there already.
pub fn json_text(status: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A body that says it is JSON: UTF-8 and not nested too deep. What it holds is the handler's to read.
pub struct JsonText(pub Bytes);

impl JsonText {
    pub fn text(&self) -> Result<&str, Problem> {
        Ok(json::text(&self.0)?)
    }

    /// The body as an object that borrows from it.
    pub fn borrowed(&self) -> Result<json::Object<'_>, Problem> {
        match json::parse(self.text()?)? {
            json::Borrowed::Object(fields) => Ok(fields),
            _ => Err(no_object()),
        }
    }

    /// The body as an object.
    pub fn object(&self) -> Result<serde_json::Map<String, serde_json::Value>, Problem> {
        match json::parse::<serde_json::Value>(self.text()?)? {
            serde_json::Value::Object(fields) => Ok(fields),
            _ => Err(no_object()),
        }
    }
}

fn no_object() -> Problem {
    Problem::invalid(vec![FieldError::new("", "the body must be a JSON object")])
}

/// The media type of a request in lower case, without its parameters. Most are in lower case as they come.
pub fn media_type(headers: &HeaderMap) -> Cow<'_, str> {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = value.split(';').next().unwrap_or_default().trim();
    if media_type.bytes().any(|byte| byte.is_ascii_uppercase()) {
        media_type.to_ascii_lowercase().into()
    } else {
        media_type.into()
    }
}

impl<S: Send + Sync> FromRequest<S> for JsonText {
    type Rejection = Problem;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Problem> {
        let media_type = media_type(request.headers());
        // curl's default for --data is taken for JSON here as for events: what it is shows when it is read.
        let is_json =
            ["", "application/json", "text/json", "application/x-www-form-urlencoded"].contains(&&*media_type);
        if !is_json && !media_type.ends_with("+json") {
            let detail = format!("Content-Type {media_type:?} is not accepted here; send application/json");
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", detail));
        }
        Ok(Self(body_of(request).await?))
    }
}

/// The body of a request, which the gate has read within its limits.
async fn body_of(request: Request) -> Result<Bytes, Problem> {
    body::whole(request.into_body()).await.map_err(|_| Problem::bad_request("the body cannot be read"))
}

/// The headers and the body of a request, taken out of it: nobody needs them twice.
pub struct Whole {
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl<S: Send + Sync> FromRequest<S> for Whole {
    type Rejection = Problem;

    async fn from_request(mut request: Request, _state: &S) -> Result<Self, Problem> {
        let headers = std::mem::take(request.headers_mut());
        Ok(Self { headers, body: body_of(request).await? })
    }
}

/// What the gate leaves in a request for its handler.
#[derive(Debug, Clone)]
pub struct Passed {
    pub correlation: CorrelationId,
    pub params: Params,
    /// Absent where nobody needs a token.
    pub caller: Option<Caller>,
    /// The path of the route, as it is declared.
    pub path: &'static str,
}

/// Takes what the gate left in the request.
macro_rules! from_gate {
    ($($type:ty: $part:expr),*) => {$(
        impl<S: Send + Sync> FromRequestParts<S> for $type {
            type Rejection = Problem;

            async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
                parts.extensions.get::<Passed>().and_then($part).ok_or_else(|| {
                    Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", "this call needs a token")
                })
            }
        }
    )*};
}

from_gate!(
    Caller: |passed| passed.caller.clone(),
    CorrelationId: |passed| Some(passed.correlation.clone()),
    Params: |passed| Some(passed.params.clone())
);
