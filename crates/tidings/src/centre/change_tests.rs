//! Records as they come, and what they mean.

use serde_json::{Value, json};
use tidings_core::time::Timestamp;

use super::*;

fn data(record: &Value) -> Value {
    let now = Timestamp::from_second(1_700_000_000).unwrap();
    let envelope = Change::read(record).unwrap().envelope("c", now);
    serde_json::from_str(&envelope.data).unwrap()
}

fn reason(record: &Value) -> String {
    Change::read(record).unwrap_err().reason
}

fn question(compliant: &Value, old: Option<&Value>) -> Value {
    let image = |compliant: &Value| {
        json!({
            "cod_chav_patc": { "S": "sandboxsre" }, "cod_chav_filg": { "S": "PRRCON38#dev#LATEST" },
            "entity": { "S": "product" }, "compliant": compliant, "event_time": { "N": "123232321" },
        })
    };
    let mut dynamodb = json!({ "NewImage": image(compliant) });
    let mut name = "INSERT";
    if let Some(old) = old {
        dynamodb["OldImage"] = image(old);
        name = "MODIFY";
    }
    json!({ "eventID": "1", "eventName": name, "dynamodb": dynamodb })
}

fn score(key: &str, score: &str) -> Value {
    json!({ "eventName": "MODIFY", "dynamodb": { "NewImage": {
        "cod_chav_patc": { "S": "score#checkout" }, "cod_chav_filg": { "S": key }, "entity": { "S": "score" },
        "score": { "N": score },
    } } })
}

// S001-18 to S001-24
#[test]
fn a_question_is_read_from_its_keys() {
    let data = data(&question(&json!({ "BOOL": false }), Some(&json!({ "BOOL": true }))));
    for (field, value) in [
        ("product_id", json!("sandboxsre")),
        ("question", json!("PRRCON38")),
        ("env", json!("dev")),
        ("version", json!("LATEST")),
        ("compliance", json!(false)),
        ("old_compliance", json!(true)),
        ("event_type", json!("question")),
        ("stream_event", json!("update")),
        ("event_time", json!("1973-11-27T07:12:01.000Z")),
    ] {
        assert_eq!(data[field], value, "{field}");
    }
}

// S001-17, S001-22, S001-26, S001-27
#[test]
fn compliance_is_spelt_in_many_ways_and_an_insert_has_no_old_one() {
    for no in [json!({ "BOOL": false }), json!({ "S": "FALSE" }), json!({ "S": "false" }), json!(false), json!("False")]
    {
        let data = data(&question(&no, None));
        assert_eq!((&data["compliance"], data.get("old_compliance")), (&json!(false), None), "{no}");
        assert_eq!(data["stream_event"], "insert");
    }
    let mut aliased = question(&json!({ "NULL": true }), None);
    aliased["dynamodb"]["NewImage"]["compliance"] = json!({ "BOOL": true });
    assert_eq!(data(&aliased)["compliance"], true);
    for bad in [json!({ "S": "maybe" }), json!({ "N": "0" }), json!({ "L": [] })] {
        assert_eq!(reason(&question(&bad, None)), "compliant must be true or false", "{bad}");
    }
}

// S001-25: the case does not matter; a slip of the pen is another word.
#[test]
fn the_entity_is_compared_without_case() {
    let mut record = question(&json!({ "BOOL": false }), None);
    record["dynamodb"]["NewImage"]["entity"] = json!({ "S": "Product" });
    assert_eq!(data(&record)["entity"], "product");
    record["dynamodb"]["NewImage"]["entity"] = json!({ "S": "Prodcut" });
    assert_eq!((&data(&record)["entity"], data(&record).get("question")), (&json!("prodcut"), None));
}

// S001-30 to S001-38
#[test]
fn a_score_is_read_from_its_keys() {
    let mut record = score("DEV#ALL#LATEST", "30");
    record["dynamodb"]["OldImage"] = json!({ "score": { "N": "24.0" } });
    let data = data(&record);
    for (field, value) in [
        ("product_id", json!("checkout")),
        ("env", json!("dev")),
        ("pillar", json!("ALL")),
        ("old_score", json!(24)),
        ("new_score", json!(30)),
        ("event_type", json!("score")),
    ] {
        assert_eq!(data[field], value, "{field}");
    }
    assert_eq!((&data["old"], &data["new"]), (&json!({ "score": 24 }), &json!({ "score": 30 })));
    assert_eq!(
        super::super::image::Image::of(Some(&json!({ "score": 1.5 }))).unwrap().unwrap().number("score").unwrap(),
        Some(json!(1.5))
    );
}

// S001-16
#[test]
fn plain_images_mean_the_same_and_are_kept_typed() {
    let typed = question(&json!({ "BOOL": false }), None);
    let plain = json!({ "eventID": "1", "eventName": "INSERT", "dynamodb": { "NewImage": {
        "cod_chav_patc": "sandboxsre", "cod_chav_filg": "PRRCON38#dev#LATEST", "entity": "product", "compliant": false,
        "event_time": 123_232_321,
    } } });
    assert_eq!(data(&plain), data(&typed));
    let bare = json!({ "eventID": "1", "eventName": "INSERT", "NewImage": plain["dynamodb"]["NewImage"] });
    assert_eq!(data(&bare), data(&typed));
}

// S001-39
#[test]
fn what_cannot_be_understood_says_why() {
    let mut too = score("TOO#ALL#LATEST", "24");
    too["dynamodb"]["NewImage"].as_object_mut().unwrap().remove("cod_chav_patc");
    assert_eq!(reason(&too), "cod_chav_patc is missing");
    // The key may stand beside the image.
    too["dynamodb"]["Keys"] = json!({ "cod_chav_patc": { "S": "score#p" } });
    assert_eq!(data(&too)["product_id"], "p");
    for (record, why) in [
        (json!(7), "a record must be an object"),
        (json!({}), "eventName is missing"),
        (json!({ "eventName": "DROP" }), "eventName must be INSERT, MODIFY or REMOVE"),
        (json!({ "eventName": "INSERT", "dynamodb": [] }), "dynamodb must be an object"),
        (json!({ "eventName": "INSERT", "dynamodb": { "NewImage": 1 } }), "NewImage must be an object"),
        (
            json!({ "eventName": "INSERT", "dynamodb": {} }),
            "NewImage is missing: the stream must have new and old images (INSERT)",
        ),
        (score("DEV", "1"), "cod_chav_filg must be ENVIRONMENT#PILLAR#…"),
        (score("DEV#ALL#LATEST", "many"), "score must be a number"),
        (score("DEV#ALL#LATEST", ""), "score must be a number"),
    ] {
        assert_eq!(reason(&record), why, "{record}");
    }
    let mut odd = score("DEV#ALL#LATEST", "1");
    odd["dynamodb"]["NewImage"]["cod_chav_patc"] = json!({ "S": "checkout" });
    assert_eq!(reason(&odd), "cod_chav_patc must be score#PRODUCT");
    // What is removed needs no meaning.
    assert_eq!(data(&json!({ "eventName": "REMOVE", "dynamodb": {} }))["eventName"], "REMOVE");
}

// S001-40
#[test]
fn the_time_is_the_streams_else_the_items_by_its_magnitude() {
    let now = Timestamp::from_second(1_700_000_000).unwrap();
    let at = |record: &Value| Change::read(record).unwrap().envelope("c", now).event_timestamp.to_string();
    let mut record = score("DEV#ALL#LATEST", "1");
    assert_eq!(at(&record), now.to_string());
    for (text, expected) in [
        ("1773480413", "2026-03-14T09:26:53Z"),
        ("1773480413123", "2026-03-14T09:26:53.123Z"),
        ("1773480413123456", "2026-03-14T09:26:53.123456Z"),
        ("1773480413123456789", "2026-03-14T09:26:53.123456789Z"),
        ("1.773480413E+9", "2026-03-14T09:26:53Z"),
    ] {
        record["dynamodb"]["NewImage"]["event_time"] = json!({ "N": text });
        assert_eq!(at(&record), expected, "{text}");
    }
    record["dynamodb"]["ApproximateCreationDateTime"] = json!(1_773_480_414.5);
    assert_eq!(at(&record), "2026-03-14T09:26:54.5Z");
}

// S001-41
#[test]
fn a_record_has_one_name() {
    let record = question(&json!({ "BOOL": false }), None);
    assert_eq!(id_of(&record), "1");
    let mut nameless = record.clone();
    nameless.as_object_mut().unwrap().remove("eventID");
    assert_eq!(id_of(&nameless), id_of(&nameless.clone()));
    nameless["dynamodb"]["NewImage"]["event_id"] = json!({ "S": "some_hash" });
    assert!(id_of(&nameless).starts_with("some_hash-"), "{}", id_of(&nameless));
    let mut other = nameless.clone();
    other["dynamodb"]["NewImage"]["pillar"] = json!({ "S": "REL" });
    assert_ne!(id_of(&nameless), id_of(&other));
    let arn = json!("arn:aws:dynamodb:us-east-1:123456789012:table/product_score/stream/2026-03-14T00:00:00.000");
    let mut named = record.clone();
    named["eventSourceARN"] = arn;
    assert_eq!(Change::read(&named).unwrap().source, "dynamodb/product_score");
}

#[test]
fn what_is_too_large_to_be_kept_keeps_its_meaning() {
    let mut record = score("DEV#ALL#LATEST", "30");
    record["dynamodb"]["NewImage"]["padding"] = json!({ "S": "x".repeat(400_000) });
    let data = data(&record);
    assert_eq!((&data["new_score"], &data["dynamodb"]), (&json!(30), &json!({ "left_out": "too large" })));
}
