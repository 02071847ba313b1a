//! The four events of seed 003: their names, where they go, and what must be in them. Pure; the same judge sits at
//! `POST /events`, on the bus and in the business calls.

use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tidings_core::envelope::{Envelope, FieldError};
use uuid::Uuid;

use crate::bus::pool::Priority;

/// The version of the payloads that the handlers understand; another one is another event (S003-63, S003-66).
pub const MAJOR: &str = "1";
/// Characters of a payload's strings.
pub const TEXT_CHARS: usize = 256;
pub const URL_CHARS: usize = 2048;
/// A file in our own store: this, and the SHA-256 of its content.
pub const OWN_FILE: &str = "tidings://files/";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// EVT_001: a command to the OCR worker.
    InvoiceUploaded,
    /// EVT_002: a domain event for those who notify.
    StatusChanged,
    /// EVT_003: a scheduled message.
    TransferExpired,
    /// EVT_004: for the audit log.
    ActionOccurred,
}

/// What a payload's field must be.
#[derive(Debug, Clone, Copy)]
enum Shape {
    Guid,
    Text,
    Url,
    Any,
}

/// A field of a payload.
struct Field(&'static str, Shape, bool);

const REQUIRED: bool = true;
const OPTIONAL: bool = false;

impl Kind {
    /// Whose turn it is, among the four (S003-54).
    #[must_use]
    pub const fn priority(self) -> Priority {
        match self {
            Self::StatusChanged | Self::ActionOccurred => Priority::High,
            Self::InvoiceUploaded | Self::TransferExpired => Priority::Medium,
        }
    }

    pub const ALL: [Self; 4] =
        [Self::InvoiceUploaded, Self::StatusChanged, Self::TransferExpired, Self::ActionOccurred];

    /// The seed's name, which is the event's type.
    #[must_use]
    pub const fn event_type(self) -> &'static str {
        match self {
            Self::InvoiceUploaded => "InvoiceUploadedForProcessing",
            Self::StatusChanged => "ServiceRequestStatusChanged",
            Self::TransferExpired => "OwnershipTransferExpired",
            Self::ActionOccurred => "CriticalActionOccurred",
        }
    }

    /// The routing key, which is understood as a type, too.
    #[must_use]
    pub const fn routing_key(self) -> Option<&'static str> {
        match self {
            Self::StatusChanged => Some("servicerequest.status.changed"),
            Self::ActionOccurred => Some("audit.action.occurred"),
            Self::InvoiceUploaded | Self::TransferExpired => None,
        }
    }

    /// The queue or topic on the bus.
    #[must_use]
    pub const fn entity(self) -> &'static str {
        match self {
            Self::InvoiceUploaded => "ocr-processing-queue",
            Self::StatusChanged => "domain-events-topic",
            Self::TransferExpired => "transfer-expiration-queue",
            Self::ActionOccurred => "system-events-topic",
        }
    }

    /// The names of the payload's fields that must be there, or need not.
    #[must_use]
    pub fn field_names(self, required: bool) -> Vec<&'static str> {
        self.fields().iter().filter(|field| field.2 == required).map(|field| field.0).collect()
    }

    #[must_use]
    pub fn of_type(event_type: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.event_type() == event_type || kind.routing_key() == Some(event_type))
    }

    const fn fields(self) -> &'static [Field] {
        match self {
            // S003-07
            Self::InvoiceUploaded => &[
                Field("invoiceId", Shape::Guid, REQUIRED),
                Field("userProductId", Shape::Guid, REQUIRED),
                Field("fileUrl", Shape::Url, REQUIRED),
            ],
            // S003-18, S003-19
            Self::StatusChanged => &[
                Field("serviceRequestId", Shape::Guid, REQUIRED),
                Field("userId", Shape::Guid, REQUIRED),
                Field("newStatus", Shape::Text, REQUIRED),
                Field("oldStatus", Shape::Text, OPTIONAL),
            ],
            // S003-32
            Self::TransferExpired => &[Field("transferRequestId", Shape::Guid, REQUIRED)],
            // S003-44, S003-45
            Self::ActionOccurred => &[
                Field("actionType", Shape::Text, REQUIRED),
                Field("targetEntity", Shape::Text, REQUIRED),
                Field("targetEntityId", Shape::Text, REQUIRED),
                Field("userId", Shape::Guid, OPTIONAL),
                Field("changeDetails", Shape::Any, OPTIONAL),
            ],
        }
    }
}

/// Which of the four an envelope is, if it is one that our handlers understand.
#[must_use]
pub fn kind_of(envelope: &Envelope) -> Option<Kind> {
    Kind::of_type(&envelope.event_type).filter(|_| is_ours(envelope))
}

/// Which of the four an envelope is that goes on the bus. A topic has every version, for whoever understands it
/// (S003-65, S003-66); a queue has one consumer, which understands one.
#[must_use]
pub fn carried(envelope: &Envelope) -> Option<Kind> {
    Kind::of_type(&envelope.event_type).filter(|kind| kind.routing_key().is_some() || is_ours(envelope))
}

fn is_ours(envelope: &Envelope) -> bool {
    major(&envelope.event_version) == MAJOR
}

/// Everything that is wrong with an event's payload. Events of other types or versions have nothing to be wrong.
#[must_use]
pub fn check(envelope: &Envelope) -> Vec<FieldError> {
    let Some(kind) = kind_of(envelope) else { return Vec::new() };
    match serde_json::from_str::<Map<String, Value>>(&envelope.data) {
        Ok(data) => check_data(kind, &data, "data."),
        Err(_) => vec![FieldError::new("data", "must be an object")],
    }
}

/// The same for the payload alone; `prefix` goes before the names of its fields.
#[must_use]
pub fn check_data(kind: Kind, data: &Map<String, Value>, prefix: &str) -> Vec<FieldError> {
    let wrong = |Field(name, shape, required): &Field| {
        let why = match data.get(*name) {
            None | Some(Value::Null) if *required => Some("is required".to_owned()),
            None | Some(Value::Null) => None,
            Some(value) => shape.check(value).err(),
        };
        why.map(|why| FieldError::new(format!("{prefix}{name}"), why))
    };
    kind.fields().iter().filter_map(wrong).collect()
}

impl Shape {
    fn check(self, value: &Value) -> Result<(), String> {
        let text = || value.as_str().ok_or_else(|| "must be a string".to_owned());
        match self {
            Self::Any => Ok(()),
            // S003-71
            Self::Guid => check_guid(text()?),
            Self::Text => tidings_core::envelope::check_name(text()?, TEXT_CHARS),
            Self::Url => check_file_url(text()?),
        }
    }
}

pub fn check_guid(text: &str) -> Result<(), String> {
    let is_guid = text.len() == 36 && Uuid::try_parse(text).is_ok();
    if is_guid { Ok(()) } else { Err("must be a UUID as in 33567ee8-f182-4f8a-b03e-2f1515915471".to_owned()) }
}

/// Where a file may come from: by https from elsewhere, or from our own store.
pub fn check_file_url(text: &str) -> Result<(), String> {
    const WHERE: &str = "must be an https address, or tidings://files/ and the SHA-256 of a file that was uploaded";
    if text.chars().count() > URL_CHARS {
        return Err(format!("must have at most {URL_CHARS} characters"));
    }
    if let Some(hash) = text.strip_prefix(OWN_FILE) {
        return if is_hash(hash) { Ok(()) } else { Err(WHERE.to_owned()) };
    }
    match reqwest::Url::parse(text) {
        Ok(url) if url.scheme() == "https" && url.has_host() => {
            let plain = url.username().is_empty() && url.password().is_none();
            if plain { Ok(()) } else { Err("must not hold a user name or password".to_owned()) }
        }
        _ => Err(WHERE.to_owned()),
    }
}

#[must_use]
pub fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// The first number of a version: `1` of `1.0` and of `1.0.0`.
#[must_use]
pub fn major(version: &str) -> &str {
    version.split('.').next().unwrap_or_default()
}

/// The payload's UUID of one field, if it is there: in small letters, for case does not count in it.
#[must_use]
pub fn guid_of(data: &str, name: &str) -> Option<String> {
    text_of(data, name).map(|id| id.to_lowercase())
}

/// The payload's text of one field, if it is there.
#[must_use]
pub fn text_of(data: &str, name: &str) -> Option<String> {
    let fields: std::collections::HashMap<String, &RawValue> = serde_json::from_str(data).ok()?;
    serde_json::from_str(fields.get(name)?.get()).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tidings_core::envelope::{Defaults, read};
    use tidings_core::time::Timestamp;

    use super::*;

    const ID: &str = "33567ee8-f182-4f8a-b03e-2f1515915471";

    fn envelope(event: &Value) -> Envelope {
        let event_id = || "e".to_owned();
        let defaults = Defaults { now: Timestamp::UNIX_EPOCH, correlation_id: "c", event_id: &event_id };
        read(&event.to_string(), &defaults).unwrap()
    }

    fn wrong(event_type: &str, data: Value) -> Vec<String> {
        let errors = check(&envelope(&json!({ "eventType": event_type, "data": data })));
        errors.into_iter().map(|error| error.field).collect()
    }

    // S003-07, S003-19, S003-32, S003-45, S003-59
    #[test]
    fn every_missing_field_is_named() {
        let missing = |kind: Kind| wrong(kind.event_type(), json!({}));
        assert_eq!(missing(Kind::InvoiceUploaded), ["data.invoiceId", "data.userProductId", "data.fileUrl"]);
        assert_eq!(missing(Kind::StatusChanged), ["data.serviceRequestId", "data.userId", "data.newStatus"]);
        assert_eq!(missing(Kind::TransferExpired), ["data.transferRequestId"]);
        assert_eq!(missing(Kind::ActionOccurred), ["data.actionType", "data.targetEntity", "data.targetEntityId"]);
        assert_eq!(wrong("servicerequest.status.changed", json!({})).len(), 3, "the routing key is a type, too");
    }

    #[test]
    fn good_payloads_pass_with_what_is_unknown() {
        for (kind, data) in [
            (
                Kind::InvoiceUploaded,
                json!({ "invoiceId": ID, "userProductId": ID, "fileUrl": "https://a.example/x.pdf" }),
            ),
            (Kind::StatusChanged, json!({ "serviceRequestId": ID, "userId": ID, "newStatus": "closed", "more": [1] })),
            (Kind::StatusChanged, json!({ "serviceRequestId": ID, "userId": ID, "newStatus": "x", "oldStatus": null })),
            (Kind::TransferExpired, json!({ "transferRequestId": ID })),
            (Kind::ActionOccurred, json!({ "actionType": "login", "targetEntity": "user", "targetEntityId": "7" })),
        ] {
            assert_eq!(wrong(kind.event_type(), data), [""; 0]);
        }
    }

    // S003-71
    #[test]
    fn wrong_types_are_refused() {
        let data = json!({ "serviceRequestId": 7, "userId": "33567ee8f1824f8ab03e2f1515915471", "newStatus": "", "oldStatus": 1 });
        let fields = ["data.serviceRequestId", "data.userId", "data.newStatus", "data.oldStatus"];
        assert_eq!(wrong("ServiceRequestStatusChanged", data), fields);
        assert_eq!(
            wrong(
                "CriticalActionOccurred",
                json!({ "actionType": "a", "targetEntity": "b", "targetEntityId": 1, "userId": "u" })
            ),
            ["data.targetEntityId", "data.userId"]
        );
    }

    // S003-63, S003-65
    #[test]
    fn another_major_version_is_another_event() {
        for (version, checked) in
            [("1", true), ("1.0", true), ("1.7.2", true), ("2.0", false), ("10.0", false), ("01", false)]
        {
            let event = json!({ "eventType": "OwnershipTransferExpired", "eventVersion": version });
            assert_eq!(kind_of(&envelope(&event)).is_some(), checked, "{version}");
            assert_eq!(check(&envelope(&event)).len(), usize::from(checked), "{version}");
            assert_eq!(carried(&envelope(&event)).is_some(), checked, "a queue has one consumer: {version}");
            let event = json!({ "eventType": "CriticalActionOccurred", "eventVersion": version });
            assert!(carried(&envelope(&event)).is_some(), "{version}");
        }
        assert_eq!(check(&envelope(&json!({ "eventType": "order.placed" }))), []);
    }

    #[test]
    fn a_file_comes_by_https_or_from_our_store() {
        let hash = "a".repeat(64);
        for (url, good) in [
            ("https://files.example.com/a.pdf?x=1".to_owned(), true),
            (format!("tidings://files/{hash}"), true),
            (format!("tidings://files/{}", hash.to_uppercase()), false),
            ("tidings://files/../../etc/passwd".to_owned(), false),
            ("http://files.example.com/a.pdf".to_owned(), false),
            ("file:///etc/passwd".to_owned(), false),
            ("https://me:secret@files.example.com/".to_owned(), false),
            (String::new(), false),
            (format!("https://e.example/{}", "x".repeat(2048 - 18)), true),
            (format!("https://e.example/{}", "x".repeat(2049 - 18)), false),
        ] {
            assert_eq!(check_file_url(&url).is_ok(), good, "{url}");
        }
    }
}
