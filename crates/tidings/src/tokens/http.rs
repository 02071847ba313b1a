//! `/tokens`: make, list and revoke.

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{Method, StatusCode};
use axum::response::IntoResponse;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tidings_core::envelope::{FieldError, check_name};
use tidings_core::limits::NAME_CHARS;
use tidings_core::time::{self, Timestamp};
use uuid::Uuid;

use super::{Caller, NewToken, Scope, Token};
use crate::app::Services;
use crate::audit::Action;
use crate::http::{CorrelationId, IdempotencySeed, Json, JsonText, Problem, Route};

const MOST_SCOPES: usize = 20;

#[must_use]
pub fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/tokens", "All tokens, without their secrets", list)
            .answer::<TokenList>(200, "The tokens, oldest first"),
        Route::new(Method::POST, "/tokens", "Make a token; its text is shown only in this answer", create)
            .body::<NewTokenBody>()
            .answer::<CreatedToken>(201, "The token"),
        Route::new(Method::DELETE, "/tokens/{id}", "Revoke a token, at once", revoke)
            .answer_empty(204, "It is revoked"),
    ]
}

/// A token to make.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "describes the body, which is read field by field to name every mistake")]
struct NewTokenBody {
    /// `admin`, `read`, `operate`, `ingest`, `consume`, `tickets` or `user:ID`; at least one.
    scopes: Vec<String>,
    name: Option<String>,
    /// When it ceases to work; never, if absent.
    expires_at: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub struct TokenView {
    id: String,
    name: String,
    scopes: Vec<String>,
    created_at: String,
    created_by: String,
    expires_at: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct TokenList {
    items: Vec<TokenView>,
    cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct CreatedToken {
    #[serde(flatten)]
    view: TokenView,
    /// The token itself. Keep it: it cannot be shown again.
    token: String,
}

impl From<Token> for TokenView {
    fn from(token: Token) -> Self {
        Self {
            id: token.id,
            name: token.name,
            scopes: token.scopes.iter().map(ToString::to_string).collect(),
            created_at: time::iso_micros(token.created_at),
            created_by: token.created_by,
            expires_at: token.expires_at.map(time::iso_micros),
        }
    }
}

async fn list(State(services): State<Services>) -> Result<impl IntoResponse, Problem> {
    let items = services.tokens.list().await?.into_iter().map(TokenView::from).collect();
    Ok(Json(StatusCode::OK, TokenList { items, cursor: None }))
}

async fn create(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    seed: Option<Extension<IdempotencySeed>>,
    body: JsonText,
) -> Result<impl IntoResponse, Problem> {
    let seed = seed.map(|seed| seed.uuid(0));
    let (token, text) = make(&services, &caller, &correlation, &body.object()?, seed).await?;
    Ok(Json(StatusCode::CREATED, CreatedToken { view: token.into(), token: text }))
}

/// Makes a token; gives it, and its text for the only time. `seed` makes it the same one if the same request comes again.
pub async fn make(
    services: &Services,
    caller: &Caller,
    correlation: &CorrelationId,
    fields: &Map<String, Value>,
    seed: Option<Uuid>,
) -> Result<(Token, String), Problem> {
    let now = services.clock.now();
    let new = read_new(fields, caller.name(), now)?;
    let (token, text, write) = match seed {
        Some(id) => {
            // A token that was made before the key was forgotten is another request's.
            let known = services.tokens.get(&id.simple().to_string()).await?;
            let kept = std::time::Duration::from_secs(services.config.retention.idempotency_hours.saturating_mul(3600));
            let since = now.saturating_sub(kept).unwrap_or(Timestamp::MIN);
            match known {
                Some(known) if known.created_at < since => services.tokens.make(new),
                _ => services.tokens.make_once(id, new),
            }
        }
        None => services.tokens.make(new),
    };
    services.tokens.forget(&token.id);
    let scopes: Vec<_> = token.scopes.iter().map(ToString::to_string).collect();
    let action =
        Action::new("token.create", "token", &token.id).details(json!({ "name": token.name, "scopes": scopes }));
    services.audit.record_with(&caller.name(), &correlation.0, action, vec![write]).await?;
    Ok((token, text))
}

fn read_new(fields: &Map<String, Value>, created_by: String, now: Timestamp) -> Result<NewToken, Problem> {
    let mut errors = Vec::new();
    let mut scopes = Vec::new();
    match fields.get("scopes").and_then(Value::as_array) {
        Some(list) if (1..=MOST_SCOPES).contains(&list.len()) => {
            for (place, scope) in list.iter().enumerate() {
                match scope.as_str().ok_or_else(|| "must be a string".to_owned()).and_then(str::parse::<Scope>) {
                    Ok(scope) => scopes.push(scope),
                    Err(why) => errors.push(FieldError::new(format!("scopes[{place}]"), why)),
                }
            }
        }
        _ => errors.push(FieldError::new("scopes", format!("must be a list of 1 to {MOST_SCOPES} scopes"))),
    }
    let name = match fields.get("name") {
        None | Some(Value::Null) => String::new(),
        Some(name) => match name.as_str().ok_or_else(|| "must be a string".to_owned()).and_then(|name| {
            check_name(name, NAME_CHARS)?;
            Ok(name.to_owned())
        }) {
            Ok(name) => name,
            Err(why) => {
                errors.push(FieldError::new("name", why));
                String::new()
            }
        },
    };
    let expires_at = match fields.get("expires_at") {
        None | Some(Value::Null) => None,
        Some(at) => match at.as_str().and_then(time::read).filter(|at| *at > now) {
            Some(at) => Some(at),
            None => {
                errors.push(FieldError::new(
                    "expires_at",
                    "must be a time in the future, as in \"2027-01-31T12:00:00Z\"",
                ));
                None
            }
        },
    };
    if errors.is_empty() {
        Ok(NewToken { name, scopes, expires_at, created_by })
    } else {
        Err(Problem::invalid(errors))
    }
}

async fn revoke(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    Path(id): Path<String>,
) -> Result<impl IntoResponse, Problem> {
    withdraw(&services, &caller, &correlation, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Revokes a token, at once.
pub async fn withdraw(
    services: &Services,
    caller: &Caller,
    correlation: &CorrelationId,
    id: &str,
) -> Result<(), Problem> {
    let token = services.tokens.get(id).await?.ok_or_else(|| Problem::not_found("there is no such token"))?;
    let action = Action::new("token.revoke", "token", &token.id).details(json!({ "name": token.name }));
    let write = services.tokens.revocation(&token.id);
    services.audit.record_with(&caller.name(), &correlation.0, action, vec![write]).await?;
    services.tokens.forget(&token.id);
    Ok(())
}
