//! `/incidents`: list, look at one, acknowledge.

use axum::extract::{Path, State as Shared};
use axum::http::{Method, StatusCode};
use axum::response::IntoResponse;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use tidings_core::time;

use super::monitors::severity_name;
use super::state::{Incident, State};
use super::{Acknowledged, shown};
use crate::app::Services;
use crate::http::{
    CORRELATION_ALIAS, CorrelationId, Json, JsonText, Param, Params, Problem, Route, correlation_param, paging,
};
use crate::tokens::{Caller, Scope};

const NOTE_CHARS: usize = 1000;

#[must_use]
pub fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/incidents", "Incidents, newest first", list)
            .scopes(&[Scope::Read])
            .params(&[
                Param("state", "open, acknowledged or resolved"),
                Param("correlationId", "The one that all events of an incident share: its id"),
                CORRELATION_ALIAS,
                Param("limit", "1 to 100, default 50"),
                Param("cursor", "Where the page before ended"),
            ])
            .answer::<IncidentList>(200, "A page of incidents"),
        Route::new(Method::GET, "/incidents/{id}", "One incident", get)
            .scopes(&[Scope::Read])
            .answer::<IncidentView>(200, "The incident"),
        Route::new(
            Method::POST,
            "/incidents/{id}/acknowledge",
            "Take care of an incident: it escalates no more",
            acknowledge,
        )
        .scopes(&[Scope::Operate])
        .body::<AcknowledgeBody>()
        .answer::<IncidentView>(200, "The incident; who was first stays")
        .answer_empty(409, "It is resolved already"),
    ]
}

/// May be left out.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "describes the body, which is read field by field to name every mistake")]
struct AcknowledgeBody {
    /// At most 1,000 characters.
    note: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct IncidentView {
    incident_id: String,
    /// Of all its events: the incident's own id.
    correlation_id: String,
    monitor: String,
    /// `dead_letters`, `active_messages`, `latency_p99_seconds` or `dead_letter_share`.
    metric: String,
    entity: String,
    /// `info`, `warning` or `critical`.
    severity: &'static str,
    /// `open`, `acknowledged` or `resolved`.
    state: &'static str,
    value: f64,
    peak: f64,
    above: f64,
    above_since: String,
    raised_at: String,
    escalate_at: Option<String>,
    escalations: u32,
    acknowledged_at: Option<String>,
    acknowledged_by: Option<String>,
    note: Option<String>,
    resolved_at: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct IncidentList {
    items: Vec<IncidentView>,
    cursor: Option<String>,
}

impl From<&Incident> for IncidentView {
    fn from(incident: &Incident) -> Self {
        Self {
            incident_id: incident.id.clone(),
            correlation_id: incident.id.clone(),
            monitor: incident.monitor.clone(),
            metric: incident.metric.clone(),
            entity: incident.entity.clone(),
            severity: severity_name(incident.severity),
            state: incident.state.as_str(),
            value: incident.value,
            peak: incident.peak,
            above: incident.above,
            above_since: time::iso_micros(incident.above_since),
            raised_at: time::iso_micros(incident.raised_at),
            escalate_at: shown(incident.escalate_at),
            escalations: incident.escalations,
            acknowledged_at: shown(incident.acknowledged_at),
            acknowledged_by: incident.acknowledged_by.clone(),
            note: incident.note.clone(),
            resolved_at: shown(incident.resolved_at),
        }
    }
}

/// An incident as its events carry it.
#[must_use]
pub fn view(incident: &Incident) -> Value {
    serde_json::to_value(IncidentView::from(incident)).unwrap_or_else(|_| json!({}))
}

async fn list(
    Shared(services): Shared<Services>,
    caller: Caller,
    mut params: Params,
) -> Result<impl IntoResponse, Problem> {
    let wanted = params.text("state").map(ToOwned::to_owned);
    let state = wanted.as_deref().and_then(State::parse);
    if wanted.is_some() && state.is_none() {
        params.refuse("state", "must be open, acknowledged or resolved");
    }
    let correlation_id = correlation_param(&mut params);
    let filter = (&wanted, &correlation_id);
    let asked = paging::Asked::read(&services.sealer, &caller, "incidents", &filter, params)?;
    let (incidents, next) = match &correlation_id {
        Some(id) => (services.incidents.of_correlation(id, state).await?, None),
        None => services.incidents.page(state, asked.limit, asked.after.clone()).await?,
    };
    let items = incidents.iter().map(IncidentView::from).collect();
    Ok(Json(StatusCode::OK, IncidentList { items, cursor: asked.cursor(&services.sealer, next.as_ref()) }))
}

async fn get(Shared(services): Shared<Services>, Path(id): Path<String>) -> Result<impl IntoResponse, Problem> {
    let incident = services.incidents.get(&id).await?.ok_or_else(unknown)?;
    Ok(Json(StatusCode::OK, IncidentView::from(&incident)))
}

async fn acknowledge(
    Shared(services): Shared<Services>,
    caller: Caller,
    correlation: CorrelationId,
    Path(id): Path<String>,
    body: JsonText,
) -> Result<impl IntoResponse, Problem> {
    let note = note(&body)?;
    let who = caller.name();
    let outcome = services.incidents.acknowledge(&services.audit, &id, (&who, &correlation.0), note).await?;
    match outcome {
        Acknowledged::Yes(incident) => Ok(Json(StatusCode::OK, IncidentView::from(&*incident))),
        Acknowledged::Unknown => Err(unknown()),
        Acknowledged::Over(_) => Err(Problem::conflict("the incident is resolved already; nothing needs to be done")),
    }
}

/// The note, if there is one; an empty body has none.
fn note(body: &JsonText) -> Result<Option<String>, Problem> {
    if body.0.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    match body.object()?.get("note") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(note)) if note.chars().count() <= NOTE_CHARS => Ok(Some(note.clone())),
        Some(_) => Err(Problem::invalid_field("note", format!("must be a text of at most {NOTE_CHARS} characters"))),
    }
}

fn unknown() -> Problem {
    Problem::not_found("there is no incident of this id")
}
