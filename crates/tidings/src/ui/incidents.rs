//! Incidents: what a monitor has raised, who takes care of it, and when it escalates.

use axum::extract::{Path, State as Shared};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use maud::{Markup, html};

use super::door::{Form, Page, Visitor, see_other};
use super::layout;
use super::parts::{self, badge, encode, facts, form_token, time};
use crate::app::Services;
use crate::http::{CorrelationId, Params, Problem, paging};
use crate::incidents::Acknowledged;
use crate::incidents::monitors::severity_name;
use crate::incidents::state::{Incident, State};
use crate::tokens::Scope;

const PAGE: usize = 50;
const NOTE_CHARS: usize = 1000;

pub fn pages() -> Vec<Page> {
    vec![
        Page::new("/ui/incidents", &[Scope::Read], get(list)).params(&["state", "cursor"]),
        Page::new("/ui/incidents/{id}", &[Scope::Read], get(show)).params(&["done"]),
        Page::new("/ui/incidents/{id}/acknowledge", &[Scope::Operate], post(acknowledge)),
    ]
}

async fn list(Shared(services): Shared<Services>, visitor: Visitor, mut params: Params) -> Result<Response, Problem> {
    let wanted = params.text("state").unwrap_or_default().to_owned();
    let state = State::parse(&wanted);
    if !wanted.is_empty() && state.is_none() {
        params.refuse("state", "must be open, acknowledged or resolved");
    }
    let cursor = params.text("cursor").map(ToOwned::to_owned);
    params.finish()?;
    let context = paging::context(visitor.caller(), "/ui/incidents", &wanted);
    let after = paging::open(&services.sealer, &context, cursor.as_deref())?;
    let (incidents, next) = services.incidents.page(state, PAGE, after).await?;
    let next = paging::seal(&services.sealer, &context, next.as_ref());
    let content = html! {
        ul.tabs {
            @for (name, label) in [("", "All"), ("open", "Open"), ("acknowledged", "Acknowledged"), ("resolved", "Resolved")] {
                li { a href=(parts::address("/ui/incidents", &[("state", name)])) aria-current=[(name == wanted).then_some("true")] { (label) } }
            }
        }
        @if incidents.is_empty() {
            (parts::empty("No incidents", html! { "Monitors watch dead letters, backlogs and delays; " code { "[[monitors]]" } " adds more." }))
        } @else {
            (table(&incidents))
            (parts::pager("/ui/incidents", &[("state", wanted.as_str())], cursor.as_deref(), next))
        }
    };
    Ok(layout::page(&visitor, "/ui/incidents", "Incidents", content).into_response())
}

fn link(incident: &Incident) -> String {
    format!("/ui/incidents/{}", encode(&incident.id))
}

/// Where to look: a line of the bus, unless it is about the time that everything takes.
fn entity(incident: &Incident) -> Markup {
    let dead = if incident.metric == "dead_letters" { "/$deadletterqueue" } else { "" };
    html! {
        @if incident.metric != "latency_p99_seconds" {
            a href=(parts::address("/ui/bus/peek", &[("path", &format!("{}{dead}", incident.entity))])) { (incident.entity) }
        } @else { (incident.entity) }
    }
}

fn table(incidents: &[Incident]) -> Markup {
    html! {
        table.cards {
            thead { tr { th { "Raised" } th { "Severity" } th { "State" } th { "Monitor" } th { "Of" } th { "Value" } th { "Escalated" } } }
            tbody { @for incident in incidents {
                tr {
                    td data-label="Raised" { a href=(link(incident)) { (time(incident.raised_at)) } }
                    td data-label="Severity" { (badge(severity_name(incident.severity))) }
                    td data-label="State" { (badge(incident.state.as_str())) }
                    td data-label="Monitor" { (incident.monitor) }
                    td data-label="Of" { (entity(incident)) }
                    td.number data-label="Value" { span { (incident.value) span.faint { " above " (incident.above) } } }
                    td.number data-label="Escalated" { (incident.escalations) }
                }
            } }
        }
    }
}

fn unknown() -> Problem {
    Problem::not_found("there is no incident of this id")
}

async fn show(
    Shared(services): Shared<Services>,
    visitor: Visitor,
    Path(id): Path<String>,
    params: Params,
) -> Result<Response, Problem> {
    let said = params.text("done").map(|_| "You take care of it; it escalates no more.");
    let incident = services.incidents.get(&id).await?.ok_or_else(unknown)?;
    let mut rows = vec![
        ("State", badge(incident.state.as_str())),
        ("Severity", badge(severity_name(incident.severity))),
        ("Raised", time(incident.raised_at)),
        ("Above since", time(incident.above_since)),
        ("What", html! { (incident.metric.replace('_', " ")) " of " (entity(&incident)) }),
        (
            "Value",
            html! { (incident.value) span.faint { " at most " (incident.peak) "; allowed are " (incident.above) } },
        ),
        ("Escalations", html! { (incident.escalations) }),
    ];
    let moments = [
        ("Escalates", incident.escalate_at),
        ("Acknowledged", incident.acknowledged_at),
        ("Resolved", incident.resolved_at),
    ];
    rows.extend(moments.into_iter().filter_map(|(name, at)| Some((name, time(at?)))));
    if let Some(by) = &incident.acknowledged_by {
        rows.push(("By", html! { (by) }));
    }
    if let Some(note) = &incident.note {
        rows.push(("Note", html! { (note) }));
    }
    let content = html! {
        (parts::notice(said))
        (facts(&rows))
        @if incident.state == State::Open && visitor.operates() {
            form.editor method="post" action=(format!("{}/acknowledge", link(&incident))) {
                (form_token(&visitor))
                label { span { "Note " span.faint { "may be left out" } } input name="note" maxlength="1000" autocomplete="off"; }
                div.actions { button type="submit" { "Acknowledge" } }
            }
        }
    };
    Ok(layout::page(&visitor, "/ui/incidents", &incident.monitor, content).into_response())
}

async fn acknowledge(
    Shared(services): Shared<Services>,
    visitor: Visitor,
    correlation: CorrelationId,
    Path(id): Path<String>,
    form: Form,
) -> Result<Response, Problem> {
    let note = form.text("note").trim();
    if note.chars().count() > NOTE_CHARS {
        return Err(Problem::invalid_field("note", format!("must be a text of at most {NOTE_CHARS} characters")));
    }
    let note = (!note.is_empty()).then(|| note.to_owned());
    let who = visitor.caller().name();
    match services.incidents.acknowledge(&services.audit, &id, (&who, &correlation.0), note).await? {
        Acknowledged::Yes(incident) => Ok(see_other(&format!("{}?done=acknowledged", link(&incident)))),
        Acknowledged::Unknown => Err(unknown()),
        Acknowledged::Over(_) => Err(Problem::conflict("the incident is resolved already; nothing needs to be done")),
    }
}
