//! What the tests stand on: a server in this process, clients, raw connections, and the real program.

pub mod client;
mod described;
pub mod engines;
pub mod process;
pub mod raw;
pub mod server;

pub use client::{Answer, Client};
pub(crate) use engines::on_dynamodb;
pub use server::TestServer;

use std::io::Write;

/// A minimal event of that type.
pub fn event(event_type: &str) -> serde_json::Value {
    serde_json::json!({ "eventType": event_type })
}

/// Packs bytes as `Content-Encoding: gzip` has them.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// The part of a token that opens; the rest is its public id.
pub fn secret_of(token: &str) -> &str {
    token.splitn(3, '_').nth(2).unwrap().trim()
}

/// Text as it stands in a query or a path.
pub fn encode(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20")
}
