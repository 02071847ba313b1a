//! The first question about an event: whether its type lets any rule match. Most rules name the types they are about, and
//! most events are of none of them; those need no walk.
//!
//! What is kept is a count for each type and each start of one that rules name, so it changes in place and does not grow
//! with the number of rules.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::compile::Compiled;
use super::predicate::{Field, Test};

/// The field that is asked about: every event has it, and in it one text.
pub(super) const ASKED: &str = "eventType";

#[derive(Debug, Clone, Default)]
pub(super) struct Sieve {
    /// Rules that may match an event of any type.
    open: usize,
    whole: FxHashMap<Box<str>, usize>,
    starts: FxHashMap<Box<str>, usize>,
    /// The lengths of `starts`.
    lengths: BTreeMap<usize, usize>,
}

impl Sieve {
    pub(super) fn add(&mut self, pattern: &Compiled) {
        let Some(fields) = fields(pattern) else {
            self.open += 1;
            return;
        };
        for field in fields {
            for text in &field.texts {
                *self.whole.entry(text.clone()).or_default() += 1;
            }
            for start in starts(field) {
                *self.starts.entry(start.into()).or_default() += 1;
                *self.lengths.entry(start.len()).or_default() += 1;
            }
        }
    }

    /// Takes back what [`Sieve::add`] did for the same pattern.
    pub(super) fn remove(&mut self, pattern: &Compiled) {
        let Some(fields) = fields(pattern) else {
            self.open -= 1;
            return;
        };
        for field in fields {
            for text in &field.texts {
                if fewer(self.whole.get_mut(text)) {
                    self.whole.remove(text);
                }
            }
            for start in starts(field) {
                if fewer(self.starts.get_mut(start)) {
                    self.starts.remove(start);
                }
                if fewer(self.lengths.get_mut(&start.len())) {
                    self.lengths.remove(&start.len());
                }
            }
        }
    }

    /// Whether a rule may match an event of this type. If not, none does.
    pub(super) fn passes(&self, event_type: &str) -> bool {
        let mut lengths = self.lengths.keys();
        self.open > 0
            || self.whole.contains_key(event_type)
            || lengths.any(|&length| event_type.get(..length).is_some_and(|start| self.starts.contains_key(start)))
    }
}

/// Of each combination a field that only a type it names satisfies; `None` if one of them has no such field.
fn fields(pattern: &Compiled) -> Option<Vec<&Field>> {
    let mut found = Vec::new();
    let has_none = pattern.any(|fields| {
        let asking = fields.filter_map(|field| pattern.fields.get(field)).find(|field| names_types(field));
        found.extend(asking);
        asking.is_none()
    });
    (!has_none).then_some(found)
}

/// Whether nothing but a text that it names, or the start of one, satisfies a field.
fn names_types(field: &Field) -> bool {
    let other = field.null || field.yes || field.no || field.present || field.absent || field.changed.is_some();
    let is_asked = matches!(&*field.path, [name] if **name == *ASKED);
    is_asked && !other && field.numbers.is_empty() && field.tests.iter().all(|test| matches!(test, Test::Prefix(_)))
}

fn starts(field: &Field) -> impl Iterator<Item = &str> {
    field.tests.iter().filter_map(|test| match test {
        Test::Prefix(start) => Some(&**start),
        _ => None,
    })
}

/// Counts one less; says whether nothing is left.
fn fewer(count: Option<&mut usize>) -> bool {
    count.is_some_and(|count| {
        *count -= 1;
        *count == 0
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Pattern, RuleSet};

    fn set(patterns: &[&str]) -> RuleSet<usize> {
        let mut set = RuleSet::new();
        for (place, pattern) in patterns.iter().enumerate() {
            set.insert(place, &Pattern::parse(pattern).unwrap());
        }
        set
    }

    #[test]
    fn only_types_that_rules_name_pass() {
        let set = set(&[
            r#"{"eventType":["a.b", {"prefix":"c."}, {"prefix":"ü"}], "source":["x"]}"#,
            r#"{"$or":[{"eventType":["d"]}, {"eventType":["e"], "data":{"n":[1]}}]}"#,
        ]);
        for (event_type, passes) in [
            ("a.b", true),
            ("a.bc", false),
            ("a", false),
            ("c.", true),
            ("c.d", true),
            ("c", false),
            ("üx", true),
            ("ö", false),
            ("d", true),
            ("e", true),
            ("f", false),
        ] {
            assert_eq!(set.may_match(event_type), passes, "{event_type}");
        }
        assert!(!RuleSet::<usize>::new().may_match("a"));
    }

    #[test]
    fn a_rule_that_may_be_about_any_type_lets_all_pass() {
        for pattern in [
            r#"{"source":["x"]}"#,
            r#"{"data":{"eventType":["x"]}}"#,
            r#"{"eventType":[{"exists":true}]}"#,
            r#"{"eventType":[{"exists":false}]}"#,
            r#"{"eventType":["x", {"suffix":"y"}]}"#,
            r#"{"eventType":[{"anything-but":["x"]}]}"#,
            r#"{"eventType":[{"wildcard":"x*"}]}"#,
            r#"{"eventType":[{"equals-ignore-case":"x"}]}"#,
            r#"{"eventType":["x", null]}"#,
            r#"{"eventType":["x", 7]}"#,
            r#"{"$or":[{"eventType":["x"]}, {"source":["x"]}]}"#,
        ] {
            assert!(set(&[pattern]).may_match("whatever"), "{pattern}");
        }
        // Where one of two lists names types, nothing else satisfies both.
        assert!(!set(&[r#"{"eventType":["x"], "$or":[{"eventType":[{"exists":true}]}, {"a":[1]}]}"#]).may_match("y"));
    }

    #[test]
    fn what_is_taken_out_no_longer_counts() {
        let patterns = [
            r#"{"eventType":["a", {"prefix":"b."}]}"#,
            r#"{"eventType":["a"]}"#,
            r#"{"eventType":[{"prefix":"c."}]}"#,
            r#"{"source":["x"]}"#,
        ];
        let mut set = set(&patterns);
        let passing = |set: &RuleSet<usize>| ["a", "b.", "c.", "d"].map(|event_type| set.may_match(event_type));
        assert_eq!(passing(&set), [true; 4]);
        set.remove(&3);
        assert_eq!(passing(&set), [true, true, true, false]);
        set.remove(&0);
        assert_eq!(passing(&set), [true, false, true, false]);
        // In place of another, and gone for good.
        set.insert(1, &Pattern::parse(patterns[2]).unwrap());
        assert_eq!(passing(&set), [false, false, true, false]);
        set.remove(&2);
        assert_eq!(passing(&set), [false, false, true, false]);
        set.remove(&1);
        assert!(!set.remove(&1));
        assert_eq!(passing(&set), [false; 4]);
    }
}
