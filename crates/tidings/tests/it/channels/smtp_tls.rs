//! SMTP over TLS, with a certificate that is trusted and with one that is not.

use std::process::Command;

use tidings::channel::Outcome;

use super::smtp::sender;
use super::smtp_sink::Sink;
use super::{notice, now};

const URL: &str = "TIDINGS_TEST_SMTP_URL";
const THIS: &str = "channels::smtp_tls::tls_is_used_with_a_trusted_certificate_only";

async fn send(url: &str) -> Outcome {
    sender(url).send(&notice(), &["ok@example.net".to_owned()], now()).await.outcome()
}

// S000-50
#[tokio::test]
async fn tls_is_used_with_a_trusted_certificate_only() {
    // What is trusted is read from the environment, once for each process: so the trusting half runs in its own.
    if let Ok(url) = std::env::var(URL) {
        let outcome = send(&url).await;
        assert!(outcome.is_delivered(), "{outcome:?}");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (trusted, chain) = (directory.path().join("ca.pem"), directory.path().join("server.pem"));
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(&trusted, made.cert.pem()).unwrap();
    std::fs::write(&chain, made.signing_key.serialize_pem() + &made.cert.pem()).unwrap();

    for (scheme, option) in [("smtp", "--starttls"), ("smtps", "--smtps")] {
        let sink = Sink::start(&["--cert", chain.to_str().unwrap(), option]);
        let url = format!("{scheme}://localhost:{}", sink.port);
        let outcome = send(&url).await;
        assert!(matches!(outcome, Outcome::Retry { .. }), "a stranger's certificate: {outcome:?}");
        assert!(outcome.text().contains("certificate"), "{outcome:?}");
        assert_eq!(sink.said().len(), 0);

        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", THIS])
            .env(URL, &url)
            .env("SSL_CERT_FILE", &trusted)
            .output()
            .unwrap();
        assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
        let said = sink.said();
        assert_eq!((said.len(), &said[0]["tls"]), (2, &serde_json::Value::Bool(true)), "{scheme}: {said:?}");
    }
}
