//! `POST /events` with CloudEvents 1.0 in their three modes.

use serde_json::{Value, json};

use crate::support::{Answer, Client, TestServer};

const STRUCTURED: &str = "application/cloudevents+json";
const BATCH: &str = "application/cloudevents-batch+json";
const BINARY: [(&str, &str); 4] =
    [("ce-specversion", "1.0"), ("ce-id", "e"), ("ce-source", "/shop"), ("ce-type", "order.made")];

async fn stored(client: &Client, id: &str) -> Value {
    client.get(&format!("/events/{id}")).await.expect(200).json()
}

async fn binary(client: &Client, more: &[(&str, &str)], body: &'static [u8]) -> Answer {
    let headers: Vec<_> = BINARY.into_iter().chain(more.iter().copied()).collect();
    client.post_with("/events", &headers, body).await
}

// S003-56
#[tokio::test]
async fn a_structured_cloudevent_becomes_an_envelope() {
    let server = TestServer::start().await;
    let event = json!({ "specversion": "1.0", "id": "e", "source": "/shop", "type": "order.made", "subject": "o-1",
        "time": "2026-02-01T00:00:00Z", "datacontenttype": "application/json", "correlationid": "c",
        "eventversion": "2.0", "tenant": "x", "data": { "n": 1 } });
    let answer = server.client().post_as("/events", STRUCTURED, event.to_string()).await.expect(202).json();
    assert_eq!(answer["events"], json!([{ "eventId": "e", "correlationId": "c", "status": "accepted" }]));
    let stored = stored(&server.client(), "e").await;
    for (name, value) in [
        ("eventType", json!("order.made")),
        ("eventVersion", json!("2.0")),
        ("eventTimestamp", json!("2026-02-01T00:00:00.000000Z")),
        ("source", json!("/shop")),
        ("subject", json!("o-1")),
        ("data", json!({ "n": 1 })),
        ("tenant", json!("x")),
        ("datacontenttype", json!("application/json")),
    ] {
        assert_eq!(stored[name], value, "{name}");
    }
}

// S003-56
#[tokio::test]
async fn a_batch_of_cloudevents_accepts_the_good_and_names_the_bad() {
    let server = TestServer::start().await;
    let event = |id: &str| json!({ "specversion": "1.0", "id": id, "source": "s", "type": "t" });
    let batch = json!([event("1"), { "specversion": "1.0", "id": "2" }, event("3"), event("1")]);
    let answer = server.client().post_as("/events", BATCH, batch.to_string()).await.expect(202).json();
    let statuses: Vec<_> = answer["events"].as_array().unwrap().iter().map(|event| event["status"].clone()).collect();
    assert_eq!(statuses, ["accepted", "rejected", "accepted", "duplicate"]);
    let fields: Vec<_> =
        answer["events"][1]["errors"].as_array().unwrap().iter().map(|error| error["field"].clone()).collect();
    assert_eq!(fields, ["source", "type"]);
    server.client().post_as("/events", BATCH, event("4").to_string()).await.problem(400);
    server.client().post_as("/events", STRUCTURED, json!([event("4")]).to_string()).await.problem(400);
    assert_eq!(server.client().stored().await.len(), 2);
}

// SX-24: in the sender's own words.
#[tokio::test]
async fn a_wrong_cloudevent_is_refused_in_cloudevents_words() {
    let server = TestServer::start().await;
    let event = json!({ "specversion": "0.3", "type": "", "time": "soon", "source": 7, "correlationid": [] });
    let answer = server.client().post_as("/events", STRUCTURED, event.to_string()).await;
    assert_eq!(answer.bad_fields(), ["specversion", "id", "type", "time", "correlationid", "source"]);
    assert!(server.client().stored().await.is_empty());
}

// S003-56: an attribute cannot pass for a field of the envelope.
#[tokio::test]
async fn an_attribute_named_like_a_field_of_the_envelope_does_not_take_its_place() {
    let server = TestServer::start().await;
    for name in ["eventId", "eventType", "correlationId", "eventTimestamp", "eventVersion"] {
        let mut event = json!({ "specversion": "1.0", "id": "real", "source": "s", "type": "t" });
        event[name] = json!("forged");
        let answer = server.client().post_as("/events", STRUCTURED, event.to_string()).await;
        assert_eq!(answer.bad_fields(), [name]);
    }
    assert!(server.client().stored().await.is_empty());
}

// S003-56: data that is no object is kept in one.
#[tokio::test]
async fn data_of_every_kind_is_kept() {
    let server = TestServer::start().await;
    let cases = [
        (json!({ "data": [1, "a"] }), json!({ "value": [1, "a"] })),
        (json!({ "data": "text" }), json!({ "value": "text" })),
        (json!({ "data": 7 }), json!({ "value": 7 })),
        (json!({ "data": null }), json!({})),
        (json!({}), json!({})),
        (json!({ "data_base64": "AAEC" }), json!({ "base64": "AAEC" })),
    ];
    for (place, (given, kept)) in cases.into_iter().enumerate() {
        let mut event = json!({ "specversion": "1.0", "id": place.to_string(), "source": "s", "type": "t" });
        event.as_object_mut().unwrap().extend(given.as_object().unwrap().clone());
        server.client().post_as("/events", STRUCTURED, event.to_string()).await.expect(202);
        assert_eq!(stored(&server.client(), &place.to_string()).await["data"], kept, "{given}");
    }
}

// S003-56
#[tokio::test]
async fn binary_mode_takes_attributes_from_headers_and_data_from_the_body() {
    let server = TestServer::start().await;
    let more = [
        ("content-type", "application/json; charset=utf-8"),
        ("ce-subject", "B%C3%BCcher%20%22a%25b%22"),
        ("ce-time", "2026-02-01T00:00:00+01:00"),
        ("CE-Tenant", "x"),
    ];
    binary(&server.client(), &more, br#"{"n": 1.50}"#).await.expect(202);
    let text = server.client().get("/events/e").await.expect(200).text();
    assert!(text.contains(r#""data":{"n": 1.50}"#), "{text}");
    let stored: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(stored["subject"], "Bücher \"a%b\"");
    assert_eq!(stored["eventTimestamp"], "2026-01-31T23:00:00.000000Z");
    assert_eq!((&stored["source"], &stored["eventType"]), (&json!("/shop"), &json!("order.made")));
    assert_eq!((&stored["tenant"], &stored["datacontenttype"]), (&json!("x"), &json!("application/json")));
}

// S003-56
#[tokio::test]
async fn binary_mode_keeps_data_that_is_no_json_object() {
    let cases: [(&str, &'static [u8], Value); 8] = [
        ("application/json", b"[1,2]", json!({ "value": [1, 2] })),
        ("text/plain", b"{not json", json!({ "value": "{not json" })),
        ("application/octet-stream", &[0xff, 0x00, 0x01], json!({ "base64": "/wAB" })),
        // It is no text although it could be.
        ("application/octet-stream", b"abc", json!({ "base64": "YWJj" })),
        ("text/plain", &[0xff, 0x00, 0x01], json!({ "base64": "/wAB" })),
        ("application/soap+xml", b"<a/>", json!({ "value": "<a/>" })),
        ("application/vnd.shop+json", b"{\"a\":1}", json!({ "a": 1 })),
        ("application/json", b"", json!({})),
    ];
    for (content_type, body, kept) in cases {
        let server = TestServer::start().await;
        binary(&server.client(), &[("content-type", content_type)], body).await.expect(202);
        assert_eq!(stored(&server.client(), "e").await["data"], kept, "{content_type}");
    }
}

#[tokio::test]
async fn binary_mode_refuses_what_is_wrong() {
    let server = TestServer::start().await;
    let client = server.client();
    let json = ("content-type", "application/json");
    binary(&client, &[json], b"{broken").await.problem(400);
    for value in ["%zz", "%ff", "%"] {
        let answer = binary(&client, &[json, ("ce-subject", value)], b"{}").await;
        assert_eq!(answer.bad_fields(), ["ce-subject"], "{value}");
    }
    let answer = client.post_with("/events", &[json, ("ce-specversion", "1.0")], "{}").await;
    assert_eq!(answer.bad_fields(), ["id", "source", "type"]);
    let answer = client.post_with("/events", &[json, ("ce-id", "1")], "{}").await;
    assert_eq!(answer.bad_fields(), ["specversion", "source", "type"]);
    // A control character cannot hide in its encoding.
    let answer = binary(&client, &[json, ("ce-subject", "a%0Ab")], b"{}").await;
    assert_eq!(answer.bad_fields(), ["subject"]);
    // The body is the data; a header does not stand beside it.
    assert_eq!(binary(&client, &[json, ("ce-data", "x")], b"{}").await.bad_fields(), ["ce-data"]);
    assert!(client.stored().await.is_empty());
}

// S003-56: a value may stand in quotes, of which it is freed before it is decoded (HTTP binding, 3.1.3.2).
#[tokio::test]
async fn binary_mode_takes_values_out_of_their_quotes() {
    let server = TestServer::start().await;
    let client = server.client();
    let cases = [
        (r#""in quotes""#, "in quotes"),
        (r#""a \"b\" \\ c%20d""#, r#"a "b" \ c d"#),
        ("%22kept%22", "\"kept\""),
        (r#""%22kept%22""#, "\"kept\""),
        (r#"a "b""#, r#"a "b""#),
        (r#""open"#, r#""open"#),
        (r#""a" "b""#, r#""a" "b""#),
    ];
    for (place, (given, kept)) in cases.into_iter().enumerate() {
        let id = place.to_string();
        let headers = [&BINARY[..1], &BINARY[2..], &[("ce-id", id.as_str()), ("ce-subject", given)]].concat();
        client.post_with("/events", &headers, "").await.expect(202);
        assert_eq!(stored(&client, &id).await["subject"], kept, "{given}");
    }
    // Which of two would be meant, nobody knows.
    let answer = binary(&client, &[("ce-id", "other")], b"").await;
    assert_eq!(answer.bad_fields(), ["ce-id"]);
}

// S003-56: an empty batch is one, and an empty array of envelopes is a mistake.
#[tokio::test]
async fn an_empty_batch_is_taken() {
    let server = TestServer::start().await;
    let answer = server.client().post_as("/events", BATCH, "[]").await.expect(202).json();
    assert_eq!(answer, json!({ "accepted": 0, "duplicates": 0, "rejected": 0, "events": [] }));
    server.client().post_as("/events", "application/json", "[]").await.problem(400);
}

// SX-02: data stands deeper in the envelope than in the request, and 64 levels are counted in the envelope.
#[tokio::test]
async fn the_depth_of_the_envelope_counts_whatever_the_mode() {
    let server = TestServer::start().await;
    let client = server.client();
    let rule =
        json!({ "pattern": { "eventType": ["order.made"] }, "targets": [{ "channel": "inbox", "users": ["a"] }] });
    client.put("/rules/r", &rule).await.expect(201);
    let nested = |open: &str, levels: usize, close: &str| format!("{}1{}", open.repeat(levels), close.repeat(levels));
    for (open, close, most) in [(r#"{"a":"#, "}", 63), ("[", "]", 62)] {
        for levels in [most - 1, most, most + 1, most + 2] {
            let (data, good) = (nested(open, levels, close), levels <= most);
            for mode in ["binary", "structured", "batch"] {
                // One level of a batch is the batch.
                let good = good && (mode != "batch" || levels < 63);
                let id = format!("{mode}-{levels}-{}", close.len() + usize::from(open == "["));
                let event =
                    format!(r#"{{"specversion":"1.0","id":"{id}","source":"/s","type":"order.made","data":{data}}}"#);
                let answer = match mode {
                    "structured" => client.post_as("/events", STRUCTURED, event).await,
                    "batch" => client.post_as("/events", BATCH, format!("[{event}]")).await,
                    _ => {
                        let headers = [&BINARY[..1], &BINARY[2..], &[("ce-id", id.as_str())]].concat();
                        let headers = [headers, vec![("content-type", "application/json")]].concat();
                        client.post_with("/events", &headers, data.clone()).await
                    }
                };
                if good {
                    answer.expect(202);
                    let rules = stored(&client, &id).await["outcome"]["rules"].clone();
                    assert_eq!(rules[0]["name"], "r", "{id}");
                } else {
                    answer.problem(400);
                    client.get(&format!("/events/{id}")).await.problem(404);
                }
            }
        }
    }
}
