//! `/rules`: list, look at, write, delete and try.

use axum::extract::{Path, State};
use axum::http::{Method, StatusCode};
use axum::response::IntoResponse;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use tidings_core::envelope::{self, Defaults, FieldError};
use tidings_core::pattern::Pattern;
use tidings_store::Item;

use super::limits::DRY_RUN_EVENTS;
use super::{Author, Origin, Rule, dry_run, read};
use crate::app::Services;
use crate::http::paging::Asked;
use crate::http::{CorrelationId, Json, JsonText, Param, Params, Problem, Route};
use crate::incidents::monitors;
use crate::tokens::{Caller, Scope};

#[must_use]
pub fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/rules", "All rules, in the order of their names", list)
            .scopes(&[Scope::Read])
            .params(&[Param("limit", "1 to 1000, default 100"), Param("cursor", "Where the page before ended")])
            .answer::<RuleList>(200, "A page of rules, without secrets"),
        Route::new(Method::POST, "/rules/test", "Try a pattern against an event, or against stored events", test)
            .scopes(&[Scope::Read, Scope::Operate])
            .body::<TestBody>()
            .answer::<TestAnswer>(200, "Whether it matches, or how many of the stored events it matches"),
        Route::new(Method::GET, "/rules/{name}", "One rule", get)
            .scopes(&[Scope::Read])
            .answer::<RuleBody>(200, "The rule, without secrets"),
        Route::new(Method::PUT, "/rules/{name}", "Make or replace a rule, at once and as a whole", put)
            .scopes(&[Scope::Operate])
            .body::<RuleBody>()
            .answer::<RuleBody>(200, "The rule was replaced")
            .answer::<RuleBody>(201, "The rule was made")
            .answer_empty(409, "The rule is in the configuration file, or belongs to a monitor, and is changed there"),
        Route::new(Method::DELETE, "/rules/{name}", "Delete a rule, at once; a built-in one is back as it was", delete)
            .scopes(&[Scope::Operate])
            .answer_empty(204, "It is deleted, and the built-in rule of its name, if any, in force again")
            .answer_empty(409, "The rule is in the configuration file or belongs to a monitor, and is deleted there, or it is built in"),
    ]
}

/// A rule: which events become which notices.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "describes the body, which is read field by field to name every mistake")]
struct RuleBody {
    /// As in the path; 1 to 128 characters without / \ ? # %.
    #[schemars(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Default true.
    #[schemars(skip_serializing_if = "Option::is_none")]
    enabled: Option<bool>,
    /// An Amazon EventBridge pattern over the event, at most 64 KiB.
    pattern: Map<String, Value>,
    /// Where the notice goes: 1 to 20. None in an exclude rule.
    #[schemars(skip_serializing_if = "Option::is_none")]
    targets: Option<Vec<TargetBody>>,
    /// True: where this rule matches, others tell nobody, and their outcome is `suppressed`. Default false.
    #[schemars(skip_serializing_if = "Option::is_none")]
    exclude: Option<bool>,
    /// Of an exclude rule: a template that says why; recorded with everything that is kept back.
    #[schemars(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Of an exclude rule: the names of up to 100 rules that it keeps back. Default: all.
    #[schemars(skip_serializing_if = "Option::is_none")]
    rules: Option<Vec<String>>,
    /// A template over the event; empty: what the event says of itself. At most 16 KiB.
    #[schemars(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    /// A template over the event; empty: what the event says of itself. At most 16 KiB.
    #[schemars(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// What inbox entries of this rule link to: an address whose path or query may be a template over the entry
    /// (`productid`, `question`, `env`, `type`, `data`, `eventId`, …). An entry that lacks what it shows has no link.
    /// Default: `notification_center.link` of the configuration.
    #[schemars(skip_serializing_if = "Option::is_none")]
    link: Option<String>,
    /// The same notice to the same target is not repeated within this time; a user or an address that the event names is a
    /// target of its own. 0 to 604800, default 0: always repeated.
    #[schemars(skip_serializing_if = "Option::is_none")]
    dedupe_seconds: Option<u64>,
    /// A template: what makes two notices the same. Default: title and text.
    #[schemars(skip_serializing_if = "Option::is_none")]
    dedupe_key: Option<String>,
    /// In answers: `builtin`, `file`, `monitor` or `api`.
    #[schemars(skip_serializing_if = "Option::is_none")]
    origin: Option<String>,
    /// In answers: `builtin` if this rule stands in the place of a built-in one.
    #[schemars(skip_serializing_if = "Option::is_none")]
    overrides: Option<String>,
}

/// A target. `channel` says which of the other fields count.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "describes the body")]
struct TargetBody {
    /// `inbox`, `email`, `ntfy`, `webhook`, `queue` or `ticket`.
    channel: String,
    /// inbox: users, or templates that give one or a list of any length.
    #[schemars(skip_serializing_if = "Option::is_none")]
    users: Option<Vec<String>>,
    /// inbox: whom the notification map names.
    #[schemars(skip_serializing_if = "Option::is_none")]
    map: Option<MapBody>,
    /// email: 1 to 50 addresses or templates.
    #[schemars(skip_serializing_if = "Option::is_none")]
    to: Option<Vec<String>>,
    /// ntfy: default the configured topic.
    #[schemars(skip_serializing_if = "Option::is_none")]
    topic: Option<String>,
    /// webhook: http or https; templates only after the host. Often with a token in it: without the scope `operate`,
    /// scheme, host and `/***` are shown.
    #[schemars(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    /// webhook: signs each call. Never shown; `***` keeps the one that is there.
    #[schemars(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    /// queue: a queue's or topic's name.
    #[schemars(skip_serializing_if = "Option::is_none")]
    entity: Option<String>,
    /// ticket: on whose behalf.
    #[schemars(skip_serializing_if = "Option::is_none")]
    caller: Option<String>,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "describes the body")]
struct MapBody {
    /// A template that gives the product.
    product: String,
    /// Of these support groups only.
    #[schemars(skip_serializing_if = "Option::is_none")]
    groups: Option<Vec<String>>,
}

/// Either `event` or `last`.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "describes the body")]
struct TestBody {
    pattern: Map<String, Value>,
    /// One event.
    event: Option<Map<String, Value>>,
    /// How many stored events, newest first: 1 to 10000.
    last: Option<u64>,
}

#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
enum TestAnswer {
    One { matches: bool },
    Many { checked: usize, matched: usize, sample: Vec<String> },
}

#[derive(Serialize, JsonSchema)]
struct RuleList {
    items: Vec<Map<String, Value>>,
    cursor: Option<String>,
}

async fn list(State(services): State<Services>, caller: Caller, params: Params) -> Result<impl IntoResponse, Problem> {
    let mut asked = Asked::up_to((1000, 100), &services.sealer, &caller, "/rules", &(), params)?;
    let (limit, after) = (asked.limit, asked.after.take());
    let rules = services.rules.book.page(after.as_ref().and_then(|item| item.str("name")), limit + 1);
    let more = rules.len() > limit;
    let last = rules.iter().take(limit).next_back().filter(|_| more).map(|rule| Item::new().with("name", &rule.name));
    let items = rules.iter().take(limit).map(|rule| view(&services, &caller, rule)).collect();
    let cursor = asked.cursor(&services.sealer, last.as_ref());
    Ok(Json(StatusCode::OK, RuleList { items, cursor }))
}

async fn get(
    State(services): State<Services>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<impl IntoResponse, Problem> {
    let rule = services.rules.book.get(&name).ok_or_else(not_found)?;
    Ok(Json(StatusCode::OK, view(&services, &caller, &rule)))
}

async fn put(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    Path(name): Path<String>,
    body: JsonText,
) -> Result<impl IntoResponse, Problem> {
    let fields = fields(&body)?;
    let (is_new, view) = write(&services, &caller, &correlation, &name, &fields).await?;
    Ok(Json(if is_new { StatusCode::CREATED } else { StatusCode::OK }, view))
}

/// The fields of a body that names none of them twice.
fn fields(body: &JsonText) -> Result<Map<String, Value>, Problem> {
    let fields = body.object()?;
    read::refuse_repeated_keys(body.text()?).map_err(Problem::invalid)?;
    Ok(fields)
}

/// Makes or replaces a rule; says whether it is new, and what it is now.
pub async fn write(
    services: &Services,
    caller: &Caller,
    correlation: &CorrelationId,
    name: &str,
    fields: &Map<String, Value>,
) -> Result<(bool, Map<String, Value>), Problem> {
    let known = services.rules.book.get(name);
    known.as_ref().map_or(Ok(()), |known| refuse_configured(known))?;
    let rule = read::rule(name, fields, Origin::Api, known.as_deref()).map_err(Problem::invalid)?;
    let view = view(services, caller, &rule);
    let author = Author { user: &caller.name(), correlation_id: &correlation.0 };
    let is_new = services.rules.put(rule, &services.audit, &author).await?;
    Ok((is_new, view))
}

async fn delete(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    Path(name): Path<String>,
) -> Result<impl IntoResponse, Problem> {
    remove(&services, &caller, &correlation, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub async fn remove(
    services: &Services,
    caller: &Caller,
    correlation: &CorrelationId,
    name: &str,
) -> Result<(), Problem> {
    let known = services.rules.book.get(name).ok_or_else(not_found)?;
    refuse_configured(&known)?;
    if known.origin == Origin::BuiltIn {
        return Err(Problem::conflict("this rule is built in; to switch it off, write it with `enabled` false"));
    }
    let author = Author { user: &caller.name(), correlation_id: &correlation.0 };
    Ok(services.rules.delete(name, &services.audit, &author).await?)
}

/// Refuses to change what follows from the configuration.
fn refuse_configured(rule: &Rule) -> Result<(), Problem> {
    match rule.origin {
        Origin::Monitor => Err(Problem::conflict(monitors::how_to_change(&rule.name))),
        origin => origin.refuse_file("rule"),
    }
}

fn not_found() -> Problem {
    Problem::not_found("there is no rule of this name")
}

fn view(services: &Services, caller: &Caller, rule: &Rule) -> Map<String, Value> {
    let mut view = rule.view(caller.may(&[Scope::Operate]));
    if rule.origin != Origin::BuiltIn && services.rules.book.is_built_in(&rule.name) {
        view.insert("overrides".to_owned(), Origin::BuiltIn.as_str().into());
    }
    view
}

async fn test(State(services): State<Services>, body: JsonText) -> Result<impl IntoResponse, Problem> {
    let fields = fields(&body)?;
    let mut errors = Vec::new();
    let pattern = read::pattern(fields.get("pattern")).map_err(|wrong| errors.extend(wrong)).ok();
    let subject = subject(&fields, &services).map_err(|error| errors.push(error)).ok();
    let (Some(pattern), Some(subject)) = (pattern, subject) else { return Err(Problem::invalid(errors)) };
    let answer = match subject {
        Subject::Event(json) => TestAnswer::One { matches: matches(&pattern, &json)? },
        Subject::Last(most) => {
            let found = dry_run::over_stored(&services.events, &pattern, most).await?;
            TestAnswer::Many { checked: found.checked, matched: found.matched, sample: found.sample }
        }
    };
    Ok(Json(StatusCode::OK, answer))
}

enum Subject {
    /// An envelope as rules would see it.
    Event(String),
    Last(usize),
}

fn subject(fields: &Map<String, Value>, services: &Services) -> Result<Subject, FieldError> {
    let given = |name: &str| fields.get(name).filter(|value| !value.is_null());
    match (given("event"), given("last")) {
        (Some(event), None) => {
            let defaults =
                Defaults { now: services.clock.now(), correlation_id: "test", event_id: &|| "test".to_owned() };
            // An event that could be sent is seen as it would be stored; any other object as it is.
            let read = envelope::read(&event.to_string(), &defaults);
            match (read, event.is_object()) {
                (Ok(envelope), _) => Ok(Subject::Event(envelope.to_json())),
                (Err(_), true) => Ok(Subject::Event(event.to_string())),
                (Err(_), false) => Err(FieldError::new("event", "must be an object")),
            }
        }
        (None, Some(last)) => {
            let most = last.as_u64().filter(|most| (1..=DRY_RUN_EVENTS).contains(most));
            let most = most.and_then(|most| usize::try_from(most).ok());
            let wrong = || FieldError::new("last", format!("must be a whole number from 1 to {DRY_RUN_EVENTS}"));
            most.map(Subject::Last).ok_or_else(wrong)
        }
        _ => Err(FieldError::new("event", "is needed, or `last`, but not both")),
    }
}

fn matches(pattern: &Pattern, json: &str) -> Result<bool, Problem> {
    pattern.matches(json).map_err(|error| Problem::invalid_field("event", error.to_string()))
}
