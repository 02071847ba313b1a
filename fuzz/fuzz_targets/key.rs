//! Lines of text as key patterns, the first line as the key: one pattern and the index of all of them agree, and agree
//! with the definition.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidings_core::filter::{KeyIndex, KeyPattern};

fuzz_target!(|text: &str| {
    let (key, patterns) = text.split_once('\n').unwrap_or((text, text));
    let patterns: Vec<(&str, KeyPattern)> =
        patterns.split('\n').filter_map(|line| Some((line, KeyPattern::parse(line).ok()?))).collect();
    let mut index = KeyIndex::new();
    patterns.iter().enumerate().for_each(|(id, (_, pattern))| index.insert(id, pattern));
    let found: Vec<usize> = index.matches(key).into_iter().copied().collect();
    let expected: Vec<usize> =
        (0..patterns.len()).filter(|id| patterns[*id].1.matches(key)).collect();
    assert_eq!(found, expected);
    for (text, pattern) in &patterns {
        let (parts, words) = (split(text), split(key));
        if parts.len() <= 8 && words.len() <= 8 {
            assert_eq!(pattern.matches(key), plain(&parts, &words));
        }
    }
    (0..patterns.len()).for_each(|id| assert!(index.remove(&id)));
    assert!(index.matches(key).is_empty());
});

fn split(key: &str) -> Vec<&str> {
    if key.is_empty() { Vec::new() } else { key.split('.').collect() }
}

fn plain(pattern: &[&str], words: &[&str]) -> bool {
    match pattern {
        [] => words.is_empty(),
        ["#", rest @ ..] => (0..=words.len()).any(|skip| plain(rest, &words[skip..])),
        ["*", rest @ ..] => !words.is_empty() && plain(rest, &words[1..]),
        [word, rest @ ..] => words.first() == Some(word) && plain(rest, &words[1..]),
    }
}
