//! What a filter sees of a message, and what an action may change of it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::value::Value;

/// The properties that the broker itself knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum System {
    MessageId,
    CorrelationId,
    To,
    ReplyTo,
    /// Called `Label` by older clients.
    Subject,
    SessionId,
    ReplyToSessionId,
    ContentType,
    PartitionKey,
    TimeToLive,
    ScheduledEnqueueTimeUtc,
    EnqueuedTimeUtc,
    ExpiresAtUtc,
    SequenceNumber,
    EnqueuedSequenceNumber,
    DeliveryCount,
    DeadLetterSource,
}

impl System {
    /// Every one, with its name. A second name for the same property comes later in the list.
    const NAMES: [(&'static str, System); 18] = [
        ("MessageId", System::MessageId),
        ("CorrelationId", System::CorrelationId),
        ("To", System::To),
        ("ReplyTo", System::ReplyTo),
        ("Label", System::Subject),
        ("SessionId", System::SessionId),
        ("ReplyToSessionId", System::ReplyToSessionId),
        ("ContentType", System::ContentType),
        ("PartitionKey", System::PartitionKey),
        ("TimeToLive", System::TimeToLive),
        ("ScheduledEnqueueTimeUtc", System::ScheduledEnqueueTimeUtc),
        ("EnqueuedTimeUtc", System::EnqueuedTimeUtc),
        ("ExpiresAtUtc", System::ExpiresAtUtc),
        ("SequenceNumber", System::SequenceNumber),
        ("EnqueuedSequenceNumber", System::EnqueuedSequenceNumber),
        ("DeliveryCount", System::DeliveryCount),
        ("DeadLetterSource", System::DeadLetterSource),
        ("Subject", System::Subject),
    ];

    /// By name, whatever its case.
    pub fn named(name: &str) -> Option<System> {
        Self::NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, property)| *property)
    }

    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, property)| *property == self).map_or("", |(name, _)| name)
    }

    /// The names that a rule can ask for, for messages.
    pub(super) fn names() -> String {
        let names: Vec<_> =
            Self::NAMES.iter().filter(|(_, property)| !property.is_later()).map(|(name, _)| *name).collect();
        names.join(", ")
    }

    /// Whether no message has it when rules are asked: a copy gets it where it goes, if at all.
    pub fn is_later(self) -> bool {
        use System::{DeadLetterSource, DeliveryCount, EnqueuedSequenceNumber, ExpiresAtUtc, SequenceNumber};
        matches!(self, ExpiresAtUtc | SequenceNumber | EnqueuedSequenceNumber | DeliveryCount | DeadLetterSource)
    }

    /// Whether a correlation filter may ask for it: exactly the ones it may in Service Bus.
    pub fn correlates(self) -> bool {
        matches!(
            self,
            System::MessageId
                | System::CorrelationId
                | System::To
                | System::ReplyTo
                | System::Subject
                | System::SessionId
                | System::ReplyToSessionId
                | System::ContentType
        )
    }

    /// Whether an action may change it. The others are the broker's own findings.
    pub fn writable(self) -> bool {
        self.correlates() || matches!(self, System::PartitionKey | System::ScheduledEnqueueTimeUtc)
    }
}

/// A message as filters see it. Only what a filter asks for is fetched.
pub trait View {
    /// A property of the broker; `None` if this message does not carry it.
    fn system(&self, property: System) -> Option<Value<'_>>;

    /// Whether it is an error to ask for a property of the broker that this message does not carry, other than by
    /// `IS NULL` and `EXISTS`; else it is unknown.
    fn is_strict(&self) -> bool {
        false
    }

    /// A property of the sender. Case does not count in `name`; [`same_name`] compares.
    fn user(&self, name: &str) -> Option<Value<'_>>;

    /// The dotted key that key patterns are held against.
    fn key(&self) -> Option<Cow<'_, str>>;

    /// The JSON text that patterns are matched with.
    fn document(&self) -> Option<Cow<'_, str>>;

    /// The id for the `nth` `newid()` of a text. To do the same twice, derive it from the message.
    fn new_id(&self, nth: usize) -> String;
}

/// A message as actions change it.
pub trait Change: View {
    /// `None` takes the property away. Only asked for what [`System::writable`] allows, and always with a text.
    fn set_system(&mut self, property: System, value: Option<String>);

    /// Replaces the property of that name, whatever its case; a new one is named as given.
    fn set_user(&mut self, name: &str, value: Value<'static>);

    fn remove_user(&mut self, name: &str);
}

/// Names of properties are the same if they differ only in case.
pub fn same_name(a: &str, b: &str) -> bool {
    a.eq_ignore_ascii_case(b)
        || (!(a.is_ascii() && b.is_ascii())
            && a.chars().flat_map(char::to_lowercase).eq(b.chars().flat_map(char::to_lowercase)))
}

/// Properties in plain maps: a view that holds everything itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Properties {
    pub system: BTreeMap<System, Value<'static>>,
    pub user: BTreeMap<String, Value<'static>>,
    pub key: Option<String>,
    pub document: Option<String>,
}

impl View for Properties {
    fn system(&self, property: System) -> Option<Value<'_>> {
        self.system.get(&property).cloned()
    }

    fn user(&self, name: &str) -> Option<Value<'_>> {
        let exact = self.user.get(name);
        exact.or_else(|| self.user.iter().find(|(known, _)| same_name(known, name)).map(|(_, value)| value)).cloned()
    }

    fn key(&self) -> Option<Cow<'_, str>> {
        self.key.as_deref().map(Cow::Borrowed)
    }

    fn document(&self) -> Option<Cow<'_, str>> {
        self.document.as_deref().map(Cow::Borrowed)
    }

    /// Derived from the message id, so that the same message gets the same ids.
    fn new_id(&self, nth: usize) -> String {
        let seed = self.system(System::MessageId).map_or_else(String::new, |id| id.to_string());
        uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, format!("{nth}#{seed}").as_bytes()).to_string()
    }
}

impl Change for Properties {
    fn set_system(&mut self, property: System, value: Option<String>) {
        match value {
            Some(text) => self.system.insert(property, Value::Text(Cow::Owned(text))),
            None => self.system.remove(&property),
        };
    }

    fn set_user(&mut self, name: &str, value: Value<'static>) {
        match self.user.iter_mut().find(|(known, _)| same_name(known, name)) {
            Some((_, held)) => *held = value,
            None => drop(self.user.insert(name.to_owned(), value)),
        }
    }

    fn remove_user(&mut self, name: &str) {
        self.user.retain(|known, _| !same_name(known, name));
    }
}
