//! The desk of dead letters: look, edit, send again, throw away; one, some, all (SX-08).

use serde_json::{Value, json};
use tidings::messages::dead;
use tidings::messages::deliver::Deliverer;

use super::{deliver, hello, id_of, look, make, published, quiet, server_with, store};
use crate::channels::http_server::{Reply, Server};
use crate::support::{Client, TestServer};

/// A sink that refuses texts with "wrong" in them, which no id has.
async fn sink() -> Server {
    Server::start(|asked| match asked.body.windows(5).any(|part| part == b"wrong") {
        true => Reply::status(400),
        false => published("n"),
    })
    .await
}

fn bad() -> Value {
    json!({ "message_type": "reminder", "payload": { "text": "wrong" } })
}

async fn letters(client: &Client, query: &str) -> Vec<String> {
    let list = client.get(&format!("/dead-letters{query}")).await.expect(200).json();
    list["items"].as_array().unwrap().iter().map(|letter| letter["id"].as_str().unwrap().to_owned()).collect()
}

async fn actions(client: &Client) -> Vec<String> {
    let log = client.get("/audit-log").await.expect(200).json();
    assert_eq!(client.get("/audit-log/verify").await.json()["ok"], true);
    let named = |entry: &Value| entry["action"].as_str().unwrap().to_owned();
    log["items"].as_array().unwrap().iter().map(named).filter(|name| name.starts_with("dead_letter")).collect()
}

#[tokio::test]
async fn a_letter_is_sent_again_changed_and_is_gone() {
    let sink = sink().await;
    let server = server_with(&sink).await;
    let client = server.client();
    let made = make(&client, &bad()).await;
    deliver(&server.services, "ntfy").await;
    let path = format!("/dead-letters/{}", id_of(&made));
    let letter = client.get(&path).await.expect(200).json();
    assert_eq!((&letter["payload"], &letter["target"]), (&made["payload"], &json!({ "topic": "tidings" })));
    assert_eq!(letter["attempts"][0]["code"], 400);
    // What does not fit is refused, and nothing has changed.
    let resubmit = format!("{path}/resubmit");
    let wrong = json!({ "payload": { "priority": "loud" }, "target": { "topic": "a/b" } });
    let mut fields = client.post(&resubmit, &wrong).await.bad_fields();
    fields.sort();
    assert_eq!(fields, ["payload.priority", "payload.text", "target.topic"]);
    assert_eq!(
        client.post(&resubmit, &json!({ "payload": 1, "target": [] })).await.bad_fields(),
        ["payload", "target"]
    );
    client.get(&path).await.expect(200);
    let edit = json!({ "payload": { "text": "good" }, "target": { "topic": "ops" } });
    let again = client.post(&resubmit, &edit).await.expect(201);
    assert_eq!(again.header("location"), format!("/api/messages/{}", id_of(&again.json())));
    let again = again.json();
    assert_eq!((&again["retry_of"], &again["correlation_id"]), (&made["message_id"], &made["correlation_id"]));
    client.get(&path).await.problem(404);
    client.post(&resubmit, &json!({})).await.problem(404);
    deliver(&server.services, "ntfy").await;
    assert_eq!(look(&client, &again).await["status"], "completed");
    assert_eq!(look(&client, &made).await["status"], "failed", "it stays what it is");
    let asked: Value = serde_json::from_slice(&sink.asked()[1].body).unwrap();
    assert_eq!((&asked["topic"], &asked["message"]), (&json!("ops"), &json!("good")));
    assert_eq!(actions(&client).await, ["dead_letter.resubmit"]);
}

// SX-08: a topic in the new payload is where it goes, unless a target is named beside it.
#[tokio::test]
async fn a_letter_goes_to_the_topic_of_its_new_payload() {
    let server = server_with(&sink().await).await;
    let client = server.client();
    for (edit, topic) in [
        (json!({ "payload": { "text": "good", "topic": "good" } }), "good"),
        (json!({ "payload": { "text": "good", "topic": "good" }, "target": { "topic": "ops" } }), "ops"),
        (json!({ "payload": { "text": "good" } }), "tidings"),
    ] {
        let made = make(&client, &bad()).await;
        deliver(&server.services, "ntfy").await;
        let again = client.post(&format!("/dead-letters/{}/resubmit", id_of(&made)), &edit).await.expect(201).json();
        assert_eq!(again["target"], json!({ "topic": topic }));
    }
}

// A secret that cannot sign is refused here as everywhere, with everything else that is wrong.
#[tokio::test]
async fn a_letters_new_secret_must_be_able_to_sign() {
    let hook = Server::start(|_| Reply::status(400)).await;
    let server = server_with(&hook).await;
    let client = server.client();
    let made = store(&server.services, "webhook", json!({ "url": hook.url("/a") })).await;
    Deliverer::new(&server.services, "webhook").drain().await.unwrap();
    let resubmit = format!("/dead-letters/{}/resubmit", made.message_id);
    let edit = |secret: Value| json!({ "target": { "url": hook.url("/b"), "secret": secret } });
    for bad in [json!("whsec_x"), json!(""), json!(1), json!("whsec_c2hvcnQ="), json!(["x"])] {
        assert_eq!(client.post(&resubmit, &edit(bad.clone())).await.bad_fields(), ["target.secret"], "{bad}");
    }
    let both = json!({ "target": { "url": "ftp://a", "secret": "x" } });
    let mut fields = client.post(&resubmit, &both).await.bad_fields();
    fields.sort();
    assert_eq!(fields, ["target.secret", "target.url"]);
    // By a list of ids, and by a job, it is the letter that is left.
    let ids = json!({ "ids": [made.message_id], "target": { "url": hook.url("/b"), "secret": "x" } });
    let each = client.post("/dead-letters/resubmit", &ids).await.expect(200).json();
    assert_eq!((&each["done"], &each["items"][0]["status"]), (&json!(0), &json!(400)));
    assert_eq!(letters(&client, "").await.len(), 1);
    client.post(&resubmit, &edit(json!("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))).await.expect(201);
}

#[tokio::test]
async fn some_are_sent_again_or_thrown_away_by_their_ids() {
    let server = server_with(&sink().await).await;
    let client = server.client();
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(id_of(&make(&client, &bad()).await));
    }
    deliver(&server.services, "ntfy").await;
    assert_eq!(letters(&client, "").await.len(), 4);
    let body = json!({ "ids": [ids[0], ids[1], "nobody"], "payload": { "text": "good" } });
    let answer = client.post("/dead-letters/resubmit", &body).await.expect(200).json();
    let statuses: Vec<_> = answer["items"].as_array().unwrap().iter().map(|item| item["status"].clone()).collect();
    assert_eq!((&answer["done"], statuses), (&json!(2), vec![json!(201), json!(201), json!(404)]));
    let refused = json!({ "ids": [ids[2]], "payload": {} });
    let refused = client.post("/dead-letters/resubmit", &refused).await.expect(200).json();
    assert_eq!(refused["items"][0]["status"], 400);
    assert_eq!(refused["items"][0]["errors"][0]["field"], "payload.text");
    client.delete(&format!("/dead-letters/{}", ids[2])).await.expect(204);
    client.delete(&format!("/dead-letters/{}", ids[2])).await.problem(404);
    let purged = client.post("/dead-letters/purge", &json!({ "ids": [ids[3], ids[3]] })).await.expect(200).json();
    assert_eq!((&purged["done"], &purged["items"][1]["status"]), (&json!(1), &json!(404)));
    assert!(letters(&client, "").await.is_empty());
    deliver(&server.services, "ntfy").await;
    assert_eq!(client.get("/api/metrics").await.json()["counts"]["completed"], 2);
    let expected = ["dead_letter.discard", "dead_letter.discard", "dead_letter.resubmit", "dead_letter.resubmit"];
    assert_eq!(actions(&client).await, expected);
    // SX-27: at n-1, n, n+1.
    for (count, good) in [(0, false), (99, true), (100, true), (101, false)] {
        let answer = client.post("/dead-letters/purge", &json!({ "ids": vec!["x"; count] })).await;
        if good { drop(answer.expect(200)) } else { assert_eq!(answer.bad_fields(), ["ids"], "{count}") }
    }
    for (body, field) in [
        (json!({}), ""),
        (json!({ "all": false }), "all"),
        (json!({ "all": true, "ids": ["x"] }), ""),
        (json!({ "where": { "channel": "webhook" } }), "where.channel"),
        (json!({ "ids": [1] }), "ids"),
    ] {
        assert_eq!(client.post("/dead-letters/resubmit", &body).await.bad_fields(), [field], "{body}");
        assert_eq!(client.post("/dead-letters/purge", &body).await.bad_fields(), [field], "{body}");
    }
    let reader = server.client_for(&["read"]).await;
    reader.post("/dead-letters/purge", &json!({ "all": true })).await.problem(403);
    reader.post("/dead-letters/resubmit", &json!({ "all": true })).await.problem(403);
    reader.delete("/dead-letters/x").await.problem(403);
}

async fn finished(server: &TestServer, job: &Value) -> Value {
    dead::work(&server.services).await.unwrap();
    let job = server.client().get(&format!("/dead-letters/jobs/{}", job["id"].as_str().unwrap())).await.expect(200);
    assert_eq!(job.json()["state"], "done", "{}", job.text());
    job.json()
}

// A job takes those that fit its pattern and were there when it began, each once; the rest stays.
#[tokio::test]
async fn those_that_fit_a_pattern_are_sent_again_by_a_job() {
    let sink = sink().await;
    let url = sink.url("");
    let server = TestServer::start_with(|config| quiet(config, &url)).await;
    let client = server.client();
    let services = &server.services;
    let reminder = super::message(services, "ntfy", json!({ "topic": "ops" }));
    for _ in 0..5 {
        let messages = (0..25).map(|_| {
            let mut message = super::message(services, "ntfy", json!({ "topic": "ops" }));
            message.payload.insert("text".to_owned(), json!("wrong"));
            message
        });
        services.messages.create(messages.collect()).await.unwrap();
    }
    drop(reminder);
    let mut other = super::message(services, "ntfy", json!({ "topic": "other" }));
    other.payload.insert("text".to_owned(), json!("wrong"));
    services.messages.create(vec![other.clone()]).await.unwrap();
    Deliverer::new(services, "ntfy").drain().await.unwrap();
    assert_eq!(client.get("/api/metrics").await.json()["counts"]["failed"], 126);
    let body = json!({ "where": { "target": { "topic": ["ops"] }, "code": [400] }, "payload": { "text": "good" } });
    let begun = client.post("/dead-letters/resubmit", &body).await.expect(202);
    assert_eq!(begun.header("location"), format!("/dead-letters/jobs/{}", begun.json()["id"].as_str().unwrap()));
    let done = finished(&server, &begun.json()).await;
    assert_eq!((&done["seen"], &done["done"], &done["failed"]), (&json!(126), &json!(125), &json!(0)), "{done}");
    assert_eq!(letters(&client, "").await, [other.message_id.clone()]);
    Deliverer::new(services, "ntfy").drain().await.unwrap();
    let counts = client.get("/api/metrics").await.json()["counts"].clone();
    assert_eq!((&counts["completed"], &counts["failed"], &counts["created"]), (&json!(125), &json!(126), &json!(0)));
    // A payload that does not fit leaves the letter where it is, and says so.
    let wrong = json!({ "all": true, "channel": "ntfy", "payload": {} });
    let begun = client.post("/dead-letters/resubmit", &wrong).await.expect(202).json();
    let done = finished(&server, &begun).await;
    assert_eq!((&done["done"], &done["failed"]), (&json!(0), &json!(1)));
    assert!(done["error"].as_str().unwrap().contains("payload.text is required"), "{done}");
    let begun = client.post("/dead-letters/purge", &json!({ "all": true })).await.expect(202).json();
    assert_eq!(finished(&server, &begun).await["done"], 1);
    assert!(letters(&client, "").await.is_empty());
    let expected = [
        "dead_letters.purged",
        "dead_letters.purge",
        "dead_letters.resubmitted",
        "dead_letters.resubmit",
        "dead_letters.resubmitted",
        "dead_letters.resubmit",
    ];
    assert_eq!(actions(&client).await, expected);
    client.get("/dead-letters/jobs/nobody").await.problem(404);
}

#[tokio::test]
async fn letters_are_listed_by_channel_type_and_date() {
    let sink = sink().await;
    let server = server_with(&sink).await;
    let client = server.client();
    let ids = [id_of(&make(&client, &bad()).await), {
        server.advance(24);
        id_of(&make(&client, &json!({ "message_type": "scheduled_hello", "payload": { "text": "wrong" } })).await)
    }];
    // The first is given up now, too: nobody delivered before.
    deliver(&server.services, "ntfy").await;
    server.advance(24);
    let queue = store(&server.services, "webhook", json!({ "url": sink.url("/hook-bad") })).await;
    make(&client, &hello()).await;
    deliver(&server.services, "webhook").await;
    assert_eq!(super::status_of(&server.services, &queue).await, "completed");
    assert_eq!(letters(&client, "?message_type=reminder").await, [ids[0].clone()]);
    assert_eq!(letters(&client, "?channel=webhook").await.len(), 0);
    assert_eq!(letters(&client, "?channel=ntfy&from=2026-03-02&to=2026-03-02").await.len(), 2);
    assert_eq!(letters(&client, "?from=2026-03&to=2026").await.len(), 2);
    assert_eq!(letters(&client, "?from=2026-03-03").await.len(), 0);
    let first = client.get("/dead-letters?limit=1").await.expect(200).json();
    let cursor = first["cursor"].as_str().unwrap();
    assert_eq!(letters(&client, &format!("?limit=1&cursor={cursor}")).await.len(), 1);
    for (query, field) in
        [("?channel=owl", "channel"), ("?limit=0", "limit"), ("?limit=101", "limit"), ("?from=x", "from")]
    {
        assert_eq!(client.get(&format!("/dead-letters{query}")).await.bad_fields(), [field]);
    }
    assert_eq!(letters(&client, "?limit=100").await.len(), 2);
}
