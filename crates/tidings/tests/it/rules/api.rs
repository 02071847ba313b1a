//! `/rules`: what is taken, what is refused and why, what is shown.

use serde_json::{Value, json};

use super::{Rig, own_names};
use crate::support::TestServer;

fn rule() -> Value {
    json!({
        "pattern": { "eventType": [{ "prefix": "ticket." }], "data": { "env": ["prod"] } },
        "targets": [
            { "channel": "inbox", "users": ["u1", "{{ data.userId }}"] },
            { "channel": "inbox", "map": { "product": "{{ data.productId }}", "groups": ["network"] } },
            { "channel": "email", "to": ["ops@example.com"] },
            { "channel": "ntfy", "topic": "ops" },
            { "channel": "ntfy" },
            { "channel": "webhook", "url": "https://hooks.example.com/x/{{ data.id }}", "secret": "whsec_aHVzaC1odXNoLWh1c2gtaHVzaC1odXNoLWh1c2g=" },
            { "channel": "queue", "entity": "jobs" },
            { "channel": "ticket", "caller": "tidings" },
        ],
        "title": "Ticket {{ data.id }}",
        "text": "{{ data.text }}",
        "link": "https://desk.example.com/tickets/{{ data.id }}",
        "dedupe_seconds": 60,
        "dedupe_key": "{{ data.id }}",
    })
}

// S001-14, SX-11
#[tokio::test]
async fn a_rule_is_made_shown_replaced_and_deleted() {
    let server = TestServer::start().await;
    let client = server.client();
    let made = client.put("/rules/tickets", &rule()).await.expect(201).json();
    assert_eq!((&made["name"], &made["enabled"], &made["origin"]), (&json!("tickets"), &json!(true), &json!("api")));
    let shown = client.get("/rules/tickets").await.expect(200).json();
    assert_eq!(shown, made);
    for (field, value) in rule().as_object().unwrap() {
        if field != "targets" {
            assert_eq!(&shown[field], value, "{field}");
        }
    }
    client.put("/rules/tickets", &rule()).await.expect(200);
    assert_eq!(own_names(&client.get("/rules").await.expect(200).json()), ["tickets"]);
    client.delete("/rules/tickets").await.expect(204);
    client.get("/rules/tickets").await.problem(404);
    client.delete("/rules/tickets").await.problem(404);
    let list = client.get("/rules").await.expect(200).json();
    assert_eq!((own_names(&list), &list["cursor"]), (Vec::new(), &json!(null)));
}

// SX-20: a secret goes in and never comes out.
#[tokio::test]
async fn secrets_are_never_returned_and_stay_when_hidden() {
    let server = TestServer::start().await;
    let client = server.client();
    let made = client.put("/rules/r", &rule()).await.expect(201);
    assert_eq!(made.json()["targets"][5]["secret"], "***");
    // What is shown can be written back: the secret stays.
    client.put("/rules/r", &made.json()).await.expect(200);
    for path in ["/rules/r", "/rules", "/audit-log", "/metrics"] {
        assert!(!client.get(path).await.expect(200).text().contains("aHVzaC1odXNo"), "{path}");
    }
    let mut other = made.json();
    other["targets"][5]["url"] = json!("https://elsewhere.example.com/");
    assert_eq!(client.put("/rules/r", &other).await.bad_fields(), ["targets[5].secret"], "not for another address");
}

#[tokio::test]
async fn every_failing_field_is_named_with_its_place() {
    let server = TestServer::start().await;
    let client = server.client();
    let bad = json!({
        "name": "other",
        "enabled": "yes",
        "pattern": { "data": { "env": ["prod", { "wrong": 1 }] } },
        "targets": [
            { "channel": "smoke" },
            { "channel": "inbox" },
            { "channel": "inbox", "users": ["", "notificationmap", 7] },
            { "channel": "inbox", "map": { "product": "" } },
            { "channel": "email", "to": ["nobody"] },
            { "channel": "ntfy", "topic": "no/topic" },
            { "channel": "webhook", "url": "ftp://x" },
            { "channel": "webhook", "url": "https://{{ data.host }}/", "secret": "" },
            { "channel": "queue" },
            { "channel": "ticket", "caller": "", "to": [] },
            "x",
            { "channel": "webhook", "url": "https://user:word@h.example/", "secret": "my-secret" },
            { "channel": "webhook", "url": "http://[::1%25lo]/" },
            { "channel": "email", "to": ["a..b@c.d"] },
        ],
        "title": "{{ data.",
        "text": "{% set x = 1 %}",
        "dedupe_seconds": 604801,
    });
    let fields = client.put("/rules/r", &bad).await.bad_fields();
    for field in [
        "name",
        "enabled",
        "title",
        "text",
        "dedupe_seconds",
        "pattern.data.env[1].wrong",
        "targets[0].channel",
        "targets[1]",
        "targets[2].users[0]",
        "targets[2].users[1]",
        "targets[2].users[2]",
        "targets[3].map.product",
        "targets[4].to[0]",
        "targets[5].topic",
        "targets[6].url",
        "targets[7].url",
        "targets[7].secret",
        "targets[8].entity",
        "targets[9].to",
        "targets[9].caller",
        "targets[10]",
        "targets[11].url",
        "targets[11].secret",
        "targets[12].url",
        "targets[13].to[0]",
    ] {
        assert!(fields.contains(&field.to_owned()), "{field} is not in {fields:?}");
    }
    assert!(client.get("/rules/r").await.status == 404, "nothing of it was kept");
    let nothing = client.put("/rules/r", &json!({})).await.bad_fields();
    assert_eq!(nothing, ["pattern", "targets"]);
    let twice = r#"{"pattern":{"a":[1],"b":[2],"a":[3]},"event":{"x":1,"x":2}}"#;
    let twice = client.post_as("/rules/test", "application/json", twice).await;
    assert_eq!(twice.bad_fields(), ["pattern.a"], "which of the two is meant nobody knows");
    let wrong = json!({ "pattern": { "a": 1, "b": [] }, "event": {} });
    assert_eq!(client.post("/rules/test", &wrong).await.bad_fields(), ["pattern.a", "pattern.b"]);
    let fields = client
        .put("/rules/r", &json!({ "pattern": { "a": [1] }, "targets": [{ "channel": "ntfy" }], "title": 1, "text": "{% x %}", "dedupe_seconds": -1, "enabled": 1 }))
        .await
        .bad_fields();
    assert_eq!(fields, ["enabled", "title", "text", "dedupe_seconds"]);
}

#[tokio::test]
async fn names_and_limits_hold_at_their_edges() {
    let server = TestServer::start().await;
    let client = server.client();
    let small = json!({ "pattern": { "a": [1] }, "targets": [{ "channel": "ntfy" }] });
    for (name, status) in [
        ("x".repeat(128), 201),
        ("x".repeat(129), 400),
        ("with%20blank".to_owned(), 201),
        ("%20edge".to_owned(), 400),
        ("a%23b".to_owned(), 400),
        ("test".to_owned(), 400),
    ] {
        // `PUT /rules/test` is no call at all: the path is taken.
        let answer = client.put(&format!("/rules/{name}"), &small).await;
        assert!(answer.status == status || (name == "test" && answer.status == 405), "{name}: {}", answer.text());
    }
    let with = |name: &str, value: Value| {
        let mut rule = small.clone();
        rule[name] = value;
        rule
    };
    client.put("/rules/r", &with("dedupe_seconds", json!(604_800))).await.expect(201);
    client.put("/rules/r", &with("targets", json!(vec![json!({ "channel": "ntfy" }); 20]))).await.expect(200);
    let fields = client.put("/rules/r", &with("targets", json!(vec![json!({ "channel": "ntfy" }); 21]))).await;
    assert_eq!(fields.bad_fields(), ["targets"]);
    let users: Vec<String> = (0..60_000).map(|n| format!("user-{n}")).collect();
    let long = with("targets", json!([{ "channel": "inbox", "users": users }]));
    assert_eq!(client.put("/rules/r", &long).await.bad_fields(), [""], "an item has its limits");
}

#[tokio::test]
async fn a_list_is_paged_and_stable() {
    let server = TestServer::start().await;
    let client = server.client();
    let small = json!({ "pattern": { "a": [1] }, "targets": [{ "channel": "ntfy" }] });
    for n in 0..25 {
        client.put(&format!("/rules/r{n:02}"), &small).await.expect(201);
    }
    let mut names = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = client.get(&format!("/rules?limit=10{cursor}")).await.expect(200);
        names.extend(own_names(&page.json()));
        match page.cursor() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
        client.put("/rules/a-new-one-before", &small).await;
    }
    assert_eq!(names, (0..25).map(|n| format!("r{n:02}")).collect::<Vec<_>>());
    assert_eq!(client.get("/rules?limit=0").await.bad_fields(), ["limit"]);
    assert_eq!(client.get("/rules?page=1").await.bad_fields(), ["page"]);
}

// SX-20
#[tokio::test]
async fn scopes_are_demanded() {
    let server = TestServer::start().await;
    let small = json!({ "pattern": { "a": [1] }, "targets": [{ "channel": "ntfy" }] });
    let test = json!({ "pattern": { "a": [1] }, "event": { "a": 1 } });
    let (read, operate) = (server.client_for(&["read"]).await, server.client_for(&["operate"]).await);
    let ingest = server.client_for(&["ingest"]).await;
    operate.put("/rules/r", &small).await.expect(201);
    read.put("/rules/r", &small).await.problem(403);
    read.delete("/rules/r").await.problem(403);
    read.get("/rules/r").await.expect(200);
    operate.get("/rules").await.problem(403);
    for client in [&read, &operate] {
        client.post("/rules/test", &test).await.expect(200);
    }
    ingest.post("/rules/test", &test).await.problem(403);
    server.stranger().get("/rules").await.problem(401);
    operate.delete("/rules/r").await.expect(204);
}

// SX-19
#[tokio::test]
async fn changes_are_audited_with_their_effect() {
    let server = TestServer::start().await;
    let client = server.client();
    client.put("/rules/r", &rule()).await.expect(201);
    client.put("/rules/r", &rule()).await.expect(200);
    client.delete("/rules/r").await.expect(204);
    let log = client.get("/audit-log?entity=rule").await.expect(200).json();
    let actions: Vec<_> = log["items"].as_array().unwrap().iter().map(|e| e["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["rule.delete", "rule.update", "rule.create"]);
    assert_eq!(client.get("/audit-log/verify").await.json()["ok"], true);
}

#[tokio::test]
async fn a_rule_in_the_file_is_seen_and_cannot_be_changed() {
    let text = r#"
        [[rules]]
        name = "from-file"
        pattern = { eventType = ["a"] }
        title = "from the file"
        targets = [{ channel = "inbox", users = ["u1"] }]
    "#;
    let parsed = tidings::config::Config::parse(text, std::iter::empty()).unwrap();
    let server = TestServer::start_with(|config| config.rules = parsed.rules).await;
    let client = server.client();
    let rule = client.get("/rules/from-file").await.expect(200).json();
    assert_eq!((&rule["origin"], &rule["title"]), (&json!("file"), &json!("from the file")));
    let problem = client.put("/rules/from-file", &rule).await.problem(409);
    assert!(problem["detail"].as_str().unwrap().contains("configuration file"), "{problem}");
    client.delete("/rules/from-file").await.problem(409);
    client.send(&json!({ "eventId": "e", "eventType": "a" })).await;
    let event = client.get("/events/e").await.json();
    assert_eq!(event["outcome"]["notifications"][0]["user"], "u1", "{event}");
}

// On a store that several nodes share, each hears of the others' changes.
#[tokio::test]
async fn another_node_learns_of_changes() {
    let rig = Rig::start().await;
    let clock = rig.server.clock.clone();
    let node = tidings::rules::Rules::open(rig.store.clone(), clock, &[]).await.unwrap();
    let targets = json!({ "targets": [{ "channel": "ntfy" }] });
    for name in ["a", "b"] {
        rig.rule(name, targets.clone()).await;
    }
    let before = node.book.len();
    node.sync().await.unwrap();
    assert_eq!(node.book.len(), before + 2);
    rig.server.client().delete("/rules/a").await.expect(204);
    rig.rule("b", json!({ "enabled": false, "targets": [{ "channel": "ntfy" }] })).await;
    node.sync().await.unwrap();
    assert!(node.book.get("a").is_none());
    assert!(node.book.get("b").is_some_and(|rule| !rule.enabled));
    assert!(node.book.matching(r#"{"eventType":"a"}"#).unwrap().is_empty());
}

// A typo in a filter would only show when the notice is needed.
#[tokio::test]
async fn unknown_filters_and_functions_are_refused_by_field() {
    let server = TestServer::start().await;
    let rule = json!({ "pattern": { "eventType": ["a"] }, "title": "{{ data.x|uper }}", "text": "{{ nope() }}",
        "targets": [{ "channel": "inbox", "users": ["ana"] }] });
    let answer = server.client().put("/rules/typo", &rule).await;
    answer.problem(400);
    assert_eq!(answer.bad_fields(), ["title", "text"]);
    server.client().get("/rules/typo").await.problem(404);
}

// SX-12: a name that can be none is not made into another's.
#[tokio::test]
async fn a_recipient_is_who_the_event_names_or_nobody() {
    let server = TestServer::start().await;
    let client = server.client();
    let rule = json!({ "pattern": { "eventType": ["a"] }, "title": "x",
        "targets": [{ "channel": "inbox", "users": ["{{ data.u }}"] }] });
    client.put("/rules/named", &rule).await.expect(201);
    for (id, user, told) in [
        ("1", json!("a\nb"), 0),
        ("2", json!({ "a": 1 }), 0),
        ("3", json!(" ana "), 1),
        ("4", json!(["ben", "c\td"]), 1),
        ("5", json!(17), 1),
    ] {
        client.send(&json!({ "eventType": "a", "eventId": id, "data": { "u": user } })).await;
        let event = client.get(&format!("/events/{id}")).await.expect(200).json();
        assert_eq!(event["outcome"]["notifications"].as_array().map_or(0, Vec::len), told, "{event}");
    }
}

#[tokio::test]
async fn names_that_lead_elsewhere_and_queues_that_cannot_be_are_refused() {
    let server = TestServer::start().await;
    let client = server.client();
    let rule = |entity: &str| json!({ "pattern": { "eventType": ["a"] }, "targets": [{ "channel": "queue", "entity": entity }] });
    for name in ["new", "try", "test", "%2E", "%2E%2E"] {
        // A client may have made `.` into another address altogether.
        let answer = client.put(&format!("/rules/{name}"), &rule("q")).await;
        assert!([400, 404, 405].contains(&answer.status), "{name}: {}", answer.text());
    }
    for name in ["new", "try"] {
        assert_eq!(client.put(&format!("/rules/{name}"), &rule("q")).await.bad_fields(), ["name"]);
    }
    for name in ["news", "New", "..."] {
        client.put(&format!("/rules/{name}"), &rule("q")).await.expect(201);
    }
    for entity in ["{{ data.q }}", "a b", "q/$deadletterqueue", "t/subscriptions/s", "", "..", &"q".repeat(261)] {
        let answer = client.put("/rules/r", &rule(entity)).await;
        assert_eq!(answer.bad_fields(), ["targets[0].entity"], "{entity}");
    }
    for entity in ["q", "a.b-c_d", &"q".repeat(260)] {
        client.put("/rules/r", &rule(entity)).await;
        assert_eq!(client.get("/rules/r").await.expect(200).json()["targets"][0]["entity"], *entity);
    }
}

// Whoever wants to change what a monitor brings along is told where.
#[tokio::test]
async fn a_rule_of_a_monitor_says_so_and_how_to_change_it() {
    let server = TestServer::start().await;
    let client = server.client();
    for name in ["monitor-dead-letters", "monitor-dead-letters-escalation-1"] {
        let shown = client.get(&format!("/rules/{name}")).await.expect(200).json();
        assert_eq!(shown["origin"], "monitor");
        let path = format!("/rules/{name}");
        for answer in [client.put(&path, &shown).await, client.delete(&path).await] {
            let detail = answer.problem(409)["detail"].as_str().unwrap().to_owned();
            assert!(detail.contains("the monitor `dead-letters`") && detail.contains("[[monitors]]"), "{detail}");
        }
    }
}

// The schema calls them nullable: a client that knows every field writes `null` for those that it leaves out.
#[tokio::test]
async fn null_is_as_good_as_nothing() {
    let server = TestServer::start().await;
    let client = server.client();
    let target = json!({
        "channel": "inbox", "users": ["u"], "map": null, "to": null, "topic": null, "url": null, "secret": null,
        "entity": null, "caller": null,
    });
    let rule =
        json!({ "name": null, "pattern": { "eventType": ["a"] }, "targets": [target], "title": null, "text": null });
    client.put("/rules/r", &rule).await.expect(201);
    let test = json!({ "pattern": { "eventType": ["a"] }, "event": { "eventType": "a" }, "last": null });
    client.post("/rules/test", &test).await.expect(200);
    client.send(&json!({ "eventType": "a" })).await;
    let inbox = client.get("/notifications?user=u").await.expect(200).json();
    let id = &inbox["items"][0]["notification_identifier"];
    let mark = json!([{ "user": "u", "notification_identifier": id, "action": null }]);
    client.post("/notifications", &mark).await.expect(200);
    assert_eq!(
        client.get("/notifications?user=u&status=read").await.expect(200).json()["items"].as_array().unwrap().len(),
        1
    );
}
