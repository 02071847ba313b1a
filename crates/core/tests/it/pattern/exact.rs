//! Plain values: strings, numbers, booleans, null; lists and nested fields.

use super::{NO, YES, check_all, check_field};

// S001-14
#[test]
fn a_value_is_compared_by_type_and_value() {
    check_field(&[
        (r#"["x"]"#, r#""x""#, YES),
        (r#"["x"]"#, r#""X""#, NO),
        (r#"["x"]"#, r#""xx""#, NO),
        (r#"["x"]"#, r#""""#, NO),
        (r#"["x"]"#, r#"" x""#, NO),
        (r#"["x","y"]"#, r#""y""#, YES),
        (r#"["x","y"]"#, r#""z""#, NO),
        (r#"["x","x"]"#, r#""x""#, YES),
        (r#"[""]"#, r#""""#, YES),
        (r#"[""]"#, r#"" ""#, NO),
        (r#"[""]"#, "null", NO),
        (r#"[""]"#, "[]", NO),
        ("[null]", "null", YES),
        ("[null]", r#""null""#, NO),
        ("[null]", r#""""#, NO),
        ("[null]", "0", NO),
        ("[null]", "false", NO),
        ("[true]", "true", YES),
        ("[true]", "false", NO),
        ("[true]", r#""true""#, NO),
        ("[true]", "1", NO),
        ("[false]", "false", YES),
        ("[false]", "true", NO),
        ("[false]", "null", NO),
        ("[true,false]", "false", YES),
        ("[true,null]", "null", YES),
        (r#"["null"]"#, "null", NO),
        (r#"["true"]"#, "true", NO),
        (r#"[1,"x",null,true]"#, "true", YES),
        (r#"[1,"x",null,true]"#, "1", YES),
        (r#"[1,"x",null,true]"#, r#""x""#, YES),
        (r#"[1,"x",null,true]"#, "null", YES),
        (r#"[1,"x",null,true]"#, "false", NO),
        (r#"[1,"x",null,true]"#, "2", NO),
    ]);
}

#[test]
fn numbers_are_compared_by_value() {
    check_field(&[
        ("[300]", "300", YES),
        ("[300]", "300.0", YES),
        ("[300]", "3.0e2", YES),
        ("[300]", "3e2", YES),
        ("[300]", "3E+2", YES),
        ("[300]", "30000e-2", YES),
        ("[3.0e2]", "300", YES),
        ("[300.0]", "300", YES),
        ("[300]", "300.1", NO),
        ("[300]", "301", NO),
        ("[300]", "-300", NO),
        ("[300]", r#""300""#, NO),
        (r#"["300"]"#, "300", NO),
        ("[0]", "-0", YES),
        ("[-0]", "0", YES),
        ("[0]", "0.0", YES),
        ("[0]", "-0.0e5", YES),
        ("[0.1]", "0.1", YES),
        ("[0.1]", "0.10", YES),
        ("[0.1]", "1e-1", YES),
        ("[0.1]", "0.11", NO),
        ("[-1.5]", "-1.5", YES),
        ("[-1.5]", "1.5", NO),
        ("[9007199254740993]", "9007199254740993", YES),
        ("[9007199254740993]", "9007199254740992", NO),
        ("[9007199254740993]", "9007199254740994", NO),
        ("[9007199254740992]", "9007199254740992.0", YES),
        ("[18446744073709551615]", "18446744073709551615", YES),
        ("[18446744073709551615]", "18446744073709551614", NO),
        ("[-9223372036854775808]", "-9223372036854775808", YES),
        ("[-9223372036854775808]", "-9223372036854775807", NO),
        ("[123456789012]", "123456789012", YES),
        ("[1e300]", "1e300", YES),
        ("[1e300]", "1.0e300", YES),
        ("[1e300]", "1e301", NO),
        ("[1,2,3,4,5,6,7,8,9]", "7.0", YES),
        ("[1,2,3,4,5,6,7,8,9]", "7.5", NO),
    ]);
}

#[test]
fn strings_are_compared_by_what_they_say_not_by_how_they_are_written() {
    check_field(&[
        (r#"["a\"b"]"#, r#""a\"b""#, YES),
        (r#"["a\"b"]"#, r#""a\u0022b""#, YES),
        (r#"["é"]"#, r#""\u00e9""#, YES),
        (r#"["\u00e9"]"#, r#""é""#, YES),
        (r#"["é"]"#, r#""e\u0301""#, NO), // the same look, two code points
        (r#"["😀"]"#, r#""\ud83d\ude00""#, YES),
        (r#"["a\\b"]"#, r#""a\\b""#, YES),
        (r#"["a/b"]"#, r#""a\/b""#, YES),
        (r#"["a\nb"]"#, r#""a\nb""#, YES),
        (r#"["a\nb"]"#, r#""a\\nb""#, NO),
        (r#"["\u0000"]"#, r#""\u0000""#, YES),
        (r#"["日本"]"#, r#""日本""#, YES),
        (r#"["日本"]"#, r#""日本語""#, NO),
    ]);
}

#[test]
fn fields_are_anded_and_nested() {
    check_all(&[
        (r#"{"a":["x"],"b":["y"]}"#, r#"{"a":"x","b":"y"}"#, YES),
        (r#"{"a":["x"],"b":["y"]}"#, r#"{"b":"y","a":"x"}"#, YES),
        (r#"{"a":["x"],"b":["y"]}"#, r#"{"a":"x"}"#, NO),
        (r#"{"a":["x"],"b":["y"]}"#, r#"{"a":"x","b":"z"}"#, NO),
        (r#"{"a":["x"],"b":["y"]}"#, r#"{"a":"x","b":"y","c":{"a":"no"}}"#, YES),
        (r#"{"a":["x"]}"#, "{}", NO),
        (r#"{"a":["x"]}"#, r#"{"b":{"a":"x"}}"#, NO),
        (r#"{"a":{"b":["x"]}}"#, r#"{"a":{"b":"x"}}"#, YES),
        (r#"{"a":{"b":["x"]}}"#, r#"{"a":{"b":"y"}}"#, NO),
        (r#"{"a":{"b":["x"]}}"#, r#"{"a":"x"}"#, NO),
        (r#"{"a":{"b":["x"]}}"#, r#"{"a":{"c":{"b":"x"}}}"#, NO),
        (r#"{"a":{"b":["x"]}}"#, r#"{"a":{"b":{"b":"x"}}}"#, NO),
        (r#"{"a":{"b":["x"]}}"#, r#"{"a.b":"x"}"#, NO),
        (r#"{"a.b":["x"]}"#, r#"{"a.b":"x"}"#, YES),
        (r#"{"a.b":["x"]}"#, r#"{"a":{"b":"x"}}"#, NO),
        (r#"{"a":["x"]}"#, r#"{"a":{"b":"x"}}"#, NO),
        (r#"{"a":{"b":["x"],"c":[1]},"d":[null]}"#, r#"{"d":null,"a":{"c":1,"b":"x"}}"#, YES),
        (r#"{"a":{"b":["x"],"c":[1]},"d":[null]}"#, r#"{"d":null,"a":{"c":2,"b":"x"}}"#, NO),
        (r#"{"a":{"b":{"c":{"d":["x"]}}}}"#, r#"{"a":{"b":{"c":{"d":"x"}}}}"#, YES),
        (r#"{"a":{"b":{"c":{"d":["x"]}}}}"#, r#"{"a":{"b":{"c":"x"}}}"#, NO),
        (r#"{"":["x"]}"#, r#"{"":"x"}"#, YES),
        (r#"{"k\"ey":["x"]}"#, r#"{"k\u0022ey":"x"}"#, YES),
        (r#"{"ключ":["x"]}"#, r#"{"\u043a\u043b\u044e\u0447":"x"}"#, YES),
        (r#"{"$ref":["x"]}"#, r#"{"$ref":"x"}"#, YES),
    ]);
}

/// S001-16: the three filters of a DynamoDB stream consumer, on typed images.
#[test]
fn dynamodb_stream_records_are_filtered() {
    let insert =
        r#"{"eventName":["INSERT"],"dynamodb":{"NewImage":{"entity":{"S":["product"]},"compliant":{"BOOL":[false]}}}}"#;
    let modify = r#"{"eventName":["MODIFY"],"dynamodb":{"NewImage":{"entity":{"S":["product"]},"compliant":{"BOOL":[false]}},"OldImage":{"compliant":{"BOOL":[true]}}}}"#;
    let score = r#"{"eventName":["MODIFY"],"dynamodb":{"NewImage":{"entity":{"S":["score"]},"cod_chav_filg":{"S":[{"anything-but":{"prefix":"ALE#"}}]}}}}"#;
    let number = r#"{"dynamodb":{"NewImage":{"n":{"N":[{"numeric":[">",1]}]}}}}"#;
    check_all(&[
        (
            insert,
            r#"{"eventName":"INSERT","dynamodb":{"NewImage":{"entity":{"S":"product"},"compliant":{"BOOL":false}}}}"#,
            YES,
        ),
        (
            insert,
            r#"{"eventName":"INSERT","dynamodb":{"NewImage":{"entity":{"S":"product"},"compliant":{"BOOL":true}}}}"#,
            NO,
        ),
        (
            insert,
            r#"{"eventName":"MODIFY","dynamodb":{"NewImage":{"entity":{"S":"product"},"compliant":{"BOOL":false}}}}"#,
            NO,
        ),
        (
            modify,
            r#"{"eventName":"MODIFY","dynamodb":{"NewImage":{"entity":{"S":"product"},"compliant":{"BOOL":false}},"OldImage":{"compliant":{"BOOL":true}}}}"#,
            YES,
        ),
        (
            modify,
            r#"{"eventName":"MODIFY","dynamodb":{"NewImage":{"entity":{"S":"product"},"compliant":{"BOOL":false}},"OldImage":{"compliant":{"BOOL":false}}}}"#,
            NO,
        ),
        (
            score,
            r#"{"eventName":"MODIFY","dynamodb":{"NewImage":{"entity":{"S":"score"},"cod_chav_filg":{"S":"PRD#1"}}}}"#,
            YES,
        ),
        (
            score,
            r#"{"eventName":"MODIFY","dynamodb":{"NewImage":{"entity":{"S":"score"},"cod_chav_filg":{"S":"ALE#1"}}}}"#,
            NO,
        ),
        (score, r#"{"eventName":"MODIFY","dynamodb":{"NewImage":{"entity":{"S":"score"}}}}"#, NO),
        (number, r#"{"dynamodb":{"NewImage":{"n":{"N":"24"}}}}"#, NO),
        (number, r#"{"dynamodb":{"NewImage":{"n":{"N":24}}}}"#, YES),
    ]);
}
