//! What can go wrong, named by what the caller does about it.

use crate::item::Item;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A condition did not hold; nothing was written. Read again and decide anew, or tell the user.
    #[error("a condition of the transaction does not hold (write {})", .failed.iter().map(|f| f.write.to_string()).collect::<Vec<_>>().join(", "))]
    Conflict { failed: Vec<FailedCondition> },
    /// The request breaks a limit or a rule of the table; nothing was written. A bug, or input to refuse.
    #[error("the store refuses the request: {0}")]
    Invalid(String),
    /// Too much at once; nothing was written. Try again later.
    #[error("the store is busy: {0}")]
    Throttled(String),
    /// There is no room left; nothing was written. Reads go on; writes succeed again once there is room.
    #[error("the disk is full: {0}")]
    Full(String),
    /// The store takes no more writes until it is opened again; whether this one was written is unknown.
    #[error("the store is read-only: {0}")]
    ReadOnly(String),
    /// What is on disk (or came back) is not what was written there.
    #[error("the store's data is damaged: {0}")]
    Corrupt(String),
    /// The store cannot be opened as asked; the sentence says what to do.
    #[error("{0}")]
    Open(String),
    /// Nobody answered in time; it may be otherwise in a moment. Whether a transaction was carried out is unknown: read, or
    /// repeat what is safe to repeat.
    #[error("the store does not answer: {0}")]
    Unreachable(String),
    /// No answer to be had. Whether a transaction was carried out is unknown: read, or repeat what is safe to repeat.
    #[error("the store failed: {context}")]
    Failed {
        context: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// One write of a transaction whose condition did not hold.
#[derive(Debug, Clone, PartialEq)]
pub struct FailedCondition {
    /// Its place in the transaction, from 0.
    pub write: usize,
    /// The item as it is, if there is one.
    pub found: Option<Item>,
}

impl Error {
    pub fn failed(context: impl Into<String>, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Failed { context: context.into(), source: Box::new(source) }
    }

    /// The item that made write number `write` fail, if the error is a conflict about it.
    #[must_use]
    pub fn conflict_on(&self, write: usize) -> Option<&FailedCondition> {
        match self {
            Self::Conflict { failed } => failed.iter().find(|f| f.write == write),
            _ => None,
        }
    }
}
