//! The notification centre's way in: changes of a DynamoDB table, as a Lambda function gets them, become events (seed
//! 001). `image` reads attribute values, `change` says what a record means, `batch` takes records in and says what became
//! of each, `rules` are the seed's three filters, and `http` is the door for Lambda functions; `sources::stream` reads a
//! stream without one. What the rules make of the events is the inbox's.

pub mod batch;
pub mod change;
pub mod http;
mod image;
pub mod rules;

pub use change::{Change, Malformed};
pub use rules::RULES;
