//! The physical limit of this machine for "2xx means committed and fsynced".
//!
//! `POST /limit` exists only on a server that was started with a limit file. Its handler does nothing but
//! [`Appender::append`]: every body that waits is written in one go to a preallocated file, one `fdatasync` makes them
//! durable, and all of them are answered. No server that keeps its promise can answer faster on this disk, so the
//! other scenarios are compared with it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

/// Large enough that the writes wander over the disk, small enough to prepare in a moment.
pub const FILE_BYTES: u64 = 64 << 20;
/// Requests that may wait; beyond that `append` waits for room.
const WAITING_MAX: usize = 4096;
const ZEROS: usize = 1 << 20;

/// Appends to one preallocated file with group commit. Cloning is cheap and shares the file.
#[derive(Debug, Clone)]
pub struct Appender {
    waiting: mpsc::Sender<Append>,
    syncs: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Append {
    body: Bytes,
    answer: oneshot::Sender<io::Result<()>>,
}

impl Appender {
    /// Writes `bytes` zeros to `path`, so that later writes change no metadata, and starts the committer thread, which
    /// ends when the last clone is dropped.
    pub fn create(path: &Path, bytes: u64) -> io::Result<Self> {
        if bytes == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a limit file needs room"));
        }
        let file = OpenOptions::new().create(true).truncate(true).write(true).open(path)?;
        let mut tape = Tape { file, bytes, offset: 0 };
        let zeros = vec![0; ZEROS];
        let mut left = bytes;
        while left > 0 {
            let step = left.min(ZEROS as u64);
            tape.write(zeros.get(..usize::try_from(step).unwrap_or(ZEROS)).unwrap_or(&zeros))?;
            left -= step;
        }
        tape.file.sync_all()?;

        let (waiting, inbox) = mpsc::channel(WAITING_MAX);
        let syncs = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&syncs);
        std::thread::Builder::new().name("limit".into()).spawn(move || commit(inbox, tape, &counter))?;
        Ok(Self { waiting, syncs })
    }

    /// Returns when the body is on the disk.
    pub async fn append(&self, body: Bytes) -> io::Result<()> {
        let (answer, answered) = oneshot::channel();
        self.waiting.send(Append { body, answer }).await.map_err(|_closed| io::Error::other("the committer ended"))?;
        answered.await.map_err(|_dropped| io::Error::other("the committer ended"))?
    }

    /// How many times the file was synced for requests.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }
}

/// The committer thread: takes everything that waits, one write, one sync, then all the answers.
fn commit(mut inbox: mpsc::Receiver<Append>, mut tape: Tape, syncs: &AtomicU64) {
    let mut group = Vec::new();
    let mut buffer = Vec::new();
    while inbox.blocking_recv_many(&mut group, WAITING_MAX) > 0 {
        buffer.clear();
        for append in &group {
            buffer.extend_from_slice(&append.body);
        }
        let result = tape.write(&buffer).and_then(|()| tape.file.sync_data());
        syncs.fetch_add(1, Ordering::Relaxed);
        for append in group.drain(..) {
            // A requester that went away does not want the answer.
            let _ = append.answer.send(result.as_ref().copied().map_err(copy));
        }
        if result.is_err() {
            // After a failed sync nobody knows what is on the disk: end, so that every further append fails.
            return;
        }
    }
}

/// `io::Error` cannot be cloned, and every request of the group needs one.
fn copy(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), error.to_string())
}

/// A file of fixed size that is written from the beginning again when the end is reached.
#[derive(Debug)]
struct Tape {
    file: File,
    bytes: u64,
    offset: u64,
}

impl Tape {
    fn write(&mut self, mut data: &[u8]) -> io::Result<()> {
        while !data.is_empty() {
            let room = usize::try_from(self.bytes - self.offset).unwrap_or(usize::MAX);
            let (now, later) = data.split_at(data.len().min(room));
            self.file.write_all_at(now, self.offset)?;
            self.offset = (self.offset + now.len() as u64) % self.bytes;
            data = later;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::JoinSet;

    #[tokio::test]
    async fn bodies_land_in_the_file_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("limit");
        let appender = Appender::create(&path, 4096).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), vec![0; 4096]);
        appender.append(Bytes::from_static(b"one")).await.unwrap();
        appender.append(Bytes::from_static(b"two")).await.unwrap();
        let stored = std::fs::read(&path).unwrap();
        assert_eq!((&stored[..6], stored.len()), (&b"onetwo"[..], 4096));
    }

    #[tokio::test]
    async fn the_end_of_the_file_continues_at_its_beginning() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("limit");
        let appender = Appender::create(&path, 5).unwrap();
        for body in ["abc", "def", "ghijklmn"] {
            appender.append(Bytes::from_static(body.as_bytes())).await.unwrap();
        }
        assert_eq!(std::fs::read(&path).unwrap(), b"klmnj");
        assert!(Appender::create(&path, 0).is_err());
    }

    #[tokio::test]
    async fn concurrent_appends_all_land() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("limit");
        let appender = Appender::create(&path, 1 << 16).unwrap();
        let mut tasks = JoinSet::new();
        for n in 0..500_u32 {
            let appender = appender.clone();
            tasks.spawn(async move { appender.append(Bytes::from(format!("{n:08}"))).await });
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap().unwrap();
        }
        assert!((1..=500).contains(&appender.syncs()), "{}", appender.syncs());
        let stored = std::fs::read(&path).unwrap();
        let mut found: Vec<&[u8]> = stored[..4000].chunks(8).collect();
        found.sort_unstable();
        let wanted: Vec<String> = (0..500).map(|n| format!("{n:08}")).collect();
        assert_eq!(found, wanted.iter().map(String::as_bytes).collect::<Vec<_>>());
    }

    #[test]
    fn what_waits_shares_one_sync() {
        let file = tempfile::tempfile().unwrap();
        let (waiting, inbox) = mpsc::channel(WAITING_MAX);
        let mut answers = Vec::new();
        for n in 0..500_u32 {
            let (answer, answered) = oneshot::channel();
            waiting.try_send(Append { body: Bytes::from(format!("{n:08}")), answer }).unwrap();
            answers.push(answered);
        }
        drop(waiting);
        let syncs = AtomicU64::new(0);
        commit(inbox, Tape { file, bytes: 1 << 16, offset: 0 }, &syncs);
        assert_eq!(syncs.into_inner(), 1);
        assert!(answers.iter_mut().all(|answer| matches!(answer.try_recv(), Ok(Ok(())))));
    }
}
