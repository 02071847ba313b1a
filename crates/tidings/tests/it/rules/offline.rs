//! `tidings rules test`: without a server.

use std::path::Path;

use crate::support::process::{run, run_with_input};

fn write(directory: &Path, name: &str, text: &str) {
    std::fs::write(directory.join(name), text).unwrap();
}

// SX-11
#[test]
fn the_exit_code_says_whether_a_pattern_matches() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    write(at, "p.json", r#"{"eventType":[{"prefix":"ticket."}],"data":{"env":["prod"]}}"#);
    write(at, "yes.json", r#"{"eventType":"ticket.created","data":{"env":"prod"}}"#);
    write(at, "no.json", r#"{"eventType":"ticket.created","data":{"env":"test"}}"#);
    write(at, "bad.json", r#"{"data":{"env":["prod",{"wrong":1}]}}"#);
    write(at, "broken.json", r#"{"data":"#);
    let test = |pattern: &str, event: &str| run(at, &["rules", "test", "--pattern", pattern, "--event", event]);
    test("p.json", "yes.json").expect(0);
    test("p.json", "no.json").expect(1);
    let bad = test("bad.json", "yes.json").expect(2);
    assert!(bad.sentence().contains("$.data.env[1]"), "{bad:?}");
    assert!(test("broken.json", "yes.json").expect(2).sentence().contains("malformed JSON"));
    assert!(test("p.json", "broken.json").expect(2).sentence().contains("is no event"));
    assert!(test("p.json", "absent.json").expect(2).sentence().contains("cannot read absent.json"));
    run(at, &["rules", "test", "--pattern", "p.json"]).expect(2);
    // What the server refuses is refused here, too.
    write(at, "huge.json", r#"{"eventType":"ticket.created","data":{"env":"prod","n":1e400}}"#);
    write(at, "half.json", r#"{"eventType":"ticket.created","data":{"env":"prod","n":"\ud800"}}"#);
    write(at, "huge-pattern.json", r#"{"data":{"n":[1e400]}}"#);
    assert!(test("p.json", "huge.json").expect(2).sentence().contains("1e400, which is too large"));
    assert!(test("p.json", "half.json").expect(2).sentence().contains("half of a character"));
    assert!(test("huge-pattern.json", "yes.json").expect(2).sentence().contains("is no pattern"));
    let json = run(at, &["rules", "test", "--pattern", "p.json", "--event", "no.json", "--json"]).expect(1);
    assert_eq!(json.stdout.trim(), r#"{"matches":false}"#);
    let stdin = ["rules", "test", "--pattern", "p.json", "--event", "-"];
    run_with_input(at, &stdin, r#"{"eventType":"ticket.x","data":{"env":"prod"}}"#).expect(0);
}

// SX-23: a rule that cannot work is found before the start, with its line.
#[test]
fn rules_of_the_file_are_compiled_by_check_config() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let text = r#"[[rules]]
name = "r"
pattern = { data = { env = ["prod", { wrong = 1 }] } }
title = "{{ data."
text = "{% set x = 1 %}"
dedupe_seconds = 604801
targets = [{ channel = "webhook", url = "https://{{ data.host }}/" }]
"#;
    write(at, "tidings.toml", text);
    let ended = run(at, &["check-config", "tidings.toml"]).expect(1);
    for part in [
        "tidings.toml:3: `rules[0].pattern.data.env[1].wrong`",
        "tidings.toml:4: `rules[0].title`",
        "tidings.toml:5: `rules[0].text`",
        "tidings.toml:6: `rules[0].dedupe_seconds`",
        "tidings.toml:7: `rules[0].targets[0].url`",
    ] {
        assert!(ended.stderr.contains(part), "{part} is not in {}", ended.stderr);
    }
    run(at, &["serve", "--config", "tidings.toml"]).expect(1);
}
