//! The command line, through the real program.

use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

use crate::channels::http_server::{Reply, Server};
use crate::support::process::{Ended, Running, Served, run, run_with_input, tidings};
use crate::support::secret_of;

fn served() -> (TempDir, Served) {
    let directory = tempdir().unwrap();
    let server = Served::start(directory.path());
    (directory, server)
}

fn write(directory: &Path, name: &str, text: &str) {
    std::fs::File::create(directory.join(name)).unwrap().write_all(text.as_bytes()).unwrap();
}

#[test]
fn every_command_has_help_with_an_example() {
    let directory = tempdir().unwrap();
    for command in ["serve", "check-config", "token", "send", "tail", "map", "backup", "restore", "bench"] {
        let help = run(directory.path(), &[command, "--help"]).expect(0).stdout;
        assert!(help.contains("Example"), "{command}: {help}");
        assert!(help.contains(&format!("tidings {command}")), "{command}: {help}");
    }
    let help = run(directory.path(), &["--help"]).expect(0).stdout;
    assert!(help.contains("Examples:"), "{help}");
    let version = run(directory.path(), &["--version"]).expect(0).stdout;
    assert_eq!(version.trim(), format!("tidings {}", env!("CARGO_PKG_VERSION")));
}

#[test]
fn values_that_can_be_none_are_bad_usage() {
    let directory = tempdir().unwrap();
    for (arguments, word) in [
        (&["send", "x.json", "--url", "notaurl"] as &[&str], "http://127.0.0.1:8787"),
        (&["tail", "--url", "ftp://a.example"], "http://127.0.0.1:8787"),
        (&["token", "create", "--scope", "read", "--expires", "30x"], "30x"),
        (&["token", "create", "--scope", "read", "--expires", "99999999999d"], "--expires"),
        (&["queues", "resubmit", "orders"], "--all"),
        (&["queues", "resubmit", "orders", "--where", "{bad"], "must be a pattern in JSON"),
        (&["queues", "peek", "q1?x=1"], "QUEUE or TOPIC"),
        (&["queues", "peek", "q1#x"], "QUEUE or TOPIC"),
        (&["queues", "peek", "q%31"], "QUEUE or TOPIC"),
        (&["queues", "purge", ".."], "QUEUE or TOPIC"),
        (&["bench", "nosuch"], "nosuch"),
        (&["bench", "--seconds", "0"], "--seconds"),
    ] {
        let ended = run(directory.path(), arguments).expect(2);
        assert!(ended.stderr.contains(word), "{ended:?}");
    }
}

// A level that is none would let nothing through, and nobody would know why.
#[test]
fn a_log_level_that_is_none_is_named() {
    let directory = tempdir().unwrap();
    let mut command = tidings(directory.path(), &["serve", "--listen", "127.0.0.1:0"]);
    let ended = command.env("TIDINGS_LOG", "debgu").output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.starts_with("tidings: TIDINGS_LOG must be ") && said.contains("did you mean \"debug\"?"), "{said}");
    let mut command = tidings(directory.path(), &["serve", "--listen", "127.0.0.1:0"]);
    command.env("TIDINGS_LOG", "tidings=debug");
    let mut running = Running::start(command);
    running.wait_for("listening on");
    running.terminate();
    assert_eq!(running.wait().0, Some(0));
}

// A reader that goes away ends a listing quietly; a full disk does not.
#[test]
fn completions_are_printed_whole_or_not_at_all() {
    let directory = tempdir().unwrap();
    let whole = run(directory.path(), &["completions", "bash"]).expect(0);
    assert!(whole.stdout.contains("_tidings") && whole.stdout.lines().count() > 100);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = tidings(directory.path(), &["completions", "bash"]).stdout(writer).output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = tidings(directory.path(), &["completions", "bash"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_token_that_can_be_none_is_said_to_be() {
    let directory = tempdir().unwrap();
    let ended = run(directory.path(), &["tail", "--url", "http://127.0.0.1:1", "--token", "tdg_a\nb"]).expect(1);
    assert!(ended.sentence().contains("the token is none"), "{ended:?}");
}

#[test]
fn a_file_may_begin_as_editors_on_windows_begin_it() {
    let (directory, _server) = served();
    let at = directory.path();
    for text in [
        "\u{feff}{\"eventType\":\"a\"}",
        "\u{feff}{\"eventType\":\"a\"}\n{\"eventType\":\"b\"}\n",
        "\u{feff}[{\"eventType\":\"a\"}]",
    ] {
        write(at, "bom.json", text);
        run(at, &["send", "bom.json"]).expect(0);
    }
}

#[test]
fn bad_usage_is_exit_code_2() {
    let directory = tempdir().unwrap();
    for arguments in [
        &[] as &[&str],
        &["nonsense"],
        &["serve", "--lisen", "x"],
        &["serve", "--listen", "nowhere"],
        &["send"],
        &["token"],
        &["token", "create"],
        &["token", "revoke"],
        &["token", "revoke", "a/b"],
        &["token", "revoke", ""],
        &["token", "revoke", "0193…"],
        &["restore", "file"],
        &["check-config"],
    ] {
        let ended = run(directory.path(), arguments).expect(2);
        assert!(!ended.stderr.is_empty() && ended.stdout.is_empty(), "{arguments:?}: {ended:?}");
    }
    let ended = run(directory.path(), &["serve", "--lisen", "x"]).expect(2);
    assert!(ended.stderr.contains("--listen"), "a suggestion: {}", ended.stderr);
}

// SX-23: every problem with its line.
#[test]
fn check_config_names_every_problem_with_its_line() {
    let directory = tempdir().unwrap();
    write(directory.path(), "good.toml", "listen = \"127.0.0.1:9000\"\n[limits]\nbatch_events = 10\n");
    let good = run(directory.path(), &["check-config", "good.toml"]).expect(0);
    assert_eq!(good.stdout, "good.toml: no problems\n");
    write(
        directory.path(),
        "bad.toml",
        "lisen = \"127.0.0.1:9000\"\n\n[limits]\nbatch_events = 0\nbody_bytes = \"x\"\n",
    );
    let bad = run(directory.path(), &["check-config", "bad.toml"]).expect(1);
    for (line, key) in [(1, "lisen"), (4, "batch_events"), (5, "body_bytes")] {
        let named = bad.stderr.lines().any(|text| text.contains(&format!("bad.toml:{line}")) && text.contains(key));
        assert!(named, "{key} on line {line}: {}", bad.stderr);
    }
    assert!(bad.stderr.contains("`listen`"), "a suggestion: {}", bad.stderr);
    let problems = run(directory.path(), &["check-config", "bad.toml", "--json"]).expect(1);
    assert!(serde_json::from_str::<Value>(&problems.stdout).is_ok(), "{problems:?}");
    // What is not wrong, and will not work where the environment does not help.
    let at = directory.path();
    write(at, "ses.toml", "[email]\ntransport = \"ses\"\n");
    let ses = run(at, &["check-config", "ses.toml"]).expect(0);
    assert!(ses.stderr.contains("set `email.region`, or AWS_REGION"), "{ses:?}");
    let ses: Value = serde_json::from_str(&run(at, &["check-config", "ses.toml", "--json"]).expect(0).stdout).unwrap();
    assert_eq!((&ses["problems"], ses["warnings"].as_array().map(Vec::len)), (&json!([]), Some(1)));
    let helped = tidings(at, &["check-config", "ses.toml"]).env("AWS_DEFAULT_REGION", "eu-central-1").output().unwrap();
    assert!(helped.stderr.is_empty(), "{helped:?}");
    // What a start would read as well.
    write(at, "map.toml", "[notification_center]\nmap_file = \"map.csv\"\n");
    let absent = run(at, &["check-config", "map.toml"]).expect(1);
    assert!(absent.stderr.contains("map.toml:2: `notification_center.map_file` cannot be read"), "{absent:?}");
    write(at, "map.csv", "checkout,payments,u7\nbad#name,web,u5\nbilling,web\n");
    let wrong = run(at, &["check-config", "map.toml"]).expect(1);
    assert!(wrong.stderr.contains("line 2") && wrong.stderr.contains("line 3"), "{wrong:?}");
    write(at, "map.csv", "checkout,payments,u7\n");
    run(at, &["check-config", "map.toml"]).expect(0);
    let missing = run(directory.path(), &["check-config", "missing.toml"]).expect(1);
    assert!(missing.stderr.contains("missing.toml"), "{missing:?}");
    let serve = run(directory.path(), &["serve", "--config", "bad.toml"]).expect(1);
    assert!(serve.stderr.contains("batch_events"), "{serve:?}");
    assert!(!directory.path().join("tidings-data").exists());
}

// SX-20
#[test]
fn tokens_are_made_listed_and_revoked() {
    let (directory, server) = served();
    let at = directory.path();
    let made = run(at, &["token", "create", "--scope", "read,ingest", "--expires", "30d", "--name", "ci", "--json"]);
    let made: Value = serde_json::from_str(&made.expect(0).stdout).unwrap();
    let fields: Vec<_> = made.as_object().unwrap().keys().cloned().collect();
    assert_eq!(fields, ["id", "token"]);
    let (id, token) = (made["id"].as_str().unwrap(), made["token"].as_str().unwrap());
    let plain = run(at, &["token", "create", "--scope", "read", "--scope", "operate"]).expect(0);
    assert!(plain.stdout.starts_with("tdg_") && plain.stdout.lines().count() == 1, "{plain:?}");
    let list = run(at, &["token", "list"]).expect(0).stdout;
    assert_eq!(list.lines().count(), 3);
    let row = list.lines().find(|row| row.contains(id)).unwrap();
    assert!(row.contains("read,ingest") && row.contains("ci"), "{row}");
    let secret = secret_of(token);
    assert!(!list.contains(secret));
    let list = run(at, &["token", "list", "--json"]).expect(0).stdout;
    assert_eq!(serde_json::from_str::<Value>(&list).unwrap()["items"].as_array().unwrap().len(), 3);
    // The token works, for what it may do.
    let sent = run_with_input(at, &["send", "-", "--token", token], r#"{"eventType":"a"}"#);
    sent.expect(0);
    assert!(run(at, &["token", "list", "--token", token]).expect(1).sentence().contains("403"));
    let revoked = run(at, &["token", "revoke", id, "--json"]).expect(0).stdout;
    assert_eq!(serde_json::from_str::<Value>(&revoked).unwrap(), json!({ "id": id, "revoked": true }));
    let refused = run_with_input(at, &["send", "-", "--token", token], r#"{"eventType":"a"}"#).expect(1);
    assert!(refused.sentence().contains("401") && refused.sentence().contains("--token"), "{refused:?}");
    assert!(run(at, &["token", "revoke", id]).expect(1).sentence().contains("404"));
    for bad in ["writer", "user:"] {
        assert!(run(at, &["token", "create", "--scope", bad]).expect(1).sentence().contains("scopes[0]"));
    }
    assert!(!run(at, &["token", "create", "--scope", "read", "--expires", "soon"]).expect(2).stderr.is_empty());
    // SX-20: no secret in the log, even at the most talkative.
    let said = server.stop();
    let admin = std::fs::read_to_string(at.join("tidings-data/admin.token")).unwrap();
    for secret in [secret, secret_of(&plain.stdout), secret_of(&admin)] {
        assert!(!said.contains(secret));
    }
    assert!(said.contains("/tokens"), "the log is at debug: {said}");
}

fn ids(ended: &Ended) -> Vec<&str> {
    ended.stdout.lines().collect()
}

// S003-55
#[test]
fn send_takes_an_object_an_array_and_ndjson() {
    let (directory, _server) = served();
    let at = directory.path();
    write(at, "one.json", "{\n  \"eventId\": \"one\",\n  \"eventType\": \"a\"\n}\n");
    write(at, "array.json", r#"[{"eventId":"x","eventType":"a"},{"eventId":"y","eventType":"a"}]"#);
    write(at, "lines.ndjson", "{\"eventId\":\"l1\",\"eventType\":\"a\"}\n\n{\"eventId\":\"l2\",\"eventType\":\"a\"}\n");
    assert_eq!(ids(&run(at, &["send", "one.json"]).expect(0)), ["one"]);
    assert_eq!(ids(&run(at, &["send", "array.json", "lines.ndjson"]).expect(0)), ["x", "y", "l1", "l2"]);
    assert_eq!(ids(&run(at, &["send", "one.json"]).expect(0)), ["one duplicate"]);
    let stdin = run_with_input(at, &["send", "-", "--json"], "{\"eventId\":\"s\",\"eventType\":\"a\"}\n").expect(0);
    assert_eq!(serde_json::from_str::<Value>(&stdin.stdout).unwrap(), json!({ "eventId": "s", "status": "accepted" }));
    // More than one request's worth.
    let many: String = (0..1200).map(|n| format!("{{\"eventId\":\"m{n}\",\"eventType\":\"a\"}}\n")).collect();
    let sent = run_with_input(at, &["send", "-"], &many).expect(0);
    assert_eq!((ids(&sent).len(), ids(&sent)[1199]), (1200, "m1199"));
    assert!(sent.stderr.contains("1200 sent, 0 refused"), "{}", sent.stderr);
}

// The server's limits are settings: what is too much for it at once is sent in parts, in order.
#[test]
fn send_takes_what_the_server_takes() {
    for (section, count, bytes) in
        [("batch_events = 100", 700, 10), ("body_bytes = 262144", 700, 1000), ("batch_events = 1", 9, 10)]
    {
        let directory = tempdir().unwrap();
        let at = directory.path();
        write(at, "small.toml", &format!("[limits]\n{section}\n"));
        let _server = Served::start_with(at, &["--config", "small.toml"]);
        let pad = "x".repeat(bytes);
        let event = |n: usize| format!("{{\"eventId\":\"m{n}\",\"eventType\":\"a\",\"data\":{{\"x\":\"{pad}\"}}}}");
        let lines: String = (0..count).map(|n| event(n) + "\n").collect();
        let sent = run_with_input(at, &["send", "-"], &lines).expect(0);
        assert!(sent.stderr.contains(&format!("{count} sent, 0 refused")), "{section}: {}", sent.stderr);
        assert_eq!(ids(&sent), (0..count).map(|n| format!("m{n}")).collect::<Vec<_>>(), "{section}");
        // One that is too large alone is refused alone, whoever is beside it.
        let large = format!("{{\"eventId\":\"l\",\"eventType\":\"{}\"}}", "x".repeat(270_000));
        let lines = [event(count), large, event(count + 1)].join("\n");
        let sent = run_with_input(at, &["send", "-"], &lines).expect(1);
        assert_eq!(ids(&sent), [format!("m{count}"), format!("m{}", count + 1)], "{section}");
        assert!(sent.stderr.contains("2 sent, 1 refused"), "{section}: {}", sent.stderr);
        assert!(sent.stderr.contains("line 2: refused"), "{section}: {}", sent.stderr);
    }
}

#[test]
fn send_is_exit_code_1_if_any_event_was_refused() {
    let (directory, _server) = served();
    let at = directory.path();
    let mixed = "{\"eventId\":\"good\",\"eventType\":\"a\"}\n{\"eventType\":\"\"}\n";
    let ended = run_with_input(at, &["send", "-"], mixed).expect(1);
    assert_eq!(ids(&ended), ["good"]);
    assert!(ended.sentence().contains("eventType"), "{ended:?}");
    assert!(ended.stderr.contains("1 sent, 1 refused"), "{}", ended.stderr);
    let ended = run_with_input(at, &["send", "-"], r#"{"data":1}"#).expect(1);
    assert!(ended.sentence().contains("eventType") && ended.sentence().contains("data"), "{ended:?}");
    for (input, text) in [("", "no event"), ("hello", "neither JSON nor NDJSON"), ("[1", "neither JSON nor NDJSON")] {
        let ended = run_with_input(at, &["send", "-"], input).expect(1);
        assert!(ended.sentence().contains(text), "{ended:?}");
    }
    assert!(run(at, &["send", "missing.json"]).expect(1).sentence().contains("missing.json"));
    // With --json there is a line for each, whether some or all are refused.
    for input in [
        "{\"eventId\":\"again\",\"eventType\":\"a\"}\n{\"eventId\":\"bad\",\"eventType\":\"\"}\n",
        "{\"data\":1}\n{\"data\":2}",
    ] {
        let ended = run_with_input(at, &["send", "-", "--json"], input).expect(1);
        let lines: Vec<Value> = ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2, "{ended:?}");
        let last = &lines[1];
        assert_eq!(
            (&last["status"], &last["place"]),
            (&json!("rejected"), &json!("standard input line 2")),
            "{ended:?}"
        );
        assert!(last["error"].as_str().unwrap().contains("eventType"), "{ended:?}");
    }
}

#[test]
fn tail_prints_an_event_that_is_sent_meanwhile() {
    let (directory, _server) = served();
    let at = directory.path();
    let mut tail = Running::start(tidings(at, &["tail", "--type", "ticket."]));
    tail.wait_for("watching");
    let mut json = Running::start(tidings(at, &["tail", "--json"]));
    json.wait_for("watching");
    let events = "[{\"eventType\":\"order.made\"},{\"eventType\":\"ticket.created\",\"data\":{\"n\": 7}}]";
    run_with_input(at, &["send", "-"], events).expect(0);
    let line = tail.wait_for("ticket.created");
    assert!(line.contains(r#"{"n":7}"#), "{line}");
    let line = json.wait_for("ticket.created");
    assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["data"], json!({ "n": 7 }));
}

#[test]
fn tail_ends_with_a_sentence_when_the_server_stops() {
    let (directory, server) = served();
    let mut tail = Running::start(tidings(directory.path(), &["tail"]));
    tail.wait_for("watching");
    server.stop();
    let (code, said) = tail.wait();
    assert_eq!(code, Some(1));
    assert!(said.contains("tidings: the server") && said.contains("start `tidings tail` again"), "{said}");
}

// SX-23
#[test]
fn without_a_server_commands_say_what_to_do() {
    let directory = tempdir().unwrap();
    let at = directory.path();
    for arguments in [&["token", "list"] as &[&str], &["tail"], &["backup", "b"]] {
        let ended = run(at, arguments).expect(1);
        assert!(ended.sentence().contains("tidings serve") && ended.sentence().contains("--url"), "{ended:?}");
    }
    let ended = run_with_input(at, &["send", "-"], "{}").expect(1);
    assert!(ended.sentence().contains("tidings serve"), "{ended:?}");
    let ended = run(at, &["token", "list", "--url", "http://127.0.0.1:1"]).expect(1);
    assert!(ended.sentence().contains("--token") && ended.sentence().contains("TIDINGS_TOKEN"), "{ended:?}");
    let ended = run(at, &["token", "list", "--url", "http://127.0.0.1:1", "--token", "t"]).expect(1);
    assert!(ended.sentence().contains("nothing answers"), "{ended:?}");
    assert!(!at.join("b").exists());
}

#[test]
fn server_and_token_are_found_by_flag_variable_or_directory() {
    let (directory, server) = served();
    let elsewhere = tempdir().unwrap();
    let token = std::fs::read_to_string(directory.path().join("tidings-data/admin.token")).unwrap();
    let token = token.trim();
    run(elsewhere.path(), &["token", "list", "--url", &server.url, "--token", token]).expect(0);
    let data = directory.path().join("tidings-data");
    run(elsewhere.path(), &["token", "list", "--data", data.to_str().unwrap()]).expect(0);
    let mut command = tidings(elsewhere.path(), &["token", "list"]);
    let output = command.env("TIDINGS_URL", &server.url).env("TIDINGS_TOKEN", token).output().unwrap();
    assert!(output.status.success());
}

// The administrator's token of this machine is nobody else's to see.
#[tokio::test(flavor = "multi_thread")]
async fn the_token_of_a_directory_goes_to_its_own_server_alone() {
    let (directory, server) = served();
    let at = directory.path();
    let other = Server::start(|_| Reply::status(200)).await;
    let ended = run(at, &["token", "list", "--url", &other.url("")]).expect(1);
    assert!(ended.sentence().contains("no token for http://") && ended.sentence().contains("--token"), "{ended:?}");
    assert!(other.asked().is_empty());
    run(at, &["token", "list", "--url", &server.url]).expect(0);
    // What is set to nothing is not set.
    let mut command = tidings(at, &["token", "list"]);
    assert!(command.env("TIDINGS_URL", "").env("TIDINGS_TOKEN", "").output().unwrap().status.success());
    assert!(run(at, &["token", "list", "--token", ""]).expect(1).sentence().contains("the token is none"));
    run(at, &["token", "list", "--url", ""]).expect(2);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_answers_that_is_no_tidings_is_said_to_be_none() {
    let (directory, server) = served();
    let at = directory.path();
    let page = |status| Reply::Answer { status, headers: Vec::new(), body: "<html>".to_owned() };
    let other = Server::start(move |asked| page(if asked.path == "/tokens" { 200 } else { 404 })).await;
    let url = other.url("");
    let ended = run(at, &["token", "list", "--url", &url, "--token", "t"]).expect(1);
    assert!(ended.sentence().contains("is no tidings"), "{ended:?}");
    let ended = run(at, &["queues", "--url", &url, "--token", "t"]).expect(1);
    assert!(ended.sentence().contains("is it one?"), "{ended:?}");
    let secure = server.url.replace("http://", "https://");
    let ended = run(at, &["token", "list", "--url", &secure, "--token", "t"]).expect(1);
    assert!(ended.sentence().contains("no TLS connection comes about"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn send_waits_for_a_server_that_has_no_time_and_sends_nothing_twice() {
    let directory = tempdir().unwrap();
    let calls = std::sync::atomic::AtomicUsize::new(0);
    let busy = Server::start(move |_| {
        let status = match calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => 429,
            1 => 503,
            2 => 202,
            // Without a word about when.
            _ => return Reply::status(503),
        };
        let body = r#"{"events":[{"eventId":"e","status":"accepted"}]}"#.to_owned();
        Reply::Answer { status, headers: vec![("retry-after", "0".to_owned())], body }
    })
    .await;
    let arguments = ["send", "-", "--url", &busy.url(""), "--token", "t"];
    let ended = run_with_input(directory.path(), &arguments, r#"{"eventType":"a"}"#).expect(0);
    assert_eq!(ids(&ended), ["e"]);
    let asked = busy.asked();
    assert_eq!(asked.len(), 3);
    assert!(asked.iter().all(|call| call.headers["idempotency-key"] == asked[0].headers["idempotency-key"]));
    run_with_input(directory.path(), &arguments, r#"{"eventType":"a"}"#).expect(1);
    assert_eq!(busy.asked().len(), 4);
    assert_ne!(busy.asked()[3].headers["idempotency-key"], asked[0].headers["idempotency-key"]);
}

// Somebody types, or a program writes now and then: nobody waits for the rest of a batch.
#[test]
fn send_sends_what_is_there_when_nothing_more_comes() {
    use std::io::{BufRead, BufReader};
    let (directory, _server) = served();
    let mut child = tidings(directory.path(), &["send", "-"]).stdin(std::process::Stdio::piped()).spawn().unwrap();
    let (mut input, mut output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    for id in ["one", "two"] {
        writeln!(input, "{{\"eventId\":\"{id}\",\"eventType\":\"a\"}}").unwrap();
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), id);
    }
    drop(input);
    assert!(child.wait().unwrap().success());
}

// `head` closes the pipe: what only shows something ends, without panic or noise.
#[test]
fn a_reader_that_goes_away_ends_the_command_quietly() {
    let (directory, _server) = served();
    let mut child = tidings(directory.path(), &["token", "list"]).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{stderr}");
}

// Contract 1: what is being done is done to its end, whether or not somebody reads how it goes.
#[test]
fn sending_goes_on_when_nobody_reads_its_output() {
    let (directory, server) = served();
    let at = directory.path();
    let many = |from: usize| -> String {
        (from..from + 1200).map(|n| format!("{{\"eventId\":\"{n}\",\"eventType\":\"a\"}}\n")).collect()
    };
    write(at, "many.ndjson", &many(0));
    let mut child = tidings(at, &["send", "many.ndjson"]).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.contains("1200 sent, 0 refused"), "{stderr}");
    // One that is refused is told by the exit code.
    write(at, "mixed.ndjson", &format!("{}{{\"eventType\":\"\"}}\n", many(1200)));
    let mut child = tidings(at, &["send", "mixed.ndjson"]).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("1200 sent, 1 refused") && stderr.contains("mixed.ndjson line 1201"), "{stderr}");
    // Where a result is lost that somebody wanted, that is said, too.
    write(at, "more.ndjson", &many(2400));
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = tidings(at, &["send", "more.ndjson"]).stdout(full).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("1200 sent, 0 refused") && stderr.contains("could not be printed"), "{stderr}");
    assert!(server.ask("/healthz").contains("200"));
}

// Contract 1: NDJSON is sent as NDJSON; a bad line is named, and the others are accepted.
#[test]
fn a_bad_line_costs_no_other_line() {
    let (directory, _server) = served();
    let at = directory.path();
    let line = |id: &str| format!("{{\"eventId\":\"{id}\",\"eventType\":\"a\"}}");
    write(at, "middle.ndjson", &format!("{}\n{{bad\n\n{}\n", line("m1"), line("m3")));
    let ended = run(at, &["send", "middle.ndjson"]).expect(1);
    assert_eq!(ids(&ended), ["m1", "m3"]);
    assert!(ended.sentence().contains("middle.ndjson line 2: refused"), "{ended:?}");
    assert!(ended.stderr.contains("2 sent, 1 refused"), "{ended:?}");
    write(at, "first.ndjson", &format!("{{bad\n{}\n", line("f2")));
    let ended = run(at, &["send", "first.ndjson"]).expect(1);
    assert_eq!(ids(&ended), ["f2"]);
    assert!(ended.sentence().contains("first.ndjson line 1: refused"), "{ended:?}");
    // Two events on a line are none.
    write(at, "two.ndjson", &format!("{}\n{},{}\n", line("t1"), line("t2"), line("t3")));
    assert_eq!(ids(&run(at, &["send", "two.ndjson"]).expect(1)), ["t1"]);
    // The place is the file's, not the request's: the second request begins at event 501.
    let mut array: Vec<String> = (0..600).map(|n| line(&format!("p{n}")).replace(',', ",\n  ")).collect();
    array[550] = "{\n}".to_owned();
    write(at, "array.json", &format!("[\n{}\n]", array.join(",\n")));
    let ended = run(at, &["send", "array.json"]).expect(1);
    assert_eq!(ids(&ended).len(), 599);
    assert!(ended.sentence().contains("array.json event 551: refused: eventType is required"), "{ended:?}");
    write(at, "bad.ndjson", "{}\n{\"eventType\":1}\n");
    let ended = run(at, &["send", "bad.ndjson"]).expect(1);
    for place in ["bad.ndjson line 1: refused: eventType is required", "bad.ndjson line 2: refused: eventType must"] {
        assert!(ended.stderr.contains(place), "{ended:?}");
    }
}

#[test]
fn a_file_that_cannot_be_opened_stops_sending_before_it_begins() {
    let (directory, _server) = served();
    let at = directory.path();
    write(at, "good.json", r#"{"eventId":"g","eventType":"a"}"#);
    write(at, "torn.json", "[1");
    let ended = run(at, &["send", "good.json", "missing.json"]).expect(1);
    assert!(ended.stdout.is_empty() && ended.sentence().contains("nothing was sent"), "{ended:?}");
    // One that turns out to be no JSON does not keep the others back.
    let ended = run(at, &["send", "torn.json", "good.json"]).expect(1);
    assert_eq!(ids(&ended), ["g"]);
    assert!(ended.sentence().contains("torn.json is neither JSON nor NDJSON"), "{ended:?}");
}
