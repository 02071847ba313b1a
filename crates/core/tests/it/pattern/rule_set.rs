//! A set of rules: ids, order, replacement.

use tidings_core::pattern::workload::Workload;
use tidings_core::pattern::{Pattern, RuleSet, Scratch};

fn pattern(text: &str) -> Pattern {
    Pattern::parse(text).unwrap()
}

#[test]
fn ids_come_once_and_in_order() {
    let mut rules = RuleSet::new();
    let mut scratch = Scratch::new();
    assert!(rules.is_empty());
    for id in ["m", "b", "z", "a"] {
        rules.insert(id.to_owned(), &pattern(r#"{"x":[1,{"numeric":[">",0]},{"exists":true}],"y":[{"prefix":""}]}"#));
    }
    assert_eq!(rules.len(), 4);
    let found = rules.matches(r#"{"x":[1,1,1],"y":["",""]}"#, &mut scratch).unwrap();
    assert_eq!(found, ["a", "b", "m", "z"]);
    assert!(rules.matches(r#"{"x":1}"#, &mut scratch).unwrap().is_empty());
}

#[test]
fn a_rule_is_replaced_by_its_id() {
    let mut rules = RuleSet::new();
    let mut scratch = Scratch::new();
    rules.insert(1, &pattern(r#"{"a":["x"]}"#));
    rules.insert(1, &pattern(r#"{"b":["x"]}"#));
    assert_eq!(rules.len(), 1);
    assert!(rules.matches(r#"{"a":"x"}"#, &mut scratch).unwrap().is_empty());
    assert_eq!(rules.matches(r#"{"b":"x"}"#, &mut scratch).unwrap(), [&1]);
    assert!(rules.remove(&1));
    assert!(!rules.remove(&1));
    assert!(rules.is_empty());
    assert!(rules.matches(r#"{"b":"x"}"#, &mut scratch).unwrap().is_empty());
}

#[test]
fn one_scratch_serves_many_sets_and_survives_errors() {
    let (mut small, mut large) = (RuleSet::new(), RuleSet::new());
    small.insert(1, &pattern(r#"{"a":["x"]}"#));
    for id in 0..100 {
        large.insert(id, &pattern(&format!(r#"{{"k{id}":["x"],"a":[{{"exists":true}}]}}"#)));
    }
    let mut scratch = Scratch::new();
    for _ in 0..3 {
        assert_eq!(small.matches(r#"{"a":"x"}"#, &mut scratch).unwrap(), [&1]);
        assert_eq!(large.matches(r#"{"a":"x","k99":"x"}"#, &mut scratch).unwrap(), [&99]);
        assert!(large.matches(r#"{"k5":"x","a":"#, &mut scratch).is_err());
        assert!(large.matches(r#"{"a":"x"}"#, &mut scratch).unwrap().is_empty());
    }
}

#[test]
fn sets_and_patterns_go_between_threads() {
    fn everywhere<T: Send + Sync + 'static>() {}
    everywhere::<RuleSet<String>>();
    everywhere::<Pattern>();
    everywhere::<Scratch>();
}

/// S003-74: a subscription's filters on properties and body; any of its rules lets the message in, and once.
#[test]
fn the_rules_of_a_subscription() {
    let mut rules = RuleSet::new();
    let mut scratch = Scratch::new();
    for (name, text) in [
        ("equal", r#"{"properties":{"eventType":["order.created"]}}"#),
        ("not equal", r#"{"properties":{"region":[{"anything-but":"eu"}]}}"#),
        ("in", r#"{"properties":{"eventType":["order.changed","order.closed"]}}"#),
        ("like", r#"{"properties":{"eventType":[{"wildcard":"order.c*ed"}]}}"#),
        ("exists", r#"{"properties":{"urgent":[{"exists":true}]}}"#),
        (
            "and",
            r#"{"properties":{"eventType":[{"prefix":"order."}],"region":["eu"]},"body":{"amount":[{"numeric":[">",10]}]}}"#,
        ),
        ("or", r#"{"$or":[{"properties":{"region":["us"]}},{"body":{"amount":[{"numeric":["<",1]}]}}]}"#),
    ] {
        rules.insert(name, &pattern(text));
    }
    let mut check = |event: &str, expected: &[&str]| {
        assert_eq!(rules.matches(event, &mut scratch).unwrap().into_iter().copied().collect::<Vec<_>>(), expected);
    };
    check(
        r#"{"properties":{"eventType":"order.created","region":"eu"},"body":{"amount":11}}"#,
        &["and", "equal", "like"],
    );
    check(
        r#"{"properties":{"eventType":"order.changed","region":"us"},"body":{"amount":0.5}}"#,
        &["in", "like", "not equal", "or"],
    );
    check(r#"{"properties":{"urgent":true},"body":{"amount":0}}"#, &["exists", "or"]);
    check(r#"{"properties":{"eventType":"ticket.created","region":"eu"},"body":{"amount":5}}"#, &[]);
}

/// The measured workload means what the plain evaluator says it means, and it is the same for the same seed.
#[test]
fn the_workload_agrees() {
    let mut workload = Workload::new(2_000, 3);
    let mut again = Workload::new(2_000, 3);
    let mut rules = RuleSet::new();
    let mut scratch = Scratch::new();
    let patterns: Vec<Pattern> = (0..2_000).map(|_| pattern(&workload.pattern())).collect();
    assert!((0..2_000).all(|_| !again.pattern().is_empty()));
    for (id, pattern) in patterns.iter().enumerate() {
        rules.insert(id, pattern);
    }
    let mut found = 0;
    for _ in 0..100 {
        let event = workload.event();
        assert_eq!(event, again.event());
        assert!((800..1_300).contains(&event.len()), "about 1 KB: {}", event.len());
        let tree = serde_json::from_str(&event).unwrap();
        let expected: Vec<usize> = (0..2_000).filter(|&id| patterns[id].naive_matches(&tree)).collect();
        let ids: Vec<usize> = rules.matches(&event, &mut scratch).unwrap().into_iter().copied().collect();
        assert_eq!(ids, expected, "{event}");
        found += ids.len();
    }
    assert!(found > 100, "a workload without matches proves nothing");
}
