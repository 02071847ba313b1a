//! SMTP against a real server that answers each recipient in its own way.

use std::path::Path;
use std::time::Duration;

use tidings::channel::email::{Pace, Report, Sender};
use tidings::channel::{Notice, Outcome};
use tidings::config::Secret;
use tidings::config::email::{Email, Transport};
use tidings::outbound::Outbound;

use super::smtp_sink::Sink;
use super::{notice, now};

pub fn sender(url: &str) -> Sender {
    let config = Email {
        transport: Transport::Smtp,
        from: "Tidings <tidings@example.com>".to_owned(),
        smtp_url: Some(Secret::new(url)),
        ..Email::default()
    };
    let outbound = Outbound::trusted().unwrap();
    Sender::new(&config, Path::new("unused"), None, outbound).unwrap().with_timeout(Duration::from_secs(2))
}

async fn send(url: &str, notice: &Notice<'_>, to: &[&str]) -> Report {
    let to: Vec<_> = to.iter().map(|who| format!("{who}@example.net")).collect();
    sender(url).send(notice, &to, now()).await
}

fn code(outcome: &Outcome) -> (&'static str, Option<u16>) {
    match outcome {
        Outcome::Delivered { .. } => ("delivered", None),
        Outcome::Retry { code, .. } => ("retry", *code),
        Outcome::Reject { code, .. } => ("reject", *code),
    }
}

// S000-50
#[tokio::test]
async fn each_recipient_has_its_own_outcome_and_nobody_gets_it_twice() {
    let sink = Sink::start(&[]);
    let url = format!("smtp://127.0.0.1:{}?tls=none", sink.port);
    let everybody = ["ok", "temp", "bad", "late", "worse", "drop", "hang", "okay"];
    let report = send(&url, &notice(), &everybody).await;
    let outcomes: Vec<_> = report.recipients.iter().map(|(_, outcome)| code(outcome)).collect();
    assert_eq!(
        outcomes,
        [
            ("delivered", None),
            ("retry", Some(451)),
            ("reject", Some(550)),
            ("retry", Some(451)),
            ("reject", Some(554)),
            ("retry", None),
            ("retry", None),
            ("delivered", None),
        ],
        "{report:?}"
    );
    let mails = sink.mails();
    assert_eq!(
        mails.iter().map(|mail| mail["to"][0].as_str().unwrap()).collect::<Vec<_>>(),
        ["ok@example.net", "okay@example.net"]
    );
    assert_eq!(mails[0]["sender"], "tidings@example.com");
    let pending = report.pending();
    assert_eq!(pending, ["temp", "late", "drop", "hang"].map(|who| format!("{who}@example.net")));
    assert!(matches!(report.outcome(), Outcome::Retry { .. }));
    sender(&url).send(&notice(), &pending, now()).await;
    assert_eq!(sink.mails().len(), 0, "nobody who has it is mailed again");
}

// S000-50: few servers take more than ASCII in an address; a domain can always be written so.
#[tokio::test]
async fn a_domain_of_another_script_needs_nothing_special_of_the_server() {
    let sink = Sink::start(&["--ascii"]);
    let url = format!("smtp://127.0.0.1:{}?tls=none", sink.port);
    let to = ["ok@bücher.example", "jürgen@example.net", "okay@example.net"].map(ToOwned::to_owned);
    let report = sender(&url).send(&notice(), &to, now()).await;
    assert_eq!(report.delivered(), ["ok@bücher.example", "okay@example.net"], "{report:?}");
    assert_eq!(sink.mails()[0]["to"][0], "ok@xn--bcher-kva.example");
    let Outcome::Reject { error, .. } = &report.recipients[1].1 else { panic!("{report:?}") };
    assert!(error.contains("letters beyond ASCII before the `@`") && error.contains("SMTPUTF8"), "{error}");
}

// SX-20
#[tokio::test]
async fn no_text_becomes_a_header_a_command_or_a_second_mail() {
    let sink = Sink::start(&[]);
    let url = format!("smtp://127.0.0.1:{}?tls=none", sink.port);
    let evil = "x\r\nBcc: victim@example.org\r\n\r\n.\r\nMAIL FROM:<evil@example.org>\r\nRCPT TO:<victim@example.org>\u{2028}\0";
    let notice = Notice {
        title: evil.into(),
        text: format!("{evil}\r\n.\r\n.hidden\n.\nQUIT\r\n").into(),
        html: Some(evil.into()),
        correlation_id: evil.into(),
        ..notice()
    };
    let report = send(&url, &notice, &["ok", "ok@example.net>\r\nRCPT TO:<victim", "\"a\r\nb\""]).await;
    assert_eq!(report.delivered(), ["ok@example.net"]);
    let said = sink.said();
    let recipients: Vec<_> = said.iter().filter_map(|line| line.get("rcpt")).collect();
    assert_eq!(recipients, ["ok@example.net"]);
    let mails: Vec<_> = said.iter().filter_map(|line| line.get("data")).collect();
    let [mail] = mails[..] else { panic!("one mail: {said:?}") };
    let head = mail.as_str().unwrap().split("\r\n\r\n").next().unwrap().to_lowercase();
    assert!(!head.contains("\r\nbcc:") && !head.contains("\nmail from"), "{head}");
    assert!(head.contains("\r\nmessage-id: <0198c0de-0000-7000-8000-000000000001.tidings@example.com>"), "{head}");
}

// S000-50
#[tokio::test]
async fn logs_in_and_says_when_it_may_not() {
    let sink = Sink::start(&["--auth", "ops:p@ss word"]);
    let good = format!("smtp://ops:p%40ss%20word@127.0.0.1:{}?tls=none", sink.port);
    assert_eq!(send(&good, &notice(), &["ok"]).await.delivered().len(), 1);
    assert_eq!(sink.said()[0]["login"], true);
    let wrong = format!("smtp://ops:CANARY@127.0.0.1:{}?tls=none", sink.port);
    let report = send(&wrong, &notice(), &["ok", "okay"]).await;
    for (_, outcome) in &report.recipients {
        assert_eq!(code(outcome), ("reject", Some(535)), "{outcome:?}");
    }
    assert!(!format!("{report:?} {:?}", sender(&wrong)).contains("CANARY"));
    assert_eq!(sink.mails().len(), 0);
}

// S000-50
#[tokio::test]
async fn without_tls_nothing_is_sent_that_needs_it() {
    let sink = Sink::start(&[]);
    for url in ["smtp://127.0.0.1:PORT", "smtp://u:p@127.0.0.1:PORT?tls=opportunistic", "smtps://127.0.0.1:PORT"] {
        let report = send(&url.replace("PORT", &sink.port.to_string()), &notice(), &["ok"]).await;
        assert!(matches!(report.outcome(), Outcome::Retry { .. }), "{url}: {report:?}");
    }
    assert_eq!(sink.said().len(), 0);
    let url = format!("smtp://127.0.0.1:{}?tls=opportunistic", sink.port);
    assert_eq!(send(&url, &notice(), &["ok"]).await.delivered().len(), 1);
}

#[tokio::test]
async fn a_dead_server_is_tried_again() {
    let report = send("smtp://127.0.0.1:1?tls=none", &notice(), &["ok", "okay"]).await;
    assert_eq!(report.pending().len(), 2, "{report:?}");
}

// S000-50: whoever waits no longer for the rest still knows who has got a copy.
#[tokio::test]
async fn an_attempt_that_is_cut_short_keeps_what_it_knows() {
    let sink = Sink::start(&[]);
    let sender = sender(&format!("smtp://127.0.0.1:{}?tls=none", sink.port));
    let to = ["ok", "bad", "hang", "okay"].map(|who| format!("{who}@example.net"));
    let mut report = Report::default();
    let (notice, now) = (notice(), now());
    let pace = Pace { timeout: Duration::from_secs(600), goes_on: &|| true };
    let sending = sender.send_within(pace, &notice, &to, now, &mut report);
    assert!(tokio::time::timeout(Duration::from_secs(2), sending).await.is_err());
    report.give_up(&to, "too late");
    let outcomes: Vec<_> = report.recipients.iter().map(|(_, outcome)| code(outcome)).collect();
    assert_eq!(outcomes, [("delivered", None), ("reject", Some(550)), ("retry", None), ("retry", None)]);
    assert_eq!(report.pending(), ["hang@example.net", "okay@example.net"]);
}
