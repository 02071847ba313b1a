//! The types of messages, each with the JSON Schema of its payload (S002-56 to S002-65).
//!
//! What a channel makes use of (`text`, `priority`, `tags`, `click_url`, `topic`) is held to the same rules in every
//! type, configured ones included.

use std::collections::BTreeMap;

use jsonschema::Validator;
use jsonschema::error::ValidationErrorKind;
use reqwest::Url;
use serde_json::{Map, Value, json};
use tidings_core::envelope::{FieldError, check_name};

use super::payload;
use crate::channel::ntfy::RESERVED;
use crate::channel::one_line;
use crate::config::message_types::MessageType;

/// Errors named in one answer.
const MOST_ERRORS: usize = 50;
/// Characters of a type's name.
pub const TYPE_CHARS: usize = 128;
/// Characters of a text.
const TEXT_CHARS: usize = 65_536;
/// Something that is no blank.
const NOT_BLANK: &str = "\\S";
const A_URL: &str = "^[Hh][Tt][Tt][Pp][Ss]?://[^\\s/?#]+[^\\s]*$";
const A_TOPIC: &str = "^[A-Za-z0-9_-]{1,64}$";
const CLICK_URL: &str = "must be a URL that begins with http:// or https://";
const NO_URL: &str = "is no valid URL";

/// Every type that a message may have.
#[derive(Debug)]
pub struct Types {
    known: BTreeMap<String, Type>,
    common: Validator,
    /// Whether a type that is not known is taken, too; what holds in every type holds in it.
    allow_unknown: bool,
}

#[derive(Debug)]
struct Type {
    schema: Value,
    validator: Validator,
}

impl Types {
    /// The built-in types and the configured ones; a configured type of a built-in name replaces it.
    ///
    /// # Errors
    ///
    /// What is wrong with a configured schema. A checked configuration has none.
    pub fn new(configured: &[MessageType]) -> Result<Self, String> {
        let mut known = BTreeMap::new();
        let configured = configured.iter().map(|kind| (kind.name.clone(), kind.schema.to_value()));
        for (name, schema) in built_in().into_iter().map(|(name, schema)| (name.to_owned(), schema)).chain(configured) {
            let validator = compile(&schema).map_err(|why| format!("the schema of message type `{name}` {why}"))?;
            known.insert(name, Type { schema, validator });
        }
        Ok(Self { known, common: compile(&common())?, allow_unknown: false })
    }

    /// The same, and types that are not known are taken or not (S002-65).
    #[must_use]
    pub fn allowing_unknown(self, allow_unknown: bool) -> Self {
        Self { allow_unknown, ..self }
    }

    /// Every reason why the payload does not fit the type, by field; the API and the scheduler ask here.
    #[must_use]
    pub fn check(&self, message_type: &str, payload: &Map<String, Value>) -> Vec<FieldError> {
        self.check_value(message_type, &Value::Object(payload.clone()))
    }

    /// The same for a payload that is held as a value of any kind, as validators want it.
    #[must_use]
    pub fn check_value(&self, message_type: &str, payload: &Value) -> Vec<FieldError> {
        let kind = self.known.get(message_type);
        if kind.is_none() && !(self.allow_unknown && check_name(message_type, TYPE_CHARS).is_ok()) {
            let names: Vec<_> = self.known.keys().map(String::as_str).collect();
            let message = format!("is no known type; known are {}", names.join(", "));
            return vec![FieldError::new("message_type", message)];
        }
        let checked = payload.as_object().map_or(Ok(()), payload::check);
        let mut errors: Vec<_> = checked.err().map(|why| FieldError::new("payload", why)).into_iter().collect();
        for validator in std::iter::once(&self.common).chain(kind.map(|kind| &kind.validator)) {
            // Most are right, and that is told sooner than what is wrong.
            if validator.is_valid(payload) {
                continue;
            }
            for error in validator.iter_errors(payload).take(MOST_ERRORS) {
                for error in field_errors(&error) {
                    if !errors.contains(&error) {
                        errors.push(error);
                    }
                }
            }
        }
        let click_url = payload.get("click_url").and_then(Value::as_str);
        if click_url.is_some_and(|url| Url::parse(url).is_err()) {
            let error = FieldError::new("payload.click_url", NO_URL);
            if errors.iter().all(|known| known.field != error.field) {
                errors.push(error);
            }
        }
        errors
    }

    /// Names and schemas.
    pub fn list(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.known.iter().map(|(name, kind)| (name.as_str(), &kind.schema))
    }
}

/// What is wrong with a schema, as the rest of a sentence that begins with its name.
///
/// # Errors
///
/// If it cannot be compiled.
pub fn check_schema(schema: &Map<String, Value>) -> Result<(), String> {
    compile(&Value::Object(schema.clone())).map(drop)
}

fn compile(schema: &Value) -> Result<Validator, String> {
    jsonschema::validator_for(schema)
        .map_err(|error| format!("is no JSON Schema: {error} at `{}`", error.instance_path()))
}

/// `/tags/3` becomes `payload.tags[3]`; what is missing is named itself, and so is each that must not be there.
fn field_errors(error: &jsonschema::ValidationError<'_>) -> Vec<FieldError> {
    let field = field_of(error);
    match error.kind() {
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            let named = unexpected.iter().take(MOST_ERRORS);
            named.map(|name| FieldError::new(format!("{field}.{name}"), "is not allowed in this type")).collect()
        }
        _ => vec![field_error(error, field)],
    }
}

fn field_of(error: &jsonschema::ValidationError<'_>) -> String {
    let mut field = "payload".to_owned();
    for step in error.instance_path().as_str().split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        if step.bytes().all(|byte| byte.is_ascii_digit()) {
            field.push_str(&format!("[{step}]"));
        } else {
            field.push('.');
            field.push_str(&step);
        }
    }
    field
}

fn field_error(error: &jsonschema::ValidationError<'_>, field: String) -> FieldError {
    match error.kind() {
        ValidationErrorKind::Required { property } => {
            FieldError::new(format!("{field}.{}", property.as_str().unwrap_or_default()), "is required")
        }
        ValidationErrorKind::Pattern { pattern } => {
            let begins = error.instance().as_str().is_some_and(begins_as_url);
            // A type of somebody's own may ask for another pattern in the same field.
            let why = match pattern.as_str() {
                A_URL if begins => NO_URL.to_owned(),
                A_URL => CLICK_URL.to_owned(),
                A_TOPIC => "must be 1 to 64 letters, digits, `_` or `-`".to_owned(),
                NOT_BLANK => "must not be blank".to_owned(),
                other => format!("must match the pattern `{}`", one_line(other, 200)),
            };
            FieldError::new(field, why)
        }
        ValidationErrorKind::Not { schema } if *schema == reserved() => {
            FieldError::new(field, crate::channel::ntfy::KEPT)
        }
        ValidationErrorKind::Enum { options } if **options == priorities() => {
            FieldError::new(field, "must be min, low, default, high, max (or urgent), or 1 to 5")
        }
        ValidationErrorKind::MaxLength { limit } => {
            FieldError::new(field, format!("must have at most {limit} characters"))
        }
        ValidationErrorKind::MaxItems { limit } => FieldError::new(field, format!("must have at most {limit} entries")),
        ValidationErrorKind::MinLength { limit: 1 } => FieldError::new(field, "must not be empty"),
        ValidationErrorKind::MinLength { limit } => {
            FieldError::new(field, format!("must have at least {limit} characters"))
        }
        // The library repeats the value, however long it is.
        _ => FieldError::new(field, one_line(&error.masked().to_string(), 300)),
    }
}

fn begins_as_url(text: &str) -> bool {
    let begins = |scheme: &str| text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    begins("http://") || begins("https://")
}

fn reserved() -> Value {
    json!({ "enum": RESERVED })
}

fn priorities() -> Value {
    json!(["min", "low", "default", "high", "max", "urgent", 1, 2, 3, 4, 5])
}

/// What holds in every type.
fn common() -> Value {
    json!({
        "type": "object",
        "properties": {
            "text": { "type": "string", "maxLength": TEXT_CHARS },
            "title": { "type": "string", "maxLength": 500 },
            "priority": { "enum": priorities() },
            "tags": { "type": "array", "maxItems": 20, "items": { "type": "string", "minLength": 1, "maxLength": 64 } },
            "click_url": { "type": "string", "maxLength": 2048, "pattern": A_URL },
            "topic": { "type": "string", "pattern": A_TOPIC, "not": reserved() },
        },
    })
}

fn built_in() -> [(&'static str, Value); 5] {
    let text = json!({ "type": "string", "pattern": NOT_BLANK, "maxLength": TEXT_CHARS });
    let short = json!({ "type": "string", "minLength": 1, "maxLength": 256 });
    let with = |required: &[&str], more: Value| {
        let mut properties = json!({ "text": text });
        if let (Some(properties), Value::Object(more)) = (properties.as_object_mut(), more) {
            properties.extend(more);
        }
        json!({ "type": "object", "required": required, "properties": properties })
    };
    [
        ("scheduled_hello", with(&["text"], json!({}))),
        ("manual_notification", with(&["text"], json!({ "title": { "type": "string" } }))),
        (
            "deployment_notification",
            with(&["text"], json!({ "service": short, "version": short, "environment": short, "status": short })),
        ),
        ("alert_notification", with(&["text"], json!({ "severity": short, "source": short }))),
        ("reminder", with(&["text"], json!({ "title": { "type": "string" } }))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(message_type: &str, payload: Value) -> Vec<String> {
        let types = Types::new(&[]).unwrap();
        let errors = types.check(message_type, payload.as_object().unwrap());
        errors.into_iter().map(|error| error.field).collect()
    }

    // S002-57 to S002-59
    #[test]
    fn the_seeds_payloads_fit() {
        let hello = json!({ "text": "hello world", "priority": "default", "tags": ["scheduled", "daily"] });
        assert!(fields("scheduled_hello", hello).is_empty());
        let manual = json!({ "text": "User-defined message", "title": "Optional title", "priority": "high",
            "tags": ["manual", "urgent"], "click_url": "https://example.com" });
        for kind in ["manual_notification", "deployment_notification", "alert_notification", "reminder"] {
            assert!(fields(kind, manual.clone()).is_empty(), "{kind}");
        }
    }

    // S002-83, S002-61 to S002-63
    #[test]
    fn every_failing_field_is_named() {
        let bad = json!({ "priority": "loud", "tags": ["ok", 1, "x".repeat(65)], "click_url": "javascript:alert(1)",
            "topic": "a/b" });
        let mut fields = fields("scheduled_hello", bad);
        fields.sort();
        assert_eq!(
            fields,
            [
                "payload.click_url",
                "payload.priority",
                "payload.tags[1]",
                "payload.tags[2]",
                "payload.text",
                "payload.topic"
            ]
        );
    }

    // SX-27
    #[test]
    fn limits_hold_to_the_last_one() {
        let tags = |count: usize, chars: usize| json!({ "text": "x", "tags": vec!["t".repeat(chars); count] });
        for (count, chars, good) in [(19, 63, true), (20, 64, true), (21, 64, false), (20, 65, false)] {
            assert_eq!(fields("reminder", tags(count, chars)).is_empty(), good, "{count} {chars}");
        }
        for priority in ["min", "low", "default", "high", "max", "urgent"] {
            assert!(fields("reminder", json!({ "text": "x", "priority": priority })).is_empty());
        }
        for (priority, good) in [(0, false), (1, true), (5, true), (6, false)] {
            assert_eq!(fields("reminder", json!({ "text": "x", "priority": priority })).is_empty(), good, "{priority}");
        }
        for url in ["http://a", "https://a.b/c?d=e", "HTTPS://example.com"] {
            assert!(fields("reminder", json!({ "text": "x", "click_url": url })).is_empty());
        }
        for url in ["", "ftp://a", "http://", "https:// x", "/a", "https://[", "https://a:b/", "http://[::1"] {
            assert_eq!(fields("reminder", json!({ "text": "x", "click_url": url })), ["payload.click_url"], "{url}");
        }
        for blank in ["", " ", " \t\n", "\u{a0}"] {
            assert_eq!(fields("reminder", json!({ "text": blank })), ["payload.text"], "{blank:?}");
        }
        for (topic, good) in [("doc", true), ("docs", false), ("v1", false), ("v2", true), ("Docs", true)] {
            assert_eq!(fields("reminder", json!({ "text": "x", "topic": topic })).is_empty(), good, "{topic}");
        }
        assert_eq!(fields("unknown", json!({ "text": "x" })), ["message_type"]);
    }

    // S002-65
    #[test]
    fn an_unknown_type_is_taken_if_that_is_allowed_and_keeps_the_common_rules() {
        let types = Types::new(&[]).unwrap().allowing_unknown(true);
        let fields = |kind: &str, payload: Value| {
            let errors = types.check(kind, payload.as_object().unwrap());
            errors.into_iter().map(|error| error.field).collect::<Vec<_>>()
        };
        assert_eq!(fields("anything", json!({ "order": 1 })), [""; 0]);
        assert_eq!(fields("anything", json!({ "priority": "loud" })), ["payload.priority"]);
        assert_eq!(fields("reminder", json!({})), ["payload.text"], "a known one keeps its schema");
        for (chars, good) in [(127, true), (128, true), (129, false)] {
            assert_eq!(fields(&"t".repeat(chars), json!({})).is_empty(), good, "{chars}");
        }
        assert_eq!(fields("", json!({})), ["message_type"]);
    }

    // S002-59, S002-65
    #[test]
    fn configured_types_have_their_own_schema_and_the_common_rules() {
        let schema =
            json!({ "type": "object", "required": ["order"], "properties": { "order": { "type": "integer" } } });
        let kind = MessageType { name: "order_shipped".to_owned(), schema: serde_json::from_value(schema).unwrap() };
        let types = Types::new(&[kind]).unwrap();
        let check = |payload: Value| types.check("order_shipped", payload.as_object().unwrap()).len();
        assert_eq!(check(json!({ "order": 1 })), 0);
        assert_eq!(check(json!({ "order": "one", "priority": "loud" })), 2);
        let bad = json!({ "type": "no such type" });
        assert!(check_schema(bad.as_object().unwrap()).is_err());
    }

    // S002-83: what a type of somebody's own asks for is said as it is.
    #[test]
    fn a_refusal_says_what_the_schema_asks_for() {
        let whys = |properties: Value, payload: Value| {
            let schema = json!({ "type": "object", "properties": properties });
            let kind = MessageType { name: "own".to_owned(), schema: serde_json::from_value(schema).unwrap() };
            let errors = Types::new(&[kind]).unwrap().check("own", payload.as_object().unwrap());
            errors.into_iter().map(|error| error.message).collect::<Vec<_>>()
        };
        let text = |rule: Value, text: &str| whys(json!({ "text": rule }), json!({ "text": text }));
        assert_eq!(text(json!({ "pattern": "^ok" }), "no"), ["must match the pattern `^ok`"]);
        assert_eq!(text(json!({ "pattern": "\\S" }), " "), ["must not be blank"]);
        assert_eq!(text(json!({ "minLength": 3 }), "no"), ["must have at least 3 characters"]);
        assert_eq!(text(json!({ "minLength": 1 }), ""), ["must not be empty"]);
        let topic = |rule: Value, topic: &str| whys(json!({ "topic": rule }), json!({ "topic": topic }));
        assert_eq!(topic(json!({ "pattern": "^ops" }), "dev"), ["must match the pattern `^ops`"]);
        assert_eq!(topic(json!({}), "a b"), ["must be 1 to 64 letters, digits, `_` or `-`"]);
        assert_eq!(topic(json!({}), "docs"), [crate::channel::ntfy::KEPT]);
        assert_ne!(topic(json!({ "not": { "const": "dev" } }), "dev"), [crate::channel::ntfy::KEPT]);
        let own = json!({ "pattern": "^https://a\\.example/" });
        let whys_of_url = whys(json!({ "click_url": own }), json!({ "click_url": "https://b.example/" }));
        assert_eq!(whys_of_url, ["must match the pattern `^https://a\\.example/`"]);
        let priority =
            |given: Value| whys(json!({ "priority": { "enum": ["high", 4] } }), json!({ "priority": given }));
        assert!(priority(json!("low")).concat().contains("high"), "{:?}", priority(json!("low")));
        assert!(
            priority(json!("loud")).contains(&"must be min, low, default, high, max (or urgent), or 1 to 5".to_owned())
        );
    }
}
