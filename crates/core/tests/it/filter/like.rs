use super::Answer::{Fails, No, Yes};
use super::{check, check_all, message};
use tidings_core::filter::limits::MAX_LIKE_CHARS;
use tidings_core::filter::{Like, Value};

#[test]
fn wildcards() {
    let rows: &[(&str, &str, bool)] = &[
        ("", "", true),
        ("", "a", false),
        ("%", "", true),
        ("%", "anything", true),
        ("%%", "", true),
        ("_", "", false),
        ("_", "a", true),
        ("_", "é", true),
        ("_", "ab", false),
        ("__", "ab", true),
        ("_%", "", false),
        ("_%", "a", true),
        ("%_", "abc", true),
        ("%_%_%", "a", false),
        ("%_%_%", "ab", true),
        ("abc", "abc", true),
        ("abc", "ABC", false),
        ("a%", "abc", true),
        ("a%", "ba", false),
        ("%c", "abc", true),
        ("%b%", "abc", true),
        ("a%c", "ac", true),
        ("a%a", "a", false),
        ("ab%bc", "abc", false),
        ("ab%bc", "abbc", true),
        ("a_c", "abc", true),
        ("a_c", "ac", false),
        ("%a_c%", "xxaac", true),
        ("%a_c%", "aaxc", true),
        ("%_b_%", "bbb", true),
        ("%_b_", "abab", false),
        ("%_b_", "ababa", true),
        ("_é%", "aé", true),
        ("%é_", "xéy", true),
        ("%ab%ab%", "ab", false),
        ("%ab%ab%", "abab", true),
        ("%ab%ab%", "aab", false),
        ("10*", "10*", true),
        ("10.", "10x", false),
        ("[a]", "a", false),
    ];
    for (pattern, text, expected) in rows {
        assert_eq!(Like::parse(pattern, None).unwrap().matches(text), *expected, "{text:?} LIKE {pattern:?}");
        let answer = if *expected { Yes } else { No };
        check(&format!("a LIKE '{pattern}'"), &serde_json::json!({ "a": text }).to_string(), answer);
        check(&format!("NOT a NOT LIKE '{pattern}'"), &serde_json::json!({ "a": text }).to_string(), answer);
        // The same pattern out of the message itself.
        check("a LIKE b", &serde_json::json!({ "a": text, "b": pattern }).to_string(), answer);
    }
}

#[test]
fn escapes() {
    check_all(&[
        (r"a LIKE 'ABC\%' ESCAPE '\'", r#"{"a":"ABC%"}"#, Yes),
        (r"a LIKE 'ABC\%' ESCAPE '\'", r#"{"a":"ABCD"}"#, No),
        (r"a LIKE 'ABC\%'", r#"{"a":"ABC\\x"}"#, Yes),
        ("a LIKE '100!%%' ESCAPE '!'", r#"{"a":"100% sure"}"#, Yes),
        ("a LIKE '!_!!' ESCAPE '!'", r#"{"a":"_!"}"#, Yes),
        ("a LIKE '!_!!' ESCAPE '!'", r#"{"a":"x!"}"#, No),
        ("a LIKE '!x' ESCAPE '!'", r#"{"a":"x"}"#, Yes),
        ("a LIKE '%%x' ESCAPE '%'", r#"{"a":"%x"}"#, Yes),
        ("a NOT LIKE '!%' ESCAPE '!'", r#"{"a":"%"}"#, No),
        ("a LIKE b ESCAPE c", r#"{"a":"%","b":"!%","c":"!"}"#, Yes),
        ("a LIKE b ESCAPE c", r#"{"a":"%","b":"!%","c":"!!"}"#, Fails),
        ("a LIKE b ESCAPE c", r#"{"a":"%","b":"!%","c":null}"#, No),
        ("a LIKE b ESCAPE '!'", r#"{"a":"%","b":"x!"}"#, Fails),
        ("a LIKE b", r#"{"a":"%","b":1}"#, Fails),
    ]);
}

/// What backtracking would take ages for.
#[test]
fn no_blow_up() {
    let text = "a".repeat(60_000);
    let pattern = "%a_".repeat(300);
    assert!(Like::parse(&format!("{pattern}%"), None).unwrap().matches(&text));
    assert!(!Like::parse(&format!("{pattern}%b"), None).unwrap().matches(&text));
    assert!(!Like::parse(&format!("{}%b%", "%a".repeat(500)), None).unwrap().matches(&text));
}

#[test]
fn long_patterns_out_of_a_message() {
    let filter = tidings_core::filter::SqlFilter::parse("a LIKE b").unwrap();
    let with = |chars: usize| {
        let mut message = message(r#"{"a":"x"}"#);
        message.user.insert("b".to_owned(), Value::Text("%".repeat(chars).into()));
        filter.evaluate(&message).ok()
    };
    assert_eq!(with(MAX_LIKE_CHARS - 1), Some(true));
    assert_eq!(with(MAX_LIKE_CHARS), Some(true));
    assert_eq!(with(MAX_LIKE_CHARS + 1), None);
}
