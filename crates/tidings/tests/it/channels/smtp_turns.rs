//! SMTP with servers, or strangers on the way to them, that do not keep to their turn.

use tidings::channel::Outcome;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::smtp::sender;
use super::{notice, now};

/// A server that says something at first, and then something for each thing that it is told; gives what it was told after
/// the last of them.
async fn server(answers: &'static [&'static str]) -> (u16, JoinHandle<Vec<u8>>) {
    let (port, connected) = listen().await;
    let told = tokio::spawn(async move {
        let mut stream = connected.await.unwrap();
        let mut told = vec![0; 4096];
        for answer in answers {
            stream.write_all(answer.as_bytes()).await.unwrap();
            let read = stream.read(&mut told).await.unwrap_or(0);
            told.truncate(read);
            if read == 0 || answer == answers.last().unwrap() {
                break;
            }
            told.resize(4096, 0);
        }
        told
    });
    (port, told)
}

async fn listen() -> (u16, JoinHandle<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (port, tokio::spawn(async move { listener.accept().await.unwrap().0 }))
}

async fn send(url: &str) -> Outcome {
    sender(url).send(&notice(), &["ok@example.net".to_owned()], now()).await.outcome()
}

const FORGED: &str = "250 hello\r\n250 ok\r\n250 ok\r\n354 go\r\n250 a stranger took it\r\n";

// S000-42: what was said before the handshake is no answer to what is said inside it.
#[tokio::test]
async fn nothing_that_is_said_before_the_handshake_counts_after_it() {
    let with_the_answer: &[&str] = &["220 here\r\n", "250-here\r\n250 STARTTLS\r\n", "220 go\r\nFORGED"];
    let ahead_of_it: &[&str] = &["220 here\r\n", "250-here\r\n250 STARTTLS\r\n220 go\r\nFORGED"];
    for answers in [with_the_answer, ahead_of_it] {
        let answers =
            answers.iter().map(|answer| &*answer.replace("FORGED", FORGED).leak()).collect::<Vec<&str>>().leak();
        for option in ["required", "opportunistic"] {
            let (port, told) = server(answers).await;
            let outcome = send(&format!("smtp://127.0.0.1:{port}?tls={option}")).await;
            assert!(matches!(outcome, Outcome::Retry { .. }), "{outcome:?}");
            assert!(outcome.text().contains("speaks before it is asked"), "{outcome:?}");
            assert_eq!(told.await.unwrap(), b"", "no handshake, no mail");
        }
    }
}

#[tokio::test]
async fn an_answer_without_end_is_cut_off() {
    for option in ["none", "required"] {
        let (port, connected) = listen().await;
        let wrote = tokio::spawn(async move {
            let mut stream = connected.await.unwrap();
            stream.write_all(b"220 ").await.unwrap();
            let mut wrote = 0_usize;
            while stream.write_all(&[b'x'; 65_536]).await.is_ok() {
                wrote += 65_536;
            }
            wrote
        });
        let outcome = send(&format!("smtp://127.0.0.1:{port}?tls={option}")).await;
        assert!(matches!(outcome, Outcome::Retry { .. }), "{outcome:?}");
        assert!(outcome.text().contains("has no end"), "{outcome:?}");
        // Some of it is with the system on both sides.
        assert!(wrote.await.unwrap() < 32 << 20);
    }
}
