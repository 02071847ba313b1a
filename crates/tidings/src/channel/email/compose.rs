//! A notice as a mail: headers that no text can break out of, a text part and an HTML part.

use std::fmt::Write;
use std::time::{Duration, SystemTime};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use lettre::message::header::{HeaderName, HeaderValue};
use lettre::message::{Mailbox, Message, MultiPart, SinglePart};
use tidings_core::time::Timestamp;

use super::super::{Notice, Priority, byte_prefix, is_page, one_line};
use crate::outbound::trace;

const MAX_SUBJECT_CHARS: usize = 250;
/// Bytes of one encoded word: with its marks and the header's name it fills a line of 76 characters.
const WORD_BYTES: usize = 39;

pub(super) fn compose(notice: &Notice<'_>, from: &Mailbox, to: &Mailbox, now: Timestamp) -> Result<Vec<u8>, String> {
    let text = lines(&plain(notice));
    let html = lines(&notice.html.as_ref().map_or_else(|| html(notice), |own| with_links(own, notice)));
    let parts = MultiPart::alternative()
        .boundary(boundary(notice, &[&text, &html]))
        .singlepart(SinglePart::plain(text))
        .singlepart(SinglePart::html(html));
    let seconds = u64::try_from(now.as_second()).unwrap_or(0);
    let mut builder = Message::builder()
        .from(safe(from))
        .to(safe(to))
        .raw_header(subject(notice))
        .date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
        .message_id(Some(format!("<{}.tidings@{}>", notice.message_id, from.email.domain())));
    for (name, value) in [
        // So that out-of-office replies stay at home.
        ("Auto-Submitted", "auto-generated".to_owned()),
        ("X-Correlation-ID", one_line(&notice.correlation_id, 128)),
        (
            "Traceparent",
            trace::parent(&notice.correlation_id, notice.trace_id.as_deref(), &notice.message_id.to_string()),
        ),
        // SES writes a Message-ID of its own.
        ("X-Tidings-Message-ID", notice.message_id.to_string()),
    ] {
        builder = builder.raw_header(HeaderValue::new(HeaderName::new_from_ascii_str(name), value));
    }
    if notice.priority >= Priority::High {
        let importance = HeaderName::new_from_ascii_str("Importance");
        builder = builder.raw_header(HeaderValue::new(importance, "high".to_owned()));
    }
    let message = builder.multipart(parts).map_err(|error| format!("the mail cannot be written: {error}"))?;
    Ok(message.formatted())
}

fn subject(notice: &Notice<'_>) -> HeaderValue {
    let title = if notice.title.trim().is_empty() { &notice.text } else { &notice.title };
    let text = one_line(title, MAX_SUBJECT_CHARS);
    let name = HeaderName::new_from_ascii_str("Subject");
    if !text.contains("=?") {
        return HeaderValue::new(name, text);
    }
    // The library leaves it as it is, and whoever reads it takes it for an encoded word, which may say anything.
    let encoded = encoded_words(&text);
    HeaderValue::dangerous_new_pre_encoded(name, text, encoded)
}

/// All of a text as encoded words of RFC 2047, a line for each, none of which splits a character.
fn encoded_words(mut text: &str) -> String {
    let mut words = Vec::new();
    while !text.is_empty() {
        let (word, rest) = text.split_at(byte_prefix(text, WORD_BYTES).len());
        words.push(format!("=?utf-8?b?{}?=", BASE64_STANDARD.encode(word)));
        text = rest;
    }
    words.join("\r\n ")
}

fn safe(mailbox: &Mailbox) -> Mailbox {
    Mailbox::new(mailbox.name.as_deref().map(|name| one_line(name, 100)), mailbox.email.clone())
}

fn plain(notice: &Notice<'_>) -> String {
    let mut text = notice.text.clone().into_owned();
    for link in links(notice) {
        if !text.contains(link) {
            let _ = write!(text, "\n\n{link}");
        }
    }
    text
}

fn html(notice: &Notice<'_>) -> String {
    let mut html = String::from("<!doctype html><html><body>");
    if !notice.title.trim().is_empty() {
        let _ = write!(html, "<h2>{}</h2>", escape(&notice.title));
    }
    let _ = write!(html, "<p style=\"white-space:pre-wrap\">{}</p>", escape(&notice.text));
    let mut html = with_links(&html, notice);
    html.push_str("</body></html>");
    html
}

/// A part of a page with where it leads below it; a whole page is its author's.
fn with_links(html: &str, notice: &Notice<'_>) -> String {
    let mut html = html.to_owned();
    if html.contains("</body>") || html.contains("</html>") {
        return html;
    }
    for link in links(notice).map(escape).collect::<Vec<_>>() {
        if !html.contains(&format!("href=\"{link}\"")) {
            let _ = write!(html, "<p><a href=\"{link}\">{link}</a></p>");
        }
    }
    html
}

/// Lines that end one way, and no other control characters than tabs: the library leaves a lone carriage return as it
/// is, and what one server takes for the end of the mail, another may not.
fn lines(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

/// Only what a browser opens as a page.
fn links<'a>(notice: &'a Notice<'_>) -> impl Iterator<Item = &'a str> {
    let links = [notice.click_url.as_deref(), notice.link.as_deref()].into_iter().flatten();
    links.filter(|link| is_page(link))
}

/// Text for HTML, in a tag or in an attribute.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// The same on every attempt, and in neither part: one that the text holds would let it end its part and begin another.
fn boundary(notice: &Notice<'_>, parts: &[&str]) -> String {
    let candidates = (0_u64..).map(|n| format!("tidings-{}-{n}", notice.message_id.simple()));
    let free = |candidate: &String| parts.iter().all(|part| !part.contains(candidate.as_str()));
    candidates.into_iter().find(free).expect("a finite text holds finitely many boundaries")
}
