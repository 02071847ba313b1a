//! What a record of a stream means: which product, which question or score, what it was and what it is (S001-18 to
//! S001-40). Reads nothing but its arguments.

use serde_json::{Map, Value, json};
use tidings_core::envelope::{Envelope, check_name, read_time};
use tidings_core::limits::{NAME_CHARS, SOURCE_CHARS, SUBJECT_CHARS};
use tidings_core::time::{self, Timestamp};
use uuid::Uuid;

use super::image::Image;

/// Bytes of an event's data; images that make it larger are left out of it. An event has 400 KB.
const DATA_BYTES: usize = 300 * 1024;
/// What begins the id of an event that tells of a record which cannot be understood.
const REJECTED: &str = "rejected-";

/// A record that is understood.
#[derive(Debug, Clone)]
pub struct Change {
    /// The same for the same record, however often it comes (S001-41).
    pub id: String,
    pub source: String,
    kind: EventName,
    at: Option<Timestamp>,
    data: Map<String, Value>,
}

/// A record that never will be.
#[derive(Debug, Clone)]
pub struct Malformed {
    pub id: String,
    pub source: String,
    pub reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EventName {
    Insert,
    Modify,
    Remove,
}

impl EventName {
    const ALL: [(Self, &'static str, &'static str); 3] = [
        (Self::Insert, "INSERT", "dynamodb.insert"),
        (Self::Modify, "MODIFY", "dynamodb.modify"),
        (Self::Remove, "REMOVE", "dynamodb.remove"),
    ];

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, name, _)| name.eq_ignore_ascii_case(text)).map(|(kind, ..)| kind)
    }

    fn names(self) -> (&'static str, &'static str) {
        Self::ALL.into_iter().find(|(kind, ..)| *kind == self).map_or(("", ""), |(_, name, event)| (name, event))
    }
}

/// What a batch calls a record, whether or not it can be understood: its `eventID`, else what follows from it.
#[must_use]
pub fn id_of(record: &Value) -> String {
    let given = record.get("eventID").and_then(Value::as_str);
    let given = given.filter(|id| check_name(id, NAME_CHARS - REJECTED.len()).is_ok());
    let image_id = ["NewImage", "OldImage"].into_iter().find_map(|name| {
        let image = Image::of(part(record, name)).ok()??;
        image.text("event_id").ok()?.filter(|id| check_name(id, NAME_CHARS / 2).is_ok()).map(ToOwned::to_owned)
    });
    match (given, image_id) {
        (Some(id), _) => id.to_owned(),
        // An item's own event may change several items: the rest of the record belongs to the name.
        (None, image_id) => {
            let text = Uuid::new_v5(&Uuid::NAMESPACE_OID, record.to_string().as_bytes()).to_string();
            image_id.map_or(text.clone(), |id| format!("{id}-{text}"))
        }
    }
}

/// Whether a record says what happened in a word that is known; later versions may have others.
#[must_use]
pub fn is_known(record: &Value) -> bool {
    record.get("eventName").and_then(Value::as_str).and_then(EventName::parse).is_some()
}

/// Which item a record is about, if it says so.
#[must_use]
pub fn item_of(record: &Value) -> Option<&Value> {
    part(record, "Keys")
}

/// When the stream says that an item changed.
#[must_use]
pub fn changed_at(record: &Value) -> Option<Timestamp> {
    read_time(&part(record, "ApproximateCreationDateTime")?.to_string()).ok()
}

/// Where a record comes from: the table, if the record names its stream.
fn source_of(record: &Value) -> String {
    let arn = record.get("eventSourceARN").and_then(Value::as_str).unwrap_or_default();
    let table =
        arn.split_once(":table/").and_then(|(_, rest)| rest.split('/').next()).filter(|table| !table.is_empty());
    let source = table.map_or_else(|| "dynamodb".to_owned(), |table| format!("dynamodb/{table}"));
    if check_name(&source, SOURCE_CHARS).is_ok() { source } else { "dynamodb".to_owned() }
}

/// A part of a record: within `dynamodb`, or beside `eventName` where somebody sends images without the wrapping.
fn part<'a>(record: &'a Value, name: &str) -> Option<&'a Value> {
    match record.get("dynamodb") {
        Some(inner) => inner.get(name),
        None => record.get(name),
    }
}

impl Change {
    /// What the record means, or why it means nothing.
    pub fn read(record: &Value) -> Result<Self, Malformed> {
        let (id, source) = (id_of(record), source_of(record));
        read(record)
            .map(|(kind, at, data)| Self { id: id.clone(), source: source.clone(), kind, at, data })
            .map_err(|reason| Malformed { id, source, reason })
    }

    /// The event that tells of it.
    #[must_use]
    pub fn envelope(self, correlation_id: &str, now: Timestamp) -> Envelope {
        let (_, event_type) = self.kind.names();
        let subject = self.data.get("product_id").and_then(Value::as_str).map(ToOwned::to_owned);
        envelope(self.id, event_type, self.source, subject, self.data, correlation_id, self.at.unwrap_or(now))
    }
}

impl Malformed {
    /// A record that is refused for a reason that reading it did not find.
    #[must_use]
    pub fn of(record: &Value, reason: String) -> Self {
        Self { id: id_of(record), source: source_of(record), reason }
    }

    /// The event that tells of it, with the record as it came. Its id is not the record's, so that the same record is
    /// taken once it has been mended.
    #[must_use]
    pub fn envelope(&self, record: &Value, correlation_id: &str, now: Timestamp) -> Envelope {
        let mut data = Map::new();
        data.insert("reason".to_owned(), self.reason.clone().into());
        data.insert("eventID".to_owned(), self.id.clone().into());
        let text = record.to_string();
        let whole = text.len() <= DATA_BYTES;
        data.insert("record".to_owned(), if whole { record.clone() } else { "left out: too large".into() });
        let id = format!("{REJECTED}{}", self.id);
        envelope(id, "dynamodb.rejected", self.source.clone(), None, data, correlation_id, now)
    }
}

fn envelope(
    event_id: String,
    event_type: &str,
    source: String,
    subject: Option<String>,
    data: Map<String, Value>,
    correlation_id: &str,
    at: Timestamp,
) -> Envelope {
    Envelope {
        event_id,
        event_type: event_type.to_owned(),
        event_version: "1.0".to_owned(),
        event_timestamp: at,
        correlation_id: correlation_id.to_owned(),
        source: Some(source),
        subject: subject.filter(|subject| check_name(subject, SUBJECT_CHARS).is_ok()),
        data: Value::Object(data).to_string(),
        extensions: Vec::new(),
    }
}

type Read = (EventName, Option<Timestamp>, Map<String, Value>);

fn read(record: &Value) -> Result<Read, String> {
    if !record.is_object() {
        return Err("a record must be an object".to_owned());
    }
    let name = record.get("eventName").and_then(Value::as_str).ok_or("eventName is missing")?;
    let kind = EventName::parse(name).ok_or("eventName must be INSERT, MODIFY or REMOVE")?;
    if record.get("dynamodb").is_some_and(|inner| !inner.is_object()) {
        return Err("dynamodb must be an object".to_owned());
    }
    let image = |name: &str| Image::of(part(record, name)).map_err(|why| format!("{name} {why}"));
    let (keys, new, old) = (image("Keys")?, image("NewImage")?, image("OldImage")?);
    if new.is_none() && kind != EventName::Remove {
        return Err(format!("NewImage is missing: the stream must have new and old images ({name})"));
    }
    let mut data = Map::new();
    data.insert("eventName".to_owned(), kind.names().0.into());
    if let (Some(new), true) = (&new, kind != EventName::Remove) {
        describe(&mut data, kind, new, old.as_ref(), keys.as_ref())?;
    }
    let at = happened_at(record, new.as_ref().or(old.as_ref()));
    let mut raw = Map::new();
    for (name, image) in [("Keys", &keys), ("NewImage", &new), ("OldImage", &old)] {
        raw.extend(image.as_ref().map(|image| (name.to_owned(), image.typed())));
    }
    for name in ["ApproximateCreationDateTime", "SequenceNumber", "SizeBytes", "StreamViewType"] {
        raw.extend(part(record, name).map(|value| (name.to_owned(), value.clone())));
    }
    let raw = Value::Object(raw);
    // What the record means fits in any case; its images are there for patterns of the user's own.
    let fits = raw.to_string().len() <= DATA_BYTES;
    data.insert("dynamodb".to_owned(), if fits { raw } else { json!({ "left_out": "too large" }) });
    Ok((kind, at, data))
}

/// When the item changed: as the stream says, else as the item says (S001-40).
fn happened_at(record: &Value, image: Option<&Image>) -> Option<Timestamp> {
    let item = || Some(image?.number("event_time").ok()??.to_string());
    changed_at(record).or_else(|| read_time(&item()?).ok())
}

/// What the item's attributes say, in the words of inbox entries.
fn describe(
    data: &mut Map<String, Value>,
    kind: EventName,
    new: &Image,
    old: Option<&Image>,
    keys: Option<&Image>,
) -> Result<(), String> {
    let Some(entity) = new.text("entity")?.map(str::to_lowercase) else { return Ok(()) };
    data.insert("entity".to_owned(), entity.clone().into());
    let step = if kind == EventName::Insert { "insert" } else { "update" };
    data.insert("stream_event".to_owned(), step.into());
    if let Some(at) = happened_at(&Value::Null, Some(new)) {
        data.insert("event_time".to_owned(), time::iso_millis(at).into());
    }
    let key = |name: &str| match new.text(name)? {
        Some(text) => Ok(text),
        None => keys.map_or(Ok(None), |keys| keys.text(name))?.ok_or_else(|| format!("{name} is missing")),
    };
    match entity.as_str() {
        "product" => question(data, key("cod_chav_patc")?, key("cod_chav_filg")?, new, old),
        "score" => score(data, key("cod_chav_patc")?, key("cod_chav_filg")?, new, old),
        // Another kind of item in the same table: no business of ours, and of a user's own rules.
        _ => Ok(()),
    }
}

/// `sandboxsre`, `PRRCON38#dev#LATEST`: a question of a product in an environment (S001-18 to S001-27).
fn question(
    data: &mut Map<String, Value>,
    product: &str,
    key: &str,
    new: &Image,
    old: Option<&Image>,
) -> Result<(), String> {
    let mut segments = key.split('#').map(str::trim);
    let (question, env) = (segments.next().unwrap_or_default(), segments.next().unwrap_or_default());
    if question.is_empty() || env.is_empty() {
        return Err("cod_chav_filg must be QUESTION#ENVIRONMENT#…".to_owned());
    }
    let was = old.map(compliance).transpose()?.flatten();
    let is = compliance(new)?;
    named(data, "product_id", product)?;
    named(data, "question", question)?;
    data.insert("event_type".to_owned(), "question".into());
    data.insert("env".to_owned(), env.to_lowercase().into());
    data.extend(segments.next().map(|version| ("version".to_owned(), version.into())));
    data.extend(is.map(|is| ("compliance".to_owned(), is.into())));
    data.extend(was.map(|was| ("old_compliance".to_owned(), was.into())));
    data.insert("new".to_owned(), json!({ "compliance": is }));
    if let Some(was) = was {
        data.insert("old".to_owned(), json!({ "compliance": was }));
    }
    Ok(())
}

/// `score#checkout`, `DEV#ALL#LATEST`: a product's score in an environment (S001-28 to S001-38).
fn score(
    data: &mut Map<String, Value>,
    partition: &str,
    key: &str,
    new: &Image,
    old: Option<&Image>,
) -> Result<(), String> {
    let product = partition.split('#').nth(1).map(str::trim).filter(|product| !product.is_empty());
    let product = product.ok_or("cod_chav_patc must be score#PRODUCT")?;
    let mut segments = key.split('#').map(str::trim);
    let (env, pillar) = (segments.next().unwrap_or_default(), segments.next().unwrap_or_default());
    if env.is_empty() || pillar.is_empty() {
        return Err("cod_chav_filg must be ENVIRONMENT#PILLAR#…".to_owned());
    }
    let is = new.number("score")?.ok_or("score is missing")?;
    let was = old.map(|old| old.number("score")).transpose()?.flatten();
    named(data, "product_id", product)?;
    named(data, "pillar", pillar)?;
    data.insert("event_type".to_owned(), "score".into());
    data.insert("env".to_owned(), env.to_lowercase().into());
    data.extend(segments.next().map(|version| ("version".to_owned(), version.into())));
    data.insert("new_score".to_owned(), is.clone());
    data.insert("new".to_owned(), json!({ "score": is }));
    if let Some(was) = was {
        data.insert("old_score".to_owned(), was.clone());
        data.insert("old".to_owned(), json!({ "score": was }));
    }
    Ok(())
}

/// The attribute goes by two names (S001-27).
fn compliance(image: &Image) -> Result<Option<bool>, String> {
    match image.truth("compliant")? {
        Some(compliant) => Ok(Some(compliant)),
        None => image.truth("compliance"),
    }
}

fn named(data: &mut Map<String, Value>, field: &str, name: &str) -> Result<(), String> {
    check_name(name, NAME_CHARS).map_err(|why| format!("{field} {why}"))?;
    data.insert(field.to_owned(), name.into());
    Ok(())
}

#[cfg(test)]
#[path = "change_tests.rs"]
mod tests;
