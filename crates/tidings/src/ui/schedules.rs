//! Schedules: what comes by the clock, when next, and what became of the last runs.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use maud::{Markup, html};
use serde_json::Value;
use tidings_core::envelope::FieldError;
use tidings_core::time::Timestamp;

use super::door::{Form, Page, Visitor, see_other};
use super::forms::{self, Saved, again};
use super::layout;
use super::parts::{self, asked_for, badge, confirm, encode, facts, message_link, page_of, time};
use super::schedule_form::{Draft, editor};
use crate::app::Services;
use crate::http::{CorrelationId, Params, Problem};
use crate::schedules::http::{find, remove, write};
use crate::schedules::{Origin, Outcome, Run, Schedule, missed_name};
use crate::tokens::Scope;

const NEXT_RUNS: usize = 5;
const NEW: &str = "/ui/schedules/new";

pub fn pages() -> Vec<Page> {
    vec![
        Page::new("/ui/schedules", &[Scope::Read], get(list)),
        Page::new(NEW, &[Scope::Operate], get(new).post(make)),
        Page::new("/ui/schedules/{name}", &[Scope::Read], get(show)).params(&["done"]),
        Page::new("/ui/by-id/schedules", &[Scope::Read], get(show)).params(&["id"]),
        Page::new("/ui/schedules/{name}/edit", &[Scope::Operate], post(edit)),
        Page::new("/ui/schedules/{name}/switch", &[Scope::Operate], post(switch)),
        Page::new("/ui/schedules/{name}/delete", &[Scope::Operate], post(delete)),
    ]
}

fn link(name: &str) -> Markup {
    html! { a href=(page_of("schedules", name)) { (name) } }
}

fn timing(schedule: &Schedule) -> String {
    let definition = &schedule.definition;
    match (&definition.cron, &definition.every, &definition.at) {
        (Some(cron), ..) => format!("{cron} ({})", definition.timezone),
        (_, Some(every), _) => format!("every {every}"),
        (.., Some(at)) => format!("at {at}"),
        _ => String::new(),
    }
}

fn upcoming(schedule: &Schedule, now: Timestamp) -> Vec<Timestamp> {
    let timing = schedule.timing().ok().filter(|_| schedule.definition.enabled);
    timing.map(|timing| timing.upcoming(now, NEXT_RUNS)).unwrap_or_default()
}

async fn list(State(services): State<Services>, visitor: Visitor) -> Result<Response, Problem> {
    let now = services.clock.now();
    let schedules = services.schedules.list().await?;
    let beside = html! { @if visitor.operates() { a.button href="/ui/schedules/new" { "New schedule" } } };
    let content = html! {
        @if schedules.is_empty() {
            (parts::empty("No schedules yet", html! { "A schedule makes a message by the clock: every morning, every five minutes, once. "
                @if visitor.operates() { a href="/ui/schedules/new" { "Make the first one" } "." } }))
        } @else {
            table.cards {
                thead { tr { th { "Name" } th { "State" } th { "When" } th { "Next run" } th { "Makes" } th { "From" } } }
                tbody { @for schedule in &schedules {
                    tr {
                        td data-label="Name" { (link(&schedule.name)) }
                        td data-label="State" { (badge(if schedule.definition.enabled { "enabled" } else { "off" })) }
                        td data-label="When" { code { (timing(schedule)) } }
                        td data-label="Next run" { @match upcoming(schedule, now).first() { Some(at) => { (time(*at)) } None => { span.faint { "never" } } } }
                        td data-label="Makes" { (schedule.definition.message_type) }
                        td data-label="From" { (schedule.origin.as_str()) }
                    }
                } }
            }
        }
    };
    Ok(layout::page_with(&visitor, "/ui/schedules", "Schedules", beside, content).into_response())
}

async fn show(
    State(services): State<Services>,
    visitor: Visitor,
    path: Option<Path<String>>,
    params: Params,
) -> Result<Response, Problem> {
    let name = asked_for(path, &params);
    let done = match params.text("done") {
        Some("made") => Some("The schedule is made, and runs from now on."),
        Some(_) => Some("The schedule is changed, from now on."),
        None => None,
    };
    let schedule = find(&services, &name).await?.ok_or_else(not_found)?;
    let runs = services.schedules.runs(&name).await?;
    let next = upcoming(&schedule, services.clock.now());
    let definition = &schedule.definition;
    let path = format!("/ui/schedules/{}", encode(&name));
    let short = parts::is_editable(&parts::pretty(&Value::Object(definition.payload.clone())));
    let editable = visitor.operates() && schedule.origin == Origin::Api && short;
    let content = html! {
        (parts::notice(done))
        @if visitor.operates() && schedule.origin == Origin::File {
            p.faint { "This schedule is in the configuration file; change it there and reload." }
        }
        (facts(&[
            ("State", badge(if definition.enabled { "enabled" } else { "off" })),
            ("When", html! { code { (timing(&schedule)) } }),
            ("Makes", html! { (definition.message_type) }),
            ("Missed runs", html! { (missed_name(definition.missed)) }),
            ("Changed", html! { (time(schedule.updated_at)) span.faint { " by " (schedule.updated_by) } }),
        ]))
        @if editable {
            div.actions {
                (parts::act(&visitor, &format!("{path}/switch"), if definition.enabled { "Switch off" } else { "Switch on" }))
                (confirm(&visitor, &format!("{path}/delete"), "Delete", "No message will come of it any more. This cannot be undone."))
            }
        }
        div.columns {
            section aria-labelledby="next" { h2 id="next" { "Next runs" }
                @if next.is_empty() { p.faint { "None." } } @else { ol.plain { @for at in &next { li { (time(*at)) } } } }
                @if !editable { h2 { "Payload" } (parts::json(&Value::Object(definition.payload.clone()))) }
            }
            section aria-labelledby="runs" { h2 id="runs" { "Last runs" } (run_list(&runs)) }
        }
        @if editable {
            section aria-labelledby="change" { h2 id="change" { "Change it" }
                (editor(&services, &visitor, &format!("{path}/edit"), &Draft::of(&schedule), false, &[])) }
        }
    };
    Ok(layout::page(&visitor, "/ui/schedules", &name, content).into_response())
}

fn run_list(runs: &[Run]) -> Markup {
    html! {
        @if runs.is_empty() { p.faint { "None yet." } } @else {
            table.cards {
                thead { tr { th { "Due" } th { "Outcome" } th { "Message" } } }
                tbody { @for run in runs {
                    tr {
                        td data-label="Due" { (time(run.at)) @if run.late { " " (badge("late")) } }
                        @match &run.outcome {
                            Outcome::Fired { message_id } => { td data-label="Outcome" { (badge("fired")) } td data-label="Message" { (message_link(message_id)) } }
                            Outcome::Skipped => { td data-label="Outcome" { (badge("skipped")) } td data-label="Message" { "–" } }
                            Outcome::Failed { error } => { td data-label="Outcome" { (badge("failed")) } td data-label="Message" { span.error { (error) } } }
                        }
                    }
                } }
            }
        }
    }
}

async fn new(State(services): State<Services>, visitor: Visitor) -> Response {
    let form = editor(&services, &visitor, NEW, &Draft::first(), true, &[]);
    layout::page(&visitor, "/ui/schedules", "New schedule", form).into_response()
}

async fn make(
    State(services): State<Services>,
    visitor: Visitor,
    correlation: CorrelationId,
    form: Form,
) -> Result<Response, Problem> {
    let draft = Draft::from(&form);
    let wrong = if find(&services, &draft.name).await?.is_some() {
        vec![FieldError::new("name", "is taken; choose another, or edit that schedule")]
    } else {
        match save(&services, &visitor, &correlation, &draft).await? {
            Ok(()) => return Ok(see_other(&format!("/ui/schedules/{}?done=made", encode(&draft.name)))),
            Err(wrong) => wrong,
        }
    };
    let form = editor(&services, &visitor, NEW, &draft, true, &wrong);
    Ok(again(&visitor, "/ui/schedules", "New schedule", form))
}

/// Stores a draft, or says what is wrong with it.
async fn save(
    services: &Services,
    visitor: &Visitor,
    correlation: &CorrelationId,
    draft: &Draft,
) -> Result<Saved<()>, Problem> {
    let write = async |fields: &_| write(services, visitor.caller(), correlation, &draft.name, fields).await.map(drop);
    forms::save(draft.fields(), write).await
}

async fn edit(
    State(services): State<Services>,
    visitor: Visitor,
    correlation: CorrelationId,
    Path(name): Path<String>,
    form: Form,
) -> Result<Response, Problem> {
    find(&services, &name).await?.ok_or_else(not_found)?;
    let mut draft = Draft::from(&form);
    draft.name.clone_from(&name);
    let path = format!("/ui/schedules/{}", encode(&name));
    match save(&services, &visitor, &correlation, &draft).await? {
        Ok(()) => Ok(see_other(&format!("{path}?done=saved"))),
        Err(wrong) => {
            let form = editor(&services, &visitor, &format!("{path}/edit"), &draft, false, &wrong);
            Ok(again(&visitor, "/ui/schedules", &name, form))
        }
    }
}

async fn switch(
    State(services): State<Services>,
    visitor: Visitor,
    correlation: CorrelationId,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let mut draft = Draft::of(&find(&services, &name).await?.ok_or_else(not_found)?);
    draft.enabled = !draft.enabled;
    save(&services, &visitor, &correlation, &draft).await?.map_err(Problem::invalid)?;
    Ok(see_other(&format!("/ui/schedules/{}?done=saved", encode(&name))))
}

async fn delete(
    State(services): State<Services>,
    visitor: Visitor,
    correlation: CorrelationId,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    remove(&services, visitor.caller(), &correlation, &name).await?;
    Ok(see_other("/ui/schedules"))
}

fn not_found() -> Problem {
    Problem::not_found("there is no schedule of this name")
}
