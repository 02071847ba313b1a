//! `/audit-log`: query, verify, export.

use axum::extract::State;
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use tidings_core::time;
use tidings_store::{Error, Item};

use super::{Audit, Entry, Filter};
use crate::app::Services;
use crate::business::event::check_guid;
use crate::events::http::name_param;
use crate::http::{CORRELATION_ALIAS, End, Json, Param, Params, Problem, Route, correlation_param, paging};
use crate::tokens::{Caller, Scope};

/// Entries looked at for one page at the most, so that a filter that fits nothing still answers soon.
const LOOKED_AT: usize = 5000;

#[must_use]
pub fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/audit-log", "What was done, by whom, newest first", list)
            .scopes(&[Scope::Read])
            .params(&[
                Param("user", "Who did it"),
                Param("action", "What was done, as in token.create"),
                Param("entity", "The kind of thing it was done to"),
                Param("entityId", "Which one"),
                Param("correlationId", "Of the request that did it"),
                CORRELATION_ALIAS,
                Param("from", "Not before this date or time"),
                Param("to", "Not after this date or time"),
                Param("format", "json (default) or csv"),
                Param("limit", "1 to 1000, default 100"),
                Param("cursor", "Where the page before ended"),
            ])
            .answer::<EntryList>(200, "A page of entries")
            .answer_as::<String>(200, "A page of entries", "text/csv"),
        Route::new(
            Method::GET,
            "/audit-log/export",
            "The log, or what fits, whole and oldest first",
            super::export::export,
        )
        .scopes(&[Scope::Read])
        .params(&[
            Param("user", "Who did it"),
            Param("action", "What was done, as in token.create"),
            Param("entity", "The kind of thing it was done to"),
            Param("entityId", "Which one"),
            Param("correlationId", "Of the request that did it"),
            CORRELATION_ALIAS,
            Param("from", "Not before this date or time"),
            Param("to", "Not after this date or time"),
            Param("format", "csv (default) or jsonl"),
        ])
        .answer_as::<String>(200, "A file", "text/csv")
        .answer_as::<String>(200, "A file", "application/x-ndjson"),
        Route::new(Method::GET, "/audit-log/verify", "Check the chain of hashes over the whole log", verify)
            .scopes(&[Scope::Read])
            .answer::<VerificationView>(200, "Whether every entry is there and unchanged"),
    ]
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct EntryView {
    seq: i64,
    time: String,
    user: String,
    action: String,
    entity: String,
    entity_id: String,
    correlation_id: String,
    #[schemars(with = "serde_json::Value")]
    details: Box<RawValue>,
    previous: String,
    hash: String,
}

#[derive(Serialize, JsonSchema)]
struct EntryList {
    items: Vec<EntryView>,
    cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct VerificationView {
    ok: bool,
    entries: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

impl From<Entry> for EntryView {
    fn from(entry: Entry) -> Self {
        let details = RawValue::from_string(entry.details).unwrap_or_else(|_| RawValue::NULL.to_owned());
        Self {
            seq: entry.seq,
            time: time::iso_micros(entry.at),
            user: entry.user,
            action: entry.action,
            entity: entry.entity,
            entity_id: entry.entity_id,
            correlation_id: entry.correlation_id,
            details,
            previous: entry.previous,
            hash: entry.hash,
        }
    }
}

/// A user's UUID is on record in small letters.
fn as_stored(user: String) -> String {
    if check_guid(&user).is_ok() { user.to_lowercase() } else { user }
}

/// What the parameters ask for.
pub(super) fn filter_of(params: &mut Params) -> Filter {
    let filter = Filter {
        user: name_param(params, "user").map(as_stored),
        action: name_param(params, "action"),
        entity: name_param(params, "entity"),
        entity_id: name_param(params, "entityId"),
        correlation_id: correlation_param(params),
        from: params.time("from", End::Start),
        to: params.time("to", End::Finish),
    };
    if let (Some(from), Some(to)) = (filter.from, filter.to)
        && from > to
    {
        params.refuse("from", "must not be after `to`");
    }
    filter
}

async fn list(State(services): State<Services>, caller: Caller, mut params: Params) -> Result<Response, Problem> {
    let filter = filter_of(&mut params);
    let format = params.text("format").unwrap_or("json").to_owned();
    if format != "json" && format != "csv" {
        params.refuse("format", "must be json or csv");
    }
    let limit = params.number("limit", 1..=1000, 100);
    let context = paging::context(&caller, "/audit-log", &filter);
    let after = paging::open(&services.sealer, &context, params.text("cursor"))?;
    params.finish()?;

    let (found, after) = search(&services.audit, &filter, limit, after).await?;
    let cursor = paging::seal(&services.sealer, &context, after.as_ref());
    let items: Vec<EntryView> = found.into_iter().map(EntryView::from).collect();
    if format == "csv" {
        return Ok(csv_answer(&items, cursor));
    }
    Ok(Json(StatusCode::OK, EntryList { items, cursor }).into_response())
}

/// Entries that fit the filter, newest first, and where to go on from.
pub async fn search(
    audit: &Audit,
    filter: &Filter,
    limit: usize,
    mut after: Option<Item>,
) -> Result<(Vec<Entry>, Option<Item>), Error> {
    let mut found = Vec::new();
    let mut looked_at = 0;
    loop {
        let room = limit - found.len();
        let (entries, next) = audit.page(filter, room, after).await?;
        looked_at += room;
        found.extend(entries);
        after = next;
        if after.is_none() || found.len() >= limit || looked_at >= LOOKED_AT {
            return Ok((found, after));
        }
    }
}

fn csv_answer(items: &[EntryView], cursor: Option<String>) -> Response {
    let mut out = header_row();
    items.iter().for_each(|entry| out.push_str(&row(entry)));
    let mut response = ([(header::CONTENT_TYPE, "text/csv; charset=utf-8")], out).into_response();
    if let Some(cursor) = cursor.and_then(|cursor| cursor.parse().ok()) {
        response.headers_mut().insert("x-next-token", cursor);
    }
    response
}

pub(super) fn header_row() -> String {
    crate::http::csv::row(&[
        "seq",
        "time",
        "user",
        "action",
        "entity",
        "entityId",
        "correlationId",
        "details",
        "previous",
        "hash",
    ])
}

pub(super) fn row(entry: &EntryView) -> String {
    crate::http::csv::row(&[
        &entry.seq.to_string(),
        &entry.time,
        &entry.user,
        &entry.action,
        &entry.entity,
        &entry.entity_id,
        &entry.correlation_id,
        entry.details.get(),
        &entry.previous,
        &entry.hash,
    ])
}

async fn verify(State(services): State<Services>) -> Result<impl IntoResponse, Problem> {
    let found = services.audit.verify().await?;
    let view = VerificationView { ok: found.problem.is_none(), entries: found.entries, problem: found.problem };
    Ok(Json(StatusCode::OK, view))
}
