//! Arrays in events: any element will do, but fields of objects in one array must come from the same element.

use super::{NO, YES, check_all, check_field};

#[test]
fn any_element_will_do() {
    check_field(&[
        (r#"["x"]"#, r#"["x"]"#, YES),
        (r#"["x"]"#, r#"["y","x"]"#, YES),
        (r#"["x"]"#, r#"["y","z"]"#, NO),
        (r#"["x"]"#, "[]", NO),
        (r#"["x"]"#, r#"[["x"]]"#, YES),
        (r#"["x"]"#, r#"[1,[2,[3,["x"]]]]"#, YES),
        (r#"["x"]"#, r#"[{"a":"x"}]"#, NO),
        (r#"["x"]"#, r#"[{"a":"x"},"x"]"#, YES),
        ("[1]", "[3,2,1.0]", YES),
        ("[null]", "[1,null]", YES),
        ("[true]", "[false]", NO),
        (r#"["x","y"]"#, r#"["a","b","y"]"#, YES),
        (r#"[{"prefix":"b"}]"#, r#"["abc","bcd"]"#, YES),
    ]);
}

#[test]
fn fields_of_one_object() {
    let pattern = r#"{"l":{"a":[1],"b":[2]}}"#;
    check_all(&[
        (pattern, r#"{"l":{"a":1,"b":2}}"#, YES),
        (pattern, r#"{"l":[{"a":1,"b":2}]}"#, YES),
        (pattern, r#"{"l":[{"a":1},{"b":2}]}"#, NO),
        (pattern, r#"{"l":[{"a":1,"b":3},{"a":3,"b":2}]}"#, NO),
        (pattern, r#"{"l":[{"a":1,"b":3},{"a":3,"b":2},{"b":2,"a":1}]}"#, YES),
        (pattern, r#"{"l":[[{"a":1}],[{"b":2}]]}"#, NO),
        (pattern, r#"{"l":[[{"a":1},{"b":2}]]}"#, NO),
        (pattern, r#"{"l":[[{"a":1,"b":2}]]}"#, YES),
        (pattern, r#"{"l":[{"a":[1,9],"b":[9,2]}]}"#, YES),
        (pattern, r#"{"l":[{"a":[1]},{"b":[2]}]}"#, NO),
        (pattern, r#"{"l":[]}"#, NO),
        (pattern, r#"{"l":[{}]}"#, NO),
        (pattern, r#"{"l":[{"a":1},5,{"a":1,"b":2}]}"#, YES),
        (pattern, r#"{"l":[{"a":[{"a":1}],"b":2}]}"#, NO),
    ]);
}

#[test]
fn different_arrays_are_independent() {
    let pattern = r#"{"k":{"a":[1]},"l":{"b":[2]}}"#;
    check_all(&[
        (pattern, r#"{"k":[{"a":0},{"a":1}],"l":[{"b":2},{"b":0}]}"#, YES),
        (pattern, r#"{"k":[{"a":0},{"a":1}],"l":[{"b":0}]}"#, NO),
        (r#"{"a":[1],"b":[2]}"#, r#"{"a":[0,1],"b":[2,0]}"#, YES),
        (r#"{"l":{"a":[1]},"m":[3]}"#, r#"{"l":[{"a":0},{"a":1}],"m":3}"#, YES),
        (r#"{"l":{"a":[1]},"m":[3]}"#, r#"{"l":[{"a":0},{"a":1}],"m":4}"#, NO),
    ]);
}

#[test]
fn arrays_inside_arrays() {
    let pattern = r#"{"l":{"a":[1],"m":{"b":[2],"c":[3]}}}"#;
    check_all(&[
        (pattern, r#"{"l":[{"a":1,"m":[{"b":2,"c":3}]}]}"#, YES),
        (pattern, r#"{"l":[{"a":1,"m":[{"b":2},{"c":3}]}]}"#, NO),
        (pattern, r#"{"l":[{"a":1,"m":[{"b":2}]},{"a":1,"m":[{"c":3}]}]}"#, NO),
        (pattern, r#"{"l":[{"a":1,"m":[{"b":2}]},{"a":1,"m":[{"x":0},{"b":2,"c":3}]}]}"#, YES),
        (pattern, r#"{"l":[{"a":0,"m":[{"b":2,"c":3}]},{"a":1}]}"#, NO),
        (pattern, r#"{"l":[{"a":0,"m":[{"b":2,"c":3}]},{"a":1,"m":{"b":2,"c":3}}]}"#, YES),
        (pattern, r#"{"l":{"a":1,"m":[{"b":2,"c":0},{"b":2,"c":3}]}}"#, YES),
    ]);
    let two = r#"{"l":{"m":{"a":[1],"b":[2]},"n":{"c":[3],"d":[4]}}}"#;
    check_all(&[
        (two, r#"{"l":[{"m":[{"a":1,"b":2}],"n":[{"c":3,"d":4}]}]}"#, YES),
        (two, r#"{"l":[{"m":[{"a":1,"b":2}]},{"n":[{"c":3,"d":4}]}]}"#, NO),
        (two, r#"{"l":[{"m":[{"a":1},{"b":2}],"n":[{"c":3,"d":4}]}]}"#, NO),
        (two, r#"{"l":[{"m":[{"a":0},{"a":1,"b":2}],"n":[{"d":4},{"c":3,"d":4}]}]}"#, YES),
    ]);
}

#[test]
fn operators_in_elements() {
    let range = r#"{"l":{"q":[{"numeric":[">",5]}],"s":[{"anything-but":"x"}]}}"#;
    check_all(&[
        (range, r#"{"l":[{"q":6,"s":"y"}]}"#, YES),
        (range, r#"{"l":[{"q":6,"s":"x"},{"q":5,"s":"y"}]}"#, NO),
        (range, r#"{"l":[{"q":6,"s":"x"},{"q":5,"s":"y"},{"q":[1,7],"s":["x","z"]}]}"#, YES),
        (r#"{"l":{"a":[{"exists":true}],"b":["z"]}}"#, r#"{"l":[{"a":1},{"b":"z"}]}"#, NO),
        (r#"{"l":{"a":[{"exists":true}],"b":["z"]}}"#, r#"{"l":[{"a":1},{"b":"z","a":null}]}"#, YES),
        (r#"{"t":["1"],"l":{"a":["x"],"b":["y"]}}"#, r#"{"t":"1","l":[{"a":"x"},{"b":"y"}]}"#, NO),
        (r#"{"t":["1"],"l":{"a":["x"],"b":["y"]}}"#, r#"{"t":["0","1"],"l":[{"a":"x","b":"y"}]}"#, YES),
    ]);
}
