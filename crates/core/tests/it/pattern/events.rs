//! Event text: what is read, what is skipped, what is refused.

use tidings_core::pattern::{EventError, Pattern, RuleSet, Scratch};

use super::{NO, YES, check, check_all};

#[test]
fn layout_does_not_matter() {
    let pattern = r#"{"a":{"b":["x"]},"c":[1]}"#;
    check_all(&[
        (pattern, "{\"a\":{\"b\":\"x\"},\"c\":1}", YES),
        (pattern, " \t\r\n{ \"a\" : { \"b\" : \"x\" } , \"c\" : 1 } \n", YES),
        (pattern, "{\"z\":[1,[2,{\"a\":{\"b\":\"x\"}}]],\"c\":1,\"a\":{\"z\":\"}]\\\"\",\"b\":\"x\"}}", YES),
        (pattern, "{\"z\":\"\\\\\",\"c\":1,\"a\":{\"b\":\"x\"}}", YES),
        (pattern, "{\"z\":\"\\\\\\\"\",\"c\":1,\"a\":{\"b\":\"x\"}}", YES),
        (pattern, "{\"z\":-1.5e-7,\"y\":null,\"w\":true,\"v\":false,\"c\":1,\"a\":{\"b\":\"x\"}}", YES),
        (pattern, "{\"long\":\"0123456789 0123456789 0123456789 \u{e9} \u{1f600}\",\"c\":1,\"a\":{\"b\":\"x\"}}", YES),
        (pattern, "{}", NO),
    ]);
}

#[test]
fn the_last_of_repeated_keys_counts() {
    check_all(&[
        (r#"{"a":["x"]}"#, r#"{"a":"x","a":"y"}"#, NO),
        (r#"{"a":["x"]}"#, r#"{"a":"y","a":"x"}"#, YES),
        (r#"{"a":["x"]}"#, r#"{"a":["x","z"],"b":1,"\u0061":"y"}"#, NO),
        (r#"{"a":{"b":["x"]}}"#, r#"{"a":{"b":"x"},"a":{"c":1}}"#, NO),
        (r#"{"a":{"b":["x"]}}"#, r#"{"a":{"b":"x"},"a":[{"b":"y"},{"b":"x"}]}"#, YES),
        (r#"{"a":[{"exists":false}]}"#, r#"{"a":1,"a":[]}"#, YES),
        (r#"{"a":{"b":["x"],"c":["y"]}}"#, r#"{"a":{"b":"x","b":"z","c":"y"}}"#, NO),
        (r#"{"a":{"b":["x"]}}"#, r#"{"a":[{"b":"x"},{"b":"y"}]}"#, YES),
        (r#"{"new":{"x":[{"changed":true}]}}"#, r#"{"old":{"x":1},"new":{"x":2,"x":1}}"#, NO),
    ]);
}

#[test]
fn refused() {
    for (event, reason) in [
        ("", "ends too soon"),
        ("  ", "ends too soon"),
        ("[]", "must be an object"),
        ("1", "must be an object"),
        (r#""a""#, "must be an object"),
        ("null", "must be an object"),
        ("{", "ends too soon"),
        (r#"{"a""#, "ends too soon"),
        (r#"{"a":"#, "ends too soon"),
        (r#"{"a":"x""#, "ends too soon"),
        (r#"{"a":"x"#, "a string without an end"),
        (r#"{"a":"x\"#, "a string without an end"),
        (r#"{"a" "x"}"#, "expected a colon"),
        (r#"{"a":"x" "b":1}"#, "expected a comma"),
        (r#"{"a":"x",}"#, "expected a key"),
        (r#"{a:"x"}"#, "expected a key"),
        (r#"{,}"#, "expected a key"),
        (r#"{"a":["x" "y"]}"#, "expected a comma"),
        (r#"{"a":["x",]}"#, "expected a value"),
        (r#"{"a":x}"#, "expected a value"),
        (r#"{"z":x}"#, "expected a value"),
        (r#"{"a":tru}"#, "expected a value"),
        (r#"{"z":nul}"#, "expected a value"),
        (r#"{"a":1.}"#, "expected a value"),
        (r#"{"a":01}"#, "expected a value"),
        (r#"{"a":-}"#, "expected a value"),
        (r#"{"a":1e400}"#, "expected a value"),
        (r#"{"a":"\x"}"#, "a broken escape"),
        (r#"{"a":"\ud800"}"#, "a broken escape"),
        ("{\"a\":\"\n\"}", "a control character"),
        ("{\"z\":\"\u{1}\"}", "a control character"),
        (r#"{"z":[}"#, "brackets that do not match"),
        (r#"{"z":[1}]}"#, "brackets that do not match"),
        (r#"{"z":{"y":[1,2}}"#, "brackets that do not match"),
        (r#"{"a":"x"} x"#, "text after the event"),
        (r#"{"a":"x"}{}"#, "text after the event"),
        (r#"{"a":"x"}}"#, "text after the event"),
    ] {
        let error = error_of(event);
        assert!(error.to_string().contains(reason), "{event}: {error}");
        assert!(serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(event).is_err(), "{event}");
    }
}

#[test]
fn depth() {
    let nested = |depth: usize| format!("{}1{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
    let skipped = |depth: usize| format!(r#"{{"z":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
    for depth in [126, 127] {
        check(r#"{"a":["x"]}"#, &nested(depth), NO);
        check(r#"{"a":["x"]}"#, &skipped(depth - 1), NO);
    }
    for event in [nested(128), skipped(127), skipped(100_000), nested(100_000)] {
        assert!(error_of(&event).to_string().contains("nested too deeply"));
    }
    let pattern = format!("{}[1]{}", r#"{"a":"#.repeat(64), "}".repeat(64));
    check(&pattern, &nested(64), YES);
    check(&pattern, &nested(63), NO);
    let deep = Pattern::parse(&pattern).unwrap();
    assert!(!deep.matches(&nested(65)).unwrap());
    assert!(deep.matches(&nested(128)).is_err());
}

/// The same error alone and in a set.
fn error_of(event: &str) -> EventError {
    let pattern = Pattern::parse(r#"{"a":["x",{"exists":false}]}"#).unwrap();
    let mut rules = RuleSet::new();
    rules.insert("rule", &pattern);
    let error = pattern.matches(event).expect_err(event);
    assert_eq!(rules.matches(event, &mut Scratch::new()), Err(error.clone()));
    error
}
