//! Entries that lead to items which came together stand in lists; nobody who reads, changes or removes the items may see that.

use std::sync::Arc;

use tidings_core::time::{Clock, ManualClock, Timestamp};
use tidings_store::embedded::{Embedded, Options};
use tidings_store::{Change, Error, Item, Key, KeyKind, Query, Store, Table, Write};

fn start() -> Timestamp {
    "2026-11-15T12:00:00Z".parse().expect("a moment")
}

fn options(dir: &tempfile::TempDir) -> Options {
    Options { reserve_bytes: 0, ..Options::new(dir.path().join("data")) }
}

fn open(options: &Options, tables: &[Table], clock: &Arc<ManualClock>) -> Result<Embedded, Error> {
    Embedded::open(options, tables, Arc::clone(clock) as Arc<dyn Clock>, Arc::new(()))
}

/// Items that come in crowds, as events do.
fn crowded() -> Table {
    Table::new("crowded", "day", KeyKind::S)
        .sort("at", KeyKind::S)
        .index("by-color", ("color".into(), KeyKind::S), Some(("at".into(), KeyKind::S)))
        .ttl("ttl")
        .ordered()
        .lists(5)
}

/// The times in the index of a color, in pages of 7: upwards, and the same downwards.
async fn times(store: &Embedded, color: &str) -> Vec<String> {
    let mut both = Vec::new();
    for descending in [false, true] {
        let mut query = Query::new(color).index("by-color").limit(7);
        query.descending = descending;
        let mut found = Vec::new();
        loop {
            let page = store.query(&crowded(), &query).await.unwrap();
            found.extend(page.items.iter().map(|item| item.str("at").unwrap().to_owned()));
            if page.next.is_none() {
                break;
            }
            query = query.after(page.next);
        }
        both.push(found);
    }
    let mut down = both.pop().unwrap();
    down.reverse();
    let up = both.pop().unwrap();
    assert_eq!(up, down);
    up
}

// Entries in lists are found in order, in pages, and exactly as long as their item is there with this color.
#[tokio::test]
async fn entries_in_lists_are_as_good_as_entries_alone() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::new(start())));
    let store = open(&options(&dir), &[crowded()], &clock).unwrap();
    let empty = store.backup(&mut std::io::sink()).unwrap().entries;
    let now = clock.now().as_second();
    let item = |n: usize| {
        let (minute, color) = (n * 7 % 4, if n.is_multiple_of(3) { "red" } else { "blue" });
        let at = format!("12:{minute:02}:{:03}", n * 37 % 300);
        Item::new().with("day", "monday").with("at", at).with("color", color).with("ttl", now + 10)
    };
    let mut expected: Vec<_> = (0..300).step_by(3).map(|n| item(n).str("at").unwrap().to_owned()).collect();
    expected.sort();
    for start in [0, 150] {
        let crowd = (start..start + 150).map(|n| vec![Write::put(&crowded(), item(n))]).collect();
        assert!(store.transact_each(crowd).await.iter().all(Result::is_ok));
    }
    // Two crowds of 150 in 8 lists for each of two colors, which stand in one expiry list for each crowd.
    let full = store.backup(&mut std::io::sink()).unwrap().entries;
    assert_eq!(full - empty, 300 + 16 + 2 + u64::from(empty_has_no_sequence(empty)));
    assert_eq!(times(&store, "red").await, expected);

    // One that goes, one that changes its color, one that is written again, one that lives longer.
    let key = |at: &String| Key::with_sort("monday", at.as_str());
    let (gone, blue, again, longer) = (&expected[5], &expected[50], &expected[51], &expected[99]);
    let longer_life = vec![Change::Set("ttl".into(), (now + 100).into())];
    let changes = vec![
        Write::delete(&crowded(), key(gone)),
        Write::update(&crowded(), key(blue), vec![Change::Set("color".into(), "blue".into())]),
        Write::update(&crowded(), key(again), vec![Change::Set("text".into(), "more".into())]),
        Write::update(&crowded(), key(longer), longer_life),
    ];
    store.transact(changes).await.unwrap();
    let left: Vec<_> = expected.iter().filter(|at| !["", gone, blue].contains(&at.as_str())).cloned().collect();
    assert_eq!(times(&store, "red").await, left);
    assert_eq!(times(&store, "blue").await.len(), 201);
    let low = Query::new("red").index("by-color").range(tidings_store::Range::Below(left[20].as_str().into()));
    assert_eq!(store.query(&crowded(), &low).await.unwrap().items.len(), 20);

    clock.advance(std::time::Duration::from_secs(10));
    assert_eq!(times(&store, "red").await, std::slice::from_ref(longer));
    assert_eq!(store.sweep(usize::MAX).await.unwrap(), 298);
    assert_eq!(times(&store, "red").await, std::slice::from_ref(longer));
    clock.advance(std::time::Duration::from_secs(100));
    assert_eq!(store.sweep(usize::MAX).await.unwrap(), 1);
    assert_eq!(store.backup(&mut std::io::sink()).unwrap().entries, empty + u64::from(empty_has_no_sequence(empty)));
}

// An entry whose key ends where those of a list begin to differ, or goes on with a zero, stands between the two.
#[tokio::test]
async fn entries_between_a_list_and_its_own_are_in_order() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::new(start())));
    let store = open(&options(&dir), &[crowded()], &clock).unwrap();
    let ttl = clock.now().as_second() + 10;
    let sorted =
        ["12:0", "12:00", "12:00\0", "12:00\0x", "12:00\u{1}", "12:00#a", "12:00#b", "12:01", "12:01x", "12:01y"];
    for ats in [
        &["12:00#b", "12:00\0", "12:01x", "12:00"][..],
        &["12:0", "12:00#a", "12:00\u{1}", "12:01"],
        &["12:00\0x", "12:01y"],
    ] {
        let item = |at: &&str| Item::new().with("day", "monday").with("at", *at).with("color", "red").with("ttl", ttl);
        let crowd = ats.iter().map(|at| vec![Write::put(&crowded(), item(at))]).collect();
        assert!(store.transact_each(crowd).await.iter().all(Result::is_ok));
    }
    assert_eq!(times(&store, "red").await, sorted);
    for (place, at) in sorted.iter().enumerate() {
        for descending in [false, true] {
            let mut query = Query::new("red").index("by-color").range(tidings_store::Range::AtLeast((*at).into()));
            query.descending = descending;
            let found = store.query(&crowded(), &query).await.unwrap().items;
            assert_eq!(found.len(), sorted.len() - place, "{at:?}");
        }
    }
}

/// A store that nothing was written to has only its ids: of the table, of its index, and that it is apart.
fn empty_has_no_sequence(entries: u64) -> bool {
    entries == 3
}

// A store of the format before: its items stay where they are, its entries stand alone, and both go on.
#[tokio::test]
async fn a_table_from_before_lists_and_places_apart_goes_on() {
    let before = Table::new("crowded", "day", KeyKind::S)
        .sort("at", KeyKind::S)
        .index("by-color", ("color".into(), KeyKind::S), Some(("at".into(), KeyKind::S)))
        .ttl("ttl");
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::new(start())));
    let at = |n: usize| format!("12:00:{n:03}");
    let crowd = |table: &Table, numbers: &mut dyn Iterator<Item = usize>| {
        let item = |n| Item::new().with("day", "monday").with("at", at(n)).with("color", "red").with("ttl", i64::MAX);
        numbers.map(|n| vec![Write::put(table, item(n))]).collect::<Vec<_>>()
    };
    let store = open(&options(&dir), std::slice::from_ref(&before), &clock).unwrap();
    assert!(store.transact_each(crowd(&before, &mut (0..100).step_by(2))).await.iter().all(Result::is_ok));
    drop(store);
    std::fs::write(dir.path().join("data/FORMAT"), "1\n").unwrap();
    let store = open(&options(&dir), &[crowded()], &clock).unwrap();
    assert!(store.transact_each(crowd(&crowded(), &mut (1..100).step_by(2))).await.iter().all(Result::is_ok));
    assert_eq!(times(&store, "red").await, (0..100).map(at).collect::<Vec<_>>());
    assert!(store.get(&crowded(), &Key::with_sort("monday", at(2))).await.unwrap().is_some());
    let mut file = Vec::new();
    store.backup(&mut file).unwrap();
    // As a backup of that format says of itself.
    let at_version = file.iter().position(|byte| *byte == b'3').unwrap();
    assert_eq!(&file[..=at_version], b"tidings backup 3");
}

// However many come with one time, a query reads a bounded number of them.
#[tokio::test]
async fn a_crowd_without_end_stands_outside_of_lists() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::new(start())));
    let store = open(&options(&dir), &[crowded()], &clock).unwrap();
    let mut expected = Vec::new();
    for crowd in 0..12 {
        let items = (0..500).map(|n| {
            let at = format!("12:00:{:05}", (crowd * 500 + n) * 7919 % 6000);
            expected.push(at.clone());
            let item = Item::new().with("day", "monday").with("at", at).with("color", "red").with("ttl", i64::MAX);
            vec![Write::put(&crowded(), item)]
        });
        let crowd = items.collect();
        assert!(store.transact_each(crowd).await.iter().all(Result::is_ok));
    }
    expected.sort();
    assert_eq!(times(&store, "red").await, expected);
    // 4000 stand in 8 lists, the rest alone.
    let entries = store.backup(&mut std::io::sink()).unwrap().entries;
    assert_eq!(entries, 3 + 1 + 6000 + 8 + 2000 + 12);
}

/// Tasks by owner, which stays, and by state, which does not.
fn tasks() -> Table {
    let at = || Some(("at".into(), KeyKind::S));
    Table::new("tasks", "id", KeyKind::S)
        .index("by-owner", ("owner".into(), KeyKind::S), at())
        .index("by-state", ("state".into(), KeyKind::S), at())
        .ttl("ttl")
        .lists_in("by-owner", 5)
}

async fn ids(store: &Embedded, index: &str, of: &str) -> Vec<String> {
    let page = store.query(&tasks(), &Query::new(of).index(index)).await.unwrap();
    page.items.iter().map(|item| item.str("id").unwrap().to_owned()).collect()
}

// What changes of an item leaves alone the lists that lead to it, unless it is when they may go.
#[tokio::test]
async fn one_index_has_lists_and_another_none() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::new(start())));
    let store = open(&options(&dir), &[tasks()], &clock).unwrap();
    let now = clock.now().as_second();
    let id = |n: usize| format!("{n:02}");
    let crowd = (0..50).map(|n| {
        let item = Item::new().with("id", id(n)).with("at", format!("12:00:{n:02}")).with("owner", "me");
        vec![Write::insert(&tasks(), item.with("state", "new").with("ttl", now + 10))]
    });
    assert!(store.transact_each(crowd.collect()).await.iter().all(Result::is_ok));
    let entries = || store.backup(&mut std::io::sink()).unwrap().entries;
    // The three ids and the number of the last commit; the items; one list, one entry for each, and when all expire.
    assert_eq!(entries(), 4 + 50 + 1 + 50 + 1);
    let update = |n: usize, changes: Vec<Change>| vec![Write::update(&tasks(), Key::new(id(n)), changes)];
    let done = (0..50).map(|n| update(n, vec![Change::Set("state".into(), "done".into())]));
    assert!(store.transact_each(done.collect()).await.iter().all(Result::is_ok));
    assert_eq!(entries(), 4 + 50 + 1 + 50 + 1, "as many as before");
    let all: Vec<_> = (0..50).map(id).collect();
    assert_eq!(ids(&store, "by-owner", "me").await, all);
    assert_eq!((ids(&store, "by-state", "new").await, ids(&store, "by-state", "done").await), (vec![], all.clone()));

    // One that lives longer than the list, one that somebody else gets, one that goes.
    store.transact(update(7, vec![Change::Set("ttl".into(), (now + 100).into())])).await.unwrap();
    store.transact(update(8, vec![Change::Set("owner".into(), "you".into())])).await.unwrap();
    store.transact(vec![Write::delete(&tasks(), Key::new("09"))]).await.unwrap();
    let left: Vec<_> = all.iter().filter(|id| !["08", "09"].contains(&id.as_str())).cloned().collect();
    assert_eq!(ids(&store, "by-owner", "me").await, left);
    assert_eq!(ids(&store, "by-owner", "you").await, ["08"]);
    clock.advance(std::time::Duration::from_secs(10));
    assert_eq!(store.sweep(usize::MAX).await.unwrap(), 48);
    assert_eq!(ids(&store, "by-owner", "me").await, ["07"]);
    assert_eq!(entries(), 4 + 1 + 2 + 1);
    clock.advance(std::time::Duration::from_secs(100));
    assert_eq!(store.sweep(usize::MAX).await.unwrap(), 1);
    assert_eq!((ids(&store, "by-owner", "me").await, entries()), (vec![], 4));
}
