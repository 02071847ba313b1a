//! The four events at the door: judged the same however they come.

use serde_json::{Value, json};

use super::until;
use crate::support::{Answer, Client, TestServer};

const ID: &str = "33567ee8-f182-4f8a-b03e-2f1515915471";

// S003-07, S003-19, S003-45, S003-71
#[tokio::test]
async fn bad_payloads_are_refused_with_every_field() {
    let server = TestServer::start().await;
    let client = server.client();
    for (event_type, data, fields) in [
        ("InvoiceUploadedForProcessing", json!({}), vec!["data.invoiceId", "data.userProductId", "data.fileUrl"]),
        (
            "InvoiceUploadedForProcessing",
            json!({ "invoiceId": ID, "userProductId": "7", "fileUrl": "http://a.example/" }),
            vec!["data.userProductId", "data.fileUrl"],
        ),
        (
            "ServiceRequestStatusChanged",
            json!({ "oldStatus": 1 }),
            vec!["data.serviceRequestId", "data.userId", "data.newStatus", "data.oldStatus"],
        ),
        ("servicerequest.status.changed", json!({ "serviceRequestId": ID, "newStatus": "x" }), vec!["data.userId"]),
        ("OwnershipTransferExpired", json!({ "transferRequestId": "x" }), vec!["data.transferRequestId"]),
        (
            "CriticalActionOccurred",
            json!({ "userId": "me" }),
            vec!["data.actionType", "data.targetEntity", "data.targetEntityId", "data.userId"],
        ),
    ] {
        let event = json!({ "eventType": event_type, "data": data });
        assert_eq!(client.post("/events", &event).await.bad_fields(), fields, "{event}");
    }
    assert_eq!(client.stored().await, [""; 0]);
}

// S003-62, S003-63, S003-65
#[tokio::test]
async fn another_version_passes_and_what_is_unknown_is_kept() {
    let server = TestServer::start().await;
    let client = server.client();
    let later = json!({ "eventId": "v2", "eventType": "CriticalActionOccurred", "eventVersion": "2.0", "data": { "what": "else" } });
    client.send(&later).await;
    let more = json!({ "eventId": "v1", "eventType": "CriticalActionOccurred", "eventVersion": "1.4.2",
        "data": { "actionType": "login", "targetEntity": "user", "targetEntityId": "7", "device": { "os": "x" } } });
    client.send(&more).await;
    let stored = client.get("/events/v1").await.expect(200).json();
    assert_eq!(stored["data"], more["data"]);
    // In a batch the good ones pass.
    let batch = json!([later, { "eventType": "OwnershipTransferExpired" }, { "eventType": "other" }]);
    let answer = client.post("/events", &batch).await.expect(202).json();
    assert_eq!((&answer["duplicates"], &answer["rejected"], &answer["accepted"]), (&json!(1), &json!(1), &json!(1)));
    assert_eq!(answer["events"][1]["errors"][0]["field"], "data.transferRequestId");
}

const DOMAIN: &str = "/bus/domain-events-topic";
const SYSTEM: &str = "/bus/system-events-topic";
const BATCH: &str = "application/vnd.microsoft.servicebus.json";

/// Sends a message with these headers.
async fn put_on_bus(client: &Client, topic: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
    let headers = [&[("content-type", "application/json")], headers].concat();
    client.post_with(&format!("{topic}/messages"), &headers, body.to_string()).await
}

async fn counts(client: &Client, path: &str) -> Value {
    client.get(path).await.expect(200).json()["counts"].clone()
}

/// The ids of what waits in a subscription.
async fn waiting(client: &Client, path: &str) -> Vec<String> {
    let seen = client.get(&format!("{path}/peek?limit=100")).await.expect(200).json();
    seen["items"].as_array().unwrap().iter().map(|message| message["messageId"].as_str().unwrap().to_owned()).collect()
}

// Contract 7, S003-74: by whatever name and in whatever place a message says what it is.
#[tokio::test(flavor = "multi_thread")]
async fn on_the_bus_an_event_may_be_named_in_any_way() {
    let server = TestServer::start().await;
    let client = server.client();
    for (topic, names, data) in [
        (
            DOMAIN,
            ["ServiceRequestStatusChanged", "servicerequest.status.changed"],
            json!({ "serviceRequestId": ID, "userId": ID, "newStatus": "closed" }),
        ),
        (
            SYSTEM,
            ["CriticalActionOccurred", "audit.action.occurred"],
            json!({ "actionType": "login", "targetEntity": "door", "targetEntityId": "7" }),
        ),
    ] {
        let mut sent = 0;
        for name in names {
            let (label, quoted) = (json!({ "Label": name }).to_string(), format!("\"{name}\""));
            let elsewhere = json!({ "Label": "service-request/7" }).to_string();
            let envelope = json!({ "eventType": name, "data": data });
            for (headers, body) in [
                (vec![], &envelope),
                (vec![("brokerproperties", label.as_str())], &data),
                (vec![("eventType", quoted.as_str())], &data),
                (vec![("eventType", quoted.as_str()), ("brokerproperties", elsewhere.as_str())], &data),
                (vec![("brokerproperties", elsewhere.as_str())], &envelope),
                (vec![("brokerproperties", label.as_str()), ("eventType", "\"own\"")], &envelope),
            ] {
                let answer = put_on_bus(&client, topic, &headers, body).await.expect(201).json();
                assert_eq!(answer["messages"].as_array().unwrap().len(), 1, "{topic} {headers:?} {body}: {answer}");
                sent += 1;
            }
            let batch = json!([{ "Body": data.to_string(), "UserProperties": { "eventType": name } }]).to_string();
            client.post_as(&format!("{topic}/messages"), BATCH, batch).await.expect(201);
            sent += 1;
        }
        let (path, list) = match topic {
            DOMAIN => ("/api/messages?limit=100", "items"),
            _ => ("/audit-log?entity=door&limit=100", "items"),
        };
        until(&server, path, |seen| seen[list].as_array().unwrap().len() == sent).await;
    }
    // What says one thing outside and another inside would lead nowhere, and is told so.
    let data = json!({ "actionType": "login", "targetEntity": "door", "targetEntityId": "7" });
    let envelope = json!({ "eventType": "CriticalActionOccurred", "eventVersion": "1.0", "data": data });
    let answer = put_on_bus(&client, SYSTEM, &[("eventType", "\"own\"")], &envelope).await;
    assert_eq!(answer.bad_fields(), ["properties.eventType"]);
    let answer = put_on_bus(&client, SYSTEM, &[("eventVersion", "\"2.0\"")], &envelope).await;
    assert_eq!(answer.bad_fields(), ["eventVersion"]);
    // Others are none of our business.
    client.put(&format!("{SYSTEM}/subscriptions/own"), &json!({})).await.expect(201);
    put_on_bus(&client, SYSTEM, &[("eventType", "\"own\"")], &json!({ "x": 1 })).await.expect(201);
    let seen = client.get(&format!("{SYSTEM}/subscriptions/own/peek")).await.expect(200).json();
    assert_eq!(seen["items"][0]["properties"], json!({ "eventtype": "own" }));
}

// S003-64 to S003-66: another major version comes to those who want it, through both doors, and to nobody else.
#[tokio::test(flavor = "multi_thread")]
async fn another_version_is_for_others() {
    let server = TestServer::start().await;
    let client = server.client();
    let key = json!({ "Label": "audit.action.occurred" }).to_string();
    let label = ("brokerproperties", key.as_str());
    let (own, audit) = (format!("{SYSTEM}/subscriptions/v2"), format!("{SYSTEM}/subscriptions/auditing-sub"));
    client
        .put(&own, &json!({ "rules": [{ "name": "v2", "sql": "eventVersion LIKE '2.%' OR eventVersion = '2'" }] }))
        .await
        .expect(201);
    let (good, later) =
        (json!({ "actionType": "login", "targetEntity": "door", "targetEntityId": "7" }), json!({ "x": 1 }));
    let of = |id: &str, data: &Value| json!({ "eventId": id, "eventType": "CriticalActionOccurred", "eventVersion": "2.0", "data": data });
    for data in [&good, &later] {
        client.send(&json!({ "eventType": "CriticalActionOccurred", "eventVersion": "2.0", "data": data })).await;
        put_on_bus(&client, SYSTEM, &[], &of("e", data)).await.expect(201);
        put_on_bus(&client, SYSTEM, &[label], &of("e", data)).await.expect(201);
        // As properties, whose names lose their capitals on the way, and in batches keep them.
        for version in ["\"2.0\"", "2", "\"2\""] {
            put_on_bus(&client, SYSTEM, &[label, ("eventVersion", version)], data).await.expect(201);
        }
        let batch = json!([{ "Body": data.to_string(), "BrokerProperties": { "Label": "audit.action.occurred" },
            "UserProperties": { "eventVersion": "2.0" } }]);
        client.post_as(&format!("{SYSTEM}/messages"), BATCH, batch.to_string()).await.expect(201);
    }
    assert_eq!(waiting(&client, &own).await.len(), 14);
    // Ours are not among them, and theirs not among ours.
    for version in ["1", "1.0", "1.7.2"] {
        client.send(&json!({ "eventType": "CriticalActionOccurred", "eventVersion": version, "data": good })).await;
        put_on_bus(&client, SYSTEM, &[label, ("eventVersion", &format!("\"{version}\""))], &good).await.expect(201);
    }
    put_on_bus(&client, SYSTEM, &[label, ("eventVersion", "1")], &good).await.expect(201);
    until(&server, "/audit-log?entity=door", |log| log["items"].as_array().unwrap().len() == 7).await;
    until(&server, &audit, |seen| seen["counts"]["locked"] == 0).await;
    assert_eq!(waiting(&client, &own).await.len(), 14);
    let seen = counts(&client, &audit).await;
    assert_eq!(
        (&seen["active"], &seen["deadLettered"], &seen["incoming"]),
        (&json!(0), &json!(0), &json!(7)),
        "{seen}"
    );
    // What is no version is told so.
    for version in ["\"two\"", "\"\"", "true"] {
        let answer = put_on_bus(&client, SYSTEM, &[label, ("eventVersion", version)], &good).await;
        assert_eq!(answer.bad_fields(), ["eventVersion"], "{version}");
    }
    // A payload of our version is held to its fields, wherever the version stands.
    let answer = put_on_bus(&client, SYSTEM, &[label, ("eventVersion", "\"1.0\"")], &later).await;
    assert_eq!(answer.bad_fields(), ["data.actionType", "data.targetEntity", "data.targetEntityId"]);
}

/// So many levels of objects.
fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, _| json!({ "a": inner }))
}

// Contract 2 and 7: as deep on the bus as at `POST /events`, whether the envelope is sent or the payload alone.
#[tokio::test(flavor = "multi_thread")]
async fn the_depth_of_an_event_is_the_same_by_every_door() {
    let server = TestServer::start().await;
    let client = server.client();
    for (levels, good) in [(61, true), (62, true), (63, false), (64, false), (126, false), (200, false)] {
        let data = json!({ "actionType": "a", "targetEntity": "door", "targetEntityId": levels.to_string(),
            "changeDetails": nested(levels) });
        let event = json!({ "eventType": "CriticalActionOccurred", "data": data });
        let label = json!({ "Label": "audit.action.occurred" }).to_string();
        assert_eq!(client.post("/events", &event).await.status, if good { 202 } else { 400 }, "{levels}");
        for (headers, body) in [(vec![], &event), (vec![("brokerproperties", label.as_str())], &data)] {
            let answer = put_on_bus(&client, SYSTEM, &headers, body).await;
            if good {
                answer.expect(201);
            } else {
                let problem = answer.problem(400);
                assert!(problem.to_string().contains("nested deeper than 64 levels"), "{levels}: {problem}");
            }
        }
    }
}

// S003-01, contract 7: the configured sources are those of the bus, too.
#[tokio::test(flavor = "multi_thread")]
async fn only_the_configured_sources_send_business_events() {
    let server = TestServer::start_with(|config| config.limits.event_sources = vec!["shop".to_owned()]).await;
    let client = server.client();
    let data = json!({ "serviceRequestId": ID, "userId": ID, "newStatus": "closed" });
    let event = |source: Value| json!({ "eventType": "ServiceRequestStatusChanged", "source": source, "data": data });
    for source in [json!("other"), json!("Shop"), Value::Null] {
        let event = event(source);
        assert_eq!(client.post("/events", &event).await.bad_fields(), ["source"], "{event}");
        assert_eq!(put_on_bus(&client, DOMAIN, &[], &event).await.bad_fields(), ["source"], "{event}");
    }
    let label = ("brokerproperties", r#"{"Label":"servicerequest.status.changed"}"#);
    assert_eq!(put_on_bus(&client, DOMAIN, &[label], &data).await.bad_fields(), ["source"]);
    assert_eq!(put_on_bus(&client, DOMAIN, &[label, ("source", "\"other\"")], &data).await.bad_fields(), ["source"]);
    put_on_bus(&client, DOMAIN, &[], &event(json!("shop"))).await.expect(201);
    // Where the body is the payload alone, a property says it.
    put_on_bus(&client, DOMAIN, &[label, ("source", "\"shop\"")], &data).await.expect(201);
    // Others on the topic are nobody's business, and our own are not foreign.
    put_on_bus(&client, DOMAIN, &[("source", "\"other\"")], &json!({ "free": 1 })).await.expect(201);
    let request = client.post("/service-requests", &json!({ "userId": ID, "description": "x" })).await.expect(201);
    let path = request.header("location").to_owned();
    client.patch(&path, &json!({ "status": "closed" })).await.expect(200);
}
