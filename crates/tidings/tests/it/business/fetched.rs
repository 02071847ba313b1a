//! Invoices whose file lies elsewhere, behind https.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::json;

use super::{render, until};
use crate::support::TestServer;

const DIRECTORY: &str = "TIDINGS_TEST_FETCHED";
const THIS: &str = "business::fetched::a_file_behind_https_is_fetched_and_read";
const PRODUCT: &str = "7c9e6679-7425-40de-944b-e07fc1f90ae7";

/// Serves the files of a directory by https; `/away` leads to `/plain.png`, `/unsafe` away from https. Gives the port.
fn serve(directory: PathBuf) -> u16 {
    let read = |name: &str| std::fs::read(directory.join(name)).unwrap();
    let (certificate, key) =
        (CertificateDer::from(read("cert.der")), PrivateKeyDer::try_from(read("key.der")).unwrap());
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let _ = answer(StreamOwned::new(connection, stream), &directory);
        }
    });
    port
}

fn answer(mut stream: StreamOwned<ServerConnection, std::net::TcpStream>, directory: &Path) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let name = head.split(' ').nth(1).unwrap_or_default().trim_start_matches('/').to_owned();
    let (line, body) = match name.as_str() {
        "away" => ("302 Found\r\nlocation: /plain.png".to_owned(), Vec::new()),
        "unsafe" => ("302 Found\r\nlocation: http://localhost/plain.png".to_owned(), Vec::new()),
        name => match std::fs::read(directory.join(name)) {
            Ok(body) => ("200 OK".to_owned(), body),
            Err(_) => ("404 Not Found".to_owned(), Vec::new()),
        },
    };
    write!(stream, "HTTP/1.1 {line}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len())?;
    stream.write_all(&body)?;
    stream.conn.send_close_notify();
    stream.flush()
}

// S003-05, S003-07: `fileUrl` by https, within the guard.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_behind_https_is_fetched_and_read() {
    // What is trusted is read from the environment, once for each process: so the test runs in its own.
    let Ok(directory) = std::env::var(DIRECTORY) else {
        let directory = tempfile::tempdir().unwrap();
        render(directory.path());
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let write = |name: &str, bytes: &[u8]| std::fs::write(directory.path().join(name), bytes).unwrap();
        write("ca.pem", made.cert.pem().as_bytes());
        write("cert.der", made.cert.der());
        write("key.der", &made.signing_key.serialize_der());
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", THIS])
            .env(DIRECTORY, directory.path())
            .env("SSL_CERT_FILE", directory.path().join("ca.pem"))
            .output()
            .unwrap();
        assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
        return;
    };
    let port = serve(directory.into());
    let server = TestServer::start_with(|config| {
        config.outbound.allow = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()]
    })
    .await;
    let client = server.client();
    let ids: Vec<String> = (0..4).map(|n| format!("33567ee8-f182-4f8a-b03e-2f151591547{n}")).collect();
    for (id, (name, status, says)) in ids.iter().zip([
        ("plain.png", "processed", "INV-2026-0042"),
        ("away", "processed", "INV-2026-0042"),
        ("unsafe", "failed", "away from https"),
        ("nothing", "failed", "answered 404"),
    ]) {
        let url = format!("https://localhost:{port}/{name}");
        let data = json!({ "invoiceId": id, "userProductId": PRODUCT, "fileUrl": url });
        client.send(&json!({ "eventType": "InvoiceUploadedForProcessing", "data": data })).await;
        let path = format!("/invoices/{id}");
        let ends = |invoice: &serde_json::Value| ["processed", "failed"].iter().any(|end| invoice["status"] == *end);
        let invoice = until(&server, &path, ends).await;
        assert_eq!(invoice["status"], status, "{name}: {invoice}");
        assert!(invoice.to_string().contains(says), "{name}: {invoice}");
    }
}
