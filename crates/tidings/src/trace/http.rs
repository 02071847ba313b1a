//! `/trace/{correlationId}`: everything that shares an id, as one timeline, oldest first (S003-104).

use axum::extract::{Path, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Step, Trace};
use crate::app::Services;
use crate::http::{CorrelationId, Json, Param, Params, Problem, Route, paging};
use crate::tokens::{Caller, Scope};

#[must_use]
pub fn routes() -> Vec<Route> {
    vec![
        Route::new(
            Method::GET,
            "/trace/{correlationId}",
            "Everything that shares a correlation id, oldest first",
            trace,
        )
        .scopes(&[Scope::Read])
        .params(&[Param("limit", "1 to 1000, default 200"), Param("cursor", "Where the page before ended")])
        .answer::<Timeline>(200, "The timeline; empty if nothing is known of the id"),
    ]
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Timeline {
    correlation_id: String,
    items: Vec<Step>,
    cursor: Option<String>,
}

async fn trace(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    Path(correlation_id): Path<String>,
    (uri, headers): (Uri, HeaderMap),
    mut params: Params,
) -> Result<Response, Problem> {
    let limit = params.number("limit", 1..=1000, 200);
    let cursor = params.text("cursor").map(ToOwned::to_owned);
    params.finish()?;
    tidings_core::envelope::check_name(&correlation_id, tidings_core::limits::CORRELATION_CHARS)
        .map_err(|why| Problem::invalid_field("correlationId", why))?;
    if let Some(answer) = super::live_here(&services, &headers, &correlation_id) {
        return Ok(answer);
    }
    let context = paging::context(&caller, "/trace", &correlation_id);
    let after = paging::open(&services.sealer, &context, cursor.as_deref())?;
    let elsewhere = services.live_elsewhere(&uri, &headers, &correlation).await;
    let trace = Trace { store: &*services.store, stage: services.config.stage.as_str(), bus: &services.bus, elsewhere };
    let (items, next) = trace.page(&correlation_id, limit, after).await?;
    let cursor = paging::seal(&services.sealer, &context, next.as_ref());
    Ok(Json(StatusCode::OK, Timeline { correlation_id, items, cursor }).into_response())
}
