//! Schedules: what comes by the clock, when next, and what became of the last runs.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use maud::{Markup, html};
use serde_json::{Map, Value, json};
use tidings_core::envelope::FieldError;
use tidings_core::time::Timestamp;

use super::door::{Form, Page, Visitor, see_other};
use super::layout;
use super::parts::{self, badge, choice, confirm, encode, facts, form_token, message_link, time};
use crate::app::Services;
use crate::http::{CorrelationId, Params, Problem};
use crate::schedules::http::{find, remove, write};
use crate::schedules::{Origin, Outcome, Run, Schedule};
use crate::tokens::Scope;

const NEXT_RUNS: usize = 5;

pub fn pages() -> Vec<Page> {
    vec![
        Page::new("/ui/schedules", &[Scope::Read], get(list)),
        Page::new("/ui/schedules/new", &[Scope::Operate], get(new).post(make)),
        Page::new("/ui/schedules/{name}", &[Scope::Read], get(show)).params(&["done"]),
        Page::new("/ui/schedules/{name}/switch", &[Scope::Operate], post(switch)),
        Page::new("/ui/schedules/{name}/delete", &[Scope::Operate], post(delete)),
    ]
}

fn link(name: &str) -> Markup {
    html! { a href=(format!("/ui/schedules/{}", encode(name))) { (name) } }
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
    Path(name): Path<String>,
    params: Params,
) -> Result<Response, Problem> {
    let done = params.text("done").map(|_| "Saved.");
    let schedule =
        find(&services, &name).await?.ok_or_else(|| Problem::not_found("there is no schedule of this name"))?;
    let runs = services.schedules.runs(&name).await?;
    let next = upcoming(&schedule, services.clock.now());
    let definition = &schedule.definition;
    let path = format!("/ui/schedules/{}", encode(&name));
    let content = html! {
        (parts::notice(done))
        (facts(&[
            ("State", badge(if definition.enabled { "enabled" } else { "off" })),
            ("When", html! { code { (timing(&schedule)) } }),
            ("Makes", html! { (definition.message_type) }),
            ("Changed", html! { (time(schedule.updated_at)) span.faint { " by " (schedule.updated_by) } }),
        ]))
        @if visitor.operates() && schedule.origin == Origin::Api {
            div.actions {
                (parts::act(&visitor, &format!("{path}/switch"), if definition.enabled { "Switch off" } else { "Switch on" }))
                (confirm(&visitor, &format!("{path}/delete"), "Delete", "No message will come of it any more. This cannot be undone."))
            }
        }
        div.columns {
            section aria-labelledby="next" { h2 id="next" { "Next runs" }
                @if next.is_empty() { p.faint { "None." } } @else { ol.plain { @for at in &next { li { (time(*at)) } } } }
                h2 { "Payload" } (parts::json(&Value::Object(definition.payload.clone())))
            }
            section aria-labelledby="runs" { h2 id="runs" { "Last runs" } (run_list(&runs)) }
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

/// The form as it was sent.
#[derive(Default)]
struct Draft {
    name: String,
    kind: String,
    when: String,
    timezone: String,
    message_type: String,
    payload: String,
}

impl Draft {
    fn first() -> Self {
        Self {
            kind: "cron".to_owned(),
            when: "0 9 * * 1-5".to_owned(),
            timezone: "UTC".to_owned(),
            message_type: "reminder".to_owned(),
            payload: "{\n  \"text\": \"Look at the dead letters\"\n}".to_owned(),
            ..Self::default()
        }
    }

    fn from(form: &Form) -> Self {
        let text = |name: &str| form.text(name).trim().replace("\r\n", "\n");
        Self {
            name: text("name"),
            kind: text("kind"),
            when: text("when"),
            timezone: text("timezone"),
            message_type: text("message_type"),
            payload: text("payload"),
        }
    }

    fn fields(&self) -> Result<Map<String, Value>, Vec<FieldError>> {
        let payload =
            tidings_core::json::parse::<Value>(&self.payload).map_err(|bad| vec![FieldError::new("payload", bad.0)])?;
        let kind = ["cron", "every", "at"].into_iter().find(|kind| *kind == self.kind).unwrap_or("cron");
        let mut fields = json!({ kind: self.when, "message_type": self.message_type, "payload": payload });
        if let (Some(fields), "cron", false) = (fields.as_object_mut(), kind, self.timezone.is_empty()) {
            fields.insert("timezone".to_owned(), self.timezone.clone().into());
        }
        Ok(fields.as_object().cloned().unwrap_or_default())
    }
}

async fn new(State(services): State<Services>, visitor: Visitor) -> Response {
    layout::page(&visitor, "/ui/schedules", "New schedule", editor(&services, &visitor, &Draft::first(), &[]))
        .into_response()
}

async fn make(
    State(services): State<Services>,
    visitor: Visitor,
    correlation: CorrelationId,
    form: Form,
) -> Result<Response, Problem> {
    let draft = Draft::from(&form);
    let wrong = if services.schedules.get(&draft.name).await.ok().flatten().is_some() {
        vec![FieldError::new("name", "is taken; choose another")]
    } else {
        match draft.fields() {
            Err(wrong) => wrong,
            Ok(fields) => match write(&services, visitor.caller(), &correlation, &draft.name, &fields).await {
                Ok(_) => return Ok(see_other(&format!("/ui/schedules/{}?done=made", encode(&draft.name)))),
                Err(problem) if !problem.errors.is_empty() => problem.errors,
                Err(problem) => return Err(problem),
            },
        }
    };
    let page = layout::page(&visitor, "/ui/schedules", "New schedule", editor(&services, &visitor, &draft, &wrong));
    Ok((axum::http::StatusCode::BAD_REQUEST, page).into_response())
}

fn editor(services: &Services, visitor: &Visitor, draft: &Draft, wrong: &[FieldError]) -> Markup {
    let types: Vec<_> = services.messages.types.list().map(|(name, _)| (name, name)).collect();
    html! {
        form.editor method="post" action="/ui/schedules/new" {
            (form_token(visitor))
            @if !wrong.is_empty() {
                div.problem role="alert" { p { "Not saved:" }
                    ul { @for error in wrong { li { code { (error.field) } " " (error.message) } } } }
            }
            label { span { "Name" } input name="name" value=(draft.name) required autocomplete="off"; }
            div.columns {
                (choice("kind", "Kind", &draft.kind, &[("cron", "cron: a calendar"), ("every", "every: an interval"), ("at", "at: once")]))
                label { span { "When" } input name="when" value=(draft.when) required autocomplete="off" spellcheck="false"
                    placeholder="0 9 * * 1-5, 15m, or 2027-01-31T12:00:00Z"; }
                label { span { "Time zone " span.faint { "for cron" } } input name="timezone" value=(draft.timezone) autocomplete="off"; }
            }
            (choice("message_type", "Makes a message of type", &draft.message_type, &types))
            label for="payload" { "Payload" }
            textarea.code id="payload" name="payload" rows="6" spellcheck="false" { (draft.payload) }
            div.actions { button type="submit" { "Make the schedule" } }
        }
    }
}

async fn switch(
    State(services): State<Services>,
    visitor: Visitor,
    correlation: CorrelationId,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let schedule =
        find(&services, &name).await?.ok_or_else(|| Problem::not_found("there is no schedule of this name"))?;
    let definition = schedule.definition;
    let mut fields = Map::new();
    let given = [("cron", definition.cron), ("every", definition.every), ("at", definition.at)];
    for (key, value) in given.into_iter().filter_map(|(key, value)| Some((key, value?))) {
        fields.insert(key.to_owned(), value.into());
    }
    if fields.contains_key("cron") {
        fields.insert("timezone".to_owned(), definition.timezone.into());
    }
    fields.insert("message_type".to_owned(), definition.message_type.into());
    fields.insert("payload".to_owned(), Value::Object(definition.payload));
    fields.insert("missed".to_owned(), crate::schedules::missed_name(definition.missed).into());
    fields.insert("enabled".to_owned(), (!definition.enabled).into());
    write(&services, visitor.caller(), &correlation, &name, &fields).await?;
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
