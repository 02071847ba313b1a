//! Patterns made to hurt are refused, or cost no more than their size.

use tidings_core::pattern::limits::{MAX_PATTERN_BYTES, MAX_STARS, MAX_VALUES};
use tidings_core::pattern::{Pattern, RuleSet, Scratch};

use super::{NO, YES, check, refuse};

#[test]
fn ten_thousand_values() {
    let list = |count: usize| (0..count).map(|i| i.to_string()).collect::<Vec<_>>().join(",");
    check(&format!(r#"{{"a":[{}]}}"#, list(MAX_VALUES)), r#"{"a":9999}"#, YES);
    check(&format!(r#"{{"a":[{}]}}"#, list(MAX_VALUES)), r#"{"a":10000}"#, NO);
    refuse(&format!(r#"{{"a":[{}]}}"#, list(MAX_VALUES + 1)), "$.a[10000]", "more than 10000 values");
    let excluded = format!(r#"{{"a":[{{"anything-but":[{}]}}]}}"#, list(MAX_VALUES - 1));
    check(&excluded, r#"{"a":9998}"#, NO);
    check(&excluded, r#"{"a":9999}"#, YES);
    let too_many = format!(r#"{{"a":[{{"anything-but":[{}]}}]}}"#, list(MAX_VALUES));
    refuse(&too_many, "$.a[0].anything-but[9999]", "more than 10000 values");
}

#[test]
fn a_thousand_wildcards() {
    let one = |stars: usize| format!(r#"{{"a":[{{"wildcard":"{}b"}}]}}"#, "a*".repeat(stars));
    refuse(&one(1_000), "$.a[0].wildcard", "more than 512 `*`");
    let many: Vec<String> = (0..1_000).map(|i| format!(r#"{{"wildcard":"*{i}*"}}"#)).collect();
    refuse(&format!(r#"{{"a":[{}]}}"#, many.join(",")), "$.a[256].wildcard", "more than 512 `*`");
    // What backtracking would take ages for: the most stars allowed, on a text that fails at its very end.
    let text = "a".repeat(100_000);
    check(&one(MAX_STARS), &format!(r#"{{"a":"{text}"}}"#), NO);
    check(&one(MAX_STARS), &format!(r#"{{"a":"{text}b"}}"#), YES);
}

#[test]
fn length_and_depth() {
    let long = format!(r#"{{"a":["{}"]}}"#, "x".repeat(MAX_PATTERN_BYTES));
    refuse(&long, "$", "longer than 65536 bytes");
    let fits = format!(r#"{{"a":["{}"]}}"#, "x".repeat(MAX_PATTERN_BYTES - 10));
    check(&fits, r#"{"a":"x"}"#, NO);
    let nested = |depth: usize| format!("{}[1]{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
    assert!(Pattern::parse(&nested(64)).is_ok());
    refuse(&nested(65), &format!("${}", ".a".repeat(64)), "nested deeper than 64 objects");
    refuse(&nested(1_000), "$", "recursion limit");
    refuse(&"[".repeat(60_000), "$", "recursion limit");
    let or = |depth: usize| format!(r#"{}{{"b":[1]}}{}"#, r#"{"$or":[{"a":[1]},"#.repeat(depth), "]}".repeat(depth));
    assert!(Pattern::parse(&or(40)).is_ok());
    assert!(Pattern::parse(&or(64)).is_err());
}

#[test]
fn many_wide_combinations() {
    let fields: Vec<String> = (0..60).map(|i| format!(r#""f{i}":[1]"#)).collect();
    let or: Vec<String> = (0..1_000).map(|i| format!(r#"{{"g":[{i}]}}"#)).collect();
    let pattern = format!(r#"{{{},"$or":[{}]}}"#, fields.join(","), or.join(","));
    refuse(&pattern, "$.$or", "more than 50000 field tests");
}

/// One element of many must serve several fields: the choice is made without trying all pairs.
#[test]
fn long_arrays() {
    let pattern = r#"{"l":{"a":[1],"b":[2],"m":{"c":[3],"d":[4]}}}"#;
    let halves = r#"{"a":1,"m":[{"c":3},{"d":4}]},{"b":2,"m":[{"c":3,"d":4}]},"#.repeat(5_000);
    check(pattern, &format!(r#"{{"l":[{halves}{{}}]}}"#), NO);
    check(pattern, &format!(r#"{{"l":[{halves}{{"a":1,"b":2,"m":[{{"c":3,"d":4}}]}}]}}"#), YES);
}

/// A rule of a thousand combinations is one rule: called up once, gone when it is removed.
#[test]
fn a_wide_rule_in_a_set() {
    let or = |name: &str| (0..31).map(|i| format!(r#"{{"{name}":[{i}]}}"#)).collect::<Vec<_>>().join(",");
    let pattern = format!(r#"{{"n":{{"$or":[{}]}},"$or":[{}]}}"#, or("a"), or("b"));
    let mut rules = RuleSet::new();
    rules.insert(1, &Pattern::parse(&pattern).unwrap());
    rules.insert(2, &Pattern::parse(r#"{"b":[7]}"#).unwrap());
    let mut scratch = Scratch::new();
    assert_eq!(rules.matches(r#"{"n":{"a":[30,3]},"b":[7,30]}"#, &mut scratch), Ok(vec![&1, &2]));
    assert!(rules.remove(&1));
    assert_eq!(rules.matches(r#"{"n":{"a":[30,3]},"b":[7,30]}"#, &mut scratch), Ok(vec![&2]));
}
