//! The one place that prints: results to stdout, everything else to stderr.

use std::borrow::Cow;
use std::io::{Error, ErrorKind, IsTerminal, Write};
use std::sync::Mutex;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Why stdout takes no more.
static LOST: Mutex<Option<Error>> = Mutex::new(None);

/// A line of the result of something that was done. Where nobody reads it, the work goes on, and the exit code tells.
pub fn line(text: &str) {
    let mut lost = LOST.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if lost.is_none() {
        *lost = writeln!(std::io::stdout(), "{}", harmless(text)).err();
    }
}

/// A line of what a command only shows. A reader that went away ends it quietly, as `head` expects.
pub fn row(text: &str) {
    line(text);
    let lost = LOST.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if lost.as_ref().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe) {
        std::process::exit(0);
    }
}

/// Why results could not be printed, if somebody wanted them.
#[must_use]
pub fn lost() -> Option<String> {
    let lost = LOST.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let error = lost.as_ref().filter(|error| error.kind() != ErrorKind::BrokenPipe)?;
    Some(format!("it is done, but its result could not be printed: {error}"))
}

/// A line for the person at the terminal.
pub fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", harmless(text));
}

pub fn error(text: &str) {
    let _ = writeln!(std::io::stderr(), "tidings: {}", harmless(text));
}

/// A foreign text as part of a line.
#[must_use]
pub fn within_line(text: &str) -> String {
    escaped(text, char::is_control).into_owned()
}

/// A text that does nothing to a terminal but stand there, whoever wrote parts of it.
fn harmless(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c.is_control() && c != '\n' && c != '\t')
}

/// As JSON escapes it, so that JSON stays what it is.
fn escaped(text: &str, must_be: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&must_be) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if must_be(c) {
            safe.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            safe.push(c);
        }
    }
    Cow::Owned(safe)
}

/// A bar on stderr for work of known length (`None`: a spinner); invisible when stderr is no terminal.
#[must_use]
pub fn progress(length: Option<u64>, unit: &str) -> ProgressBar {
    let bar = match length {
        Some(length) => ProgressBar::new(length),
        None => ProgressBar::no_length(),
    };
    if !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
        return bar;
    }
    let template = match length {
        Some(_) => format!("{{bar:40}} {{human_pos}}/{{human_len}} {unit} {{per_sec}} {{eta}} left"),
        None => format!("{{spinner}} {{human_pos}} {unit} {{per_sec}}"),
    };
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
