//! Texts that are refused: where, and why.

use tidings_core::filter::limits::{MAX_NAME_CHARS, MAX_SQL_CHARS, MAX_SQL_DEPTH};
use tidings_core::filter::{SqlAction, SqlError, SqlFilter};

#[track_caller]
fn refused(error: Result<(), SqlError>, text: &str, at: usize, reason: &str) {
    let error = error.err().unwrap_or_else(|| panic!("accepted: {text}"));
    assert_eq!(error.at, at, "{text}: {error}");
    assert!(error.message.contains(reason), "{text}: {error}");
    assert_eq!(error.to_string(), format!("at character {at}: {}", error.message));
}

#[track_caller]
fn refuse_filters(rows: &[(&str, usize, &str)]) {
    for (text, at, reason) in rows {
        refused(SqlFilter::parse(text).map(drop), text, *at, reason);
    }
}

#[track_caller]
fn refuse_actions(rows: &[(&str, usize, &str)]) {
    for (text, at, reason) in rows {
        refused(SqlAction::parse(text).map(drop), text, *at, reason);
    }
}

#[test]
fn filters() {
    refuse_filters(&[
        ("", 1, "the filter is empty"),
        ("   ", 4, "the filter is empty"),
        ("a =", 4, "expected a value, found the end"),
        ("a = = 1", 5, "expected a value, found `=`"),
        ("= 1", 1, "expected a value, found `=`"),
        ("a == 1", 4, "expected a value, found `=`"),
        ("a = 1 b = 2", 7, "expected AND, OR or the end, found `b`"),
        ("a = 1;", 6, "expected AND, OR or the end, found `;`"),
        ("a = 1 AND", 10, "expected a value, found the end"),
        ("AND a = 1", 1, "not the keyword AND; as a name it is written [AND]"),
        ("a = 1 AND OR b = 2", 11, "keyword OR"),
        ("(a = 1", 7, "expected `)`, found the end"),
        ("a = 1)", 6, "expected AND, OR or the end, found `)`"),
        ("()", 2, "expected a value, found `)`"),
        ("a = 'x", 5, "this string never ends"),
        ("[a = 1", 1, "this name never ends: `]` is missing"),
        ("\"a = 1", 1, "this name never ends"),
        ("[] = 1", 1, "a name must not be empty"),
        ("a = 1 = 1", 7, "comparisons cannot be chained"),
        ("1 < a < 5", 7, "comparisons cannot be chained"),
        ("a & b", 3, "`&` has no meaning here"),
        ("a = 1 # x", 7, "`#` has no meaning here"),
        ("a ! = 1", 3, "`!` has no meaning here"),
        ("é = ß ?", 7, "`?` has no meaning here"),
        ("_a = 1", 1, "`_` has no meaning here"),
        ("a IN", 5, "expected `(` and a list, found the end"),
        ("a IN ()", 7, "expected a value, found `)`"),
        ("a IN (1, )", 10, "expected a value, found `)`"),
        ("a IN (1 2)", 9, "expected `,` or `)`, found 2"),
        ("a IN 1", 6, "expected `(` and a list, found 1"),
        ("a NOT 1", 7, "expected IN or LIKE, found 1"),
        ("a NOT = 1", 7, "expected IN or LIKE, found `=`"),
        ("a IS 1", 6, "expected NULL or NOT NULL, found 1"),
        ("a IS NOT 1", 10, "expected NULL, found 1"),
        ("1 IS NULL", 1, "IS NULL is asked of a property"),
        ("a + 1 IS NULL", 1, "IS NULL is asked of a property"),
        ("EXISTS a", 8, "expected `(`, found `a`"),
        ("EXISTS(1)", 7, "EXISTS is asked of a property"),
        ("EXISTS(a", 9, "expected `)`, found the end"),
        ("a LIKE 1", 8, "a LIKE pattern is a string, not a number"),
        ("a LIKE 'x!' ESCAPE '!'", 8, "ends with the escape character"),
        ("a LIKE 'x' ESCAPE ''", 12, "a string of one character"),
        ("a LIKE 'x' ESCAPE 'ab'", 12, "a string of one character"),
        ("a LIKE 'x' ESCAPE 1", 12, "a string of one character"),
        ("a LIKE 'x' ESCAPE", 18, "expected a value, found the end"),
    ]);
}

#[test]
fn wrong_kinds_and_names() {
    refuse_filters(&[
        ("1", 1, "a condition is expected here, not a value"),
        ("'x'", 1, "a condition is expected here, not a value"),
        ("a + 1", 1, "a condition is expected here, not a value"),
        ("a = 1 AND 2", 11, "a condition is expected here, not a value"),
        ("'x' OR a = 1", 1, "a condition is expected here, not a value"),
        ("NOT 1", 5, "a condition is expected here, not a value"),
        ("(a = 1) = TRUE", 1, "a value is expected here, not a condition"),
        ("a = (b = 1)", 5, "a value is expected here, not a condition"),
        ("1 + (a = 1) = 2", 5, "a value is expected here, not a condition"),
        ("(a = 1) + 1 = 2", 1, "a value is expected here, not a condition"),
        ("sys.Nothing = 1", 5, "there is no system property `Nothing`; there are MessageId, CorrelationId"),
        ("data.env = 1", 1, "there is no scope `data`; there are sys and user"),
        ("sys. = 1", 6, "expected the name of a property, found `=`"),
        ("user.'a' = 1", 6, "expected the name of a property, found the string 'a'"),
        ("upper(a) = 'X'", 1, "there is no function `upper`"),
        ("newid(1) = 1", 7, "expected `)`, found 1"),
        ("p() = 1", 3, "expected a value, found `)`"),
        ("a = @", 5, "must be followed by the name of a parameter"),
        ("a = @p", 5, "the parameter `@p` is not given"),
        ("a = 9223372036854775808", 5, "does not fit 64 bits"),
        ("a = -9223372036854775809", 6, "does not fit 64 bits"),
        ("a = 1e999", 5, "too large for a double"),
        ("a = 1.", 7, "digits must follow the decimal point"),
        ("a = 1e", 7, "digits must follow the exponent"),
        ("a = 12abc", 7, "must not run into a name"),
        ("a = .5", 5, "expected a value, found `.`"),
    ]);
}

#[test]
fn actions() {
    refuse_actions(&[
        ("", 1, "the action is empty"),
        (" ; ;", 5, "the action is empty"),
        ("a = 1", 1, "expected SET or REMOVE, found `a`"),
        ("SET", 4, "expected a value, found the end"),
        ("SET a", 6, "expected `=`, found the end"),
        ("SET a =", 8, "expected a value, found the end"),
        ("SET 1 = 1", 5, "the name of a property is expected here"),
        ("SET p('a') = 1", 5, "the name of a property is expected here"),
        ("SET a = 1, b = 2", 10, "expected SET or REMOVE, found `,`"),
        ("SET a = (b = 1)", 9, "a value is expected here, not a condition"),
        ("SET a = b = 1", 11, "expected SET or REMOVE, found `=`"),
        ("SET a = SET b = 1", 9, "keyword SET"),
        ("REMOVE", 7, "expected a value, found the end"),
        ("REMOVE a b", 10, "expected SET or REMOVE, found `b`"),
        ("REMOVE sys.MessageId", 8, "every message has one"),
        ("SET sys.SequenceNumber = 1", 5, "sys.SequenceNumber is the broker's own"),
        ("SET sys.EnqueuedTimeUtc = 'x'", 5, "the broker's own"),
        ("REMOVE sys.DeliveryCount", 8, "the broker's own"),
        ("SET sys.Foo = 1", 9, "there is no system property `Foo`"),
        ("DELETE a", 1, "expected SET or REMOVE, found `DELETE`"),
    ]);
}

#[test]
fn length() {
    let of = |chars: usize| format!("a = '{}'", "é".repeat(chars - 6));
    assert!(SqlFilter::parse(&of(MAX_SQL_CHARS - 1)).is_ok());
    assert!(SqlFilter::parse(&of(MAX_SQL_CHARS)).is_ok());
    refuse_filters(&[(&of(MAX_SQL_CHARS + 1), MAX_SQL_CHARS + 1, "longer than 1024 characters")]);
    let of = |chars: usize| format!("SET a = '{}'", "é".repeat(chars - 10));
    assert!(SqlAction::parse(&of(MAX_SQL_CHARS)).is_ok());
    refuse_actions(&[(&of(MAX_SQL_CHARS + 1), MAX_SQL_CHARS + 1, "longer than 1024 characters")]);
    let of = |chars: usize| format!("[{}] = 1", "n".repeat(chars));
    assert!(SqlFilter::parse(&of(MAX_NAME_CHARS)).is_ok());
    refuse_filters(&[(&of(MAX_NAME_CHARS + 1), 1, "longer than 128 characters")]);
}

#[test]
fn depth() {
    let parens = |depth: usize| format!("{}a = 1{}", "(".repeat(depth), ")".repeat(depth));
    assert!(SqlFilter::parse(&parens(MAX_SQL_DEPTH - 1)).is_ok());
    assert!(SqlFilter::parse(&parens(MAX_SQL_DEPTH)).is_ok());
    let deepest = MAX_SQL_DEPTH + 2;
    refuse_filters(&[(&parens(MAX_SQL_DEPTH + 1), deepest, "nested deeper than 32 levels")]);
    refuse_filters(&[(&"(".repeat(1_000), deepest, "nested deeper than 32 levels")]);
    refuse_filters(&[(&format!("{}a", "NOT ".repeat(200)), 4 * deepest - 3, "nested deeper than 32 levels")]);
    refuse_filters(&[(&format!("a = {}b", "- ".repeat(400)), 4 + 2 * deepest - 1, "nested deeper than 32 levels")]);
    // Long, but not deep.
    assert!(SqlFilter::parse(&format!("a = 1{}", "+1".repeat(500))).is_ok());
    assert!(SqlFilter::parse(&format!("a{}", " OR a".repeat(200))).is_ok());
}
