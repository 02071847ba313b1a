//! `GET /alerts/export`: everything, as a stream.

use axum::extract::State;
use axum::http::{Method, header};
use axum::response::{IntoResponse, Response};

use super::ProcessChangeEvent;
use super::history::selection;
use crate::alerts::export::{Format, body};
use crate::alerts::limits::EXPORT_DAYS;
use crate::app::Services;
use crate::http::{CORRELATION_ALIAS, Param, Params, Problem, Route};
use crate::tokens::Scope;

pub fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/alerts/export", "Process changes, newest first, without a limit of rows", export)
            .scopes(&[Scope::Read])
            .params(&[
                Param("startDate", "First day, as in 2026-01-31; default 89 days before endDate"),
                Param("endDate", "Last day, whole; default today (UTC)"),
                Param("actorId", "An ActorId"),
                Param("action", "An action, or the start of one followed by *"),
                Param("correlationId", "A correlation id"),
                CORRELATION_ALIAS,
                Param("suppressed", "true: those of authorised accounts; false (default): the others"),
                Param("format", "csv (default), json or jsonl"),
            ])
            .answer_as::<String>(200, "The alerts, as a stream", "text/csv")
            .answer_as::<Vec<ProcessChangeEvent>>(200, "The alerts, as a stream", "application/json")
            .answer_as::<String>(200, "The alerts, as a stream", "application/x-ndjson"),
    ]
}

async fn export(State(services): State<Services>, mut params: Params) -> Result<Response, Problem> {
    let selection = selection(&mut params, services.clock.now(), EXPORT_DAYS);
    let format = Format::named(params.text("format").unwrap_or("csv")).unwrap_or_else(|| {
        params.refuse("format", "must be csv, json or jsonl");
        Format::Csv
    });
    params.finish()?;
    let body = body(std::sync::Arc::clone(&services.store), selection, format);
    Ok(([(header::CONTENT_TYPE, format.media_type())], body).into_response())
}
