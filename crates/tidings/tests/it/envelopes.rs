//! `POST /events` with one envelope: what is filled in, what is kept, what is refused.

use serde_json::{Value, json};

use crate::support::server::START;
use crate::support::{Answer, Client, TestServer};

/// Sends a body that must be refused with these fields, and must leave nothing behind.
async fn check_refused(client: &Client, body: &Value, fields: &[&str]) {
    let answer = client.post("/events", body).await;
    assert_eq!(answer.bad_fields(), fields, "{body} {}", answer.text());
    assert_eq!(client.stored().await, Vec::<String>::new(), "{body}");
}

async fn view(client: &Client, id: &str) -> Answer {
    client.get(&format!("/events/{id}")).await.expect(200)
}

// S003-55, S003-56, SX-01, SX-02
#[tokio::test]
async fn a_single_event_is_accepted_and_can_be_read_back() {
    let server = TestServer::start().await;
    let event = json!({
        "eventId": "e-1", "eventType": "invoice.paid", "eventVersion": "2.1", "source": "billing", "subject": "inv-7",
        "eventTimestamp": "2026-02-28T23:30:00.123456Z", "correlationId": "c-1", "data": { "amount": 12.5 },
    });
    let answer = server.client().post("/events", &event).await.expect(202);
    assert_eq!(
        answer.json(),
        json!({ "accepted": 1, "duplicates": 0, "rejected": 0,
            "events": [{ "eventId": "e-1", "correlationId": "c-1", "status": "accepted" }] })
    );
    let stored = view(&server.client(), "e-1").await.json();
    for (name, value) in event.as_object().unwrap() {
        assert_eq!(&stored[name], value, "{name}");
    }
    assert_eq!(stored["receivedAt"], "2026-03-01T12:00:00.000000Z");
    let outcome = stored["outcome"].as_object().unwrap();
    let kinds: Vec<_> = outcome.keys().map(String::as_str).collect();
    assert_eq!(kinds, ["messages", "notifications", "queue", "rules", "tickets", "totals"]);
}

// S003-56, S003-57, S003-58, S003-64, SX-26
#[tokio::test]
async fn what_an_event_does_not_say_is_filled_in() {
    let server = TestServer::start().await;
    let receipt = server.client().send(&json!({ "eventType": "a" })).await;
    let id = receipt["eventId"].as_str().unwrap();
    assert_eq!(uuid::Uuid::parse_str(id).unwrap().get_version_num(), 7);
    let stored = view(&server.client(), id).await.json();
    assert_eq!(stored["eventVersion"], "1.0");
    assert_eq!(stored["eventTimestamp"], "2026-03-01T12:00:00.000000Z", "the clock says {START}");
    assert_eq!(stored["correlationId"], receipt["correlationId"]);
    assert_eq!(stored["data"], json!({}));
    assert_eq!((stored.get("source"), stored.get("subject")), (None, None));
}

#[tokio::test]
async fn a_null_counts_as_absent() {
    let server = TestServer::start().await;
    let nulls = json!({ "eventId": null, "eventType": "a", "eventVersion": null, "eventTimestamp": null,
        "correlationId": null, "source": null, "subject": null, "data": null });
    let id = server.client().send(&nulls).await["eventId"].as_str().unwrap().to_owned();
    assert_eq!(view(&server.client(), &id).await.json()["data"], json!({}));
}

// S003-60, S003-61, S003-62: fields that we do not know are kept, to the letter.
#[tokio::test]
async fn unknown_fields_and_data_come_back_to_the_letter() {
    let server = TestServer::start().await;
    let body = concat!(
        r#"{"eventId":"e","eventType":"a","data":{"big": 12345678901234567890123, "e":1.50e+2,"z":[1, 2]},"#,
        r#""traceState":{"b":1.10, "a":"\u00e4\/"},"zero":-0.0}"#
    );
    server.client().post_as("/events", "application/json", body).await.expect(202);
    let text = view(&server.client(), "e").await.text();
    for kept in [
        r#""data":{"big": 12345678901234567890123, "e":1.50e+2,"z":[1, 2]}"#,
        r#""traceState":{"b":1.10, "a":"\u00e4\/"}"#,
        r#""zero":-0.0"#,
    ] {
        assert!(text.contains(kept), "{kept} is not in {text}");
    }
}

// S003-62: what the sender says and what Tidings says about the event do not mix.
#[tokio::test]
async fn a_field_named_like_one_of_ours_makes_no_ambiguous_answer() {
    let server = TestServer::start().await;
    let event = json!({ "eventId": "e", "eventType": "a", "outcome": "mine", "receivedAt": "never" });
    server.client().send(&event).await;
    let text = view(&server.client(), "e").await.text();
    for name in ["\"outcome\":", "\"receivedAt\":"] {
        assert_eq!(text.matches(name).count(), 1, "{name} in {text}");
    }
    assert!(serde_json::from_str::<Value>(&text).unwrap()["outcome"].is_object());
}

// SX-03, S003-56: the same thing under the names that other systems give it.
#[tokio::test]
async fn other_spellings_of_the_correlation_id_and_payload_are_understood() {
    let server = TestServer::start().await;
    for name in ["correlationId", "correlation_id", "CorrelationId"] {
        let receipt = server.client().send(&json!({ "eventType": "a", name: format!("from-{name}") })).await;
        assert_eq!(receipt["correlationId"], format!("from-{name}"));
    }
    server.client().send(&json!({ "eventId": "p", "eventType": "a", "payload": { "x": 1 } })).await;
    assert_eq!(view(&server.client(), "p").await.json()["data"], json!({ "x": 1 }));
}

// S003-58, SX-04
#[tokio::test]
async fn timestamps_are_kept_in_utc_with_microseconds() {
    let server = TestServer::start().await;
    for (given, kept) in [
        (json!("2026-01-02T03:04:05Z"), "2026-01-02T03:04:05.000000Z"),
        (json!("2026-01-02T03:04:05.1234567+02:00"), "2026-01-02T01:04:05.123456Z"),
        (json!(1_767_323_045), "2026-01-02T03:04:05.000000Z"),
        (json!(1_767_323_045_006_i64), "2026-01-02T03:04:05.006000Z"),
        (json!(1_767_323_045_006_007_i64), "2026-01-02T03:04:05.006007Z"),
        (json!(0), "1970-01-01T00:00:00.000000Z"),
    ] {
        let receipt = server.client().send(&json!({ "eventType": "a", "eventTimestamp": given })).await;
        let stored = view(&server.client(), receipt["eventId"].as_str().unwrap()).await.json();
        assert_eq!(stored["eventTimestamp"], kept, "{given}");
    }
}

// S003-58, S003-71, SX-24: wrong types, and values that make no sense.
#[tokio::test]
async fn every_field_of_the_wrong_type_is_refused_by_name() {
    let server = TestServer::start().await;
    let client = server.client();
    for wrong in [json!(7), json!(true), json!([]), json!({}), json!(1.5)] {
        for field in ["eventId", "eventType", "eventVersion", "correlationId", "source", "subject"] {
            let mut event = json!({ "eventType": "a" });
            event[field] = wrong.clone();
            check_refused(&client, &event, &[field]).await;
        }
    }
    for wrong in [json!(7), json!(true), json!([]), json!("text"), json!([{}])] {
        check_refused(&client, &json!({ "eventType": "a", "data": wrong }), &["data"]).await;
        check_refused(&client, &json!({ "eventType": "a", "payload": wrong }), &["payload"]).await;
    }
    for wrong in [json!(true), json!([]), json!({})] {
        check_refused(&client, &json!({ "eventType": "a", "eventTimestamp": wrong }), &["eventTimestamp"]).await;
    }
}

// S003-58: timestamp nonsense.
#[tokio::test]
async fn a_timestamp_that_is_none_is_refused() {
    let server = TestServer::start().await;
    for nonsense in [
        json!("soon"),
        json!(""),
        json!("2026-02-30T00:00:00Z"),
        json!("2026-01-01"),
        json!("2026-01-01T25:00:00Z"),
        json!("2026-01-01T00:00:00"),
        json!("1969-12-31T23:59:59Z"),
        json!("0000-01-01T00:00:00Z"),
        json!(-1),
        json!(1e300),
        json!(1e20),
    ] {
        let event = json!({ "eventType": "a", "eventTimestamp": nonsense });
        check_refused(&server.client(), &event, &["eventTimestamp"]).await;
    }
}

// S003-63
#[tokio::test]
async fn versions_of_one_to_three_numbers_are_accepted() {
    let server = TestServer::start().await;
    for version in ["1.0", "1.0.0", "2", "10.20.30"] {
        server.client().send(&json!({ "eventType": "a", "eventVersion": version })).await;
    }
    for version in ["one", "1.", "1.0.0.0", "v1", "1.0-beta", "1..2"] {
        let answer = server.client().post("/events", &json!({ "eventType": "a", "eventVersion": version })).await;
        assert_eq!(answer.bad_fields(), ["eventVersion"], "{version}");
    }
}

// SX-24: every failing field, not only the first.
#[tokio::test]
async fn all_failing_fields_are_named_at_once() {
    let server = TestServer::start().await;
    let event = json!({ "eventId": 1, "eventType": "", "eventVersion": "x", "eventTimestamp": "soon",
        "correlationId": "", "source": "a\u{0}b", "subject": [], "data": 7 });
    let fields =
        ["eventId", "eventType", "eventVersion", "eventTimestamp", "correlationId", "source", "subject", "data"];
    check_refused(&server.client(), &event, &fields).await;
    for missing in [json!({}), json!({ "eventType": "" }), json!({ "eventType": "  " }), json!({ "eventType": null })] {
        check_refused(&server.client(), &missing, &["eventType"]).await;
    }
}

// SX-27: each name at n-1, n, n+1 characters, counted as characters and not as bytes.
#[tokio::test]
async fn names_have_a_longest_length() {
    let server = TestServer::start().await;
    let client = server.client();
    for (field, most) in
        [("eventId", 256), ("eventType", 256), ("source", 250), ("correlationId", 128), ("subject", 1024)]
    {
        for letter in ["x", "ä"] {
            let with = |length: usize| {
                let mut event = json!({ "eventType": "a" });
                event[field] = json!(letter.repeat(length));
                event
            };
            client.send(&with(most - 1)).await;
            client.send(&with(most)).await;
            let answer = client.post("/events", &with(most + 1)).await;
            assert_eq!(answer.bad_fields(), [field], "{letter}");
        }
    }
}

// SX-27: what is too long for a key of the store is the sender's mistake, not ours.
#[tokio::test]
async fn names_of_wide_characters_are_stored_or_refused_but_never_fail() {
    let server = TestServer::start().await;
    for field in ["eventId", "eventType", "source", "correlationId", "subject"] {
        for length in [100, 128, 200, 250, 256] {
            let mut event = json!({ "eventType": "a" });
            event[field] = json!("🎉".repeat(length));
            let status = server.client().post("/events", &event).await.status;
            assert!([202, 400].contains(&status), "{field} of {length}: {status}");
        }
        let wide = crate::support::encode(&"🎉".repeat(257));
        if ["source", "correlationId"].contains(&field) {
            server.client().get(&format!("/events?{field}={wide}")).await;
        }
    }
    let wide = crate::support::encode(&"🎉".repeat(256));
    let status = server.client().get(&format!("/events/e?source={wide}")).await.status;
    assert!([400, 404].contains(&status), "{status}");
}

// SX-27: at most 50 fields beyond the envelope's own.
#[tokio::test]
async fn an_event_has_at_most_fifty_fields_of_its_own() {
    let server = TestServer::start().await;
    let with = |count: usize| {
        let mut event = json!({ "eventType": "a" });
        for n in 0..count {
            event[format!("field{n}")] = json!(n);
        }
        event
    };
    check_refused(&server.client(), &with(51), &[""]).await;
    let problem = server.client().post("/events", &with(51)).await.problem(400);
    assert!(problem["errors"][0]["message"].as_str().unwrap().starts_with("the event has more than 50"), "{problem}");
    server.client().send(&with(49)).await;
    server.client().send(&with(50)).await;
}

// S003-70, SX-27: limits.event_bytes at n-1, n, n+1.
#[tokio::test]
async fn an_event_over_the_size_limit_is_413() {
    let server = TestServer::start().await;
    let sized = |bytes: usize| {
        let frame = r#"{"eventType":"a","data":{"x":""}}"#.len();
        format!(r#"{{"eventType":"a","data":{{"x":"{}"}}}}"#, "x".repeat(bytes - frame))
    };
    let limit = 262_144;
    assert_eq!(sized(limit).len(), limit);
    for (bytes, status) in [(limit - 1, 202), (limit, 202), (limit + 1, 413)] {
        let before = server.client().stored().await;
        let answer = server.client().post_as("/events", "application/json", sized(bytes)).await;
        assert_eq!(answer.status, status, "{bytes}");
        if status == 413 {
            answer.problem(413);
            assert_eq!(server.client().stored().await, before);
        }
    }
    let batch = format!("[{},{}]", sized(limit + 1), r#"{"eventType":"b"}"#);
    let answer = server.client().post_as("/events", "application/json", batch).await.expect(202).json();
    assert_eq!((&answer["accepted"], &answer["rejected"]), (&json!(1), &json!(1)));
    assert!(answer["events"][0]["errors"][0]["message"].as_str().unwrap().contains("262144"));
}

// S003-70: the largest limit that can be configured is one that the store can keep.
#[tokio::test]
async fn an_event_of_the_largest_configurable_size_never_fails_in_the_store() {
    let server = TestServer::start_with(|config| config.limits.event_bytes = 409_600).await;
    for bytes in [390_000, 405_000, 409_000, 409_600, 409_601] {
        let frame = r#"{"eventType":"a","data":{"x":""}}"#.len();
        let body = format!(r#"{{"eventType":"a","data":{{"x":"{}"}}}}"#, "x".repeat(bytes - frame));
        let status = server.client().post_as("/events", "application/json", body).await.status;
        assert!([202, 413].contains(&status), "{bytes}: {status}");
    }
}

// S003-01
#[tokio::test]
async fn only_the_configured_sources_are_taken() {
    let sources = ["Product Management".to_owned(), "Auditing".to_owned()];
    let server = TestServer::start_with(|config| config.limits.event_sources = sources.to_vec()).await;
    let client = server.client();
    client.send(&json!({ "eventType": "a", "source": "Auditing" })).await;
    for event in [json!({ "eventType": "a", "source": "auditing" }), json!({ "eventType": "a" })] {
        assert_eq!(client.post("/events", &event).await.bad_fields(), ["source"], "{event}");
    }
}

// Editors on Windows begin a file so.
#[tokio::test]
async fn a_byte_order_mark_before_the_json_is_passed_over() {
    let server = TestServer::start().await;
    let client = server.client();
    let one = |id: &str| format!("\u{feff}{{\"eventId\":\"{id}\",\"eventType\":\"a\"}}");
    client.post_as("/events", "application/json", one("json")).await.expect(202);
    client.post_as("/events", "application/json", format!("\u{feff}[{}]", &one("list")[3..])).await.expect(202);
    client.post_as("/events", "application/x-ndjson", format!("{}\n", one("lines"))).await.expect(202);
    let mut stored = client.stored().await;
    stored.sort();
    assert_eq!(stored, ["json", "lines", "list"]);
    let question = "\u{feff}{\"pattern\":{\"eventType\":[\"a\"]},\"event\":{\"eventType\":\"a\"}}";
    let answer = client.post_as("/rules/test", "application/json", question).await.expect(200).json();
    assert_eq!(answer["matches"], true);
    client.post_as("/events", "application/json", "\u{feff}").await.problem(400);
}

#[tokio::test]
async fn an_address_that_is_no_text_is_refused_with_a_sentence() {
    let server = TestServer::start().await;
    let problem = server.client().get("/events/%ff").await.problem(400);
    assert!(problem["detail"].as_str().unwrap().contains("must be UTF-8"), "{problem}");
}

// SX-02: what is JSON by its grammar and means nothing would spoil the lists of others, and be lost to rules.
#[tokio::test]
async fn halves_of_characters_and_numbers_beyond_a_double_are_refused_by_field() {
    let server = TestServer::start().await;
    let client = server.client();
    for (body, fields) in [
        (r#"{"eventType":"a","data":{"\ud800":1}}"#, &["data"][..]),
        (r#"{"eventType":"a","data":{"x":["\udc00\ud800"]}}"#, &["data"]),
        (r#"{"eventType":"a","data":{"x":1e400}}"#, &["data"]),
        (r#"{"eventType":"a","payload":{"x":-1E400}}"#, &["payload"]),
        (r#"{"eventType":"a","zone":"\ud83d","more":{"n":[1e999]},"data":{"x":"\ud83d"}}"#, &["data", "zone", "more"]),
    ] {
        let answer = client.post_as("/events", "application/json", body).await;
        answer.problem(400);
        assert_eq!(answer.bad_fields(), fields, "{body}");
    }
    let cloud = r#"{"specversion":"1.0","id":"1","source":"/s","type":"t","data":"\ud800"}"#;
    let answer = client.post_as("/events", "application/cloudevents+json", cloud).await;
    answer.problem(400);
    assert_eq!(answer.bad_fields(), ["data"]);
    // In a batch it is that event alone.
    let good = r#"{"eventId":"good","eventType":"a","data":{"x":"\ud83d\ude00 \\ud800","n":1e308}}"#;
    let bad = r#"{"eventId":"bad","eventType":"a","data":{"x":1e400}}"#;
    for (media_type, body) in [
        ("application/json", format!("[{good},{bad}]")),
        ("application/x-ndjson", format!("{}\n{bad}\n", good.replace("good", "fine"))),
    ] {
        let answer = client.post_as("/events", media_type, body).await.expect(202).json();
        assert_eq!((&answer["accepted"], &answer["rejected"]), (&json!(1), &json!(1)), "{answer}");
        assert_eq!(
            (&answer["events"][1]["eventId"], &answer["events"][1]["status"]),
            (&json!("bad"), &json!("rejected"))
        );
    }
    let mut stored = client.stored().await;
    stored.sort();
    assert_eq!(stored, ["fine", "good"]);
}

// An event of this id could be stored and not be fetched: the live stream has its address.
#[tokio::test]
async fn an_event_cannot_be_called_stream() {
    let server = TestServer::start().await;
    check_refused(&server.client(), &json!({ "eventType": "a", "eventId": "stream" }), &["eventId"]).await;
    server.client().post("/events", &json!({ "eventType": "a", "eventId": "streams" })).await.expect(202);
}

#[tokio::test]
async fn a_time_beyond_what_can_be_kept_is_told_its_bounds() {
    let server = TestServer::start().await;
    for time in ["9999-12-31T23:59:59Z", "2026-01-31T12:00:00.123456789123Z", "2026-01-31T12:00:00+25:00"] {
        let event = json!({ "eventType": "a", "eventTimestamp": time });
        let problem = server.client().post("/events", &event).await.problem(400);
        let message = problem["errors"][0]["message"].as_str().unwrap();
        assert!(message.contains("9999-12-30T22:00:00Z") || message.contains("offset"), "{time}: {message}");
    }
    for time in ["9999-12-30T21:59:59Z", "2026-01-31T12:00:00.123456789Z", "2026-01-31T12:00:00+23:59"] {
        let event = json!({ "eventType": "a", "eventTimestamp": time });
        server.client().post("/events", &event).await.expect(202);
    }
}
