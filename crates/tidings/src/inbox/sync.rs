//! The notification map from a file beside the configuration: what the file says, the map has (S001-06).
//!
//! The file wins over what was said about its pairs by hand. An entry that it had before and has no more goes; entries
//! that never were in it stay. A file with a mistake in it changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use csv_core::{ReadRecordResult, Reader};
use serde::Deserialize;
use tidings_store::{Error, Item, Query, Write};

use super::import::{self, BadLine, Columns, Pair};
use super::map;
use super::record::{MAP, table};
use crate::app::Services;
use crate::audit::Action;
use crate::config::Config;
use crate::rules::notice::is_user;

/// Marks an entry that came from the file.
const SYNCED: &str = "synced";
/// Entries changed together, beside the audit log's own writes, and bytes of their users.
const BATCH: usize = 40;
const BATCH_BYTES: usize = 2_000_000;
/// Who did it, for the audit log.
const BY: &str = "notification_center.map_file";

/// What a file says.
pub type Wanted = BTreeMap<Pair, BTreeSet<String>>;

/// What a configuration's file says; `None` if it names none.
///
/// # Errors
///
/// Every line that is wrong; without a line, what is wrong with the whole.
pub fn wanted(config: &Config) -> Result<Option<Wanted>, Vec<BadLine>> {
    let Some(path) = &config.notification_center.map_file else { return Ok(None) };
    read(path, config.limits.upload_bytes).map(Some)
}

fn read(path: &Path, most: u64) -> Result<Wanted, Vec<BadLine>> {
    let whole = |message: String| vec![BadLine { line: 0, message: format!("{}: {message}", path.display()) }];
    let size = std::fs::metadata(path).map_err(|error| whole(format!("cannot be read: {error}")))?.len();
    if size > most {
        return Err(whole(format!("has {size} bytes, at most {most} are allowed (limits.upload_bytes)")));
    }
    let bytes = std::fs::read(path).map_err(|error| whole(format!("cannot be read: {error}")))?;
    if path.extension().is_some_and(|end| end == "toml") { read_toml(&bytes) } else { read_csv(&bytes) }
}

fn read_csv(bytes: &[u8]) -> Result<Wanted, Vec<BadLine>> {
    let mut wanted = Wanted::new();
    let mut bad = Vec::new();
    let (mut reader, mut rest) = (Reader::new(), bytes);
    let (mut cells, mut ends) = (vec![0; bytes.len() + 1], vec![0; import::COLUMNS]);
    // How much of the present line is there: without a line end at the end, it takes a second look.
    let (mut filled, mut count) = (0, 0);
    let (mut columns, mut line) = (None, 1);
    loop {
        let (room, places) = (cells.get_mut(filled..).unwrap_or_default(), ends.get_mut(count..).unwrap_or_default());
        let (result, taken, more, ended) = reader.read_record(rest, room, places);
        rest = rest.get(taken..).unwrap_or_default();
        (filled, count) = (filled + more, count + ended);
        match result {
            ReadRecordResult::InputEmpty => {}
            ReadRecordResult::End => break,
            ReadRecordResult::OutputFull | ReadRecordResult::OutputEndsFull => {
                bad.push(BadLine { line, message: format!("has more than {} columns", import::COLUMNS) });
                break;
            }
            ReadRecordResult::Record => {
                let mut from = 0;
                let ends = ends.iter().take(count);
                let texts: Vec<&[u8]> =
                    ends.map(|end| cells.get(std::mem::replace(&mut from, *end)..*end).unwrap_or_default()).collect();
                let named = if columns.is_none() { Columns::named(&texts) } else { Ok(None) };
                let is_header = match named {
                    Ok(named) => {
                        columns = columns.or(Some(named.unwrap_or_default()));
                        named.is_some()
                    }
                    Err(message) => {
                        bad.push(BadLine { line, message });
                        break;
                    }
                };
                if !is_header {
                    let read = import::read_cells(&texts, columns.unwrap_or_default());
                    let taken = read.and_then(|(pair, users)| add(&mut wanted, pair, users));
                    bad.extend(taken.err().map(|message| BadLine { line, message }));
                }
                (filled, count) = (0, 0);
                line = reader.line();
            }
        }
    }
    if bad.is_empty() { Ok(wanted) } else { Err(bad) }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    product: String,
    support_group: String,
    users: Vec<String>,
}

fn read_toml(bytes: &[u8]) -> Result<Wanted, Vec<BadLine>> {
    let whole = |line: u64, message: String| vec![BadLine { line, message }];
    let text = std::str::from_utf8(bytes).map_err(|_| whole(0, "is not UTF-8".to_owned()))?;
    let file: File = toml::from_str(text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        whole(before.matches('\n').count() as u64 + 1, error.message().to_owned())
    })?;
    let mut wanted = Wanted::new();
    let mut bad = Vec::new();
    for (number, entry) in (1..).zip(file.entries) {
        let Entry { product, support_group, users } = entry;
        let checked = map::check_name(&product)
            .map_err(|why| format!("the product {why}"))
            .and_then(|()| map::check_name(&support_group).map_err(|why| format!("the support group {why}")))
            .and_then(|()| match users.iter().find(|user| !is_user(user)) {
                Some(user) => Err(format!("`{}` cannot be a user's id", user.chars().take(60).collect::<String>())),
                None if users.is_empty() => Err("names no users".to_owned()),
                None => add(&mut wanted, (product, support_group), users.into_iter().collect()),
            });
        bad.extend(checked.err().map(|why| BadLine { line: 0, message: format!("entry {number}: {why}") }));
    }
    if bad.is_empty() { Ok(wanted) } else { Err(bad) }
}

/// Adds a line's users to those that the pair has from the lines before.
fn add(wanted: &mut Wanted, pair: Pair, users: BTreeSet<String>) -> Result<(), String> {
    let mut all = wanted.get(&pair).cloned().unwrap_or_default();
    all.extend(users);
    map::check_sizes(&pair.0, &pair.1, &all)?;
    wanted.insert(pair, all);
    Ok(())
}

/// A sentence about all that is wrong.
#[must_use]
pub fn sentence(bad: &[BadLine]) -> String {
    let told = bad.iter().take(20).map(|bad| match bad.line {
        0 => bad.message.clone(),
        line => format!("line {line}: {}", bad.message),
    });
    format!("the notification map's file is not taken over: {}", told.collect::<Vec<_>>().join("; "))
}

/// Changes under way.
struct Changes<'a> {
    services: &'a Services,
    correlation_id: String,
    writes: Vec<Write>,
    /// What the audit log is told of them.
    set: Vec<String>,
    removed: Vec<String>,
    bytes: usize,
}

/// Brings the map in line with a file; what is so already is not written again. Doing it twice is doing it once.
///
/// # Errors
///
/// The store's. What was changed before stays; the next time goes on.
pub async fn apply(services: &Services, mut wanted: Wanted) -> Result<(), Error> {
    let correlation_id = services.ids.uuid(services.clock.now()).to_string();
    let (writes, set, removed) = (Vec::new(), Vec::new(), Vec::new());
    let mut changes = Changes { services, correlation_id, writes, set, removed, bytes: 0 };
    let mut after = None;
    loop {
        let page = services.store.query(table(), &Query::new(MAP).limit(100).after(after)).await?;
        for item in &page.items {
            let Some((product, group)) = map::names_of(item) else { continue };
            let ours = item.get(SYNCED).is_some();
            match wanted.remove(&(product.to_owned(), group.to_owned())) {
                Some(users) if ours && users.iter().eq(&map::users_of(item)) => {}
                Some(users) => changes.set((product, group), users).await?,
                None if ours => changes.remove((product, group)).await?,
                None => {}
            }
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    for ((product, group), users) in wanted {
        changes.set((&product, &group), users).await?;
    }
    changes.store().await
}

impl Changes<'_> {
    async fn set(&mut self, (product, group): (&str, &str), users: BTreeSet<String>) -> Result<(), Error> {
        let users: Vec<String> = users.into_iter().collect();
        let item: Item = map::item(product, group, &users).with(SYNCED, true);
        self.bytes += item.size();
        self.writes.push(Write::put(table(), item));
        self.set.push(format!("{product}#{group}"));
        self.store_if_full().await
    }

    async fn remove(&mut self, (product, group): (&str, &str)) -> Result<(), Error> {
        self.writes.push(Write::delete(table(), map::key(product, group)));
        self.removed.push(format!("{product}#{group}"));
        self.store_if_full().await
    }

    async fn store_if_full(&mut self) -> Result<(), Error> {
        if self.writes.len() >= BATCH || self.bytes >= BATCH_BYTES { self.store().await } else { Ok(()) }
    }

    async fn store(&mut self) -> Result<(), Error> {
        self.bytes = 0;
        let writes = std::mem::take(&mut self.writes);
        let (set, removed) = (std::mem::take(&mut self.set), std::mem::take(&mut self.removed));
        let Some(first) = set.first().or(removed.first()).cloned() else { return Ok(()) };
        tracing::info!(set = set.len(), removed = removed.len(), "the notification map follows its file");
        let details = serde_json::json!({ "set": set, "removed": removed });
        let action = Action::new("notification-map.sync", "notification-map", first).details(details);
        self.services.audit.record_with(BY, &self.correlation_id, action, writes).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users(wanted: &Wanted, product: &str, group: &str) -> Vec<String> {
        wanted.get(&(product.to_owned(), group.to_owned())).unwrap().iter().cloned().collect()
    }

    #[test]
    fn both_kinds_of_file_say_the_same() {
        let csv = read_csv(b"product,supportGroup,users\r\na,x,u2;u1\n\n\"a\",x,u3\nb,y,u1,u2").unwrap();
        let toml = "[[entries]]\nproduct = \"a\"\nsupport_group = \"x\"\nusers = [\"u1\", \"u2\", \"u3\"]\n\
                    [[entries]]\nproduct = \"b\"\nsupport_group = \"y\"\nusers = [\"u2\", \"u1\"]\n";
        assert_eq!(csv, read_toml(toml.as_bytes()).unwrap());
        assert_eq!((csv.len(), users(&csv, "b", "y").len()), (2, 2));
        assert_eq!(users(&csv, "a", "x"), ["u1", "u2", "u3"]);
        assert!(read_csv(b"").unwrap().is_empty() && read_toml(b"").unwrap().is_empty());
    }

    #[test]
    fn every_bad_line_is_named() {
        let lines = |bad: Vec<BadLine>| bad.iter().map(|bad| bad.line).collect::<Vec<_>>();
        assert_eq!(lines(read_csv(b"a,x,u1\na#b,x,u1\na,x\na,x,notificationmap").unwrap_err()), [2, 3, 4]);
        assert_eq!(lines(read_toml(b"\n\nx = 1\n").unwrap_err()), [3]);
        let bad = b"[[entries]]\nproduct = \"\"\nsupport_group = \"x\"\nusers = [\"u1\"]\n";
        assert!(read_toml(bad).unwrap_err()[0].message.starts_with("entry 1: the product"));
    }
}
