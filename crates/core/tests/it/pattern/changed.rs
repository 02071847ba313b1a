//! `changed`, our own: SX-11, and what S001-16's consumers could not ask of a stream.

use super::{NO, YES, check_all, refuse};

#[test]
fn a_field_under_two_images() {
    let changed = r#"{"new":{"x":[{"changed":true}]}}"#;
    let same = r#"{"new":{"x":[{"changed":false}]}}"#;
    for (values, differs) in [
        (("1", "2"), true),
        (("1", "1"), false),
        (("1", "1.0"), false),
        (("300", "3e2"), false),
        (("1", r#""1""#), true),
        ((r#""a""#, r#""b""#), true),
        ((r#""a""#, r#""a""#), false),
        ((r#""a""#, r#""\u0061""#), false),
        (("null", "null"), false),
        (("null", "0"), true),
        (("true", "false"), true),
        (("[]", "[]"), false),
        (("[]", "[1]"), true),
        (("[1,2]", "[1, 2.0]"), false),
        (("[1,2]", "[2,1]"), true),
        ((r#"{"N":"1"}"#, r#"{"N":"2"}"#), true),
        ((r#"{"N":"1"}"#, r#"{ "N" : "1" }"#), false),
        ((r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#), false),
        ((r#"{"a":1}"#, r#"{"a":1,"b":2}"#), true),
        (("9007199254740993", "9007199254740992"), true),
    ] {
        let event = format!(r#"{{"old":{{"x":{}}},"new":{{"x":{}}}}}"#, values.0, values.1);
        check_all(&[(changed, &event, differs), (same, &event, !differs)]);
    }
}

#[test]
fn a_field_under_one_image_or_none() {
    let changed = r#"{"new":{"x":[{"changed":true}]}}"#;
    let same = r#"{"new":{"x":[{"changed":false}]}}"#;
    let either = r#"{"new":{"x":[{"changed":false},{"changed":true}]}}"#;
    check_all(&[
        (changed, r#"{"new":{"x":1}}"#, YES),
        (changed, r#"{"old":{"x":1}}"#, YES),
        (changed, r#"{"old":{"x":null},"new":{}}"#, YES),
        (changed, r#"{"old":{},"new":{"x":[]}}"#, YES),
        (changed, r#"{"old":{},"new":{}}"#, NO),
        (changed, "{}", NO),
        (changed, r#"{"x":1}"#, NO),
        (same, r#"{"new":{"x":1}}"#, NO),
        (same, r#"{"old":{"x":1}}"#, NO),
        (same, "{}", NO),
        (either, r#"{"old":{"x":1},"new":{"x":1}}"#, YES),
        (either, r#"{"old":{"x":1},"new":{"x":2}}"#, YES),
        (either, "{}", NO),
    ]);
}

#[test]
fn the_names_of_images() {
    check_all(&[
        (r#"{"old":{"x":[{"changed":true}]}}"#, r#"{"old":{"x":1},"new":{"x":2}}"#, YES),
        (r#"{"old":{"x":[{"changed":true}]}}"#, r#"{"old":{"x":1},"new":{"x":1}}"#, NO),
        (r#"{"data":{"new":{"x":[{"changed":true}]}}}"#, r#"{"data":{"old":{"x":1},"new":{"x":2}}}"#, YES),
        (
            r#"{"data":{"new":{"x":{"y":[{"changed":true}]}}}}"#,
            r#"{"data":{"old":{"x":{"y":1}},"new":{"x":{"y":2}}}}"#,
            YES,
        ),
        (r#"{"before":{"x":[{"changed":true}]}}"#, r#"{"before":{"x":1},"after":{"x":2}}"#, YES),
        (r#"{"after":{"x":[{"changed":true}]}}"#, r#"{"before":{"x":1},"after":{"x":1}}"#, NO),
        (r#"{"newImage":{"x":[{"changed":true}]}}"#, r#"{"oldImage":{"x":1},"newImage":{"x":2}}"#, YES),
        (r#"{"newImage":{"x":[{"changed":true}]}}"#, r#"{"oldImage":{"x":1},"newImage":{"x":1}}"#, NO),
        (
            r#"{"dynamodb":{"NewImage":{"score":{"N":[{"changed":true}]}}}}"#,
            r#"{"dynamodb":{"OldImage":{"score":{"N":"7"}},"NewImage":{"score":{"N":"8"}}}}"#,
            YES,
        ),
        (
            r#"{"dynamodb":{"NewImage":{"score":[{"changed":true}]}}}"#,
            r#"{"dynamodb":{"OldImage":{"score":{"N":"7"}},"NewImage":{"score":{"N":"8"}}}}"#,
            YES,
        ),
        (
            r#"{"dynamodb":{"NewImage":{"new":[{"changed":true}]}}}"#,
            r#"{"dynamodb":{"OldImage":{"new":1},"NewImage":{"new":1,"old":2}}}"#,
            NO,
        ),
        (r#"{"new":[{"changed":true}]}"#, r#"{"old":"a","new":"b"}"#, YES),
        (r#"{"new":[{"changed":true}]}"#, r#"{"old":"a","new":"a"}"#, NO),
        (
            r#"{"l":{"new":{"x":[{"changed":true}]}}}"#,
            r#"{"l":[{"old":{"x":1},"new":{"x":1}},{"old":{"x":1},"new":{"x":2}}]}"#,
            YES,
        ),
        (
            r#"{"l":{"new":{"x":[{"changed":true}]}}}"#,
            r#"{"l":[{"old":{"x":1},"new":{"x":1}},{"old":{"x":2},"new":{"x":2}}]}"#,
            NO,
        ),
    ]);
}

#[test]
fn beside_other_tests() {
    let to_failed = r#"{"new":{"status":["failed"]},"old":{"status":[{"changed":true}]}}"#;
    let list = r#"{"new":{"x":[{"changed":true},5]}}"#;
    check_all(&[
        (to_failed, r#"{"old":{"status":"ok"},"new":{"status":"failed"}}"#, YES),
        (to_failed, r#"{"old":{"status":"failed"},"new":{"status":"failed"}}"#, NO),
        (to_failed, r#"{"old":{"status":"failed"},"new":{"status":"ok"}}"#, NO),
        (list, r#"{"old":{"x":5},"new":{"x":5}}"#, YES),
        (list, r#"{"old":{"x":6},"new":{"x":6}}"#, NO),
        (list, r#"{"old":{"x":5},"new":{"x":6}}"#, YES),
    ]);
}

#[test]
fn without_an_image() {
    refuse(r#"{"x":[{"changed":true}]}"#, "$.x[0].changed", "needs a field under an old or new image");
    refuse(r#"{"New":{"x":[{"changed":true}]}}"#, "$.New.x[0].changed", "needs a field under");
    refuse(r#"{"new":{"x":[{"changed":1}]}}"#, "$.new.x[0].changed", "must be true or false, not a number");
    refuse(r#"{"new":{"x":[{"changed":"yes"}]}}"#, "$.new.x[0].changed", "must be true or false");
}

// SX-11: `changed`, `from`, `to`.
#[test]
fn from_and_to() {
    let fell = r#"{"dynamodb":{"NewImage":{"compliant":{"BOOL":[{"changed":{"from":[true],"to":[false]}}]}}}}"#;
    let image = |old: &str, new: &str| format!(r#"{{"dynamodb":{{"OldImage":{old},"NewImage":{new}}}}}"#);
    let (yes, no) = (r#"{"compliant":{"BOOL":true}}"#, r#"{"compliant":{"BOOL":false}}"#);
    let numbers = |old: &str, new: &str| format!(r#"{{"old":{{"n":{old}}},"new":{{"n":{new}}}}}"#);
    let rose = r#"{"old":{"n":[{"changed":{"to":[{"numeric":[">",10]}]}}]}}"#;
    let left = r#"{"new":{"n":[{"changed":{"from":["a",{"prefix":"b"}]}}]}}"#;
    let came = r#"{"new":{"n":[{"changed":{"from":[{"exists":false}]}}],"m":[1]}}"#;
    check_all(&[
        (fell, &image(yes, no), YES),
        (fell, &image(no, yes), NO),
        (fell, &image(no, no), NO),
        (fell, &image(yes, yes), NO),
        (fell, &image("{}", no), NO),
        (fell, &image(yes, "{}"), NO),
        (rose, &numbers("5", "11"), YES),
        (rose, &numbers("11", "11.0"), NO),
        (rose, &numbers("12", "11"), YES),
        (rose, &numbers("11", "5"), NO),
        (rose, r#"{"new":{"n":11}}"#, YES),
        (left, &numbers(r#""a""#, "1"), YES),
        (left, &numbers(r#""bcd""#, r#""b""#), YES),
        (left, &numbers(r#""c""#, r#""a""#), NO),
        (left, r#"{"old":{"n":"a"}}"#, YES),
        (came, r#"{"new":{"n":7,"m":1}}"#, YES),
        (came, r#"{"old":{"n":6},"new":{"n":7,"m":1}}"#, NO),
        (came, r#"{"new":{"n":7,"m":2}}"#, NO),
        (r#"{"$or":[{"new":{"n":[{"changed":{"to":[2]}}]}},{"a":[1]}]}"#, &numbers("1", "2"), YES),
        (r#"{"$or":[{"new":{"n":[{"changed":{"to":[2]}}]}},{"a":[1]}]}"#, r#"{"a":1}"#, YES),
        (r#"{"$or":[{"new":{"n":[{"changed":{"to":[2]}}]}},{"a":[1]}]}"#, &numbers("2", "2"), NO),
    ]);
}

#[test]
fn from_and_to_that_are_refused() {
    for (list, path, reason) in [
        (r#"[{"changed":{}}]"#, "$.new.n[0].changed", "needs `from`, `to`, or both"),
        (r#"[{"changed":{"form":[1]}}]"#, "$.new.n[0].changed.form", "is unknown; there are `from` and `to`"),
        (r#"[{"changed":{"from":1}}]"#, "$.new.n[0].changed.from", "must be an array of values, not a number"),
        (r#"[{"changed":{"from":[]}}]"#, "$.new.n[0].changed.from", "empty"),
        (r#"[{"changed":{"to":[1],"to":[2]}}]"#, "$.new.n[0].changed.to", "repeated"),
        (r#"[{"changed":{"to":[{"prefix":1}]}}]"#, "$.new.n[0].changed.to[0].prefix", "must be a string"),
        (r#"[1,{"changed":{"to":[2]}}]"#, "$.new.n[1].changed", "must be alone in its list"),
        (r#"[{"changed":1}]"#, "$.new.n[0].changed", "true or false"),
    ] {
        refuse(&format!(r#"{{"new":{{"n":{list}}}}}"#), path, reason);
    }
    refuse(r#"{"n":[{"changed":{"to":[2]}}]}"#, "$.n[0].changed", "needs a field under an old or new image");
}
