//! `/notification-map`: who hears of a product, by support group (S001-06, S001-42 to S001-44).

use std::collections::BTreeSet;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::IntoResponse;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use tidings_core::envelope::FieldError;
use tidings_store::{Condition, Error, Item, Query, Write};

use super::import::{self, Import, Summary};
use super::map;
use super::record::{MAP, table};
use crate::app::Services;
use crate::audit::Action;
use crate::http::{CorrelationId, Json, JsonText, Param, Params, Problem, Route, media_type, paging};
use crate::rules::notice::is_user;
use crate::tokens::{Caller, Scope};

const IMPORT: &str = "Take over a CSV file, line by line: product, support group, users separated by `;`. A first line may \
    name the columns (product, supportGroup, users) in any order. Content-Encoding gzip is unpacked";

pub fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/notification-map", "Who hears of which product, by support group", list)
            .scopes(&[Scope::Read])
            .params(&[
                Param("product", "Of this product only"),
                Param("limit", "1 to 1000, default 100"),
                Param("cursor", "Where the page before ended"),
            ])
            .answer::<MapList>(200, "A page, in the order of products and groups"),
        Route::new(Method::POST, "/notification-map/import", IMPORT, import_csv)
            .scopes(&[Scope::Operate])
            .upload()
            .body_as::<String>("text/csv")
            .answer::<Summary>(200, "What was taken over, and every line that was not"),
        Route::new(Method::GET, "/notification-map/{product}/{supportGroup}", "The users of one support group", get)
            .scopes(&[Scope::Read])
            .answer::<MapEntry>(200, "The entry"),
        Route::new(Method::PUT, "/notification-map/{product}/{supportGroup}", "Say who is in a support group", put)
            .scopes(&[Scope::Operate])
            .body::<UsersBody>()
            .answer::<MapEntry>(200, "The entry was replaced")
            .answer::<MapEntry>(201, "The entry was made"),
        Route::new(Method::DELETE, "/notification-map/{product}/{supportGroup}", "Remove a support group", delete)
            .scopes(&[Scope::Operate])
            .answer_empty(204, "It is removed"),
    ]
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "describes the body, which is read field by field to name every mistake")]
struct UsersBody {
    /// At most 10000, each once.
    users: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct MapEntry {
    product: String,
    support_group: String,
    users: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
struct MapList {
    items: Vec<MapEntry>,
    cursor: Option<String>,
}

impl MapEntry {
    fn of(item: &Item) -> Result<Self, Error> {
        let (product, group) = map::names_of(item)
            .ok_or_else(|| Error::Corrupt("an entry of the notification map has no key".to_owned()))?;
        Ok(Self { product: product.to_owned(), support_group: group.to_owned(), users: map::users_of(item) })
    }
}

async fn list(
    State(services): State<Services>,
    caller: Caller,
    mut params: Params,
) -> Result<impl IntoResponse, Problem> {
    let product = params.text("product").map(ToOwned::to_owned);
    if let Some(Err(why)) = product.as_deref().map(map::check_name) {
        params.refuse("product", why);
    }
    let limit = params.number("limit", 1..=1000, 100);
    let cursor = params.text("cursor").map(ToOwned::to_owned);
    params.finish()?;
    let context = paging::context(&caller, "/notification-map", &product);
    let after = paging::open(&services.sealer, &context, cursor.as_deref())?;
    let query = Query::new(MAP).limit(limit).after(after);
    let query = match &product {
        // A longer name than a key can hold has no entries.
        Some(product) if product.len() > map::NAMES_BYTES => {
            return Ok(Json(StatusCode::OK, MapList { items: Vec::new(), cursor: None }));
        }
        Some(product) => query.prefix(format!("{product}#")),
        None => query,
    };
    let page = services.store.query(table(), &query).await?;
    let items = page.items.iter().map(MapEntry::of).collect::<Result<_, _>>()?;
    let cursor = paging::seal(&services.sealer, &context, page.next.as_ref());
    Ok(Json(StatusCode::OK, MapList { items, cursor }))
}

async fn get(
    State(services): State<Services>,
    Path((product, group)): Path<(String, String)>,
) -> Result<impl IntoResponse, Problem> {
    check_names(&product, &group)?;
    let found = services.store.get(table(), &map::key(&product, &group)).await?;
    Ok(Json(StatusCode::OK, MapEntry::of(&found.ok_or_else(not_found)?)?))
}

async fn put(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    Path((product, group)): Path<(String, String)>,
    body: JsonText,
) -> Result<impl IntoResponse, Problem> {
    let mut errors = names_errors(&product, &group);
    let users = match body.object() {
        Ok(fields) => read_users(fields.get("users"), &mut errors),
        Err(problem) if problem.errors.is_empty() => return Err(problem),
        Err(problem) => {
            errors.extend(problem.errors);
            BTreeSet::new()
        }
    };
    if let Err(why) = map::check_sizes(&product, &group, &users) {
        errors.push(FieldError::new("users", why));
    }
    if !errors.is_empty() {
        return Err(Problem::invalid(errors));
    }
    let is_new = services.store.get(table(), &map::key(&product, &group)).await?.is_none();
    let users: Vec<String> = users.into_iter().collect();
    let action = Action::new("notification-map.put", "notification-map", format!("{product}#{group}"))
        .details(serde_json::json!({ "users": users.len() }));
    let write = Write::put(table(), map::item(&product, &group, &users));
    services.audit.record_with(&caller.name(), &correlation.0, action, vec![write]).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(Json(status, MapEntry { product, support_group: group, users }))
}

async fn delete(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    Path((product, group)): Path<(String, String)>,
) -> Result<impl IntoResponse, Problem> {
    check_names(&product, &group)?;
    let action = Action::new("notification-map.delete", "notification-map", format!("{product}#{group}"));
    let write = Write::delete(table(), map::key(&product, &group)).when(Condition::Exists);
    match services.audit.record_with(&caller.name(), &correlation.0, action, vec![write]).await {
        Ok(_) => Ok(StatusCode::NO_CONTENT),
        Err(Error::Conflict { .. }) => Err(not_found()),
        Err(error) => Err(error.into()),
    }
}

async fn import_csv(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    headers: HeaderMap,
    body: Body,
) -> Result<impl IntoResponse, Problem> {
    let media_type = media_type(&headers);
    // Whatever else a client calls it, CSV is what is read; these are surely something else.
    if media_type.starts_with("multipart/") || media_type == "application/json" || media_type.ends_with("+json") {
        let detail = format!("Content-Type {media_type:?} is not accepted here; send the file itself as text/csv");
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", detail));
    }
    let import = Import::new(&services, caller.name(), correlation.0);
    let summary = import::run(import, body, &services).await?;
    if summary.imported == 0 && !summary.errors.is_empty() {
        let errors = summary.errors.into_iter().map(|bad| FieldError::new(format!("line {}", bad.line), bad.message));
        return Err(Problem::invalid(errors.collect()));
    }
    Ok(Json(StatusCode::OK, summary))
}

fn read_users(users: Option<&Value>, errors: &mut Vec<FieldError>) -> BTreeSet<String> {
    let Some(Value::Array(users)) = users else {
        errors.push(FieldError::new("users", "must be a list of users' ids"));
        return BTreeSet::new();
    };
    let mut known = BTreeSet::new();
    for (place, user) in users.iter().enumerate() {
        match user.as_str().filter(|user| is_user(user)) {
            Some(user) => drop(known.insert(user.to_owned())),
            None => errors.push(FieldError::new(format!("users[{place}]"), "cannot be a user's id")),
        }
    }
    known
}

fn names_errors(product: &str, group: &str) -> Vec<FieldError> {
    let names = [("product", product), ("supportGroup", group)];
    names.into_iter().filter_map(|(field, name)| Some(FieldError::new(field, map::check_name(name).err()?))).collect()
}

fn check_names(product: &str, group: &str) -> Result<(), Problem> {
    let mut errors = names_errors(product, group);
    if let Err(why) = map::check_sizes(product, group, &BTreeSet::new()) {
        errors.push(FieldError::new("product", why));
    }
    if errors.is_empty() { Ok(()) } else { Err(Problem::invalid(errors)) }
}

fn not_found() -> Problem {
    Problem::not_found("the notification map has no such product and support group")
}
