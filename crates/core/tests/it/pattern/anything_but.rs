//! `anything-but`: any leaf that is not excluded, of whatever type; never a missing field.

use super::{NO, YES, check_all, check_field};

// S001-14
#[test]
fn values() {
    check_field(&[
        (r#"[{"anything-but":"x"}]"#, r#""y""#, YES),
        (r#"[{"anything-but":"x"}]"#, r#""x""#, NO),
        (r#"[{"anything-but":"x"}]"#, r#""X""#, YES),
        (r#"[{"anything-but":"x"}]"#, r#""""#, YES),
        (r#"[{"anything-but":"x"}]"#, "1", YES),
        (r#"[{"anything-but":"x"}]"#, "null", YES),
        (r#"[{"anything-but":"x"}]"#, "true", YES),
        (r#"[{"anything-but":"x"}]"#, "[]", NO),
        (r#"[{"anything-but":"x"}]"#, "{}", NO),
        (r#"[{"anything-but":"x"}]"#, r#"{"b":"y"}"#, NO),
        (r#"[{"anything-but":"x"}]"#, r#"["x"]"#, NO),
        (r#"[{"anything-but":"x"}]"#, r#"["x","x"]"#, NO),
        (r#"[{"anything-but":"x"}]"#, r#"["x","y"]"#, YES),
        (r#"[{"anything-but":""}]"#, r#""""#, NO),
        (r#"[{"anything-but":""}]"#, r#""x""#, YES),
        (r#"[{"anything-but":1}]"#, "1", NO),
        (r#"[{"anything-but":1}]"#, "1.0", NO),
        (r#"[{"anything-but":1}]"#, "10e-1", NO),
        (r#"[{"anything-but":1}]"#, "2", YES),
        (r#"[{"anything-but":1}]"#, r#""1""#, YES),
        (r#"[{"anything-but":"1"}]"#, "1", YES),
        (r#"[{"anything-but":["x","y"]}]"#, r#""x""#, NO),
        (r#"[{"anything-but":["x","y"]}]"#, r#""y""#, NO),
        (r#"[{"anything-but":["x","y"]}]"#, r#""z""#, YES),
        (r#"[{"anything-but":["x","y"]}]"#, r#"["x","y"]"#, NO),
        (r#"[{"anything-but":["x","y"]}]"#, r#"["x","z"]"#, YES),
        (r#"[{"anything-but":[100,200,300]}]"#, "2e2", NO),
        (r#"[{"anything-but":[100,200,300]}]"#, "201", YES),
        (r#"[{"anything-but":["x",1]}]"#, "1", NO),
        (r#"[{"anything-but":["x",1]}]"#, r#""x""#, NO),
        (r#"[{"anything-but":["x",1]}]"#, r#""1""#, YES),
        (r#"[{"anything-but":-5e9}]"#, "-5000000000", NO),
        (r#"["x",{"anything-but":["x","y"]}]"#, r#""x""#, YES),
        (r#"["x",{"anything-but":["x","y"]}]"#, r#""y""#, NO),
        (r#"[{"anything-but":"x"},{"anything-but":"y"}]"#, r#""x""#, YES),
        (r#"[null,{"anything-but":"x"}]"#, r#""x""#, NO),
    ]);
}

// S001-14
#[test]
fn other_operators() {
    check_field(&[
        (r#"[{"anything-but":{"prefix":"ab"}}]"#, r#""abc""#, NO),
        (r#"[{"anything-but":{"prefix":"ab"}}]"#, r#""ab""#, NO),
        (r#"[{"anything-but":{"prefix":"ab"}}]"#, r#""a""#, YES),
        (r#"[{"anything-but":{"prefix":"ab"}}]"#, r#""""#, YES),
        (r#"[{"anything-but":{"prefix":"ab"}}]"#, "5", YES),
        (r#"[{"anything-but":{"prefix":["ab","cd"]}}]"#, r#""cde""#, NO),
        (r#"[{"anything-but":{"prefix":["ab","cd"]}}]"#, r#""abe""#, NO),
        (r#"[{"anything-but":{"prefix":["ab","cd"]}}]"#, r#""ce""#, YES),
        (r#"[{"anything-but":{"suffix":".png"}}]"#, r#""a.png""#, NO),
        (r#"[{"anything-but":{"suffix":".png"}}]"#, r#""a.PNG""#, YES),
        (r#"[{"anything-but":{"suffix":".png"}}]"#, "null", YES),
        (r#"[{"anything-but":{"suffix":[".png",".jpg"]}}]"#, r#""a.jpg""#, NO),
        (r#"[{"anything-but":{"suffix":[".png",".jpg"]}}]"#, r#""a.gif""#, YES),
        (r#"[{"anything-but":{"wildcard":"*/lib/*"}}]"#, r#""/usr/lib/x""#, NO),
        (r#"[{"anything-but":{"wildcard":"*/lib/*"}}]"#, r#""/usr/share/x""#, YES),
        (r#"[{"anything-but":{"wildcard":"*/lib/*"}}]"#, "7", YES),
        (r#"[{"anything-but":{"wildcard":["*/lib/*","*/bin/*"]}}]"#, r#""/bin/sh""#, NO),
        (r#"[{"anything-but":{"wildcard":["*/lib/*","*/bin/*"]}}]"#, r#""/sbin/sh""#, YES),
        (r#"[{"anything-but":{"wildcard":"*"}}]"#, r#""x""#, NO),
        (r#"[{"anything-but":{"wildcard":"*"}}]"#, "1", YES),
        (r#"[{"anything-but":{"equals-ignore-case":"Init"}}]"#, r#""INIT""#, NO),
        (r#"[{"anything-but":{"equals-ignore-case":"Init"}}]"#, r#""inits""#, YES),
        (r#"[{"anything-but":{"equals-ignore-case":"Init"}}]"#, "true", YES),
        (r#"[{"anything-but":{"equals-ignore-case":["Init","Stop"]}}]"#, r#""sTop""#, NO),
        (r#"[{"anything-but":{"equals-ignore-case":["Init","Stop"]}}]"#, r#""run""#, YES),
        (r#"[{"anything-but":{"equals-ignore-case":""}}]"#, r#""""#, NO),
        (r#"[{"anything-but":{"equals-ignore-case":"é"}}]"#, r#""É""#, NO),
        (r#"[{"anything-but":{"prefix":"ab"}}]"#, r#"["abc","x"]"#, YES),
        (r#"[{"anything-but":{"prefix":"ab"}}]"#, r#"["abc","abd"]"#, NO),
    ]);
}

#[test]
fn a_missing_field_never_matches() {
    check_all(&[
        (r#"{"a":[{"anything-but":"x"}]}"#, "{}", NO),
        (r#"{"a":[{"anything-but":"x"}]}"#, r#"{"b":"y"}"#, NO),
        (r#"{"a":{"b":[{"anything-but":"x"}]}}"#, r#"{"a":{}}"#, NO),
        (r#"{"a":{"b":[{"anything-but":"x"}]}}"#, r#"{"a":"y"}"#, NO),
        (r#"{"a":{"b":[{"anything-but":"x"}]}}"#, r#"{"a":{"b":"y"}}"#, YES),
        (r#"{"a":{"b":[{"anything-but":{"prefix":"x"}}]}}"#, r#"{"a":{"c":"y"}}"#, NO),
        (r#"{"a":[{"anything-but":"x"}],"b":[{"anything-but":"y"}]}"#, r#"{"a":1,"b":2}"#, YES),
        (r#"{"a":[{"anything-but":"x"}],"b":[{"anything-but":"y"}]}"#, r#"{"a":1,"b":"y"}"#, NO),
    ]);
}
