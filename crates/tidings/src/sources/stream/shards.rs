//! Which shards of a stream may be read: parents before their children. Reads nothing but its arguments.

use std::cmp::Ordering;
use std::collections::BTreeMap;

/// A shard as the stream describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shard {
    pub id: String,
    pub parent: Option<String>,
    /// The number of its first record.
    pub first: Option<String>,
    /// Whether nothing will be added to it.
    pub closed: bool,
}

/// Where a shard stands among the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// It can be read: its parent is read to its end, or gone.
    Ready,
    /// Its parent comes first.
    Waiting,
    Finished,
}

/// The shards of a stream, by id.
pub type Shards = BTreeMap<String, Shard>;

pub fn place(shard: &Shard, all: &Shards, finished: impl Fn(&str) -> bool) -> Place {
    if finished(&shard.id) {
        return Place::Finished;
    }
    // A shard that names itself as its parent would wait for ever.
    let parent = shard.parent.as_ref().filter(|parent| **parent != shard.id);
    match parent.filter(|parent| all.contains_key(*parent)) {
        Some(parent) if !finished(parent) => Place::Waiting,
        _ => Place::Ready,
    }
}

/// Sequence numbers are numbers of 21 to 40 digits: as text, 9 would come after 10. `None`: they are none.
#[must_use]
pub fn compare(a: &str, b: &str) -> Option<Ordering> {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !number(a) || !number(b) {
        return None;
    }
    let (a, b) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
    Some(a.len().cmp(&b.len()).then_with(|| a.cmp(b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shards(list: &[(&str, Option<&str>)]) -> Shards {
        let shard = |(id, parent): &(&str, Option<&str>)| Shard {
            id: (*id).to_owned(),
            parent: parent.map(ToOwned::to_owned),
            ..Shard::default()
        };
        list.iter().map(|entry| (entry.0.to_owned(), shard(entry))).collect()
    }

    fn ready(all: &Shards, finished: &[&str]) -> Vec<String> {
        let done = |id: &str| finished.contains(&id);
        all.values().filter(|s| place(s, all, done) == Place::Ready).map(|s| s.id.clone()).collect()
    }

    #[test]
    fn children_come_after_their_parents() {
        let all = shards(&[("a", None), ("b", Some("a")), ("c", Some("a")), ("d", Some("b")), ("x", Some("gone"))]);
        assert_eq!(ready(&all, &[]), ["a", "x"]);
        assert_eq!(ready(&all, &["a"]), ["b", "c", "x"]);
        assert_eq!(ready(&all, &["a", "b", "x"]), ["c", "d"]);
        assert_eq!(ready(&all, &["a", "b", "c", "d", "x"]), Vec::<String>::new());
        assert_eq!(ready(&shards(&[("self", Some("self"))]), &[]), ["self"]);
    }

    #[test]
    fn sequence_numbers_are_numbers() {
        use Ordering::{Equal, Greater, Less};
        let long = "4421584500000000017450439091";
        for (a, b, order) in [
            ("9", "10", Some(Less)),
            (long, "999999999999999999999", Some(Greater)),
            ("0009", "9", Some(Equal)),
            ("000", "0", Some(Equal)),
            ("12x", "9", None),
            ("", "1", None),
        ] {
            assert_eq!(compare(a, b), order, "{a} {b}");
        }
    }
}
