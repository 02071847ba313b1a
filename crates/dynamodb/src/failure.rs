//! What an error of the SDK means: whether anything may have been written, and whether to try again.

use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use tidings_store::Error;

/// Why an attempt gave no result.
#[derive(Debug)]
pub enum Failure {
    /// Turned away for now; nothing was written by this attempt.
    Busy(String),
    /// No answer, or one that does not tell whether anything was written.
    Unknown(String),
    /// Trying again would change nothing.
    Final(Error),
}

/// Codes of "too much at once"; DynamoDB turns such a request away before it does anything.
const BUSY: [&str; 6] = [
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ThrottlingException",
    "Throttling",
    "TransactionConflictException",
    "LimitExceededException",
];

/// Codes that come with a status below 500 and still do not tell.
const UNKNOWN: [&str; 4] =
    ["InternalServerError", "ServiceUnavailable", "TransactionInProgressException", "RequestTimeoutException"];

/// Codes of a request that DynamoDB will never carry out.
const INVALID: [&str; 3] =
    ["ValidationException", "IdempotentParameterMismatchException", "ItemCollectionSizeLimitExceededException"];

/// Tells what became of a request; `what` names it for the reader of a log.
pub fn classify<E>(what: &str, error: SdkError<E, HttpResponse>) -> Failure
where
    E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
{
    let SdkError::ServiceError(answer) = &error else {
        let text = format!("{what}: {}", causes(&error));
        return match error {
            SdkError::ConstructionFailure(_) => Failure::Final(failed(text)),
            _ => Failure::Unknown(text),
        };
    };
    let status = answer.raw().status().as_u16();
    let code = answer.err().code().unwrap_or("no code");
    let message = answer.err().message().unwrap_or("no message");
    let text = format!("{what}: {code} ({status}): {message}");
    if BUSY.contains(&code) || status == 429 {
        Failure::Busy(text)
    } else if UNKNOWN.contains(&code) || status >= 500 {
        Failure::Unknown(text)
    } else if INVALID.contains(&code) {
        Failure::Final(Error::Invalid(text))
    } else if code == "ResourceNotFoundException" {
        Failure::Final(Error::Open(format!(
            "DynamoDB has no such table or index; `tidings tables check` says what is missing ({text})"
        )))
    } else {
        Failure::Final(failed(text))
    }
}

/// What happened, from the outside to the inside, each cause once.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        next = cause.source();
    }
    text
}

/// An error whose whole story is in its text.
pub fn failed(text: String) -> Error {
    Error::failed("DynamoDB gave no result", std::io::Error::other(text))
}
