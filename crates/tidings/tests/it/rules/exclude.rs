//! Exclude rules: where one matches, others tell nobody, and why is on record.

use serde_json::{Value, json};

use super::Rig;
use crate::support::TestServer;

fn told(user: &str) -> Value {
    json!({ "targets": [{ "channel": "inbox", "users": [user] }, { "channel": "ntfy" }], "title": "T" })
}

fn matched<'a>(outcome: &'a Value, name: &str) -> &'a Value {
    let rules = outcome["rules"].as_array().unwrap();
    rules.iter().find(|rule| rule["name"] == name).unwrap_or_else(|| panic!("no {name} in {outcome}"))
}

// SX-12
#[tokio::test]
async fn a_matching_exclude_rule_keeps_the_others_from_telling_anybody() {
    let rig = Rig::start().await;
    rig.rule("tell", told("u1")).await;
    rig.rule("tell-too", told("u2")).await;
    let by_account = json!({
        "pattern": { "eventType": ["a"], "data": { "actor": ["svc-deploy"] } },
        "exclude": true, "reason": "{{ data.actor }} is an authorised account",
    });
    rig.rule("authorised", by_account).await;

    rig.send(json!({ "eventId": "e1", "eventType": "a", "data": { "actor": "svc-deploy" }, "correlationId": "c1" }))
        .await;
    let outcome = rig.outcome("e1").await;
    let why = "svc-deploy is an authorised account";
    assert_eq!(
        matched(&outcome, "tell"),
        &json!({ "name": "tell", "status": "suppressed", "by": "authorised", "reason": why })
    );
    assert_eq!(matched(&outcome, "authorised"), &json!({ "name": "authorised", "status": "excluded", "reason": why }));
    assert_eq!(outcome["suppressed"], json!(["tell", "tell-too"]));
    assert_eq!(outcome["totals"], json!({ "rules": 3, "notifications": 0, "messages": 0 }));
    assert_eq!((rig.unread("u1").await, rig.messages("tell").await.len()), (0, 0));

    // The same in the timeline and in the metrics.
    let trace = rig.server.client().get("/trace/c1").await.expect(200).json();
    let steps = trace["items"].as_array().unwrap();
    let step = steps.iter().find(|step| step["kind"] == "rule").unwrap_or_else(|| panic!("{trace}"));
    assert_eq!(step["details"]["suppressed"], json!(["tell", "tell-too"]));
    assert!(step["details"]["rules"].to_string().contains(why), "{step}");
    let metrics = rig.server.client().get("/metrics").await.expect(200).text();
    for line in [r#"rule_matches_total{result="suppressed"} 2"#, r#"rule_matches_total{result="excluded"} 1"#] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }

    // Somebody else's event is told, and so is the first one's once the rule is off.
    rig.send(json!({ "eventId": "e2", "eventType": "a", "data": { "actor": "eve" } })).await;
    let outcome = rig.outcome("e2").await;
    assert_eq!(outcome["totals"], json!({ "rules": 2, "notifications": 2, "messages": 1 }), "one push: {outcome}");
    assert!(outcome.get("suppressed").is_none());
    rig.rule("authorised", json!({ "exclude": true, "reason": "x", "enabled": false })).await;
    rig.send(json!({ "eventId": "e3", "eventType": "a", "data": { "actor": "svc-deploy" } })).await;
    assert_eq!(rig.outcome("e3").await["totals"]["notifications"], 2);
}

// SX-12
#[tokio::test]
async fn an_exclude_rule_may_name_the_rules_it_keeps_back() {
    let rig = Rig::start().await;
    for (name, user) in [("one", "u1"), ("two", "u2"), ("three", "u3")] {
        rig.rule(name, told(user)).await;
    }
    rig.rule("x-first", json!({ "exclude": true, "reason": "first", "rules": ["one", "gone"] })).await;
    rig.rule("x-second", json!({ "exclude": true, "reason": "second", "rules": ["one", "two", "x-first"] })).await;
    rig.send(json!({ "eventId": "e1", "eventType": "a" })).await;
    let outcome = rig.outcome("e1").await;
    assert_eq!(matched(&outcome, "one")["reason"], "first", "the first one that covers it");
    assert_eq!(
        (&matched(&outcome, "two")["by"], &matched(&outcome, "three")["status"]),
        (&json!("x-second"), &json!("matched"))
    );
    // Exclude rules do not keep each other back.
    assert_eq!(matched(&outcome, "x-first")["status"], "excluded");
    assert_eq!((rig.unread("u1").await, rig.unread("u2").await, rig.unread("u3").await), (0, 0, 1));
}

#[tokio::test]
async fn what_is_kept_back_neither_opens_a_window_nor_leaves_work() {
    let rig = Rig::start().await;
    let mut rule = told("u1");
    rule["dedupe_seconds"] = json!(60);
    rig.rule("tell", rule).await;
    let users: Vec<String> = (0..500).map(|n| format!("w{n}")).collect();
    rig.rule("wide", json!({ "targets": [{ "channel": "inbox", "users": users }] })).await;
    let night = json!({ "pattern": { "data": { "quiet": [true] } }, "exclude": true, "reason": "{{ data.nothing }}" });
    rig.rule("quiet", night).await;
    rig.send(json!({ "eventId": "e1", "eventType": "a", "data": { "quiet": true } })).await;
    let outcome = rig.outcome("e1").await;
    assert!(outcome.get("fanout").is_none(), "{outcome}");
    assert_eq!(matched(&outcome, "wide")["reason"], "excluded by the rule quiet", "a template with nothing to say");
    rig.send(json!({ "eventId": "e2", "eventType": "a", "data": { "quiet": false } })).await;
    assert_eq!(matched(&rig.outcome("e2").await, "tell")["status"], "matched");
    assert_eq!(rig.unread("u1").await, 1);
}

#[tokio::test]
async fn it_is_written_shown_and_refused_like_any_rule() {
    let server = TestServer::start().await;
    let client = server.client();
    let rule = json!({ "pattern": { "a": [1] }, "exclude": true, "reason": "why {{ data.x }}", "rules": ["r1"] });
    let made = client.put("/rules/x", &rule).await.expect(201).json();
    for (field, value) in rule.as_object().unwrap() {
        assert_eq!(&made[field], value, "{field}");
    }
    assert!(made.get("targets").is_none() && made.get("title").is_none());
    assert_eq!(client.put("/rules/x", &made).await.expect(200).json(), made, "what is shown can be written back");

    let with = |name: &str, value: Value| {
        let mut rule = rule.clone();
        rule[name] = value;
        rule
    };
    let names = |count: usize| json!((0..count).map(|n| format!("r{n}")).collect::<Vec<_>>());
    for (rule, fields) in [
        (with("reason", json!("")), vec!["reason"]),
        (with("reason", json!(null)), vec!["reason"]),
        (with("reason", json!(7)), vec!["reason"]),
        (with("reason", json!("{{ data.")), vec!["reason"]),
        (with("exclude", json!("yes")), vec!["exclude", "reason", "rules", "targets"]),
        (with("exclude", json!(false)), vec!["reason", "rules", "targets"]),
        (with("rules", json!("r1")), vec!["rules"]),
        (with("rules", json!(["r1", "", 3])), vec!["rules[1]", "rules[2]"]),
        (with("rules", names(101)), vec!["rules"]),
        (with("targets", json!([{ "channel": "ntfy" }])), vec!["targets"]),
        (with("title", json!("T")), vec!["title"]),
        (with("dedupe_seconds", json!(5)), vec!["dedupe_seconds"]),
    ] {
        let mut named = client.put("/rules/y", &rule).await.bad_fields();
        named.sort();
        assert_eq!(named, fields, "{rule}");
    }
    client.get("/rules/y").await.problem(404);
    client.put("/rules/x", &with("rules", names(99))).await.expect(200);
    client.put("/rules/x", &with("rules", names(100))).await.expect(200);
    client.put("/rules/x", &with("targets", json!([]))).await.expect(200);
}

#[tokio::test]
async fn it_can_stand_in_the_file() {
    let text = r#"
        [[rules]]
        name = "tell"
        pattern = { eventType = ["a"] }
        targets = [{ channel = "inbox", users = ["u1"] }]
        [[rules]]
        name = "planned"
        pattern = { data = { planned = [true] } }
        exclude = true
        reason = "planned by {{ data.by }}"
    "#;
    let parsed = tidings::config::Config::parse(text, std::iter::empty()).unwrap();
    let server = TestServer::start_with(|config| config.rules = parsed.rules).await;
    let client = server.client();
    client.send(&json!({ "eventId": "e", "eventType": "a", "data": { "planned": true, "by": "Ann" } })).await;
    let outcome = client.get("/events/e").await.expect(200).json()["outcome"].clone();
    assert_eq!(matched(&outcome, "tell")["reason"], "planned by Ann", "{outcome}");
    let wrong = text.replace("reason = \"planned by {{ data.by }}\"", "");
    let problems = tidings::config::Config::parse(&wrong, std::iter::empty()).unwrap_err();
    assert!(format!("{problems:?}").contains("reason"), "{problems:?}");
}
