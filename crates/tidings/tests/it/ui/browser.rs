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
    let pictures = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("screenshots");
    std::fs::create_dir_all(&pictures).unwrap();
    // So that the README shows what there is: `TIDINGS_TEST_PICTURE=docs/dashboard.png`.
    let picture = std::env::var("TIDINGS_TEST_PICTURE").unwrap_or_default();
    let ended = Command::new("node")
        .arg(root.join("tests/browser/run.mjs"))
        .env("TIDINGS_URL", &url)
        .env("TIDINGS_TOKEN", token.trim())
        .env("MODULES", modules)
        .env("PICTURES", &pictures)
        .env(
            "README_PICTURE",
            if picture.is_empty() { picture } else { root.join("../..").join(picture).display().to_string() },
        )
        .output()
        .expect("node is there; ./test installs what the browser needs");
    let said = format!("{}{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{said}");
    running.terminate();
    assert_eq!(running.wait().0, Some(0));
}
