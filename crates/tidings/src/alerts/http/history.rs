//! `/alerts`: the history, one alert, and sending its mail again.

use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use jiff::ToSpan;
use jiff::civil::Date;
use schemars::JsonSchema;
use serde::Serialize;
use tidings_core::time::Timestamp;
use tidings_store::{Item, Value, codec};

use super::ProcessChangeEvent;
use crate::alerts::history::{self, Selection};
use crate::alerts::limits::{DEFAULT_ROWS, RANGE_DAYS, ROWS};
use crate::alerts::resend::{By, Refused};
use crate::alerts::view;
use crate::app::Services;
use crate::events::http::name_param;
use crate::http::{CORRELATION_ALIAS, CorrelationId, Json, Param, Params, Problem, Route, correlation_param, paging};
use crate::messages::http::MessageView;
use crate::tokens::{Caller, Scope};

pub fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/alerts", "Process changes, newest first, as JSON or CSV", list)
            .scopes(&[Scope::Read])
            .params(&[
                Param("startDate", "First day, as in 2026-01-31; default 89 days before endDate"),
                Param("endDate", "Last day, whole; default today (UTC). At most 90 days with both"),
                Param("actorId", "An ActorId"),
                Param("action", "An action, or the start of one followed by *"),
                Param("correlationId", "A correlation id"),
                CORRELATION_ALIAS,
                Param("suppressed", "true: those of authorised accounts; false (default): the others"),
                Param("limit", "1 to 1000, default 100"),
                Param("format", "json (default) or csv; `Accept: text/csv` asks for CSV as well"),
                Param("nextToken", "Where the page before ended"),
            ])
            .answer::<AlertList>(200, "A page of alerts; the token of a CSV page is in X-Next-Token")
            .answer_as::<String>(200, "A page of alerts", "text/csv"),
        Route::new(Method::GET, "/alerts/{PartitionKey}/{SortKey}", "One process change", get)
            .scopes(&[Scope::Read])
            .answer::<ProcessChangeEvent>(200, "The alert"),
        Route::new(
            Method::POST,
            "/alerts/{PartitionKey}/{SortKey}/resend",
            "Send the mail of an alert again whose mail was not sent",
            resend,
        )
        .scopes(&[Scope::Operate])
        .answer::<MessageView<'static>>(202, "The new message"),
    ]
}

#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[expect(dead_code, reason = "describes what is written straight from the stored items")]
struct AlertList {
    items: Vec<ProcessChangeEvent>,
    next_token: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Json,
    Csv,
}

/// What a token is bound to: the question as it was asked. Dates that were left out are in the token.
#[derive(Serialize)]
struct Question<'a> {
    start_date: Option<&'a str>,
    end_date: Option<&'a str>,
    actor_id: Option<&'a str>,
    action: Option<&'a str>,
    correlation_id: Option<&'a str>,
    suppressed: Option<bool>,
}

async fn list(
    State(services): State<Services>,
    caller: Caller,
    mut params: Params,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let mut selection = selection(&mut params, services.clock.now(), RANGE_DAYS);
    let limit = params.number("limit", 1..=ROWS, DEFAULT_ROWS);
    let format = format(&mut params, &headers);
    let (start, end) = (params.text("startDate").map(str::to_owned), params.text("endDate").map(str::to_owned));
    let token = params.text("nextToken").map(str::to_owned);
    params.finish()?;
    let question = Question {
        start_date: start.as_deref(),
        end_date: end.as_deref(),
        actor_id: selection.actor_id.as_deref(),
        action: selection.action.as_deref(),
        correlation_id: selection.correlation_id.as_deref(),
        suppressed: selection.suppressed,
    };
    let context = paging::context(&caller, "/alerts", &question);
    let after = match token {
        Some(token) => open(&services, &context, &token, &mut selection)?,
        None => None,
    };
    let rows = history::page(&*services.store, &selection, limit, after).await?;
    let next = rows.next.map(|next| {
        let place = Item::new().with("from", selection.from).with("to", selection.to).with("at", next);
        services.sealer.seal(&context, &codec::encode(&place))
    });
    Ok(match format {
        Format::Json => json(&rows.items, next.as_deref()),
        Format::Csv => csv(&rows.items, next.as_deref()),
    })
}

/// The place that a token stands for. It brings the dates with it, so that midnight does not move them.
fn open(services: &Services, context: &str, token: &str, selection: &mut Selection) -> Result<Option<Item>, Problem> {
    let place = codec::decode(&services.sealer.open("nextToken", context, token)?)?;
    if let (Some(from), Some(to)) = (place.int("from"), place.int("to")) {
        (selection.from, selection.to) = (from, to);
    }
    Ok(match place.get("at") {
        Some(Value::M(at)) => Some(Item(at.clone())),
        _ => None,
    })
}

/// The alerts that a question is about; what is wrong with it is noted in `params`.
pub fn selection(params: &mut Params, now: Timestamp, most_days: i64) -> Selection {
    let today = now.to_zoned(jiff::tz::TimeZone::UTC).date();
    let start = date(params, "startDate");
    let end = date(params, "endDate").unwrap_or(today);
    let start = start.unwrap_or_else(|| end.saturating_sub((RANGE_DAYS - 1).days()));
    let days = i64::from(end.since(start).map_or(0, |span| span.get_days())) + 1;
    if start > end {
        params.refuse("startDate", "must not be after endDate");
    } else if days > most_days {
        params.refuse("startDate", format!("must be at most {} days before endDate", most_days - 1));
    }
    let suppressed = match params.text("suppressed") {
        None | Some("false") => Some(false),
        Some("true") => Some(true),
        Some(_) => {
            params.refuse("suppressed", "must be true or false");
            None
        }
    };
    let first = |date: Date| {
        let midnight = date.to_zoned(jiff::tz::TimeZone::UTC);
        midnight.map_or(i64::MAX, |midnight| midnight.timestamp().as_second())
    };
    Selection {
        from: first(start),
        to: end.tomorrow().map_or(i64::MAX, |next| first(next) - 1),
        actor_id: name_param(params, "actorId"),
        action: name_param(params, "action"),
        correlation_id: correlation_param(params),
        suppressed,
    }
}

/// A day, written as in 2026-01-31 and no other way (S000-61).
pub fn day(text: &str) -> Option<Date> {
    let read = (text.len() == 10).then(|| text.parse::<Date>().ok()).flatten();
    // Time zones and sums need room around a year.
    read.filter(|date| (1970..=9000).contains(&date.year()))
}

fn date(params: &mut Params, name: &str) -> Option<Date> {
    let read = day(params.text(name)?);
    if read.is_none() {
        params.refuse(name, "must be a date as in 2026-01-31");
    }
    read
}

fn format(params: &mut Params, headers: &HeaderMap) -> Format {
    match params.text("format") {
        Some("json") => Format::Json,
        Some("csv") => Format::Csv,
        Some(_) => {
            params.refuse("format", "must be json or csv");
            Format::Json
        }
        None => {
            let accept = headers.get_all(header::ACCEPT).iter().filter_map(|accept| accept.to_str().ok());
            accepted(accept.flat_map(|accept| accept.split(',')))
        }
    }
}

/// Of the two that we have, the one that is wanted more; of both alike, the first.
fn accepted<'a>(kinds: impl Iterator<Item = &'a str>) -> Format {
    let mut best = (0.0, Format::Json);
    for kind in kinds {
        let mut parts = kind.split(';').map(str::trim);
        let format = match parts.next().map(str::to_ascii_lowercase).as_deref() {
            Some("text/csv") => Format::Csv,
            Some("application/json") => Format::Json,
            _ => continue,
        };
        let quality = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        let quality = quality.map_or(1.0, |quality| quality.trim().parse::<f32>().unwrap_or(0.0));
        if quality > best.0 {
            best = (quality, format);
        }
    }
    best.1
}

fn json(items: &[Item], next: Option<&str>) -> Response {
    let mut body = String::with_capacity(items.len() * 1500 + 64);
    body.push_str("{\"items\":[");
    for (place, item) in items.iter().enumerate() {
        if place > 0 {
            body.push(',');
        }
        view::push_json(&mut body, item);
    }
    body.push_str("],\"nextToken\":");
    match next {
        // Sealed tokens have letters, digits, - and _ alone.
        Some(token) => body.push_str(&format!("\"{token}\"")),
        None => body.push_str("null"),
    }
    body.push('}');
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

fn csv(items: &[Item], next: Option<&str>) -> Response {
    let mut body = view::csv_header();
    body.reserve(items.len() * 1200);
    items.iter().for_each(|item| view::push_csv(&mut body, item));
    let mut response = ([(header::CONTENT_TYPE, "text/csv; charset=utf-8; header=present")], body).into_response();
    if let Some(token) = next.and_then(|token| HeaderValue::from_str(token).ok()) {
        response.headers_mut().insert("x-next-token", token);
    }
    response
}

async fn get(
    State(services): State<Services>,
    Path((partition, sort)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let alert = services.alerts.alert(&partition, &sort).await?;
    let alert = alert.ok_or_else(|| Problem::not_found(Refused::Unknown.to_string()))?;
    let mut body = String::new();
    view::push_json(&mut body, &alert);
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

async fn resend(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    Path((partition, sort)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let by = By { user: &caller.name(), correlation_id: &correlation.0 };
    let sent = services.alerts.resend(&services.messages, &services.audit, &partition, &sort, by).await;
    match sent {
        Ok(message) => Ok(Json(StatusCode::ACCEPTED, MessageView::from(&message)).into_response()),
        Err(Refused::Unknown) => Err(Problem::not_found(Refused::Unknown.to_string())),
        Err(Refused::Conflict(why)) => Err(Problem::conflict(why)),
        Err(Refused::Store(error)) => Err(error.into()),
    }
}
