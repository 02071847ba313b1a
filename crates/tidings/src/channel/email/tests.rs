//! Mails that cannot be broken out of, addresses that are none, and how a message's outcome follows from its copies'.

use super::super::tests::notice;
use super::*;

const NOW: &str = "2026-11-15T12:34:56Z";

fn composed(notice: &Notice<'_>) -> String {
    let from = mailbox("Tidings <tidings@example.com>").unwrap();
    let to = mailbox("ok@example.net").unwrap();
    String::from_utf8(compose::compose(notice, &from, &to, NOW.parse().unwrap()).unwrap()).unwrap()
}

fn header_names(mail: &str) -> Vec<String> {
    let head = mail.split("\r\n\r\n").next().unwrap();
    let first_lines = head.split("\r\n").filter(|line| !line.starts_with([' ', '\t']));
    first_lines.map(|line| line.split(':').next().unwrap().to_lowercase()).collect()
}

// S000-50
#[test]
fn a_mail_has_both_parts_a_stable_id_and_the_clocks_date() {
    let mail = composed(&notice());
    assert!(mail.contains("Message-ID: <0198c0de-0000-7000-8000-000000000001.tidings@example.com>\r\n"), "{mail}");
    assert!(mail.contains("Date: Sun, 15 Nov 2026 12:34:56 +0000\r\n"), "{mail}");
    assert!(mail.contains("Subject: Disk full\r\n") && mail.contains("To: ok@example.net\r\n"), "{mail}");
    assert!(mail.contains("multipart/alternative") && mail.contains("text/plain") && mail.contains("text/html"));
    assert!(mail.contains("https://tidings.example/ui/messages/1") && mail.contains("Importance: high"));
    assert_eq!(composed(&notice()), mail, "every attempt sends the same bytes");
}

// SX-20
#[test]
fn no_text_begins_a_header() {
    let clean = header_names(&composed(&notice()));
    for evil in
        ["a\r\nBcc: x@y.z", "a\nBcc: x@y.z", "a\rBcc: x@y.z", "a\u{2028}Bcc: x@y.z", "a\0\r\n\r\nbody", "é\r\nBcc: x"]
    {
        let mail = composed(&Notice { title: evil.into(), correlation_id: evil.into(), ..notice() });
        assert_eq!(header_names(&mail), clean, "{evil:?}");
    }
}

/// The raw lines of a header.
fn header<'m>(mail: &'m str, name: &str) -> Vec<&'m str> {
    let head = mail.split("\r\n\r\n").next().unwrap();
    let mut lines = head.split("\r\n").skip_while(|line| !line.starts_with(&format!("{name}: ")));
    let first = lines.next().unwrap();
    std::iter::once(first).chain(lines.take_while(|line| line.starts_with([' ', '\t']))).collect()
}

// S000-50, SX-20: RFC 2047 bounds each word and its line, and no character is in two of them. Python reads what was meant.
#[test]
fn subjects_of_any_script_are_read_as_they_were_written() {
    let astral = "\u{1F525}\u{1F469}\u{200D}\u{1F4BB}\u{20BB7}";
    let subjects = [
        "\u{e9}".repeat(249),
        "\u{4e16}\u{754c}".repeat(120),
        astral.repeat(45),
        format!("{} {} {}", "plain words ".repeat(9), "\u{fc}ber".repeat(12), "and plain again ".repeat(4)),
        format!("a{}", astral.repeat(40)),
        format!("ab {}", "\u{1F525} ".repeat(90)),
        "x".repeat(249),
        "plain ".repeat(40),
        "=?utf-8?b?w6k=?= is no word of ours \u{e9}".to_owned(),
        "=?utf-8?b?w6k=?= alone".to_owned(),
        format!("=?utf-8?b?w6k=?={}", astral.repeat(40)),
        "\u{e9}\r\nBcc: x@y.z\r\n\r\nbody \u{1F525}\nand\rmore\u{2028}of\u{85}it".to_owned(),
        "tab\there \u{e9}".to_owned(),
    ];
    let mut written = Vec::new();
    for subject in &subjects {
        let mail = composed(&Notice { title: subject.clone().into(), ..notice() });
        let lines = header(&mail, "Subject");
        for line in &lines {
            assert!(line.len() <= 998 && line.is_ascii(), "{subject:?}: {line}");
            assert!(line.len() <= 76 || !line.contains("=?"), "{subject:?}: {line}");
        }
        let words = lines.iter().flat_map(|line| line.split(' ')).filter(|word| word.starts_with("=?"));
        for word in words {
            assert!(word.len() <= 75, "{subject:?}: {word}");
        }
        let meant = super::super::one_line(subject, 250);
        written.push(serde_json::json!({ "header": lines.join("\r\n"), "meant": meant }));
    }
    let script = "import sys, json, email, email.policy, email.header\n\
        for one in json.load(sys.stdin):\n    \
            raw = email.message_from_string(one['header'] + '\\r\\n\\r\\n')\n    \
            text = str(email.header.make_header(email.header.decode_header(raw['Subject'])))\n    \
            for word, charset in email.header.decode_header(raw['Subject']):\n        \
                charset and word.decode(charset)\n    \
            new = email.message_from_string(one['header'] + '\\r\\n\\r\\n', policy=email.policy.default)\n    \
            unfold = lambda t: t.replace('\\r\\n', '')\n    \
            assert unfold(text) == one['meant'], (unfold(text), one)\n    \
            assert str(new['Subject']) == one['meant'], (str(new['Subject']), one)\n";
    let python = std::env::var("TIDINGS_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let mut child = std::process::Command::new(python)
        .args(["-c", script])
        .stdin(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    serde_json::to_writer(child.stdin.take().unwrap(), &written).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

// SX-20: a lone line feed ends a line for some servers and not for others, which lets one mail become two.
#[test]
fn every_line_ends_the_one_way_there_is() {
    for text in ["a\n.\nb", "a\r.\rb", "a\r\n.\r\nb", "\n.\r\nMAIL FROM:<x@y.z>", "é\n.\né", "\r\r\n\n"] {
        let mail = composed(&Notice { text: text.into(), html: Some(text.into()), ..notice() });
        let rest = mail.replace("\r\n", "");
        assert!(!rest.contains(['\r', '\n']), "{text:?}: {mail:?}");
    }
}

#[test]
fn html_is_escaped_and_only_pages_are_linked() {
    let evil = Notice {
        title: "<img src=x onerror=alert(1)>".into(),
        text: "\"><script>".into(),
        click_url: Some("javascript:alert(1)".into()),
        ..notice()
    };
    let mail = composed(&evil);
    let html = mail.split("text/html").nth(1).unwrap();
    assert!(!html.contains("<img") && !html.contains("<script") && !mail.contains("javascript:"), "{html}");
}

#[test]
fn html_of_a_rules_own_has_the_link_too_unless_it_is_a_whole_page() {
    let html = |text: &str| {
        let mail = composed(&Notice { html: Some(text.into()), ..notice() });
        mail.split("text/html").nth(1).unwrap().to_owned()
    };
    assert!(html("<b>x</b>").contains("<b>x</b><p><a href="));
    assert!(!html("<html><body>x</body></html>").contains("<a href="));
}

// The ids are derived from events, so a stranger can guess the boundary.
#[test]
fn a_text_cannot_end_its_part() {
    let guessed = "tidings-0198c0de000070008000000000000001-0";
    let evil = Notice { text: format!("x\r\n--{guessed}\r\nContent-Type: text/html\r\n\r\n<b>").into(), ..notice() };
    assert!(composed(&evil).contains(&format!("boundary=\"{}1\"", guessed.strip_suffix('0').unwrap())));
}

// SX-20
#[test]
fn addresses_that_could_smuggle_commands_are_none() {
    for bad in [
        "",
        "a",
        "a@",
        "@b",
        "a@b.c\r\nRCPT TO:<x@y.z>",
        "a@b.c\n",
        "a\0@b.c",
        "\"a\r\nb\"@b.c",
        "\"a b\"@b.c",
        "a b@c.d",
        "a@b.c>\u{2028}",
        "<a@b.c> SIZE=1",
        "a@b.c, d@e.f",
        "a@[127.0.0.1]\r",
        "a@b c",
    ] {
        assert_eq!(mailbox(bad), None, "{bad:?}");
    }
    for good in ["a@b.c", "a.b+c@example.com", "Ops Team <ops@example.com>", "tidings@localhost"] {
        assert!(mailbox(good).is_some(), "{good}");
    }
}

// S000-50
#[test]
fn smtp_urls_say_host_port_tls_and_login() {
    let server = SmtpServer::parse("smtp://user%40x:p%3Ass+w@mail.example:2525?tls=opportunistic").unwrap();
    assert_eq!((server.host.as_str(), server.port, server.tls), ("mail.example", 2525, SmtpTls::Opportunistic));
    assert_eq!(server.user.as_deref(), Some("user@x"));
    assert_eq!(server.password.as_ref().map(config::Secret::expose), Some("p:ss+w"));
    assert!(!format!("{server:?}").contains("p:ss"));
    let read = |url: &str| SmtpServer::parse(url).map(|server| (server.port, server.tls)).ok();
    assert_eq!(read("smtps://h"), Some((465, SmtpTls::Implicit)));
    assert_eq!(read("smtp://h"), Some((587, SmtpTls::Required)));
    assert_eq!(read("smtp://h?tls=none"), Some((25, SmtpTls::None)));
    assert_eq!(read("smtps://h?tls=none"), None);
    assert_eq!(read("smtp://h?tls=maybe"), None);
    assert_eq!(read("http://h"), None);
}

fn report(outcomes: &[(&str, Outcome)]) -> Report {
    Report { recipients: outcomes.iter().map(|(name, outcome)| ((*name).to_owned(), outcome.clone())).collect() }
}

// S000-50
#[test]
fn a_message_waits_for_its_last_recipient() {
    let ok = Outcome::Delivered { id: Some("1".to_owned()), detail: "250 OK".to_owned() };
    let temp = Outcome::Retry { after: None, error: "451".to_owned(), code: Some(451) };
    let bad = Outcome::Reject { error: "550".to_owned(), code: Some(550), disable_target: false };
    let mixed = report(&[("bad@x", bad.clone()), ("ok@x", ok.clone()), ("temp@x", temp)]);
    assert_eq!((mixed.pending(), mixed.delivered()), (vec!["temp@x".to_owned()], vec!["ok@x".to_owned()]));
    let error = "temp@x: 451; bad@x: 550".to_owned();
    assert_eq!(mixed.outcome(), Outcome::Retry { after: None, error, code: Some(451) });
    let refused = report(&[("ok@x", ok.clone()), ("bad@x", bad)]);
    assert!(matches!(refused.outcome(), Outcome::Reject { code: Some(550), .. }));
    assert_eq!(report(&[("ok@x", ok.clone())]).outcome(), ok);
    assert!(report(&[("a@x", ok.clone()), ("b@x", ok)]).outcome().is_delivered());
    assert!(matches!(report(&[]).outcome(), Outcome::Reject { .. }));
}

#[tokio::test]
async fn the_outbox_holds_whole_mails_and_no_second_copy() {
    let directory = tempfile::tempdir().unwrap();
    let outbox = directory.path().join("outbox");
    let sender = Sender::new(&config::email::Email::default(), &outbox, None, Outbound::trusted().unwrap()).unwrap();
    let to = ["a@x.example".to_owned(), "b/c@x.example".to_owned(), "not an address".to_owned()];
    for _ in 0..2 {
        let report = sender.send(&notice(), &to, NOW.parse().unwrap()).await;
        assert_eq!(report.delivered().len(), 2, "{report:?}");
        assert!(matches!(report.outcome(), Outcome::Reject { .. }));
    }
    let mut names: Vec<_> = std::fs::read_dir(&outbox).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names.len(), 2, "{names:?}");
    let mail = std::fs::read_to_string(outbox.join(&names[0])).unwrap();
    assert!(mail.ends_with("--\r\n") && mail.contains("To: a@x.example"), "{mail}");
}
