use tidings_core::filter::limits::MAX_TEXT_BYTES;
use tidings_core::filter::{SqlAction, SqlFilter, System, Value};

use super::message;

/// An action, a message before it, and the same after it.
#[track_caller]
fn check(action: &str, before: &str, after: &str) {
    let parsed = SqlAction::parse(action).unwrap_or_else(|error| panic!("{action}: {error}"));
    let mut changed = message(before);
    parsed.apply(&mut changed).unwrap_or_else(|error| panic!("{action}: {error}"));
    assert_eq!(changed, message(after), "{action} on {before}");
    assert_eq!(parsed.text(), action);
}

#[track_caller]
fn fails(action: &str, before: &str, reason: &str) {
    let error = SqlAction::parse(action).unwrap().apply(&mut message(before)).unwrap_err();
    assert!(error.to_string().contains(reason), "{action}: {error}");
}

#[test]
fn set() {
    check("SET source = 'routedOrders'", r#"{"source":"orders"}"#, r#"{"source":"routedOrders"}"#);
    check("SET a = 1", "{}", r#"{"a":1}"#);
    check("set A = 2", r#"{"a":1}"#, r#"{"a":2}"#);
    check("SET user.a = a + 1", r#"{"a":1}"#, r#"{"a":2}"#);
    check("SET a = b", r#"{"b":true}"#, r#"{"a":true,"b":true}"#);
    check("SET [a b] = 'x' + '-' + c", r#"{"c":1.5}"#, r#"{"a b":"x-1.5","c":1.5}"#);
    check("SET a = TRUE;", "{}", r#"{"a":true}"#);
    check("SET a = NULL", r#"{"a":1}"#, r#"{"a":null}"#);
    check("SET a = missing", "{}", r#"{"a":null}"#);
    check("SET a = missing + 1", "{}", r#"{"a":null}"#);
    check("SET a = 'x'", r#"{"a":1}"#, r#"{"a":"x"}"#);
    // A double stays one, an integer does not hold anybody up.
    check("SET a = 2", r#"{"a":1.5}"#, r#"{"a":2.0}"#);
    check("SET a = 1.5", r#"{"a":1}"#, r#"{"a":1.5}"#);
    check("SET a = sys.Label", r#"{"sys.Label":"l"}"#, r#"{"a":"l","sys.Label":"l"}"#);
}

#[test]
fn remove() {
    check("REMOVE a", r#"{"A":1,"b":2}"#, r#"{"b":2}"#);
    check("REMOVE nothing", r#"{"b":2}"#, r#"{"b":2}"#);
    check("REMOVE sys.Label", r#"{"sys.Label":"l","label":"mine"}"#, r#"{"label":"mine"}"#);
    check("REMOVE user.[x y]", r#"{"x y":1}"#, "{}");
}

#[test]
fn several() {
    check("SET a = 1; REMOVE b; SET c = a + 1;", r#"{"b":1}"#, r#"{"a":1,"c":2}"#);
    check("SET a = 1\nREMOVE b\nSET c = a", r#"{"b":1}"#, r#"{"a":1,"c":1}"#);
    check("SET a = 1 SET b = 2", "{}", r#"{"a":1,"b":2}"#);
    check(";;SET a = 1;;", "{}", r#"{"a":1}"#);
    check("SET a = b; SET b = 1", r#"{"b":0}"#, r#"{"a":0,"b":1}"#);
}

#[test]
fn the_broker_s_properties() {
    check("SET sys.Label = 'x'", "{}", r#"{"sys.Label":"x"}"#);
    check("SET sys.Subject = 7", r#"{"sys.Label":"x"}"#, r#"{"sys.Label":"7"}"#);
    check("SET sys.To = NULL", r#"{"sys.To":"x"}"#, "{}");
    check("SET sys.SessionId = tenant", r#"{"tenant":"t1"}"#, r#"{"tenant":"t1","sys.SessionId":"t1"}"#);
    check("SET sys.MessageId = sys.MessageId + '-copy'", r#"{"sys.MessageId":"m"}"#, r#"{"sys.MessageId":"m-copy"}"#);
    fails("SET sys.MessageId = missing", r#"{"sys.MessageId":"m"}"#, "every message has one");
}

#[test]
fn new_ids_differ_but_repeat() {
    let action = SqlAction::parse("SET a = newid(); SET b = newid()").unwrap();
    let run = || {
        let mut message = message(r#"{"sys.MessageId":"m"}"#);
        action.apply(&mut message).unwrap();
        message
    };
    let first = run();
    assert_ne!(first.user["a"], first.user["b"]);
    assert!(matches!(&first.user["a"], Value::Text(text) if text.len() == 36));
    assert_eq!(first, run());
    assert_eq!(first.system[&System::MessageId], Value::text("m"));
}

#[test]
fn failures() {
    fails("SET a = 1 / 0", "{}", "division by zero");
    fails("SET a = b * 2", r#"{"b":"x"}"#, "no arithmetic between a string and a number");
    fails("SET a = b + 1", r#"{"b":9223372036854775807}"#, "too large");
}

/// Doubling a hundred times would fill any memory.
#[test]
fn texts_stay_small() {
    fails(&"SET a=a+a;".repeat(100), r#"{"a":"xy"}"#, "longer than 65536 bytes");
    let double = SqlFilter::parse("a + a <> ''").unwrap();
    let of = |bytes: usize| {
        let mut message = message("{}");
        message.user.insert("a".to_owned(), Value::Text("x".repeat(bytes).into()));
        message
    };
    assert_eq!(double.evaluate(&of(MAX_TEXT_BYTES / 2)), Ok(true));
    assert!(double.evaluate(&of(MAX_TEXT_BYTES / 2 + 1)).is_err());
}
