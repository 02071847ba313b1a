//! `/api/schedules`: list, look at, write, delete.

use axum::extract::{Path, State};
use axum::http::{Method, StatusCode};
use axum::response::IntoResponse;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tidings_core::time::{self, Timestamp};
use tidings_store::Error;

use super::record::missed_name;
use super::{MOST, Origin, Outcome, Run, Schedule, TRIES, read};
use crate::app::Services;
use crate::audit::Action;
use crate::http::paging::Asked;
use crate::http::{CorrelationId, Json, JsonText, Param, Params, Problem, Route};
use crate::tokens::{Caller, Scope};

/// What a body may say of a schedule.
const FIELDS: [&str; 8] = ["cron", "timezone", "every", "at", "message_type", "payload", "enabled", "missed"];
/// Runs shown ahead.
const NEXT_RUNS: usize = 5;

#[must_use]
pub fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/api/schedules", "All schedules, in the order of their names", list)
            .scopes(&[Scope::Read])
            .params(&[Param("limit", "1 to 1000, default 100"), Param("cursor", "Where the page before ended")])
            .answer::<ScheduleList>(
                200,
                "A page of schedules, without their runs; one of more than 1 MiB ends early, and has a cursor",
            ),
        Route::new(Method::GET, "/api/schedules/{name}", "One schedule with its next and last runs", get)
            .scopes(&[Scope::Read])
            .answer::<ScheduleView>(200, "The schedule"),
        Route::new(Method::PUT, "/api/schedules/{name}", "Make or replace a schedule", put)
            .scopes(&[Scope::Operate])
            .body::<ScheduleBody>()
            .answer::<ScheduleView>(200, "The schedule was replaced; what was due stays due if the timing is the same")
            .answer::<ScheduleView>(201, "The schedule was made")
            .answer_empty(409, "The schedule is in the configuration file and is changed there"),
        Route::new(Method::DELETE, "/api/schedules/{name}", "Delete a schedule, at once", delete)
            .scopes(&[Scope::Operate])
            .answer_empty(204, "It is deleted")
            .answer_empty(409, "The schedule is in the configuration file and is deleted there"),
    ]
}

/// A message by the clock. Exactly one of `cron`, `every` and `at`.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "describes the body, which is read field by field to name every mistake")]
struct ScheduleBody {
    /// 5 fields, or 6 with seconds first. When the clocks change: without `*` in minute and hour, a time that is left out
    /// runs at the first moment after the change, several of them once, and one that comes twice runs the first time; else
    /// the schedule follows the clock on the wall.
    cron: Option<String>,
    /// For `cron`: an IANA name. Default UTC.
    timezone: Option<String>,
    /// A duration like 15m, from 1s to 366d, counted from now.
    every: Option<String>,
    /// An instant in the future; more digits than those of milliseconds are cut off.
    at: Option<String>,
    message_type: String,
    /// At most 262,144 bytes of JSON in 24 levels.
    payload: Option<Map<String, Value>>,
    /// Default true.
    enabled: Option<bool>,
    /// Runs that fell into a time when nothing was running: `skip`, `once` (default) or `all` (the latest 100).
    missed: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct ScheduleView {
    name: String,
    /// `file` or `api`.
    origin: &'static str,
    cron: Option<String>,
    timezone: String,
    every: Option<String>,
    at: Option<String>,
    message_type: String,
    payload: Map<String, Value>,
    enabled: bool,
    missed: &'static str,
    next_runs: Vec<String>,
    created_at: String,
    updated_at: String,
    updated_by: String,
    /// The last 50, newest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    runs: Option<Vec<RunView>>,
}

#[derive(Serialize, JsonSchema)]
struct RunView {
    /// When it was due.
    at: String,
    done_at: String,
    /// `fired`, `skipped` or `failed`.
    outcome: &'static str,
    /// Whether it had been missed and was made up for.
    late: bool,
    message_id: Option<String>,
    error: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct ScheduleList {
    items: Vec<ScheduleView>,
    cursor: Option<String>,
}

impl ScheduleView {
    fn of(schedule: Schedule, runs: Option<Vec<Run>>, now: Timestamp) -> Self {
        let timing = schedule.timing().ok().filter(|_| schedule.definition.enabled);
        let next = timing.map(|timing| timing.upcoming(now, NEXT_RUNS)).unwrap_or_default();
        let definition = schedule.definition;
        Self {
            name: schedule.name,
            origin: schedule.origin.as_str(),
            cron: definition.cron,
            timezone: definition.timezone,
            every: definition.every,
            at: definition.at,
            message_type: definition.message_type,
            payload: definition.payload,
            enabled: definition.enabled,
            missed: missed_name(definition.missed),
            next_runs: next.into_iter().map(time::iso_millis).collect(),
            created_at: time::iso_micros(schedule.created_at),
            updated_at: time::iso_micros(schedule.updated_at),
            updated_by: schedule.updated_by,
            runs: runs.map(|runs| runs.into_iter().map(RunView::from).collect()),
        }
    }
}

impl From<Run> for RunView {
    fn from(run: Run) -> Self {
        let (outcome, message_id, error) = match run.outcome {
            Outcome::Fired { message_id } => ("fired", Some(message_id), None),
            Outcome::Skipped => ("skipped", None, None),
            Outcome::Failed { error } => ("failed", None, Some(error)),
        };
        let (at, done_at) = (time::iso_millis(run.at), time::iso_micros(run.done_at));
        Self { at, done_at, outcome, late: run.late, message_id, error }
    }
}

async fn list(State(services): State<Services>, caller: Caller, params: Params) -> Result<impl IntoResponse, Problem> {
    let mut asked = Asked::up_to((1000, 100), &services.sealer, &caller, "/api/schedules", &(), params)?;
    let (limit, after) = (asked.limit, asked.after.take());
    let (schedules, next) = services.schedules.page(limit, after).await?;
    let now = services.clock.now();
    let items = schedules.into_iter().map(|schedule| ScheduleView::of(schedule, None, now)).collect();
    let cursor = asked.cursor(&services.sealer, next.as_ref());
    Ok(Json(StatusCode::OK, ScheduleList { items, cursor }))
}

async fn get(State(services): State<Services>, Path(name): Path<String>) -> Result<impl IntoResponse, Problem> {
    let schedule = find(&services, &name).await?.ok_or_else(not_found)?;
    let runs = services.schedules.runs(&name).await?;
    Ok(Json(StatusCode::OK, ScheduleView::of(schedule, Some(runs), services.clock.now())))
}

async fn put(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    Path(name): Path<String>,
    body: JsonText,
) -> Result<impl IntoResponse, Problem> {
    let (is_new, schedule) = write(&services, &caller, &correlation, &name, &body.object()?).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(Json(status, ScheduleView::of(schedule, None, services.clock.now())))
}

/// Makes or replaces a schedule; says whether it is new, and what it is now.
pub async fn write(
    services: &Services,
    caller: &Caller,
    correlation: &CorrelationId,
    name: &str,
    fields: &Map<String, Value>,
) -> Result<(bool, Schedule), Problem> {
    let now = services.clock.now();
    let definition = match (read::check_new_name(name), services.schedules.read(fields, now)) {
        (Ok(()), Ok(definition)) => definition,
        (named, read) => {
            let errors = named.err().into_iter().chain(read.err().into_iter().flatten());
            return Err(Problem::invalid(errors.collect()));
        }
    };
    // What means nothing to us need not be kept, and could be of any size.
    let said: Map<String, Value> = fields
        .iter()
        .filter(|(name, _)| FIELDS.contains(&name.as_str()))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    let by = caller.name();
    for _ in 0..TRIES {
        let before = services.schedules.get(name).await?;
        refuse_file(before.as_ref())?;
        let known_at = before.as_ref().and_then(|before| before.definition.at.as_ref());
        let at = definition.at.as_ref().filter(|at| Some(*at) != known_at);
        if at.and_then(|at| time::read(at)).is_some_and(|at| at <= now) {
            return Err(Problem::invalid_field("at", "must be in the future"));
        }
        if before.is_none() && services.schedules.list().await?.len() >= MOST {
            return Err(Problem::conflict(format!("there are {MOST} schedules already, and no more are possible")));
        }
        let (schedule, write) =
            services.schedules.writing(name, definition.clone(), Origin::Api, &by, before.as_ref(), now)?;
        let action = Action::new("schedule.put", "schedule", name).details(json!({ "definition": said }));
        match services.audit.record_with(&by, &correlation.0, action, vec![write]).await {
            Ok(_) => {
                services.schedules.notice_change();
                return Ok((before.is_none(), schedule));
            }
            // It was just moved on, or somebody else wrote it: look again.
            Err(Error::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Error::Throttled("the schedule is contended".to_owned()).into())
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
    for _ in 0..TRIES {
        let schedule = find(services, name).await?.ok_or_else(not_found)?;
        refuse_file(Some(&schedule))?;
        let action = Action::new("schedule.delete", "schedule", name);
        let write = services.schedules.deleting(&schedule);
        match services.audit.record_with(&caller.name(), &correlation.0, action, vec![write]).await {
            Ok(_) => return Ok(()),
            Err(Error::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Error::Throttled("the schedule is contended".to_owned()).into())
}

/// Whatever cannot be a name is no schedule's.
pub async fn find(services: &Services, name: &str) -> Result<Option<Schedule>, Problem> {
    if read::check_name(name).is_err() {
        return Ok(None);
    }
    Ok(services.schedules.get(name).await?)
}

fn not_found() -> Problem {
    Problem::not_found("there is no schedule of this name")
}

fn refuse_file(schedule: Option<&Schedule>) -> Result<(), Problem> {
    schedule.map_or(Ok(()), |schedule| schedule.origin.refuse_file("schedule"))
}
