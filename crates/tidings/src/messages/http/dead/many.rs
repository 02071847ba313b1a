//! The same for many dead letters: those of a list of ids at once, those that fit a pattern or all of them by a job.

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tidings_core::envelope::FieldError;
use tidings_core::pattern::Pattern;
use tidings_store::Error;
use uuid::Uuid;

use super::{edited, remove_one, send_back_one};
use crate::app::Services;
use crate::audit::Action;
use crate::http::{CorrelationId, IdempotencySeed, Json, JsonText, Problem, Route};
use crate::messages::dead::edit::Edit;
use crate::messages::dead::job::{self, Deed, Job, Order};
use crate::messages::dead::{self, DeadLetter};
use crate::messages::http::create::{created_by, request_ids};
use crate::tokens::{Caller, Scope};

const MOST_IDS: usize = 100;

#[must_use]
pub fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::POST, "/dead-letters/resubmit", "Send many dead letters again", resubmit)
            .scopes(&[Scope::Operate])
            .body::<ManyBody>()
            .answer::<ManyAnswer>(200, "What became of each of the ids")
            .answer::<JobView>(202, "By `where` or `all`: a job that does it; look at it with its `id`"),
        Route::new(Method::POST, "/dead-letters/purge", "Throw many dead letters away", purge)
            .scopes(&[Scope::Operate])
            .body::<ManyBody>()
            .answer::<ManyAnswer>(200, "What became of each of the ids")
            .answer::<JobView>(202, "By `where` or `all`: a job that does it; look at it with its `id`"),
        Route::new(Method::GET, "/dead-letters/jobs/{id}", "How far a job over dead letters has come", progress)
            .scopes(&[Scope::Read, Scope::Operate])
            .answer::<JobView>(200, "The job"),
    ]
}

/// Which letters, by exactly one of `ids`, `where` and `all`; and what is to be different.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "describes the body, which is read field by field to name every mistake")]
struct ManyBody {
    /// 1 to 100 ids.
    ids: Option<Vec<String>>,
    /// An EventBridge pattern over `channel`, `message_type`, `reason`, `code`, `rule`, `stage`, `payload`, `target` …; of
    /// messages of the bus (`channel` `bus`) over `path`, `subject`, `properties`, `body` and `deadLetter`, too.
    r#where: Option<Map<String, Value>>,
    /// `true`: all that there are now.
    all: Option<bool>,
    /// `resubmit` alone: takes the old one's place.
    payload: Option<Map<String, Value>>,
    /// `resubmit` alone: where they go instead.
    target: Option<Map<String, Value>>,
    /// `resubmit` alone, of messages of the bus: what they say instead.
    body: Option<Value>,
}

#[derive(Serialize, JsonSchema)]
struct ManyAnswer {
    done: usize,
    items: Vec<OneAnswer>,
}

#[derive(Serialize, JsonSchema)]
struct OneAnswer {
    id: String,
    /// 201 sent again, 204 thrown away, 404 unknown, 400 refused, 409 changed meanwhile.
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_id: Option<String>,
    /// Of a message of the bus: its number where it is now.
    #[serde(rename = "sequenceNumber", skip_serializing_if = "Option::is_none")]
    sequence_number: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<Value>")]
    errors: Vec<FieldError>,
}

#[derive(Serialize, JsonSchema)]
struct JobView {
    id: String,
    /// `resubmit` or `purge`.
    action: &'static str,
    /// `running` or `done`.
    state: &'static str,
    created_at: String,
    finished_at: Option<String>,
    /// Letters looked at so far.
    seen: i64,
    /// Sent again, or thrown away.
    done: i64,
    /// Left where they are, because they could not be sent again so.
    failed: i64,
    /// Why the first of those was left.
    error: Option<String>,
}

impl From<Job> for JobView {
    fn from(job: Job) -> Self {
        Self {
            action: job.order.deed.as_str(),
            state: if job.finished_at.is_some() { "done" } else { "running" },
            id: job.id,
            created_at: job.created_at,
            finished_at: job.finished_at,
            seen: job.seen,
            done: job.done,
            failed: job.failed,
            error: job.error,
        }
    }
}

/// Which letters somebody means.
enum Which {
    Ids(Vec<String>),
    Where(String),
    All,
}

impl Which {
    fn read(fields: &Map<String, Value>) -> Result<Self, Vec<FieldError>> {
        let given = |name: &str| fields.get(name).filter(|value| !value.is_null());
        match (given("ids"), given("where"), given("all")) {
            (Some(ids), None, None) => {
                let list = ids.as_array().filter(|list| (1..=MOST_IDS).contains(&list.len()));
                let ids = list.and_then(|list| list.iter().map(|id| id.as_str().map(ToOwned::to_owned)).collect());
                let refused = || vec![FieldError::new("ids", format!("must be a list of 1 to {MOST_IDS} strings"))];
                ids.map(Self::Ids).ok_or_else(refused)
            }
            (None, Some(pattern), None) => match Pattern::parse(&pattern.to_string()) {
                Ok(_) => Ok(Self::Where(pattern.to_string())),
                Err(error) => {
                    let place = error.path.strip_prefix('$').unwrap_or(&error.path);
                    Err(vec![FieldError::new(format!("where{place}"), error.message)])
                }
            },
            (None, None, Some(Value::Bool(true))) => Ok(Self::All),
            (None, None, Some(_)) => Err(vec![FieldError::new("all", "must be true, or left out")]),
            _ => Err(vec![FieldError::new("", "needs exactly one of `ids`, `where` and `all`")]),
        }
    }
}

type Seed = Option<Extension<IdempotencySeed>>;

async fn resubmit(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    seed: Seed,
    body: JsonText,
) -> Result<Response, Problem> {
    let fields = body.object()?;
    let (which, edit) = match (Which::read(&fields), Edit::read(&fields)) {
        (Ok(which), Ok(edit)) => (which, edit),
        (which, edit) => {
            let errors = which.err().into_iter().chain(edit.err()).flatten();
            return Err(Problem::invalid(errors.collect()));
        }
    };
    let asker = Asker { services: &services, caller: &caller, correlation: &correlation.0 };
    match which {
        Which::Ids(ids) => asker.resubmit_each(ids, &edit, seed).await,
        Which::Where(pattern) => asker.begin(Deed::Resubmit, Some(pattern), edit, seed).await,
        Which::All => asker.begin(Deed::Resubmit, None, edit, seed).await,
    }
}

async fn purge(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    seed: Seed,
    body: JsonText,
) -> Result<Response, Problem> {
    let which = Which::read(&body.object()?).map_err(Problem::invalid)?;
    let asker = Asker { services: &services, caller: &caller, correlation: &correlation.0 };
    match which {
        Which::Ids(ids) => asker.purge_each(ids).await,
        Which::Where(pattern) => asker.begin(Deed::Purge, Some(pattern), Edit::default(), seed).await,
        Which::All => asker.begin(Deed::Purge, None, Edit::default(), seed).await,
    }
}

async fn progress(State(services): State<Services>, Path(id): Path<String>) -> Result<impl IntoResponse, Problem> {
    let job = job::get(&*services.store, &id).await?;
    let job = job.ok_or_else(|| Problem::not_found("there is no such job, or it was done long ago"))?;
    Ok(Json(StatusCode::OK, JobView::from(job)))
}

struct Asker<'a> {
    services: &'a Services,
    caller: &'a Caller,
    correlation: &'a str,
}

impl Asker<'_> {
    /// Each letter with its own entry in the audit log, in a transaction of its own.
    async fn resubmit_each(&self, ids: Vec<String>, edit: &Edit, seed: Seed) -> Result<Response, Problem> {
        let (services, messages) = (self.services, &self.services.messages);
        let (new_ids, by, now) = (request_ids(services, seed), created_by(self.caller), services.clock.now());
        let mut items = Vec::with_capacity(ids.len());
        for (place, id) in ids.into_iter().enumerate() {
            let new_id = new_ids.uuid(place);
            let Some(letter) = dead::get(&*services.store, &id).await? else {
                let made = messages.get(&new_id.to_string()).await?;
                let (status, message_id) = made.map_or((404, None), |made| (201, Some(made.message.message_id)));
                items.push(OneAnswer { id, status, message_id, errors: Vec::new(), sequence_number: None });
                continue;
            };
            if letter.bus.is_some() {
                items.push(self.send_back(id, &letter, edit).await?);
                continue;
            }
            let again = match messages.resubmission(&letter, edit, &by, new_id, now).await? {
                Ok(again) => again,
                Err(errors) => {
                    items.push(OneAnswer { id, status: 400, message_id: None, errors, sequence_number: None });
                    continue;
                }
            };
            let mut writes = messages.creation(std::slice::from_ref(&again))?;
            writes.push(dead::discard(&id));
            let details = json!({ "message_id": again.message_id, "edited": edited(edit) });
            let action = Action::new("dead_letter.resubmit", "dead_letter", &id).details(details);
            match services.audit.record_with(&self.caller.name(), self.correlation, action, writes).await {
                Ok(_) => {
                    messages.signals.created([&again]);
                    items.push(OneAnswer {
                        id,
                        status: 201,
                        message_id: Some(again.message_id),
                        errors: Vec::new(),
                        sequence_number: None,
                    });
                }
                Err(Error::Conflict { .. }) => {
                    items.push(OneAnswer {
                        id,
                        status: 409,
                        message_id: None,
                        errors: Vec::new(),
                        sequence_number: None,
                    });
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(answer(items, 201))
    }

    async fn send_back(&self, id: String, letter: &DeadLetter, edit: &Edit) -> Result<OneAnswer, Problem> {
        let correlation = CorrelationId::alone(self.correlation.to_owned());
        let back = send_back_one(self.services, self.caller, &correlation, letter, edit).await;
        one(id, back.map(|back| (201, Some(back.message_id), Some(back.sequence_number))))
    }

    async fn purge_each(&self, ids: Vec<String>) -> Result<Response, Problem> {
        let mut items = Vec::with_capacity(ids.len());
        for id in ids {
            let letter = dead::get(&*self.services.store, &id).await?;
            if let Some(letter) = letter.as_ref().filter(|letter| letter.bus.is_some()) {
                let correlation = CorrelationId::alone(self.correlation.to_owned());
                let outcome = remove_one(self.services, self.caller, &correlation, letter).await;
                items.push(one(id, outcome.map(|()| (204, None, None)))?);
                continue;
            }
            let gone = if letter.is_some() {
                let action = Action::new("dead_letter.discard", "dead_letter", &id);
                let audit = &self.services.audit;
                let writes = vec![dead::discard(&id)];
                match audit.record_with(&self.caller.name(), self.correlation, action, writes).await {
                    Ok(_) => true,
                    Err(Error::Conflict { .. }) => false,
                    Err(error) => return Err(error.into()),
                }
            } else {
                false
            };
            items.push(OneAnswer {
                id,
                status: if gone { 204 } else { 404 },
                message_id: None,
                errors: Vec::new(),
                sequence_number: None,
            });
        }
        Ok(answer(items, 204))
    }

    async fn begin(&self, deed: Deed, pattern: Option<String>, edit: Edit, seed: Seed) -> Result<Response, Problem> {
        let id = request_ids(self.services, seed).uuid(0);
        let correlation = CorrelationId::alone(self.correlation.to_owned());
        let job = begin(self.services, self.caller, &correlation, deed, pattern, edit, id).await?;
        let mut response = Json(StatusCode::ACCEPTED, JobView::from(job)).into_response();
        if let Ok(location) = format!("/dead-letters/jobs/{id}").parse() {
            response.headers_mut().insert(header::LOCATION, location);
        }
        Ok(response)
    }
}

/// Begins a job over those that fit a pattern, or all; gives it as it is then.
pub async fn begin(
    services: &Services,
    caller: &Caller,
    correlation: &CorrelationId,
    deed: Deed,
    pattern: Option<String>,
    edit: Edit,
    id: Uuid,
) -> Result<Job, Problem> {
    let details = json!({ "action": deed.as_str(), "where": pattern, "edited": edited(&edit) });
    let order = Order {
        deed,
        pattern,
        edit,
        by: caller.name(),
        created_by: created_by(caller),
        correlation_id: correlation.0.clone(),
    };
    let write = job::begin(id, &order, services.clock.now())
        .map_err(|error| Problem::invalid_field("", format!("cannot be kept: {error}")))?;
    let name = match deed {
        Deed::Resubmit => "dead_letters.resubmit",
        Deed::Purge => "dead_letters.purge",
    };
    let action = Action::new(name, "dead_letter_job", id.to_string()).details(details);
    match services.audit.record_with(&order.by, &correlation.0, action, vec![write]).await {
        // The same request come again: it is begun.
        Ok(_) | Err(Error::Conflict { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    services.messages.new_letter_job.notify_one();
    let job = job::get(&*services.store, &id.to_string()).await?;
    job.ok_or_else(|| Problem::not_found("the job is gone"))
}

/// What became of one; what is nobody's mistake ends the whole call.
fn one(id: String, outcome: Result<(u16, Option<String>, Option<u64>), Problem>) -> Result<OneAnswer, Problem> {
    match outcome {
        Ok((status, message_id, sequence_number)) => {
            Ok(OneAnswer { id, status, message_id, errors: Vec::new(), sequence_number })
        }
        Err(problem) if problem.status.is_client_error() => {
            let status = problem.status.as_u16();
            Ok(OneAnswer { id, status, message_id: None, errors: problem.errors, sequence_number: None })
        }
        Err(problem) => Err(problem),
    }
}

fn answer(items: Vec<OneAnswer>, good: u16) -> Response {
    let done = items.iter().filter(|item| item.status == good).count();
    Json(StatusCode::OK, ManyAnswer { done, items }).into_response()
}
