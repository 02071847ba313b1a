//! Any text as a pattern: it is refused or compiled, never a panic; and what is compiled answers the same in every way.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidings_core::pattern::{Pattern, RuleSet, Scratch};

const EVENTS: [&str; 4] = [
    r#"{}"#,
    r#"{"a":"x","b":[1,2.5,null,true,"10.0.0.1"],"c":{"d":"abc","e":[{"f":1,"g":2},{"f":2,"g":1}]}}"#,
    r#"{"old":{"x":1,"y":{"S":"a"}},"new":{"x":1.0,"y":{"S":"b"}},"a":{"a":{"a":{"a":"a"}}}}"#,
    r#"{"eventName":"MODIFY","dynamodb":{"NewImage":{"n":{"N":"1"}},"OldImage":{"n":{"N":"2"}}}}"#,
];

fuzz_target!(|text: &str| {
    let Ok(pattern) = Pattern::parse(text) else { return };
    let mut rules = RuleSet::new();
    rules.insert(1, &pattern);
    for event in EVENTS {
        let tree = serde_json::from_str(event).expect("the events above are JSON");
        let expected = pattern.naive_matches(&tree);
        assert_eq!(pattern.matches(event), Ok(expected));
        assert_eq!(rules.matches(event, &mut Scratch::new()).map(|ids| !ids.is_empty()), Ok(expected));
    }
    assert!(rules.remove(&1));
});
