//! Damage to the files of a store: what is read back is right, or there is an error; never wrong data, never a
//! panic, never a silent loss (SX-02).
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, reason = "all of this is tests")]

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidings_core::time::Clock;
use tidings_store::embedded::{Embedded, Options};
use tidings_store::{Error, Item, Key, KeyKind, Query, Store, Table, Write};

use crate::support;

fn table() -> Table {
    Table::new("things", "id", KeyKind::S).index("by-color", ("color".into(), KeyKind::S), None)
}

fn item(n: usize, text: &str) -> Item {
    Item::new().with("id", format!("thing-{n:04}")).with("color", "red").with("text", text)
}

fn open(dir: &Path) -> Result<Embedded, Error> {
    let options = Options { reserve_bytes: 0, cache_bytes: 4 * 1024 * 1024, ..Options::new(dir) };
    Embedded::open(&options, &[table()], support::clock() as Arc<dyn Clock>, Arc::new(()))
}

type Things = BTreeMap<String, Item>;

/// Fills a store, one commit an item, and changes some of them again.
async fn fill(store: &Embedded, count: usize, text: impl Fn(usize) -> String) -> Things {
    let mut things = Things::new();
    for n in (0..count).chain((0..count).step_by(3)) {
        let again = things.len() == count;
        let item = item(n, &if again { format!("changed {n}") } else { text(n) });
        store.transact(vec![Write::put(&table(), item.clone())]).await.unwrap();
        things.insert(format!("thing-{n:04}"), item);
    }
    things
}

/// What became of a damaged store.
#[derive(Debug, PartialEq)]
enum Outcome {
    Right,
    /// With a sentence, at the start or at the read.
    Refused(String),
    /// Not what was written, and no error.
    Wrong(String),
}

async fn read_all(dir: &Path, things: &Things) -> Outcome {
    let store = match open(dir) {
        Ok(store) => store,
        Err(e) => return Outcome::Refused(e.to_string()),
    };
    let mut found = Things::new();
    let mut after = None;
    loop {
        let page = match store.query(&table(), &Query::new("red").index("by-color").limit(100).after(after)).await {
            Ok(page) => page,
            Err(e) => return Outcome::Refused(e.to_string()),
        };
        found.extend(page.items.into_iter().map(|item| (item.str("id").unwrap_or_default().to_owned(), item)));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    for (id, thing) in things {
        match store.get(&table(), &Key::new(id)).await {
            Ok(there) if there.as_ref() == Some(thing) && found.get(id) == Some(thing) => {}
            Ok(there) => return Outcome::Wrong(format!("{id} is {there:?} and in the index {:?}", found.get(id))),
            Err(e) => return Outcome::Refused(e.to_string()),
        }
    }
    match found.len() == things.len() {
        true => Outcome::Right,
        false => Outcome::Wrong("there are things that were never put".to_owned()),
    }
}

/// A store's files in memory, without the zeros at the ends of logs.
struct Image {
    dirs: Vec<PathBuf>,
    files: Vec<File>,
}

struct File {
    path: PathBuf,
    written: Vec<u8>,
    len: u64,
}

impl Image {
    fn of(dir: &Path) -> Self {
        let mut image = Self { dirs: Vec::new(), files: Vec::new() };
        image.take_in(dir, Path::new(""));
        image.files.sort_by(|a, b| a.path.cmp(&b.path));
        image
    }

    fn take_in(&mut self, root: &Path, below: &Path) {
        self.dirs.push(below.to_owned());
        for entry in std::fs::read_dir(root.join(below)).unwrap().map(Result::unwrap) {
            let path = below.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                self.take_in(root, &path);
            } else {
                let mut written = std::fs::read(entry.path()).unwrap();
                let len = written.len() as u64;
                written.truncate(written.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
                self.files.push(File { path, written, len });
            }
        }
    }

    fn log(&self) -> &File {
        self.files.iter().find(|file| file.path.ends_with("log/0.log")).unwrap()
    }

    /// Puts it into a directory, which is emptied before.
    fn put(&self, dir: &Path) {
        let _ = std::fs::remove_dir_all(dir);
        for path in &self.dirs {
            std::fs::create_dir_all(dir.join(path)).unwrap();
        }
        for File { path, written, len } in &self.files {
            std::fs::write(dir.join(path), written).unwrap();
            std::fs::File::options().write(true).open(dir.join(path)).unwrap().set_len(*len).unwrap();
        }
    }
}

fn flip_bit(path: &Path, place: u64, bit: u64) {
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, place).unwrap();
    file.write_all_at(&[byte[0] ^ (1 << bit)], place).unwrap();
}

/// Panics of any thread, counted.
fn panics() -> &'static AtomicUsize {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    static HOOK: std::sync::Once = std::sync::Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            COUNT.fetch_add(1, Ordering::SeqCst);
            before(info);
        }));
    });
    &COUNT
}

fn next(random: &mut u64) -> u64 {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *random >> 33
}

/// Flips one bit of each of `count` places spread over every file; no outcome may be wrong.
async fn flip(store: &Path, things: &Things, count: u64, mut random: u64) {
    let scratch = tempfile::tempdir().unwrap();
    let (panics, dir, image) = (panics(), scratch.path().join("data"), Image::of(store));
    let files: Vec<_> = image.files.iter().filter(|file| !file.written.is_empty()).collect();
    let (mut right, mut refused) = (0, 0);
    for round in 0..count {
        let File { path, written, .. } = files[usize::try_from(round).unwrap() % files.len()];
        let (place, bit) = (next(&mut random) % written.len() as u64, next(&mut random) % 8);
        image.put(&dir);
        flip_bit(&dir.join(path), place, bit);
        match read_all(&dir, things).await {
            Outcome::Right => right += 1,
            Outcome::Refused(_) => refused += 1,
            Outcome::Wrong(how) => panic!("bit {bit} of byte {place} of {}: {how}", path.display()),
        }
        assert_eq!(panics.load(Ordering::SeqCst), 0, "bit {bit} of byte {place} of {}: a panic", path.display());
    }
    println!("{count} flips in {} files: {refused} refused, {right} without effect, 0 wrong", files.len());
}

#[tokio::test]
async fn a_flipped_bit_in_a_small_store_is_refused_or_without_effect() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let store = open(&data).unwrap();
    let things = fill(&store, 40, |n| format!("text {n} ").repeat(n * 20)).await;
    drop(store);
    assert_eq!(read_all(&data, &things).await, Outcome::Right);
    flip(&data, &things, 390, 1).await;
}

fn has_tables(data: &Path) -> bool {
    let tables = std::fs::read_dir(data.join("store/keyspaces/1/tables")).unwrap();
    tables.map(Result::unwrap).any(|entry| entry.metadata().unwrap().len() > 1000)
}

// Large enough that most of it has left the log for tables.
#[tokio::test]
async fn a_flipped_bit_in_a_store_with_tables_is_refused_or_without_effect() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let store = open(&data).unwrap();
    let mut things = fill(&store, 170, |n| format!("text {n} ").repeat(38_000)).await;
    // Tables are written when it comes to it; small commits go on until there is one.
    for n in 1000..9000 {
        if has_tables(&data) {
            break;
        }
        store.transact(vec![Write::put(&table(), item(n, "small"))]).await.unwrap();
        things.insert(format!("thing-{n:04}"), item(n, "small"));
    }
    drop(store);
    assert!(has_tables(&data));
    assert_eq!(read_all(&data, &things).await, Outcome::Right);
    flip(&data, &things, 120, 2).await;
}

// A crash within the second before the next high-water mark: no mark at all is the worst of these.
#[tokio::test]
async fn damage_above_the_high_water_mark_costs_at_most_the_last_commit() {
    let dir = tempfile::tempdir().unwrap();
    let (data, cut) = (dir.path().join("data"), dir.path().join("cut"));
    let store = open(&data).unwrap();
    let mut things = fill(&store, 40, |n| format!("text {n} ").repeat(n * 4)).await;
    let before_last = Image::of(&data).log().written.len();
    store.transact(vec![Write::put(&table(), item(5000, "the last"))]).await.unwrap();
    let mut image = Image::of(&data);
    image.files.retain(|file| !file.path.ends_with("HIGH-WATER"));
    let (log, end) = (&image.log().path, image.log().written.len());
    let without_last = things.clone();
    things.insert("thing-5000".to_owned(), item(5000, "the last"));
    let (mut refused, mut torn) = (0, 0);
    // All over the last commit, and here and there before it.
    for place in (0..before_last).step_by(211).chain((before_last..end).step_by(2)) {
        image.put(&cut);
        flip_bit(&cut.join(log), place as u64, 4);
        match read_all(&cut, &things).await {
            Outcome::Right => {}
            Outcome::Refused(why) => {
                assert!(why.contains("0.log is damaged at byte"), "{why}");
                refused += 1;
            }
            Outcome::Wrong(_) => {
                assert!(place >= before_last, "byte {place} of {end} cost more than the last commit");
                assert_eq!(read_all(&cut, &without_last).await, Outcome::Right);
                torn += 1;
            }
        }
    }
    println!("{end} bytes of log: {refused} flips refused, {torn} taken for a torn last commit");
    assert!(refused > 0 && torn > 0);
}

// The mark was noted: a log that ends before it is refused, wherever it was cut, and is left as it was.
#[tokio::test]
async fn a_cut_log_is_refused_below_the_high_water_mark_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (data, cut) = (dir.path().join("data"), dir.path().join("cut"));
    let store = open(&data).unwrap();
    let things = fill(&store, 40, |n| format!("text {n} ").repeat(n * 4)).await;
    drop(store);
    let image = Image::of(&data);
    let (log, end) = (&image.log().path, image.log().written.len() as u64);
    for len in (0..end).step_by(97) {
        image.put(&cut);
        std::fs::File::options().write(true).open(cut.join(log)).unwrap().set_len(len).unwrap();
        let Outcome::Refused(why) = read_all(&cut, &things).await else { panic!("cut at {len} of {end}") };
        assert!(why.contains("was acknowledged") || why.contains("damaged"), "{why}");
        if why.contains("its log is cut") && len > end / 2 {
            assert_eq!(std::fs::metadata(cut.join(log)).unwrap().len(), len, "the evidence was changed");
        }
    }
}
