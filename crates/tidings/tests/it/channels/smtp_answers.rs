//! SMTP with answers that are short, long, of another script, or none that was asked for.

use tidings::channel::Outcome;
use tidings::channel::email::Report;

use super::smtp::sender;
use super::smtp_talker::Talker;
use super::{notice, now};

async fn send(url: &str, to: &[&str]) -> Report {
    let to: Vec<_> = to.iter().map(|who| format!("{who}@example.net")).collect();
    sender(url).send(&notice(), &to, now()).await
}

// S000-50: what goes on is not what is done. Nothing more is said to who says so, least of all the mail's text.
#[tokio::test]
async fn an_answer_counts_only_where_it_belongs() {
    let cases: [(&str, &[u8], usize); 12] = [
        ("connection", b"354 go\r\n", 0),
        ("EHLO", b"354 go\r\n", 1),
        ("AUTH", b"354 go\r\n", 2),
        ("MAIL", b"354 go\r\n", 3),
        ("RCPT", b"334 ok\r\n", 4),
        ("RCPT", b"354 ok\r\n", 4),
        ("DATA", b"250 eh\r\n", 5),
        ("DATA", b"220 eh\r\n", 5),
        ("DATA", b"334 eh\r\n", 5),
        ("DATA", b"334\r\n", 5),
        ("mail", b"354 more\r\n", 6),
        ("mail", b"334\r\n", 6),
    ];
    for (what, answer, told) in cases {
        let talker = Talker::saying(what, answer).await;
        let url = talker.url().replace("//", "//user:password@");
        let outcome = send(&url, &["ok"]).await.outcome();
        assert!(matches!(outcome, Outcome::Retry { code: None, .. }), "{what}: {outcome:?}");
        let code = std::str::from_utf8(&answer[..3]).unwrap();
        let what = what.replace("connection", "the connection").replace("mail", "the mail");
        assert!(outcome.text().contains(&format!("answered {code} to {what}")), "{outcome:?} {:?}", talker.heard());
        let heard = talker.heard();
        assert!(heard.len() == 1 && heard[0].len() == told, "{what}: {heard:?}");
    }
}

// S000-50: a code alone is an answer, and its text may be of any script.
#[tokio::test]
async fn short_and_strange_answers_are_read_as_they_are_meant() {
    for (what, answer) in [
        ("connection", &b"220\r\n"[..]),
        ("EHLO", b"250\r\n"),
        ("EHLO", b"250-\r\n250-\r\n250\r\n"),
        ("MAIL", b"250\r\n"),
        ("RCPT", b"251\n"),
        ("DATA", b"354\r\n"),
        ("mail", b"250\r\n"),
        ("mail", b"250-\r\n250 \r\n"),
        ("mail", b"250 Gr\xfc\xdfe\r\n"),
        ("mail", b"250-Gr\xfc\xdfe\r\n250\r\n"),
    ] {
        let talker = Talker::saying(what, answer).await;
        let report = send(&talker.url(), &["ok"]).await;
        assert_eq!(report.delivered().len(), 1, "{what} {answer:?}: {report:?}");
    }
    for (answer, text) in [
        (&b"550\r\n"[..], "permanent error (550)"),
        (b"550 Empf\xe4nger unbekannt\r\n", "permanent error (550): Empf\u{fffd}nger unbekannt"),
        (b"550-5.1.1 nobody\r\n550 5.1.1 is that\r\n", "permanent error (550): 5.1.1 nobody is that"),
    ] {
        let outcome = send(&Talker::saying("RCPT", answer).await.url(), &["ok"]).await.outcome();
        assert!(matches!(outcome, Outcome::Reject { code: Some(550), .. }), "{outcome:?}");
        assert_eq!(outcome.text(), format!("ok@example.net: {text}"));
    }
    let outcome = send(&Talker::saying("RCPT", b"451\r\n").await.url(), &["ok"]).await.outcome();
    assert!(matches!(outcome, Outcome::Retry { code: Some(451), .. }), "{outcome:?}");
}

// S000-50: RFC 5321, 3.2: who does not know EHLO is greeted as it was before.
#[tokio::test]
async fn a_server_that_does_not_know_ehlo_is_greeted_as_of_old() {
    for refusal in [&b"502 what\r\n"[..], b"500\r\n"] {
        let talker = Talker::saying("EHLO", refusal).await;
        assert_eq!(send(&talker.url(), &["ok"]).await.delivered().len(), 1);
        assert!(talker.heard()[0][1].starts_with("HELO "), "{:?}", talker.heard());
        // It can neither encrypt nor take a password.
        let url = talker.url().replace("none", "required");
        assert!(matches!(send(&url, &["ok"]).await.outcome(), Outcome::Retry { .. }));
    }
}

// S000-50
#[tokio::test]
async fn a_server_may_ask_for_a_password_in_its_own_way() {
    for (offered, first) in [("PLAIN", "AUTH PLAIN AHVzZXIAcGFzc3dvcmQ="), ("LOGIN", "AUTH LOGIN")] {
        let talker = Talker::start(move |what, _| match what {
            "EHLO" => Some(vec![format!("250-here\r\n250 auth {offered}\r\n").into_bytes()]),
            "AUTH" | "dXNlcg==" => Some(vec![b"334\r\n".to_vec()]),
            "cGFzc3dvcmQ=" | "AHVzZXIAcGFzc3dvcmQ=" => Some(vec![b"235\r\n".to_vec()]),
            _ => None,
        })
        .await;
        let report = send(&talker.url().replace("//", "//user:password@"), &["ok"]).await;
        assert_eq!(report.delivered().len(), 1, "{report:?}");
        assert_eq!(talker.heard()[0][1], first);
    }
}
