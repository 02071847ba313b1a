//! The embedded engine: the whole suite, the comparison with the model, and what only it does.

use std::sync::Arc;

use tidings_core::time::{Clock, ManualClock, Timestamp};
use tidings_store::conformance::{self, Suite};
use tidings_store::embedded::{Embedded, Options, restore};
use tidings_store::{Change, Error, Health, Item, Key, KeyKind, Query, Store, Table, Write};

use crate::model;

fn start() -> Timestamp {
    "2026-11-15T12:00:00Z".parse().expect("a moment")
}

fn options(dir: &tempfile::TempDir) -> Options {
    Options { reserve_bytes: 0, ..Options::new(dir.path().join("data")) }
}

fn open(options: &Options, tables: &[Table], clock: &Arc<ManualClock>) -> Result<Embedded, Error> {
    Embedded::open(options, tables, Arc::clone(clock) as Arc<dyn Clock>, Arc::new(()))
}

async fn setup() -> Suite {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = Arc::new(ManualClock::new(start()));
    let store = open(&options(&dir), &conformance::tables(), &clock).expect("a store");
    Suite::with_manual_clock(Arc::new(store), clock, "run").keep(dir)
}

mod suite {
    use super::setup;
    tidings_store::conformance_tests!(setup);
}

/// The same while commits go into tables all the time.
async fn setup_settling() -> Suite {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = Arc::new(ManualClock::new(start()));
    let options = Options { sheet_bytes: SMALL_SHEET, ..options(&dir) };
    let store = open(&options, &conformance::tables(), &clock).expect("a store");
    Suite::with_manual_clock(Arc::new(store), clock, "run").keep(dir)
}

/// A few commits fill it.
const SMALL_SHEET: usize = 3000;

mod suite_settling {
    use super::setup_settling as setup;
    tidings_store::conformance_tests!(setup);
}

#[test]
fn random_transactions_and_queries_give_the_models_answers() {
    let dir = tempfile::tempdir().unwrap();
    let count = std::sync::atomic::AtomicUsize::new(0);
    model::same_as_memory(|clock| {
        let run = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let options = Options { reserve_bytes: 0, ..Options::new(dir.path().join(run.to_string())) };
        let sheet_bytes = if run.is_multiple_of(2) { SMALL_SHEET } else { options.sheet_bytes };
        Arc::new(open(&Options { sheet_bytes, ..options }, &conformance::tables(), &clock).unwrap())
    });
}

fn notes() -> Table {
    Table::new("notes", "id", KeyKind::S).ttl("ttl")
}

fn note(id: &str) -> Item {
    Item::new().with("id", id).with("text", "x".repeat(100))
}

async fn put(store: &Embedded, table: &Table, item: Item) {
    store.transact(vec![Write::put(table, item)]).await.expect("a put");
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_opening_again() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::new(start())));
    let store = open(&options(&dir), &[notes()], &clock).unwrap();
    for n in 0..100 {
        put(&store, &notes(), note(&n.to_string())).await;
    }
    let sequence = store.sequence();
    drop(store);
    let store = open(&options(&dir), &[notes()], &clock).unwrap();
    assert_eq!(store.sequence(), sequence);
    for n in 0..100 {
        assert!(store.get(&notes(), &Key::new(n.to_string())).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn a_second_process_is_refused_with_a_sentence() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::new(start())));
    let _store = open(&options(&dir), &[notes()], &clock).unwrap();
    let error = open(&options(&dir), &[notes()], &clock).err().unwrap().to_string();
    assert!(error.contains("another tidings") && error.contains(&std::process::id().to_string()), "{error}");
}

#[tokio::test]
async fn a_newer_format_is_refused_and_damage_is_named() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::new(start())));
    drop(open(&options(&dir), &[notes()], &clock).unwrap());
    let format = dir.path().join("data/FORMAT");
    for (text, expected) in [("6", "newer tidings"), ("zero", "no format"), ("0", "no format")] {
        std::fs::write(&format, text).unwrap();
        let error = open(&options(&dir), &[notes()], &clock).err().unwrap().to_string();
        assert!(error.contains(expected), "{error}");
    }
    // The format before is read, and is ours from then on.
    std::fs::write(&format, "1").unwrap();
    drop(open(&options(&dir), &[notes()], &clock).unwrap());
    assert_eq!(std::fs::read_to_string(&format).unwrap().trim(), "5");
    std::fs::remove_file(&format).unwrap();
    assert!(open(&options(&dir), &[notes()], &clock).is_err());
}

// A log that was cut is not taken for a whole one.
#[tokio::test]
async fn a_store_below_its_high_water_mark_is_refused() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::new(start())));
    let store = open(&options(&dir), &[notes()], &clock).unwrap();
    put(&store, &notes(), note("a")).await;
    let sequence = store.sequence();
    drop(store);
    let mark = dir.path().join("data/HIGH-WATER");
    assert_eq!(std::fs::read_to_string(&mark).unwrap().trim(), sequence.to_string(), "closing notes the last commit");
    std::fs::write(&mark, (sequence + 1).to_string()).unwrap();
    let error = open(&options(&dir), &[notes()], &clock).err().unwrap().to_string();
    assert!(error.contains("was acknowledged"), "{error}");
}

// SX-05: expired items vanish at once, and their bytes with the sweep.
#[tokio::test]
async fn the_sweep_removes_expired_items_and_their_entries() {
    let table = Table::new("dated", "id", KeyKind::S).index("by-color", ("color".into(), KeyKind::S), None).ttl("ttl");
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::new(start())));
    let store = open(&options(&dir), std::slice::from_ref(&table), &clock).unwrap();
    let now = clock.now().as_second();
    for n in 0..1200 {
        let item = Item::new().with("id", n.to_string()).with("color", "red").with("ttl", now + 1 + i64::from(n % 2));
        put(&store, &table, item).await;
    }
    put(&store, &table, Item::new().with("id", "stays").with("color", "red")).await;
    assert_eq!(store.sweep(usize::MAX).await.unwrap(), 0);
    clock.advance(std::time::Duration::from_secs(1));
    assert_eq!(store.sweep(100).await.unwrap(), 100, "bounded");
    assert_eq!(store.sweep(usize::MAX).await.unwrap(), 500);
    // An item that got a later expiry is not swept by its old entry.
    let moved = Write::update(&table, Key::new("1"), vec![Change::Set("ttl".into(), (now + 1000).into())]);
    store.transact(vec![moved]).await.unwrap();
    clock.advance(std::time::Duration::from_secs(10));
    assert_eq!(store.sweep(usize::MAX).await.unwrap(), 599);
    let left = store.query(&table, &Query::new("red").index("by-color")).await.unwrap().items;
    assert_eq!(left.iter().filter_map(|item| item.str("id")).collect::<Vec<_>>(), ["1", "stays"]);
}

// SX-23: online, consistent, and all of it comes back.
#[tokio::test]
async fn a_backup_restores_to_the_same_store() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::new(start())));
    let store = open(&options(&dir), &[notes()], &clock).unwrap();
    for n in 0..500 {
        put(&store, &notes(), note(&n.to_string())).await;
    }
    let mut file = Vec::new();
    let summary = store.backup(&mut file).unwrap();
    assert_eq!(summary.sequence, store.sequence());
    put(&store, &notes(), note("later")).await;

    let target = dir.path().join("restored");
    assert_eq!(restore(&mut file.as_slice(), &target).unwrap(), summary);
    let restored =
        Embedded::open(&Options { reserve_bytes: 0, ..Options::new(&target) }, &[notes()], clock.clone(), Arc::new(()))
            .unwrap();
    assert_eq!(restored.sequence(), summary.sequence);
    for n in 0..500 {
        assert_eq!(restored.get(&notes(), &Key::new(n.to_string())).await.unwrap(), Some(note(&n.to_string())));
    }
    assert!(restored.get(&notes(), &Key::new("later")).await.unwrap().is_none());
    put(&restored, &notes(), note("goes on")).await;

    let error = restore(&mut file.as_slice(), &target).unwrap_err().to_string();
    assert!(error.contains("not empty"), "{error}");
}

#[tokio::test]
async fn a_damaged_backup_is_refused_and_leaves_nothing() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::new(start())));
    let store = open(&options(&dir), &[notes()], &clock).unwrap();
    for n in 0..20 {
        put(&store, &notes(), note(&n.to_string())).await;
    }
    let mut file = Vec::new();
    store.backup(&mut file).unwrap();
    let target = dir.path().join("restored");
    for cut in (0..file.len()).step_by(97) {
        assert!(restore(&mut &file[..cut], &target).is_err(), "cut at {cut}");
        assert!(!target.exists());
    }
    for place in (0..file.len()).step_by(53) {
        let mut damaged = file.clone();
        damaged[place] ^= 0x10;
        assert!(restore(&mut damaged.as_slice(), &target).is_err(), "damaged at {place}");
        assert!(!target.exists());
    }
}

#[tokio::test]
async fn a_new_index_covers_what_is_already_there() {
    let before = Table::new("things", "id", KeyKind::S);
    let after = before.clone().index("by-color", ("color".into(), KeyKind::S), None);
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::new(start())));
    let store = open(&options(&dir), std::slice::from_ref(&before), &clock).unwrap();
    for n in 0..50 {
        put(&store, &before, Item::new().with("id", n.to_string()).with("color", "red")).await;
    }
    drop(store);
    let store = open(&options(&dir), std::slice::from_ref(&after), &clock).unwrap();
    assert_eq!(store.query(&after, &Query::new("red").index("by-color")).await.unwrap().items.len(), 50);
}

// Full: refused before anything is written, and over as soon as there is room.
#[tokio::test]
async fn below_the_reserve_writes_are_refused_and_reads_go_on() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::new(start())));
    let store = open(&options(&dir), &[notes()], &clock).unwrap();
    put(&store, &notes(), note("a")).await;
    drop(store);
    let full = Options { reserve_bytes: u64::MAX, ..options(&dir) };
    let store = open(&full, &[notes()], &clock).unwrap();
    let error = store.transact(vec![Write::put(&notes(), note("b"))]).await.unwrap_err();
    assert!(matches!(&error, Error::Full(why) if why.contains("store.reserve_mb")), "{error}");
    assert!(matches!(store.health(), Health::ReadOnly(_)));
    assert!(store.get(&notes(), &Key::new("a")).await.unwrap().is_some());
    drop(store);
    let store = open(&options(&dir), &[notes()], &clock).unwrap();
    assert!(store.get(&notes(), &Key::new("b")).await.unwrap().is_none());
}

/// Writers that race in large groups: who comes second loses, nothing is counted twice or forgotten, and all of it is there
/// after opening again. (SX-09)
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn in_large_groups_each_is_won_once() {
    const WRITERS: usize = 4;
    const ROUNDS: usize = 8;
    const KEYS: usize = 20;
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(start()));
    let table = notes();
    let store = Arc::new(open(&options(&dir), &[notes()], &clock).unwrap());
    let race = || {
        let (store, table) = (Arc::clone(&store), table.clone());
        tokio::spawn(async move {
            let mut won = Vec::new();
            for round in 0..ROUNDS {
                let key = |n: usize| format!("{round}-{n}");
                let writes = |n: usize| {
                    let item = Item::new().with("id", key(n)).with("text", "x".repeat(40_000));
                    let count = vec![Change::Add("won".into(), 1)];
                    vec![Write::insert(&table, item), Write::update(&table, Key::new("count"), count)]
                };
                let answers = store.transact_each((0..KEYS).map(writes).collect()).await;
                for (n, answer) in answers.into_iter().enumerate() {
                    match answer {
                        Ok(()) => won.push(key(n)),
                        Err(error) => assert!(error.conflict_on(0).is_some(), "{error}"),
                    }
                }
            }
            won
        })
    };
    let racing: Vec<_> = (0..WRITERS).map(|_| race()).collect();
    let mut won = Vec::new();
    for writer in racing {
        won.extend(writer.await.unwrap());
    }
    won.sort();
    let mut every: Vec<_> = (0..ROUNDS).flat_map(|round| (0..KEYS).map(move |n| format!("{round}-{n}"))).collect();
    every.sort();
    assert_eq!(won, every, "each once");
    drop(store);
    let store = open(&options(&dir), &[notes()], &clock).unwrap();
    let count = store.get(&table, &Key::new("count")).await.unwrap().unwrap();
    assert_eq!(count.int("won"), i64::try_from(ROUNDS * KEYS).ok());
    for key in every {
        assert!(store.get(&table, &Key::new(key.as_str())).await.unwrap().is_some(), "{key}");
    }
}

/// Gives the first part of a backup, and then the process is gone, as far as a test can make it so: nothing cleans up.
struct BrokenOff<'a>(&'a [u8]);

impl std::io::Read for BrokenOff<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        assert!(!self.0.is_empty(), "the power is gone");
        self.0.read(bytes)
    }
}

// SX-23: neither half a store nor a new one.
#[tokio::test]
async fn a_restore_that_was_broken_off_is_no_store_and_can_be_done_again() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::new(start())));
    let store = open(&options(&dir), &[notes()], &clock).unwrap();
    for n in 0..50 {
        put(&store, &notes(), note(&n.to_string())).await;
    }
    let mut file = Vec::new();
    store.backup(&mut file).unwrap();
    for (n, part) in [1, file.len() / 2, file.len() - 1].into_iter().enumerate() {
        let target = dir.path().join(format!("restored-{n}"));
        if n == 1 {
            std::fs::create_dir(&target).unwrap();
        }
        let broken = std::panic::catch_unwind(|| restore(&mut BrokenOff(&file[..part]), &target));
        assert!(broken.is_err());
        let options = Options { reserve_bytes: 0, ..Options::new(&target) };
        let Err(error) = open(&options, &[notes()], &clock) else { panic!("opened after {part} bytes") };
        assert!(error.to_string().contains("tidings restore"), "{error}");
        // Something else in it is somebody's, and stays.
        std::fs::write(target.join("mine"), "x").unwrap();
        assert!(restore(&mut file.as_slice(), &target).unwrap_err().to_string().contains("not empty"));
        std::fs::remove_file(target.join("mine")).unwrap();
        restore(&mut file.as_slice(), &target).unwrap();
        let restored = open(&options, &[notes()], &clock).unwrap();
        assert_eq!(restored.get(&notes(), &Key::new("49")).await.unwrap(), Some(note("49")));
        assert!(!target.join("RESTORING").exists());
    }
}

#[tokio::test]
async fn a_file_that_goes_on_after_the_backups_end_is_refused() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::new(start())));
    let store = open(&options(&dir), &[notes()], &clock).unwrap();
    put(&store, &notes(), note("a")).await;
    let mut file = Vec::new();
    store.backup(&mut file).unwrap();
    let target = dir.path().join("restored");
    for more in [vec![0], file.clone()] {
        let error = restore(&mut [file.clone(), more].concat().as_slice(), &target).unwrap_err().to_string();
        assert!(error.contains("goes on"), "{error}");
        assert!(!target.exists());
    }
    restore(&mut file.as_slice(), &target).unwrap();
}

#[tokio::test]
async fn tables_of_another_configuration_are_known() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::new(start())));
    let other = Table::new("others", "id", KeyKind::S);
    let store = open(&options(&dir), &[notes(), other.clone()], &clock).unwrap();
    put(&store, &notes(), note("a")).await;
    drop(store);
    let store = open(&options(&dir), &[notes()], &clock).unwrap();
    assert_eq!(store.unopened().unwrap(), Vec::<String>::new(), "there is nothing in it");
    drop(store);
    let store = open(&options(&dir), std::slice::from_ref(&other), &clock).unwrap();
    put(&store, &other, Item::new().with("id", "x")).await;
    assert_eq!(store.unopened().unwrap(), [notes().name().to_owned()]);
}

// Whoever asks for room while it is being made must not keep whoever makes it from going on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_small_commits_are_never_too_many_for_who_writes_the_tables() {
    const COMMITS: usize = 250_000;
    let dir = tempfile::tempdir().unwrap();
    // Nothing is held up by the disk, so that there are more commits than time to write tables.
    let options = Options { acknowledge_before_fsync: true, ..options(&dir) };
    let store = open(&options, &[notes()], &Arc::new(ManualClock::new(start()))).unwrap();
    let text = "x".repeat(3000);
    for n in 0..COMMITS {
        // In no order, so that tables have to be merged.
        let id = format!("{:08x}", (n as u32).wrapping_mul(2_654_435_761));
        put(&store, &notes(), Item::new().with("id", id).with("text", text.as_str())).await;
    }
    assert_eq!(store.sequence(), COMMITS as u64);
}
