//! What somebody publishes: from text, headers, query and JSON to one draft. Pure.

use serde::Deserialize;
use serde_json::{Map, Value as Json};

use super::actions::actions;
use super::params::{Params, list, switch};
use super::record::{Attachment, Content, is_topic};
use super::refusal::Refusal;
use crate::channel::Priority;
use crate::channel::ntfy::RESERVED;

/// ntfy's limit; it makes larger ones attachments, which we do not keep. S002-64
pub const MESSAGE_BYTES: usize = 4096;
/// ntfy reads twice the message limit of a JSON body.
pub const JSON_BYTES: usize = 2 * MESSAGE_BYTES;
/// What ntfy says for a message without a text.
const EMPTY: &str = "triggered";
/// The same for one that brings a file.
const FILE: &str = "You received a file: ";

/// A message that was read and found good.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    pub topic: String,
    pub content: Content,
    /// Kept for those who ask later, and not only passed on.
    pub keep: bool,
}

impl Draft {
    /// Gives every action an id: ntfy's apps know by it which one is under way. One that the publisher brings gives way.
    pub fn name_actions(&mut self, mut id: impl FnMut() -> String) {
        for action in self.content.actions.iter_mut().filter_map(Json::as_object_mut) {
            action.insert("id".to_owned(), Json::from(id()));
        }
    }
}

/// Reads a message whose text is the body.
pub fn from_text(topic: &str, params: &Params, body: &[u8]) -> Result<Draft, Refusal> {
    if body.len() > MESSAGE_BYTES {
        return Err(Refusal::message_too_large(MESSAGE_BYTES));
    }
    let text = std::str::from_utf8(body).map_err(|_| Refusal::not_utf8())?.trim();
    let text = if text.is_empty() {
        params.get(&["x-message", "message", "m"]).unwrap_or_default().replace("\\n", "\n")
    } else {
        text.to_owned()
    };
    draft(topic.to_owned(), text, params, Fields::default())
}

/// Reads a message that is JSON. Its fields win over headers and query, which may add to it (apprise does that).
pub fn from_json(params: &Params, body: &[u8]) -> Result<Draft, Refusal> {
    if body.len() > JSON_BYTES {
        return Err(Refusal::json_too_large(JSON_BYTES));
    }
    // What derives from serde would take a list for the fields in their order.
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(Refusal::json("it must be an object"));
    }
    let wrong = |error: serde_json::Error| Refusal::json(&error.to_string());
    let fields: Map<String, Json> = serde_json::from_slice(body).map_err(wrong)?;
    let fields = Json::Object(in_any_case(fields, &FIELDS));
    let mut fields: Fields = serde_json::from_value(fields).map_err(wrong)?;
    let topic = fields.topic.take().unwrap_or_default();
    let text = fields.message.take().unwrap_or_default().trim().to_owned();
    draft(topic, text, params, fields)
}

/// Checks a topic's name.
pub fn check_topic(topic: &str) -> Result<(), Refusal> {
    if !is_topic(topic) {
        return Err(Refusal::topic("it must be 1 to 64 letters, digits, _ or -"));
    }
    if RESERVED.contains(&topic) { Err(Refusal::reserved_topic()) } else { Ok(()) }
}

/// The fields by their names, however these are written: Go, which ntfy is written in, does not look at case. What is written
/// as it should be goes before what is not.
pub(super) fn in_any_case(fields: Map<String, Json>, names: &[&str]) -> Map<String, Json> {
    let is_exact = |name: &str| names.contains(&name);
    let (mut read, others): (Map<_, _>, Map<_, _>) = fields.into_iter().partition(|(name, _)| is_exact(name));
    for (name, value) in others {
        let known = names.iter().find(|known| known.eq_ignore_ascii_case(&name));
        read.entry(known.map_or(name, |known| (*known).to_owned())).or_insert(value);
    }
    read
}

/// The names of [`Fields`].
const FIELDS: [&str; 15] = [
    "topic", "message", "title", "priority", "tags", "click", "icon", "attach", "filename", "actions", "markdown",
    "delay", "email", "call", "cache",
];

#[derive(Default, Deserialize)]
#[serde(default)]
struct Fields {
    topic: Option<String>,
    message: Option<String>,
    title: Option<String>,
    /// A number: a name is an error, as it is for ntfy.
    priority: Option<i64>,
    tags: Option<Vec<String>>,
    click: Option<String>,
    icon: Option<String>,
    attach: Option<String>,
    filename: Option<String>,
    actions: Option<Vec<Json>>,
    markdown: Option<bool>,
    delay: Option<String>,
    email: Option<String>,
    call: Option<String>,
    cache: Option<String>,
}

fn draft(topic: String, text: String, params: &Params, fields: Fields) -> Result<Draft, Refusal> {
    check_topic(&topic)?;
    let pick = |field: Option<String>, names: &[&str]| {
        field.filter(|text| !text.is_empty()).or_else(|| params.get(names).map(ToOwned::to_owned)).unwrap_or_default()
    };
    if !pick(fields.delay, &["x-delay", "delay", "x-at", "at", "x-in", "in"]).is_empty() {
        return Err(Refusal::delayed());
    }
    let email = pick(fields.email, &["x-email", "x-e-mail", "email", "e-mail", "mail", "e"]);
    if !(email.is_empty() && pick(fields.call, &["x-call", "call"]).is_empty()) {
        return Err(Refusal::email());
    }
    if text.len() > MESSAGE_BYTES {
        return Err(Refusal::message_too_large(MESSAGE_BYTES));
    }
    let filename = pick(fields.filename, &["x-filename", "filename", "file", "f"]);
    let tags = fields.tags.filter(|tags| !tags.is_empty());
    let icon = pick(fields.icon, &["x-icon", "icon"]);
    if !icon.is_empty() && !is_web_url(&icon) {
        return Err(Refusal::icon());
    }
    let markdown = fields.markdown.unwrap_or(false)
        || params.flag(&["x-markdown", "markdown", "md"], false)
        || params.get(&["content-type"]).is_some_and(|kind| kind.to_ascii_lowercase().starts_with("text/markdown"));
    let cache = match fields.cache {
        Some(text) => switch(&text).unwrap_or(true),
        None => params.flag(&["x-cache", "cache"], true),
    };
    let attachment = attachment(pick(fields.attach, &["x-attach", "attach", "a"]), filename)?;
    let message = match &attachment {
        _ if !text.is_empty() => text,
        Some(attachment) => format!("{FILE}{}", attachment.name),
        None => EMPTY.to_owned(),
    };
    let content = Content {
        title: pick(fields.title, &["x-title", "title", "ti", "t"]),
        message,
        priority: priority(fields.priority, params.get(&["x-priority", "priority", "prio", "p"]))?,
        tags: match tags {
            Some(tags) => tags.iter().flat_map(|tags| list(tags)).collect(),
            None => params.list(&["x-tags", "tags", "tag", "ta"]),
        },
        click: pick(fields.click, &["x-click", "click"]),
        icon,
        actions: actions(fields.actions, params.get(&["x-actions", "actions", "action"]))?,
        attachment,
        content_type: if markdown { "text/markdown".to_owned() } else { String::new() },
    };
    Ok(Draft { topic, content, keep: cache })
}

/// S002-61: five names and five numbers, and `urgent`.
fn priority(number: Option<i64>, text: Option<&str>) -> Result<Option<u8>, Refusal> {
    let priority = match (number, text) {
        // ntfy's zero value: not given.
        (None | Some(0), None) => return Ok(None),
        (None | Some(0), Some(text)) => text.to_ascii_lowercase().parse::<Priority>(),
        (Some(number), _) => Priority::from_number(u64::try_from(number).unwrap_or(0)),
    };
    let priority = priority.map_err(|_| Refusal::priority())?;
    Ok((priority != Priority::Default).then(|| priority.number()))
}

fn attachment(url: String, name: String) -> Result<Option<Attachment>, Refusal> {
    if url.is_empty() {
        // A name without an address means that the body is a file.
        return if name.is_empty() { Ok(None) } else { Err(Refusal::attachments()) };
    }
    if !is_web_url(&url) {
        return Err(Refusal::attachment_url());
    }
    let name = if name.is_empty() { last_name(&url) } else { name };
    Ok(Some(Attachment { name, url }))
}

/// What a URL without a name for its file is called: the last name in its path, which may hide in what is percent-encoded.
fn last_name(url: &str) -> String {
    let place = url.split(['?', '#']).next().and_then(|place| place.split_once("://")).unwrap_or_default().1;
    let path = place.split_once('/').unwrap_or_default().1;
    let path = percent_encoding::percent_decode_str(path).decode_utf8_lossy();
    match path.trim_end_matches('/').rsplit('/').next() {
        None | Some("" | ".") => "attachment".to_owned(),
        Some(name) => name.to_owned(),
    }
}

fn is_web_url(text: &str) -> bool {
    crate::channel::is_page(text) && reqwest::Url::parse(text).is_ok()
}

#[cfg(test)]
#[path = "publish_tests.rs"]
mod tests;
