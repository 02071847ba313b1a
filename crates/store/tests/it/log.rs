//! The log of the embedded engine: what it brings back, whatever has reached the tables by then.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use tidings_core::time::{Clock, ManualClock};
use tidings_store::embedded::{Embedded, Options};
use tidings_store::{Error, Item, Key, KeyKind, Query, Store, Table, Write};

fn table() -> Table {
    named("things")
}

/// The same with items that are kept apart.
fn ordered() -> Table {
    named("ordered-things").ordered()
}

fn named(name: &'static str) -> Table {
    Table::new(name, "id", KeyKind::S).index("by-color", ("color".into(), KeyKind::S), Some(("id".into(), KeyKind::S)))
}

fn open(data: &Path, sheet_bytes: usize) -> Result<Embedded, Error> {
    let options = Options { reserve_bytes: 0, sheet_bytes, ..Options::new(data) };
    let clock = Arc::new(ManualClock::new("2026-11-15T12:00:00Z".parse().unwrap()));
    Embedded::open(&options, &[table(), ordered()], clock as Arc<dyn Clock>, Arc::new(()))
}

const COLORS: [&str; 3] = ["red", "green", "blue"];

fn thing(n: u32, color: &str, round: u32) -> Item {
    let text = format!("round {round}").repeat(usize::try_from(n % 7).unwrap());
    Item::new().with("id", format!("thing-{n:03}")).with("color", color).with("text", text)
}

/// Everything is there exactly as it should be, by key and by index.
async fn compare(store: &Embedded, expected: &BTreeMap<String, Item>) {
    compare_in(&table(), store, expected).await;
}

async fn compare_in(table: &Table, store: &Embedded, expected: &BTreeMap<String, Item>) {
    let mut found = BTreeMap::new();
    for color in COLORS {
        let query = Query::new(color).index("by-color").limit(1000);
        for item in store.query(table, &query).await.unwrap().items {
            found.insert(item.str("id").unwrap().to_owned(), item);
        }
    }
    assert_eq!(&found, expected);
    for n in 0..THINGS {
        let id = format!("thing-{n:03}");
        assert_eq!(store.get(table, &Key::new(id.as_str())).await.unwrap().as_ref(), expected.get(&id), "{id}");
    }
}

/// The same where both tables have the same.
async fn compare_both(store: &Embedded, expected: &BTreeMap<String, Item>) {
    compare(store, expected).await;
    compare_in(&ordered(), store, expected).await;
}

const THINGS: u32 = 60;

// SX-02: sheets are closed, written into tables and taken out of the log while commits go on and the store is opened
// again and again.
#[tokio::test]
async fn everything_is_there_after_every_opening() {
    let dir = tempfile::tempdir().unwrap();
    let mut expected = BTreeMap::new();
    let mut number = 7_u32;
    let mut random = move |below: u32| {
        number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (number >> 8) % below
    };
    for round in 0..25 {
        let sheet_bytes = [1, 2000, 20_000, usize::MAX / 4][usize::try_from(random(4)).unwrap()];
        let store = open(dir.path(), sheet_bytes).unwrap();
        compare_both(&store, &expected).await;
        for _ in 0..random(80) {
            let n = random(THINGS);
            let id = format!("thing-{n:03}");
            if random(3) == 0 {
                let delete = |table| Write::delete(table, Key::new(id.as_str()));
                store.transact(vec![delete(&table()), delete(&ordered())]).await.unwrap();
                expected.remove(&id);
            } else {
                let item = thing(n, COLORS[usize::try_from(random(3)).unwrap()], round);
                let put = |table| Write::put(table, item.clone());
                store.transact(vec![put(&table()), put(&ordered())]).await.unwrap();
                expected.insert(id, item);
            }
        }
        compare_both(&store, &expected).await;
    }
}

fn segments(data: &Path) -> Vec<std::path::PathBuf> {
    let found = std::fs::read_dir(data.join("store/log")).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = found.filter(|path| path.extension().is_some_and(|kind| kind == "log")).collect();
    found.sort_by_key(|path| path.file_stem().unwrap().to_str().unwrap().parse::<u64>().unwrap());
    found
}

/// A store whose log has several segments: a copy of what was there at each moment, as a crash would leave it.
async fn crashed(dir: &Path) -> BTreeMap<String, Item> {
    let mut expected = BTreeMap::new();
    let mut store = open(&dir.join("data"), usize::MAX / 4).unwrap();
    for round in 0..3 {
        for n in 0..THINGS {
            let item = thing(n, "red", round);
            store.transact(vec![Write::put(&table(), item.clone())]).await.unwrap();
            expected.insert(format!("thing-{n:03}"), item);
        }
        let (from, to) = (segments(&dir.join("data")).pop().unwrap(), dir.join(format!("{round}.kept")));
        std::fs::copy(&from, &to).unwrap();
        drop(store);
        store = open(&dir.join("data"), usize::MAX / 4).unwrap();
    }
    expected
}

// A segment whose commits are in tables already may be there once more: they are not done again.
#[tokio::test]
async fn a_segment_that_is_in_tables_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let expected = crashed(dir.path()).await;
    let data = dir.path().join("data");
    // Closing a store writes what it found in its log into tables.
    drop(open(&data, usize::MAX / 4).unwrap());
    let [left] = segments(&data).try_into().unwrap();
    let number: u64 = left.file_stem().unwrap().to_str().unwrap().parse().unwrap();
    std::fs::copy(dir.path().join("2.kept"), left.with_file_name(format!("{}.log", number - 1))).unwrap();
    compare(&open(&data, usize::MAX / 4).unwrap(), &expected).await;
}

// A segment that is missing among others is not passed over.
#[tokio::test]
async fn a_missing_segment_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    crashed(dir.path()).await;
    let fresh = dir.path().join("fresh");
    drop(open(&fresh, usize::MAX / 4).unwrap());
    for segment in segments(&fresh) {
        std::fs::remove_file(segment).unwrap();
    }
    // With the first of them all is well, without it commits are missing.
    for (kept, is_whole) in [(&[0, 1, 2][..], true), (&[1, 2], false), (&[0, 2], false)] {
        let copy = dir.path().join(format!("copy-{}", kept.len() + usize::from(is_whole) * 10 + kept[0]));
        let status = std::process::Command::new("cp").arg("-r").args([&fresh, &copy]).status().unwrap();
        assert!(status.success());
        for number in kept {
            let name = format!("store/log/{}.log", 10 + number);
            std::fs::copy(dir.path().join(format!("{number}.kept")), copy.join(name)).unwrap();
        }
        let _ = std::fs::remove_file(copy.join("HIGH-WATER"));
        match open(&copy, usize::MAX / 4) {
            Ok(_) => assert!(is_whole, "{kept:?}"),
            Err(error) => assert!(
                !is_whole && error.to_string().contains("lost") || error.to_string().contains("missing"),
                "{kept:?}: {error}"
            ),
        }
    }
}
