//! The business parts from the outside: invoices that Tesseract reads, service requests, transfers and the audit log.

mod auditing;
mod doors;
mod reading;

use std::path::Path;
use std::process::Command;

/// Renders the invoices of `render.py` into a directory.
pub fn render(directory: &Path) {
    let python = std::env::var("TIDINGS_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/business/render.py");
    let ended = Command::new(python).arg(script).arg(directory).output().unwrap();
    assert!(
        ended.status.success(),
        "this test needs the Python packages pillow and reportlab: {}",
        String::from_utf8_lossy(&ended.stderr)
    );
}
