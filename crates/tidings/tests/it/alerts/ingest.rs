//! What may come, in which shapes, and what is kept of it.

use serde_json::{Value, json};
use tidings::alerts::actions::DOCUMENTED;

use super::{AT_SECONDS, INGEST, alert, alerts, audit_event, audit_event_with, send, server, server_with};

fn statuses(answer: &Value) -> Vec<String> {
    answer["events"].as_array().unwrap().iter().map(|event| event["status"].as_str().unwrap().to_owned()).collect()
}

// S000-01 to S000-25
#[tokio::test]
async fn an_event_becomes_a_record_with_the_seeds_attributes() {
    let server = server().await;
    let client = server.client();
    let raw = audit_event("e-1").to_string().replace(",\"", " ,\n \"");
    let answer = client.post_as(INGEST, "application/json", raw.clone()).await.expect(202).json();
    assert_eq!((&answer["accepted"], &answer["events"][0]["status"]), (&json!(1), &json!("accepted")));
    let expected = json!({
        "PartitionKey": "2026-03", "SortKey": format!("corr-e-1-{AT_SECONDS}"), "Timestamp": 1_772_366_400_000_i64,
        "EventTimestamp": AT_SECONDS, "ActorId": "3f2c1d9e-aaaa-4bbb-8ccc-dddddddddddd",
        "ActorDisplayName": "Ana Ruiz", "ActorIP": "203.0.113.7", "Action": "Process.Field.Add", "Area": "Process",
        "Category": "Create",
        "Details": "Field \"Custom.RiskScore\" created on work item type \"ContosoAgile.UserStory\".",
        "ProcessName": "Contoso Agile", "WorkItemType": "ContosoAgile.UserStory",
        "FieldReferenceName": "Custom.RiskScore", "CorrelationId": "corr-e-1", "AlertSent": false,
        "AlertFailed": false, "RetryCount": 0, "TTL": AT_SECONDS + 90 * 86_400, "RawEventJson": raw,
    });
    assert_eq!(alert(&client).await, expected);
    let key = format!("/alerts/2026-03/corr-e-1-{AT_SECONDS}");
    assert_eq!(client.get(&key).await.expect(200).json(), expected);
    client.get("/alerts/2026-03/none").await.problem(404);
    // The stored item has these attributes and no others.
    let key = tidings_store::Key::with_sort("2026-03", format!("corr-e-1-{AT_SECONDS}"));
    let item = server.services.store.get(tidings::alerts::record::table(), &key).await.unwrap().unwrap();
    let mut names: Vec<_> = item.0.keys().map(ToString::to_string).collect();
    let mut known: Vec<_> = expected.as_object().unwrap().keys().cloned().collect();
    names.sort();
    known.sort();
    assert_eq!(names, known);
}

// The event is an ordinary one as well: rules, the list of events and the trace see it, in one transaction with the rest.
#[tokio::test]
async fn an_event_is_seen_by_rules_and_the_trace() {
    let server = server().await;
    let client = server.client();
    let rule = json!({
        "pattern": { "eventType": [{ "prefix": "Process." }], "data": { "data": { "ProcessName": ["Contoso Agile"] } } },
        "targets": [{ "channel": "inbox", "users": ["u1"] }],
    });
    client.put("/rules/process", &rule).await.expect(201);
    send(&client, &audit_event("e-1")).await;
    let event = client.get("/events/e-1").await.expect(200).json();
    assert_eq!((&event["eventType"], &event["source"]), (&json!("Process.Field.Add"), &json!("azure-devops")));
    assert_eq!(event["outcome"]["notifications"][0]["user"], "u1");
    assert_eq!(event["outcome"]["messages"][0]["channel"], "email");
    let trace = client.get("/trace/corr-e-1").await.expect(200).json();
    let kinds: Vec<_> = trace["items"].as_array().unwrap().iter().map(|step| step["kind"].clone()).collect();
    assert_eq!(kinds, ["event", "rule", "notification", "message"], "{trace}");
}

// S000-76: every shape, each entry once.
#[tokio::test]
async fn every_shape_is_taken() {
    let server = server().await;
    let client = server.client();
    let e = |n: usize| audit_event(&format!("e-{n}"));
    let grid = |n: usize| {
        json!({ "id": format!("g-{n}"), "topic": "t", "subject": "s", "eventType": "x",
                                  "eventTime": "2026-03-01T11:30:00Z", "dataVersion": "1.0", "data": e(n) })
    };
    let cloud =
        |n: usize| json!({ "specversion": "1.0", "id": format!("c-{n}"), "type": "x", "source": "s", "data": e(n) });
    let bridge = json!({ "version": "0", "id": "b", "detail-type": "ProcessChange", "source": "ado.audit",
                         "time": "2026-03-01T11:30:00Z", "detail": e(9) });
    let json = "application/json; charset=utf-8";
    for (kind, body, count) in [
        (json, e(1).to_string(), 1),
        (json, json!([e(2), e(3)]).to_string(), 2),
        (json, json!({ "decoratedAuditLogEntries": [e(4), e(5)], "hasMore": false }).to_string(), 2),
        (json, json!([grid(6)]).to_string(), 1),
        ("application/cloudevents+json; charset=utf-8", cloud(7).to_string(), 1),
        ("application/cloudevents-batch+json", json!([cloud(8)]).to_string(), 1),
        (json, bridge.to_string(), 1),
        (json, format!("{}{}", json!({ "time": 1.5, "event": e(10) }), json!({ "event": e(11) })), 2),
        (json, json!({ "decoratedAuditLogEntries": [] }).to_string(), 0),
    ] {
        let answer = client.post_as(INGEST, kind, body.clone()).await.expect(202).json();
        assert_eq!(answer["accepted"], count, "{body}");
    }
    let binary =
        [("ce-specversion", "1.0"), ("ce-id", "x"), ("ce-type", "t"), ("ce-source", "s"), ("content-type", json)];
    client.post_with(INGEST, &binary, e(12).to_string()).await.expect(202);
    let mut ids: Vec<_> = alerts(&client, "").await.iter().map(|alert| alert["CorrelationId"].to_string()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 12);
}

// T7, S000-12: all documented actions with their documented categories, and one that is not documented.
#[tokio::test]
async fn all_documented_actions_are_known_and_new_ones_welcome() {
    let server = server().await;
    let client = server.client();
    let mut events = Vec::new();
    for (n, (action, _)) in DOCUMENTED.iter().enumerate() {
        let mut event = audit_event_with(&format!("e-{n}"), json!({ "actionId": action }));
        event.as_object_mut().unwrap().remove("category");
        event.as_object_mut().unwrap().remove("categoryDisplayName");
        events.push(event);
    }
    events.push(audit_event_with("new", json!({ "actionId": "Process.Theme.Destroy", "category": "remove" })));
    let answer = client.post(INGEST, &events.into()).await.expect(202).json();
    assert_eq!(answer["accepted"], 46);
    let stored = alerts(&client, "?limit=1000").await;
    for (action, category) in DOCUMENTED {
        let found = stored.iter().find(|alert| alert["Action"] == action).unwrap();
        assert_eq!(found["Category"], category.as_str(), "{action}");
    }
    assert_eq!(stored.iter().find(|alert| alert["CorrelationId"] == "corr-new").unwrap()["Category"], "Delete");
}

// S000-11, S000-37, S000-38: what is not ours, and what is too old, is answered and not stored.
#[tokio::test]
async fn other_areas_are_ignored_and_old_events_expired() {
    let server = server().await;
    let client = server.client();
    // The event expires at the end of its 90th day: at that very second it does not exist.
    let gone = audit_event_with("old", json!({ "timestamp": "2025-12-01T12:00:00Z" }));
    let kept = audit_event_with("young", json!({ "timestamp": "2025-12-01T12:00:01Z" }));
    let events = json!([audit_event_with("git", json!({ "actionId": "Git.RepositoryCreated", "area": "Git" })),
                        audit_event_with("log", json!({ "actionId": "AuditLog.AccessLog", "area": "AuditLog" })),
                        gone, kept, { "id": "bad" }]);
    let answer = client.post(INGEST, &events).await.expect(202).json();
    assert_eq!(statuses(&answer), ["ignored", "ignored", "expired", "accepted", "rejected"]);
    let counts =
        json!([answer["accepted"], answer["duplicates"], answer["ignored"], answer["expired"], answer["rejected"]]);
    assert_eq!(counts, json!([1, 0, 2, 1, 1]));
    assert_eq!(client.ids("/events?type=Process.*").await, ["young"]);
    // One alone is no mistake either.
    assert_eq!(send(&client, &audit_event_with("git", json!({ "actionId": "Git.Push" }))).await["status"], "ignored");
    let metrics = client.get("/metrics").await.text();
    assert!(metrics.contains(r#"tidings_events_total{result="expired"} 1"#), "{metrics}");
}

// S000-80: late events are kept longer where that is wished.
#[tokio::test]
async fn late_events_may_be_kept_from_their_arrival() {
    let server = server_with(|config| config.process_alerts.keep_from_arrival = true).await;
    let client = server.client();
    let late = audit_event_with("late", json!({ "timestamp": "2025-01-01T00:00:00Z" }));
    assert_eq!(send(&client, &late).await["status"], "accepted");
    let item = alerts(&client, "?startDate=2025-01-01&endDate=2025-01-01").await;
    assert_eq!(item[0]["TTL"], 1_772_366_400 + 90 * 86_400);
}

// S000-36, S000-39, S000-40: every failing field, and nothing changed.
#[tokio::test]
async fn bad_events_are_refused_with_every_field() {
    let server = server().await;
    let client = server.client();
    let fields = client.post(INGEST, &json!({ "correlationId": "c" })).await.bad_fields();
    assert_eq!(fields, ["actionId", "timestamp", "actorUserId", "actorDisplayName", "details"]);
    let bad =
        audit_event_with("e", json!({ "actorUserId": " ", "timestamp": "2026-03-01T12:05:01Z", "AlertSent": "true" }));
    assert_eq!(client.post(INGEST, &bad).await.bad_fields(), ["timestamp", "actorUserId", "alertSent"]);
    let two = json!([{ "actionId": "Process.X" }, 7]);
    let fields = client.post(INGEST, &two).await.bad_fields();
    assert_eq!(fields, ["[0].timestamp", "[0].actorUserId", "[0].actorDisplayName", "[0].details", "[1]"]);
    for (kind, body) in [
        ("application/json", "{"),
        ("application/json", "[]"),
        ("application/json", ""),
        ("application/json", "null"),
        ("application/json", "{\"actionId\":"),
    ] {
        client.post_as(INGEST, kind, body).await.problem(400);
    }
    client.post_as(INGEST, "application/xml", "<a/>").await.problem(415);
    client.post(&format!("{INGEST}?x=1"), &audit_event("e")).await.problem(400);
    assert_eq!(client.stored().await, Vec::<String>::new());
    assert!(alerts(&client, "").await.is_empty());
}

// S000-35: five minutes ahead, and not a second more.
#[tokio::test]
async fn clocks_may_differ_by_five_minutes() {
    let server = server().await;
    let client = server.client();
    let at = |id: &str, time: &str| audit_event_with(id, json!({ "timestamp": time }));
    assert_eq!(send(&client, &at("a", "2026-03-01T12:04:59Z")).await["status"], "accepted");
    assert_eq!(send(&client, &at("b", "2026-03-01T12:05:00Z")).await["status"], "accepted");
    assert_eq!(client.post(INGEST, &at("c", "2026-03-01T12:05:01Z")).await.bad_fields(), ["timestamp"]);
}

// S000-41: at n-1, n and n+1; what is stored comes back to the byte.
#[tokio::test]
async fn an_event_has_at_most_400_kilobytes() {
    let server = server().await;
    let client = server.client();
    let sized = |id: &str, bytes: usize| {
        let empty = audit_event_with(id, json!({ "padding": "" })).to_string();
        empty.replace("\"padding\":\"\"", &format!("\"padding\":\"{}\"", "x".repeat(bytes - empty.len())))
    };
    for (id, bytes, status) in [("a", 409_599, 202), ("b", 409_600, 202), ("c", 409_601, 413)] {
        let raw = sized(id, bytes);
        assert_eq!(raw.len(), bytes);
        let answer = client.post_as(INGEST, "application/json", raw.clone()).await;
        assert_eq!(answer.status, status, "{}", answer.text());
        let stored = alerts(&client, &format!("?correlationId=corr-{id}")).await;
        assert_eq!(stored.len(), usize::from(status == 202));
        assert!(stored.iter().all(|alert| alert["RawEventJson"] == raw));
        let event = client.get(&format!("/events/{id}")).await;
        assert_eq!(event.status == 200, status == 202);
    }
    client.post_as(INGEST, "application/json", sized("c", 409_601)).await.problem(413);
}

// S000-04: the same id is the same event, however late it comes again; another one in the same second is not.
#[tokio::test]
async fn duplicates_are_known_and_collisions_kept() {
    let server = server().await;
    let client = server.client();
    let event = |id: &str| audit_event_with(id, json!({ "correlationId": "corr-abc123" }));
    let answer = client.post(INGEST, &json!([event("a"), event("b"), event("a")])).await.expect(202).json();
    assert_eq!(statuses(&answer), ["accepted", "accepted", "duplicate"]);
    assert_eq!(answer["events"][1]["SortKey"], format!("corr-abc123-{AT_SECONDS}-2"));
    for id in ["c", "d", "e"] {
        assert_eq!(send(&client, &event(id)).await["status"], "accepted");
    }
    // Beyond the day within which every event's id is known.
    server.advance(49);
    let again = send(&client, &audit_event_with("c", json!({ "correlationId": "other" }))).await;
    assert_eq!((&again["status"], &again["correlationId"]), (&json!("duplicate"), &json!("corr-abc123")));
    assert_eq!(again["SortKey"], format!("corr-abc123-{AT_SECONDS}-3"));
    let mut keys: Vec<_> = alerts(&client, "").await.iter().map(|alert| alert["SortKey"].clone()).collect();
    keys.sort_by_key(ToString::to_string);
    let key = |end: &str| json!(format!("corr-abc123-{AT_SECONDS}{end}"));
    assert_eq!(keys, [key(""), key("-2"), key("-3"), key("-4"), key("-5")]);
    assert_eq!(client.get("/api/messages?limit=100").await.json()["items"].as_array().unwrap().len(), 5, "a mail each");
}

// S000-18: made when absent, and the same everywhere. An event without an id is known by its text.
#[tokio::test]
async fn an_event_without_ids_gets_them() {
    let server = server().await;
    let client = server.client();
    let mut event = audit_event("x");
    event.as_object_mut().unwrap().remove("id");
    event.as_object_mut().unwrap().remove("correlationId");
    let headers = [("content-type", "application/json"), ("x-correlation-id", "mine")];
    let answer = client.post_with(INGEST, &headers, event.to_string()).await.expect(202).json();
    assert_eq!(answer["events"][0]["correlationId"], "mine");
    assert_eq!(alert(&client).await["CorrelationId"], "mine");
    assert_eq!(send(&client, &event).await["status"], "duplicate");
    // In an envelope it has the envelope's.
    let wrapped = json!({ "specversion": "1.0", "id": "ce-7", "type": "t", "source": "s", "data": event });
    assert_eq!(send(&client, &wrapped).await["eventId"], "ce-7@s");
    client.get("/events/ce-7@s").await.expect(200);
}

// S000-18: an empty one is as good as none.
#[tokio::test]
async fn an_empty_correlation_id_is_made_as_if_absent() {
    let server = server().await;
    let client = server.client();
    for (id, empty) in [("a", ""), ("b", "  ")] {
        let headers = [("content-type", "application/json"), ("x-correlation-id", id)];
        let event = audit_event_with(id, json!({ "correlationId": empty }));
        let answer = client.post_with(INGEST, &headers, event.to_string()).await.expect(202).json();
        assert_eq!(answer["events"][0]["correlationId"], id);
    }
}

// S000-04, S000-78: only an alert makes an alert a duplicate; an ordinary event that has its id already does not.
#[tokio::test]
async fn an_event_that_is_no_alert_hides_none() {
    let server = server().await;
    let client = server.client();
    let plain = json!({ "eventId": "x", "eventType": "Process.Field.Add", "source": "azure-devops", "data": {} });
    client.send(&plain).await;
    let event = audit_event("x");
    // Twice at once is once.
    let (one, two, three) = tokio::join!(send(&client, &event), send(&client, &event), send(&client, &event));
    let mut told = [one, two, three];
    told.sort_by_key(|receipt| receipt["status"].to_string());
    assert_eq!(
        told.each_ref().map(|receipt| receipt["status"].as_str().unwrap()),
        ["accepted", "duplicate", "duplicate"]
    );
    let stored = alert(&client).await;
    for receipt in &told {
        assert_eq!((&receipt["SortKey"], &receipt["correlationId"]), (&stored["SortKey"], &json!("corr-x")));
        assert_eq!(receipt["eventId"], told[0]["eventId"]);
    }
    let id = told[0]["eventId"].as_str().unwrap();
    assert_ne!(id, "x");
    let outcome = client.get(&format!("/events/{id}")).await.expect(200).json()["outcome"].clone();
    assert_eq!(outcome["messages"].as_array().unwrap().len(), 1, "{outcome}");
    let messages = client.get("/api/messages").await.json();
    assert_eq!((messages["items"].as_array().unwrap().len(), &messages["items"][0]["event_id"]), (1, &json!(id)));
    // The other event has nothing to do with it.
    assert_eq!(client.get("/events/x").await.expect(200).json()["outcome"]["messages"], json!([]));
    // Known for as long as the alert is, by its own id.
    server.advance(49);
    assert_eq!(send(&client, &event).await["eventId"], id);
    assert_eq!(alerts(&client, "").await.len(), 1);
    // In a batch, too.
    let batch = json!([audit_event("y"), audit_event("x"), audit_event("y")]);
    client.send(&json!({ "eventId": "y", "eventType": "t", "source": "azure-devops" })).await;
    let answer = client.post(INGEST, &batch).await.expect(202).json();
    assert_eq!(statuses(&answer), ["accepted", "duplicate", "duplicate"]);
}

// S000-04, S000-76: an envelope's id is unique among those of its source only.
#[tokio::test]
async fn one_id_of_two_carriers_is_two_events() {
    let server = server().await;
    let client = server.client();
    let mut event = audit_event("x");
    event.as_object_mut().unwrap().remove("id");
    let cloud = |source: &str| json!({ "specversion": "1.0", "id": "1", "type": "t", "source": source, "data": event });
    let grid = |topic: &str| json!([{ "id": "1", "topic": topic, "eventType": "t", "data": event }]);
    for envelope in [cloud("/a"), cloud("/b"), grid("/subscriptions/a"), grid("/subscriptions/b")] {
        assert_eq!(send(&client, &envelope).await["status"], "accepted", "{envelope}");
        assert_eq!(send(&client, &envelope).await["status"], "duplicate", "{envelope}");
    }
    // However its attributes come.
    for (source, status) in [("/a", "duplicate"), ("/c", "accepted"), ("/c", "duplicate")] {
        let headers = [("ce-specversion", "1.0"), ("ce-id", "1"), ("ce-type", "t"), ("ce-source", source)];
        let headers = [&headers[..], &[("content-type", "application/json")]].concat();
        let answer = client.post_with(INGEST, &headers, event.to_string()).await.expect(202).json();
        assert_eq!(statuses(&answer), [status], "{source}");
    }
    assert_eq!(alerts(&client, "").await.len(), 5);
    // An id of its own counts, whoever carries it.
    let own = |source: &str| json!({ "specversion": "1.0", "id": "1", "source": source, "data": audit_event("own") });
    assert_eq!(send(&client, &own("/a")).await["status"], "accepted");
    assert_eq!(send(&client, &own("/b")).await["status"], "duplicate");
}

// SX-02: JSON within text is as deep as any other.
#[tokio::test]
async fn an_event_that_comes_as_text_is_no_deeper_than_others() {
    let server = server().await;
    let client = server.client();
    for (levels, good) in [(40, true), (64, false), (5000, false)] {
        let deep = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let text = audit_event_with(&format!("e{levels}"), json!({ "data": 0 }))
            .to_string()
            .replace("\"data\":0", &format!("\"data\":{deep}"));
        let base64 = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, &text);
        let envelopes = [
            json!([{ "id": "g", "eventType": "t", "data": text }]),
            json!({ "specversion": "1.0", "id": "c", "source": "s", "data_base64": base64 }),
        ];
        for envelope in envelopes {
            let answer = client.post(INGEST, &envelope).await;
            if good {
                answer.expect(202);
            } else {
                let problem = answer.problem(400).to_string();
                assert!(problem.contains("nested deeper than 64 levels"), "{problem}");
            }
        }
    }
    assert_eq!(alerts(&client, "").await.len(), 1);
}

// S000-79, S000-81: from the event's own time, and at once.
#[tokio::test]
async fn an_alert_is_gone_after_90_days() {
    let server = server().await;
    let client = server.client();
    send(&client, &audit_event("e-1")).await;
    // The event is an hour old.
    server.clock.advance(std::time::Duration::from_secs(90 * 86_400 - 3_601));
    assert_eq!(alerts(&client, "?startDate=2026-03-01&endDate=2026-05-29").await.len(), 1);
    server.clock.advance(std::time::Duration::from_secs(1));
    assert_eq!(alerts(&client, "?startDate=2026-03-01&endDate=2026-05-29").await.len(), 0);
    client.get(&format!("/alerts/2026-03/corr-e-1-{AT_SECONDS}")).await.problem(404);
}

// S000-84
#[tokio::test]
async fn only_those_with_the_scope_may_send() {
    let server = server().await;
    let event = audit_event("e-1");
    server.stranger().post(INGEST, &event).await.problem(401);
    server.client_for(&["read"]).await.post(INGEST, &event).await.problem(403);
    server.client_for(&["ingest"]).await.post(INGEST, &event).await.expect(202);
    server.client_for(&["ingest"]).await.get("/alerts").await.problem(403);
}

// S000-77: where the attributes come from is the operator's to say.
#[tokio::test]
async fn attributes_are_found_where_the_configuration_says() {
    let server = super::server_with(|config| {
        config.process_alerts.process_name_fields = vec!["Template".to_owned(), "ProcessName".to_owned()];
        config.process_alerts.state_name_fields = vec!["Lane".to_owned()];
    })
    .await;
    let client = server.client();
    let data = json!({ "template": "Scrum", "ProcessName": "Agile", "Lane": "Doing", "StateName": "Done",
        "WorkItemTypeReferenceName": "X.Bug" });
    let event = audit_event_with("e-1", json!({ "data": data, "category": "remove" }));
    super::send(&client, &event).await;
    let alert = super::alert(&client).await;
    assert_eq!(
        json!([alert["ProcessName"], alert["StateName"], alert["WorkItemType"], alert["FieldReferenceName"]]),
        json!(["Scrum", "Doing", "X.Bug", null])
    );
    assert_eq!(json!([alert["Category"], alert["Area"]]), json!(["Delete", "Process"]));
}

crate::support::on_dynamodb! {
    an_event_becomes_a_record_with_the_seeds_attributes,
    all_documented_actions_are_known_and_new_ones_welcome,
    other_areas_are_ignored_and_old_events_expired,
    an_event_has_at_most_400_kilobytes,
    duplicates_are_known_and_collisions_kept,
    an_event_without_ids_gets_them,
    an_event_that_is_no_alert_hides_none,
    an_alert_is_gone_after_90_days,
    attributes_are_found_where_the_configuration_says,
}

// SX-02: as on every door.
#[tokio::test]
async fn halves_of_characters_and_numbers_beyond_a_double_are_refused() {
    let server = server().await;
    let client = server.client();
    let whole = audit_event("e-1").to_string();
    for (from, to, field) in [
        ("\"ProcessName\"", "\"\\ud800\":1,\"ProcessName\"", "data"),
        ("Mozilla/5.0", "\\udc00", "userAgent"),
        ("\"projectId\":null", "\"projectId\":1e400", "projectId"),
    ] {
        assert!(whole.contains(from), "{from}");
        let answer = client.post_as(INGEST, "application/json", whole.replace(from, to)).await;
        answer.problem(400);
        assert_eq!(answer.bad_fields(), [field]);
    }
    assert!(alerts(&client, "").await.is_empty());
}
