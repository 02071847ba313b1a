//! Damage to the files of a store: what is read back is right, or there is an error; never wrong data, never a
//! panic, never a silent loss (SX-02).

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

/// The files of a store and how many bytes of each were ever written.
fn files(dir: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&entry.path()).into_iter().map(|(path, len)| (entry.file_name().into(), path, len)).map(
                |(name, path, len): (PathBuf, PathBuf, u64)| (name.join(path), len),
            ));
        } else {
            let bytes = std::fs::read(entry.path()).unwrap();
            let len = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            found.push((entry.file_name().into(), len as u64));
        }
    }
    found.sort();
    found
}

/// A copy without the zeros at the ends of journals.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            let bytes = std::fs::read(entry.path()).unwrap();
            let len = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            std::fs::write(&target, &bytes[..len]).unwrap();
            std::fs::File::options().write(true).open(&target).unwrap().set_len(bytes.len() as u64).unwrap();
        }
    }
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
    let (panics, dir) = (panics(), scratch.path().join("data"));
    let files: Vec<_> = files(store).into_iter().filter(|(_, len)| *len > 0).collect();
    let (mut right, mut refused) = (0, 0);
    for round in 0..count {
        let (path, len) = &files[usize::try_from(round).unwrap() % files.len()];
        let (place, bit) = (next(&mut random) % len, next(&mut random) % 8);
        copy(store, &dir);
        let file = std::fs::File::options().read(true).write(true).open(dir.join(path)).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, place).unwrap();
        file.write_all_at(&[byte[0] ^ (1 << bit)], place).unwrap();
        match read_all(&dir, things).await {
            Outcome::Right => right += 1,
            Outcome::Refused(_) => refused += 1,
            Outcome::Wrong(how) => panic!("bit {bit} of byte {place} of {}: {how}", path.display()),
        }
        assert_eq!(panics.load(Ordering::SeqCst), 0, "bit {bit} of byte {place} of {}: a panic", path.display());
        std::fs::remove_dir_all(&dir).unwrap();
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
    flip(&data, &things, 600, 1).await;
}

// Large enough that most of it has left the journal for tables.
#[tokio::test]
async fn a_flipped_bit_in_a_store_with_tables_is_refused_or_without_effect() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let store = open(&data).unwrap();
    let things = fill(&store, 150, |n| format!("text {n} ").repeat(20_000)).await;
    drop(store);
    assert_eq!(read_all(&data, &things).await, Outcome::Right);
    assert!(files(&data).iter().any(|(path, len)| path.to_string_lossy().contains("tables") && *len > 10_000));
    flip(&data, &things, 150, 2).await;
}
