//! The seeds' tables, used by boto3 as the seeds do and by the server at the same time.

use std::process::Command;

use super::processes::{on_dynamodb, start};

// S000-01 to S000-34, S001-42 to S001-46, S001-66 to S001-70, S002-19 to S002-29, S004-02 to S004-16
#[test]
fn what_boto3_writes_is_read_here_and_the_other_way_round() {
    let directory = tempfile::tempdir().unwrap();
    let prefix = format!("{}-", directory.path().file_name().unwrap().to_str().unwrap().trim_start_matches('.'));
    let made = on_dynamodb(directory.path(), &prefix, &["tables", "create"]).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let node = start(&directory.path().join("a"), &prefix, None);
    let token = std::fs::read_to_string(directory.path().join("a/tidings-data/admin.token")).unwrap();
    let python = std::env::var("TIDINGS_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/nodes/seeds.py");
    let endpoint = std::env::var("TIDINGS_DYNAMODB_ENDPOINT").unwrap();
    let ran = Command::new(python).args([script, &endpoint, &prefix, &node.url, token.trim()]).output().unwrap();
    let (said, wrong) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{said}{wrong}");
    assert_eq!(said.matches(": ok").count(), 4, "{said}");
}
