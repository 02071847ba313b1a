//! SES against a server that checks the signature as Amazon does.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tidings::aws::{Credentials, sigv4};
use tidings::channel::Outcome;
use tidings::channel::email::{Report, Sender};
use tidings::config::Secret;
use tidings::config::email::{Email, Transport};
use tidings::outbound::Outbound;

use super::http_server::{Asked, Reply, Server};
use super::{notice, now, quick};

fn credentials() -> Credentials {
    let given = |name: &str| match name {
        "AWS_ACCESS_KEY_ID" => Some("AKIDEXAMPLE".to_owned()),
        "AWS_SECRET_ACCESS_KEY" => Some("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned()),
        "AWS_SESSION_TOKEN" => Some("session".to_owned()),
        _ => None,
    };
    Credentials::from_variables(given).unwrap()
}

fn sender(server: &Server, credentials: Credentials) -> Sender {
    sender_from(server, credentials, "Ops <ops@example.com>")
}

fn sender_from(server: &Server, credentials: Credentials, from: &str) -> Sender {
    let config = Email {
        transport: Transport::Ses,
        from: from.to_owned(),
        region: Some("eu-west-1".to_owned()),
        endpoint: Some(server.url("/")),
        ..Email::default()
    };
    let outbound = Outbound::trusted_with(quick()).unwrap();
    Sender::new(&config, std::path::Path::new("unused"), Some(credentials), outbound).unwrap()
}

async fn send(server: &Server, credentials: Credentials) -> Report {
    let to = ["a@example.net".to_owned(), "b@example.net".to_owned()];
    sender(server, credentials).send(&notice(), &to, now()).await
}

/// Signs what arrived with the key it should have been signed with.
fn is_signed(asked: &Asked) -> bool {
    let names = ["content-type", "host", "x-amz-date", "x-amz-security-token"];
    let headers = names.map(|name| (name, asked.headers[name].as_str()));
    let request = sigv4::Request { method: "POST", path: &asked.path, query: "", headers: &headers, body: &asked.body };
    let scope = sigv4::Scope { region: "eu-west-1", service: "ses" };
    asked.headers["authorization"] == sigv4::authorization(&request, scope, &credentials(), now())
}

fn amazon(asked: &Asked) -> Reply {
    if is_signed(asked) {
        Reply::Answer { status: 200, headers: Vec::new(), body: r#"{"MessageId":"0100-abc"}"#.to_owned() }
    } else {
        failure(403, "SignatureDoesNotMatch")
    }
}

fn failure(status: u16, kind: &str) -> Reply {
    let headers = vec![("x-amzn-errortype", format!("{kind}:http://internal.amazon.com/"))];
    Reply::Answer { status, headers, body: r#"{"message":"because"}"#.to_owned() }
}

// S000-50
#[tokio::test]
async fn each_recipient_gets_a_signed_call_with_the_whole_mail() {
    let server = Server::start(amazon).await;
    let report = send(&server, credentials()).await;
    assert_eq!(report.delivered(), ["a@example.net", "b@example.net"], "{report:?}");
    let asked = server.asked();
    assert_eq!(asked[0].path, "/v2/email/outbound-emails");
    // SX-20, S002-69: the correlation id goes on, beside the signature.
    assert_eq!((&*asked[0].headers["x-correlation-id"], asked[0].headers["traceparent"].len()), ("c-17", 55));
    let body: serde_json::Value = serde_json::from_slice(&asked[1].body).unwrap();
    assert_eq!(body["FromEmailAddress"], "Ops <ops@example.com>");
    assert_eq!(body["Destination"]["ToAddresses"], serde_json::json!(["b@example.net"]));
    let mail = STANDARD.decode(body["Content"]["Raw"]["Data"].as_str().unwrap()).unwrap();
    let mail = String::from_utf8(mail).unwrap();
    assert!(mail.contains("Subject: Disk full\r\n") && mail.contains("To: b@example.net\r\n"), "{mail}");
}

// S000-50: SES takes names beyond ASCII as RFC 2047 writes them, and domains as DNS has them.
#[tokio::test]
async fn what_is_not_ascii_is_encoded() {
    let server = Server::start(amazon).await;
    let sender = sender_from(&server, credentials(), "Störungsdienst für Häuser und Gärten <ops@bücher.example>");
    let to = ["a@bücher.example".to_owned()];
    let report = sender.send(&notice(), &to, now()).await;
    assert_eq!(report.delivered(), to, "{report:?}");
    let body: serde_json::Value = serde_json::from_slice(&server.asked()[0].body).unwrap();
    let from = body["FromEmailAddress"].as_str().unwrap();
    assert!(from.is_ascii() && from.starts_with("=?utf-8?b?") && !from.contains(['\r', '\n']), "{from}");
    assert!(from.ends_with(" <ops@xn--bcher-kva.example>"), "{from}");
    assert_eq!(body["Destination"]["ToAddresses"], serde_json::json!(["a@xn--bcher-kva.example"]));
    let mail = STANDARD.decode(body["Content"]["Raw"]["Data"].as_str().unwrap()).unwrap();
    assert!(String::from_utf8(mail).unwrap().contains("To: a@xn--bcher-kva.example\r\n"));
}

#[tokio::test]
async fn errors_are_told_apart() {
    let wrong = Credentials { secret_access_key: Secret::new("CANARY"), ..credentials() };
    let outcome = send(&Server::start(amazon).await, wrong).await.outcome();
    assert!(matches!(&outcome, Outcome::Reject { code: Some(403), error, .. } if !error.contains("CANARY")));
    for (status, kind, again) in [
        (400, "MessageRejected", false),
        (400, "BadRequestException", false),
        (400, "MailFromDomainNotVerifiedException", false),
        (400, "LimitExceededException", true),
        (400, "Throttling", true),
        (429, "TooManyRequestsException", true),
        (500, "InternalFailure", true),
        (503, "ServiceUnavailable", true),
    ] {
        let outcome = send(&Server::start(move |_| failure(status, kind)).await, credentials()).await.outcome();
        assert_eq!(matches!(outcome, Outcome::Retry { .. }), again, "{kind}: {outcome:?}");
        assert!(outcome.text().contains(&format!("SES answered {status}: {kind} because")), "{outcome:?}");
    }
}

// S000-50: one call that hangs is that recipient's trouble, within the limit of one copy.
#[tokio::test]
async fn a_call_that_hangs_keeps_nobody_else_from_their_mail() {
    let server = Server::start(|asked| {
        let body = String::from_utf8_lossy(&asked.body).into_owned();
        if body.contains("a@example.net") { Reply::Hang } else { amazon(asked) }
    })
    .await;
    let sender = sender(&server, credentials()).with_timeout(std::time::Duration::from_millis(500));
    let to = ["a@example.net".to_owned(), "b@example.net".to_owned()];
    let report = sender.send(&notice(), &to, now()).await;
    assert_eq!((report.delivered(), report.pending()), (vec![to[1].clone()], vec![to[0].clone()]), "{report:?}");
    assert!(report.outcome().text().contains("a@example.net: no answer within 0.5 s"), "{report:?}");
}
