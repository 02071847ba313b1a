//! Files that commands write: whole or not there, and nobody else's is touched.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

use tempfile::{TempDir, tempdir};

use crate::support::process::{Served, run, tidings};

fn served() -> (TempDir, Served) {
    let directory = tempdir().unwrap();
    let server = Served::start(directory.path());
    (directory, server)
}

fn names(at: &Path) -> Vec<String> {
    let names = fs::read_dir(at).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name != "tidings-data").collect();
    names.sort();
    names
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

// A device or a pipe is written into, not replaced; a link stays one.
#[test]
fn an_export_goes_where_its_name_says() {
    let (directory, _server) = served();
    let at = directory.path();
    let fifo = at.join("pipe");
    let mode_of_fifo = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode_of_fifo, 0).unwrap();
    let reading = std::thread::spawn({
        let fifo = fifo.clone();
        move || {
            let mut text = String::new();
            fs::File::open(fifo).unwrap().read_to_string(&mut text).unwrap();
            text
        }
    });
    run(at, &["alerts", "export", "-o", "pipe"]).expect(0);
    assert!(fs::symlink_metadata(&fifo).unwrap().file_type().is_fifo());
    assert!(reading.join().unwrap().starts_with("PartitionKey,"));

    let through = run(at, &["alerts", "export", "-o", "/proc/self/fd/1"]).expect(0);
    assert!(through.stdout.starts_with("PartitionKey,"), "{through:?}");
    // What the shell says of its file holds: this one is added to.
    fs::write(at.join("log"), "before\n").unwrap();
    let log = fs::File::options().append(true).open(at.join("log")).unwrap();
    let status = tidings(at, &["alerts", "export", "-o", "/proc/self/fd/1"]).stdout(log).status().unwrap();
    assert!(status.success());
    assert!(fs::read_to_string(at.join("log")).unwrap().starts_with("before\nPartitionKey,"));

    fs::create_dir(at.join("elsewhere")).unwrap();
    fs::write(at.join("elsewhere/real"), "old").unwrap();
    fs::set_permissions(at.join("elsewhere/real"), fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink("elsewhere/real", at.join("link")).unwrap();
    std::os::unix::fs::symlink("elsewhere/none", at.join("dangling")).unwrap();
    for link in ["link", "dangling"] {
        run(at, &["alerts", "export", "-o", link]).expect(0);
        assert!(fs::symlink_metadata(at.join(link)).unwrap().is_symlink());
        assert!(fs::read_to_string(at.join(link)).unwrap().starts_with("PartitionKey,"));
    }
    assert_eq!(mode(&at.join("elsewhere/real")), 0o640);
    let refused = run(at, &["alerts", "export", "-o", "elsewhere"]).expect(1);
    assert!(refused.sentence().contains("cannot write elsewhere"), "{refused:?}");
    assert_eq!(names(&at.join("elsewhere")), ["none", "real"]);
}

#[test]
fn a_file_of_somebody_else_is_left_alone() {
    let (directory, _server) = served();
    let at = directory.path();
    for name in ["b.partial", "b.backup.partial", "a.csv.partial"] {
        fs::write(at.join(name), "mine").unwrap();
    }
    run(at, &["backup", "b.backup"]).expect(0);
    run(at, &["alerts", "export", "-o", "a.csv"]).expect(0);
    assert_eq!(names(at), ["a.csv", "a.csv.partial", "b.backup", "b.backup.partial", "b.partial"]);
    for name in ["b.partial", "b.backup.partial", "a.csv.partial"] {
        assert_eq!(fs::read_to_string(at.join(name)).unwrap(), "mine");
    }
    // It holds what the store does, secrets too.
    assert_eq!(mode(&at.join("b.backup")), 0o600);
    std::os::unix::fs::symlink("nowhere", at.join("dangling")).unwrap();
    assert!(run(at, &["backup", "dangling"]).expect(1).sentence().contains("exists already"));
    assert!(fs::symlink_metadata(at.join("dangling")).unwrap().is_symlink());
}

#[test]
fn two_backups_at_once_are_both_whole() {
    let (directory, _server) = served();
    let at = directory.path();
    let running: Vec<_> = ["c.1", "c.2", "c.3"].map(|name| tidings(at, &["backup", name]).spawn().unwrap()).into();
    for child in running {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    assert_eq!(names(at), ["c.1", "c.2", "c.3"]);
    for name in names(at) {
        run(at, &["restore", &name, "--data", &format!("data-{name}")]).expect(0);
    }
}

#[test]
fn what_fails_leaves_nothing() {
    let (directory, _server) = served();
    let at = directory.path();
    run(at, &["backup", "b", "--token", "tdg_none"]).expect(1);
    run(at, &["alerts", "export", "-o", "a", "--token", "tdg_none"]).expect(1);
    run(at, &["backup", "b", "--url", "http://127.0.0.1:1"]).expect(1);
    run(at, &["backup", "no/such/b"]).expect(1);
    assert_eq!(names(at), Vec::<String>::new());
}
