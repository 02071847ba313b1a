//! The mail about a change: a message over the e-mail channel, with all fields of the event and a link to it.

use std::fmt::Write as _;

use serde_json::{Map, Value as Json, json};
use tidings_core::time::Timestamp;
use tidings_store::{Item, Value};
use uuid::Uuid;

use super::limits::MAILED_RAW_CHARS;
use super::record::ATTRIBUTES;
use crate::channel::email::escape;
use crate::messages::record::ALERT_NOTIFICATION;
use crate::messages::{Message, NewMessage};

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
        let text = |name: &str| record.str(name).unwrap_or_default();
        let (partition, sort) = (text("PartitionKey"), text("SortKey"));
        let link = self.link(text("CorrelationId"));
        let title = title(record);
        let mut payload = Map::new();
        payload.insert("text".to_owned(), plain(record, &title, &link).into());
        payload.insert("html".to_owned(), html(record, &title, &link).into());
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
            correlation_id: text("CorrelationId"),
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
    fn link(&self, correlation_id: &str) -> String {
        let id: String = form_urlencoded::byte_serialize(correlation_id.as_bytes()).collect();
        format!("{}/ui/trace/{}", self.public_url.trim_end_matches('/'), id.replace('+', "%20"))
    }
}

fn title(record: &Item) -> String {
    let text = |name: &str| record.str(name).unwrap_or_default();
    let mut title = format!("Process change: {} by {}", text("Action"), text("ActorDisplayName"));
    if let Some(process) = record.str("ProcessName") {
        let _ = write!(title, " in {process}");
    }
    title
}

/// Every attribute that has a value, in the seed's order, as people read them. What the mail itself changes is left out.
fn rows(record: &Item) -> impl Iterator<Item = (&'static str, String)> + '_ {
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
