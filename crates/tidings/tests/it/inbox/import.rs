//! `POST /notification-map/import`.

use serde_json::{Value, json};

use super::Rig;
use crate::support::process::{Served, run, run_with_input};
use crate::support::{TestServer, gzip};

async fn import(rig: &Rig, csv: impl Into<reqwest::Body>) -> crate::support::Answer {
    rig.client.post_as("/notification-map/import", "text/csv", csv).await
}

async fn users(rig: &Rig, product: &str, group: &str) -> Value {
    rig.client.get(&format!("/notification-map/{product}/{group}")).await.expect(200).json()["users"].clone()
}

// S001-06
#[tokio::test]
async fn a_file_sets_the_entries_it_names_and_every_bad_line_is_named() {
    let rig = Rig::start().await;
    rig.map("p1", "g1", &["old"]).await;
    rig.map("p9", "g9", &["stays"]).await;
    let csv = "\u{feff}product,supportGroup,users\r\np1,g1,u1;u2\r\n\"p2\",\"g,1\",\"u3; u4\"\r\n\
        bad\r\np#3,g1,u1\r\n\r\np4,g1,\r\np5,g1,notificationmap\r\np1,g1,u5,u6\r\np6,g1,u1";
    let answer = import(&rig, csv).await.expect(200).json();
    let lines: Vec<_> = answer["errors"].as_array().unwrap().iter().map(|e| e["line"].as_u64().unwrap()).collect();
    assert_eq!(lines, [4, 5, 7, 8], "{answer}");
    assert_eq!(
        (&answer["lines"], &answer["imported"], &answer["rejected"], &answer["stopped"]),
        (&json!(8), &json!(3), &json!(4), &json!(false))
    );
    assert_eq!(users(&rig, "p1", "g1").await, json!(["u1", "u2", "u5", "u6"]));
    assert_eq!(users(&rig, "p2", "g%2C1").await, json!(["u3", "u4"]));
    assert_eq!(users(&rig, "p9", "g9").await, json!(["stays"]));
    let log = rig.client.get("/audit-log?action=notification-map.import").await.expect(200).json();
    assert_eq!(log["items"].as_array().unwrap().len(), 1, "{log}");
}

#[tokio::test]
async fn a_large_file_comes_in_pieces_and_one_user_a_line_adds_up() {
    let rig = Rig::start().await;
    let mut csv = String::from("product,supportgroup,user\n");
    for user in 0..40 {
        for product in 0..120 {
            csv.push_str(&format!("p{product},g,u{user}\n"));
        }
    }
    let pieces: Vec<Result<Vec<u8>, std::io::Error>> = csv.as_bytes().chunks(777).map(|c| Ok(c.to_vec())).collect();
    let body = reqwest::Body::wrap_stream(futures_util::stream::iter(pieces));
    let answer = import(&rig, body).await.expect(200).json();
    assert_eq!((&answer["lines"], &answer["imported"], &answer["rejected"]), (&json!(4800), &json!(120), &json!(0)));
    for product in [0, 63, 119] {
        assert_eq!(users(&rig, &format!("p{product}"), "g").await.as_array().unwrap().len(), 40);
    }
    // Again, it is the same.
    import(&rig, csv).await.expect(200);
    assert_eq!(users(&rig, "p7", "g").await.as_array().unwrap().len(), 40);
}

// S001-06: whatever the columns are called, and in whatever order they are.
#[tokio::test]
async fn a_header_says_which_column_is_which() {
    let rig = Rig::start().await;
    for (place, header) in [
        "product_id,support_group,users",
        "Product ID,Support-Group ID,User",
        "\u{feff}PRODUCT,Group",
        "users,supportGroup,productId",
        "support_group,users,product,users",
    ]
    .into_iter()
    .enumerate()
    {
        let p = format!("p{place}");
        let line = match place {
            3 => format!("u1;u2,g,{p}"),
            4 => format!("g,u1,{p},u2"),
            _ => format!("{p},g,u1,u2"),
        };
        let answer = import(&rig, format!("{header}\n{line}\n")).await.expect(200).json();
        assert_eq!((&answer["lines"], &answer["imported"]), (&json!(1), &json!(1)), "{header}");
        assert_eq!(users(&rig, &p, "g").await, json!(["u1", "u2"]), "{header}");
    }
    assert_eq!(rig.client.get("/notification-map").await.json()["items"].as_array().unwrap().len(), 5);
    // A header that leaves something open is refused with everything below it.
    for (header, why) in [
        ("product,users,team", "must name `product` and `supportGroup` once each"),
        ("product,product_id,group,users", "must name `product` and `supportGroup` once each"),
        ("product,group,comment,users", "names the column `comment`"),
    ] {
        let answer = import(&rig, format!("{header}\na,b,c,d\n")).await;
        assert_eq!(answer.bad_fields(), ["line 1"], "{header}");
        assert!(answer.text().contains(why), "{}", answer.text());
    }
    // One name alone is a product's.
    assert_eq!(import(&rig, "product,web,u1\n").await.expect(200).json()["imported"], 1);
    assert_eq!(users(&rig, "product", "web").await, json!(["u1"]));
}

#[tokio::test]
async fn what_is_no_csv_is_not_read_as_one() {
    let rig = Rig::start().await;
    for kind in ["multipart/form-data; boundary=x", "application/json", "application/problem+json"] {
        rig.client.post_as("/notification-map/import", kind, "p,g,u1").await.problem(415);
    }
    assert_eq!(rig.client.get("/notification-map").await.json()["items"], json!([]));
    for kind in ["text/csv; charset=utf-8", "text/plain", "application/octet-stream", "application/vnd.ms-excel"] {
        rig.client.post_as("/notification-map/import", kind, "p,g,u1").await.expect(200);
    }
}

// SX-27: packed as well, and the limit holds on what is unpacked.
#[tokio::test]
async fn a_packed_file_is_unpacked_within_the_limit() {
    let rig = Rig::over(TestServer::start_with(|config| config.limits.upload_bytes = 100_000).await).await;
    let post = async |body: Vec<u8>, coding: &str| {
        let headers = [("content-type", "text/csv"), ("content-encoding", coding)];
        rig.client.post_with("/notification-map/import", &headers, body).await
    };
    let lines: String = (0..5000).map(|n| format!("p{},g,u{n}\n", n % 7)).collect();
    let packed = gzip(lines.as_bytes());
    assert_eq!(post(packed.clone(), "gzip").await.expect(200).json()["lines"], 5000);
    assert_eq!(users(&rig, "p3", "g").await.as_array().unwrap().len(), 714);
    // Two one after the other are one.
    assert_eq!(post([gzip(b"a,g,u1\n"), gzip(b"b,g,u1\n")].concat(), "x-gzip").await.expect(200).json()["lines"], 2);
    post(gzip(&vec![b'x'; 10_000_000]), "gzip").await.problem(413);
    post(packed[..packed.len() - 9].to_vec(), "gzip").await.problem(400);
    post(b"p,g,u1\n".to_vec(), "gzip").await.problem(400);
    post(b"p,g,u1\n".to_vec(), "br").await.problem(415);
}

// SX-27
#[tokio::test]
async fn files_that_are_no_good_change_nothing() {
    let rig = Rig::over(TestServer::start_with(|config| config.limits.upload_bytes = 1024).await).await;
    for (csv, fields) in [("", vec![""]), ("x\ny", vec!["line 1", "line 2"]), ("p,g,\u{1}", vec!["line 1"])] {
        assert_eq!(import(&rig, csv).await.bad_fields(), fields, "{csv}");
    }
    assert_eq!(import(&rig, vec![b'p', b',', b'g', b',', 0xff, b'\n']).await.bad_fields(), ["line 1"]);
    import(&rig, format!("p,g,{}", "u".repeat(1021))).await.problem(413);
    assert_eq!(rig.client.get("/notification-map").await.json()["items"], json!([]));
    assert_eq!(import(&rig, format!("p,g,{}", vec!["u"; 510].join(";"))).await.expect(200).json()["imported"], 1);
}

#[test]
fn the_command_line_takes_a_file_and_names_its_bad_lines() {
    let directory = tempfile::tempdir().unwrap();
    let server = Served::start(directory.path());
    std::fs::write(directory.path().join("map.csv"), "checkout,payments,u1;u2\nbad\ncheckout,web,u3\n").unwrap();
    let ended = run(directory.path(), &["map", "import", "map.csv"]).expect(1);
    assert_eq!(ended.stdout.trim(), "2 entries from 3 lines, 1 lines refused");
    assert_eq!(ended.sentence(), "tidings: line 2: must have a product, a support group and users");
    let ended = run(directory.path(), &["map", "import", "map.csv", "--json"]).expect(1);
    assert_eq!(serde_json::from_str::<Value>(&ended.stdout).unwrap()["imported"], 2);
    let ended = run(directory.path(), &["map", "import", "nothing.csv"]).expect(1);
    assert!(ended.sentence().contains("cannot read nothing.csv"), "{ended:?}");
    let ended = run_with_input(directory.path(), &["map", "import", "-"], "search,web,u3\n").expect(0);
    assert_eq!(ended.stdout.trim(), "1 entries from 1 lines, 0 lines refused");
    server.stop();
}
