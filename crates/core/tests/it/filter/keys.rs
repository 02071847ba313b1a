use tidings_core::filter::limits::MAX_KEY_BYTES;
use tidings_core::filter::{Filter, KeyError, KeyIndex, KeyPattern, Properties};

/// A pattern, a key, the answer: asked of the pattern, of a filter, and of an index in which it stands among others.
#[track_caller]
fn check(pattern: &str, key: &str, expected: bool) {
    let parsed = KeyPattern::parse(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
    assert_eq!(parsed.matches(key), expected, "{pattern:?} on {key:?}");
    let view = Properties { key: Some(key.to_owned()), ..Properties::default() };
    assert_eq!(Filter::Key(parsed.clone()).matches(&view), expected);
    let mut index = KeyIndex::new();
    for (id, text) in ["#", "a.*", "a.#.b", "*.*", "a.b.c", "#.c.#", ""].iter().enumerate() {
        index.insert(id + 1, &KeyPattern::parse(text).unwrap());
    }
    index.insert(0, &parsed);
    assert_eq!(index.matches(key).contains(&&0), expected, "{pattern:?} on {key:?}, indexed");
    assert!(index.remove(&0) && !index.remove(&0));
    assert!(!index.matches(key).contains(&&0));
}

// S003-76
#[test]
fn words() {
    let rows = [
        ("servicerequest.status.changed", "servicerequest.status.changed", true),
        ("servicerequest.status.changed", "servicerequest.status", false),
        ("servicerequest.status.changed", "servicerequest.status.changed.twice", false),
        ("servicerequest.status.changed", "Servicerequest.status.changed", false),
        ("servicerequest.*.changed", "servicerequest.status.changed", true),
        ("servicerequest.*.changed", "servicerequest.changed", false),
        ("servicerequest.*.changed", "servicerequest.a.b.changed", false),
        ("audit.#", "audit.action.occurred", true),
        ("audit.#", "audit", true),
        ("audit.#", "audits", false),
        ("audit.*", "audit", false),
        ("audit.*", "audit.action", true),
        ("audit.*", "audit.action.occurred", false),
        ("*", "a", true),
        ("*", "a.b", false),
        ("*", "", false),
        ("*.*", "a.b", true),
        ("*.*", "a", false),
        ("*.*", "a.b.c", false),
        ("#", "", true),
        ("#", "a", true),
        ("#", "a.b.c.d", true),
        ("#.#", "", true),
        ("#.#", "a", true),
        ("#.*", "", false),
        ("#.*", "a", true),
        ("#.*", "a.b", true),
        ("*.#", "", false),
        ("*.#", "a.b.c", true),
        ("*.#.*", "a", false),
        ("*.#.*", "a.b", true),
        ("#.a", "a", true),
        ("#.a", "b.a", true),
        ("#.a", "a.b", false),
        ("#.a", "a.a", true),
        ("#.a.#", "b.a.c", true),
        ("#.a.#", "a", true),
        ("#.a.#", "b.c", false),
        ("a.#.b", "a.b", true),
        ("a.#.b", "a.x.b", true),
        ("a.#.b", "a.x.y.b", true),
        ("a.#.b", "a.b.x", false),
        ("a.#.b", "a.b.b", true),
        ("a.#.b", "b", false),
        ("a.#.b", "ab", false),
        ("a.#.b.#.c", "a.b.c", true),
        ("a.#.b.#.c", "a.c.b.c", true),
        ("a.#.b.#.c", "a.c.b", false),
        ("#.a.*.b.#", "x.a.a.b.b.y", true),
        ("#.a.*.b.#", "x.a.a.a.y", false),
        ("a.*.#.b", "a.b", false),
        ("a.*.#.b", "a.x.b", true),
    ];
    rows.iter().for_each(|(pattern, key, expected)| check(pattern, key, *expected));
}

/// The empty key has no word; between two dots, before the first and after the last, there is one.
#[test]
fn empty_words() {
    let rows = [
        ("", "", true),
        ("", "a", false),
        ("", ".", false),
        (".", ".", true),
        ("*.*", ".", true),
        ("*", ".", false),
        ("#", ".", true),
        ("a.", "a.", true),
        ("a.", "a", false),
        ("a.*", "a.", true),
        ("a.#", "a.", true),
        (".a", ".a", true),
        ("*.a", ".a", true),
        ("a..b", "a..b", true),
        ("a..b", "a.b", false),
        ("a.*.b", "a..b", true),
        ("a.#.b", "a..b", true),
        ("*.*.*", "..", true),
    ];
    rows.iter().for_each(|(pattern, key, expected)| check(pattern, key, *expected));
}

#[test]
fn refused() {
    for (pattern, at, word) in
        [("a*", 1, "a*"), ("a.b#.c", 2, "b#"), ("**", 1, "**"), ("a.*#", 2, "*#"), ("##", 1, "##")]
    {
        let error = KeyPattern::parse(pattern).unwrap_err();
        assert_eq!(error, KeyError::PartOfWord { at, word: word.to_owned() });
        assert!(error.to_string().contains("must stand alone between dots"));
    }
    assert!(KeyPattern::parse(&"a".repeat(MAX_KEY_BYTES - 1)).is_ok());
    assert!(KeyPattern::parse(&"a".repeat(MAX_KEY_BYTES)).is_ok());
    assert_eq!(KeyPattern::parse(&"a".repeat(MAX_KEY_BYTES + 1)), Err(KeyError::TooLong));
}

#[test]
fn a_message_without_a_key() {
    assert!(!Filter::Key(KeyPattern::parse("#").unwrap()).matches(&Properties::default()));
}

/// What would be tried in exponentially many ways.
#[test]
fn no_blow_up() {
    let pattern = KeyPattern::parse(&format!("{}z", "#.a.".repeat(60))).unwrap();
    let key = "a.".repeat(5_000) + "b";
    assert!(!pattern.matches(&key));
    let mut index = KeyIndex::new();
    index.insert(1, &pattern);
    index.insert(2, &KeyPattern::parse(&format!("{}b", "#.*.".repeat(60))).unwrap());
    assert_eq!(index.matches(&key), [&2]);
}

#[test]
fn many() {
    let mut index = KeyIndex::new();
    for i in 0..20_000 {
        index.insert(i, &KeyPattern::parse(&format!("tenant{}.*.changed.#", i / 2)).unwrap());
    }
    assert_eq!(index.len(), 20_000);
    assert_eq!(index.matches("tenant7.order.changed"), [&14, &15]);
    index.insert(14, &KeyPattern::parse("#").unwrap());
    assert_eq!(index.matches("tenant7.order.changed.twice"), [&14, &15]);
    assert_eq!(index.matches("else"), [&14]);
    (0..20_000).for_each(|id| assert!(index.remove(&id)));
    assert!(index.is_empty() && index.matches("tenant7.order.changed").is_empty());
}
