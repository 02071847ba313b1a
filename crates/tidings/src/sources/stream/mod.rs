//! Reads the stream of a DynamoDB table (`[[sources]] kind = "dynamodb-stream"`, S001-10), so that a change of an item is
//! an event within seconds and no function is needed in between.
//!
//! `api` calls DynamoDB, `shards` knows what may be read next (purely), `checkpoint` is what is stored of it, `reader` takes
//! turns, and `shard` reads one shard. The records are taken in as `centre::batch` takes those that a Lambda function sends.
//! How far a shard was read is noted after its records are committed, never before: what was read twice is a duplicate.

pub mod api;
pub mod checkpoint;
mod gap;
pub mod reader;
mod shard;
pub mod shards;

pub use checkpoint::table;
pub use reader::Reader;
