//! `prefix`, `suffix`, `equals-ignore-case`, and the first two with the third.

use super::{NO, YES, check_all, check_field};

#[test]
fn prefix() {
    check_field(&[
        (r#"[{"prefix":"ab"}]"#, r#""ab""#, YES),
        (r#"[{"prefix":"ab"}]"#, r#""abc""#, YES),
        (r#"[{"prefix":"ab"}]"#, r#""a""#, NO),
        (r#"[{"prefix":"ab"}]"#, r#""""#, NO),
        (r#"[{"prefix":"ab"}]"#, r#""Abc""#, NO),
        (r#"[{"prefix":"ab"}]"#, r#""cab""#, NO),
        (r#"[{"prefix":"ab"}]"#, r#""\u0061bc""#, YES),
        (r#"[{"prefix":"1"}]"#, "12", NO),
        (r#"[{"prefix":"n"}]"#, "null", NO),
        (r#"[{"prefix":"t"}]"#, "true", NO),
        (r#"[{"prefix":""}]"#, r#""""#, YES),
        (r#"[{"prefix":""}]"#, r#""x""#, YES),
        (r#"[{"prefix":""}]"#, "1", NO),
        (r#"[{"prefix":"é"}]"#, r#""éa""#, YES),
        (r#"[{"prefix":"é"}]"#, r#""èa""#, NO),
        (r#"[{"prefix":"a"},{"prefix":"ab"},{"prefix":"b"}]"#, r#""abc""#, YES),
        (r#"[{"prefix":"a"},{"prefix":"ab"},{"prefix":"b"}]"#, r#""cba""#, NO),
        (r#"["x",{"prefix":"y"}]"#, r#""yes""#, YES),
        (r#"["x",{"prefix":"y"}]"#, r#""x""#, YES),
        (r#"["x",{"prefix":"y"}]"#, r#""xy""#, NO),
    ]);
}

#[test]
fn suffix() {
    check_field(&[
        (r#"[{"suffix":".png"}]"#, r#""a.png""#, YES),
        (r#"[{"suffix":".png"}]"#, r#"".png""#, YES),
        (r#"[{"suffix":".png"}]"#, r#""a.pngx""#, NO),
        (r#"[{"suffix":".png"}]"#, r#""a.PNG""#, NO),
        (r#"[{"suffix":".png"}]"#, r#""png""#, NO),
        (r#"[{"suffix":".png"}]"#, r#""""#, NO),
        (r#"[{"suffix":"1"}]"#, "21", NO),
        (r#"[{"suffix":""}]"#, r#""""#, YES),
        (r#"[{"suffix":""}]"#, "null", NO),
        (r#"[{"suffix":"é"}]"#, r#""aé""#, YES),
        (r#"[{"suffix":"é"}]"#, r#""a\u00e9""#, YES),
        (r#"[{"suffix":"c"},{"suffix":"bc"}]"#, r#""abc""#, YES),
        (r#"[{"suffix":"c"},{"suffix":"bc"}]"#, r#""cb""#, NO),
        (r#"[{"suffix":"a\"b"}]"#, r#""xa\"b""#, YES),
    ]);
}

#[test]
fn ignoring_case() {
    check_field(&[
        (r#"[{"equals-ignore-case":"Alice"}]"#, r#""alice""#, YES),
        (r#"[{"equals-ignore-case":"Alice"}]"#, r#""ALICE""#, YES),
        (r#"[{"equals-ignore-case":"Alice"}]"#, r#""aLiCe""#, YES),
        (r#"[{"equals-ignore-case":"Alice"}]"#, r#""alic""#, NO),
        (r#"[{"equals-ignore-case":"Alice"}]"#, r#""alices""#, NO),
        (r#"[{"equals-ignore-case":"Alice"}]"#, "1", NO),
        (r#"[{"equals-ignore-case":""}]"#, r#""""#, YES),
        (r#"[{"equals-ignore-case":""}]"#, r#""a""#, NO),
        (r#"[{"equals-ignore-case":"null"}]"#, "null", NO),
        (r#"[{"equals-ignore-case":"ÄÖÜ"}]"#, r#""äöü""#, YES),
        (r#"[{"equals-ignore-case":"äöü"}]"#, r#""ÄÖÜ""#, YES),
        (r#"[{"equals-ignore-case":"äöü"}]"#, r#""\u00c4ÖÜ""#, YES),
        (r#"[{"equals-ignore-case":"äöü"}]"#, r#""aou""#, NO),
        (r#"[{"equals-ignore-case":"МОСКВА"}]"#, r#""Москва""#, YES),
        (r#"[{"equals-ignore-case":"x1-Y"}]"#, r#""X1-y""#, YES),
        (r#"["b",{"equals-ignore-case":"A"}]"#, r#""a""#, YES),
        (r#"["b",{"equals-ignore-case":"A"}]"#, r#""B""#, NO),
    ]);
}

#[test]
fn prefix_and_suffix_ignoring_case() {
    check_field(&[
        (r#"[{"prefix":{"equals-ignore-case":"EventB"}}]"#, r#""eventbridge""#, YES),
        (r#"[{"prefix":{"equals-ignore-case":"EventB"}}]"#, r#""EVENTB""#, YES),
        (r#"[{"prefix":{"equals-ignore-case":"EventB"}}]"#, r#""event""#, NO),
        (r#"[{"prefix":{"equals-ignore-case":"EventB"}}]"#, r#""xeventb""#, NO),
        (r#"[{"prefix":{"equals-ignore-case":"EventB"}}]"#, "1", NO),
        (r#"[{"prefix":{"equals-ignore-case":""}}]"#, r#""x""#, YES),
        (r#"[{"prefix":{"equals-ignore-case":"Ä"}}]"#, r#""äx""#, YES),
        (r#"[{"suffix":{"equals-ignore-case":".png"}}]"#, r#""A.PNG""#, YES),
        (r#"[{"suffix":{"equals-ignore-case":".png"}}]"#, r#""a.pNg""#, YES),
        (r#"[{"suffix":{"equals-ignore-case":".PNG"}}]"#, r#""a.png""#, YES),
        (r#"[{"suffix":{"equals-ignore-case":".png"}}]"#, r#""a.pngs""#, NO),
        (r#"[{"suffix":{"equals-ignore-case":".png"}}]"#, r#""png""#, NO),
        (r#"[{"suffix":{"equals-ignore-case":"Ü"}}]"#, r#""xü""#, YES),
        (r#"[{"suffix":{"equals-ignore-case":""}}]"#, "true", NO),
    ]);
}

#[test]
fn with_other_fields() {
    check_all(&[
        (r#"{"a":[{"prefix":"x"}],"b":[{"suffix":"y"}]}"#, r#"{"a":"xx","b":"yy"}"#, YES),
        (r#"{"a":[{"prefix":"x"}],"b":[{"suffix":"y"}]}"#, r#"{"a":"xx","b":"yx"}"#, NO),
        (r#"{"t":["1"],"a":[{"prefix":"0123456789abc"}]}"#, r#"{"t":"1","a":"0123456789abcd"}"#, YES),
        (r#"{"t":["1"],"a":[{"prefix":"0123456789abc"}]}"#, r#"{"t":"1","a":"0123456789ab"}"#, NO),
        (r#"{"t":["1"],"a":[{"prefix":"0123456789abc"}]}"#, r#"{"t":"1","a":"xxxxx56789abc"}"#, NO),
        (r#"{"t":["1"],"a":[{"suffix":"0123456789abc"}]}"#, r#"{"t":"1","a":"x0123456789abc"}"#, YES),
        (r#"{"t":["1"],"a":[{"suffix":"0123456789abc"}]}"#, r#"{"t":"1","a":"012345678xxxx"}"#, NO),
        (r#"{"t":["1"],"a":[{"suffix":"0123456789abc"}]}"#, r#"{"t":"1","a":"abc"}"#, NO),
        (r#"{"t":["1"],"a":["",{"prefix":"x"}]}"#, r#"{"t":"1","a":""}"#, YES),
        (r#"{"t":["1"],"a":[{"equals-ignore-case":"Q"}]}"#, r#"{"t":"1","a":"q"}"#, YES),
        (r#"{"t":["1"],"a":["q"]}"#, r#"{"t":"1","a":["p","q"]}"#, YES),
        (r#"{"t":["1"],"a":["qqqqqqqqqqqq"]}"#, r#"{"t":"1","a":"xqqqqqqqqqqqq"}"#, NO),
    ]);
}
