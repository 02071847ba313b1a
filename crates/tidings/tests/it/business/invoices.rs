//! EVT_001 the whole way: a file is uploaded, and the real Tesseract reads it.

use std::path::Path;

use reqwest::Method;
use serde_json::{Value, json};

use super::{render, until};
use crate::support::process::Served;
use crate::support::{Answer, Client, TestServer};

const PRODUCT: &str = "7c9e6679-7425-40de-944b-e07fc1f90ae7";

/// A form as browsers send it.
fn form(parts: &[(&str, Option<&str>, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, file, content) in parts {
        let file = file.map_or(String::new(), |file| format!("; filename=\"{file}\"\r\nContent-Type: text/plain"));
        body.extend(format!("--limit\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n").into_bytes());
        body.extend(*content);
        body.extend(b"\r\n");
    }
    body.extend(b"--limit--\r\n");
    body
}

async fn send(client: &Client, headers: &[(&str, &str)], body: Vec<u8>) -> Answer {
    let mut request =
        client.request(Method::POST, "/invoices").header("content-type", "multipart/form-data; boundary=limit");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    Answer::to(request.body(body)).await
}

async fn upload(client: &Client, file: &Path, correlation: &str) -> Value {
    let bytes = std::fs::read(file).unwrap();
    // A name that lies about the content.
    let body = form(&[("userProductId", None, PRODUCT.as_bytes()), ("file", Some("invoice.exe"), &bytes)]);
    let answer = send(client, &[("x-correlation-id", correlation)], body).await.expect(202);
    assert_eq!(answer.json()["status"], "uploaded");
    answer.json()
}

fn path(invoice: &Value) -> String {
    format!("/invoices/{}", invoice["invoiceId"].as_str().unwrap())
}

// S003-05, S003-10, S003-11
#[tokio::test(flavor = "multi_thread")]
async fn an_uploaded_invoice_is_read() {
    let files = tempfile::tempdir().unwrap();
    render(files.path());
    let server = TestServer::start().await;
    let client = server.client();
    for (file, media_type) in [("plain.pdf", "application/pdf"), ("plain.png", "image/png")] {
        let made = upload(&client, &files.path().join(file), file).await;
        let read = until(&server, &path(&made), |invoice| invoice["status"] == "processed").await;
        let expected = json!({ "number": "INV-2026-0042", "date": "2026-03-15", "total": "30.00", "currency": "GBP",
            "vendor": "ACME Tools Ltd." });
        assert_eq!((&read["fields"], &read["contentType"]), (&expected, &json!(media_type)));
        assert!(read["text"].as_str().unwrap().contains("Invoice Number: INV-2026-0042"), "{read}");
        // One correlation id all the way.
        assert_eq!(read["correlationId"], file);
        let trace = client.get(&format!("/trace/{file}")).await.expect(200).json().to_string();
        assert!(trace.contains("InvoiceUploadedForProcessing") && trace.contains("invoice.processed"), "{trace}");
        // The same command again changes nothing (S003-111).
        let command = json!({ "eventType": "InvoiceUploadedForProcessing",
            "data": { "invoiceId": made["invoiceId"], "userProductId": PRODUCT, "fileUrl": read["fileUrl"] } });
        client.send(&command).await;
        until(&server, "/bus/ocr-processing-queue", |seen| {
            seen["counts"]["active"] == 0 && seen["counts"]["locked"] == 0
        })
        .await;
        assert_eq!(client.get(&path(&made)).await.expect(200).json(), read);
    }
    let events = client.get("/events?type=invoice.processed").await.expect(200).json();
    assert_eq!(events["items"].as_array().unwrap().len(), 2);
}

// S003-13: a clear failure on the invoice and in the dead letter, and the worker goes on.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_fails_clearly_and_the_next_is_read() {
    let files = tempfile::tempdir().unwrap();
    render(files.path());
    let server = TestServer::start().await;
    let client = server.client();
    let broken = [
        ("damaged.png", "cannot read the picture"),
        ("damaged.pdf", "the PDF is damaged"),
        ("bomb.png", "30000 x 30000 pixels"),
        ("200-pages.pdf", "more than 50 pages"),
    ];
    for (bad, (file, says)) in (1..).zip(broken) {
        let made = upload(&client, &files.path().join(file), file).await;
        let failed = until(&server, &path(&made), |invoice| invoice["status"] == "failed").await;
        assert!(failed["error"].as_str().unwrap().contains(says), "{failed}");
        let seen = until(&server, "/bus/ocr-processing-queue", |seen| seen["counts"]["deadLettered"] == bad).await;
        assert_eq!(seen["counts"]["active"], 0);
    }
    let made = upload(&client, &files.path().join("title.png"), "good").await;
    until(&server, &path(&made), |invoice| invoice["status"] == "processed").await;
    // From elsewhere, only what the guard lets through.
    let id = "33567ee8-f182-4f8a-b03e-2f1515915471";
    let command = json!({ "eventType": "InvoiceUploadedForProcessing",
        "data": { "invoiceId": id, "userProductId": PRODUCT, "fileUrl": "https://127.0.0.1:1/secret.pdf" } });
    client.send(&command).await;
    let refused = until(&server, &format!("/invoices/{id}"), |invoice| invoice["status"] == "failed").await;
    assert!(refused["error"].as_str().unwrap().contains("127.0.0.1"), "{refused}");
}

/// The time until the next attempt goes by.
async fn next_attempt(server: &TestServer) {
    until(server, "/bus/ocr-processing-queue", |seen| seen["counts"]["scheduled"] == 1).await;
    server.advance(1);
    server.services.bus.settle_time().await.unwrap();
}

async fn ends(client: &Client) -> Vec<Value> {
    let events = client.get("/events?limit=100").await.expect(200).json()["items"].clone();
    let is_end = |event: &&Value| event["eventType"].as_str().unwrap().starts_with("invoice.");
    events.as_array().unwrap().iter().filter(is_end).cloned().collect()
}

// S003-12, S003-13: what is tried again has not failed; its end is told once.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_tesseract_is_said_on_the_invoice_which_fails_with_the_last_attempt() {
    let files = tempfile::tempdir().unwrap();
    render(files.path());
    let server = TestServer::start_with(|config| config.invoices.tesseract = "no-such-tesseract".to_owned()).await;
    let client = server.client();
    let made = upload(&client, &files.path().join("plain.png"), "c").await;
    for attempt in 1..=6 {
        let seen = until(&server, &path(&made), |invoice| !invoice["error"].is_null()).await;
        assert!(seen["error"].as_str().unwrap().contains("\"no-such-tesseract\" is not installed"), "{seen}");
        if attempt < 6 {
            until(&server, "/bus/ocr-processing-queue", |seen| seen["counts"]["scheduled"] == 1).await;
            let seen = client.get(&path(&made)).await.expect(200).json();
            assert_eq!((&seen["status"], ends(&client).await.len()), (&json!("processing"), 0), "{attempt}");
            next_attempt(&server).await;
        }
    }
    let failed = until(&server, &path(&made), |invoice| invoice["status"] == "failed").await;
    let letters = json!({ "max": 1, "waitSeconds": 60 });
    let letters = client.post("/bus/ocr-processing-queue/$deadletterqueue/receive", &letters).await.expect(200).json();
    assert_eq!(letters["messages"][0]["properties"]["DeadLetterReason"], "MaxDeliveryCountExceeded", "{letters}");
    let ends = ends(&client).await;
    assert_eq!((ends.len(), &ends[0]["eventType"]), (1, &json!("invoice.failed")));
    assert_eq!((&ends[0]["data"]["error"], &ends[0]["correlationId"]), (&failed["error"], &json!("c")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tesseract_that_comes_back_reads_what_waits() {
    let files = tempfile::tempdir().unwrap();
    render(files.path());
    let tesseract = files.path().join("tesseract");
    let program = tesseract.to_str().unwrap().to_owned();
    let server = TestServer::start_with(|config| config.invoices.tesseract = program).await;
    let client = server.client();
    let made = upload(&client, &files.path().join("plain.png"), "c").await;
    let waits = until(&server, &path(&made), |invoice| !invoice["error"].is_null()).await;
    assert_eq!(waits["status"], "processing");
    let found = std::process::Command::new("sh").args(["-c", "command -v tesseract"]).output().unwrap();
    std::os::unix::fs::symlink(String::from_utf8(found.stdout).unwrap().trim(), &tesseract).unwrap();
    next_attempt(&server).await;
    let read = until(&server, &path(&made), |invoice| invoice["status"] != "processing").await;
    assert_eq!((&read["status"], &read["error"]), (&json!("processed"), &Value::Null));
    let ends = ends(&client).await;
    assert_eq!((ends.len(), &ends[0]["eventType"]), (1, &json!("invoice.processed")));
}

#[tokio::test]
async fn bad_uploads_are_refused_and_leave_nothing() {
    let server = TestServer::start_with(|config| config.limits.upload_bytes = 5000).await;
    let client = server.client();
    let png = |length: usize| {
        let mut bytes = b"\x89PNG\r\n\x1a\n".to_vec();
        bytes.resize(length, 0);
        bytes
    };
    let product = ("userProductId", None, PRODUCT.as_bytes());
    for (parts, fields) in [
        (vec![], vec!["userProductId", "file"]),
        (vec![product], vec!["file"]),
        (vec![product, ("file", Some("a.pdf"), &b""[..])], vec!["file"]),
        (vec![product, ("file", Some("a.pdf"), b"MZ not a pdf")], vec!["file"]),
        (vec![("userProductId", None, &b"7"[..]), ("file", Some("a.pdf"), b"GIF89a")], vec!["userProductId", "file"]),
        (vec![product, product, ("file", Some("a.pdf"), b"%PDF-1.4")], vec!["userProductId"]),
    ] {
        assert_eq!(send(&client, &[], form(&parts)).await.bad_fields(), fields);
    }
    // The limit at n-1, n and n+1.
    for (length, status) in [(4999, 202), (5000, 202), (5001, 413)] {
        let body = form(&[product, ("file", Some("a.png"), &png(length))]);
        assert_eq!(send(&client, &[], body).await.status, status, "{length}");
    }
    client.post("/invoices", &json!({ "file": "x" })).await.problem(415);
    let cut = form(&[product, ("file", Some("a.png"), &png(100))]);
    send(&client, &[], cut[..cut.len() - 20].to_vec()).await.problem(400);
    let stranger = server.client_for(&["read"]).await;
    send(&stranger, &[], form(&[product])).await.problem(403);
    client.get(&format!("/invoices/{PRODUCT}")).await.problem(404);
    assert_eq!(client.get("/invoices/7").await.bad_fields(), ["invoiceId"]);
    let left = std::fs::read_dir(server.data_dir().join("files")).unwrap().count();
    assert_eq!(left, 2, "two files, and nothing half received");
    // SX-09: the same key and file are the same invoice.
    let body = || form(&[product, ("file", Some("a.png"), &png(10))]);
    let key = [("idempotency-key", "k")];
    let first = send(&client, &key, body()).await.expect(202).json();
    assert_eq!(send(&client, &key, body()).await.expect(202).json(), first);
    let other = form(&[product, ("file", Some("a.png"), &png(11))]);
    send(&client, &key, other).await.problem(422);
}

// S003-12, S003-13, S003-78: the process is killed in the last delivery. Nobody reads the invoice any more, and it says so.
#[tokio::test(flavor = "multi_thread")]
async fn an_invoice_whose_last_attempt_ended_with_its_process_has_failed() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    render(at);
    // A Tesseract that says when it has begun, and never ends by itself.
    let begun = at.join("begun");
    assert!(std::process::Command::new("mkfifo").arg(&begun).status().unwrap().success());
    let tesseract = at.join("tesseract");
    std::fs::write(&tesseract, format!("#!/bin/sh\necho begun > '{}'\nexec sleep 20\n", begun.display())).unwrap();
    std::fs::set_permissions(&tesseract, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::write(at.join("t.toml"), format!("[invoices]\ntesseract = {tesseract:?}\n")).unwrap();
    let serve = || {
        let served = Served::start_with(at, &["--config", "t.toml"]);
        let token = std::fs::read_to_string(at.join("tidings-data/admin.token")).unwrap();
        let client = Client::new(&served.url, Some(token.trim()));
        (served, client)
    };
    let (served, client) = serve();
    client.put("/bus/ocr-processing-queue", &json!({ "maxDeliveryCount": 1 })).await.expect(200);
    let made = upload(&client, &at.join("plain.png"), "killed").await;
    let said = tokio::task::spawn_blocking(move || std::fs::read_to_string(begun).unwrap()).await.unwrap();
    assert_eq!(said, "begun\n");
    assert_eq!(client.get(&path(&made)).await.expect(200).json()["status"], "processing");
    served.running.signal(rustix::process::Signal::KILL);
    drop(served);
    let (_served, client) = serve();
    let letters = json!({ "max": 1, "waitSeconds": 60 });
    let letters = client.post("/bus/ocr-processing-queue/$deadletterqueue/receive", &letters).await.expect(200).json();
    assert_eq!(letters["messages"][0]["deadLetter"]["reason"], "MaxDeliveryCountExceeded", "{letters}");
    let failed = client.get(&path(&made)).await.expect(200).json();
    assert_eq!(failed["status"], "failed", "{failed}");
    assert!(failed["error"].as_str().unwrap().contains("maxDeliveryCount"), "{failed}");
    let ends = ends(&client).await;
    assert_eq!((ends.len(), &ends[0]["eventType"]), (1, &json!("invoice.failed")));
    assert_eq!((&ends[0]["data"]["error"], &ends[0]["correlationId"]), (&failed["error"], &json!("killed")));
}
