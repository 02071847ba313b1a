//! A disk that fails and forgets: `shim.c` compiled and attached, its control file, and the cut of the power.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::random::Random;

/// What a disk writes at once or not at all.
const SECTOR: u64 = 512;

/// Places in the control file, as in `shim.c`.
const SYNC_COUNTDOWN: u64 = 0;
const SYNC_ERRNO: u64 = 1;
const SYNC_FOREVER: u64 = 2;
const WRITE_BUDGET: u64 = 3;
const WRITE_ERRNO: u64 = 4;
const WRITE_FOREVER: u64 = 5;
const SYNC_DELAY_MS: u64 = 6;
const CREATE_ERRNO: u64 = 7;
const SYNCS: u64 = 8;
const FAULTS: u64 = 9;
const CONTROLS: usize = 11;

pub const EIO: i64 = 5;
pub const ENOSPC: i64 = 28;
pub const EROFS: i64 = 30;

/// What the disk does wrong.
#[derive(Debug, Clone, Copy)]
pub enum Fault {
    /// The sync after `after` more fails, and with `forever` every later one.
    Sync { after: i64, errno: i64, forever: bool },
    /// Writes fail after so many more bytes; with `forever` all of them, else one.
    Write { after: i64, errno: i64, forever: bool },
    /// Nothing can be opened for writing.
    ReadOnly,
    /// Every sync takes so long.
    Slow { ms: i64 },
}

/// A directory on such a disk.
pub struct Disk {
    root: PathBuf,
    shim: PathBuf,
    log: PathBuf,
    control: File,
    control_path: PathBuf,
}

impl Disk {
    /// Below `dir`, which also gets the shim, its log and its control file; the disk's own root is `dir/data`.
    pub fn new(dir: &Path) -> Self {
        let shim = dir.join("shim.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/crash/shim.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-shared", "-fPIC", "-pthread", "-o"]).arg(&shim).arg(&source);
        let output = compiler.output().expect("these tests need a C compiler: cc");
        assert!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr));
        let control_path = dir.join("control");
        let control = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&control_path);
        let control = control.expect("the control file");
        control.write_all_at(&[0; CONTROLS * 8], 0).unwrap();
        let disk = Self { root: dir.join("data"), shim, log: dir.join("log"), control, control_path };
        disk.heal();
        disk
    }

    pub fn attach(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.shim).env("TIDINGS_DISK_ROOT", &self.root);
        command.env("TIDINGS_DISK_LOG", &self.log).env("TIDINGS_DISK_CONTROL", &self.control_path);
    }

    pub fn set(&self, fault: Fault) {
        match fault {
            Fault::Sync { after, errno, forever } => {
                self.write(SYNC_ERRNO, errno);
                self.write(SYNC_FOREVER, i64::from(forever));
                self.write(SYNC_COUNTDOWN, after);
            }
            Fault::Write { after, errno, forever } => {
                self.write(WRITE_ERRNO, errno);
                self.write(WRITE_FOREVER, i64::from(forever));
                self.write(WRITE_BUDGET, after);
            }
            Fault::ReadOnly => self.write(CREATE_ERRNO, EROFS),
            Fault::Slow { ms } => self.write(SYNC_DELAY_MS, ms),
        }
    }

    /// A good disk again, and its counters at zero.
    pub fn heal(&self) {
        for place in [SYNC_FOREVER, SYNC_DELAY_MS, CREATE_ERRNO, SYNCS, FAULTS] {
            self.write(place, 0);
        }
        self.write(SYNC_COUNTDOWN, -1);
        self.write(WRITE_BUDGET, -1);
    }

    pub fn syncs(&self) -> i64 {
        self.read(SYNCS)
    }

    pub fn faults(&self) -> i64 {
        self.read(FAULTS)
    }

    fn read(&self, place: u64) -> i64 {
        let mut bytes = [0; 8];
        self.control.read_exact_at(&mut bytes, place * 8).unwrap();
        i64::from_le_bytes(bytes)
    }

    fn write(&self, place: u64, value: i64) {
        self.control.write_all_at(&value.to_le_bytes(), place * 8).unwrap();
    }

    /// Cuts the power, after the process is dead: of what no sync covers, each sector keeps some first part of its
    /// writes, chosen by `random`; a file that grew may keep its new length; a file whose directory was not synced
    /// may be gone. Then the log starts anew. Gives how many sectors were taken back.
    pub fn cut_power(&self, random: &mut Random) -> usize {
        let log = std::fs::read(&self.log).expect("the shim's log");
        let unsynced = Unsynced::read(&log);
        std::fs::remove_file(&self.log).unwrap();
        let mut paths = BTreeMap::new();
        find_files(&self.root, &mut paths);
        let mut dropped = 0;
        // How eagerly the disk wrote by itself: at one end all of it got there, at the other nothing.
        let eagerness = random.below(5);
        for (inode, changes) in &unsynced.changes {
            if let Some(path) = paths.get(inode) {
                dropped += take_back(path, changes, eagerness, random);
            }
        }
        for (path, inode) in unsynced.created.iter().rev() {
            if paths.get(inode) == Some(path) && random.below(4) >= eagerness {
                let _ = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
            }
        }
        dropped
    }
}

/// One change that no sync covers.
struct Change {
    at: u64,
    length: u64,
    /// What was there; shorter than `length` where the file ended.
    before: Vec<u8>,
    size_before: u64,
}

/// What would not survive.
#[derive(Default)]
struct Unsynced {
    changes: BTreeMap<u64, Vec<Change>>,
    created: Vec<(PathBuf, u64)>,
}

impl Unsynced {
    fn read(log: &[u8]) -> Self {
        let mut changes = BTreeMap::<u64, Vec<(u64, Change)>>::new();
        let mut created = Vec::new();
        let mut position = 0_usize;
        // A record cut short by the kill was followed by nothing: its change never happened.
        while let Some(head) = log.get(position..position + 40) {
            let number = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().unwrap());
            let small = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap());
            let (kind, payload) = (small(0), usize::try_from(small(4)).unwrap());
            let (inode, at, length, size_before) = (number(8), number(16), number(24), number(32));
            let Some(payload) = log.get(position + 40..position + 40 + payload) else { break };
            let place = u64::try_from(position).unwrap();
            position += 40 + payload.len();
            match kind {
                1 | 2 => {
                    let change = Change { at, length, before: payload.to_vec(), size_before };
                    changes.entry(inode).or_default().push((place, change));
                }
                3 => {
                    // `at` is how far the log had come when this sync began.
                    changes.entry(inode).or_default().retain(|(place, _)| *place >= at);
                    created.retain(|(place, _, _, parent)| *parent != inode || *place >= at);
                }
                4 => {
                    let path = PathBuf::from(String::from_utf8(payload.to_vec()).unwrap());
                    changes.remove(&inode);
                    created.push((place, path, inode, at));
                }
                other => panic!("the shim's log has a record of kind {other}"),
            }
        }
        let keep = |(inode, list): (u64, Vec<(u64, Change)>)| (inode, list.into_iter().map(|(_, c)| c).collect());
        Self {
            changes: changes.into_iter().map(keep).collect(),
            created: created.into_iter().map(|(_, path, inode, _)| (path, inode)).collect(),
        }
    }
}

fn find_files(dir: &Path, found: &mut BTreeMap<u64, PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().map(Result::unwrap) {
        let metadata = entry.metadata().unwrap();
        found.insert(metadata.ino(), entry.path());
        if metadata.is_dir() {
            find_files(&entry.path(), found);
        }
    }
}

/// Undoes a file's unsynced changes, sector by sector, last change first, each sector down to a point of its own.
fn take_back(path: &Path, changes: &[Change], eagerness: u64, random: &mut Random) -> usize {
    let Some(first) = changes.first() else { return 0 };
    let file = OpenOptions::new().write(true).open(path).expect("a file of the store");
    let mut kept = BTreeMap::<u64, usize>::new();
    for (number, change) in changes.iter().enumerate().rev() {
        let mut at = change.at;
        while at < change.at + change.length {
            let sector = at / SECTOR;
            let end = ((sector + 1) * SECTOR).min(change.at + change.length);
            let keep = *kept.entry(sector).or_insert_with(|| match random.below(4) < eagerness {
                true => changes.len(),
                false => usize::try_from(random.below(changes.len() as u64 + 1)).unwrap() / 2,
            });
            if number >= keep {
                let piece = usize::try_from(at - change.at).unwrap()..usize::try_from(end - change.at).unwrap();
                let zeros = vec![0; piece.len()];
                let before = change.before.get(piece.start..piece.end.min(change.before.len()));
                file.write_all_at(&zeros, at).unwrap();
                file.write_all_at(before.unwrap_or_default(), at).unwrap();
            }
            at = end;
        }
    }
    let dropped = kept.values().filter(|keep| **keep < changes.len()).count();
    let size = file.metadata().unwrap().len();
    if size > first.size_before && random.one_in(2) {
        file.set_len(first.size_before).unwrap();
        return dropped.max(usize::try_from((size - first.size_before).div_ceil(SECTOR)).unwrap());
    }
    dropped
}
