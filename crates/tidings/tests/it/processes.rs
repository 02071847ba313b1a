//! The server as a process: starting, stopping, a second one, backup and restore.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use tempfile::tempdir;

use crate::support::Client;
use crate::support::process::{Running, Served, run, run_with_input, tidings};
use crate::support::raw::{self, Raw};

fn token(directory: &std::path::Path) -> String {
    std::fs::read_to_string(directory.join("tidings-data/admin.token")).unwrap().trim().to_owned()
}

fn client(directory: &std::path::Path, server: &Served) -> Client {
    Client::new(&server.url, Some(&token(directory)))
}

// SX-23: one command, nothing else.
#[test]
fn the_first_start_makes_everything_it_needs() {
    let directory = tempdir().unwrap();
    let server = Served::start(directory.path());
    let data = directory.path().join("tidings-data");
    let mode = std::fs::metadata(data.join("admin.token")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let announced: Value = serde_json::from_slice(&std::fs::read(data.join("server.json")).unwrap()).unwrap();
    assert_eq!(announced["url"], server.url);
    let first = token(directory.path());
    let said = server.stop();
    assert!(said.contains("admin.token") && !said.contains(&first), "{said}");
    assert!(!data.join("server.json").exists());
    let said = Served::start(directory.path()).stop();
    assert!(!said.contains("was written to"), "only the first time: {said}");
    assert_eq!(token(directory.path()), first);
}

// S003-66, SX-02: SIGTERM finishes what is under way, and exits 0.
#[tokio::test]
async fn a_request_under_way_at_sigterm_completes_and_is_kept() {
    let directory = tempdir().unwrap();
    let server = Served::start(directory.path());
    let event = r#"{"eventId":"e","eventType":"a"}"#;
    let mut connection = Raw::connect(server.url.trim_start_matches("http://").parse().unwrap()).await;
    let head = raw::head("POST", "/events", &token(directory.path()));
    let expecting = format!("{head}expect: 100-continue\r\ncontent-length: {}\r\n\r\n", event.len());
    connection.send(expecting).await;
    // The server waits for the body now: the request is under way.
    connection.read_until("100 Continue").await;
    let mut running = server.running;
    running.terminate();
    running.wait_for("stopping");
    connection.send(event).await;
    let answer = connection.last_answer().await;
    assert_eq!(answer.status, 202, "{answer:?}");
    let (code, said) = running.wait();
    assert_eq!(code, Some(0), "{said}");
    assert!(!directory.path().join("tidings-data/server.json").exists());
    let server = Served::start(directory.path());
    assert_eq!(client(directory.path(), &server).stored().await, ["e"]);
}

// SX-23
#[test]
fn a_second_server_on_the_same_data_is_refused_with_a_sentence() {
    let directory = tempdir().unwrap();
    let first = Served::start(directory.path());
    let second = run(directory.path(), &["serve", "--listen", "127.0.0.1:0"]).expect(1);
    assert!(second.sentence().contains("tidings-data"), "{second:?}");
    assert!(second.sentence().contains("another"), "{second:?}");
    // Started twice in the same way: it is the directory, and not the address, that matters.
    let address = first.url.trim_start_matches("http://");
    let second = run(directory.path(), &["serve", "--listen", address]).expect(1);
    assert!(second.sentence().contains("is using the data directory tidings-data"), "{second:?}");
    // The first one is none the worse for it.
    assert!(first.ask("/readyz").starts_with("HTTP/1.1 200"));
    run(directory.path(), &["token", "list"]).expect(0);
}

#[test]
fn an_address_in_use_is_refused_with_a_sentence() {
    let directory = tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ended = run(directory.path(), &["serve", "--listen", &address]).expect(1);
    assert!(ended.sentence().contains(&address) && ended.sentence().contains("--listen"), "{ended:?}");
    assert!(!directory.path().join("tidings-data/server.json").exists());
}

#[test]
fn a_data_directory_that_cannot_be_written_is_refused_with_a_sentence() {
    let directory = tempdir().unwrap();
    std::fs::write(directory.path().join("file"), "").unwrap();
    let ended = run(directory.path(), &["serve", "--listen", "127.0.0.1:0", "--data", "file/below"]).expect(1);
    assert!(ended.sentence().contains("file"), "{ended:?}");
}

// docs/operations.md: only where there is no token at all is there a new one.
#[test]
fn a_start_without_any_token_makes_the_administrators() {
    let directory = tempdir().unwrap();
    let at = directory.path();
    let server = Served::start(at);
    let made = run(at, &["token", "create", "--scope", "read", "--json"]).expect(0).stdout;
    let other = serde_json::from_str::<Value>(&made).unwrap()["id"].as_str().unwrap().to_owned();
    let list = run(at, &["token", "list", "--json"]).expect(0).stdout;
    let list: Value = serde_json::from_str(&list).unwrap();
    let first = list["items"].as_array().unwrap().iter().find(|token| token["id"] != other.as_str()).unwrap();
    let (first, lost) = (first["id"].as_str().unwrap().to_owned(), token(at));
    let spare = run(at, &["token", "create", "--scope", "admin"]).expect(0).stdout;
    run(at, &["token", "revoke", &first]).expect(0);
    server.stop();
    let server = Served::start(at);
    assert_eq!(token(at), lost, "there are others");
    let with_spare = |arguments: &[&str]| {
        let output = tidings(at, arguments).env("TIDINGS_TOKEN", spare.trim()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    with_spare(&["token", "revoke", &other]);
    let list: Value = serde_json::from_str(&with_spare(&["token", "list", "--json"])).unwrap();
    with_spare(&["token", "revoke", list["items"][0]["id"].as_str().unwrap()]);
    server.stop();
    let server = Served::start(at);
    assert_ne!(token(at), lost);
    run(at, &["token", "list"]).expect(0);
    server.stop();
}

// SX-02: what was acknowledged before a stop is there after it.
#[tokio::test]
async fn events_tokens_and_cursors_survive_a_restart() {
    let directory = tempdir().unwrap();
    let server = Served::start(directory.path());
    let batch: Vec<_> = (0..5).map(|n| json!({ "eventId": n.to_string(), "eventType": "a" })).collect();
    let before = client(directory.path(), &server);
    before.post("/events", &json!(batch)).await.expect(202);
    let page = before.get("/events?limit=2").await.expect(200);
    let whole = before.stored().await;
    server.stop();
    let server = Served::start(directory.path());
    let after = client(directory.path(), &server);
    assert_eq!(after.stored().await, whole);
    let rest = after.get(&format!("/events?limit=3&cursor={}", page.cursor().unwrap())).await.expect(200);
    assert_eq!([page.ids(), rest.ids()].concat(), whole);
    let again = after.post("/events", &json!(batch)).await.expect(202).json();
    assert_eq!(again["duplicates"], 5);
}

// SX-23: a backup is consistent while the server writes; restored, it is the same.
#[tokio::test]
async fn a_backup_made_while_events_arrive_restores_to_a_working_server() {
    let directory = tempdir().unwrap();
    let at = directory.path();
    let server = Served::start(at);
    let before = client(at, &server);
    let event = |n: usize| json!({ "eventId": format!("{n:04}"), "eventType": "a" });
    let first: Vec<_> = (0..500).map(event).collect();
    before.post("/events", &json!(first)).await.expect(202);
    let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
    let writer = before.clone();
    let writing = tokio::spawn(async move {
        let mut n = 500;
        while stopped.try_recv().is_err() {
            writer.send(&event(n)).await;
            n += 1;
        }
        n
    });
    let path = at.to_owned();
    let backup = tokio::task::spawn_blocking(move || run(&path, &["backup", "b.tidings", "--json"])).await.unwrap();
    let told: Value = serde_json::from_str(&backup.expect(0).stdout).unwrap();
    assert_eq!(told["bytes"], std::fs::metadata(at.join("b.tidings")).unwrap().len());
    stop.send(()).unwrap();
    let written = writing.await.unwrap();
    assert!(written > 500, "events came in meanwhile");
    assert!(run(at, &["backup", "b.tidings"]).expect(1).sentence().contains("exists already"));

    run(at, &["restore", "b.tidings", "--data", "restored"]).expect(0);
    let full = run(at, &["restore", "b.tidings", "--data", "restored"]).expect(1);
    assert!(full.sentence().contains("restored") && full.sentence().contains("empty"), "{full:?}");
    let restored = Served::start_with(at, &["--data", "restored"]);
    // The same tokens open it.
    let after = Client::new(&restored.url, Some(&token(at)));
    let mut ids = after.pages("/events?limit=1000").await.concat();
    ids.sort();
    let expected: Vec<_> = (0..ids.len()).map(|n| format!("{n:04}")).collect();
    assert_eq!(ids, expected, "everything up to one moment, and nothing after it");
    assert!((500..=written).contains(&ids.len()));
    after.send(&event(9999)).await;
    assert_eq!(after.get("/audit-log/verify").await.json()["ok"], true);
}

/// The backup of a server with 200 events, in the file `whole`.
fn backed_up(at: &std::path::Path) -> Vec<u8> {
    let server = Served::start(at);
    let events: String = (0..200).map(|n| format!("{{\"eventId\":\"{n}\",\"eventType\":\"a\"}}\n")).collect();
    run_with_input(at, &["send", "-"], &events).expect(0);
    run(at, &["backup", "whole"]).expect(0);
    drop(server);
    std::fs::read(at.join("whole")).unwrap()
}

// SX-23: half a backup, or something else, is refused and leaves nothing behind.
#[test]
fn a_damaged_backup_is_refused() {
    let directory = tempdir().unwrap();
    let at = directory.path();
    let whole = backed_up(at);
    let mut changed = whole.clone();
    let middle = changed.len() / 2;
    changed[middle] ^= 1;
    for (name, bytes) in
        [("cut", &whole[..whole.len() - 10]), ("half", &whole[..middle]), ("changed", &changed), ("empty", b"")]
    {
        std::fs::write(at.join(name), bytes).unwrap();
        let into = format!("into-{name}");
        let ended = run(at, &["restore", name, "--data", &into]).expect(1);
        assert!(!ended.sentence().is_empty(), "{ended:?}");
        let start = run(at, &["restore", "whole", "--data", &into]);
        assert_eq!(start.code, 0, "{name} left something in the way: {start:?}");
    }
    // What never was one is not called a damaged store.
    for (name, bytes) in [("text", &b"dear diary, it was a long day"[..]), ("nothing", b""), ("short", b"tid")] {
        std::fs::write(at.join(name), bytes).unwrap();
        let ended = run(at, &["restore", name, "--data", "y"]).expect(1);
        let expected = if name == "short" { "the backup is cut short" } else { "the file is no tidings backup" };
        assert!(ended.sentence().contains(expected) && !ended.sentence().contains("the store"), "{ended:?}");
    }
    let restored = run(at, &["restore", "whole", "--data", "y", "--json"]).expect(0).stdout;
    let restored: Value = serde_json::from_str(&restored).unwrap();
    assert_eq!((&restored["data"], restored["entries"].as_u64().unwrap() > 200), (&json!("y"), true));
    assert!(run(at, &["restore", "missing", "--data", "x"]).expect(1).sentence().contains("missing"));
}

// SX-23: a power cut in the middle of a restore leaves neither half a store nor what looks like a new one.
#[test]
fn a_restore_that_was_broken_off_is_found_and_done_again() {
    use std::io::Write;
    let directory = tempdir().unwrap();
    let at = directory.path();
    let whole = backed_up(at);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        at.join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    let mut restoring = tidings(at, &["restore", "pipe", "--data", "into"]).spawn().unwrap();
    let mut pipe = std::fs::File::options().write(true).open(at.join("pipe")).unwrap();
    // It waits for the rest.
    pipe.write_all(&whole[..whole.len() / 2]).unwrap();
    let begun = (0..3_000_000).any(|_| {
        std::thread::yield_now();
        at.join("into/store.new").exists()
    });
    assert!(begun);
    restoring.kill().unwrap();
    restoring.wait().unwrap();
    drop(pipe);
    for _ in 0..2 {
        let refused = run(at, &["serve", "--listen", "127.0.0.1:0", "--data", "into"]).expect(1);
        assert!(refused.sentence().contains("tidings restore FILE --data into"), "{refused:?}");
    }
    assert!(!at.join("into/admin.token").exists());
    run(at, &["restore", "whole", "--data", "into"]).expect(0);
    run(at, &["restore", "whole", "--data", "into"]).expect(1);
    drop(Served::start_with(at, &["--data", "into"]));
    std::fs::write(at.join("twice"), whole.repeat(2)).unwrap();
    let refused = run(at, &["restore", "twice", "--data", "other"]).expect(1);
    assert!(refused.sentence().contains("goes on"), "{refused:?}");
    assert!(!at.join("other").exists());
}

// S002-01: a data directory is for one stage; another one is said at the start.
#[test]
fn a_store_of_another_stage_is_said_to_be() {
    let directory = tempdir().unwrap();
    let at = directory.path();
    let warning = "holds messages of another stage";
    let start = |stage: &str| {
        std::fs::write(at.join("tidings.toml"), format!("stage = \"{stage}\"\n")).unwrap();
        Served::start(at)
    };
    assert!(!start("dev").stop().contains(warning));
    assert!(!start("prod").stop().contains(warning), "nothing was made yet");
    let server = start("prod");
    let made = tokio::runtime::Runtime::new().unwrap().block_on(async {
        let body = json!({ "message_type": "manual_notification", "payload": { "text": "x" } });
        client(at, &server).post("/api/messages", &body).await.status
    });
    assert_eq!(made, 201);
    server.stop();
    assert!(!start("prod").stop().contains(warning));
    let said = start("dev").stop();
    assert!(said.contains(warning) && said.contains("prod"), "{said}");
}

#[test]
fn a_log_that_nobody_looks_at_has_no_colours() {
    let directory = tempdir().unwrap();
    let said = Served::start(directory.path()).stop();
    assert!(said.contains("INFO") && !said.contains('\u{1b}'), "{said}");
}

#[test]
fn an_address_may_be_that_of_this_machine_by_name() {
    let directory = tempdir().unwrap();
    let mut running = Running::start(tidings(directory.path(), &["serve", "--listen", "localhost:0"]));
    running.wait_for("is listening on http://127.0.0.1:");
    let ended = run(directory.path(), &["serve", "--listen", ":8787"]).expect(2);
    assert!(ended.stderr.contains("for every interface write \"0.0.0.0:8787\""), "{ended:?}");
}

// SX-26, SX-22: structured logs, one JSON object a line, with the correlation id.
#[test]
fn the_log_can_be_json() {
    let directory = tempdir().unwrap();
    let mut command = tidings(directory.path(), &["serve", "--listen", "127.0.0.1:0"]);
    command.env("TIDINGS__LOG__FORMAT", "json").env("TIDINGS__LOG__LEVEL", "debug");
    let mut running = crate::support::process::Running::start(command);
    let line = running.wait_for("is listening on ");
    let url = line.split("is listening on ").nth(1).unwrap().trim().to_owned();
    let server = Served { running, url };
    server.ask("/healthz");
    let said = server.stop();
    let answered = said.lines().find(|line| line.contains("\"answered\"")).unwrap_or_else(|| panic!("{said}"));
    let entry: Value = serde_json::from_str(answered).unwrap();
    assert_eq!((&entry["path"], &entry["status"]), (&json!("/healthz"), &json!(200)));
    assert!(entry["correlation_id"].is_string() && entry["timestamp"].is_string(), "{entry}");
}
