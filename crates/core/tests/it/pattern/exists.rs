//! `exists`: is there a leaf?

use super::{NO, YES, check_all, check_field};

// S001-14
#[test]
fn leaves_exist() {
    check_field(&[
        (r#"[{"exists":true}]"#, r#""x""#, YES),
        (r#"[{"exists":true}]"#, r#""""#, YES),
        (r#"[{"exists":true}]"#, "0", YES),
        (r#"[{"exists":true}]"#, "false", YES),
        (r#"[{"exists":true}]"#, "null", YES),
        (r#"[{"exists":true}]"#, "[1]", YES),
        (r#"[{"exists":true}]"#, "[[1]]", YES),
        (r#"[{"exists":true}]"#, "[null]", YES),
        (r#"[{"exists":true}]"#, "[]", NO),
        (r#"[{"exists":true}]"#, "[[]]", NO),
        (r#"[{"exists":true}]"#, "[{}]", NO),
        (r#"[{"exists":true}]"#, "{}", NO),
        (r#"[{"exists":true}]"#, r#"{"b":1}"#, NO),
        (r#"[{"exists":true}]"#, r#"[{"b":1}]"#, NO),
        (r#"[{"exists":false}]"#, r#""x""#, NO),
        (r#"[{"exists":false}]"#, "null", NO),
        (r#"[{"exists":false}]"#, "[]", YES),
        (r#"[{"exists":false}]"#, "[[],[]]", YES),
        (r#"[{"exists":false}]"#, "[[],1]", NO),
        (r#"[{"exists":false}]"#, "{}", YES),
        (r#"[{"exists":false}]"#, r#"{"b":1}"#, YES),
        (r#"[{"exists":true},{"exists":false}]"#, "1", YES),
        (r#"[{"exists":true},{"exists":false}]"#, "[]", YES),
        (r#"[{"exists":false},"x"]"#, r#""x""#, YES),
        (r#"[{"exists":false},"x"]"#, r#""y""#, NO),
        (r#"[{"exists":false},"x"]"#, "[]", YES),
        (r#"[{"exists":false},{"anything-but":"x"}]"#, r#""x""#, NO),
        (r#"[{"exists":false},{"anything-but":"x"}]"#, r#""y""#, YES),
    ]);
}

#[test]
fn paths_exist() {
    check_all(&[
        (r#"{"a":[{"exists":true}]}"#, "{}", NO),
        (r#"{"a":[{"exists":false}]}"#, "{}", YES),
        (r#"{"a":[{"exists":false}]}"#, r#"{"b":1}"#, YES),
        (r#"{"a":[{"exists":false}],"b":[1]}"#, r#"{"b":1}"#, YES),
        (r#"{"a":[{"exists":false}],"b":[1]}"#, r#"{"a":1,"b":1}"#, NO),
        (r#"{"a":[{"exists":false}],"b":[1]}"#, "{}", NO),
        (r#"{"a":[{"exists":false}],"b":[{"exists":false}]}"#, r#"{"c":1}"#, YES),
        (r#"{"a":[{"exists":false}],"b":[{"exists":false}]}"#, r#"{"b":1}"#, NO),
        (r#"{"a":{"b":[{"exists":true}]}}"#, r#"{"a":{"b":1}}"#, YES),
        (r#"{"a":{"b":[{"exists":true}]}}"#, r#"{"a":1}"#, NO),
        (r#"{"a":{"b":[{"exists":false}]}}"#, r#"{"a":1}"#, YES),
        (r#"{"a":{"b":[{"exists":false}]}}"#, "{}", YES),
        (r#"{"a":{"b":[{"exists":false}]}}"#, r#"{"a":{"c":1}}"#, YES),
        (r#"{"a":{"b":[{"exists":false}]}}"#, r#"{"a":{"b":1}}"#, NO),
        (r#"{"a":{"b":[{"exists":false}]}}"#, r#"{"a":[{"c":1},{"b":1}]}"#, NO),
        (r#"{"a":{"b":[{"exists":false}],"c":[1]}}"#, r#"{"a":[{"c":1},{"b":1}]}"#, NO),
        (r#"{"a":{"b":[{"exists":false}],"c":[1]}}"#, r#"{"a":[{"c":1},{"d":1}]}"#, YES),
        (r#"{"a":{"b":[{"exists":true}],"c":[1]}}"#, r#"{"a":[{"c":1},{"b":1}]}"#, NO),
        (r#"{"a":{"b":[{"exists":true}],"c":[1]}}"#, r#"{"a":[{"c":1,"b":2},{"b":1}]}"#, YES),
        (
            r#"{"dynamodb":{"NewImage":{"score":[{"exists":true}]}}}"#,
            r#"{"dynamodb":{"NewImage":{"score":{"N":"1"}}}}"#,
            NO,
        ),
        (
            r#"{"dynamodb":{"NewImage":{"score":{"N":[{"exists":true}]}}}}"#,
            r#"{"dynamodb":{"NewImage":{"score":{"N":"1"}}}}"#,
            YES,
        ),
    ]);
}
