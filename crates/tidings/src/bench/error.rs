//! What can stop a measurement.

use std::io;
use std::path::PathBuf;

/// Why there are no figures; each says in one sentence what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no scenario `{name}`; choose from {all}")]
    UnknownScenario { name: String, all: String },
    #[error("{0}")]
    Usage(String),
    #[error("cannot start the server to measure: {0}")]
    Start(String),
    #[error("the server was not ready within {seconds} s; its last words: {log}")]
    NotReady { seconds: u64, log: String },
    #[error("`{scenario}` cannot reach the server at {address}: {source}")]
    Unreachable { scenario: String, address: String, source: io::Error },
    #[error("the server stopped answering during `{0}`; look at its log")]
    Stalled(String),
    #[error("the server refused what `{scenario}` needs first: {reply}")]
    Refused { scenario: String, reply: String },
    #[error("cannot use {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("cannot write the figures: {0}")]
    Output(#[from] io::Error),
    #[error("interrupted before the figures were complete")]
    Interrupted,
}

impl Error {
    pub(super) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}
