//! What forms share that make or change something: fields that are wrong come back with the form as it was sent, any
//! other problem is a page of its own.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use maud::Markup;
use serde_json::{Map, Value};
use tidings_core::envelope::FieldError;

use super::door::Visitor;
use super::layout;
use crate::http::Problem;

/// What was saved, or every field that is wrong.
pub type Saved<T> = Result<T, Vec<FieldError>>;

/// Writes what a form holds, or says what is wrong with it.
pub async fn save<T>(
    fields: Saved<Map<String, Value>>,
    write: impl AsyncFnOnce(&Map<String, Value>) -> Result<T, Problem>,
) -> Result<Saved<T>, Problem> {
    let fields = match fields {
        Ok(fields) => fields,
        Err(wrong) => return Ok(Err(wrong)),
    };
    match write(&fields).await {
        Ok(done) => Ok(Ok(done)),
        Err(problem) if !problem.errors.is_empty() => Ok(Err(problem.errors)),
        Err(problem) => Err(problem),
    }
}

/// The form once more, for whoever sent it wrong.
pub fn again(visitor: &Visitor, active: &str, title: &str, form: Markup) -> Response {
    (StatusCode::BAD_REQUEST, layout::page(visitor, active, title, form)).into_response()
}
