//! A disk that fails: the requests that fail say so, nothing is acknowledged from then on, reads go on, readiness
//! says why, and after a restart on a good disk everything acknowledged is there (SX-02).

use std::path::Path;

use super::check::{Figures, compare};
use super::disk::{Disk, EIO, ENOSPC, EROFS, Fault};
use super::http::Answer;
use super::load::{Ledger, Until, event};
use super::random::Random;
use super::server::{Ended, Server, Start};

struct Bench {
    dir: tempfile::TempDir,
    disk: Disk,
    ledger: Ledger,
    figures: Figures,
    random: Random,
}

impl Bench {
    fn new(test: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::new(dir.path());
        let (ledger, figures) = (Ledger::default(), Figures::default());
        Self { dir, disk, ledger, figures, random: Random::from_environment(test) }
    }

    fn start(&self) -> Result<Server, Ended> {
        Start { disk: Some(&self.disk), ..Start::default() }.run(&self.dir.path().join("data"))
    }

    /// Under load, a fault; what the server says of it; and a restart on a good disk.
    fn round(&mut self, fault: Fault) {
        let server = self.start().expect("it starts on a good disk");
        self.disk.set(fault);
        let disk = &self.disk;
        let answers = self.ledger.load(server, &Until::Refused, &mut self.random, |server| {
            assert!(disk.faults() > 0, "{fault:?} did not happen");
            says_that_it_is_broken(&server);
            server.kill();
        });
        assert!(!answers.is_empty());
        for answer in &answers {
            is_a_clear_refusal(answer, fault);
        }
        self.disk.heal();
        let server = self.start().expect("it starts again on a good disk");
        self.figures.recovery = self.figures.recovery.max(server.took);
        let mut connection = server.connect();
        let present = compare(&self.ledger, &mut connection, &mut self.figures);
        self.ledger.resend(&mut connection, &present);
        server.kill();
        assert_eq!((self.figures.lost, self.figures.doubled), (0, 0), "after {fault:?}");
    }
}

fn is_a_clear_refusal(answer: &Answer, fault: Fault) {
    assert!(matches!(answer.status, 503 | 507), "{fault:?}: {answer:?}");
    assert_eq!(answer.content_type, "application/problem+json");
    let detail = answer.body["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("disk"), "{fault:?}: {answer:?}");
}

fn says_that_it_is_broken(server: &Server) {
    let mut connection = server.connect();
    let ready = connection.get("/readyz").unwrap();
    assert_eq!(ready.status, 503);
    let why = ready.body["detail"].as_str().unwrap_or_default();
    assert!(why.contains("a write to disk failed"), "{why}");
    assert_eq!(connection.get("/healthz").unwrap().status, 200);
    assert_eq!(connection.get("/events?limit=1").unwrap().status, 200);
}

#[test]
fn a_failed_fsync_ends_all_acknowledging() {
    let mut bench = Bench::new("fsync fails");
    for after in 0..20 {
        // Also when the next fsync would succeed: what the failed one had to write is gone from memory by then.
        bench.round(Fault::Sync { after, errno: EIO, forever: after % 2 == 0 });
    }
    bench.figures.print("fsync fails");
}

#[test]
fn a_failed_write_ends_all_acknowledging() {
    let mut bench = Bench::new("write fails");
    for (number, errno) in [ENOSPC, EIO, EROFS].into_iter().cycle().take(9).enumerate() {
        let after = i64::try_from(bench.random.below(100_000)).unwrap();
        bench.round(Fault::Write { after, errno, forever: number % 2 == 0 });
    }
    bench.figures.print("write fails");
}

#[test]
fn slow_fsyncs_make_answers_slow_and_nothing_else() {
    let mut bench = Bench::new("slow fsync");
    let server = bench.start().unwrap();
    bench.disk.set(Fault::Slow { ms: 200 });
    let answers = bench.ledger.load(server, &Until::Acknowledged(40), &mut bench.random, |server| drop(server.kill()));
    assert!(answers.is_empty(), "{answers:?}");
    bench.disk.heal();
    let server = bench.start().unwrap();
    compare(&bench.ledger, &mut server.connect(), &mut bench.figures);
    assert_eq!((bench.figures.lost, bench.figures.doubled), (0, 0));
}

/// A start that fails says why in one sentence and ends with 1.
fn is_one_sentence(ended: &Ended) {
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    let said: Vec<_> =
        ended.stderr.lines().filter(|line| !line.contains(" WARN ") && !line.contains("ERROR")).collect();
    assert_eq!(said.len(), 1, "{ended:?}");
    assert!(!ended.stderr.contains("panicked"), "{ended:?}");
}

// Whatever an interrupted first start leaves behind, the next one makes a working server of it.
#[test]
fn a_first_start_that_fails_at_any_fsync_can_be_repeated() {
    let mut bench = Bench::new("first start fails");
    let data = bench.dir.path().join("data");
    drop(bench.start().unwrap().kill());
    let syncs = bench.disk.syncs();
    for after in 0..syncs.min(40) {
        std::fs::remove_dir_all(&data).unwrap();
        bench.disk.heal();
        bench.disk.set(Fault::Sync { after, errno: EIO, forever: false });
        match bench.start() {
            Err(ended) => is_one_sentence(&ended),
            Ok(server) => drop(server.kill()),
        }
        bench.disk.heal();
        if after % 2 == 1 {
            bench.disk.cut_power(&mut bench.random);
        }
        let server = bench.start().unwrap_or_else(|ended| panic!("after fsync {after} failed: {ended:?}"));
        let answer = server.connect().post("/events", &event("first").to_string()).unwrap();
        assert_eq!(answer.status, 202, "after fsync {after} failed: {answer:?}");
        server.kill();
    }
    println!("first start fails: {syncs} fsyncs");
}

#[test]
fn a_read_only_data_directory_is_refused_in_one_sentence() {
    let bench = Bench::new("read-only");
    for there_already in [false, true] {
        if there_already {
            bench.disk.heal();
            bench.start().unwrap().kill();
        }
        bench.disk.set(Fault::ReadOnly);
        let Err(ended) = bench.start() else { panic!("it starts on a read-only disk") };
        is_one_sentence(&ended);
        assert!(ended.stderr.contains("Read-only file system"), "{ended:?}");
    }
}

#[test]
fn below_the_reserve_writes_are_refused_with_507_and_reads_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let data: &Path = &dir.path().join("data");
    let server = Start::default().run(data).unwrap();
    assert_eq!(server.connect().post("/events", &event("before").to_string()).unwrap().status, 202);
    let (status, said) = server.stop();
    assert_eq!(status.code(), Some(0), "{said}");

    let server = Start { reserve_mb: 1_048_576, ..Start::default() }.run(data).unwrap();
    let mut connection = server.connect();
    let refused = connection.post("/events", &event("during").to_string()).unwrap();
    assert_eq!((refused.status, refused.content_type.as_str()), (507, "application/problem+json"));
    assert!(refused.body["detail"].as_str().unwrap_or_default().contains("store.reserve_mb"), "{refused:?}");
    assert_eq!(connection.get("/events/before").unwrap().status, 200);
    let ready = connection.get("/readyz").unwrap();
    assert_eq!(ready.status, 503);
    assert!(ready.body["detail"].as_str().unwrap_or_default().contains("reserve"), "{ready:?}");
    assert_eq!(connection.get("/healthz").unwrap().status, 200);
    server.kill();

    let server = Start::default().run(data).unwrap();
    assert_eq!(server.connect().get("/events/during").unwrap().status, 404);
    server.kill();
}
