//! From a change of a table to the inboxes of whoever it concerns, end to end (S001-107).

use serde_json::{Value, json};

use super::{Rig, titles};
use crate::messages::deliver;

/// A record as Lambda has it, of a score.
fn score(id: &str, key: &str, old: Option<&str>, new: &str) -> Value {
    let image = |score: &str| {
        json!({
            "cod_chav_patc": { "S": "score#checkout" }, "cod_chav_filg": { "S": key }, "entity": { "S": "score" },
            "score": { "N": score }, "ok_questions": { "N": "3" }, "event_time": { "N": "1.23E+16" },
        })
    };
    let mut record = json!({
        "eventID": id, "eventName": "INSERT", "eventVersion": "1.1", "eventSource": "aws:dynamodb",
        "dynamodb": { "NewImage": image(new), "SequenceNumber": format!("44215845000000000174504{id:0>5}") },
    });
    if let Some(old) = old {
        record["eventName"] = json!("MODIFY");
        record["dynamodb"]["OldImage"] = image(old);
    }
    record
}

fn question(id: &str, old: Option<bool>, new: bool) -> Value {
    let image = |compliant: bool| {
        json!({
            "cod_chav_patc": { "S": "checkout" }, "cod_chav_filg": { "S": "PRRCON38#dev#LATEST" },
            "entity": { "S": "product" }, "compliant": { "BOOL": compliant }, "event_id": { "S": "h" },
        })
    };
    let mut record = json!({ "eventID": id, "eventName": "INSERT", "dynamodb": { "NewImage": image(new) } });
    if let Some(old) = old {
        record["eventName"] = json!("MODIFY");
        record["dynamodb"]["OldImage"] = image(old);
    }
    record
}

impl Rig {
    async fn take(&self, records: &[Value]) -> Value {
        self.client.post("/ingest/dynamodb-stream", &json!({ "Records": records })).await.expect(200).json()
    }

    /// A rig whose map has two groups of `checkout`, with one user in both, and others that are not concerned.
    async fn with_map() -> Self {
        let rig = Self::start().await;
        rig.map("checkout", "payments", &["u1", "u2"]).await;
        rig.map("checkout", "web", &["u2", "u3"]).await;
        rig.map("checkout2", "web", &["u4"]).await;
        rig.map("check", "web", &["u5"]).await;
        rig
    }

    async fn counts(&self) -> Vec<u64> {
        let mut counts = Vec::new();
        for user in ["u1", "u2", "u3", "u4", "u5"] {
            counts.push(self.unread(user).await);
        }
        counts
    }
}

// S001-01, S001-04, S001-47 to S001-51, S001-60, S001-62, S001-85
#[tokio::test]
async fn a_changed_score_tells_every_group_of_the_product_once() {
    let rig = Rig::with_map().await;
    let answer = rig.take(&[score("1", "DEV#ALL#LATEST", Some("24"), "30")]).await;
    assert_eq!(
        answer,
        json!({
            "batchItemFailures": [], "records": 1, "accepted": 1, "duplicates": 0, "rejected": 0, "filtered": 0,
            "errors": [],
        })
    );
    assert_eq!(rig.counts().await, [1, 1, 1, 0, 0]);
    let page = rig.page("user=u2&type=score&status=unread").await;
    let entry = &page["items"][0];
    for (field, value) in [
        ("user", json!("u2")),
        ("productid", json!("checkout")),
        ("question", Value::Null),
        ("type", json!("score")),
        ("event_type", json!("score")),
        ("old_score", json!(24)),
        ("new_score", json!(30)),
        ("compliance", Value::Null),
        ("env", json!("dev")),
        ("status", json!("unread")),
        ("title", json!("checkout scores 30 in dev")),
    ] {
        assert_eq!(entry[field], value, "{field}: {entry}");
    }
}

// S001-02, S001-03, S001-22, S001-61, S001-87
#[tokio::test]
async fn a_question_that_turns_pending_is_told_and_no_other_turn_is() {
    let rig = Rig::with_map().await;
    let silent = [
        question("1", Some(false), false),
        question("2", Some(true), true),
        question("3", Some(false), true),
        question("4", None, true),
    ];
    assert_eq!(rig.take(&silent).await["filtered"], 4);
    assert_eq!(rig.counts().await, [0; 5]);
    rig.take(&[question("5", Some(true), false)]).await;
    let entry = rig.page("user=u1&type=compliance").await["items"][0].clone();
    for (field, value) in [
        ("productid", json!("checkout")),
        ("question", json!("PRRCON38")),
        ("type", json!("compliance")),
        ("event_type", json!("question")),
        ("compliance", json!("pending")),
        ("env", json!("dev")),
        ("old_score", Value::Null),
    ] {
        assert_eq!(entry[field], value, "{field}: {entry}");
    }
    rig.take(&[question("6", None, false)]).await;
    assert_eq!(rig.counts().await, [2, 2, 2, 0, 0]);
}

// S001-05, S001-28, S001-29, S001-35, S001-36, S001-38
#[tokio::test]
async fn what_is_no_change_of_an_environments_score_tells_nobody() {
    let rig = Rig::with_map().await;
    let silent = [
        score("1", "DEV#ALL#LATEST", Some("24"), "24"),
        score("2", "DEV#ALL#LATEST", Some("24"), "24.0"),
        score("3", "ALE#ALL#LATEST", Some("24"), "30"),
        score("4", "DEV#REL#LATEST", Some("24"), "30"),
        score("5", "DEV#ALL#2026-01-01", Some("24"), "30"),
        score("6", "DEV#ALL#LATEST", None, "30"),
        json!({ "eventID": "7", "eventName": "REMOVE", "dynamodb": { "Keys": { "cod_chav_patc": { "S": "score#checkout" } } } }),
    ];
    let answer = rig.take(&silent).await;
    assert_eq!((&answer["accepted"], &answer["filtered"]), (&json!(7), &json!(7)), "{answer}");
    assert_eq!(rig.counts().await, [0; 5]);
    for (id, env) in ["DEV", "HOM", "PROD", "TOO"].into_iter().enumerate() {
        rig.take(&[score(&format!("e{id}"), &format!("{env}#ALL#LATEST"), Some("1"), "2")]).await;
    }
    let page = rig.page("user=u3").await;
    let mut envs: Vec<_> = page["items"].as_array().unwrap().iter().map(|e| e["env"].as_str().unwrap()).collect();
    envs.sort_unstable();
    assert_eq!(envs, ["dev", "hom", "prod", "too"]);
}

// S001-41, S001-49: in one batch or in two, by name or by what it says.
#[tokio::test]
async fn the_same_record_twice_is_told_once() {
    let rig = Rig::with_map().await;
    let record = score("1", "DEV#ALL#LATEST", Some("24"), "30");
    let answer = rig.take(&[record.clone(), record.clone()]).await;
    assert_eq!((&answer["accepted"], &answer["duplicates"]), (&json!(1), &json!(1)));
    assert_eq!(rig.take(&[record]).await["duplicates"], 1);
    assert_eq!(rig.counts().await, [1, 1, 1, 0, 0]);
    let mut nameless = question("x", Some(true), false);
    nameless.as_object_mut().unwrap().remove("eventID");
    rig.take(&[nameless.clone()]).await;
    assert_eq!(rig.take(&[nameless]).await["duplicates"], 1);
    assert_eq!(rig.counts().await, [2, 2, 2, 0, 0]);
}

// S001-16
#[tokio::test]
async fn plain_images_work_as_well() {
    let rig = Rig::with_map().await;
    let image = |score: u32| json!({ "cod_chav_patc": "score#checkout", "cod_chav_filg": "HOM#ALL#LATEST", "entity": "Score", "score": score });
    let record =
        json!({ "eventID": "1", "eventName": "MODIFY", "dynamodb": { "NewImage": image(5), "OldImage": image(4) } });
    rig.client.post("/ingest/dynamodb-stream", &json!([record])).await.expect(200);
    assert_eq!(titles(&rig.page("user=u1").await), ["checkout scores 5 in hom"]);
}

// S001-39: the good ones are taken, the bad one is named, kept and never in the way.
#[tokio::test]
async fn a_record_that_cannot_be_understood_is_named_and_kept() {
    let rig = Rig::with_map().await;
    let mut too = score("2", "TOO#ALL#LATEST", Some("24"), "30");
    too["dynamodb"]["NewImage"].as_object_mut().unwrap().remove("cod_chav_patc");
    let batch = [
        score("1", "DEV#ALL#LATEST", Some("24"), "30"),
        too.clone(),
        json!("x"),
        score("3", "HOM#ALL#LATEST", Some("1"), "2"),
    ];
    let answer = rig.take(&batch).await;
    assert_eq!((&answer["accepted"], &answer["rejected"]), (&json!(2), &json!(2)), "{answer}");
    assert_eq!(answer["batchItemFailures"], json!([]), "it is kept, and must not come again");
    assert_eq!(answer["errors"][0], json!({ "itemIdentifier": "2", "message": "cod_chav_patc is missing" }));
    assert_eq!(rig.counts().await, [2, 2, 2, 0, 0]);
    // By number, as Lambda's mapping wants it; kept once, however often it comes.
    let body = json!({ "Records": [too] });
    let answer = rig.client.post("/ingest/dynamodb-stream?identifier=SequenceNumber", &body).await.expect(200).json();
    assert_eq!(answer["errors"][0]["itemIdentifier"], "4421584500000000017450400002");
    assert_eq!((&answer["batchItemFailures"], &answer["rejected"]), (&json!([]), &json!(1)));
    let letters = rig.client.get("/dead-letters").await.expect(200).json();
    let reasons: Vec<_> = letters["items"].as_array().unwrap().iter().map(|l| l["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons.iter().filter(|reason| **reason == "2: cod_chav_patc is missing").count(), 1, "{letters}");
    let event = rig.client.get("/events/rejected-2").await.expect(200).json();
    assert_eq!((&event["eventType"], &event["data"]["record"]["eventID"]), (&json!("dynamodb.rejected"), &json!("2")));
    // Mended, it is taken.
    assert_eq!(rig.take(&[score("2", "TOO#ALL#LATEST", Some("24"), "30")]).await["accepted"], 1);
    assert_eq!(rig.counts().await, [3, 3, 3, 0, 0]);
}

// S001-39, SX-08: a record that was mended at the desk is taken in as if it had come so.
#[tokio::test]
async fn a_dead_record_is_sent_again_as_it_was_or_mended() {
    let rig = Rig::with_map().await;
    let good = score("2", "TOO#ALL#LATEST", Some("24"), "30");
    let mut bad = good.clone();
    bad["dynamodb"]["NewImage"].as_object_mut().unwrap().remove("cod_chav_patc");
    // A number that no item holds: kept as text, and no reason to fail for ever.
    let mut odd = score("7", "TOO#ALL#LATEST", Some("24"), "30");
    odd["eventName"] = json!(1e300);
    assert_eq!(rig.take(&[bad.clone(), odd]).await["rejected"], 2);
    let letters = rig.client.get("/dead-letters?channel=dynamodb-stream").await.expect(200).json();
    assert_eq!(letters["items"].as_array().unwrap().len(), 2, "{letters}");
    let letter = letters["items"].as_array().unwrap().iter().find(|l| l["payload"]["record"] == bad).unwrap();
    assert_eq!((&letter["message_type"], &letter["target"]), (&json!("stream_record"), &json!({})));
    let resubmit = |letter: &Value| format!("/dead-letters/{}/resubmit", letter["id"].as_str().unwrap());
    for (edit, field) in [
        (json!({ "payload": {} }), "payload.record"),
        (json!({ "payload": { "record": "x" } }), "payload.record"),
        (json!({ "target": { "to": "x" } }), "target."),
    ] {
        assert_eq!(rig.client.post(&resubmit(letter), &edit).await.bad_fields(), [field], "{edit}");
    }
    // As it was, it ends where it was.
    rig.client.post(&resubmit(letter), &json!({})).await.expect(201);
    deliver(&rig.server.services, "dynamodb-stream").await;
    let letters = rig.client.get("/dead-letters?channel=dynamodb-stream").await.expect(200).json();
    let letter = letters["items"].as_array().unwrap().iter().find(|l| l["payload"]["record"] == bad).unwrap();
    assert_eq!(letter["reason"], "cod_chav_patc is missing");
    let edit = json!({ "payload": { "record": good } });
    let message = rig.client.post(&resubmit(letter), &edit).await.expect(201).json();
    deliver(&rig.server.services, "dynamodb-stream").await;
    let message = rig.client.get(&format!("/api/messages/{}", message["message_id"].as_str().unwrap())).await.json();
    assert_eq!(message["status"], "completed", "{message}");
    assert_eq!(rig.counts().await, [1, 1, 1, 0, 0]);
    // The stream's own second copy changes nothing.
    assert_eq!(rig.take(&[good]).await["duplicates"], 1);
}

// S001-50
#[tokio::test]
async fn a_product_nobody_is_mapped_to_is_on_record() {
    let rig = Rig::start().await;
    rig.take(&[score("1", "DEV#ALL#LATEST", Some("24"), "30")]).await;
    let outcome = rig.client.get("/events/1").await.expect(200).json()["outcome"].clone();
    assert_eq!(outcome["no_recipients"], json!(["score-changed"]), "{outcome}");
}

// S001-13 to S001-15, S001-29, S001-48: the filters can be seen, changed, and switched off.
#[tokio::test]
async fn the_filters_are_rules() {
    let rig = Rig::with_map().await;
    let names = ["question-inserted-pending", "question-turned-pending", "score-changed"];
    for name in names {
        let rule = rig.client.get(&format!("/rules/{name}")).await.expect(200).json();
        assert_eq!((&rule["origin"], &rule["enabled"]), (&json!("builtin"), &json!(true)), "{rule}");
    }
    let mut rule = rig.client.get("/rules/score-changed").await.expect(200).json();
    // All pillars, and one support group alone.
    rule["pattern"]["data"].as_object_mut().unwrap().remove("pillar");
    rule["targets"][0]["map"]["groups"] = json!(["web"]);
    let answer = rig.client.put("/rules/score-changed", &rule).await;
    assert!([200, 201].contains(&answer.status), "{}", answer.text());
    rig.take(&[score("1", "DEV#REL#LATEST", Some("24"), "30")]).await;
    assert_eq!(rig.counts().await, [0, 1, 1, 0, 0]);
    rule["enabled"] = json!(false);
    rig.client.put("/rules/score-changed", &rule).await.expect(200);
    rig.take(&[score("2", "DEV#ALL#LATEST", Some("24"), "30")]).await;
    assert_eq!(rig.counts().await, [0, 1, 1, 0, 0]);
    // A pattern over typed values, as it stands in a FilterCriteria.
    let typed = json!({
        "pattern": { "data": { "eventName": ["INSERT"], "dynamodb": { "NewImage": { "entity": { "S": ["product"] }, "compliant": { "BOOL": [false] } } } } },
        "targets": [{ "channel": "inbox", "users": ["own"] }],
    });
    rig.client.put("/rules/own", &typed).await.expect(201);
    rig.take(&[question("3", None, false)]).await;
    assert_eq!(rig.unread("own").await, 1);
}

#[tokio::test]
async fn bodies_that_are_no_batch_are_refused() {
    let rig = Rig::start().await;
    for (body, fields) in
        [(json!({}), vec!["Records"]), (json!({ "Records": 1 }), vec!["Records"]), (json!(7), vec![""])]
    {
        assert_eq!(rig.client.post("/ingest/dynamodb-stream", &body).await.bad_fields(), fields, "{body}");
    }
    assert_eq!(rig.take(&[]).await["batchItemFailures"], json!([]));
    // SX-27
    let remove = |n: usize| json!({ "eventID": format!("r{n}"), "eventName": "REMOVE", "dynamodb": {} });
    for (count, status) in [(999, 200), (1000, 200), (1001, 413)] {
        let records: Vec<Value> = (0..count).map(remove).collect();
        let answer = rig.client.post("/ingest/dynamodb-stream", &json!({ "Records": records })).await;
        assert_eq!(answer.status, status, "{count}");
    }
    let answer = rig.client.post("/ingest/dynamodb-stream?identifier=x", &json!({ "Records": [] })).await;
    assert_eq!(answer.bad_fields(), ["identifier"]);
    rig.server
        .client_for(&["read"])
        .await
        .post("/ingest/dynamodb-stream", &json!({ "Records": [] }))
        .await
        .problem(403);
    rig.server
        .client_for(&["ingest"])
        .await
        .post("/ingest/dynamodb-stream", &json!({ "Records": [] }))
        .await
        .expect(200);
}

crate::support::on_dynamodb! {
    a_changed_score_tells_every_group_of_the_product_once,
}

// S001-35: DynamoDB's numbers have 38 digits; what a double cannot tell apart is still another score.
#[tokio::test]
async fn scores_are_compared_to_their_last_digit() {
    let rig = Rig::with_map().await;
    for (n, (was, is, told)) in [
        ("18446744073709551616", "18446744073709551617", true),
        ("0.3", "0.30000000000000000001", true),
        ("12345678901234567890123456789012345678", "12345678901234567890123456789012345679", true),
        ("18446744073709551617", "18446744073709551617.0", false),
        ("0.30", "3E-1", false),
        ("24", "24.0", false),
    ]
    .into_iter()
    .enumerate()
    {
        let before = rig.unread("u1").await;
        let answer = rig.take(&[score(&format!("n{n}"), "DEV#ALL#LATEST", Some(was), is)]).await;
        assert_eq!(answer["accepted"], 1, "{answer}");
        assert_eq!(rig.unread("u1").await - before, u64::from(told), "{was} {is}");
    }
    let shown = rig.client.get("/events/n1").await.expect(200).json();
    assert_eq!(
        (&shown["data"]["old_score"], &shown["data"]["new_score"]),
        (&json!(0.3), &json!("0.30000000000000000001"))
    );
}
