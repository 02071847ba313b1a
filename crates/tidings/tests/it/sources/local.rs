//! The program itself on a real stream: DynamoDB Local, and boto3 that changes a score.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use tokio::time::timeout;

use crate::support::Client;
use crate::support::process::Served;
use crate::support::raw::{self, Raw};

/// Real processes on a busy machine take their time.
const LONG: Duration = Duration::from_secs(90);

fn boto3(table: &str, steps: &[&str]) {
    let python = std::env::var("TIDINGS_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/sources/stream.py");
    let ran = Command::new(python).args([script, &endpoint(), table]).args(steps).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

fn endpoint() -> String {
    std::env::var("TIDINGS_DYNAMODB_ENDPOINT")
        .expect("this test needs DynamoDB Local: run it with scripts/with-dynamodb-local")
}

/// The administrator's token.
fn token(directory: &Path) -> String {
    std::fs::read_to_string(directory.join("tidings-data/admin.token")).unwrap().trim().to_owned()
}

/// The server, and a client with its administrator's token.
fn serve(directory: &Path) -> (Served, Client) {
    let served = Served::start_with(directory, &["--config", "tidings.toml"]);
    let client = Client::new(&served.url, Some(&token(directory)));
    (served, client)
}

/// A user's entries, newest first, once there are so many: who listens to the inbox hears of each.
async fn entries(directory: &Path, (served, client): (&Served, &Client), user: &str, count: usize) -> Vec<(i64, i64)> {
    let address = served.url.trim_start_matches("http://").parse().unwrap();
    let mut stream = Raw::connect(address).await;
    let path = format!("/notifications/stream?user={user}");
    stream.send(format!("{}\r\n", raw::head("GET", &path, &token(directory)))).await;
    timeout(LONG, stream.read_until("listening")).await.expect("an answer");
    loop {
        let page = client.get(&format!("/notifications?user={user}&limit=100")).await.expect(200).json();
        let entries = page["items"].as_array().unwrap();
        if entries.len() >= count {
            let scores = |entry: &Value| (entry["old_score"].as_i64().unwrap(), entry["new_score"].as_i64().unwrap());
            return entries.iter().map(scores).collect();
        }
        let heard = timeout(LONG, stream.read_until("event: notification")).await;
        let sources = client.get("/sources").await.text();
        assert!(heard.is_ok(), "{user} has {} of {count} entries; {sources}", entries.len());
    }
}

/// Waits for the end of the first turn, which may come later than what it reads.
#[expect(clippy::disallowed_methods, reason = "a real process takes real time")]
async fn until_reading(client: &Client) {
    let began = Instant::now();
    loop {
        let shown = client.get("/sources").await.expect(200).json()["items"][0].clone();
        if shown["state"] == "reading" && shown["error"].is_null() {
            return;
        }
        assert!(began.elapsed() < LONG, "{shown}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

// S001-10, S001-107: seed 001 from end to end. S001-05: no change, no notice. S001-41: nothing twice.
#[tokio::test]
async fn boto3_changes_a_score_and_the_inbox_has_it() {
    let directory = tempfile::tempdir().unwrap();
    let table =
        format!("product_score_{}", directory.path().file_name().unwrap().to_str().unwrap().trim_start_matches('.'));
    boto3(&table, &["create"]);
    let config = format!(
        "[[sources]]\nname = \"scores\"\nkind = \"dynamodb-stream\"\ntable = \"{table}\"\nregion = \"eu-west-1\"\n\
         endpoint = \"{}\"\npoll_seconds = 1\n",
        endpoint()
    );
    std::fs::write(directory.path().join("tidings.toml"), config).unwrap();
    let (served, client) = serve(directory.path());
    client.put("/notification-map/checkout/web", &json!({ "users": ["ana", "ben"] })).await.expect(201);
    client.put("/notification-map/search/web", &json!({ "users": ["eve"] })).await.expect(201);
    // Both changes of the other product are seen before the last one of this.
    boto3(&table, &["checkout", "30", "search", "24", "checkout", "30", "checkout", "31"]);
    for user in ["ana", "ben"] {
        assert_eq!(entries(directory.path(), (&served, &client), user, 2).await, [(30, 31), (24, 30)]);
    }
    assert_eq!(entries(directory.path(), (&served, &client), "eve", 0).await, []);
    until_reading(&client).await;
    served.stop();
    // What changes while it is down is not missed, and nothing comes twice.
    boto3(&table, &["checkout", "35", "search", "12"]);
    let (served, client) = serve(directory.path());
    assert_eq!(entries(directory.path(), (&served, &client), "ana", 3).await, [(31, 35), (30, 31), (24, 30)]);
    assert_eq!(entries(directory.path(), (&served, &client), "eve", 1).await, [(24, 12)]);
    boto3(&table, &["checkout", "36"]);
    assert_eq!(entries(directory.path(), (&served, &client), "ben", 4).await, [(35, 36), (31, 35), (30, 31), (24, 30)]);
    let said = served.stop();
    assert!(!said.contains("dead letter") && !said.contains("ERROR"), "{said}");
}
