//! Counters that several parts of one transaction change: an item may be written only once in it.

use tidings_store::{Change, Write};

use crate::bus;
use crate::messages::counters;

/// Makes one write of those that count in the same item. The first stays where it is; gives the places of those that
/// went, as they were.
pub fn join(writes: &mut Vec<Write>) -> Vec<usize> {
    let mut gone = Vec::new();
    // Most transactions change nothing that was there before.
    if !writes.iter().any(|write| matches!(write, Write::Update { .. })) {
        return gone;
    }
    let mut place = 0;
    while let Some(write) = writes.get(place) {
        let Some(first) = writes.iter().take(place).position(|earlier| count_alike(earlier, write)) else {
            place += 1;
            continue;
        };
        if let (Write::Update { changes: more, .. }, Some(Write::Update { changes, .. })) =
            (writes.remove(place), writes.get_mut(first))
        {
            more.into_iter().for_each(|change| add(changes, change));
        }
        gone.push(place + gone.len());
    }
    gone
}

/// Whether both count, in the same item.
fn count_alike(one: &Write, other: &Write) -> bool {
    let (Write::Update { table, key, .. }, Write::Update { table: same, key: known, .. }) = (one, other) else {
        return false;
    };
    let counts = [bus::layout::table(), counters::table()].iter().any(|counted| counted.name() == table.name());
    counts && key == known && table.name() == same.name()
}

fn add(changes: &mut Vec<Change>, change: Change) {
    for known in changes.iter_mut() {
        match (known, &change) {
            (Change::Add(name, sum), Change::Add(same, by)) if name == same => {
                *sum += by;
                return;
            }
            // How long a counter lives: each of them would do.
            (Change::Set(name, value), Change::Set(same, new)) if name == same => {
                value.clone_from(new);
                return;
            }
            _ => {}
        }
    }
    changes.push(change);
}

#[cfg(test)]
mod tests {
    use tidings_store::Key;

    use super::*;
    use crate::bus::layout::{Delta, count, counts_key, table, trash};

    #[test]
    fn counts_of_one_entity_become_one_write() {
        let delta = |waiting| Delta { waiting, incoming: 1, ..Delta::default() };
        let one = count("e", [("g", delta(1))]).unwrap();
        let two = count("e", [("g", delta(2)), ("h", delta(1))]).unwrap();
        let other = count("f", [("g", delta(1))]).unwrap();
        let mut writes = vec![trash("x"), one.clone(), other.clone(), two, trash("y"), one];
        assert_eq!(join(&mut writes), [3, 5]);
        let joined = Write::update(
            table(),
            counts_key("e"),
            [("g.waiting", 4), ("g.incoming", 3), ("h.waiting", 1), ("h.incoming", 1)]
                .map(|(name, by)| Change::Add(name.into(), by))
                .into(),
        );
        assert_eq!(writes, [trash("x"), joined, other, trash("y")]);
    }

    #[test]
    fn counts_of_messages_become_one_write() {
        let count = |name: &'static str, by, ttl: i64| {
            let changes = vec![Change::Add(name.into(), by), Change::Set("ttl".into(), ttl.into())];
            Write::update(counters::table(), Key::with_sort("states#dev", "2026-03-01#1"), changes)
        };
        let mut writes = vec![count("created", 1, 7), count("failed", 1, 9), count("created", 2, 9)];
        assert_eq!(join(&mut writes), [1, 2]);
        let Write::Update { changes, .. } = &writes[0] else { panic!("{writes:?}") };
        assert_eq!(
            changes,
            &[Change::Add("created".into(), 3), Change::Set("ttl".into(), 9.into()), Change::Add("failed".into(), 1)]
        );
    }
}
