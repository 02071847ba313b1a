//! `GET /sources`: the places that are asked for events, and how that goes.

use axum::extract::State;
use axum::http::{Method, StatusCode};
use axum::response::IntoResponse;
use schemars::JsonSchema;
use serde::Serialize;

use super::board::{Error, Shards};
use super::work;
use crate::app::Services;
use crate::config::sources::{Kind, Source};
use crate::http::{Json, Route};
use crate::nodes::Holder;
use crate::tokens::Scope;

#[must_use]
pub fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/sources", "The places that are asked for events, and how that goes", list)
            .scopes(&[Scope::Read])
            .answer::<SourceList>(200, "Every source of the configuration; what another node reads is known there"),
    ]
}

#[derive(Serialize, JsonSchema)]
struct SourceList {
    items: Vec<SourceView>,
    cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SourceView {
    name: String,
    /// `azure-devops` or `dynamodb-stream`.
    kind: &'static str,
    /// The organization, the table or the stream.
    of: Option<String>,
    /// `disabled`, `elsewhere` (another node reads it), `starting`, `reading` or `failing`.
    state: &'static str,
    /// Where it is read, if that is elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    /// When it was last read without a failure.
    read_at: Option<String>,
    /// The last failure, until a turn goes well.
    error: Option<Error>,
    /// Records read since this server started, duplicates included.
    records: u64,
    /// Places where records were lost before they were read, since this server started; each is an event `dynamodb.gap`.
    gaps: u64,
    lag_seconds: Option<u64>,
    shards: Option<Shards>,
}

async fn list(State(services): State<Services>) -> impl IntoResponse {
    let items = services.config.sources.iter().map(|source| view(&services, source)).collect();
    Json(StatusCode::OK, SourceList { items, cursor: None })
}

fn view(services: &Services, source: &Source) -> SourceView {
    let known = services.sources.get(&source.name);
    let holder = services.nodes.as_ref().map(|nodes| nodes.holder(&format!("work/{}", work(&source.name))));
    let state = if !source.enabled {
        "disabled"
    } else if holder.as_ref().is_some_and(|holder| *holder != Holder::Me) {
        "elsewhere"
    } else if known.error.is_some() {
        "failing"
    } else if known.read_at.is_none() {
        "starting"
    } else {
        "reading"
    };
    SourceView {
        name: source.name.clone(),
        kind: source.kind.map_or("", Kind::as_str),
        of: source.organization.clone().or_else(|| source.table.clone()).or_else(|| source.stream_arn.clone()),
        state,
        node: holder.and_then(|holder| if let Holder::At(address) = holder { Some(address) } else { None }),
        read_at: known.read_at,
        error: known.error,
        records: known.records,
        gaps: known.gaps,
        lag_seconds: known.lag_seconds,
        shards: known.shards,
    }
}
