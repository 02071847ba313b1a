//! Built-in rules: seen, changed, switched off, and back again.

use serde_json::{Value, json};
use tidings::rules::builtin::BuiltIn;
use tidings::rules::{Origin, Rules};

use super::Rig;

const RULE: BuiltIn = BuiltIn {
    name: "built-in",
    json: r#"{"pattern":{"eventType":["a"]},"targets":[{"channel":"inbox","users":["u1"]}],"title":"as built"}"#,
};

async fn rig() -> Rig {
    let rig = Rig::start().await;
    rig.server.services.rules.book.put(RULE.compile().unwrap());
    rig
}

async fn title_of(rig: &Rig, event_id: &str) -> Option<String> {
    rig.send(json!({ "eventId": event_id, "eventType": "a" })).await;
    let identifier = format!("e-{event_id}");
    rig.inbox("u1")
        .await
        .into_iter()
        .find(|entry| format!("e-{}", entry.event_id) == identifier)
        .map(|entry| entry.title)
}

// S001-13, S001-15: the filters are rules that can be seen and changed.
#[tokio::test]
async fn it_is_seen_changed_switched_off_and_restored() {
    let rig = rig().await;
    let client = rig.server.client();
    let shown = client.get("/rules/built-in").await.expect(200).json();
    assert_eq!((&shown["origin"], &shown["title"]), (&json!("builtin"), &json!("as built")));
    assert!(shown.get("overrides").is_none());
    let listed = client.get("/rules").await.expect(200).json();
    assert!(listed["items"].as_array().unwrap().contains(&shown));
    assert_eq!(title_of(&rig, "e1").await.as_deref(), Some("as built"));

    // Deleting what is built in is refused, and says what to do instead.
    let problem = client.delete("/rules/built-in").await.problem(409);
    assert!(problem["detail"].as_str().unwrap().contains("`enabled` false"), "{problem}");

    // What is shown can be written back with a change: 200, for the rule was there.
    let mut mine = shown.clone();
    mine["title"] = json!("as I like it");
    let changed = client.put("/rules/built-in", &mine).await.expect(200).json();
    assert_eq!((&changed["origin"], &changed["overrides"]), (&json!("api"), &json!("builtin")));
    assert_eq!(title_of(&rig, "e2").await.as_deref(), Some("as I like it"));
    mine["enabled"] = json!(false);
    client.put("/rules/built-in", &mine).await.expect(200);
    assert_eq!(title_of(&rig, "e3").await, None);

    client.delete("/rules/built-in").await.expect(204);
    assert_eq!(client.get("/rules/built-in").await.expect(200).json(), shown);
    assert_eq!(title_of(&rig, "e4").await.as_deref(), Some("as built"));
    client.delete("/rules/built-in").await.problem(409);
}

#[tokio::test]
async fn a_change_survives_a_restart_and_reaches_other_nodes() {
    let rig = rig().await;
    let client = rig.server.client();
    let node = Rules::open(rig.store.clone(), rig.server.clock.clone(), &[]).await.unwrap();
    node.book.put(RULE.compile().unwrap());
    let origin = |rules: &Rules| rules.book.get("built-in").map(|rule| (rule.origin, rule.enabled));
    let mut off: Value = serde_json::from_str(RULE.json).unwrap();
    off["enabled"] = json!(false);
    client.put("/rules/built-in", &off).await.expect(200);
    node.sync().await.unwrap();
    assert_eq!(origin(&node), Some((Origin::Api, false)));
    // A built-in rule that comes after the stored one stays behind it.
    let late = Rules::open(rig.store.clone(), rig.server.clock.clone(), &[]).await.unwrap();
    late.book.put(RULE.compile().unwrap());
    assert_eq!(origin(&late), Some((Origin::Api, false)));
    client.delete("/rules/built-in").await.expect(204);
    for rules in [&node, &late] {
        rules.sync().await.unwrap();
        assert_eq!(origin(rules), Some((Origin::BuiltIn, true)));
    }
}

#[tokio::test]
async fn the_file_wins_over_it_and_gives_it_back() {
    let rig = rig().await;
    let text = "[[rules]]\nname = 'built-in'\npattern = { eventType = ['z'] }\ntargets = [{ channel = 'ntfy' }]\n";
    let parsed = tidings::config::Config::parse(text, std::iter::empty()).unwrap();
    let rules = &rig.server.services.rules;
    rules.take_file_rules(&parsed.rules).unwrap();
    let shown = rig.server.client().get("/rules/built-in").await.expect(200).json();
    assert_eq!((&shown["origin"], &shown["overrides"]), (&json!("file"), &json!("builtin")));
    rig.server.client().put("/rules/built-in", &shown).await.problem(409);
    rules.take_file_rules(&[]).unwrap();
    assert_eq!(rig.server.client().get("/rules/built-in").await.json()["origin"], "builtin");
    assert_eq!(title_of(&rig, "e1").await.as_deref(), Some("as built"));
}
