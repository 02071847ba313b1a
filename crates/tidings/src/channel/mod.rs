//! The channels: how a notice leaves. Each is a folder with its sender and tests, and answers with an [`Outcome`].
//!
//! A channel sends once and says what came of it; trying again, recording and giving up are the messages' business
//! (`tidings_core::message`). [`limiter`] keeps one destination from slowing the others.

pub mod answer;
pub mod audit_log;
pub mod email;
pub mod limiter;
mod notice;
pub mod ntfy;
pub mod queue;
pub mod stream;
pub mod ticket;
pub mod webhook;

use std::borrow::Cow;
use std::time::Duration;

use tidings_core::message::Verdict;

use self::limiter::Health;
pub use self::notice::{Notice, Priority, UnknownPriority};
use crate::outbound;

/// Characters of a stranger's answer that an error repeats.
const QUOTED_CHARS: usize = 200;

/// What came of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Delivered {
        /// What the other side calls it.
        id: Option<String>,
        /// What the other side answered, for a person to read.
        detail: String,
    },
    /// It may go better another time.
    Retry { after: Option<Duration>, error: String, code: Option<u16> },
    /// It will not go better. `disable_target`: the other side asks not to be called again.
    Reject { error: String, code: Option<u16>, disable_target: bool },
}

impl Outcome {
    pub(crate) fn retry(error: impl Into<String>) -> Self {
        Self::Retry { after: None, error: error.into(), code: None }
    }

    pub(crate) fn reject(error: impl Into<String>) -> Self {
        Self::Reject { error: error.into(), code: None, disable_target: false }
    }

    #[must_use]
    pub const fn is_delivered(&self) -> bool {
        matches!(self, Self::Delivered { .. })
    }

    /// What it says about the destination, for [`limiter`]. A refusal is a sign of life, and so is a mail server that
    /// puts off one recipient; 421 is one that goes away.
    #[must_use]
    pub const fn health(&self) -> Health {
        match self {
            Self::Delivered { .. } | Self::Reject { .. } => Health::Well,
            Self::Retry { after: Some(after), .. } => Health::Throttled(*after),
            Self::Retry { code: Some(400..=420 | 422..=499), .. } => Health::Well,
            Self::Retry { .. } => Health::Ill,
        }
    }

    /// What the other side answered, for a person to read.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Delivered { detail, .. } => detail,
            Self::Retry { error, .. } | Self::Reject { error, .. } => error,
        }
    }
}

impl From<Outcome> for Verdict {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Delivered { id, .. } => Self::Delivered { notification_id: id },
            Outcome::Retry { after, error, code } => Self::Retry { after, error, code },
            Outcome::Reject { error, code, .. } => Self::Reject { error, code },
        }
    }
}

impl From<outbound::Error> for Outcome {
    fn from(error: outbound::Error) -> Self {
        if error.is_permanent() { Self::reject(error.to_string()) } else { Self::retry(error.to_string()) }
    }
}

/// A stranger's words, fit for an error: one short line without control characters, our secrets blotted out.
pub(crate) fn quote(text: &str, secrets: &[impl AsRef<str>]) -> String {
    let mut text = text.to_owned();
    for secret in secrets.iter().map(AsRef::as_ref).filter(|secret| !secret.is_empty()) {
        text = text.replace(secret, "***");
    }
    one_line(&text, QUOTED_CHARS)
}

/// Whether an address is one that a browser opens as a page, in whatever case its scheme is written.
pub(crate) fn is_page(url: &str) -> bool {
    let starts = |scheme: &str| url.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    starts("https://") || starts("http://")
}

/// The text on one line, at most so many characters long. What ends a line anywhere becomes a space: a line feed in a
/// mail's subject would begin a new header.
pub(crate) fn one_line(text: &str, most: usize) -> String {
    on_one_line(text, most).into_owned()
}

/// The same; most texts are on one line as they are.
pub(crate) fn on_one_line(text: &str, most: usize) -> Cow<'_, str> {
    let text = text.trim();
    let is_plain = text.len() <= most && text.bytes().all(|byte| matches!(byte, b' '..=b'~')) && !text.contains("  ");
    if is_plain {
        return Cow::Borrowed(text);
    }
    let mut line = String::with_capacity(text.len());
    let mut space = false;
    for c in text.chars() {
        if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | ' ') {
            space = true;
            continue;
        }
        if std::mem::take(&mut space) {
            line.push(' ');
        }
        line.push(c);
    }
    Cow::Owned(match line.char_indices().nth(most) {
        Some((cut, _)) => format!("{}…", line.get(..cut).unwrap_or_default()),
        None => line,
    })
}

/// The longest beginning of at most so many bytes that ends between characters.
pub(crate) fn byte_prefix(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests;
