//! `/dead-letters`: what was given up, and why.

use axum::extract::{Path, State};
use axum::http::{Method, StatusCode};
use axum::response::IntoResponse;
use schemars::JsonSchema;
use serde::Serialize;

use crate::app::Services;
use crate::http::{Json, Param, Params, Problem, Route, paging};
use crate::messages::dead::{self, DeadLetter};
use crate::tokens::{Caller, Scope};

#[must_use]
pub fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/dead-letters", "What was given up, newest first", page)
            .scopes(&[Scope::Read])
            .params(&[Param("limit", "1 to 100, default 50"), Param("cursor", "Where the page before ended")])
            .answer::<DeadLetterList>(200, "A page of dead letters"),
        Route::new(Method::GET, "/dead-letters/{id}", "One dead letter, by its message's id", get)
            .scopes(&[Scope::Read])
            .answer::<DeadLetter>(200, "The dead letter with every attempt"),
    ]
}

#[derive(Serialize, JsonSchema)]
struct DeadLetterList {
    items: Vec<DeadLetter>,
    cursor: Option<String>,
}

async fn page(
    State(services): State<Services>,
    caller: Caller,
    mut params: Params,
) -> Result<impl IntoResponse, Problem> {
    let limit = params.number("limit", 1..=100, 50);
    let cursor = params.text("cursor").map(ToOwned::to_owned);
    params.finish()?;
    let context = paging::context(&caller, "/dead-letters", &());
    let after = paging::open(&services.sealer, &context, cursor.as_deref())?;
    let (items, next) = dead::page(&*services.store, limit, after).await?;
    let cursor = paging::seal(&services.sealer, &context, next.as_ref());
    Ok(Json(StatusCode::OK, DeadLetterList { items, cursor }))
}

async fn get(State(services): State<Services>, Path(id): Path<String>) -> Result<impl IntoResponse, Problem> {
    let letter = dead::get(&*services.store, &id).await?;
    let letter = letter.ok_or_else(|| Problem::not_found("there is no dead letter of this id, or it has expired"))?;
    Ok(Json(StatusCode::OK, letter))
}
