//! `tidings serve --demo`: whatever lies around, it harms nothing and nobody.

use std::path::Path;

use tempfile::tempdir;

use crate::support::process::{Running, run, tidings};

/// A configuration whose use nobody could overlook: its store does not answer.
const REAL: &str = "[store]\nengine = \"dynamodb\"\nregion = \"us-east-1\"\nendpoint = \"http://127.0.0.1:1\"\n\
    [email]\ntransport = \"smtp\"\nsmtp_url = \"smtp://127.0.0.1:1?tls=none\"\n\
    [process_alerts]\nrecipients = [\"everybody@example.com\"]\n";

/// Plays it in a directory whose temporary one is `temporary`, and ends it as Ctrl-C does; gives all it said.
fn play(directory: &Path, temporary: &Path, arguments: &[&str]) -> String {
    let mut command = tidings(directory, &["serve", "--demo", "--listen", "127.0.0.1:0"]);
    command.args(arguments).env("TMPDIR", temporary);
    let mut running = Running::start(command);
    running.wait_for("Three things to try");
    // Until its company is at work and its store is written to.
    running.wait_for("tidings send -");
    running.signal(rustix::process::Signal::INT);
    let (code, said) = running.wait();
    assert_eq!(code, Some(0), "{said}");
    said
}

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).unwrap().next().is_none()
}

#[test]
fn a_directory_of_its_own_goes_with_it_and_nothing_is_written_there_meanwhile() {
    let (directory, temporary) = (tempdir().unwrap(), tempdir().unwrap());
    let said = play(directory.path(), temporary.path(), &[]);
    assert!(!said.contains("a write to disk failed"), "{said}");
    assert!(is_empty(temporary.path()), "{said}");
    assert!(is_empty(directory.path()), "{said}");
}

#[test]
fn a_directory_that_was_given_stays_and_is_taken_again() {
    let (directory, temporary) = (tempdir().unwrap(), tempdir().unwrap());
    for _ in 0..2 {
        play(directory.path(), temporary.path(), &["--data", "shown"]);
        assert!(directory.path().join("shown/admin.token").exists());
        assert!(directory.path().join("shown/store").exists());
    }
    assert!(is_empty(temporary.path()));
}

#[test]
fn a_directory_with_anything_else_in_it_is_left_alone() {
    let directory = tempdir().unwrap();
    let home = directory.path().join("home");
    std::fs::create_dir(&home).unwrap();
    std::fs::write(home.join("thesis.txt"), "all of it").unwrap();
    let ended = run(directory.path(), &["serve", "--demo", "--data", "home", "--listen", "127.0.0.1:0"]).expect(1);
    assert!(ended.sentence().contains("home is not empty and not a demo's"), "{ended:?}");
    let names: Vec<_> = std::fs::read_dir(&home).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["thesis.txt"]);
}

#[test]
fn a_configuration_that_lies_there_is_not_read_and_one_that_is_given_reaches_nobody() {
    let (directory, temporary) = (tempdir().unwrap(), tempdir().unwrap());
    std::fs::write(directory.path().join("tidings.toml"), "nonsense").unwrap();
    std::fs::write(directory.path().join("real.toml"), REAL).unwrap();
    play(directory.path(), temporary.path(), &[]);
    play(directory.path(), temporary.path(), &["--config", "real.toml"]);
}

#[test]
fn a_start_that_fails_leaves_no_directory_behind() {
    let (directory, temporary) = (tempdir().unwrap(), tempdir().unwrap());
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for arguments in [&["--listen", address.as_str()], &["--config", "absent.toml"]] {
        let mut command = tidings(directory.path(), &["serve", "--demo"]);
        let output = command.args(arguments).env("TMPDIR", temporary.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(is_empty(temporary.path()));
    }
}
