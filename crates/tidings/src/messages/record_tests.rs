use serde_json::json;
use tidings_core::message::Input;
use tidings_core::retry::Policy;

use super::*;

fn message() -> Message {
    let object = |json: Json| json.as_object().unwrap().clone();
    let new = NewMessage {
        message_id: Uuid::from_u128(7),
        created_by: "rule:prod".to_owned(),
        stage: "dev",
        message_type: ALERT_NOTIFICATION,
        payload: object(json!({ "title": "T", "text": "x", "tags": ["a"], "n": 1.5 })),
        correlation_id: "c-1",
        channel: "webhook",
        target: object(json!({ "url": "https://h.example/" })),
        secret: Some(Secret::new("hush")),
        event_id: Some("e-1"),
        rule: Some("prod"),
        deliver_at: None,
        keep_seconds: 90 * 86_400,
    };
    Message::new(new, "2026-01-02T03:04:05.678Z".parse().unwrap())
}

// S002-03, S002-16, S002-17
#[test]
fn a_message_has_the_seeds_attributes_and_comes_back_whole() {
    let message = message();
    let item = message.to_item().unwrap();
    table("dev").check_item(&item).unwrap();
    assert_eq!(item.str("created_date"), Some("2026-01-02T03:04:05.678Z"));
    assert_eq!(item.str("status"), Some("created"));
    assert_eq!(item.int("ttl"), Some(message.created_date.as_second() + 90 * 86_400));
    assert_eq!(Message::from_item(&item).unwrap(), message);
    assert!(Message::from_item(&Item::new()).is_err());
}

/// Everything that a message may have, but for a secret.
fn full_message() -> Message {
    let at = |text: &str| text.parse().unwrap();
    let mut message = message();
    message.delivery.step(&Policy::default(), Input::TakenUp, at("2026-01-02T03:04:06.5Z")).unwrap();
    message.delivery.error_message = Some("503".to_owned());
    message.delivery.notification_id = Some("n".to_owned());
    message.recipients.insert("a@b".to_owned(), Recipient { delivered: true, detail: "250".to_owned() });
    let payload =
        json!({ "u": u64::MAX, "f": -1.5e-7, "l": [null, true, [{ "": "x" }], {}], "ü": { "b": 1, "c": [] } });
    message.payload = payload.as_object().unwrap().clone();
    message.payload.get_mut("l").unwrap()[2][0] = json!({ "y": "x" });
    Message {
        trace_id: Some("t".to_owned()),
        secret: None,
        deliver_at: at("2026-01-02T04:04:05.678Z"),
        retry_of: Some("r".to_owned()),
        queued_at: Some(at("2026-01-02T03:04:05.9Z")),
        processing_started_at: Some(at("2026-01-02T03:04:06Z")),
        processing_completed_at: Some(at("2026-01-02T03:04:07Z")),
        cancel_key: Some("k".to_owned()),
        put_off_by: Some("nights".to_owned()),
        lease: Some(Lease { owner: "me".to_owned(), until: at("2026-01-02T03:05:05.678Z") }),
        ..message
    }
}

#[test]
fn a_packed_message_is_the_same_item() {
    let table = table("dev");
    let fresh = Message { secret: None, ..message() };
    for message in [fresh.clone(), full_message()] {
        let (packed, item) = (message.packed(&table).unwrap(), message.to_item().unwrap());
        assert_eq!((packed.item().unwrap(), packed.size()), (item.clone(), table.checked_size(&item).unwrap()));
        assert_eq!(packed.str("message_id"), Some(message.message_id.as_str()));
    }
    assert!(message().packed(&table).is_none(), "its secret is for the vault to see");
    let sealed = Message { lost_secret: Some(vec![1]), ..fresh.clone() };
    assert!(sealed.packed(&table).is_none());
    let keyless = Message { message_type: String::new(), ..fresh };
    assert!(keyless.packed(&table).is_none(), "the table does not take it");
}

#[test]
fn json_is_stored_as_any_record_is() {
    let nested = json!({ "a": [1, -2.5, u64::MAX, "x", [], [{}], null, true], "b": { "": "y", "c": { "d": 0 } } });
    let Json::Object(fields) = &nested else { panic!("it is an object") };
    assert_eq!(stored(fields).unwrap(), Value::from_record(&nested).unwrap());
    let too_large = json!({ "n": [1e300] });
    assert!(too_large.as_object().is_some_and(|fields| stored(fields).is_err()), "as an item cannot hold it");
}

// S002-51
#[test]
fn a_leased_message_is_due_when_its_lease_ends() {
    let mut message = message();
    message.delivery.status = Status::Processing;
    let until = "2026-01-02T03:05:05.678Z".parse().unwrap();
    message.lease = Some(Lease { owner: "me".to_owned(), until });
    let item = message.to_item().unwrap();
    assert_eq!(item.str("next_attempt_at"), Some("2026-01-02T03:05:05.678Z"));
    assert_eq!(Message::from_item(&item).unwrap(), message);
}

// S002-18
#[test]
fn the_seeds_own_item_can_be_read() {
    let sample = json!({
        "message_id": "550e8400-e29b-41d4-a716-446655440000", "created_date": "2025-10-21T14:30:00.000Z",
        "created_by": "scheduler", "stage": "dev", "message_type": "scheduled_hello", "status": "completed",
        "payload": { "text": "hello world", "priority": "default", "tags": ["scheduled", "daily"] },
        "updated_date": "2025-10-21T14:30:15.000Z", "processing_started_at": "2025-10-21T14:30:05.000Z",
        "processing_completed_at": "2025-10-21T14:30:15.000Z", "retry_count": 0,
        "notification_id": "ntfy_abc123", "correlation_id": "660e9500-f39c-52e5-b827-557766551111",
        "ttl": 1_768_833_000,
    });
    let item = Item::from_record(&sample).unwrap();
    let written = Message::from_item(&item).unwrap().to_item().unwrap();
    for (name, value) in &item.0 {
        assert_eq!(written.get(name), Some(value), "{name}");
    }
}

#[test]
fn a_final_message_is_not_due_and_a_secret_is_not_shown() {
    let mut message = message();
    assert!(message.to_item().unwrap().get("due").is_some());
    message.delivery.status = Status::Completed;
    assert!(message.to_item().unwrap().get("due").is_none());
    assert!(!format!("{message:?}").contains("hush"));
    assert!((0..DUE_PARTS).any(|part| due_part("webhook", part) == message.due_part()));
}
