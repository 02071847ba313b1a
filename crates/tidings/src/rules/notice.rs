//! What a rule says of an event, and to whom: templates filled in, addresses checked. Reads nothing but its arguments.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use tidings_core::envelope::{Envelope, check_name};
use tidings_core::time::Timestamp;
use tidings_store::{Item, Write};
use uuid::Uuid;

use super::limits::{ADDRESS_BYTES, MAIL_ADDRESSES, TITLE_CHARS, URL_CHARS, USER_CHARS};
use super::read::is_callable;
use super::rule::{Recipients, Rule, Target};
use super::template::{Fields, Template};
use crate::config::{Config, values};
use crate::inbox::record::{self as inbox, About, Entry, Kind, MAP};
use crate::messages::record::{ALERT_NOTIFICATION, Message, NewMessage};
use crate::tickets::callers::Callers;

const DAY_SECONDS: i64 = 86_400;
/// Fields of an event that a text of our own shows, and characters of each.
const SHOWN_FIELDS: usize = 20;
const SHOWN_CHARS: usize = 500;

/// What of the configuration shows in notices.
#[derive(Debug, Clone)]
pub struct Settings {
    pub stage: String,
    pub ntfy_topic: String,
    pub messages_seconds: i64,
    pub notifications_seconds: i64,
    /// What inbox entries link to, unless their rule says it (S001-109).
    pub link: Option<Template>,
    /// Makes hashes of phone numbers that tickets are for, before they are stored (S004-37).
    pub callers: Option<Arc<Callers>>,
}

impl Settings {
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let days = |days: u64| i64::try_from(days).unwrap_or(i64::MAX).saturating_mul(DAY_SECONDS);
        Self {
            stage: config.stage.as_str().to_owned(),
            ntfy_topic: config.ntfy.topic.clone(),
            messages_seconds: days(config.retention.messages_days),
            notifications_seconds: days(config.retention.notifications_days),
            // The configuration was checked; a template that is none gives no links.
            link: config.notification_center.link.as_deref().and_then(|link| Template::parse(link).ok()),
            callers: None,
        }
    }

    #[must_use]
    pub fn with_callers(self, callers: Arc<Callers>) -> Self {
        Self { callers: Some(callers), ..self }
    }
}

/// An event as rules see it.
pub struct Occurrence<'a> {
    pub envelope: &'a Envelope,
    pub fields: Fields,
    pub data: Value,
    pub received_at: Timestamp,
    /// The moment that inbox entries are named for.
    pub place: Timestamp,
    pub settings: &'a Settings,
}

impl<'a> Occurrence<'a> {
    #[must_use]
    pub fn new(envelope: &'a Envelope, json: &str, received_at: Timestamp, settings: &'a Settings) -> Self {
        let data = serde_json::from_str(&envelope.data).unwrap_or_default();
        Self { envelope, fields: Fields::of(json), data, received_at, place: received_at, settings }
    }

    /// Names inbox entries for another moment.
    #[must_use]
    pub fn at(self, place: Timestamp) -> Self {
        Self { place, ..self }
    }

    fn text_of(&self, names: &[&str]) -> Option<String> {
        names.iter().find_map(|name| self.data.get(name)?.as_str()).map(ToOwned::to_owned)
    }
}

/// One rule's notice of one event.
pub struct Notice {
    pub title: String,
    pub text: String,
    /// What inbox entries have of it besides.
    kind: Kind,
    about: About,
    time: String,
    /// What was wrong with the templates; the default stands in for what they would have said.
    pub errors: Vec<String>,
}

/// Where one target leads for one event.
pub enum Destination {
    Message(Box<Message>),
    Users(BTreeSet<String>),
    /// Whom the map names for a product.
    Product {
        product: String,
        groups: Vec<String>,
    },
    Nobody,
}

impl Notice {
    #[must_use]
    pub fn of(rule: &Rule, event: &Occurrence<'_>) -> Self {
        let mut errors = Vec::new();
        let mut filled = |name: &str, template: &Template, default: &dyn Fn(&Occurrence<'_>) -> String| {
            let text = template.text(&event.fields).unwrap_or_else(|why| {
                errors.push(format!("{name}: {why}"));
                String::new()
            });
            if text.trim().is_empty() { default(event) } else { text }
        };
        let title = filled("title", &rule.title, &default_title);
        let text = filled("text", &rule.text, &default_text);
        let title = title.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(TITLE_CHARS).collect();
        let (kind, mut about) = about(event);
        let link = rule.link.as_ref().or(event.settings.link.as_ref());
        about.link = link.and_then(|link| link_of(link, kind, &about, event));
        let time = inbox::time_of(event.place, &event.envelope.event_id, event.envelope.source.as_deref());
        Self { title, text, kind, about, time, errors }
    }

    /// Where the rule's target number `number` leads. Whom the event names there and nobody can tell is added to
    /// `errors`, so that nobody is left out without a word.
    #[must_use]
    pub fn destination(
        &self,
        rule: &Rule,
        number: usize,
        event: &Occurrence<'_>,
        errors: &mut Vec<String>,
    ) -> Destination {
        let fields = &event.fields;
        let object = |value: Value| value.as_object().cloned().unwrap_or_default();
        let (target, secret) = match rule.targets.get(number) {
            None => return Destination::Nobody,
            Some(Target::Inbox(Recipients::Users(users))) => {
                let field = format!("targets[{number}].users");
                let users = named(&field, "users", users, fields, is_user, errors);
                return if users.is_empty() { Destination::Nobody } else { Destination::Users(users) };
            }
            Some(Target::Inbox(Recipients::Map { product, groups })) => {
                return match product.line(fields) {
                    Ok(product) if check_name(&product, USER_CHARS).is_ok() => {
                        Destination::Product { product, groups: groups.clone() }
                    }
                    _ => Destination::Nobody,
                };
            }
            Some(Target::Email { to }) => {
                let to = addresses(&format!("targets[{number}].to"), to, fields, errors);
                (if to.is_empty() { None } else { Some(object(json!({ "to": to }))) }, None)
            }
            Some(Target::Ntfy { topic }) => {
                let topic = topic.as_ref().map_or(Ok(event.settings.ntfy_topic.clone()), |topic| topic.line(fields));
                let topic = topic.ok().filter(|topic| values::topic(topic).is_ok());
                (topic.map(|topic| object(json!({ "topic": topic }))), None)
            }
            Some(Target::Webhook { url, secret }) => {
                let url = url.url(fields).ok().filter(|url| is_callable(url));
                (url.map(|url| object(json!({ "url": url }))), secret.clone())
            }
            Some(Target::Queue { entity }) => (Some(object(json!({ "entity": entity }))), None),
            Some(Target::Ticket { caller }) => {
                let caller = caller.line(fields).ok().filter(|caller| check_name(caller, USER_CHARS).is_ok());
                let hashed =
                    |text: String| event.settings.callers.as_ref().map_or(Some(text.clone()), |c| c.id(&text).ok());
                let mut target = caller.and_then(hashed).map(|caller| object(json!({ "caller": caller })));
                // What belongs to one ticket: without a key of the rule's own, what has the same title (S004-45).
                let key = rule.dedupe_key.as_ref().and_then(|key| key.line(fields).ok());
                if let (Some(target), Some(key)) = (&mut target, key) {
                    let key: String = key.chars().take(TITLE_CHARS).collect();
                    let key = hashed(key.clone()).unwrap_or(key);
                    target.insert("dedup_key".to_owned(), key.into());
                }
                (target, None)
            }
        };
        let Some(target) = target else { return Destination::Nobody };
        let channel = rule.targets.get(number).map_or("", Target::channel);
        let settings = event.settings;
        let new = NewMessage {
            message_id: message_id(event, &rule.name, number),
            created_by: format!("rule:{}", rule.name),
            stage: &settings.stage,
            message_type: ALERT_NOTIFICATION,
            payload: self.payload(rule, channel, event),
            correlation_id: &event.envelope.correlation_id,
            channel,
            target,
            secret,
            event_id: Some(&event.envelope.event_id),
            rule: Some(&rule.name),
            deliver_at: None,
            keep_seconds: settings.messages_seconds,
        };
        let trace_id = event.envelope.trace_id();
        Destination::Message(Box::new(Message { trace_id, ..Message::new(new, event.received_at) }))
    }

    fn payload(&self, rule: &Rule, channel: &str, event: &Occurrence<'_>) -> Map<String, Value> {
        let mut payload = Map::new();
        payload.insert("title".to_owned(), self.title.clone().into());
        payload.insert("text".to_owned(), self.text.clone().into());
        payload.insert("event_type".to_owned(), event.envelope.event_type.clone().into());
        if let Some(severity) = event.text_of(&["severity"]).filter(|text| check_name(text, 64).is_ok()) {
            // What is critical does not wait for the end of quiet hours.
            payload.insert("severity".to_owned(), severity.into());
        }
        if channel == "email" && rule.text.has_markup() {
            // Only a template of the user's own can have markup; any other text is made HTML, line by line, by who sends it.
            if let Ok(html) = rule.text.html(&event.fields) {
                payload.insert("html".to_owned(), html.into());
            }
        }
        payload
    }

    /// The inbox entry of one user.
    #[must_use]
    pub fn entry(&self, rule: &Rule, user: &str, event: &Occurrence<'_>) -> Entry {
        let envelope = event.envelope;
        Entry {
            user: user.to_owned(),
            time: self.time.clone(),
            kind: self.kind,
            status: inbox::Status::Unread,
            title: self.title.clone(),
            text: self.text.clone(),
            about: self.about.clone(),
            event_id: envelope.event_id.clone(),
            rule: rule.name.clone(),
            correlation_id: envelope.correlation_id.clone(),
            created_at: event.received_at,
            read_at: None,
            ttl: inbox::expiry(event.received_at, event.settings.notifications_seconds),
        }
    }
}

/// The names that templates give, each once; how many of them can be none is added to `errors`.
fn named(
    field: &str,
    what: &str,
    templates: &[Template],
    fields: &Fields,
    is_one: impl Fn(&str) -> bool,
    errors: &mut Vec<String>,
) -> BTreeSet<String> {
    let (mut good, mut bad) = (BTreeSet::new(), 0_usize);
    for template in templates {
        let names = template.names(fields).unwrap_or_else(|why| {
            errors.push(format!("{field}: {why}"));
            Vec::new()
        });
        for name in names {
            if is_one(&name) {
                good.insert(name);
            } else {
                bad += 1;
            }
        }
    }
    if bad > 0 {
        errors.push(format!("{field}: {bad} of {} are no {what}", good.len() + bad));
    }
    good
}

/// The addresses that templates give; of more than a mail can have, the first.
fn addresses(field: &str, templates: &[Template], fields: &Fields, errors: &mut Vec<String>) -> Vec<String> {
    let mut to = Vec::from_iter(named(field, "addresses", templates, fields, is_address, errors));
    if to.len() > MAIL_ADDRESSES {
        errors.push(format!("{field}: of {} addresses the first {MAIL_ADDRESSES} get a mail", to.len()));
        to.truncate(MAIL_ADDRESSES);
    }
    to
}

/// Whether a mail can go there: what stands before an address must not be longer than all the rest.
fn is_address(text: &str) -> bool {
    text.len() <= ADDRESS_BYTES && values::is_mailbox(text)
}

/// Whether a name can have an inbox.
#[must_use]
pub fn is_user(name: &str) -> bool {
    check_name(name, USER_CHARS).is_ok() && name != MAP
}

/// The same for the same event, rule and target, however often it is made. An event of the same id that comes after the
/// window for duplicates is another event, so the time it was received is part of it.
fn message_id(event: &Occurrence<'_>, rule: &str, target: usize) -> Uuid {
    let envelope = event.envelope;
    let source = envelope.source.as_deref().unwrap_or_default();
    let received = event.received_at.as_microsecond();
    let name = format!("message\n{source}\n{}\n{received}\n{rule}\n{target}", envelope.event_id);
    Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes())
}

fn default_title(event: &Occurrence<'_>) -> String {
    event.envelope.subject.clone().unwrap_or_else(|| event.envelope.event_type.clone())
}

/// What the event says of itself in words, else its fields, lists and objects as JSON, else that it happened.
fn default_text(event: &Occurrence<'_>) -> String {
    if let Some(text) = event.text_of(&["message", "text", "description"]).filter(|text| !text.trim().is_empty()) {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        return text.chars().filter(|c| !c.is_control() || *c == '\n').take(4096).collect();
    }
    let fields = event.data.as_object().into_iter().flatten();
    let lines = fields.filter_map(|(name, value)| {
        let value: String = match value {
            Value::String(text) => text.chars().filter(|c| !c.is_control()).collect(),
            Value::Null => return None,
            Value::Array(list) if list.is_empty() => return None,
            Value::Object(fields) if fields.is_empty() => return None,
            _ => value.to_string(),
        };
        let (name, value) = (short(name, SHOWN_CHARS), short(&value, SHOWN_CHARS));
        Some(format!("{name}: {value}"))
    });
    let lines: Vec<String> = lines.take(SHOWN_FIELDS).collect();
    match lines.is_empty() {
        true => format!("{} at {}", event.envelope.event_type, event.envelope.event_timestamp),
        false => lines.join("\n"),
    }
}

/// The beginning of a text, and a sign that there is more of it.
fn short(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// What the seed's two kinds of notification record, where the event says it (S001-60 to S001-65).
fn about(event: &Occurrence<'_>) -> (Kind, About) {
    let value = |name: &str| event.data.get(name).filter(|value| value.is_number() || value.is_string()).cloned();
    let about = About {
        product_id: event.text_of(&["product_id", "productid", "productId"]),
        question: event.text_of(&["question", "question_id", "questionid"]),
        env: event.text_of(&["env"]),
        compliance: event.data.get("compliance").and_then(Value::as_bool),
        pillar_information: event.text_of(&["pillar_information", "pillar"]),
        old_score: value("old_score"),
        new_score: value("new_score"),
        stream_event: event.text_of(&["stream_event"]),
        link: None,
    };
    let kind = event.text_of(&["event_type", "kind"]).and_then(|kind| Kind::parse(&kind)).unwrap_or(Kind::Notice);
    (kind, about)
}

/// Where to read more, by the rule's or the configured template over the entry's fields; what it fills in is
/// percent-encoded. An entry that lacks one of them has no link.
fn link_of(link: &Template, kind: Kind, about: &About, event: &Occurrence<'_>) -> Option<String> {
    let shown = if kind == Kind::Question { "compliance" } else { kind.as_str() };
    let fields = json!({
        "productid": about.product_id, "question": about.question, "env": about.env, "type": shown,
        "event_type": kind.as_str(), "old_score": about.old_score, "new_score": about.new_score,
        "pillar": about.pillar_information, "data": event.data, "eventType": event.envelope.event_type,
        "eventId": event.envelope.event_id, "subject": event.envelope.subject, "source": event.envelope.source,
        "correlationId": event.envelope.correlation_id,
    });
    link.link(&Fields::of(&fields.to_string())).filter(|url| url.chars().count() <= URL_CHARS)
}

/// Bytes that a write adds to its transaction.
#[must_use]
pub fn bytes(write: &Write) -> usize {
    match write {
        Write::Put { item, .. } => Item::size(item),
        Write::Packed { item, .. } => item.size(),
        _ => 64,
    }
}
