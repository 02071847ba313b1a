//! Any text as an event: never a panic; and what a strict reader takes for an object is answered as it answers.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use tidings_core::pattern::limits::MAX_DEPTH;
use tidings_core::pattern::{Pattern, RuleSet, Scratch};

const PATTERNS: [&str; 8] = [
    r#"{"a":["x",1,null,true,{"prefix":"p"},{"exists":false}]}"#,
    r#"{"a":{"b":[1],"c":[{"anything-but":["x",2]}]}}"#,
    r#"{"a":{"b":[{"numeric":[">",0,"<=",5]}],"a":{"b":[{"exists":true}]}}}"#,
    r#"{"b":[{"wildcard":"*a*b*"},{"suffix":"z"},{"cidr":"10.0.0.0/8"},{"cidr":"::/0"}]}"#,
    r#"{"$or":[{"a":[{"equals-ignore-case":"É"}]},{"b":[3e2],"c":[{"exists":false}]}]}"#,
    r#"{"new":{"a":[{"changed":true}]}}"#,
    r#"{"a":[{"prefix":{"equals-ignore-case":"ab"}}],"b":[9007199254740993]}"#,
    r#"{"c":[{"exists":true}],"a":{"b":[{"suffix":{"equals-ignore-case":"B"}}],"c":["x"]}}"#,
];

static RULES: LazyLock<(Vec<Pattern>, RuleSet<usize>)> = LazyLock::new(|| {
    let patterns: Vec<Pattern> = PATTERNS.iter().map(|text| Pattern::parse(text).expect("a pattern")).collect();
    let mut rules = RuleSet::new();
    patterns.iter().enumerate().for_each(|(id, pattern)| rules.insert(id, pattern));
    (patterns, rules)
});

fuzz_target!(|text: &str| {
    let (patterns, rules) = &*RULES;
    let found = rules.matches(text, &mut Scratch::new());
    // What may be deeper than our limit is refused, while the strict reader allows twice that.
    let shallow = text.bytes().filter(|byte| matches!(byte, b'{' | b'[')).count() <= MAX_DEPTH;
    let tree = serde_json::from_str::<Value>(text).ok().filter(|_| shallow);
    for (id, pattern) in patterns.iter().enumerate() {
        let alone = pattern.matches(text);
        let Some(tree) = &tree else { continue };
        if !tree.is_object() {
            assert!(alone.is_err() && found.is_err());
            continue;
        }
        let expected = pattern.naive_matches(tree);
        assert_eq!(alone, Ok(expected));
        assert_eq!(found.as_ref().map(|ids| ids.contains(&&id)), Ok(expected));
    }
});
