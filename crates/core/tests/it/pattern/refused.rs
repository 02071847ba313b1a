//! What is no pattern, and that the message says where and why.

use super::refuse;
use tidings_core::pattern::Pattern;

#[test]
fn malformed_text() {
    for (text, reason) in [
        ("", "EOF"),
        ("{", "line 1 column 1"),
        (r#"{"a":["x"]"#, "line 1 column 10"),
        ("{\n  \"a\": [x]\n}", "line 2 column 9"),
        (r#"{"a":["x"]} x"#, "trailing characters"),
        (r#"{"a":["x"]}{}"#, "trailing characters"),
        (r#"{"a":["x",]}"#, "trailing comma"),
        (r#"{"a":["x"],}"#, "trailing comma"),
        (r#"{a:["x"]}"#, "key must be a string"),
        (r#"{'a':["x"]}"#, "key must be a string"),
        (r#"{"a":["\x"]}"#, "invalid escape"),
        (r#"{"a":["\ud800"]}"#, "line 1 column"),
        (r#"{"a":[01]}"#, "invalid number"),
        (r#"{"a":[1e400]}"#, "number out of range"),
        (r#"{"a":[NaN]}"#, "expected value"),
        (r#"{"a":[+1]}"#, "expected value"),
        (r#"{"a":[undefined]}"#, "expected value"),
        ("{\"a\":[\"\n\"]}", "control character"),
        ("// no\n{}", "expected value"),
    ] {
        refuse(text, "$", reason);
        refuse(text, "$", "malformed JSON");
    }
}

#[test]
fn not_an_object() {
    refuse("[]", "$", "must be an object, not an array");
    refuse("null", "$", "must be an object, not null");
    refuse(r#""x""#, "$", "must be an object, not a string");
    refuse("1", "$", "must be an object, not a number");
    refuse("true", "$", "must be an object, not a boolean");
}

#[test]
fn empty_things() {
    refuse("{}", "$", "an empty object is not allowed");
    refuse(r#"{"a":{}}"#, "$.a", "an empty object is not allowed");
    refuse(r#"{"a":{"b":{}}}"#, "$.a.b", "an empty object is not allowed");
    refuse(r#"{"a":[]}"#, "$.a", "an empty array is not allowed");
    refuse(r#"{"a":[{}]}"#, "$.a[0]", "an empty object is not allowed");
    refuse(r#"{"a":[{"anything-but":[]}]}"#, "$.a[0].anything-but", "an empty array is not allowed");
    refuse(r#"{"a":[{"anything-but":{}}]}"#, "$.a[0].anything-but", "an empty object is not allowed");
    refuse(r#"{"a":[{"anything-but":{"prefix":[]}}]}"#, "$.a[0].anything-but.prefix", "an empty array");
    refuse(r#"{"a":[{"anything-but":{"prefix":""}}]}"#, "$.a[0].anything-but.prefix", "an empty `prefix`");
    refuse(r#"{"a":[{"anything-but":{"suffix":["x",""]}}]}"#, "$.a[0].anything-but.suffix[1]", "an empty `suffix`");
    refuse(r#"{"a":[{"anything-but":{"wildcard":""}}]}"#, "$.a[0].anything-but.wildcard", "an empty `wildcard`");
    refuse(r#"{"a":[{"prefix":{}}]}"#, "$.a[0].prefix", "an empty object is not allowed");
    refuse(r#"{"a":[{"numeric":[]}]}"#, "$.a[0].numeric", "one comparison and its number");
}

#[test]
fn fields_without_a_list() {
    refuse(r#"{"a":"b"}"#, "$.a", "must be an array of values or an object, not a string");
    refuse(r#"{"a":1}"#, "$.a", "not a number");
    refuse(r#"{"a":null}"#, "$.a", "not null");
    refuse(r#"{"x":["y"],"a":{"b":true}}"#, "$.a.b", "not a boolean");
    refuse(r#"{"a":{"prefix":"x"}}"#, "$.a.prefix", "not a string");
    refuse(r#"{"a":{"exists":true}}"#, "$.a.exists", "not a boolean");
}

#[test]
fn lists_of_the_wrong_things() {
    refuse(r#"{"a":[["x"]]}"#, "$.a[0]", "an array inside an array");
    refuse(r#"{"a":["x",[]]}"#, "$.a[1]", "an array inside an array");
    refuse(r#"{"a":[{"b":["x"]}]}"#, "$.a[0].b", "unknown operator `b`");
    refuse(r#"{"data":{"env":["x",{"starts-with":"y"}]}}"#, "$.data.env[1].starts-with", "unknown operator");
    refuse(r#"{"a":[{"Prefix":"x"}]}"#, "$.a[0].Prefix", "unknown operator `Prefix`");
    refuse(r#"{"a":[{"exactly":"x"}]}"#, "$.a[0].exactly", "unknown operator");
    refuse(r#"{"a":[{"$or":[{"b":[1]},{"c":[1]}]}]}"#, "$.a[0].$or", "unknown operator");
    refuse(r#"{"a":[{"":"x"}]}"#, r#"$.a[0][""]"#, "unknown operator");
    refuse(r#"{"a":[{"prefix":"x","suffix":"y"}]}"#, "$.a[0]", "only one operator");
    refuse(r#"{"a":[{"exists":true,"prefix":"y"}]}"#, "$.a[0]", "only one operator");
    refuse(r#"{"a":[{"anything-but":{"prefix":"x","suffix":"y"}}]}"#, "$.a[0].anything-but", "only one operator");
}

#[test]
fn repeated_keys() {
    refuse(r#"{"a":["x"],"a":["y"]}"#, "$.a", "repeated");
    refuse(r#"{"n":{"b":[1],"a":["x"],"a":["x"]}}"#, "$.n.a", "repeated");
    refuse(r#"{"a":["x"],"\u0061":["y"]}"#, "$.a", "repeated");
    refuse(r#"{"a":[{"prefix":"x","prefix":"y"}]}"#, "$.a[0].prefix", "repeated");
    refuse(r#"{"$or":[{"a":[1]},{"b":[1]}],"$or":[{"a":[1]},{"b":[1]}]}"#, "$.$or", "repeated");
}

#[test]
fn operands_of_the_wrong_type() {
    refuse(r#"{"a":[{"prefix":1}]}"#, "$.a[0].prefix", "must be a string or an object");
    refuse(r#"{"a":[{"prefix":["x"]}]}"#, "$.a[0].prefix", "not an array");
    refuse(r#"{"a":[{"prefix":{"suffix":"x"}}]}"#, "$.a[0].prefix.suffix", "not `suffix`");
    refuse(r#"{"a":[{"suffix":{"equals-ignore-case":1}}]}"#, "$.a[0].suffix.equals-ignore-case", "must be a string");
    refuse(r#"{"a":[{"suffix":null}]}"#, "$.a[0].suffix", "not null");
    refuse(r#"{"a":[{"equals-ignore-case":["x"]}]}"#, "$.a[0].equals-ignore-case", "must be a string, not an array");
    refuse(r#"{"a":[{"wildcard":1}]}"#, "$.a[0].wildcard", "must be a string, not a number");
    refuse(r#"{"a":[{"exists":"true"}]}"#, "$.a[0].exists", "must be true or false, not a string");
    refuse(r#"{"a":[{"exists":1}]}"#, "$.a[0].exists", "must be true or false");
    refuse(r#"{"a":[{"exists":null}]}"#, "$.a[0].exists", "must be true or false");
    refuse(r#"{"a":[{"cidr":10}]}"#, "$.a[0].cidr", "must be a string");
    refuse(r#"{"a":[{"anything-but":null}]}"#, "$.a[0].anything-but", "strings and numbers, not null");
    refuse(r#"{"a":[{"anything-but":true}]}"#, "$.a[0].anything-but", "not a boolean");
    refuse(r#"{"a":[{"anything-but":["x",null]}]}"#, "$.a[0].anything-but[1]", "not null");
    refuse(r#"{"a":[{"anything-but":[["x"]]}]}"#, "$.a[0].anything-but[0]", "not an array");
    refuse(r#"{"a":[{"anything-but":[{"prefix":"x"}]}]}"#, "$.a[0].anything-but[0]", "not an object");
    refuse(r#"{"a":[{"anything-but":{"prefix":1}}]}"#, "$.a[0].anything-but.prefix", "must be a string");
    refuse(r#"{"a":[{"anything-but":{"prefix":["x",1]}}]}"#, "$.a[0].anything-but.prefix[1]", "must be a string");
    refuse(r#"{"a":[{"anything-but":{"numeric":["=",1]}}]}"#, "$.a[0].anything-but.numeric[0]", "not `numeric`");
    refuse(r#"{"a":[{"anything-but":{"exists":true}}]}"#, "$.a[0].anything-but.exists", "not `exists`");
    refuse(r#"{"a":[{"anything-but":{"equals-ignore-case":1}}]}"#, "$.a[0].anything-but.equals-ignore-case", "string");
}

#[test]
fn numeric_ranges() {
    refuse(r#"{"a":[{"numeric":5}]}"#, "$.a[0].numeric", "must be an array, not a number");
    refuse(r#"{"a":[{"numeric":[">"]}]}"#, "$.a[0].numeric", "one comparison and its number");
    refuse(r#"{"a":[{"numeric":[">",1,"<"]}]}"#, "$.a[0].numeric", "one comparison and its number");
    refuse(r#"{"a":[{"numeric":[">",1,"<",5,"<",6]}]}"#, "$.a[0].numeric", "one comparison and its number");
    refuse(r#"{"a":[{"numeric":[1,">"]}]}"#, "$.a[0].numeric[1]", "must be a number, not a string");
    refuse(r#"{"a":[{"numeric":[1,1]}]}"#, "$.a[0].numeric[0]", "must be a string, not a number");
    refuse(r#"{"a":[{"numeric":["==",1]}]}"#, "$.a[0].numeric[0]", "unknown comparison `==`");
    refuse(r#"{"a":[{"numeric":["!=",1]}]}"#, "$.a[0].numeric[0]", "unknown comparison");
    refuse(r#"{"a":[{"numeric":[">","1"]}]}"#, "$.a[0].numeric[1]", "must be a number, not a string");
    refuse(r#"{"a":[{"numeric":["<",1,">",0]}]}"#, "$.a[0].numeric[0]", "a range starts with");
    refuse(r#"{"a":[{"numeric":["=",1,"<",2]}]}"#, "$.a[0].numeric[0]", "a range starts with");
    refuse(r#"{"a":[{"numeric":[">",1,">",2]}]}"#, "$.a[0].numeric[2]", "a range ends with");
    refuse(r#"{"a":[{"numeric":[">",5,"<",1]}]}"#, "$.a[0].numeric", "the range is empty");
    refuse(r#"{"a":[{"numeric":[">",5,"<",5]}]}"#, "$.a[0].numeric", "the range is empty");
    refuse(r#"{"a":[{"numeric":[">=",5,"<=",5]}]}"#, "$.a[0].numeric", "the range is empty");
    refuse(r#"{"a":[{"numeric":[">",5000000001]}]}"#, "$.a[0].numeric[1]", "out of range");
    refuse(r#"{"a":[{"numeric":["<",-5000000000.1]}]}"#, "$.a[0].numeric[1]", "out of range");
    refuse(r#"{"a":[{"numeric":[">",0,"<",1e10]}]}"#, "$.a[0].numeric[3]", "out of range");
    refuse(r#"{"a":[{"anything-but":[1,6e9]}]}"#, "$.a[0].anything-but[1]", "out of range");
}

#[test]
fn wildcards() {
    refuse(r#"{"a":[{"wildcard":"a**b"}]}"#, "$.a[0].wildcard", "consecutive");
    refuse(r#"{"a":[{"wildcard":"**"}]}"#, "$.a[0].wildcard", "consecutive");
    refuse(r#"{"a":[{"wildcard":"\\***"}]}"#, "$.a[0].wildcard", "consecutive");
    refuse(r#"{"a":[{"wildcard":"a\\b"}]}"#, "$.a[0].wildcard", "a backslash");
    refuse(r#"{"a":[{"wildcard":"a\\"}]}"#, "$.a[0].wildcard", "a backslash");
    refuse(r#"{"a":[{"anything-but":{"wildcard":["ok","**"]}}]}"#, "$.a[0].anything-but.wildcard[1]", "consecutive");
}

#[test]
fn address_blocks() {
    for bad in [
        "",
        "/",
        "10.0.0.0",
        "10.0.0.0/",
        "10.0.0.0/33",
        "10.0.0.0/-1",
        "10.0.0.0/+8",
        "10.0.0/8",
        "10.0.0.256/8",
        "/8",
        "10.0.0.0/8/8",
        "10.0.0.0/ 8",
        "::/129",
        "::g/8",
        "host/8",
        "10.0.0.0/0x8",
        "10.0.0.0/1000",
        "010.0.0.0/8",
    ] {
        refuse(&format!(r#"{{"a":["x",{{"cidr":"{bad}"}}]}}"#), "$.a[1].cidr", "no address block");
    }
}

#[test]
fn or() {
    refuse(r#"{"$or":[]}"#, "$.$or", "at least two objects");
    refuse(r#"{"$or":[{"a":[1]}]}"#, "$.$or", "at least two objects");
    refuse(r#"{"$or":{"a":[1]}}"#, "$.$or", "an array of objects, not an object");
    refuse(r#"{"$or":"x"}"#, "$.$or", "not a string");
    refuse(r#"{"$or":["x","y"]}"#, "$.$or[0]", "objects only, not a string");
    refuse(r#"{"$or":[{"a":[1]},[1]]}"#, "$.$or[1]", "objects only, not an array");
    refuse(r#"{"$or":[{"a":[1]},{}]}"#, "$.$or[1]", "an empty object");
    refuse(r#"{"$or":[{"a":[1]},{"b":1}]}"#, "$.$or[1].b", "not a number");
    refuse(r#"{"$or":[{"numeric":[1]},{"a":[1]}]}"#, "$.$or[0].numeric", "is an operator");
    refuse(r#"{"n":{"$or":[{"a":[1]},{"b":{"prefix":["x"]}}]}}"#, "$.n.$or[1].b.prefix", "is an operator");
    refuse(r#"{"$or":[{"a":[1]},{"$or":[{"b":[1]}]}]}"#, "$.$or[1].$or", "at least two objects");
}

#[test]
fn odd_keys_are_quoted_in_the_place() {
    refuse(r#"{"a b":{"c.d":1}}"#, r#"$["a b"]["c.d"]"#, "must be an array");
    refuse(r#"{"ключ":1}"#, "$.ключ", "must be an array");
}

/// Operator names are ordinary field names outside `$or`.
#[test]
fn accepted_after_all() {
    for text in [
        r#"{"prefix":["x"]}"#,
        r#"{"numeric":{"exists":[1]}}"#,
        r#"{"a":["x",1,null,true,{"prefix":"p"},{"exists":false},{"cidr":"10.0.0.0/8"}]}"#,
        " {\n\t\"a\" : [ \"x\" ] }\r\n",
        r#"{"a":[{"numeric":[">",-5e9,"<",5e9]}]}"#,
        r#"{"a":[6e9,1e300]}"#,
    ] {
        assert!(Pattern::parse(text).is_ok(), "{text}");
    }
}

/// Whoever mends a pattern hears of all that is wrong with it at once, in the order it stands there.
#[test]
fn every_mistake_is_named() {
    let places = |text: &str| -> Vec<String> {
        Pattern::parse_all(text).unwrap_err().into_iter().map(|error| error.path).collect()
    };
    let text = r#"{"a":1,"b":[],"c":{"d":[{"numeric":["<"]}],"e":["fine"]},"f":{},"$or":[{"g":[]},{"h":2}]}"#;
    assert_eq!(places(text), ["$.a", "$.b", "$.c.d[0].numeric", "$.f", "$.$or[0].g", "$.$or[1].h"]);
    assert_eq!(places(r#"{"a":[{"prefix":1}],"b":[1"#), ["$"], "what is no JSON has one mistake");
    let many = |count: usize| {
        let fields: Vec<String> = (0..count).map(|n| format!(r#""f{n}":0"#)).collect();
        places(&format!("{{{}}}", fields.join(","))).len()
    };
    assert_eq!((many(19), many(20), many(21)), (19, 20, 20));
}

#[test]
fn repeated_keys_are_found_at_any_depth() {
    let found = tidings_core::pattern::repeated_keys(r#"{"a":{"b":[{"c":1,"c":2}],"d":1,"d":1},"a":1}"#);
    let places: Vec<_> = found.iter().map(|error| error.path.as_str()).collect();
    assert_eq!(places, ["$.a", "$.a.d", "$.a.b[0].c"]);
    assert!(tidings_core::pattern::repeated_keys(r#"[{"a":1},{"a":1}]"#).is_empty());
}
