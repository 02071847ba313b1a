//! SMTP with servers, or strangers on the way to them, that do not keep to their turn.

use tidings::channel::Outcome;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::smtp::sender;
use super::smtp_talker::Talker;
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
    let cases = [("none", "x"), ("required", "x"), ("none", "220-x\r\n"), ("required", "220-x\r\n")];
    for (option, more) in cases {
        let (port, connected) = listen().await;
        let wrote = tokio::spawn(async move {
            let mut stream = connected.await.unwrap();
            stream.write_all(b"220-x\r\n").await.unwrap();
            let (more, mut wrote) = (more.repeat(10_000), 0_usize);
            while stream.write_all(more.as_bytes()).await.is_ok() {
                wrote += more.len();
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

// S000-50: what a server says beyond its answer is not said of the next recipient's mail, however it comes.
#[tokio::test]
async fn a_line_too_many_does_not_count_for_the_next_recipient() {
    let together: &[&[u8]] = &[b"250 ok\r\n250 twice\r\n"];
    let one_by_one: &[&[u8]] = &[b"250 ok\r\n", b"250 twice\r\n"];
    for said in [together, one_by_one] {
        let talker = Talker::start(move |what, to| match what {
            "mail" if to.contains("first") => Some(said.iter().map(|piece| piece.to_vec()).collect()),
            "mail" => Some(vec![b"554 spam\r\n".to_vec()]),
            _ => None,
        })
        .await;
        let to = ["first", "second"].map(|who| format!("{who}@example.net"));
        let report = sender(&talker.url()).send(&notice(), &to, now()).await;
        assert_eq!(report.delivered(), ["first@example.net"], "{report:?}");
        if said == together {
            assert!(matches!(report.recipients[1].1, Outcome::Reject { code: Some(554), .. }), "{report:?}");
            assert_eq!(talker.heard().len(), 2, "the second mail has a connection of its own");
        }
    }
}

// S000-50: what comes so late that it can only be an answer does not shift those that follow.
#[tokio::test]
async fn a_line_too_many_shifts_no_answers() {
    for (late, answer) in [("MAIL", "250 ok"), ("RCPT", "250 ok"), ("DATA", "354 go"), ("DATA", "250 ok")] {
        for pieces in [1, 2] {
            let talker = Talker::start(move |what, to| match what {
                what if what == late => {
                    let (twice, answer) = (b"250 twice\r\n".to_vec(), format!("{answer}\r\n").into_bytes());
                    Some(if pieces == 1 { vec![[twice, answer].concat()] } else { vec![twice, answer] })
                }
                "mail" if to.contains("ok") => Some(vec![b"554 spam\r\n".to_vec()]),
                _ => None,
            })
            .await;
            let outcome = send(&talker.url()).await;
            assert!(!outcome.is_delivered(), "{late}: {outcome:?}");
        }
    }
    // Between the text and the dot that ends it.
    let talker = Talker::saying("DATA", b"354 go\r\n250 ok\r\n").await;
    let outcome = send(&talker.url()).await;
    assert!(outcome.text().contains("speaks before it is asked"), "{outcome:?}");
    assert_eq!(talker.heard()[0].last().unwrap(), "DATA", "no mail");
}
