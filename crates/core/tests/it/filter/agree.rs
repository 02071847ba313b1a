//! Keys and LIKE agree with plain evaluators on whatever can be written down, and no text makes a reader panic.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tidings_core::filter::{KeyIndex, KeyPattern, Like, SqlAction, SqlFilter};

use super::message;

/// LIKE by its definition, trying everything.
fn naive_like(pattern: &[char], text: &[char], escape: Option<char>) -> bool {
    match pattern {
        [] => text.is_empty(),
        [c, next, rest @ ..] if Some(*c) == escape => {
            text.first() == Some(next) && naive_like(rest, &text[1..], escape)
        }
        ['%', rest @ ..] => (0..=text.len()).any(|skip| naive_like(rest, &text[skip..], escape)),
        ['_', rest @ ..] => !text.is_empty() && naive_like(rest, &text[1..], escape),
        [c, rest @ ..] => text.first() == Some(c) && naive_like(rest, &text[1..], escape),
    }
}

/// Keys by their definition, trying everything.
fn naive_key(pattern: &[&str], words: &[&str]) -> bool {
    match pattern {
        [] => words.is_empty(),
        ["#", rest @ ..] => (0..=words.len()).any(|skip| naive_key(rest, &words[skip..])),
        ["*", rest @ ..] => !words.is_empty() && naive_key(rest, &words[1..]),
        [word, rest @ ..] => words.first() == Some(word) && naive_key(rest, &words[1..]),
    }
}

fn split(key: &str) -> Vec<&str> {
    if key.is_empty() { Vec::new() } else { key.split('.').collect() }
}

fn key_pattern() -> impl Strategy<Value = String> {
    vec(select(vec!["a", "b", "", "*", "#", "#"]), 0..6).prop_map(|words| words.join("."))
}

fn key() -> impl Strategy<Value = String> {
    vec(select(vec!["a", "b", "c", ""]), 0..7).prop_map(|words| words.join("."))
}

/// Texts that are nearly SQL.
fn sql() -> impl Strategy<Value = String> {
    let parts = vec![
        "a",
        "b",
        "'x'",
        "''",
        "1",
        "2.5",
        "-",
        "+",
        "*",
        "/",
        "%",
        "(",
        ")",
        "AND",
        "OR",
        "NOT",
        "IN",
        "LIKE",
        "ESCAPE",
        "IS",
        "NULL",
        "EXISTS",
        "TRUE",
        "=",
        "<>",
        "<",
        ">=",
        ",",
        ";",
        "SET",
        "REMOVE",
        "sys.Label",
        "sys.",
        "[q]",
        "\"q\"",
        "@p",
        "p(",
        "newid()",
        "9223372036854775807",
        "1e300",
        "'%_'",
        "'!'",
        "é",
    ];
    vec(select(parts), 0..14).prop_map(|parts| parts.join(" "))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4_000) })]

    #[test]
    fn like(pattern in "[ab%_!é]{0,8}", text in "[ab%_!é]{0,10}", escape in prop::option::of(Just('!'))) {
        let (of, on): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
        // An escape character at the very end is refused; one that is itself escaped is not at the end.
        let trailing = of.iter().rev().take_while(|c| Some(**c) == escape).count() % 2 == 1;
        match Like::parse(&pattern, escape) {
            Ok(like) => {
                prop_assert!(!trailing);
                prop_assert_eq!(like.matches(&text), naive_like(&of, &on, escape));
            }
            Err(_) => prop_assert!(trailing),
        }
    }

    // S003-76
    #[test]
    fn one_key(pattern in key_pattern(), key in key()) {
        let parsed = KeyPattern::parse(&pattern).unwrap();
        prop_assert_eq!(parsed.matches(&key), naive_key(&split(&pattern), &split(&key)));
    }

    #[test]
    fn any_text_at_all(text in ".*") {
        let message = message(r#"{"a":"x","b":1}"#);
        let _ = SqlFilter::parse(&text).map(|filter| filter.evaluate(&message));
        let _ = SqlAction::parse(&text).map(|action| action.apply(&mut message.clone()));
        let _ = KeyPattern::parse(&text).map(|pattern| pattern.matches(&text));
    }

    #[test]
    fn nearly_sql(text in sql()) {
        let message = message(r#"{"a":"x","b":1,"sys.Label":"l"}"#);
        match SqlFilter::parse(&text) {
            // The same text always means the same, whatever spaces stand in it.
            Ok(filter) => {
                let spaced = SqlFilter::parse(&text.replace(' ', "\n  ")).unwrap();
                prop_assert_eq!(&spaced, &filter);
                prop_assert_eq!(spaced.evaluate(&message), filter.evaluate(&message));
                let negated = SqlFilter::parse(&format!("NOT ({text})")).unwrap();
                prop_assert!(!(negated.matches(&message) && filter.matches(&message)));
            }
            Err(error) => prop_assert!(error.at >= 1 && error.at <= text.chars().count() + 1 && !error.message.is_empty()),
        }
        if let Ok(action) = SqlAction::parse(&text) {
            let _ = action.apply(&mut message.clone());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    // S003-76
    #[test]
    fn many_keys(changes in vec((0..60usize, prop::option::weighted(0.8, key_pattern())), 1..200), keys in vec(key(), 8)) {
        let (mut index, mut patterns) = (KeyIndex::new(), BTreeMap::new());
        for (id, text) in &changes {
            match text {
                Some(text) => {
                    index.insert(*id, &KeyPattern::parse(text).unwrap());
                    patterns.insert(*id, text);
                }
                None => assert_eq!(index.remove(id), patterns.remove(id).is_some()),
            }
        }
        for key in &keys {
            let expected: Vec<&usize> =
                patterns.iter().filter(|(_, text)| naive_key(&split(text), &split(key))).map(|(id, _)| id).collect();
            prop_assert_eq!(index.matches(key), expected, "{}", key);
        }
        prop_assert_eq!(index.len(), patterns.len());
    }
}
