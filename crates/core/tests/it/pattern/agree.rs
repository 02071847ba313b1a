//! The rule set and the plain evaluator agree on whatever can be written down, and nothing that cannot be makes either
//! panic.

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;
use tidings_core::pattern::{Pattern, RuleSet, Scratch};

// Few keys and few values, so that rules and events meet.
const KEYS: [&str; 5] = ["a", "b", "eventType", "old", "new"];
const TEXTS: [&str; 14] =
    ["", "a", "ab", "abc", "B", "Ab", "aB", "é", "É", "10.0.0.1", "10.0.1.9", "::1", "a*b", "bcabcab"];
const NUMBERS: [&str; 12] =
    ["0", "-0", "1", "1.0", "2", "-1", "300", "3e2", "0.5", "9007199254740993", "9007199254740992", "1e300"];
const PIECES: [&str; 7] = ["a", "ab", "b", "B", "é", "bc", "10."];
const WILDCARDS: [&str; 9] = ["*", "a*", "*b", "*bc*", "a*b*", "*a*b*", "a\\\\*b", "*abca*", "abc"];
const BLOCKS: [&str; 5] = ["10.0.0.0/24", "10.0.0.0/16", "0.0.0.0/0", "::/0", "::1/128"];

fn quoted(pool: &'static [&'static str]) -> impl Strategy<Value = String> {
    select(pool).prop_map(|text| format!("\"{text}\""))
}

fn number() -> impl Strategy<Value = String> {
    select(&NUMBERS[..]).prop_map(str::to_owned)
}

fn small_number() -> impl Strategy<Value = String> {
    (-4i32..8).prop_map(|half| (f64::from(half) / 2.0).to_string())
}

fn scalar() -> impl Strategy<Value = String> {
    prop_oneof![4 => quoted(&TEXTS), 3 => number(), 1 => select(vec!["null", "true", "false"]).prop_map(str::to_owned)]
}

fn list(item: impl Strategy<Value = String>, most: usize) -> impl Strategy<Value = String> {
    vec(item, 1..=most).prop_map(|items| format!("[{}]", items.join(",")))
}

fn operator() -> impl Strategy<Value = String> {
    let excluded = prop_oneof![
        quoted(&TEXTS),
        small_number(),
        list(prop_oneof![quoted(&TEXTS), small_number()], 3),
        (select(vec!["prefix", "suffix", "equals-ignore-case"]), list(quoted(&PIECES), 2))
            .prop_map(|(name, list)| format!(r#"{{"{name}":{list}}}"#)),
        quoted(&WILDCARDS).prop_map(|text| format!(r#"{{"wildcard":{text}}}"#)),
    ];
    let signs = (select(vec![">", ">="]), select(vec!["<", "<="]));
    let range = (-4i32..8, 1i32..6, signs)
        .prop_map(|(low, width, (above, below))| format!(r#"["{above}",{low},"{below}",{}]"#, low + width));
    prop_oneof![
        quoted(&PIECES).prop_map(|text| format!(r#"{{"prefix":{text}}}"#)),
        quoted(&PIECES).prop_map(|text| format!(r#"{{"suffix":{text}}}"#)),
        quoted(&TEXTS).prop_map(|text| format!(r#"{{"equals-ignore-case":{text}}}"#)),
        (select(vec!["prefix", "suffix"]), quoted(&PIECES))
            .prop_map(|(name, text)| format!(r#"{{"{name}":{{"equals-ignore-case":{text}}}}}"#)),
        quoted(&WILDCARDS).prop_map(|text| format!(r#"{{"wildcard":{text}}}"#)),
        quoted(&BLOCKS).prop_map(|text| format!(r#"{{"cidr":{text}}}"#)),
        any::<bool>().prop_map(|exists| format!(r#"{{"exists":{exists}}}"#)),
        excluded.prop_map(|operand| format!(r#"{{"anything-but":{operand}}}"#)),
        range.prop_map(|range| format!(r#"{{"numeric":{range}}}"#)),
        (select(vec!["<", "<=", "=", ">=", ">"]), small_number())
            .prop_map(|(sign, number)| format!(r#"{{"numeric":["{sign}",{number}]}}"#)),
    ]
}

fn members(fields: BTreeMap<&str, String>, or: Option<Vec<String>>) -> String {
    let fields = fields.iter().map(|(key, value)| format!(r#""{key}":{value}"#));
    let or = or.map(|objects| format!(r#""$or":[{}]"#, objects.join(",")));
    format!("{{{}}}", fields.chain(or).collect::<Vec<_>>().join(","))
}

fn pattern_text() -> impl Strategy<Value = String> {
    let field = list(prop_oneof![2 => scalar(), 3 => operator()], 3);
    let object = |inner: BoxedStrategy<String>| {
        let fields = btree_map(select(&KEYS[..]), inner, 1..=3);
        let or = prop::option::weighted(0.2, vec(fields.clone().prop_map(|fields| members(fields, None)), 2..=3));
        (fields, or).prop_map(|(fields, or)| members(fields, or))
    };
    let node = field.prop_recursive(2, 5, 2, move |inner| object(inner.boxed()));
    let from_to = (list(scalar(), 2), list(scalar(), 2));
    let changed = prop_oneof![
        any::<bool>().prop_map(|changed| format!(r#"[{{"changed":{changed}}}]"#)),
        from_to.prop_map(|(from, to)| format!(r#"[{{"changed":{{"from":{from},"to":{to}}}}}]"#)),
    ];
    prop_oneof![
        8 => object(node.boxed()),
        1 => (select(vec!["a", "b"]), changed).prop_map(|(key, list)| format!(r#"{{"new":{{"{key}":{list}}}}}"#)),
    ]
}

fn event_text() -> impl Strategy<Value = String> {
    let value = scalar().prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            2 => vec((select(&KEYS[..]), inner.clone()), 0..4).prop_map(object_text),
            1 => vec(inner, 0..4).prop_map(|items| format!("[{}]", items.join(", "))),
        ]
    });
    vec((select(&KEYS[..]), value), 1..8).prop_map(object_text)
}

/// Keys may repeat: then the last one counts.
fn object_text(members: Vec<(&str, String)>) -> String {
    let members: Vec<String> = members.iter().map(|(key, value)| format!(r#""{key}" : {value}"#)).collect();
    format!("{{{}}}", members.join(","))
}

/// What is done to a set: a rule put under an id, or taken from it.
fn changes(most: usize) -> impl Strategy<Value = Vec<(usize, Option<String>)>> {
    vec((0..most, prop::option::weighted(0.8, pattern_text())), 1..=most)
}

/// Everything generated is a pattern, but for `$or` lists that happen to multiply beyond the limit.
fn parse(text: &str) -> Option<Pattern> {
    match Pattern::parse(text) {
        Ok(pattern) => Some(pattern),
        Err(error) if error.message.contains("1000 `$or` combinations") => None,
        Err(error) => panic!("{text}: {error}"),
    }
}

fn agree(rules: &RuleSet<usize>, patterns: &BTreeMap<usize, Pattern>, event: &str, scratch: &mut Scratch) {
    let tree: serde_json::Value = serde_json::from_str(event).unwrap();
    let expected: Vec<&usize> = patterns.iter().filter(|(_, one)| one.naive_matches(&tree)).map(|(id, _)| id).collect();
    assert_eq!(rules.matches(event, scratch).unwrap(), expected, "on {event}");
    assert_eq!(rules.len(), patterns.len());
    if let Some(event_type) = tree["eventType"].as_str() {
        assert!(rules.may_match(event_type) || expected.is_empty(), "on {event}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    // SX-11
    #[test]
    fn many_rules(changes in changes(2_000), events in vec(event_text(), 6)) {
        let (mut rules, mut patterns, mut scratch) = (RuleSet::new(), BTreeMap::new(), Scratch::new());
        for chunk in changes.chunks(changes.len().div_ceil(2)) {
            for (id, text) in chunk {
                match text {
                    Some(text) => {
                        let Some(pattern) = parse(text) else { continue };
                        rules.insert(*id, &pattern);
                        patterns.insert(*id, pattern);
                    }
                    None => assert_eq!(rules.remove(id), patterns.remove(id).is_some()),
                }
            }
            events.iter().for_each(|event| agree(&rules, &patterns, event, &mut scratch));
        }
        // Taken out again to the last rule, the set forgets everything.
        for id in patterns.into_keys() {
            assert!(rules.remove(&id));
        }
        events.iter().for_each(|event| agree(&rules, &BTreeMap::new(), event, &mut scratch));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(3_000) })]

    // SX-11
    #[test]
    fn one_rule(text in pattern_text(), event in event_text()) {
        let Some(pattern) = parse(&text) else { return Ok(()) };
        let tree = serde_json::from_str(&event).unwrap();
        prop_assert_eq!(pattern.matches(&event), Ok(pattern.naive_matches(&tree)));
    }

    #[test]
    fn any_text_at_all(text in ".*") {
        let _ = Pattern::parse(&text);
        readable_events_are_read(&text);
    }

    #[test]
    fn broken_patterns(text in pattern_text(), at in any::<prop::sample::Index>(), with in "[\\[\\]{}\",:\\\\*0-9a-zé]{0,3}") {
        let broken = break_at(&text, at.index(text.len()), &with);
        if let Err(error) = Pattern::parse(&broken) {
            prop_assert!(error.path.starts_with('$') && !error.message.is_empty());
        }
    }

    #[test]
    fn broken_events(text in event_text(), at in any::<prop::sample::Index>(), with in "[\\[\\]{}\",:\\\\*0-9a-zé]{0,3}") {
        readable_events_are_read(&break_at(&text, at.index(text.len()), &with));
    }
}

/// Puts `with` in the place of one character.
fn break_at(text: &str, at: usize, with: &str) -> String {
    let at = (0..=at).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    let after = text[at..].chars().next().map_or(at, |c| at + c.len_utf8());
    format!("{}{with}{}", &text[..at], &text[after..])
}

/// What the strict reader takes for an object is never refused, and answered as it answers.
fn readable_events_are_read(text: &str) {
    let pattern = Pattern::parse(r#"{"a":["a",{"exists":false}],"b":[{"anything-but":"x"}]}"#).unwrap();
    let answer = pattern.matches(text);
    match serde_json::from_str::<serde_json::Value>(text) {
        Ok(tree) if tree.is_object() => assert_eq!(answer, Ok(pattern.naive_matches(&tree)), "{text}"),
        Ok(_) => assert!(answer.is_err(), "{text}"),
        // Text that nobody looked into may be wrong without being noticed.
        Err(_) => {}
    }
}
