//! The notification centre's way in: changes of a DynamoDB table, as a Lambda function gets them, become events (seed
//! 001). `image` reads attribute values, `change` says what a record means, `rules` are the seed's three filters, and
//! `http` takes batches and answers for every record. What the rules make of the events is the inbox's.

pub mod change;
pub mod http;
mod image;
pub mod rules;

pub use change::{Change, Malformed};
pub use rules::RULES;
