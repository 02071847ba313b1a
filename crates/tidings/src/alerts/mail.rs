//! The mail about a change: a message over the e-mail channel, with all fields of the event and a link to it.

use std::fmt::Write as _;

use serde_json::{Map, Value as Json, json};
use tidings_core::time::Timestamp;
use tidings_store::{Item, Value};
use uuid::Uuid;

use super::limits::MAILED_RAW_CHARS;
use super::record::ATTRIBUTES;
use crate::channel::email::escape;
use crate::config::process_alerts::ProcessAlerts;
use crate::messages::record::ALERT_NOTIFICATION;
use crate::messages::{Message, NewMessage};
use crate::rules::template::{Fields, Template};

/// The field of a message's payload that leads back to the alert it is about.
pub const ABOUT: &str = "process_change";
pub const CREATED_BY: &str = "process-alerts";

/// What mails have in common.
#[derive(Debug, Clone)]
pub struct Letterhead {
    pub recipients: Vec<String>,
    pub public_url: String,
    pub stage: String,
    pub keep_seconds: i64,
    /// Of those that the configuration names, what it says.
    pub templates: Templates,
}

/// The mail in the operator's own words.
#[derive(Debug, Clone, Default)]
pub struct Templates {
    pub subject: Option<Template>,
    pub text: Option<Template>,
    pub html: Option<Template>,
}

impl Templates {
    #[must_use]
    pub fn of(settings: &ProcessAlerts) -> Self {
        // What was checked with the configuration can be parsed.
        let parse = |source: &Option<String>| source.as_deref().and_then(|source| Template::parse(source).ok());
        Self { subject: parse(&settings.subject), text: parse(&settings.text), html: parse(&settings.html) }
    }

    fn is_empty(&self) -> bool {
        self.subject.is_none() && self.text.is_none() && self.html.is_none()
    }
}

/// What a template makes of an alert; what fails is said in the log, and the mail says it as Tidings would.
fn filled(template: Option<&Template>, fill: impl Fn(&Template) -> Result<String, String>) -> Option<String> {
    match fill(template?) {
        Ok(text) if !text.trim().is_empty() => Some(text),
        Ok(_) => None,
        Err(error) => {
            tracing::warn!(error, "a template of [process_alerts] failed; the mail has its usual text");
            None
        }
    }
}

/// The id of the `number`th message about an alert, from 0: derived, so that whoever makes it makes the same one.
#[must_use]
pub fn message_id(partition: &str, sort: &str, number: u32) -> Uuid {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("process-alert/{partition}/{sort}/{number}").as_bytes())
}

impl Letterhead {
    /// The `number`th message about the alert in `record`, unless nobody is to be told.
    #[must_use]
    pub fn message(&self, record: &Item, event_id: Option<&str>, number: u32, now: Timestamp) -> Option<Message> {
        if self.recipients.is_empty() {
            return None;
        }
        let attribute = |name: &str| record.str(name).unwrap_or_default();
        let (partition, sort) = (attribute("PartitionKey"), attribute("SortKey"));
        let link = self.link(attribute("CorrelationId"));
        let own = &self.templates;
        let fields = if own.is_empty() { Fields::of("{}") } else { fields(record, &link) };
        let title = filled(own.subject.as_ref(), |subject| subject.line(&fields)).unwrap_or_else(|| title(record));
        let text = filled(own.text.as_ref(), |text| text.text(&fields));
        let html = filled(own.html.as_ref(), |html| html.html(&fields));
        let mut payload = Map::new();
        payload.insert("text".to_owned(), text.unwrap_or_else(|| plain(record, &title, &link)).into());
        payload.insert("html".to_owned(), html.unwrap_or_else(|| self::html(record, &title, &link)).into());
        payload.insert("title".to_owned(), title.into());
        payload.insert("click_url".to_owned(), link.into());
        let about = json!({ "PartitionKey": partition, "SortKey": sort, "TTL": record.int("TTL") });
        payload.insert(ABOUT.to_owned(), about);
        // Whoever gets a second copy sees that it is one.
        payload.insert("notice_id".to_owned(), message_id(partition, sort, 0).to_string().into());
        let target = Map::from_iter([("to".to_owned(), Json::from(self.recipients.clone()))]);
        let new = NewMessage {
            message_id: message_id(partition, sort, number),
            created_by: CREATED_BY.to_owned(),
            stage: &self.stage,
            message_type: ALERT_NOTIFICATION,
            payload,
            correlation_id: attribute("CorrelationId"),
            channel: "email",
            target,
            secret: None,
            event_id,
            rule: None,
            deliver_at: None,
            keep_seconds: self.keep_seconds,
        };
        Some(Message::new(new, now))
    }

    /// The event in the dashboard.
    pub(super) fn link(&self, correlation_id: &str) -> String {
        let id: String = form_urlencoded::byte_serialize(correlation_id.as_bytes()).collect();
        format!("{}/ui/trace/{}", self.public_url.trim_end_matches('/'), id.replace('+', "%20"))
    }
}

/// An alert as templates see it: its attributes by name, and where it is in the dashboard.
fn fields(record: &Item, link: &str) -> Fields {
    let value = |value: &Value| match value {
        Value::S(text) => Some(Json::from(text.as_str())),
        Value::N(number) => number.to_i64().map(Json::from),
        Value::Bool(flag) => Some(Json::from(*flag)),
        _ => None,
    };
    let known = ATTRIBUTES.into_iter().filter_map(|name| Some((name.to_owned(), value(record.get(name)?)?)));
    let all: Map<String, Json> = known.chain([("link".to_owned(), link.into())]).collect();
    Fields::of(&Json::Object(all).to_string())
}

pub(super) fn title(record: &Item) -> String {
    let text = |name: &str| record.str(name).unwrap_or_default();
    let mut title = format!("Process change: {} by {}", text("Action"), text("ActorDisplayName"));
    if let Some(process) = record.str("ProcessName") {
        let _ = write!(title, " in {process}");
    }
    title
}

/// Every attribute that has a value, in the seed's order, as people read them. What the mail itself changes is left out.
pub(super) fn rows(record: &Item) -> impl Iterator<Item = (&'static str, String)> + '_ {
    let told = |name: &&&str| !name.starts_with("Alert") && **name != "RetryCount" && **name != "RawEventJson";
    ATTRIBUTES.iter().filter(told).filter_map(|name| Some((*name, shown(name, record.get(name)?))))
}

fn shown(name: &str, value: &Value) -> String {
    let moment = |at: Option<Timestamp>| at.map(|at| format!(" ({at:.0})")).unwrap_or_default();
    match value {
        Value::S(text) => text.clone(),
        Value::N(number) => {
            let at = match name {
                "Timestamp" => number.to_i64().and_then(|at| Timestamp::from_millisecond(at).ok()),
                _ => number.to_i64().and_then(|at| Timestamp::from_second(at).ok()),
            };
            format!("{number}{}", moment(at))
        }
        Value::Bool(flag) => flag.to_string(),
        _ => String::new(),
    }
}

fn raw(record: &Item) -> String {
    let raw = record.str("RawEventJson").unwrap_or_default();
    match raw.char_indices().nth(MAILED_RAW_CHARS) {
        Some((end, _)) => format!("{}… (the dashboard has all of it)", raw.get(..end).unwrap_or_default()),
        None => raw.to_owned(),
    }
}

fn plain(record: &Item, title: &str, link: &str) -> String {
    let mut text = format!("{title}\n\n{}\n\n", record.str("Details").unwrap_or_default());
    for (name, value) in rows(record) {
        let _ = writeln!(text, "{name}: {value}");
    }
    let _ = write!(text, "\nSee what became of it: {link}\n\nRawEventJson: {}\n", raw(record));
    text
}

fn html(record: &Item, title: &str, link: &str) -> String {
    let mut html = format!("<!doctype html><html><body><h2>{}</h2>", escape(title));
    let _ = write!(html, "<p>{}</p><table>", escape(record.str("Details").unwrap_or_default()));
    for (name, value) in rows(record) {
        let _ = write!(html, "<tr><th align=\"left\">{name}</th><td>{}</td></tr>", escape(&value));
    }
    let link = escape(link);
    let _ = write!(html, "</table><p><a href=\"{link}\">See what became of it</a></p>");
    let _ = write!(html, "<h3>RawEventJson</h3><pre style=\"white-space:pre-wrap\">{}</pre>", escape(&raw(record)));
    html.push_str("</body></html>");
    html
}
