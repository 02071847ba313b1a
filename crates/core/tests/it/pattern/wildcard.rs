//! `wildcard`: stars and escapes.

use super::{NO, YES, check_field};

#[test]
fn stars_stand_for_any_run_of_characters() {
    check_field(&[
        (r#"[{"wildcard":"*"}]"#, r#""""#, YES),
        (r#"[{"wildcard":"*"}]"#, r#""x""#, YES),
        (r#"[{"wildcard":"*"}]"#, "1", NO),
        (r#"[{"wildcard":"*"}]"#, "null", NO),
        (r#"[{"wildcard":""}]"#, r#""""#, YES),
        (r#"[{"wildcard":""}]"#, r#""x""#, NO),
        (r#"[{"wildcard":"abc"}]"#, r#""abc""#, YES),
        (r#"[{"wildcard":"abc"}]"#, r#""abcd""#, NO),
        (r#"[{"wildcard":"a*"}]"#, r#""a""#, YES),
        (r#"[{"wildcard":"a*"}]"#, r#""abc""#, YES),
        (r#"[{"wildcard":"a*"}]"#, r#""ba""#, NO),
        (r#"[{"wildcard":"*a"}]"#, r#""ba""#, YES),
        (r#"[{"wildcard":"*a"}]"#, r#""a""#, YES),
        (r#"[{"wildcard":"*a"}]"#, r#""ab""#, NO),
        (r#"[{"wildcard":"a*a"}]"#, r#""a""#, NO),
        (r#"[{"wildcard":"a*a"}]"#, r#""aa""#, YES),
        (r#"[{"wildcard":"a*a"}]"#, r#""aba""#, YES),
        (r#"[{"wildcard":"a*b*c"}]"#, r#""abc""#, YES),
        (r#"[{"wildcard":"a*b*c"}]"#, r#""axxbxxc""#, YES),
        (r#"[{"wildcard":"a*b*c"}]"#, r#""acb""#, NO),
        (r#"[{"wildcard":"a*b*c"}]"#, r#""abcb""#, NO),
        (r#"[{"wildcard":"a*b*c"}]"#, r#""abcbc""#, YES),
        (r#"[{"wildcard":"*b*"}]"#, r#""abc""#, YES),
        (r#"[{"wildcard":"*b*"}]"#, r#""ac""#, NO),
        (r#"[{"wildcard":"*bc*"}]"#, r#""abcd""#, YES),
        (r#"[{"wildcard":"*bc*"}]"#, r#""bc""#, YES),
        (r#"[{"wildcard":"*bcd*"}]"#, r#""abcd""#, YES),
        (r#"[{"wildcard":"*bcde*"}]"#, r#""abcdef""#, YES),
        (r#"[{"wildcard":"*abcdef*"}]"#, r#""xabcdefx""#, YES),
        (r#"[{"wildcard":"*abcdef*"}]"#, r#""xbcdefx""#, NO),
        (r#"[{"wildcard":"*aab*"}]"#, r#""aaab""#, YES),
        (r#"[{"wildcard":"*ab*ab*"}]"#, r#""ab""#, NO),
        (r#"[{"wildcard":"*ab*ab*"}]"#, r#""abab""#, YES),
        (r#"[{"wildcard":"*ab*abc"}]"#, r#""ababc""#, YES),
        (r#"[{"wildcard":"ab*ba"}]"#, r#""aba""#, NO),
        (r#"[{"wildcard":"dir/*.png"}]"#, r#""dir/x/y.png""#, YES),
        (r#"[{"wildcard":"dir/*.png"}]"#, r#""dir/.png""#, YES),
        (r#"[{"wildcard":"dir/*.png"}]"#, r#""Dir/a.png""#, NO),
        (r#"[{"wildcard":"*é*"}]"#, r#""caf\u00e9s""#, YES),
        (r#"[{"wildcard":"日*語"}]"#, r#""日本語""#, YES),
        (r#"[{"wildcard":"*a?b*"}]"#, r#""xa?by""#, YES),
        (r#"[{"wildcard":"*a?b*"}]"#, r#""xacby""#, NO),
        (r#"[{"wildcard":"*x"},{"wildcard":"y*"}]"#, r#""yes""#, YES),
        (r#"["z",{"wildcard":"y*"}]"#, r#""zy""#, NO),
        (r#"[{"wildcard":"a*"}]"#, r#"["b","ab"]"#, YES),
    ]);
}

#[test]
fn escapes() {
    check_field(&[
        (r#"[{"wildcard":"a\\*b"}]"#, r#""a*b""#, YES),
        (r#"[{"wildcard":"a\\*b"}]"#, r#""axb""#, NO),
        (r#"[{"wildcard":"a\\\\b"}]"#, r#""a\\b""#, YES),
        (r#"[{"wildcard":"a\\\\*b"}]"#, r#""a\\xb""#, YES),
        (r#"[{"wildcard":"a\\\\*b"}]"#, r#""axb""#, NO),
        (r#"[{"wildcard":"\\*"}]"#, r#""*""#, YES),
        (r#"[{"wildcard":"\\*"}]"#, r#""x""#, NO),
        (r#"[{"wildcard":"*\\*"}]"#, r#""abc*""#, YES),
        (r#"[{"wildcard":"*\\**"}]"#, r#""a*c""#, YES),
        (r#"[{"wildcard":"*\\**"}]"#, r#""abc""#, NO),
        (r#"[{"wildcard":"\\*\\*"}]"#, r#""**""#, YES),
    ]);
}
