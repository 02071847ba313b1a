use serde_json::json;
use tidings_core::filter::limits::{MAX_CORRELATED, MAX_NAME_CHARS};
use tidings_core::filter::{Correlation, Filter};

use super::message;

// S003-74
#[test]
fn all_must_be_equal() {
    let full = r#"{"sys.CorrelationId":"c","sys.MessageId":"m","sys.To":"t","sys.ReplyTo":"r","sys.Label":"l","sys.SessionId":"s",
        "sys.ReplyToSessionId":"rs","sys.ContentType":"ct","eventType":"audit.action.occurred","n":7,"urgent":true}"#;
    let rows = [
        (json!({"correlationId":"c"}), full, true),
        (json!({"CorrelationId":"c","messageId":"m","to":"t","replyTo":"r"}), full, true),
        (json!({"subject":"l","sessionId":"s","replyToSessionId":"rs","contentType":"ct"}), full, true),
        (json!({"label":"l"}), full, true),
        (json!({"Label":"L"}), full, false),
        (json!({"correlationId":"c","to":"other"}), full, false),
        (json!({"correlationId":"c"}), "{}", false),
        (json!({"correlationId":""}), "{}", false),
        (json!({"eventType":"audit.action.occurred"}), full, true),
        (json!({"EVENTTYPE":"audit.action.occurred"}), full, true),
        (json!({"eventType":"AUDIT.action.occurred"}), full, false),
        (json!({"properties":{"eventType":"audit.action.occurred","n":7,"urgent":true}}), full, true),
        (json!({"properties":{"n":7.0}}), full, true),
        (json!({"properties":{"n":"7"}}), full, false),
        (json!({"properties":{"n":8}}), full, false),
        (json!({"properties":{"urgent":false}}), full, false),
        (json!({"properties":{"missing":"x"}}), full, false),
        (json!({"properties":{"to":"t"}}), full, false),
        (json!({"properties":{"to":"t"}}), r#"{"to":"t"}"#, true),
        (json!({"to":"t"}), r#"{"to":"t"}"#, false),
        (json!({"properties":{"x":"null"}}), r#"{"x":null}"#, false),
    ];
    for (filter, json, expected) in rows {
        let parsed = Correlation::from_json(&filter).unwrap_or_else(|errors| panic!("{filter}: {errors:?}"));
        assert_eq!(Filter::Correlation(parsed).matches(&message(json)), expected, "{filter} on {json}");
    }
}

#[test]
fn every_fault_is_named() {
    let rows = [
        (json!("x"), vec![": must be an object of properties and the values they must have"]),
        (json!({}), vec![": must ask for at least one property"]),
        (json!({"properties":{}}), vec![": must ask for at least one property"]),
        (json!({"properties":[]}), vec!["properties: must be an object"]),
        (
            json!({"correlationId":1,"subject":"a","tag":null,"properties":{"x":[],"y":{}}}),
            vec![
                "correlationId: must be a string",
                "properties.x: must be a string, a number or a boolean",
                "properties.y: must be a string, a number or a boolean",
                "tag: must be a string, a number or a boolean",
            ],
        ),
        (json!({"label":"a","subject":"b"}), vec!["subject: asks a second time for Label"]),
        (
            json!({"a":1,"properties":{"A":2}}),
            vec!["properties.A: asks a second time for the same property; case does not count in names"],
        ),
        (json!({"properties":{"":1}}), vec!["properties.: a name has 1 to 128 characters"]),
    ];
    for (filter, expected) in rows {
        let errors = Correlation::from_json(&filter).err().unwrap_or_else(|| panic!("accepted: {filter}"));
        let told: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(told, expected, "{filter}");
    }
}

#[test]
fn limits() {
    let of = |count: usize| {
        let user: serde_json::Map<_, _> = (0..count).map(|i| (format!("p{i}"), json!(i))).collect();
        Correlation::from_json(&json!({ "properties": user }))
    };
    assert!(of(MAX_CORRELATED - 1).is_ok());
    assert!(of(MAX_CORRELATED).is_ok());
    assert_eq!(of(MAX_CORRELATED + 1).unwrap_err()[0].message, "asks for 65 properties, more than 64");
    let named = |chars: usize| Correlation::from_json(&json!({ "properties": {"n".repeat(chars): 1} }));
    assert!(named(MAX_NAME_CHARS).is_ok());
    assert!(named(MAX_NAME_CHARS + 1).is_err());
}
