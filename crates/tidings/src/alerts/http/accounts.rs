//! `/authorized-accounts`: whose changes are expected.

use axum::extract::State;
use axum::http::{Method, StatusCode};
use axum::response::IntoResponse;
use schemars::JsonSchema;
use serde::Serialize;
use tidings_core::json;

use crate::alerts::accounts;
use crate::app::Services;
use crate::http::{CorrelationId, Json, JsonText, Problem, Route};
use crate::tokens::{Caller, Scope};

const PATH: &str = "/authorized-accounts";

pub fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, PATH, "Accounts whose process changes are not alerted", get)
            .scopes(&[Scope::Read])
            .answer::<Vec<String>>(200, "The list; 404 while none is set"),
        Route::new(Method::PUT, PATH, "Set the list: e-mail addresses (in any case) and identity descriptors", put)
            .body::<Vec<String>>()
            .answer::<Vec<String>>(200, "The list as it is now"),
        Route::new(Method::DELETE, PATH, "Unset the list: nobody is excluded", unset)
            .answer_empty(204, "There is none any more"),
        Route::new(Method::GET, "/authorized-accounts/usage", "When each account was last met, if ever", usage)
            .scopes(&[Scope::Read])
            .answer::<Vec<AccountUsage>>(200, "Every account of the list"),
    ]
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct AccountUsage {
    account: String,
    /// Within a minute; null: no change by it has come yet.
    last_matched: Option<String>,
}

fn none() -> Problem {
    Problem::not_found("no list is set: nobody is excluded from alerts")
}

async fn get(State(services): State<Services>) -> Result<impl IntoResponse, Problem> {
    let list = services.alerts.accounts.list().await?.ok_or_else(none)?;
    Ok(Json(StatusCode::OK, list))
}

async fn put(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    body: JsonText,
) -> Result<impl IntoResponse, Problem> {
    let list = accounts::read(&json::parse(body.text()?)?).map_err(Problem::invalid)?;
    services.alerts.accounts.set(&services.audit, &caller.name(), &correlation.0, Some(list.clone())).await?;
    Ok(Json(StatusCode::OK, list))
}

async fn unset(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
) -> Result<impl IntoResponse, Problem> {
    let accounts = &services.alerts.accounts;
    accounts.list().await?.ok_or_else(none)?;
    accounts.set(&services.audit, &caller.name(), &correlation.0, None).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn usage(State(services): State<Services>) -> Result<impl IntoResponse, Problem> {
    let usage = services.alerts.accounts.usage().await?.ok_or_else(none)?;
    let shown =
        usage.into_iter().map(|usage| AccountUsage { account: usage.account, last_matched: usage.last_matched });
    Ok(Json(StatusCode::OK, shown.collect::<Vec<_>>()))
}
