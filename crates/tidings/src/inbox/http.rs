//! `/notifications`: a user's inbox. Whose it is, is decided by the token, never by a parameter alone.

use axum::extract::State;
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use tidings_core::envelope::{FieldError, check_name};
use tidings_core::json;
use tidings_core::limits::NAME_CHARS;

use super::mark::{Mark, Marked};
use super::record::{ALL, Kind, Status};
use super::{Filter, Place, map_http, stream, view};
use crate::app::Services;
use crate::http::{Json, JsonText, Param, Params, Problem, Route, paging};
use crate::rules::notice::is_user;
use crate::tokens::{ANY_USER, Caller, Scope};

/// Entries in one update (S001-102): as many as a transaction has writes.
const MOST_MARKED: usize = 100;
/// Who may look: anybody who may read everything, and each user at their own.
const LOOKING: &[Scope] = &[Scope::Read, ANY_USER];
const CHANGING: &[Scope] = &[Scope::Operate, ANY_USER];
const COMPLETED: &str = "Update completed successfully";

#[must_use]
pub fn routes() -> Vec<Route> {
    let mut routes = vec![
        Route::new(Method::GET, "/notifications", "A user's notifications, newest first", page)
            .scopes(LOOKING)
            .params(&[
                Param("user", "Whose; a user's own token may leave it out"),
                Param("userid", "The same as `user`"),
                Param("status", "unread, read or all (default); archived ones are among all"),
                Param("type", "compliance, score or notice"),
                Param("sort", "time (default), or with status=read read_at: the last read first"),
                Param("limit", "1 to 100, default 20"),
                Param("size", "The same as `limit`"),
                Param("lastitemretrieved", "The LastEvaluatedKey of the page before"),
                Param("LastItemRetrieved", "The same as `lastitemretrieved`"),
                Param("cursor", "The same as `lastitemretrieved`"),
            ])
            .answer::<NotificationList>(200, "A page, and how many are unread"),
        Route::new(Method::POST, "/notifications", "Mark 1 to 100 notifications, all of them or none", mark)
            .scopes(CHANGING)
            .body::<MarksBody>()
            .answer::<MarkAnswer>(200, "How many changed, and which are not there"),
        Route::new(Method::GET, "/notifications/count", "How many notifications are unread", count)
            .scopes(LOOKING)
            .params(&[
                Param("user", "Whose; a user's own token may leave it out"),
                Param("userid", "The same as `user`"),
            ])
            .answer::<CountAnswer>(200, "The count"),
        Route::new(
            Method::GET,
            "/notifications/stream",
            "New notifications as they come, as Server-Sent Events; resumable by Last-Event-ID",
            stream::stream,
        )
        .scopes(LOOKING)
        .params(&[Param("user", "Whose; a user's own token may leave it out"), Param("userid", "The same as `user`")])
        .answer_as::<String>(200, "A stream without end", "text/event-stream"),
    ];
    routes.extend(map_http::routes());
    routes
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "describes the answer, which is written without building a tree")]
struct NotificationList {
    items: Vec<Notification>,
    /// Where the page ends: `lastitemretrieved` of the next one.
    #[schemars(rename = "LastEvaluatedKey")]
    last_evaluated_key: Option<String>,
    unread: u64,
}

/// One notification. What does not apply to its type is null.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "describes the answer")]
struct Notification {
    user: String,
    productid: Option<String>,
    question: Option<String>,
    /// `compliance`, `score` or `notice`.
    r#type: String,
    /// `question`, `score` or `notice`.
    event_type: String,
    old_score: Option<Score>,
    new_score: Option<Score>,
    /// `pending`.
    compliance: Option<String>,
    env: Option<String>,
    /// `all#` and a time; never changes.
    notification_identifier: String,
    /// `unread`, `read` or `archived`.
    status: String,
    time: String,
    read_at: Option<String>,
    link: Option<String>,
    title: String,
    text: String,
}

/// As it came: a number, or the text of one that has more digits than a number of JSON is sure to keep.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "describes the answer")]
enum Score {
    Number(f64),
    Text(String),
}

/// The list itself, or the list and what is done to all of it.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "describes the body, which is read field by field to name every mistake")]
enum MarksBody {
    List(Vec<MarkBody>),
    Named {
        notifications: Vec<MarkBody>,
        /// `read` (default), `unread` or `archive`.
        action: Option<String>,
    },
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "describes the body, which is read field by field to name every mistake")]
struct MarkBody {
    /// Whose; a user's own token may leave it out.
    user: Option<String>,
    notification_identifier: String,
    /// `read` (default), `unread` or `archive`.
    action: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct MarkAnswer {
    status: &'static str,
    /// Those that were not yet what they were to become.
    updated: usize,
    not_found: Vec<Named>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
struct Named {
    user: String,
    notification_identifier: String,
}

#[derive(Serialize, JsonSchema)]
struct CountAnswer {
    unread: u64,
}

async fn page(State(services): State<Services>, caller: Caller, mut params: Params) -> Result<Response, Problem> {
    let user = named_user(&caller, &mut params)?;
    let status = match params.text("status") {
        None | Some("all") => None,
        Some("unread") => Some(Status::Unread),
        Some("read") => Some(Status::Read),
        Some(_) => {
            params.refuse("status", "must be unread, read or all");
            None
        }
    };
    let kind = match params.text("type") {
        None => None,
        Some("compliance" | "question") => Some(Kind::Question),
        Some("score") => Some(Kind::Score),
        Some("notice") => Some(Kind::Notice),
        Some(_) => {
            params.refuse("type", "must be compliance, score or notice");
            None
        }
    };
    let by_reading = match params.text("sort") {
        None | Some("time") => false,
        Some("read_at") => {
            if status != Some(Status::Read) {
                params.refuse("sort", "can be read_at only with status=read");
            }
            true
        }
        Some(_) => {
            params.refuse("sort", "must be time or read_at");
            false
        }
    };
    let limit = match (params.text("limit").is_some(), params.text("size").is_some()) {
        (true, true) => {
            params.refuse("size", "is the same as `limit`; give one of them");
            20
        }
        (false, true) => params.number("size", 1..=100, 20),
        _ => params.number("limit", 1..=100, 20),
    };
    let cursor = one_of(&mut params, &["lastitemretrieved", "LastItemRetrieved", "cursor"]);
    // `null` is none (S001-75).
    let cursor = cursor.filter(|(_, text)| text != "null");
    let filter = Filter { user, status, kind, by_reading };
    params.finish()?;
    let context = paging::context(&caller, "/notifications", &filter);
    let after = match cursor {
        None => None,
        Some((name, text)) => {
            let time = services.sealer.open(name, &context, &text)?;
            Some(String::from_utf8_lossy(&time).into_owned())
        }
    };
    let (page, count) = services.inbox.page(Place { filter, limit, after }).await?;
    let mut body = Vec::with_capacity(page.items.len() + 256);
    body.extend_from_slice(b"{\"items\":");
    body.extend_from_slice(&page.items);
    body.extend_from_slice(b",\"LastEvaluatedKey\":");
    match &page.next {
        Some(time) => view::write_text(&mut body, &services.sealer.seal(&context, time.as_bytes())),
        None => body.extend_from_slice(b"null"),
    }
    body.extend_from_slice(b",\"unread\":");
    body.extend_from_slice(count.unread.to_string().as_bytes());
    body.push(b'}');
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

async fn count(
    State(services): State<Services>,
    caller: Caller,
    mut params: Params,
) -> Result<impl IntoResponse, Problem> {
    let user = named_user(&caller, &mut params)?;
    params.finish()?;
    let count = services.inbox.count(&user).await?;
    Ok(Json(StatusCode::OK, CountAnswer { unread: count.unread }))
}

async fn mark(State(services): State<Services>, caller: Caller, body: JsonText) -> Result<impl IntoResponse, Problem> {
    let body: Value = json::parse(body.text()?)?;
    let (marks, mut named) = read_marks(&caller, &body)?;
    let Marked { updated, not_found } = services.inbox.mark(&marks).await?;
    let mut place = 0;
    named.retain(|_| {
        place += 1;
        not_found.contains(&(place - 1))
    });
    Ok(Json(StatusCode::OK, MarkAnswer { status: COMPLETED, updated, not_found: named }))
}

/// The marks of a body, and the entries as it names them: a list, or an object with one and an `action` for all of it.
fn read_marks(caller: &Caller, body: &Value) -> Result<(Vec<Mark>, Vec<Named>), Problem> {
    let (list, default) = match body {
        Value::Array(list) => (list, None),
        Value::Object(fields) => match fields.get("notifications") {
            Some(Value::Array(list)) => (list, fields.get("action")),
            _ => return Err(Problem::invalid_field("notifications", "must be a list of notifications")),
        },
        _ => return Err(Problem::invalid_field("", "the body must be a list of notifications")),
    };
    if list.is_empty() || list.len() > MOST_MARKED {
        let message = format!("must have 1 to {MOST_MARKED} notifications, and has {}", list.len());
        return Err(Problem::invalid_field("", message));
    }
    let mut errors = Vec::new();
    let mut marks: Vec<Mark> = Vec::with_capacity(list.len());
    let mut named = Vec::with_capacity(list.len());
    let mut foreign = false;
    for (place, entry) in list.iter().enumerate() {
        let Value::Object(fields) = entry else {
            errors.push(FieldError::new(format!("[{place}]"), "must be an object"));
            continue;
        };
        let mut wrong = |field: &str, message: &str| {
            errors.push(FieldError::new(format!("[{place}].{field}"), message));
        };
        let user = match fields.get("user").or_else(|| fields.get("userid")) {
            Some(Value::String(user)) if check_name(user, NAME_CHARS).is_ok() => Some(user.clone()),
            None => own_user(caller).map(ToOwned::to_owned),
            Some(_) => None,
        };
        if user.is_none() {
            wrong("user", "must be a user's id");
        }
        foreign |= user.as_ref().is_some_and(|user| !may(caller, user, &Scope::Operate));
        let identifier = fields.get("notification_identifier").and_then(Value::as_str);
        if identifier.is_none_or(str::is_empty) {
            wrong("notification_identifier", "must be a notification's identifier");
        }
        let to = action(fields, default);
        if to.is_none() {
            wrong("action", "must be read, unread or archive");
        }
        let (Some(user), Some(identifier), Some(to)) = (user, identifier, to) else { continue };
        let time = identifier.strip_prefix(ALL).unwrap_or(identifier).to_owned();
        match marks.iter().find(|mark| (&mark.user, &mark.time) == (&user, &time)) {
            Some(earlier) if earlier.to != to => wrong("action", "differs from that of the same notification above"),
            Some(_) => {}
            None => {
                named.push(Named { user: user.clone(), notification_identifier: identifier.to_owned() });
                marks.push(Mark { user, time, to });
            }
        }
    }
    // One foreign name refuses the whole request (S001-102).
    if foreign {
        return Err(forbidden());
    }
    if errors.is_empty() { Ok((marks, named)) } else { Err(Problem::invalid(errors)) }
}

fn action(fields: &Map<String, Value>, default: Option<&Value>) -> Option<Status> {
    // `null` is as good as nothing.
    match fields.get("action").filter(|action| !action.is_null()).or(default) {
        None | Some(Value::Null) => Some(Status::Read),
        Some(Value::String(action)) => match action.as_str() {
            "read" => Some(Status::Read),
            "unread" => Some(Status::Unread),
            "archive" => Some(Status::Archived),
            _ => None,
        },
        Some(_) => None,
    }
}

/// Whose inbox a request is about, if the caller may see it: 403 comes before anything else. A name that is none is among
/// what `Params::finish` tells, without which this one is good for nothing.
pub(super) fn named_user(caller: &Caller, params: &mut Params) -> Result<String, Problem> {
    let named = one_of(params, &["user", "userid"]).map(|(_, user)| user);
    let user = match named.or_else(|| own_user(caller).map(ToOwned::to_owned)) {
        Some(user) => user,
        None => {
            params.refuse("user", "is needed: whose notifications?");
            return Ok(String::new());
        }
    };
    if !may(caller, &user, &Scope::Read) {
        return Err(forbidden());
    }
    if !is_user(&user) {
        params.refuse("user", "cannot be a user's id");
    }
    Ok(user)
}

/// A parameter that has several names, of which one may be used.
fn one_of(params: &mut Params, names: &[&'static str]) -> Option<(&'static str, String)> {
    let given: Vec<_> = names.iter().filter(|name| params.text(name).is_some()).collect();
    if let [first, rest @ ..] = given.as_slice() {
        for other in rest {
            params.refuse(other, format!("is the same as `{first}`; give one of them"));
        }
    }
    let name = *given.first()?;
    Some((*name, params.text(name)?.to_owned()))
}

/// The only user that the token is for, if it is for one and nothing else.
fn own_user(caller: &Caller) -> Option<&str> {
    match caller.token.scopes.as_slice() {
        [Scope::User(user)] => Some(user),
        _ => None,
    }
}

/// Whether a caller may see or change what is that user's: by a scope over all inboxes, or because it is theirs.
fn may(caller: &Caller, user: &str, over_all: &Scope) -> bool {
    let own = caller.token.scopes.iter().any(|scope| matches!(scope, Scope::User(own) if own == user));
    own || caller.may(std::slice::from_ref(over_all))
}

fn forbidden() -> Problem {
    Problem::new(StatusCode::FORBIDDEN, "forbidden", "this token is for another user's notifications")
}
