//! New items that come together are one entry; nobody who reads, changes or removes them may see that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidings_core::time::{Clock, ManualClock};
use tidings_store::embedded::{Archive, Embedded, Options, restore};
use tidings_store::{Change, Condition, Error, Item, Key, KeyKind, Query, Store, Table, Write};

use crate::support::clock;

const LIFE: i64 = 100;

fn things() -> Table {
    Table::new("things", "day", KeyKind::S)
        .sort("at", KeyKind::S)
        .index("by-color", ("color".into(), KeyKind::S), Some(("at".into(), KeyKind::S)))
        .ttl("ttl")
        .ordered()
        .lists(5)
}

struct Fixture {
    dir: tempfile::TempDir,
    clock: Arc<ManualClock>,
    sheet_bytes: usize,
}

impl Fixture {
    /// With sheets that a commit fills, or with all in memory.
    fn new(sheet_bytes: usize) -> Self {
        Self { dir: tempfile::tempdir().unwrap(), clock: clock(), sheet_bytes }
    }

    fn open_with(&self, table: Table) -> Embedded {
        let options =
            Options { reserve_bytes: 0, sheet_bytes: self.sheet_bytes, ..Options::new(self.dir.path().join("data")) };
        Embedded::open(&options, &[table], Arc::clone(&self.clock) as Arc<dyn Clock>, Arc::new(())).unwrap()
    }

    fn open(&self) -> Embedded {
        self.open_with(things())
    }

    fn now(&self) -> i64 {
        self.clock.now().as_second()
    }

    fn pass(&self, seconds: i64) {
        self.clock.advance(Duration::from_secs(seconds.unsigned_abs()));
    }

    fn thing(&self, at: &str) -> Item {
        let color = if at.ends_with('7') { "blue" } else { "red" };
        let text = format!("what happened {at}: {}", "x".repeat(50));
        Item::new()
            .with("day", "monday")
            .with("at", at)
            .with("color", color)
            .with("text", text)
            .with("ttl", self.now() + LIFE)
    }

    fn new_things(&self, times: &[String]) -> Vec<Vec<Write>> {
        times.iter().map(|at| vec![Write::put(&things(), self.thing(at)).when(Condition::Fresh)]).collect()
    }

    async fn store_things(&self, store: &Embedded, times: &[String]) {
        let outcomes = store.transact_each(self.new_things(times)).await;
        assert!(outcomes.iter().all(Result::is_ok));
    }
}

const SIZES: [usize; 2] = [3000, 32 << 20];

fn times(start: &str, count: usize) -> Vec<String> {
    // In no order.
    (0..count).map(|n| format!("{start}{:04}", n * 37 % count)).collect()
}

fn sorted(times: &[String]) -> Vec<String> {
    let mut times = times.to_vec();
    times.sort();
    times
}

fn key(at: &str) -> Key {
    Key::with_sort("monday", at)
}

/// All there is, by the table and by its index, up and down, in pages of 7.
async fn found(store: &Embedded, table: &Table) -> Vec<String> {
    found_in_pages(store, table, 7).await
}

async fn found_in_pages(store: &Embedded, table: &Table, limit: usize) -> Vec<String> {
    let mut answers = Vec::new();
    for index in [None, Some("red"), Some("blue")] {
        for descending in [false, true] {
            let mut query = Query::new(index.unwrap_or("monday")).limit(limit);
            query.index = index.map(|_| "by-color".to_owned());
            query.descending = descending;
            let mut all = Vec::new();
            loop {
                let page = store.query(table, &query).await.unwrap();
                all.extend(page.items.iter().map(|item| item.str("at").unwrap().to_owned()));
                let Some(next) = page.next else { break };
                query = query.after(Some(next));
            }
            if descending {
                all.reverse();
            }
            answers.push(all);
        }
    }
    let [all, down, red, red_down, blue, blue_down] = answers.try_into().unwrap();
    assert_eq!((&all, &red, &blue), (&down, &red_down, &blue_down));
    let (is_blue, is_red): (Vec<_>, Vec<_>) = all.iter().cloned().partition(|at| at.ends_with('7'));
    assert_eq!((red, blue), (is_red, is_blue));
    all
}

/// Entries of the store by the keyspace that they are in, as a backup has them.
fn entries(store: &Embedded) -> BTreeMap<u8, usize> {
    let mut file = Vec::new();
    store.backup(&mut file).unwrap();
    let mut rest = &file[b"tidings backup 3\n".len()..];
    let mut counts = BTreeMap::new();
    while let Some((space, after)) = rest.split_first().filter(|(space, _)| **space != 0xFF) {
        *counts.entry(*space).or_default() += 1;
        rest = after;
        for _ in 0..2 {
            let (len, after) = rest.split_first_chunk::<4>().unwrap();
            rest = &after[u32::from_be_bytes(*len) as usize..];
        }
    }
    counts
}

const INDEX: u8 = 1;
const APART: u8 = 2;

#[tokio::test]
async fn what_comes_together_is_one_entry_and_is_found_one_by_one() {
    for size in SIZES {
        let fixture = Fixture::new(size);
        let store = fixture.open();
        let all = times("12:00", 100);
        fixture.store_things(&store, &all).await;
        assert_eq!(entries(&store)[&APART], 1);
        assert_eq!(found(&store, &things()).await, sorted(&all));
        for at in &all {
            assert_eq!(store.get(&things(), &key(at)).await.unwrap(), Some(fixture.thing(at)));
        }
        assert_eq!(store.get(&things(), &key("12:009999")).await.unwrap(), None);
        drop(store);
        assert_eq!(found(&fixture.open(), &things()).await, sorted(&all), "after a start");
    }
}

#[tokio::test]
async fn few_items_and_those_that_start_otherwise_stand_alone() {
    let fixture = Fixture::new(SIZES[1]);
    let store = fixture.open();
    fixture.store_things(&store, &times("12:00", 3)).await;
    assert_eq!(entries(&store)[&APART], 3, "three are too few");
    fixture.store_things(&store, &times("12:01", 4)).await;
    assert_eq!(entries(&store)[&APART], 4, "four are enough");
    let apart: Vec<_> = (0..6).map(|n| format!("12:{n:02}x")).collect();
    fixture.store_things(&store, &apart).await;
    assert_eq!(entries(&store)[&APART], 10);
    // One that does not expire is in none, nor is one that may be there.
    let mut outcomes = Vec::new();
    for at in times("12:02", 5) {
        outcomes.push(vec![Write::put(&things(), fixture.thing(&at))]);
    }
    for at in times("12:03", 5) {
        let mut item = fixture.thing(&at);
        item.0.remove("ttl");
        outcomes.push(vec![Write::put(&things(), item).when(Condition::Fresh)]);
    }
    assert!(store.transact_each(outcomes).await.iter().all(Result::is_ok));
    assert_eq!(entries(&store)[&APART], 20);
    // Nor is a large one; the others do not mind.
    let mut crowd = fixture.new_things(&times("12:04", 6));
    let large = fixture.thing("12:04large").with("text", "y".repeat(17_000));
    crowd.insert(3, vec![Write::put(&things(), large.clone()).when(Condition::Fresh)]);
    assert!(store.transact_each(crowd).await.iter().all(Result::is_ok));
    assert_eq!(entries(&store)[&APART], 22);
    assert_eq!(store.get(&things(), &key("12:04large")).await.unwrap(), Some(large));
    assert_eq!(found(&store, &things()).await.len(), 3 + 4 + 6 + 5 + 5 + 7);
}

#[tokio::test]
async fn who_is_refused_is_not_among_those_who_came_with_it() {
    for size in SIZES {
        let fixture = Fixture::new(size);
        let store = fixture.open();
        let all = times("12:00", 20);
        let mut crowd = fixture.new_things(&all);
        for place in [0, 7, 19] {
            crowd[place].push(Write::check(&things(), key("none"), Condition::Exists));
        }
        let outcomes = store.transact_each(crowd).await;
        assert_eq!(outcomes.iter().filter(|outcome| matches!(outcome, Err(Error::Conflict { .. }))).count(), 3);
        let stored: Vec<_> = all.iter().zip(&outcomes).filter(|(_, o)| o.is_ok()).map(|(at, _)| at.clone()).collect();
        assert_eq!(entries(&store)[&APART], 1);
        assert_eq!(found(&store, &things()).await, sorted(&stored));
        assert_eq!(store.get(&things(), &key(&all[7])).await.unwrap(), None);
        // Too few are left of these.
        let mut crowd = fixture.new_things(&times("12:01", 5));
        for transaction in &mut crowd[..2] {
            transaction.push(Write::check(&things(), key("none"), Condition::Exists));
        }
        store.transact_each(crowd).await;
        assert_eq!(entries(&store)[&APART], 4);
        assert_eq!(found(&store, &things()).await.len(), 20);
    }
}

#[tokio::test]
async fn what_is_changed_or_removed_counts_and_not_what_was_there() {
    for size in SIZES {
        let fixture = Fixture::new(size);
        let mut store = fixture.open();
        let all = times("12:00", 30);
        fixture.store_things(&store, &all).await;
        let change = vec![Change::Set("text".into(), "other".into()), Change::Set("color".into(), "blue".into())];
        store.transact(vec![Write::update(&things(), key("12:000007"), change)]).await.unwrap();
        store.transact(vec![Write::put(&things(), fixture.thing("12:000008").with("n", 1))]).await.unwrap();
        store.transact(vec![Write::delete(&things(), key("12:000009"))]).await.unwrap();
        let absent = Write::insert(&things(), fixture.thing("12:000010"));
        assert!(store.transact(vec![absent]).await.unwrap_err().conflict_on(0).is_some(), "it is there");
        let mut left = sorted(&all);
        left.retain(|at| at != "12:000009");
        for _ in 0..2 {
            assert_eq!(found(&store, &things()).await, left);
            let text = store.get(&things(), &key("12:000007")).await.unwrap().unwrap();
            assert_eq!(text.str("text"), Some("other"));
            assert_eq!(store.get(&things(), &key("12:000008")).await.unwrap().unwrap().int("n"), Some(1));
            assert_eq!(store.get(&things(), &key("12:000009")).await.unwrap(), None);
            drop(store);
            store = fixture.open();
        }
        // What was removed can be there again, and go again.
        store.transact(vec![Write::insert(&things(), fixture.thing("12:000009"))]).await.unwrap();
        assert_eq!(found(&store, &things()).await, sorted(&all));
        store.transact(vec![Write::delete(&things(), key("12:000009"))]).await.unwrap();
        assert_eq!(found(&store, &things()).await, left);
    }
}

#[tokio::test]
async fn all_of_it_goes_when_it_has_expired() {
    for size in SIZES {
        let fixture = Fixture::new(size);
        let store = fixture.open();
        fixture.store_things(&store, &times("12:00", 30)).await;
        store.transact(vec![Write::delete(&things(), key("12:000009"))]).await.unwrap();
        let life = |seconds: i64| vec![Change::Set("ttl".into(), (fixture.now() + seconds).into())];
        store.transact(vec![Write::update(&things(), key("12:000011"), life(2 * LIFE))]).await.unwrap();
        store.transact(vec![Write::update(&things(), key("12:000012"), life(LIFE / 2))]).await.unwrap();
        fixture.pass(LIFE / 2);
        assert_eq!(found(&store, &things()).await.len(), 28);
        assert_eq!(store.sweep(1000).await.unwrap(), 1);
        assert_eq!(found(&store, &things()).await.len(), 28, "what the sheaf has of it does not come back");
        assert_eq!(store.get(&things(), &key("12:000012")).await.unwrap(), None);
        fixture.pass(LIFE / 2);
        assert_eq!(found(&store, &things()).await, ["12:000011"]);
        assert_eq!(store.sweep(1000).await.unwrap(), 27, "not those that had gone before");
        assert_eq!(found(&store, &things()).await, ["12:000011"]);
        assert_eq!(entries(&store)[&APART], 1, "neither sheaf nor holes are left");
        fixture.pass(LIFE);
        assert_eq!(store.sweep(1000).await.unwrap(), 1);
        let left = entries(&store);
        assert_eq!((left.get(&APART), left.get(&INDEX)), (None, None));
    }
}

/// Counts what it is shown.
#[derive(Default)]
struct Counting(std::sync::Mutex<Vec<String>>);

impl Archive for Counting {
    fn wants(&self, _table: &Table) -> bool {
        true
    }

    fn keep(&self, items: &[(&Table, Item)]) -> Result<(), Error> {
        self.0.lock().unwrap().extend(items.iter().map(|(_, item)| item.str("at").unwrap().to_owned()));
        Ok(())
    }
}

#[tokio::test]
async fn an_archive_is_shown_each_of_them() {
    let fixture = Fixture::new(SIZES[0]);
    let store = fixture.open();
    let all = times("12:00", 30);
    fixture.store_things(&store, &all).await;
    store.transact(vec![Write::delete(&things(), key("12:000009"))]).await.unwrap();
    fixture.pass(LIFE);
    let archive = Counting::default();
    assert_eq!(store.sweep_into(Some(&archive), 1000).await.unwrap(), 29);
    let mut left = sorted(&all);
    left.retain(|at| at != "12:000009");
    assert_eq!(sorted(&archive.0.into_inner().unwrap()), left);
}

#[tokio::test]
async fn a_backup_has_them_and_a_new_index_leads_to_them() {
    for size in SIZES {
        let fixture = Fixture::new(size);
        let store = fixture.open();
        let all = times("12:00", 30);
        fixture.store_things(&store, &all).await;
        store.transact(vec![Write::delete(&things(), key("12:000009"))]).await.unwrap();
        let change = vec![Change::Set("text".into(), "other".into())];
        store.transact(vec![Write::update(&things(), key("12:000007"), change)]).await.unwrap();
        let expected = found(&store, &things()).await;
        let mut file = Vec::new();
        store.backup(&mut file).unwrap();
        drop(store);
        let mut other = Fixture::new(size);
        restore(&mut file.as_slice(), &other.dir.path().join("data")).unwrap();
        other.clock = Arc::clone(&fixture.clock);
        assert_eq!(found(&other.open(), &things()).await, expected);
        let more = things().index("by-text", ("text".into(), KeyKind::S), None);
        let store = fixture.open_with(more.clone());
        assert_eq!(found(&store, &more).await, expected);
        for (at, count) in [("12:000003", 1), ("12:000007", 0), ("12:000009", 0)] {
            let text = fixture.thing(at).str("text").unwrap().to_owned();
            let page = store.query(&more, &Query::new(text).index("by-text")).await.unwrap();
            assert_eq!(page.items.len(), count, "{at}");
        }
        let page = store.query(&more, &Query::new("other").index("by-text")).await.unwrap();
        assert_eq!(page.items.len(), 1);
    }
}

// However many come with one time, a query reads a bounded number of them.
#[tokio::test]
async fn a_crowd_without_end_stands_outside_of_sheaves() {
    let fixture = Fixture::new(SIZES[1]);
    let store = fixture.open();
    let all = times("12:00", 6000);
    for crowd in all.chunks(500) {
        fixture.store_things(&store, crowd).await;
    }
    let count = entries(&store)[&APART];
    assert!((2000..2200).contains(&count), "{count}");
    assert_eq!(found_in_pages(&store, &things(), 700).await, sorted(&all));
    // The bounds of a range may lie within a sheaf.
    let range = tidings_store::Range::Between("12:001000".into(), "12:001999".into());
    for descending in [false, true] {
        let mut query = Query::new("monday").limit(2000);
        (query.range, query.descending) = (range.clone(), descending);
        assert_eq!(store.query(&things(), &query).await.unwrap().items.len(), 1000);
    }
}
