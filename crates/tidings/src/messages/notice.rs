//! From a stored message to what the channels see. All of it stays the same from attempt to attempt.

use std::borrow::Cow;

use serde_json::Value;
use uuid::Uuid;

use super::record::Message;
use crate::channel::{Notice, Priority, on_one_line};

/// Of one tag (S002-63).
const TAG_CHARS: usize = 64;

/// What a channel makes use of besides the text.
const SHOWN_ELSEWHERE: [&str; 6] = ["title", "html", "priority", "tags", "click_url", "topic"];

impl Message {
    /// What is to be sent. `public_url` is where people reach us.
    #[must_use]
    pub fn notice(&self, public_url: &str) -> Notice<'_> {
        let text = |name: &str| self.payload.get(name).and_then(Value::as_str).filter(|text| !text.trim().is_empty());
        let tags = self.payload.get("tags").and_then(Value::as_array).into_iter().flatten();
        Notice {
            message_id: self.notice_id(),
            correlation_id: Cow::Borrowed(&self.correlation_id),
            trace_id: self.trace_id.as_deref().map(Cow::Borrowed),
            message_type: Cow::Borrowed(&self.message_type),
            created_at: self.created_date,
            title: text("title").map_or_else(|| spoken(&self.message_type).into(), Cow::Borrowed),
            text: text("text").or_else(|| text("message")).map_or_else(|| self.plain_payload().into(), Cow::Borrowed),
            html: text("html").map(Cow::Borrowed),
            priority: self.priority(),
            tags: tags
                .filter_map(Value::as_str)
                .map(|tag| on_one_line(tag, TAG_CHARS))
                .filter(|tag| !tag.is_empty())
                .collect(),
            click_url: text("click_url").map(Cow::Borrowed),
            link: Some([public_url.trim_end_matches('/'), "/ui/messages/", &self.message_id].concat()),
            // Nobody else posts it as it is.
            payload: if self.channel == "webhook" { Value::Object(self.payload.clone()) } else { Value::Null },
        }
    }

    /// By its name or its number (S002-61).
    #[must_use]
    pub fn priority(&self) -> Priority {
        match self.payload.get("priority") {
            Some(Value::String(name)) => name.parse().unwrap_or_default(),
            Some(Value::Number(number)) => {
                // To JSON Schema, and so to whoever was answered 201, 5.0 is 5.
                let whole = number.as_u64().or_else(|| number.as_f64()?.to_string().parse().ok());
                whole.and_then(|number| Priority::from_number(number).ok()).unwrap_or_default()
            }
            _ => Priority::default(),
        }
    }

    /// What the other side recognises a second copy by. A mail that is sent again as a new message keeps the id of the
    /// first one.
    fn notice_id(&self) -> Uuid {
        let first = self.payload.get("notice_id").and_then(Value::as_str).filter(|_| self.channel == "email");
        let known = first.and_then(|id| Uuid::parse_str(id).ok());
        known.or_else(|| Uuid::parse_str(&self.message_id).ok()).unwrap_or_default()
    }

    /// A payload without a text, one field to a line; what the channels show in its own place is left out.
    fn plain_payload(&self) -> String {
        let is_said = |name: &str, value: &Value| match value {
            Value::String(text) => !text.trim().is_empty() && !SHOWN_ELSEWHERE.contains(&name),
            _ => !SHOWN_ELSEWHERE.contains(&name),
        };
        let said = self.payload.iter().filter(|(name, value)| is_said(name, value));
        let lines = said.map(|(name, value)| match value {
            Value::String(text) => format!("{name}: {text}"),
            value => format!("{name}: {value}"),
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// `order_shipped` as `Order shipped`.
fn spoken(name: &str) -> String {
    let words = name.replace('_', " ");
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
