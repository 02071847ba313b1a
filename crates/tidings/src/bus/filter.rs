//! Which messages of a topic a subscription takes, and what its rules make of them.

use std::borrow::Cow;
use std::collections::BTreeSet;

use tidings_core::envelope::FieldError;
use tidings_core::filter::{
    Change, Correlation, Filter, KeyPattern, SqlAction, SqlFilter, System, Value, View, same_name,
};
use tidings_core::pattern::Pattern;
use tidings_core::time::Timestamp;

use super::copies::{RULE_NAME, check_copy};
use super::definition::RuleDefinition;
use super::message::Message;

/// A rule, ready to be asked.
#[derive(Debug, Clone)]
pub struct Rule {
    name: String,
    filter: Filter,
    action: Option<SqlAction>,
}

/// Reads a rule's filter and action; every mistake is named.
pub fn compile(rule: &RuleDefinition) -> Result<Rule, Vec<FieldError>> {
    let mut errors = Vec::new();
    let given = [rule.sql.is_some(), rule.correlation.is_some(), rule.pattern.is_some(), rule.key.is_some()];
    if given.into_iter().filter(|given| *given).count() != 1 {
        errors.push(FieldError::new("", "needs exactly one of `sql`, `correlation`, `pattern` and `key`"));
    }
    let mut filter = Filter::All;
    if let Some(sql) = &rule.sql {
        match SqlFilter::parse(sql) {
            Ok(sql) => {
                errors.extend(too_early(sql.asks_for()).map(|why| FieldError::new("sql", why)));
                filter = Filter::Sql(sql);
            }
            Err(error) => errors.push(FieldError::new("sql", error.to_string())),
        }
    }
    if let Some(json) = &rule.correlation {
        match Correlation::from_json(json) {
            Ok(correlation) => filter = Filter::Correlation(correlation),
            Err(wrong) => errors.extend(wrong.into_iter().map(|error| {
                let dot = if error.field.is_empty() { "" } else { "." };
                FieldError::new(format!("correlation{dot}{}", error.field), error.message)
            })),
        }
    }
    if let Some(json) = &rule.pattern {
        match Pattern::parse(&json.to_string()) {
            Ok(pattern) => filter = Filter::Pattern(pattern),
            Err(error) => {
                let place = error.path.strip_prefix('$').unwrap_or(&error.path);
                errors.push(FieldError::new(format!("pattern{place}"), error.message));
            }
        }
    }
    if let Some(key) = &rule.key {
        match KeyPattern::parse(key) {
            // It would take nothing that anybody sends.
            Ok(_) if key.split('.').all(str::is_empty) => errors.push(FieldError::new("key", "must have words")),
            Ok(key) => filter = Filter::Key(key),
            Err(error) => errors.push(FieldError::new("key", error.to_string())),
        }
    }
    let action = match rule.action.as_deref().map(SqlAction::parse).transpose() {
        Ok(action) => {
            let asked = action.as_ref().map(SqlAction::asks_for).unwrap_or_default();
            errors.extend(too_early(asked).map(|why| FieldError::new("action", why)));
            action
        }
        Err(error) => {
            errors.push(FieldError::new("action", error.to_string()));
            None
        }
    };
    if errors.is_empty() { Ok(Rule { name: rule.name.clone(), filter, action }) } else { Err(errors) }
}

/// Properties that no message has when rules are asked: a copy gets them where it goes, if at all.
fn too_early(asked: BTreeSet<System>) -> Option<String> {
    let later = asked.into_iter().filter(|property| property.is_later());
    let names: Vec<_> = later.map(|property| format!("sys.{}", property.name())).collect();
    let why = "no message has that before a subscription has taken it";
    (!names.is_empty()).then(|| format!("asks for {}: {why}", names.join(", ")))
}

/// What a subscription makes of a message.
#[derive(Debug, Clone, PartialEq)]
pub enum Copy {
    /// A message for it.
    Take(Message),
    /// A rule could not be decided, or its action not done: it goes to the dead letters with this reason.
    Bury(Message, String),
}

/// The copies of a message that a subscription gets: one if any rule without an action takes it, and one more for each
/// rule with an action that does (S003-74). `sent`: when the message came.
#[must_use]
pub fn copies(rules: &[Rule], message: &Message, sent: Timestamp) -> Vec<Copy> {
    if rules.is_empty() {
        return vec![Copy::Take(message.clone())];
    }
    let mut copies = Vec::new();
    let (mut taken, mut failed) = (false, None);
    for rule in rules {
        match rule.filter.evaluate(&Seen { message, sent }) {
            Ok(false) => {}
            Err(error) => failed = failed.or(Some(format!("rule {}: {error}", rule.name))),
            Ok(true) => match &rule.action {
                None => taken = true,
                Some(action) => copies.push(with_action(rule, action, message, sent)),
            },
        }
    }
    if taken {
        copies.insert(0, Copy::Take(message.clone()));
    } else if let (Some(why), true) = (failed, copies.is_empty()) {
        copies.push(Copy::Bury(message.clone(), why));
    }
    copies
}

fn with_action(rule: &Rule, action: &SqlAction, message: &Message, sent: Timestamp) -> Copy {
    let mut edited = Edited { message: message.clone(), sent };
    edited.message.properties.insert(RULE_NAME.to_owned(), rule.name.clone().into());
    let done = action.apply(&mut edited).map_err(|error| error.to_string());
    match done.and_then(|()| check_copy(&edited.message, message, &rule.name)) {
        Ok(()) => Copy::Take(edited.message),
        Err(why) => Copy::Bury(message.clone(), format!("the action of rule {}: {why}", rule.name)),
    }
}

/// A message as filters see it.
struct Seen<'a> {
    message: &'a Message,
    sent: Timestamp,
}

/// A message as actions change it.
struct Edited {
    message: Message,
    sent: Timestamp,
}

impl Edited {
    const fn seen(&self) -> Seen<'_> {
        Seen { message: &self.message, sent: self.sent }
    }
}

/// A time as filters see it: in whole seconds, so that texts follow each other as the times do.
fn time(at: Timestamp) -> Value<'static> {
    Value::Text(Cow::Owned(Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()))
}

impl View for Seen<'_> {
    fn system(&self, property: System) -> Option<Value<'_>> {
        let message = self.message;
        let text = match property {
            System::MessageId => Some(&message.id),
            System::CorrelationId => message.correlation_id.as_ref(),
            System::To => message.to.as_ref(),
            System::ReplyTo => message.reply_to.as_ref(),
            System::Subject => message.subject.as_ref(),
            System::SessionId => message.session_id.as_ref(),
            System::ReplyToSessionId => message.reply_to_session_id.as_ref(),
            System::ContentType => message.content_type.as_ref(),
            System::PartitionKey => message.partition_key.as_ref(),
            System::TimeToLive => {
                return message.ttl.map(|ttl| Value::Integer(i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX)));
            }
            System::ScheduledEnqueueTimeUtc => {
                return message.deliver_at.map(time);
            }
            System::EnqueuedTimeUtc => {
                return Some(time(message.deliver_at.filter(|at| *at > self.sent).unwrap_or(self.sent)));
            }
            _ => None,
        };
        text.map(|text| Value::text(text))
    }

    /// As Service Bus has it.
    fn is_strict(&self) -> bool {
        true
    }

    fn user(&self, name: &str) -> Option<Value<'_>> {
        let properties = &self.message.properties;
        let exact = properties.get(name);
        let found = exact.or_else(|| properties.iter().find(|(known, _)| same_name(known, name)).map(|(_, json)| json));
        found.and_then(Value::from_json)
    }

    /// The subject, else the property `eventType` (S003-76).
    fn key(&self) -> Option<Cow<'_, str>> {
        // Over HTTP a property is a header, and has lost its capitals.
        let event_type = || {
            let named = self.message.properties.iter().find(|(name, _)| same_name(name, "eventType"));
            named.and_then(|(_, json)| json.as_str())
        };
        self.message.subject.as_deref().or_else(event_type).map(Cow::Borrowed)
    }

    fn document(&self) -> Option<Cow<'_, str>> {
        std::str::from_utf8(&self.message.body).ok().map(Cow::Borrowed)
    }

    fn new_id(&self, nth: usize) -> String {
        let seed = format!("{nth}#{}", self.message.id);
        uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, seed.as_bytes()).to_string()
    }
}

impl View for Edited {
    fn system(&self, property: System) -> Option<Value<'_>> {
        self.seen().system(property).map(Value::into_owned)
    }

    fn user(&self, name: &str) -> Option<Value<'_>> {
        self.seen().user(name).map(Value::into_owned)
    }

    fn key(&self) -> Option<Cow<'_, str>> {
        self.seen().key().map(|key| Cow::Owned(key.into_owned()))
    }

    fn document(&self) -> Option<Cow<'_, str>> {
        self.seen().document().map(|text| Cow::Owned(text.into_owned()))
    }

    fn new_id(&self, nth: usize) -> String {
        self.seen().new_id(nth)
    }
}

impl Change for Edited {
    fn set_system(&mut self, property: System, value: Option<String>) {
        let message = &mut self.message;
        let slot = match property {
            System::CorrelationId => &mut message.correlation_id,
            System::To => &mut message.to,
            System::ReplyTo => &mut message.reply_to,
            System::Subject => &mut message.subject,
            System::SessionId => &mut message.session_id,
            System::ReplyToSessionId => &mut message.reply_to_session_id,
            System::ContentType => &mut message.content_type,
            System::PartitionKey => &mut message.partition_key,
            System::MessageId => {
                if let Some(id) = value.filter(|id| !id.is_empty()) {
                    message.id = id;
                }
                return;
            }
            // A subscription does not schedule anew, as in Service Bus.
            _ => return,
        };
        *slot = value;
    }

    fn set_user(&mut self, name: &str, value: Value<'static>) {
        let properties = &mut self.message.properties;
        let known = properties.keys().find(|known| same_name(known, name)).cloned();
        properties.insert(known.unwrap_or_else(|| name.to_owned()), value.to_json());
    }

    fn remove_user(&mut self, name: &str) {
        self.message.properties.retain(|known, _| !same_name(known, name));
    }
}
