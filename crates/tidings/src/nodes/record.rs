//! Nodes and leases as they are stored.

use std::sync::LazyLock;

use tidings_store::{Condition, Item, Key, KeyKind, Table, Write};

/// Who is there, and who has what.
#[must_use]
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> =
        LazyLock::new(|| Table::new("tidings-nodes", "kind", KeyKind::S).sort("name", KeyKind::S));
    &TABLE
}

pub const NODE: &str = "node";
pub const LEASE: &str = "lease";

/// Who has something, and for the how-manieth time it has been given away.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lease {
    pub owner: Option<String>,
    pub epoch: u64,
}

impl Lease {
    #[must_use]
    pub fn read(item: &Item) -> Self {
        Self { owner: item.str("owner").map(ToOwned::to_owned), epoch: number(item, "epoch") }
    }

    /// The write that gives it to `owner`, if it is still as it was read.
    #[must_use]
    pub fn taking(name: &str, before: Option<&Self>, owner: &str, epoch: u64) -> Write {
        let item = table().key_item(&key(name)).with("owner", owner).with("epoch", signed(epoch));
        let unchanged = match before {
            None => Condition::NotExists,
            Some(before) => Condition::All(vec![
                Condition::Equals("epoch".into(), signed(before.epoch).into()),
                match &before.owner {
                    Some(owner) => Condition::Equals("owner".into(), owner.clone().into()),
                    None => Condition::LacksAttribute("owner".into()),
                },
            ]),
        };
        Write::put(table(), item).when(unchanged)
    }

    /// What holds while `owner` has it in this epoch.
    #[must_use]
    pub fn held(owner: &str, epoch: u64) -> Condition {
        Condition::All(vec![
            Condition::Equals("owner".into(), owner.into()),
            Condition::Equals("epoch".into(), signed(epoch).into()),
        ])
    }
}

#[must_use]
pub fn key(lease: &str) -> Key {
    Key::with_sort(LEASE, lease)
}

#[must_use]
pub fn node_key(id: &str) -> Key {
    Key::with_sort(NODE, id)
}

#[must_use]
pub fn number(item: &Item, name: &str) -> u64 {
    item.int(name).and_then(|n| u64::try_from(n).ok()).unwrap_or(0)
}

#[must_use]
pub fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
