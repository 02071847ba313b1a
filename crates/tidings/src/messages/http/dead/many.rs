//! The same for many dead letters: those of a list of ids at once, those that fit a pattern or all of them by a job.

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tidings_core::envelope::FieldError;
use tidings_core::pattern::Pattern;
use tidings_store::Error;
use uuid::Uuid;

use super::{edited, filter_params, remove_one, send_back_one};
use crate::app::Services;
use crate::audit::Action;
use crate::http::{CorrelationId, IdempotencySeed, Json, JsonText, Params, Problem, Route};
use crate::messages::dead::edit::Edit;
use crate::messages::dead::job::{self, Deed, Job, Order};
use crate::messages::dead::{self, DeadLetter, Filter};
use crate::messages::http::create::{created_by, request_ids};
use crate::nodes::forward::Call;
use crate::outbound;
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

/// Which letters, by exactly one of `ids`, `where` and `all`; and what is to be different. Beside `where` and `all` the
/// filters of the list: of those that fit all of them.
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
    /// Beside `where` or `all`: of this channel alone; `bus`: messages of queues and subscriptions.
    channel: Option<String>,
    /// The same: of this type; of a message of the bus its subject.
    message_type: Option<String>,
    /// The same: of this queue or subscription of the bus.
    path: Option<String>,
    /// The same: of this correlation id. `correlation_id` says the same.
    #[serde(rename = "correlationId")]
    correlation_id: Option<String>,
    /// The same: not given up before this date or time.
    from: Option<String>,
    /// The same: not given up after this date or time; a date means its whole day.
    to: Option<String>,
    /// `resubmit` alone, and not for all there are: takes the old one's place.
    payload: Option<Map<String, Value>>,
    /// `resubmit` alone: where they go instead.
    target: Option<Map<String, Value>>,
    /// `resubmit` alone, and not for all there are, of messages of the bus: what they say instead.
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
    /// Those that fit a pattern, or all, as far as a filter covers them.
    Many(Filter, Option<String>),
}

impl Which {
    /// Every field that narrows is heeded or refused: who says `path` does not mean everything.
    fn read(fields: &Map<String, Value>) -> Result<Self, Vec<FieldError>> {
        let (which, filter) = match (Self::chosen(fields), filter(fields)) {
            (Ok(which), Ok(filter)) => (which, filter),
            (which, filter) => return Err(which.err().into_iter().chain(filter.err()).flatten().collect()),
        };
        match which {
            Self::Many(_, pattern) => Ok(Self::Many(filter, pattern)),
            Self::Ids(ids) if filter == Filter::default() => Ok(Self::Ids(ids)),
            Self::Ids(_) => {
                let given = FILTERS.into_iter().filter(|name| fields.get(*name).is_some_and(|value| !value.is_null()));
                Err(given.map(|name| FieldError::new(name, "goes with `where` or `all`, not with `ids`")).collect())
            }
        }
    }

    fn chosen(fields: &Map<String, Value>) -> Result<Self, Vec<FieldError>> {
        let given = |name: &str| fields.get(name).filter(|value| !value.is_null());
        match (given("ids"), given("where"), given("all")) {
            (Some(ids), None, None) => {
                let list = ids.as_array().filter(|list| (1..=MOST_IDS).contains(&list.len()));
                let ids = list.and_then(|list| list.iter().map(|id| id.as_str().map(ToOwned::to_owned)).collect());
                let refused = || vec![FieldError::new("ids", format!("must be a list of 1 to {MOST_IDS} strings"))];
                ids.map(Self::Ids).ok_or_else(refused)
            }
            (None, Some(pattern), None) => match Pattern::parse(&pattern.to_string()) {
                Ok(_) => Ok(Self::Many(Filter::default(), Some(pattern.to_string()))),
                Err(error) => {
                    let place = error.path.strip_prefix('$').unwrap_or(&error.path);
                    Err(vec![FieldError::new(format!("where{place}"), error.message)])
                }
            },
            (None, None, Some(Value::Bool(true))) => Ok(Self::Many(Filter::default(), None)),
            (None, None, Some(_)) => Err(vec![FieldError::new("all", "must be true, or left out")]),
            _ => Err(vec![FieldError::new("", "needs exactly one of `ids`, `where` and `all`")]),
        }
    }
}

/// The filters of the list, as fields of a body.
const FILTERS: [&str; 7] = ["channel", "message_type", "path", "correlationId", "correlation_id", "from", "to"];

fn filter(fields: &Map<String, Value>) -> Result<Filter, Vec<FieldError>> {
    let mut errors = Vec::new();
    let mut said = Vec::new();
    for name in FILTERS {
        match fields.get(name) {
            None | Some(Value::Null) => {}
            Some(Value::String(text)) if !text.is_empty() => said.push((name, text.as_str())),
            Some(_) => errors.push(FieldError::new(name, "must be a text that is not empty")),
        }
    }
    let mut params = Params::of(said);
    let filter = filter_params(&mut params);
    errors.extend(params.into_errors());
    if errors.is_empty() { Ok(filter) } else { Err(errors) }
}

/// One text in the place of all that there are, of whatever kind, is a mistake.
fn refuse_edit_of_all(which: &Which, edit: &Edit) -> Vec<FieldError> {
    let given = [("payload", edit.payload.is_some()), ("body", edit.body.is_some())];
    let is_all = matches!(which, Which::Many(filter, None) if *filter == Filter::default());
    let given = given.into_iter().filter(|(_, given)| is_all && *given);
    let why = "would be the same for all there are; say which, by `ids`, `where` or a filter";
    given.map(|(name, _)| FieldError::new(name, why)).collect()
}

type Seed = Option<Extension<IdempotencySeed>>;

async fn resubmit(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    seed: Seed,
    headers: HeaderMap,
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
    let refused = refuse_edit_of_all(&which, &edit);
    if !refused.is_empty() {
        return Err(Problem::invalid(refused));
    }
    let asker = Asker { services: &services, caller: &caller, correlation: &correlation.0, headers: &headers };
    match which {
        Which::Ids(ids) => asker.resubmit_each(ids, &edit, seed).await,
        Which::Many(filter, pattern) => asker.begin((Deed::Resubmit, edit), filter, pattern, seed).await,
    }
}

async fn purge(
    State(services): State<Services>,
    caller: Caller,
    correlation: CorrelationId,
    seed: Seed,
    headers: HeaderMap,
    body: JsonText,
) -> Result<Response, Problem> {
    let which = Which::read(&body.object()?).map_err(Problem::invalid)?;
    let asker = Asker { services: &services, caller: &caller, correlation: &correlation.0, headers: &headers };
    match which {
        Which::Ids(ids) => asker.purge_each(ids).await,
        Which::Many(filter, pattern) => asker.begin((Deed::Purge, Edit::default()), filter, pattern, seed).await,
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
    headers: &'a HeaderMap,
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
        let fields = json!({ "payload": edit.payload, "target": edit.target, "body": edit.body });
        let path = format!("/dead-letters/{id}/resubmit");
        if let Some(answer) = self.at_owner(letter, &Method::POST, &path, &fields).await? {
            return answer.into_answer(id);
        }
        let back = send_back_one(self.services, self.caller, &correlation, letter, edit).await;
        one(id, back.map(|back| (201, Some(back.message_id), Some(back.sequence_number))))
    }

    async fn purge_each(&self, ids: Vec<String>) -> Result<Response, Problem> {
        let mut items = Vec::with_capacity(ids.len());
        for id in ids {
            let letter = dead::get(&*self.services.store, &id).await?;
            if let Some(letter) = letter.as_ref().filter(|letter| letter.bus.is_some()) {
                let correlation = CorrelationId::alone(self.correlation.to_owned());
                let path = format!("/dead-letters/{id}");
                if let Some(answer) = self.at_owner(letter, &Method::DELETE, &path, &Value::Null).await? {
                    items.push(answer.into_answer(id)?);
                    continue;
                }
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

    /// What the node says that has the line of a letter, asked as the caller; `None` if that is this one.
    async fn at_owner(
        &self,
        letter: &DeadLetter,
        method: &Method,
        path: &str,
        fields: &Value,
    ) -> Result<Option<Elsewhere>, Problem> {
        let line = letter.bus.as_ref().and_then(|at| crate::bus::Path::parse(&at.path));
        let Some(line) = line else { return Ok(None) };
        let mut headers = self.headers.clone();
        // The key is for all of them together.
        headers.remove(&crate::http::IDEMPOTENCY_KEY);
        let body = if fields.is_null() { Bytes::new() } else { Bytes::from(fields.to_string()) };
        let correlation = CorrelationId::alone(self.correlation.to_owned());
        let call = Call { method, path, query: None, headers: &headers, body: &body, correlation: &correlation };
        Ok(self.services.at_owner(&line, call).await?.map(Elsewhere))
    }

    async fn begin(
        &self,
        what: (Deed, Edit),
        filter: Filter,
        pattern: Option<String>,
        seed: Seed,
    ) -> Result<Response, Problem> {
        let id = request_ids(self.services, seed).uuid(0);
        let correlation = CorrelationId::alone(self.correlation.to_owned());
        let job = begin(self.services, self.caller, &correlation, what, (filter, pattern), id).await?;
        let mut response = Json(StatusCode::ACCEPTED, JobView::from(job)).into_response();
        if let Ok(location) = format!("/dead-letters/jobs/{id}").parse() {
            response.headers_mut().insert(header::LOCATION, location);
        }
        Ok(response)
    }
}

/// Begins a job over those that a filter covers and that fit a pattern, or all of them; gives it as it is then.
pub async fn begin(
    services: &Services,
    caller: &Caller,
    correlation: &CorrelationId,
    (deed, edit): (Deed, Edit),
    (filter, pattern): (Filter, Option<String>),
    id: Uuid,
) -> Result<Job, Problem> {
    let mut details = json!({ "action": deed.as_str(), "where": pattern, "edited": edited(&edit) });
    if filter != Filter::default()
        && let Some(details) = details.as_object_mut()
    {
        details.insert("filter".to_owned(), json!(filter));
    }
    let order = Order {
        deed,
        filter,
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

/// What another node answered about one letter.
struct Elsewhere(outbound::Response);

impl Elsewhere {
    /// What is nobody's mistake ends the whole call.
    fn into_answer(self, id: String) -> Result<OneAnswer, Problem> {
        let Self(answer) = self;
        let told: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let text = |name: &str| told.get(name).and_then(Value::as_str).map(ToOwned::to_owned);
        if answer.status >= 500 {
            let detail = text("detail").unwrap_or_else(|| "another node could not do it".to_owned());
            return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail).retry_after(1));
        }
        let error = |error: &Value| {
            let text = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
            FieldError::new(text("field"), text("message"))
        };
        let errors = told.get("errors").and_then(Value::as_array).map(|all| all.iter().map(error).collect());
        Ok(OneAnswer {
            id,
            status: answer.status,
            message_id: text("messageId"),
            sequence_number: told.get("sequenceNumber").and_then(Value::as_u64),
            errors: errors.unwrap_or_default(),
        })
    }
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
