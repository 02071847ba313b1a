//! `/api/messages`: every behaviour, good and bad, at its limits.

use serde_json::{Value, json};

use super::{answering, hello, id_of, look, make, published};
use crate::support::{TestServer, server};

async fn quiet_server() -> TestServer {
    TestServer::start_with(|config| config.delivery.enabled = false).await
}

// S002-02 to S002-17, S002-30, S002-39, S002-77, S002-78, S002-80: what was answered is there at once, by id and in lists.
#[tokio::test]
async fn a_message_has_the_seeds_attributes() {
    let server = quiet_server().await;
    let body = json!({ "message_type": "manual_notification", "unknown": 1, "payload": { "text": "hi", "title": "T",
        "priority": "high", "tags": ["a"], "click_url": "https://example.com", "extra": { "kept": true } } });
    let headers = [("content-type", "application/json"), ("x-correlation-id", "c-1")];
    let answer = server.client().post_with("/api/messages", &headers, body.to_string()).await.expect(201);
    let made = answer.json();
    assert_eq!(answer.header("location"), format!("/api/messages/{}", id_of(&made)));
    assert_eq!(made["created_date"], "2026-03-01T12:00:00.000Z");
    assert_eq!(made["updated_date"], made["created_date"]);
    assert_eq!((&made["stage"], &made["status"], &made["retry_count"]), (&json!("dev"), &json!("created"), &json!(0)));
    assert_eq!(made["created_by"], "user:first administrator");
    assert_eq!(made["correlation_id"], "c-1");
    assert_eq!(made["payload"], body["payload"]);
    let created: jiff::Timestamp = server::START.parse().unwrap();
    assert_eq!(made["ttl"], created.as_second() + 90 * 86_400);
    for absent in ["processing_started_at", "processing_completed_at", "error_message", "notification_id"] {
        assert_eq!(made.get(absent), None, "{absent}");
    }
    assert_eq!(look(&server.client(), &made).await, made);
    assert_eq!(server.client().get("/api/messages").await.expect(200).json()["items"], json!([made]));
    assert_eq!(made["schema_version"], "1.0");
}

// S002-04: from the credential, not from the body.
#[tokio::test]
async fn a_token_without_a_name_signs_with_its_id() {
    let server = quiet_server().await;
    let made = server.client().post("/tokens", &json!({ "scopes": ["ingest"] })).await.expect(201).json();
    let client = server.client_with(made["token"].as_str().unwrap());
    let mut body = hello();
    body["created_by"] = json!("user:mallory");
    assert_eq!(super::make(&client, &body).await["created_by"], format!("user:{}", made["id"].as_str().unwrap()));
}

// S002-05, S002-08, S002-60 to S002-65, S002-83
#[tokio::test]
async fn every_failing_field_is_named() {
    let server = quiet_server().await;
    let client = server.client();
    let deep = (0..31).fold(json!(1), |inner, _| json!({ "a": inner }));
    for (body, fields) in [
        (json!({}), vec!["message_type", "payload"]),
        (
            json!({ "message_type": 1, "payload": [], "stage": "test", "deliver_at": "soon" }),
            vec!["message_type", "payload", "stage", "deliver_at"],
        ),
        (json!({ "message_type": "scheduled_hello", "payload": "text" }), vec!["payload"]),
        (json!({ "message_type": "scheduled_hello", "payload": {} }), vec!["payload.text"]),
        (
            json!({ "message_type": "scheduled_hello", "payload": { "text": "x", "tags": [1] } }),
            vec!["payload.tags[0]"],
        ),
        (json!({ "message_type": "unknown", "payload": { "text": "x" } }), vec!["message_type"]),
        (json!({ "message_type": "reminder", "payload": { "text": "x", "deep": deep } }), vec!["payload"]),
        (json!({ "message_type": "reminder", "payload": { "text": "x", "": 1 } }), vec!["payload"]),
        (json!({ "message_type": "reminder", "payload": { "text": "x", "n": 1e200 } }), vec!["payload"]),
        (
            json!({ "message_type": "reminder", "payload": { "text": "x", "big": "y".repeat(410_000) } }),
            vec!["payload"],
        ),
        (
            json!({ "message_type": "reminder", "payload": { "text": "x" }, "deliver_at": "2026-06-01T00:00:00Z" }),
            vec!["deliver_at"],
        ),
    ] {
        let answer = client.post("/api/messages", &body).await;
        assert_eq!(answer.bad_fields(), fields, "{}", answer.text());
    }
    client.post("/api/messages", &json!([])).await.problem(400);
    client.post_as("/api/messages", "application/json", "{").await.problem(400);
    client.post_as("/api/messages", "text/plain", "{}").await.problem(415);
    let metrics = client.get("/api/metrics").await.expect(200).json();
    assert_eq!(metrics["counts"]["created"], 0, "nothing was made");
}

// S002-59: configured types.
#[tokio::test]
async fn a_configured_type_is_accepted_and_listed() {
    let toml = r#"
        [[message_types]]
        name = "order_shipped"
        schema = '{"type":"object","required":["order"],"properties":{"order":{"type":"integer"}}}'
    "#;
    let types = tidings::config::Config::parse(toml, std::iter::empty()).unwrap().message_types;
    let server = TestServer::start_with(|config| {
        config.delivery.enabled = false;
        config.message_types = types;
    })
    .await;
    make(&server.client(), &json!({ "message_type": "order_shipped", "payload": { "order": 1 } })).await;
    let bad = json!({ "message_type": "order_shipped", "payload": { "order": "one" } });
    assert_eq!(server.client().post("/api/messages", &bad).await.bad_fields(), ["payload.order"]);
    let types = server.client().get("/api/message-types").await.expect(200).json();
    let names: Vec<_> = types["items"].as_array().unwrap().iter().map(|kind| kind["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "alert_notification",
            "deployment_notification",
            "manual_notification",
            "order_shipped",
            "reminder",
            "scheduled_hello"
        ]
    );
    let broken = toml.replace("\"integer\"", "\"whole\"");
    let problems = tidings::config::Config::parse(&broken, std::iter::empty()).unwrap_err().to_string();
    assert!(problems.contains("message_types[0].schema") && problems.contains("no JSON Schema"), "{problems}");
}

// SX-20: each call has its scope.
#[tokio::test]
async fn scopes_are_held_to() {
    let server = quiet_server().await;
    let made = make(&server.client(), &hello()).await;
    let path = |rest: &str| format!("/api/messages/{}{rest}", id_of(&made));
    for (scope, may_create, may_read, may_operate) in [
        ("read", false, true, false),
        ("operate", true, false, true),
        ("ingest", true, false, false),
        ("consume", false, false, false),
        ("user:u1", false, false, false),
    ] {
        let client = server.client_for(&[scope]).await;
        let allowed = |status: u16| status != 403;
        assert_eq!(allowed(client.post("/api/messages", &hello()).await.status), may_create, "{scope}");
        assert_eq!(allowed(client.post("/api/messages/batch", &json!([hello()])).await.status), may_create, "{scope}");
        for list in ["/api/messages", "/api/metrics", "/dead-letters", &path("")] {
            assert_eq!(allowed(client.get(list).await.status), may_read, "{scope} {list}");
        }
        assert_eq!(allowed(client.post("/api/messages/batch-get", &json!(["x"])).await.status), may_read, "{scope}");
        for rest in ["/retry", "/cancel"] {
            assert_eq!(allowed(client.post(&path(rest), &json!({})).await.status), may_operate, "{scope} {rest}");
        }
        let test = client.post("/channels/ntfy/test", &json!({})).await.status;
        assert_eq!(allowed(test), may_operate, "{scope}");
    }
    server.stranger().get("/api/messages").await.problem(401);
}

#[tokio::test]
async fn what_does_not_exist_is_404() {
    let server = quiet_server().await;
    for id in ["x", "550e8400-e29b-41d4-a716-446655440000", &"a".repeat(3000)] {
        server.client().get(&format!("/api/messages/{id}")).await.problem(404);
        server.client().post(&format!("/api/messages/{id}/retry"), &json!({})).await.problem(404);
        server.client().post(&format!("/api/messages/{id}/cancel"), &json!({})).await.problem(404);
        server.client().get(&format!("/dead-letters/{id}")).await.problem(404);
    }
}

// S002-40, SX-27
#[tokio::test]
async fn batch_get_takes_1_to_100_ids() {
    let server = quiet_server().await;
    let client = server.client();
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(id_of(&make(&client, &hello()).await));
    }
    let answer = client.post("/api/messages/batch-get", &json!({ "message_ids": [ids[2], "nope", ids[0]] })).await;
    let answer = answer.expect(200).json();
    let found: Vec<_> = answer["items"].as_array().unwrap().iter().map(id_of).collect();
    assert_eq!(found, [ids[2].clone(), ids[0].clone()]);
    assert_eq!(answer["not_found"], json!(["nope"]));
    for (count, status) in [(0, 400), (1, 200), (99, 200), (100, 200), (101, 400)] {
        let body = json!(vec![ids[0].clone(); count]);
        assert_eq!(client.post("/api/messages/batch-get", &body).await.status, status, "{count}");
    }
    assert_eq!(client.post("/api/messages/batch-get", &json!([ids[0], 1])).await.bad_fields(), ["[1]"]);
    let named = json!({ "message_ids": [1] });
    assert_eq!(client.post("/api/messages/batch-get", &named).await.bad_fields(), ["message_ids[0]"]);
    assert_eq!(client.post("/api/messages/batch-get", &json!({ "x": 1 })).await.bad_fields(), ["message_ids"]);
}

// S002-41, SX-27
#[tokio::test]
async fn a_batch_has_1_to_25_messages_and_a_result_for_each() {
    let server = quiet_server().await;
    let client = server.client();
    for (count, status) in [(0, 400), (1, 201), (24, 201), (25, 201), (26, 400)] {
        let answer = client.post("/api/messages/batch", &json!(vec![hello(); count])).await;
        assert_eq!(answer.status, status, "{count}");
        if status == 201 {
            assert_eq!(answer.json()["created"], count);
        }
    }
    let mixed = json!({ "messages": [hello(), { "message_type": "reminder", "payload": {} }, 7, hello()] });
    let answer = client.post("/api/messages/batch", &mixed).await.expect(201).json();
    assert_eq!((&answer["created"], &answer["rejected"]), (&json!(2), &json!(2)));
    let statuses: Vec<_> = answer["items"].as_array().unwrap().iter().map(|item| item["status"].clone()).collect();
    assert_eq!(Value::from(statuses), json!([201, 400, 400, 201]));
    assert_eq!(answer["items"][1]["errors"][0]["field"], "payload.text");
    look(&client, &answer["items"][3]["message"]).await;
    let bad = json!([{ "message_type": "reminder", "payload": {} }, 7]);
    assert_eq!(client.post("/api/messages/batch", &bad).await.bad_fields(), ["[0].payload.text", "[1]"]);
    // SX-24: as the body has it.
    let bad = json!({ "messages": bad });
    let fields = client.post("/api/messages/batch", &bad).await.bad_fields();
    assert_eq!(fields, ["messages[0].payload.text", "messages[1]"]);
}

// S002-83, SX-24: what is wrong is said of the field, in words of the caller's.
#[tokio::test]
async fn mistakes_in_a_payload_are_said_plainly() {
    let text = "[[message_types]]\nname = \"strict\"\nschema = { properties = { text = { type = \"string\" } }, \
        additionalProperties = false }\n";
    let types = tidings::config::Config::parse(text, std::iter::empty()).unwrap().message_types;
    let server = TestServer::start_with(|config| config.message_types = types).await;
    let client = server.client();
    let errors = async |message_type: &str, payload: Value| {
        let body = json!({ "message_type": message_type, "payload": payload });
        client.post("/api/messages", &body).await.problem(400)["errors"].clone()
    };
    let one = |field: &str, message: &str| json!([{ "field": field, "message": message }]);
    let unnamed = "must have no empty name: every attribute needs one";
    assert_eq!(errors("reminder", json!({ "text": "a", "": 2 })).await, one("payload", unnamed));
    assert_eq!(errors("reminder", json!({ "text": "a", "b": [{ "": 2 }] })).await, one("payload", unnamed));
    let no_url = one("payload.click_url", "is no valid URL");
    for url in ["http://a b", "HTTPS://", "http://%31%31%31%31%31.0.0.0.0.1/", "https://["] {
        assert_eq!(errors("reminder", json!({ "text": "a", "click_url": url })).await, no_url, "{url}");
    }
    let begins = one("payload.click_url", "must be a URL that begins with http:// or https://");
    assert_eq!(errors("reminder", json!({ "text": "a", "click_url": "ftp://a" })).await, begins);
    let extra = errors("strict", json!({ "text": "a", "b": 1, "c": 2 })).await;
    let names: Vec<_> = extra.as_array().unwrap().iter().map(|error| error["field"].clone()).collect();
    assert_eq!(names, ["payload.b", "payload.c"], "{extra}");
}

// SX-09
#[tokio::test]
async fn the_same_key_makes_one_message() {
    let server = quiet_server().await;
    let headers = [("content-type", "application/json"), ("idempotency-key", "k")];
    let post = |path: &'static str, body: Value| {
        let client = server.client();
        async move { client.post_with(path, &headers, body.to_string()).await.expect(201).json() }
    };
    assert_eq!(post("/api/messages", hello()).await, post("/api/messages", hello()).await);
    let batch = json!([hello(), hello()]);
    assert_eq!(post("/api/messages/batch", batch.clone()).await, post("/api/messages/batch", batch).await);
    let counts = server.client().get("/api/metrics").await.expect(200).json()["counts"].clone();
    assert_eq!(counts["created"], 3);
}

// S002-52, S002-55
#[tokio::test]
async fn only_a_failed_message_can_be_retried_and_stays_failed() {
    let (server, _sink) = answering(crate::channels::http_server::Reply::status(403)).await;
    let client = server.client();
    let made = make(&client, &hello()).await;
    let retry = |id: String| {
        let client = server.client();
        async move { client.post(&format!("/api/messages/{id}/retry"), &json!({})).await }
    };
    retry(id_of(&made)).await.problem(409);
    super::deliver(&server.services, "ntfy").await;
    let failed = look(&client, &made).await;
    assert_eq!(failed["status"], "failed");
    let again = retry(id_of(&made)).await.expect(201).json();
    assert_eq!(again["retry_of"], made["message_id"]);
    assert_eq!((&again["status"], &again["retry_count"]), (&json!("created"), &json!(0)));
    for same in ["payload", "message_type", "correlation_id", "target", "stage"] {
        assert_eq!(again[same], made[same], "{same}");
    }
    assert_eq!(look(&client, &made).await, failed, "the failed one stays as it is");
    retry(id_of(&again)).await.problem(409);
    let audit = client.get("/audit-log?action=message.retry").await.expect(200).json();
    assert_eq!(audit["items"].as_array().unwrap().len(), 1);
}

// S002-52, SX-16: what is sent again can be called back as the first one could, and does not leave before its time.
#[tokio::test]
async fn a_retried_message_keeps_its_key_and_its_time() {
    let (server, _sink) = answering(published("n-1")).await;
    let client = server.client();
    let later = "2026-03-01T13:00:00.000Z";
    let body = json!({ "message_type": "reminder", "payload": { "text": "x" }, "key": "order-7", "deliver_at": later });
    let made = make(&client, &body).await;
    let act = |id: &Value, what: &str| format!("/api/messages/{}/{what}", id.as_str().unwrap());
    client.post(&act(&made["message_id"], "cancel"), &json!({})).await.expect(200);
    let again = client.post(&act(&made["message_id"], "retry"), &json!({})).await.expect(201).json();
    for same in ["key", "deliver_at", "next_attempt_at"] {
        assert_eq!((&again[same], again[same].is_string()), (&made[same], true), "{same}");
    }
    super::deliver(&server.services, "ntfy").await;
    assert_eq!(look(&client, &again).await["status"], "created");
    let called_back = client.post("/api/messages/cancel", &json!({ "key": "order-7" })).await.expect(200).json();
    assert_eq!(called_back["cancelled"], json!([again["message_id"]]));
}

// S002-48, S002-55
#[tokio::test]
async fn what_is_final_cannot_be_cancelled() {
    let (server, sink) = answering(published("n-1")).await;
    let client = server.client();
    let cancel = |message: Value| {
        let client = server.client();
        async move { client.post(&format!("/api/messages/{}/cancel", id_of(&message)), &json!({})).await }
    };
    let made = make(&client, &hello()).await;
    let cancelled = cancel(made.clone()).await.expect(200).json();
    assert_eq!((&cancelled["status"], &cancelled["error_message"]), (&json!("failed"), &json!("cancelled")));
    assert_eq!(cancelled.get("next_attempt_at"), None);
    assert_eq!(look(&client, &made).await, cancelled);
    assert_eq!(cancel(made).await.problem(409)["detail"], "the message is cancelled already");
    let sent = make(&client, &hello()).await;
    super::deliver(&server.services, "ntfy").await;
    assert_eq!(look(&client, &sent).await["status"], "completed");
    cancel(sent.clone()).await.problem(409);
    assert_eq!(look(&client, &sent).await["status"], "completed");
    assert_eq!(sink.asked().len(), 1, "what was cancelled is not sent");
}

// S002-71, S002-72, SX-05
#[tokio::test]
async fn a_message_is_gone_after_90_days() {
    let server = quiet_server().await;
    let made = make(&server.client(), &hello()).await;
    server.advance(90 * 24 - 1);
    look(&server.client(), &made).await;
    server.advance(1);
    server.client().get(&format!("/api/messages/{}", id_of(&made))).await.problem(404);
    assert_eq!(server.client().get("/api/messages").await.expect(200).json()["items"], json!([]));
}

// SX-03, S003-68
#[tokio::test]
async fn a_trace_shows_a_message_with_its_attempts() {
    let (server, _sink) = answering(published("n-1")).await;
    let headers = [("content-type", "application/json"), ("x-correlation-id", "c-1")];
    let made = server.client().post_with("/api/messages", &headers, hello().to_string()).await.expect(201).json();
    super::deliver(&server.services, "ntfy").await;
    let trace = server.client().get("/trace/c-1").await.expect(200).json();
    assert_eq!((&trace["items"][0]["kind"], &trace["items"][0]["id"]), (&json!("message"), &made["message_id"]));
    assert_eq!(trace["items"][0]["details"]["attempts"][0]["outcome"], "delivered");
}

// SX-07: one vocabulary for all that is delivered; the seed's five states stay what they are.
#[tokio::test]
async fn a_message_says_its_state_in_the_shared_words() {
    let (server, _sink) = super::answering(crate::channels::http_server::Reply::status(400)).await;
    let client = server.client();
    let later = json!({ "message_type": "reminder", "payload": { "text": "x" }, "deliver_at": "2026-03-02T12:00:00Z" });
    let scheduled = super::make(&client, &later).await;
    assert_eq!((&scheduled["status"], &scheduled["state"]), (&json!("created"), &json!("scheduled")));
    let cancelled =
        client.post(&format!("/api/messages/{}/cancel", id_of(&scheduled)), &json!({})).await.expect(200).json();
    assert_eq!((&cancelled["status"], &cancelled["state"]), (&json!("failed"), &json!("cancelled")));
    let made = super::make(&client, &super::hello()).await;
    assert_eq!(made["state"], "created");
    super::deliver(&server.services, "ntfy").await;
    let refused = look(&client, &made).await;
    assert_eq!((&refused["status"], &refused["state"]), (&json!("failed"), &json!("dead_lettered")));
}

crate::support::on_dynamodb! {
    a_message_has_the_seeds_attributes,
    a_message_is_gone_after_90_days,
}

// S002-65
#[tokio::test]
async fn an_unknown_type_is_refused_unless_that_is_allowed() {
    let body = json!({ "message_type": "brand_new", "payload": { "text": "x", "n": 1 } });
    let schedule = json!({ "every": "15m", "message_type": "brand_new", "payload": { "text": "x" } });
    let strict = TestServer::start().await;
    assert_eq!(strict.client().post("/api/messages", &body).await.bad_fields(), ["message_type"]);
    assert_eq!(strict.client().put("/api/schedules/s", &schedule).await.bad_fields(), ["message_type"]);
    let server = TestServer::start_with(|config| config.allow_unknown_types = true).await;
    let client = server.client();
    assert_eq!(client.post("/api/messages", &body).await.expect(201).json()["message_type"], "brand_new");
    client.put("/api/schedules/s", &schedule).await.expect(201);
    let bad = json!({ "message_type": "brand_new", "payload": { "priority": "loud" } });
    assert_eq!(client.post("/api/messages", &bad).await.bad_fields(), ["payload.priority"]);
}

// SX-03: a correlation id is the same thing wherever it stands, and messages are found by it.
#[tokio::test]
async fn a_correlation_id_in_the_body_counts() {
    let server = TestServer::start().await;
    let client = server.client();
    let with = |name: &str, id: Value| json!({ "message_type": "reminder", "payload": { "text": "x" }, name: id });
    for (name, id) in [("correlation_id", "c-body"), ("correlationId", "c-camel")] {
        let made = client.post("/api/messages", &with(name, id.into())).await.expect(201).json();
        assert_eq!(made["correlation_id"], id);
        let found = client.get(&format!("/api/messages?correlation_id={id}")).await.expect(200).json();
        assert_eq!(found["items"].as_array().unwrap().len(), 1);
        assert_eq!(found["items"][0]["message_id"], made["message_id"]);
    }
    for bad in [json!(7), json!(""), json!("c\n"), json!("x".repeat(129))] {
        assert_eq!(client.post("/api/messages", &with("correlation_id", bad)).await.bad_fields(), ["correlation_id"]);
    }
    let none = client.get("/api/messages?correlation_id=c-body&status=failed").await.expect(200).json();
    assert_eq!(none["items"], json!([]));
}

// S002-77: the answer is what is there later, numbers included.
#[tokio::test]
async fn numbers_are_answered_as_they_are_kept() {
    let server = quiet_server().await;
    let client = server.client();
    let payload =
        r#"{"text":"a","n":1.0,"m":{"e":[1e3,-0.0,1.50,0.1,1e-7,12345678901234567890,1e20,1.7976931348623157e100]}}"#;
    let body = format!(r#"{{"message_type":"reminder","payload":{payload}}}"#);
    for path in ["/api/messages", "/api/messages/batch"] {
        let body = if path.ends_with("batch") { format!("[{body}]") } else { body.clone() };
        let made = client.post_as(path, "application/json", body).await.expect(201).json();
        let made = made.get("items").map_or(&made, |items| &items[0]["message"]).clone();
        assert_eq!(made["payload"]["n"].to_string(), "1");
        assert_eq!(look(&client, &made).await["payload"].to_string(), made["payload"].to_string());
    }
    for large in ["1e200", "-1e126", "1e-131"] {
        let body = format!(r#"{{"message_type":"reminder","payload":{{"text":"a","n":{large}}}}}"#);
        let answer = client.post_as("/api/messages", "application/json", body).await;
        assert_eq!(answer.bad_fields(), ["payload"], "{large}");
    }
}
