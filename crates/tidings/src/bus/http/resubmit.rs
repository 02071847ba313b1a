//! `POST …/$deadletterqueue/resubmit`.

use axum::extract::State;
use axum::http::{Method, StatusCode};
use axum::response::IntoResponse;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tidings_core::envelope::FieldError;
use tidings_core::pattern::Pattern;

use super::Place;
use crate::app::Services;
use crate::audit::Action;
use crate::bus::MESSAGE_BYTES;
use crate::bus::path::Path;
use crate::bus::resubmit::{Id, Resubmit, Resubmitted, Which};
use crate::http::{CorrelationId, Json, JsonText, Problem, Route};
use crate::tokens::{Caller, Scope};

/// Ids in one call.
const IDS: usize = 1000;
/// Dead letters in one call, at most and if it does not say.
const LIMIT: u64 = 1_000_000;
const MOST: usize = 1_000_000;

#[must_use]
pub fn routes() -> Vec<Route> {
    ["/bus/{entity}/$deadletterqueue/resubmit", "/bus/{entity}/subscriptions/{subscription}/$deadletterqueue/resubmit"]
        .map(|path| {
            Route::new(Method::POST, path, "Send dead letters back to where they came from", resubmit)
                .at_owner()
                .scopes(&[Scope::Operate])
                .body::<ResubmitBody>()
                .answer::<ResubmitView>(200, "What was sent back; their deliveries are counted anew")
                .answer_empty(404, "None of the ids is there")
                .answer_empty(409, "With `body`: several have this message id. Nothing is sent back")
        })
        .into()
}

/// Exactly one of `ids`, `where` and `all`.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "describes the body, which is read field by field to name every mistake")]
struct ResubmitBody {
    /// Numbers are sequence numbers among the dead letters. Texts are message ids, which several may share; a text that is
    /// no message id, but a number, is a sequence number, unless there is a `limit`. 1 to 1000.
    ids: Option<Vec<Value>>,
    /// An EventBridge pattern over `messageId`, `subject`, `properties`, `deadLetter` and `body`.
    r#where: Option<Map<String, Value>>,
    all: Option<bool>,
    /// With one id, of one message: takes the place of its body. A string, or JSON, which becomes its text.
    body: Option<Value>,
    /// At most so many in this call; `more` says whether there are others.
    limit: Option<u64>,
    /// With `limit`: the `upTo` of the call before, so that what fails again meanwhile is left alone.
    up_to: Option<u64>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ResubmitView {
    resubmitted: u64,
    /// Left alone, for somebody has received them.
    locked: u64,
    more: bool,
    up_to: u64,
    /// Those of the `ids` that are not there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<Value>")]
    missing: Vec<Id>,
}

async fn resubmit(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    place: Place,
    body: JsonText,
) -> Result<impl IntoResponse, Problem> {
    let fields = body.object()?;
    let what = read(&fields).map_err(Problem::invalid)?;
    let done = send_back(&services, &caller, &correlation, &place.path, &fields, &what).await?;
    let Resubmitted { resubmitted, locked, more, up_to, missing } = done;
    let view = ResubmitView { resubmitted, locked, more, up_to, missing };
    Ok(Json(StatusCode::OK, view))
}

/// Sends dead letters back to where they came from. `fields` is what was asked, for the record.
pub async fn send_back(
    services: &Services,
    caller: &Caller,
    correlation: &CorrelationId,
    path: &Path,
    fields: &Map<String, Value>,
    what: &Resubmit,
) -> Result<Resubmitted, Problem> {
    let dead = services.bus.line(path)?;
    let to = services.bus.line(&Path { dead: false, ..path.clone() })?;
    let asked = json!({
        "ids": fields.get("ids"), "where": fields.get("where"), "all": fields.get("all"), "edited": what.body.is_some(),
    });
    // On record before it is done: many dead letters are many transactions.
    let action = Action::new("bus.resubmit", "entity", path.to_string()).details(asked);
    services.audit.record_with(&caller.name(), &correlation.0, action, Vec::new()).await?;
    let done = dead.resubmit(&to, what).await?;
    if matches!(what.which, Which::Ids(_)) && done.resubmitted + done.locked == 0 {
        return Err(Problem::not_found("none of these dead letters is there"));
    }
    Ok(done)
}

/// What a call's body asks for.
pub fn read(fields: &Map<String, Value>) -> Result<Resubmit, Vec<FieldError>> {
    let mut errors = Vec::new();
    let given = |name: &str| fields.get(name).filter(|value| !value.is_null() && **value != Value::Bool(false));
    let mut which = None;
    if ["ids", "where", "all"].into_iter().filter(|name| given(name).is_some()).count() != 1 {
        errors.push(FieldError::new("", "needs exactly one of `ids`, `where` and `all`"));
    }
    if let Some(value) = given("ids") {
        match ids(value) {
            Some(ids) => which = Some(Which::Ids(ids)),
            None => errors.push(FieldError::new("ids", format!("must be a list of 1 to {IDS} numbers or message ids"))),
        }
    }
    if let Some(value) = given("where") {
        match Pattern::parse(&value.to_string()) {
            Ok(pattern) => which = Some(Which::Where(pattern)),
            Err(error) => {
                let place = error.path.strip_prefix('$').unwrap_or(&error.path);
                errors.push(FieldError::new(format!("where{place}"), error.message));
            }
        }
    }
    match given("all") {
        None => {}
        Some(Value::Bool(true)) => which = Some(Which::All),
        Some(_) => errors.push(FieldError::new("all", "must be true")),
    }
    let body = fields.get("body").filter(|value| !value.is_null()).map(|value| match value {
        Value::String(text) => Bytes::from(text.clone()),
        json => Bytes::from(json.to_string()),
    });
    if body.is_some() && !matches!(&which, Some(Which::Ids(ids)) if ids.len() == 1) {
        errors.push(FieldError::new("body", "can be edited of one message only, named in `ids`"));
    }
    if body.as_ref().is_some_and(|body| body.len() > MESSAGE_BYTES) {
        errors.push(FieldError::new("body", format!("has more than {MESSAGE_BYTES} bytes")));
    }
    let mut number = |name: &str, most: u64| match fields.get(name).filter(|value| !value.is_null()) {
        None => None,
        Some(value) => {
            let number = value.as_u64().filter(|number| (1..=most).contains(number));
            if number.is_none() {
                errors.push(FieldError::new(name, format!("must be a whole number from 1 to {most}")));
            }
            number
        }
    };
    let limit = number("limit", LIMIT).map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let up_to = number("upTo", i64::MAX.unsigned_abs());
    match which {
        Some(which) if errors.is_empty() => {
            // Without a limit all that are named are sent back in this call.
            let limit = limit.or_else(|| (!matches!(which, Which::Ids(_))).then_some(MOST));
            Ok(Resubmit { which, body, limit, up_to })
        }
        _ => Err(errors),
    }
}

fn ids(value: &Value) -> Option<Vec<Id>> {
    let list = value.as_array().filter(|list| (1..=IDS).contains(&list.len()))?;
    list.iter()
        .map(|id| match id {
            Value::String(text) if !text.is_empty() => Some(Id::Text(text.clone())),
            number => number.as_u64().map(Id::Number),
        })
        .collect()
}
