//! Any text as an SQL filter, as an action, as a LIKE pattern: refused or understood, never a panic; and what a filter
//! says does not depend on how it is spaced.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tidings_core::filter::{Like, Properties, SqlAction, SqlFilter, System, Value};

static MESSAGE: LazyLock<Properties> = LazyLock::new(|| Properties {
    system: [(System::Subject, Value::text("label")), (System::MessageId, Value::text("m"))].into(),
    user: [
        ("a".to_owned(), Value::text("a%_b")),
        ("b".to_owned(), Value::Integer(i64::MAX)),
        ("c".to_owned(), Value::Float(0.5)),
        ("d".to_owned(), Value::Bool(true)),
        ("e".to_owned(), Value::Null),
    ]
    .into(),
    ..Properties::default()
});

fuzz_target!(|text: &str| {
    if let Ok(filter) = SqlFilter::parse(text) {
        let answer = filter.evaluate(&*MESSAGE);
        if let Ok(again) = SqlFilter::parse(&format!(" {text}\n")) {
            assert_eq!(again.evaluate(&*MESSAGE), answer);
        }
        // Neither a thing nor its opposite can both be so.
        if let Ok(opposite) = SqlFilter::parse(&format!("NOT ({text})")) {
            assert!(!(opposite.matches(&*MESSAGE) && filter.matches(&*MESSAGE)));
        }
    }
    if let Ok(action) = SqlAction::parse(text) {
        let _ = action.apply(&mut MESSAGE.clone());
    }
    let (pattern, on) = text.split_once('\n').unwrap_or((text, text));
    for escape in [None, Some('!')] {
        if let Ok(like) = Like::parse(pattern, escape) {
            let answer = like.matches(on);
            if on.chars().count() <= 12 && pattern.chars().count() <= 12 {
                let (pattern, on): (Vec<char>, Vec<char>) = (pattern.chars().collect(), on.chars().collect());
                assert_eq!(answer, plain(&pattern, &on, escape));
            }
        }
    }
});

/// LIKE by its definition, trying everything.
fn plain(pattern: &[char], text: &[char], escape: Option<char>) -> bool {
    match pattern {
        [] => text.is_empty(),
        [c, next, rest @ ..] if Some(*c) == escape => text.first() == Some(next) && plain(rest, &text[1..], escape),
        ['%', rest @ ..] => (0..=text.len()).any(|skip| plain(rest, &text[skip..], escape)),
        ['_', rest @ ..] => !text.is_empty() && plain(rest, &text[1..], escape),
        [c, rest @ ..] => text.first() == Some(c) && plain(rest, &text[1..], escape),
    }
}
