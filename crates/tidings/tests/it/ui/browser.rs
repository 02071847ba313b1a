//! A real browser over the demo, as somebody sees it who has just started it: every page in both sizes and both themes,
//! with an accessibility check; the rule editor, retry, trace, and stored scripts. `tests/browser/run.mjs` does the work.

use std::process::Command;

use crate::support::process::{Running, tidings};

#[test]
fn the_dashboard_works_in_a_browser() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = tidings(directory.path(), &["serve", "--demo", "--data", "data", "--listen", "127.0.0.1:0"]);
    command.env("TIDINGS__PUSH__LISTEN", "127.0.0.1:0");
    let mut running = Running::start(command);
    let line = running.wait_for("is listening on ");
    let url = line.split("is listening on ").nth(1).unwrap().trim().to_owned();
    running.wait_for("Three things to try");
    let token = std::fs::read_to_string(directory.path().join("data/admin.token")).unwrap();

    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let modules = std::env::var("TIDINGS_TEST_BROWSER")
        .unwrap_or_else(|_| root.join("../../target/test-tools/browser").display().to_string());
    // Nothing is checked by pictures; they are taken for who wants to look at them, and `TIDINGS_TEST_PICTURE` is one for
    // the README. Both are paths from the project's root.
    let wanted = |name: &str| {
        let path = std::env::var(name).unwrap_or_default();
        if path.is_empty() { path } else { root.join("../..").join(path).display().to_string() }
    };
    let (pictures, picture) = (wanted("TIDINGS_TEST_PICTURES"), wanted("TIDINGS_TEST_PICTURE"));
    if !pictures.is_empty() {
        std::fs::create_dir_all(&pictures).unwrap();
    }
    let ended = Command::new("node")
        .arg(root.join("tests/browser/run.mjs"))
        .env("TIDINGS_URL", &url)
        .env("TIDINGS_TOKEN", token.trim())
        .env("MODULES", modules)
        .env("PICTURES", &pictures)
        .env("README_PICTURE", &picture)
        .output()
        .expect("node is there; ./test installs what the browser needs");
    let said = format!("{}{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{said}");
    running.terminate();
    assert_eq!(running.wait().0, Some(0));
}
