//! The form that makes or changes a schedule.

use maud::{Markup, html};
use serde_json::{Map, Value, json};
use tidings_core::envelope::FieldError;

use super::door::{Form, Visitor};
use super::parts::{self, choice, form_token};
use crate::app::Services;
use crate::schedules::{Schedule, missed_name};

/// The form as it was sent.
#[derive(Default)]
pub struct Draft {
    pub name: String,
    pub enabled: bool,
    kind: String,
    when: String,
    timezone: String,
    message_type: String,
    missed: String,
    payload: String,
}

impl Draft {
    pub fn first() -> Self {
        Self {
            enabled: true,
            kind: "cron".to_owned(),
            when: "0 9 * * 1-5".to_owned(),
            timezone: "UTC".to_owned(),
            message_type: "reminder".to_owned(),
            missed: "once".to_owned(),
            payload: "{\n  \"text\": \"Look at the dead letters\"\n}".to_owned(),
            ..Self::default()
        }
    }

    pub fn of(schedule: &Schedule) -> Self {
        let definition = &schedule.definition;
        let (kind, when) = match (&definition.cron, &definition.every, &definition.at) {
            (Some(cron), ..) => ("cron", cron.clone()),
            (_, Some(every), _) => ("every", every.clone()),
            (.., at) => ("at", at.clone().unwrap_or_default()),
        };
        Self {
            name: schedule.name.clone(),
            enabled: definition.enabled,
            kind: kind.to_owned(),
            when,
            timezone: definition.timezone.clone(),
            message_type: definition.message_type.clone(),
            missed: missed_name(definition.missed).to_owned(),
            payload: parts::pretty(&Value::Object(definition.payload.clone())),
        }
    }

    pub fn from(form: &Form) -> Self {
        let text = |name: &str| form.text(name).trim().replace("\r\n", "\n");
        Self {
            name: text("name"),
            enabled: form.is_set("enabled"),
            kind: text("kind"),
            when: text("when"),
            timezone: text("timezone"),
            message_type: text("message_type"),
            missed: text("missed"),
            payload: text("payload"),
        }
    }

    /// The schedule as the API would be sent it.
    pub fn fields(&self) -> Result<Map<String, Value>, Vec<FieldError>> {
        let payload =
            tidings_core::json::parse::<Value>(&self.payload).map_err(|bad| vec![FieldError::new("payload", bad.0)])?;
        let kind = ["cron", "every", "at"].into_iter().find(|kind| *kind == self.kind).unwrap_or("cron");
        let mut fields = json!({
            kind: self.when, "message_type": self.message_type, "payload": payload, "enabled": self.enabled,
        });
        // What was left empty is what is usual.
        let timezone = Some(&self.timezone).filter(|_| kind == "cron");
        for (name, value) in [("timezone", timezone), ("missed", Some(&self.missed))] {
            if let (Some(fields), Some(value)) = (fields.as_object_mut(), value.filter(|value| !value.is_empty())) {
                fields.insert(name.to_owned(), value.as_str().into());
            }
        }
        Ok(fields.as_object().cloned().unwrap_or_default())
    }
}

const KINDS: [(&str, &str); 3] = [("cron", "cron: a calendar"), ("every", "every: an interval"), ("at", "at: once")];
const MISSED: [(&str, &str); 3] =
    [("once", "once: one for all of them"), ("skip", "skip: none"), ("all", "all: each of them")];

pub fn editor(
    services: &Services,
    visitor: &Visitor,
    action: &str,
    draft: &Draft,
    is_new: bool,
    wrong: &[FieldError],
) -> Markup {
    let types: Vec<_> = services.messages.types.list().map(|(name, _)| (name, name)).collect();
    html! {
        form.editor method="post" action=(action) {
            (form_token(visitor))
            (parts::wrong("Not saved:", wrong))
            @if is_new { label { span { "Name" } input name="name" value=(draft.name) required autocomplete="off"; } }
            label.check { input type="checkbox" name="enabled" checked[draft.enabled]; span { "Enabled" } }
            div.columns.three {
                (choice("kind", "Kind", &draft.kind, &KINDS))
                label { span { "When" } input name="when" value=(draft.when) required autocomplete="off" spellcheck="false"
                    placeholder="0 9 * * 1-5, 15m, or 2027-01-31T12:00:00Z"; }
                label { span { "Time zone " span.faint { "for cron" } } input name="timezone" value=(draft.timezone) autocomplete="off"; }
            }
            div.columns {
                (choice("message_type", "Makes a message of type", &draft.message_type, &types))
                (choice("missed", "Runs that were missed", &draft.missed, &MISSED))
            }
            label for="payload" { "Payload" }
            textarea.code id="payload" name="payload" rows="6" spellcheck="false" { (draft.payload) }
            div.actions { button type="submit" { (if is_new { "Make the schedule" } else { "Save" }) } }
        }
    }
}
