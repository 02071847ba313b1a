//! `/api/schedules`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tidings::app::{App, Surroundings};
use tidings::config::{Config, Listen};
use tidings::messages::deliver::Deliverer;
use tidings::schedules::{Origin, message_id};
use tidings_store::Store;
use tidings_store::memory::Memory;

use crate::support::process::Served;
use crate::support::{Answer, Client, TestServer, server};

async fn put(client: &Client, name: &str, body: &Value) -> Answer {
    let request = client.request(Method::PUT, &format!("/api/schedules/{name}"));
    Answer::to(request.header("content-type", "application/json").body(body.to_string())).await
}

fn hello() -> Value {
    json!({
        "cron": "0 9 * * *", "timezone": "Europe/Berlin", "message_type": "scheduled_hello",
        "payload": { "text": "Good morning", "priority": "default", "tags": ["sun"] },
    })
}

// S002-66
#[tokio::test]
async fn a_schedule_is_made_shown_replaced_and_deleted() {
    let server = TestServer::start().await;
    let client = server.client();
    let made = put(&client, "daily", &hello()).await.expect(201).json();
    assert_eq!(
        made["next_runs"],
        json!([
            "2026-03-02T08:00:00.000Z",
            "2026-03-03T08:00:00.000Z",
            "2026-03-04T08:00:00.000Z",
            "2026-03-05T08:00:00.000Z",
            "2026-03-06T08:00:00.000Z"
        ])
    );
    assert_eq!((made["enabled"].as_bool(), made["missed"].as_str()), (Some(true), Some("once")));
    assert_eq!(made["origin"], "api");
    let shown = client.get("/api/schedules/daily").await.expect(200).json();
    assert_eq!((shown["payload"]["text"].as_str(), &shown["runs"]), (Some("Good morning"), &json!([])));
    let mut off = hello();
    off["enabled"] = false.into();
    let replaced = put(&client, "daily", &off).await.expect(200).json();
    assert_eq!(replaced["next_runs"], json!([]));
    let list = client.get("/api/schedules").await.expect(200).json();
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    client.delete("/api/schedules/daily").await.expect(204);
    client.delete("/api/schedules/daily").await.problem(404);
    client.get("/api/schedules/daily").await.problem(404);
    let log = client.get("/audit-log?entity=schedule").await.expect(200).json();
    let actions: Vec<_> = log["items"].as_array().unwrap().iter().map(|entry| entry["action"].clone()).collect();
    assert_eq!(actions, ["schedule.delete", "schedule.put", "schedule.put"]);
}

// SX-10: page by page, within limits, by a cursor that is good for whoever has it and nothing else.
#[tokio::test]
async fn schedules_come_in_pages() {
    let server = TestServer::start().await;
    let client = server.client();
    let names: Vec<_> = (0..101).map(|number| format!("s{number:03}")).collect();
    for name in &names {
        put(&client, name, &hello()).await.expect(201);
    }
    let of = |page: &Answer| {
        let page = page.json();
        let items = page["items"].as_array().unwrap().iter();
        items.map(|item| item["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let first = client.get("/api/schedules").await.expect(200);
    assert_eq!(of(&first), names[..100]);
    let cursor = first.cursor().unwrap();
    let rest = client.get(&format!("/api/schedules?cursor={cursor}")).await.expect(200);
    assert_eq!((of(&rest), rest.cursor()), (names[100..].to_vec(), None));
    for (limit, more) in [(1, true), (100, true), (101, false), (1000, false)] {
        let page = client.get(&format!("/api/schedules?limit={limit}")).await.expect(200);
        assert_eq!((of(&page).len(), page.cursor().is_some()), (limit.min(101), more), "{limit}");
    }
    for limit in ["0", "1001", "-1", "x", ""] {
        assert_eq!(client.get(&format!("/api/schedules?limit={limit}")).await.bad_fields(), ["limit"], "{limit}");
    }
    let other = server.client_for(&["read"]).await;
    assert_eq!(other.get(&format!("/api/schedules?cursor={cursor}")).await.bad_fields(), ["cursor"]);
    assert_eq!(client.get(&format!("/rules?cursor={cursor}")).await.bad_fields(), ["cursor"]);
    // One that is gone in between is where the next page begins all the same.
    client.delete("/api/schedules/s099").await.expect(204);
    assert_eq!(of(&client.get(&format!("/api/schedules?cursor={cursor}")).await), names[100..]);
}

// SX-27: an answer is no longer than a page of the store, and a payload, and all of them come.
#[tokio::test]
async fn a_page_of_large_schedules_ends_early() {
    let server = TestServer::start().await;
    let client = server.client();
    for number in 0..10 {
        let mut large = hello();
        large["payload"]["text"] = "x".repeat(60_000).into();
        large["payload"]["more"] = "x".repeat(200_000).into();
        put(&client, &format!("s{number}"), &large).await.expect(201);
    }
    let mut path = "/api/schedules?limit=1000".to_owned();
    let mut seen = 0;
    loop {
        let page = client.get(&path).await.expect(200);
        assert!(page.text().len() < 1_400_000, "{}", page.text().len());
        seen += page.json()["items"].as_array().unwrap().len();
        let Some(cursor) = page.cursor() else { break };
        path = format!("/api/schedules?limit=1000&cursor={cursor}");
    }
    assert_eq!(seen, 10);
}

// S002-66: what PUT answers is what GET gives.
#[tokio::test]
async fn what_is_answered_is_what_is_kept() {
    let server = TestServer::start().await;
    let client = server.client();
    let body = r#"{ "at": "2026-04-01T09:00:00.123456789+01:00", "message_type": "reminder",
        "payload": { "text": "x", "one": 1.0, "zero": -0.0, "list": [2.50, { "large": 1e100, "seven": 7.0 }] } }"#;
    let request = client.request(Method::PUT, "/api/schedules/once").header("content-type", "application/json");
    let made = Answer::to(request.body(body)).await.expect(201).json();
    let mut shown = client.get("/api/schedules/once").await.expect(200).json();
    shown.as_object_mut().unwrap().remove("runs");
    assert_eq!(made, shown);
    assert_eq!((&made["payload"]["one"], &made["payload"]["zero"]), (&json!(1), &json!(0)));
    assert_eq!(
        (&made["at"], &made["next_runs"]),
        (&json!("2026-04-01T08:00:00.123Z"), &json!(["2026-04-01T08:00:00.123Z"]))
    );
}

// S002-66: what is told ahead is what comes, also in the night in which the clocks change.
#[tokio::test]
async fn next_runs_know_when_the_clocks_change() {
    let server = TestServer::start().await;
    let client = server.client();
    server.clock.jump_to("2027-03-28T00:20:05Z".parse().unwrap());
    for (name, cron, runs) in [
        ("before", "30 1 * * *", ["2027-03-28T00:30:00.000Z", "2027-03-28T23:30:00.000Z"]),
        ("gone", "15,45 2 * * *", ["2027-03-28T01:00:00.000Z", "2027-03-29T00:15:00.000Z"]),
        ("merged", "0 2,3 * * *", ["2027-03-28T01:00:00.000Z", "2027-03-29T00:00:00.000Z"]),
    ] {
        let mut body = hello();
        body["cron"] = cron.into();
        let made = put(&client, name, &body).await.expect(201).json();
        assert_eq!(made["next_runs"].as_array().unwrap()[..2], runs, "{cron}");
    }
    server.clock.jump_to("2027-10-31T00:50:00Z".parse().unwrap());
    let shown = client.get("/api/schedules/gone").await.expect(200).json();
    // The second 02:15 and 02:45 of that night are not there.
    assert_eq!(shown["next_runs"][0], "2027-11-01T01:15:00.000Z");
}

// S002-60: every field that is wrong is named.
#[tokio::test]
async fn mistakes_are_named() {
    let server = TestServer::start().await;
    let client = server.client();
    let bad = json!({ "cron": "x", "timezone": "Mars", "missed": "maybe", "enabled": 1, "payload": [] });
    let mut fields = put(&client, "x", &bad).await.bad_fields();
    fields.sort();
    assert_eq!(fields, ["cron", "enabled", "message_type", "missed", "payload", "timezone"]);
    let past = json!({ "at": "2026-03-01T11:59:59Z", "message_type": "reminder", "payload": { "text": "x" } });
    assert_eq!(put(&client, "x", &past).await.bad_fields(), ["at"]);
    let never = json!({ "cron": "0 0 30 2 *", "message_type": "reminder", "payload": { "text": "x" } });
    assert_eq!(put(&client, "x", &never).await.bad_fields(), ["cron"]);
    assert_eq!(put(&client, "a%23b", &hello()).await.bad_fields(), ["name"]);
    assert_eq!(put(&client, "a%23b", &never).await.bad_fields(), ["name", "cron"]);
    // SX-24: what is there and no text is not missing.
    let number = json!({ "at": 1_795_016_667, "message_type": 7, "payload": { "text": "x" } });
    let errors = put(&client, "x", &number).await.problem(400)["errors"].clone();
    let text = |field: &str| json!({ "field": field, "message": "must be a string" });
    assert_eq!(errors, json!([text("at"), text("message_type")]));
}

// What means nothing to a schedule is neither kept nor in the way, however large it is.
#[tokio::test]
async fn what_is_not_part_of_a_schedule_is_not_kept() {
    let server = TestServer::start().await;
    let client = server.client();
    let mut large = hello();
    large["junk"] = "x".repeat(800_000).into();
    put(&client, "large", &large).await.expect(201);
    let log = client.get("/audit-log?entity=schedule").await.expect(200).json();
    assert_eq!(log["items"][0]["details"], json!({ "definition": hello() }));
}

#[tokio::test]
async fn scopes_are_demanded_and_the_file_keeps_its_own() {
    let text = "[[schedules]]\nname = \"filed\"\nevery = \"1h\"\nmessage_type = \"scheduled_hello\"\n\
        payload = { text = \"x\" }\n";
    let configured = Config::parse(text, std::iter::empty()).unwrap().schedules;
    let server = TestServer::start_with(|config| config.schedules = configured).await;
    let (reader, operator) = (server.client_for(&["read"]).await, server.client_for(&["operate"]).await);
    put(&reader, "x", &hello()).await.problem(403);
    put(&operator, "x", &hello()).await.expect(201);
    operator.get("/api/schedules/x").await.problem(403);
    assert_eq!(reader.get("/api/schedules/filed").await.expect(200).json()["origin"], "file");
    put(&operator, "filed", &hello()).await.problem(409);
    operator.delete("/api/schedules/filed").await.problem(409);
}

// S002-70: by itself, without anybody's help.
#[tokio::test]
async fn the_worker_is_woken_by_a_change() {
    let server = TestServer::start().await;
    let client = server.client();
    put(&client, "soon", &json!({ "every": "1s", "message_type": "reminder", "payload": { "text": "x" } }))
        .await
        .expect(201);
    server.clock.advance(std::time::Duration::from_secs(2));
    // Any change makes it look.
    put(&client, "other", &hello()).await.expect(201);
    let fired = async {
        loop {
            let shown = client.get("/api/schedules/soon").await.expect(200).json();
            if shown["runs"].as_array().unwrap().len() == 2 {
                assert_eq!(shown["runs"][0]["outcome"], "fired");
                return;
            }
            // Not fired yet: the worker is awake, and each question gives it its turn.
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), fired).await.expect("it fires in time");
}

// S002-60, S002-70: the hello of the seed works out of the box, from the clock to whoever listens.
#[tokio::test]
async fn a_scheduled_hello_reaches_the_push_server() {
    let server = TestServer::start_with(|config| {
        config.push.listen = Listen::on(SocketAddr::from(([127, 0, 0, 1], 0)));
    })
    .await;
    let client = server.client();
    let mut bad = hello();
    bad["payload"]["priority"] = "loud".into();
    assert_eq!(put(&client, "daily", &bad).await.bad_fields(), ["payload.priority"]);
    put(&client, "daily", &hello()).await.expect(201);
    server.clock.jump_to("2026-03-02T08:00:01Z".parse().unwrap());
    // The server's own worker may have been faster.
    server.services.schedules.activate(server.services.clock.now()).await.unwrap();
    let push = server.push(Some(server.admin_token()));
    Deliverer::new(&server.services, "ntfy").drain().await.unwrap();
    let pushed = push.get("/tidings/json?poll=1").await.expect(200);
    assert_eq!((&pushed.json()["message"], &pushed.json()["tags"]), (&json!("Good morning"), &json!(["sun"])));
    let shown = client.get("/api/schedules/daily").await.expect(200).json();
    let message_id = shown["runs"][0]["message_id"].as_str().unwrap();
    let message = client.get(&format!("/api/messages/{message_id}")).await.expect(200).json();
    assert_eq!(message["created_by"], "scheduler");
}

// S002-66, S002-70: hello world works out of the box, once a day, by the sample that a new store begins with.
#[tokio::test]
async fn a_new_store_begins_with_a_sample_that_is_sent_and_once_deleted_stays_away() {
    let data = tempfile::tempdir().unwrap();
    let clock = server::clock();
    let store: Arc<dyn Store> = Arc::new(Memory::new(clock.clone()));
    let open = async || {
        let mut config = server::config(data.path());
        config.push.listen = Listen::on(SocketAddr::from(([127, 0, 0, 1], 0)));
        let surroundings = Surroundings { sample: true, ..server::surroundings(&clock) };
        App::open_with(config, surroundings, Arc::clone(&store)).await.unwrap().services
    };
    let services = open().await;
    let sample = services.schedules.get("daily-hello").await.unwrap().unwrap();
    assert_eq!((sample.definition.enabled, sample.origin), (true, Origin::Api));
    assert_eq!((sample.definition.cron.as_deref(), sample.definition.timezone.as_str()), (Some("0 9 * * *"), "UTC"));
    clock.advance(Duration::from_secs(24 * 3600));
    services.schedules.activate(services.clock.now()).await.unwrap();
    Deliverer::new(&services, "ntfy").drain().await.unwrap();
    let runs = services.schedules.runs("daily-hello").await.unwrap();
    assert_eq!(runs.len(), 1);
    let message =
        services.messages.get(&message_id("daily-hello", runs[0].at).to_string()).await.unwrap().unwrap().message;
    assert_eq!((message.delivery.status.as_str(), &message.payload["text"]), ("completed", &json!("hello world")));
    let deleting = services.schedules.deleting(&services.schedules.get("daily-hello").await.unwrap().unwrap());
    services.store.transact(vec![deleting]).await.unwrap();
    drop(services);
    assert!(open().await.schedules.list().await.unwrap().is_empty());
}

// The same by the program: switched off where there is nowhere to send it to, there to be changed, gone for good.
#[tokio::test]
async fn the_sample_can_be_changed_and_deleted_and_is_off_where_nothing_takes_it() {
    let directory = tempfile::tempdir().unwrap();
    let start = || {
        let served = Served::start(directory.path());
        let token = std::fs::read_to_string(directory.path().join("tidings-data/admin.token")).unwrap();
        let client = Client::new(&served.url, Some(token.trim()));
        (served, client)
    };
    let (served, client) = start();
    let shown = client.get("/api/schedules/daily-hello").await.expect(200).json();
    assert_eq!((&shown["enabled"], &shown["cron"]), (&json!(false), &json!("0 9 * * *")), "{shown}");
    assert_eq!(
        shown["payload"],
        json!({ "text": "hello world", "priority": "default", "tags": ["scheduled", "daily"] })
    );
    let changed = json!({ "cron": "0 7 * * *", "message_type": "scheduled_hello", "payload": { "text": "mine" } });
    put(&client, "daily-hello", &changed).await.expect(200);
    served.stop();
    let (served, client) = start();
    let shown = client.get("/api/schedules/daily-hello").await.expect(200).json();
    assert_eq!((&shown["cron"], &shown["payload"]["text"]), (&json!("0 7 * * *"), &json!("mine")), "{shown}");
    client.delete("/api/schedules/daily-hello").await.expect(204);
    served.stop();
    let (served, client) = start();
    assert_eq!(client.get("/api/schedules").await.expect(200).json()["items"], json!([]));
    for name in ["new", "%2E"] {
        let answer = put(&client, name, &changed).await;
        assert!([400, 404, 405].contains(&answer.status), "{name}: {}", answer.text());
    }
    assert_eq!(put(&client, "new", &changed).await.bad_fields(), ["name"]);
    served.stop();
}
