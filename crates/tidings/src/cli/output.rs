//! The one place that prints: results to stdout, everything else to stderr.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A line of the result. A reader that went away ends the program quietly, as `head` expects.
pub fn line(text: &str) {
    if writeln!(std::io::stdout(), "{text}").is_err() {
        std::process::exit(0);
    }
}

/// A line for the person at the terminal.
pub fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

pub fn error(text: &str) {
    let _ = writeln!(std::io::stderr(), "tidings: {text}");
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
