//! `$or`: any of its objects, anded with the fields beside it.

use super::{NO, YES, check, check_all, refuse};

// SX-11
#[test]
fn any_object_will_do() {
    let flat = r#"{"s":["x"],"$or":[{"a":[1]},{"b":[2]}]}"#;
    let wide = r#"{"$or":[{"a":[1],"b":[2]},{"c":[3]}]}"#;
    let nested = r#"{"s":["x"],"$or":[{"a":[1]},{"b":[2],"$or":[{"c":[3]},{"d":[4]}]},{"e":[5]}]}"#;
    let parallel = r#"{"$or":[{"a":[1]},{"b":[2]}],"n":{"$or":[{"c":[3]},{"d":[4]}]}}"#;
    let inner = r#"{"n":{"m":["x"],"$or":[{"c":{"k":[3]}},{"d":[{"prefix":"p"}]}]}}"#;
    check_all(&[
        (flat, r#"{"s":"x","a":1}"#, YES),
        (flat, r#"{"s":"x","b":2}"#, YES),
        (flat, r#"{"s":"x","a":1,"b":2}"#, YES),
        (flat, r#"{"s":"x","a":2,"b":1}"#, NO),
        (flat, r#"{"s":"x"}"#, NO),
        (flat, r#"{"a":1,"b":2}"#, NO),
        (flat, r#"{"s":"x","a":2,"b":2}"#, YES),
        (wide, r#"{"a":1,"b":2}"#, YES),
        (wide, r#"{"a":1}"#, NO),
        (wide, r#"{"a":1,"c":3}"#, YES),
        (wide, r#"{"b":2}"#, NO),
        (nested, r#"{"s":"x","a":1}"#, YES),
        (nested, r#"{"s":"x","b":2,"c":3}"#, YES),
        (nested, r#"{"s":"x","b":2,"d":4}"#, YES),
        (nested, r#"{"s":"x","b":2}"#, NO),
        (nested, r#"{"s":"x","c":3,"d":4}"#, NO),
        (nested, r#"{"s":"x","e":5}"#, YES),
        (nested, r#"{"s":"y","e":5}"#, NO),
        (parallel, r#"{"a":1,"n":{"c":3}}"#, YES),
        (parallel, r#"{"b":2,"n":{"d":4}}"#, YES),
        (parallel, r#"{"b":2,"n":{"d":3}}"#, NO),
        (parallel, r#"{"n":{"c":3,"d":4}}"#, NO),
        (parallel, r#"{"a":1,"b":2,"c":3}"#, NO),
        (inner, r#"{"n":{"m":"x","c":{"k":3}}}"#, YES),
        (inner, r#"{"n":{"m":"x","d":"pq"}}"#, YES),
        (inner, r#"{"n":{"m":"x","d":"qp"}}"#, NO),
        (inner, r#"{"n":{"c":{"k":3},"d":"p"}}"#, NO),
    ]);
}

#[test]
fn with_other_operators() {
    let absent = r#"{"$or":[{"a":[{"exists":false}]},{"b":[{"anything-but":"x"}]}]}"#;
    let twice = r#"{"a":["x","y"],"$or":[{"a":["y","z"]},{"b":[1]}]}"#;
    let both = r#"{"a":["x"],"$or":[{"a":{"b":["y"]}},{"c":[1]}]}"#;
    let apart = r#"{"n":{"$or":[{"a":[1]},{"a":[2]}],"b":[3]}}"#;
    check_all(&[
        (absent, "{}", YES),
        (absent, r#"{"a":1}"#, NO),
        (absent, r#"{"a":1,"b":"x"}"#, NO),
        (absent, r#"{"a":1,"b":"y"}"#, YES),
        (twice, r#"{"a":"y"}"#, YES),
        (twice, r#"{"a":"x"}"#, NO),
        (twice, r#"{"a":"z"}"#, NO),
        (twice, r#"{"a":"x","b":1}"#, YES),
        (twice, r#"{"a":["x","z"]}"#, YES),
        (both, r#"{"a":["x",{"b":"y"}]}"#, YES),
        (both, r#"{"a":[["x"],{"b":"y"}]}"#, NO),
        (both, r#"{"a":[["x",{"b":"y"}]]}"#, YES),
        (both, r#"{"a":{"b":"y"}}"#, NO),
        (both, r#"{"a":"x","c":1}"#, YES),
        (apart, r#"{"n":[{"a":1},{"a":2,"b":3}]}"#, YES),
        (apart, r#"{"n":[{"a":1},{"a":2},{"b":3}]}"#, NO),
    ]);
}

#[test]
fn a_thousand_combinations_and_no_more() {
    let list = |name: &str, size: usize| {
        let items: Vec<String> = (0..size).map(|i| format!(r#"{{"{name}":[{i}]}}"#)).collect();
        format!(r#""$or":[{}]"#, items.join(","))
    };
    let thousand = format!(r#"{{{},"n":{{{},"m":{{{}}}}}}}"#, list("a", 10), list("b", 10), list("c", 10));
    check(&thousand, r#"{"a":3,"n":{"b":9,"m":{"c":0}}}"#, YES);
    check(&thousand, r#"{"a":3,"n":{"b":9,"m":{"c":10}}}"#, NO);
    let more = format!(r#"{{{},"n":{{{},"m":{{{}}}}}}}"#, list("a", 10), list("b", 10), list("c", 11));
    refuse(&more, "$.n", "more than 1000 `$or` combinations");
    check(&format!("{{{}}}", list("a", 1_000)), r#"{"a":999}"#, YES);
    refuse(&format!("{{{}}}", list("a", 1_001)), "$.$or[1000]", "more than 1000 `$or` combinations");
}
