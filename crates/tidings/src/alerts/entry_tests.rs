use serde_json::{Value, json};

use super::*;

fn latest() -> Timestamp {
    "2026-03-14T09:35:00Z".parse().unwrap()
}

fn sample() -> Value {
    json!({
        "id": "2518;3f2c;5f0e", "correlationId": "5f0e9c2a", "actorCUID": "11111111-2222-4333-8444-555555555555",
        "actorUserId": "3f2c1d9e-aaaa-4bbb-8ccc-dddddddddddd", "actorClientId": ZERO,
        "actorUPN": "Ana@contoso.example", "actorDisplayName": "Ana Ruiz",
        "timestamp": "2026-03-14T09:26:53.5897932+00:00", "ipAddress": "203.0.113.7",
        "actionId": "Process.Field.Add", "area": "Process", "category": "create",
        "data": { "ProcessName": "Contoso Agile", "WorkItemTypeReferenceName": "ContosoAgile.UserStory",
                  "FieldReferenceName": "Custom.RiskScore" },
        "details": "Field \"Custom.RiskScore\" created.",
    })
}

fn read_value(value: &Value) -> Reading {
    read(&value.to_string(), &ProcessAlerts::default(), latest())
}

fn change(value: &Value) -> Change {
    match read_value(value) {
        Reading::Change(change) => *change,
        other => panic!("{other:?}"),
    }
}

fn errors(value: &Value) -> Vec<String> {
    match read_value(value) {
        Reading::Bad { errors, .. } => errors.into_iter().map(|error| error.field).collect(),
        other => panic!("{other:?}"),
    }
}

fn with(name: &str, value: impl Into<Value>) -> Value {
    let mut event = sample();
    event[name] = value.into();
    event
}

// S000-06 to S000-18
#[test]
fn an_event_is_read_by_its_fields() {
    let change = change(&sample());
    assert_eq!(change.at.as_second(), 1_773_480_413);
    assert_eq!(change.actor_id, "3f2c1d9e-aaaa-4bbb-8ccc-dddddddddddd");
    assert_eq!(change.process_name.as_deref(), Some("Contoso Agile"));
    assert_eq!(change.work_item_type.as_deref(), Some("ContosoAgile.UserStory"));
    assert_eq!(change.field_reference_name.as_deref(), Some("Custom.RiskScore"));
    assert_eq!((change.state_name, change.category), (None, Category::Create));
    assert!(change.identities.contains(&"Ana@contoso.example".to_owned()));
    assert!(!change.identities.contains(&ZERO.to_owned()));
}

// The Log Analytics table has other names for some, and capitals for all; its `Data` may be text.
#[test]
fn log_analytics_rows_are_read_as_well() {
    let row = json!({
        "Id": "1", "CorrelationId": "c", "ActorUserId": "u", "ActorUPN": "a@b.c", "ActorDisplayName": "A",
        "TimeGenerated": "2026-03-14T09:26:53Z", "IpAddress": "::1", "OperationName": "Process.State.Update",
        "Area": "Process", "Category": "Modify", "Details": "d", "Data": "{\"StateName\":\"Doing\"}",
    });
    let change = change(&row);
    assert_eq!((change.state_name.as_deref(), change.actor_ip.as_str()), (Some("Doing"), "::1"));
}

// S000-40: all of them, not only the first.
#[test]
fn every_failing_field_is_named() {
    assert_eq!(errors(&json!({})), ["actionId", "timestamp", "actorUserId", "actorDisplayName", "details"]);
    let bad = json!({ "actionId": 7, "timestamp": "soon", "actorUserId": " ", "actorDisplayName": [], "details": "",
                      "correlationId": 7, "AlertSent": "true" });
    let named = ["actionId", "correlationId", "timestamp", "actorUserId", "actorDisplayName", "details", "alertSent"];
    assert_eq!(errors(&bad), named);
    for text in ["[]", "3", "\"x\"", "{\"a\":", "{}x"] {
        assert!(matches!(read(text, &ProcessAlerts::default(), latest()), Reading::Bad { .. }), "{text}");
    }
}

// S000-35: whole seconds after 1970, at most as far ahead as allowed.
#[test]
fn times_are_checked_at_their_limits() {
    for (time, good) in [
        (json!(1), true),
        (json!(0), false),
        (json!(-1), false),
        (json!(1.5), false),
        (json!(1_773_480_900), true),
        (json!(1_773_480_901), false),
        (json!("2026-03-14T09:35:00Z"), true),
        (json!("2026-03-14T09:35:00.000001Z"), false),
        (json!("2026-03-14"), false),
        (json!(true), false),
        (json!("1773480900"), false),
    ] {
        let reading = read_value(&with("timestamp", time.clone()));
        assert_eq!(matches!(reading, Reading::Change(_)), good, "{time}: {reading:?}");
    }
}

// S000-09: services have no address, and an odd one is kept.
#[test]
fn an_address_never_refuses_an_event() {
    for (given, stored) in [
        (json!(null), "unknown"),
        (json!(""), "unknown"),
        (json!(7), "unknown"),
        (json!("10.0.0.1"), "10.0.0.1"),
        (json!("2001:db8::1"), "2001:db8::1"),
        (json!("behind a proxy"), "behind a proxy"),
    ] {
        assert_eq!(change(&with("ipAddress", given)).actor_ip, stored);
    }
}

// S000-36: blank is empty; a service principal's zero is not.
#[test]
fn the_actor_is_named_or_the_event_refused() {
    assert_eq!(errors(&with("actorUserId", "  ")), ["actorUserId"]);
    assert_eq!(errors(&with("actorUserId", json!(null))), ["actorUserId"]);
    let mut principal = with("actorUserId", ZERO);
    principal["actorClientId"] = "app-1".into();
    assert_eq!(change(&principal).actor_id, "app-1");
    assert_eq!(change(&with("actorId", "aad|12345-67890")).actor_id, "aad|12345-67890");
}

// S000-11, S000-37
#[test]
fn other_areas_are_ignored() {
    for (name, value) in [("actionId", "Git.RepositoryCreated"), ("actionId", "process.field.add"), ("area", "Git")] {
        assert!(matches!(read_value(&with(name, value)), Reading::Ignored { .. }), "{value}");
    }
    // New to us, and welcome.
    assert_eq!(change(&with("actionId", "Process.Theme.Paint")).action, "Process.Theme.Paint");
    // Even if the rest of it is not as we know it.
    assert!(matches!(read_value(&json!({ "actionId": "Git.Push" })), Reading::Ignored { .. }));
}

#[test]
fn long_texts_are_cut_for_their_attributes() {
    let long = change(&with("details", "ä".repeat(DETAILS_CHARS + 1)));
    assert_eq!(long.details.chars().count(), DETAILS_CHARS);
    assert_eq!(change(&with("details", "ä".repeat(DETAILS_CHARS))).details.chars().last(), Some('ä'));
    assert_eq!(errors(&with("correlationId", "x".repeat(CORRELATION_CHARS + 1))), ["correlationId"]);
    assert_eq!(errors(&with("actionId", format!("Process.{}", "x".repeat(NAME_CHARS)))), ["actionId"]);
}
