//! The notification map: which users hear of a product, by support group (S001-42 to S001-50).

use std::collections::BTreeSet;

use tidings_store::{Error, Item, Key, Query, Store, Value};

use super::record::{MAP, table};

/// Entries of one product read at a time.
const PAGE: usize = 100;

/// The key of the entry of a product and a support group. Neither has a `#` in it.
#[must_use]
pub fn key(product: &str, group: &str) -> Key {
    Key::with_sort(MAP, format!("{product}#{group}"))
}

/// The item that names the users of a product's support group.
#[must_use]
pub fn item(product: &str, group: &str, users: &[String]) -> Item {
    Item::new()
        .with("cod_chav_patc", MAP)
        .with("cod_ordenar_chav", format!("{product}#{group}"))
        .with("userlist", users.iter().map(Value::from).collect::<Vec<_>>())
}

/// One page of a product's entries: the support group and its users. `app1` never finds `app10` (S001-47).
pub async fn page(
    store: &dyn Store,
    product: &str,
    after: Option<Item>,
) -> Result<(Vec<(String, Vec<String>)>, Option<Item>), Error> {
    let prefix = format!("{product}#");
    let query = Query::new(MAP).prefix(&prefix).limit(PAGE).after(after);
    let found = store.query(table(), &query).await?;
    let entries = found.items.iter().filter_map(|item| {
        let group = item.str("cod_ordenar_chav")?.strip_prefix(&prefix)?;
        // A further `#` belongs to another product, whose name begins like this one's key.
        (!group.contains('#')).then(|| (group.to_owned(), users_of(item)))
    });
    Ok((entries.collect(), found.next))
}

/// The users of a map entry.
#[must_use]
pub fn users_of(item: &Item) -> Vec<String> {
    match item.get("userlist") {
        Some(Value::L(list)) => list.iter().filter_map(Value::as_str).map(ToOwned::to_owned).collect(),
        _ => Vec::new(),
    }
}

/// Everybody who hears of a product, each once; only of these groups, if any are named (S001-48, S001-49).
pub async fn recipients(store: &dyn Store, product: &str, groups: &[String]) -> Result<BTreeSet<String>, Error> {
    recipients_up_to(store, product, groups, usize::MAX).await
}

/// The same, but stops looking once there are more than `most`: enough to know that there are too many.
pub async fn recipients_up_to(
    store: &dyn Store,
    product: &str,
    groups: &[String],
    most: usize,
) -> Result<BTreeSet<String>, Error> {
    let mut users = BTreeSet::new();
    let mut after = None;
    loop {
        let (entries, next) = page(store, product, after).await?;
        for (group, list) in entries {
            if groups.is_empty() || groups.contains(&group) {
                users.extend(list);
            }
        }
        if next.is_none() || users.len() > most {
            return Ok(users);
        }
        after = next;
    }
}
