//! The notification map: which users hear of a product, by support group (S001-42 to S001-50).

use std::collections::BTreeSet;

use tidings_store::{Error, Item, Key, Query, Store, Value};

use super::record::{MAP, table};

/// Entries of one product read at a time.
const PAGE: usize = 100;
/// Characters of a product's or a support group's name.
pub const NAME_CHARS: usize = 256;
/// Bytes of both names together: they make up a sort key.
pub const NAMES_BYTES: usize = 1_000;
/// Users of one support group of one product.
pub const USERS: usize = 10_000;
/// Bytes of their names together; an item has 400 KB.
pub const USERS_BYTES: usize = 350_000;

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
        // The two indexes want something, and the seed says what (S001-45, S001-46).
        .with("status_ordenar", format!("LATEST#{product}#{group}"))
        .with("tipo_ordenar", format!("LATEST#{group}#{product}"))
        .with("userlist", users.iter().map(Value::from).collect::<Vec<_>>())
}

/// One page of a product's entries: the support group and its users. `app1` never finds `app10` (S001-47).
pub async fn page(
    store: &dyn Store,
    product: &str,
    after: Option<Item>,
) -> Result<(Vec<(String, Vec<String>)>, Option<Item>), Error> {
    let prefix = format!("{product}#");
    if prefix.len() > NAMES_BYTES {
        return Ok((Vec::new(), None));
    }
    let query = Query::new(MAP).prefix(&prefix).limit(PAGE).after(after);
    let found = store.query(table(), &query).await?;
    let entries = found.items.iter().filter_map(|item| {
        let group = item.str("cod_ordenar_chav")?.strip_prefix(&prefix)?;
        // A further `#` belongs to another product, whose name begins like this one's key.
        (!group.contains('#')).then(|| (group.to_owned(), users_of(item)))
    });
    Ok((entries.collect(), found.next))
}

/// What is wrong with a product's or a support group's name, if anything. The `#` between them is the only one.
pub fn check_name(name: &str) -> Result<(), String> {
    tidings_core::envelope::check_name(name, NAME_CHARS)?;
    if name.contains('#') { Err("must not contain #".to_owned()) } else { Ok(()) }
}

/// What is wrong with the two names together, or with as many users, if anything.
pub fn check_sizes(product: &str, group: &str, users: &BTreeSet<String>) -> Result<(), String> {
    if product.len() + group.len() > NAMES_BYTES {
        return Err(format!("product and support group together must have at most {NAMES_BYTES} bytes"));
    }
    if users.len() > USERS {
        return Err(format!("has {} users, at most {USERS} are possible; use several support groups", users.len()));
    }
    let bytes: usize = users.iter().map(String::len).sum();
    if bytes > USERS_BYTES {
        return Err(format!(
            "has {bytes} bytes of users, at most {USERS_BYTES} are possible; use several support groups"
        ));
    }
    Ok(())
}

/// An entry's product and support group.
#[must_use]
pub fn names_of(item: &Item) -> Option<(&str, &str)> {
    item.str("cod_ordenar_chav")?.split_once('#')
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
