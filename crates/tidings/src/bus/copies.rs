//! What a subscription's copy of a message may be: an action must not make more of it than a sender may send, or the store
//! refuses the transaction, and with it the copies of all others.

use serde_json::Value;

use super::message::{ADDRESS_CHARS, Message, PROPERTIES, TEXT_CHARS};
use super::send::{MESSAGE_BYTES, PROPERTY_BYTES, STORED_BYTES};

/// The property that names the rule whose action made a copy.
pub const RULE_NAME: &str = "RuleName";

/// Judges what an action made of a message. What it was before is no fault of the action, and the rule's name, which we
/// add ourselves, does not count. Names are judged when the rule is written.
///
/// # Errors
///
/// What there is too much of.
pub fn check_copy(copy: &Message, sent: &Message, rule: &str) -> Result<(), String> {
    for ((name, most, text), (.., before)) in texts(copy).into_iter().zip(texts(sent)) {
        let chars = text.map_or(0, |text| text.chars().count());
        if chars > most && text != before {
            return Err(format!("sys.{name} would have {chars} characters, at most {most} are allowed"));
        }
    }
    let ours = copy.properties.get(RULE_NAME).and_then(Value::as_str) == Some(rule);
    let count = copy.properties.len() - usize::from(ours);
    if count > PROPERTIES.max(sent.properties.len()) {
        return Err(format!("it would have {count} properties, at most {PROPERTIES} are allowed"));
    }
    let own = if ours { RULE_NAME.len() + rule.len() } else { 0 };
    let properties = copy.property_bytes() - own;
    if properties > PROPERTY_BYTES.max(sent.property_bytes()) {
        return Err(format!("its properties would have {properties} bytes, at most {PROPERTY_BYTES} are allowed"));
    }
    let bytes = properties + copy.body.len();
    if bytes > MESSAGE_BYTES.max(sent.property_bytes() + sent.body.len()) {
        return Err(format!("it would have {bytes} bytes with its properties, at most {MESSAGE_BYTES} are allowed"));
    }
    // Properties that need much escaping take more room than they have bytes; the quotes around our own, too.
    let stored = |message: &Message| {
        message.body.len() + serde_json::to_string(message).map_or(usize::MAX / 2, |head| head.len())
    };
    if stored(copy) > STORED_BYTES.max(stored(sent)) + own + QUOTES {
        return Err("its properties would take too much room in the store".to_owned());
    }
    Ok(())
}

/// What the rule's name takes in the store beside its bytes.
const QUOTES: usize = 32;

/// The broker's properties that an action can set, with their limits.
fn texts(message: &Message) -> [(&'static str, usize, Option<&str>); 9] {
    [
        ("MessageId", TEXT_CHARS, Some(message.id.as_str())),
        ("CorrelationId", TEXT_CHARS, message.correlation_id.as_deref()),
        ("Label", TEXT_CHARS, message.subject.as_deref()),
        ("SessionId", TEXT_CHARS, message.session_id.as_deref()),
        ("ReplyToSessionId", TEXT_CHARS, message.reply_to_session_id.as_deref()),
        ("PartitionKey", TEXT_CHARS, message.partition_key.as_deref()),
        ("ContentType", TEXT_CHARS, message.content_type.as_deref()),
        ("To", ADDRESS_CHARS, message.to.as_deref()),
        ("ReplyTo", ADDRESS_CHARS, message.reply_to.as_deref()),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn message(properties: BTreeMap<String, Value>) -> Message {
        Message { id: "m".to_owned(), properties, ..Message::default() }
    }

    fn many(count: usize) -> BTreeMap<String, Value> {
        (0..count).map(|n| (format!("p{n:03}"), Value::Null)).collect()
    }

    #[test]
    fn what_a_message_had_before_is_no_fault_of_the_action() {
        let long = "x".repeat(1000);
        let sent = Message { subject: Some(long.clone()), ..message(many(300)) };
        assert_eq!(check_copy(&sent, &sent, "r"), Ok(()));
        assert!(check_copy(&Message { subject: Some(format!("{long}x")), ..sent.clone() }, &sent, "r").is_err());
        assert!(check_copy(&Message { properties: many(301), ..sent.clone() }, &sent, "r").is_err());
        assert_eq!(check_copy(&Message { properties: many(2), ..sent.clone() }, &sent, "r"), Ok(()));
    }

    #[test]
    fn the_rules_name_does_not_count() {
        let sent = message(many(256));
        let with = |rule: &str| {
            let mut copy = sent.clone();
            copy.properties.insert(RULE_NAME.to_owned(), rule.into());
            copy
        };
        assert_eq!(check_copy(&with("r"), &sent, "r"), Ok(()));
        assert!(check_copy(&with("another"), &sent, "r").is_err());
        let body = bytes::Bytes::from(vec![b'x'; MESSAGE_BYTES - sent.property_bytes()]);
        let (sent, copy) = (Message { body: body.clone(), ..sent.clone() }, Message { body, ..with("r") });
        assert_eq!(check_copy(&copy, &sent, "r"), Ok(()));
    }
}
