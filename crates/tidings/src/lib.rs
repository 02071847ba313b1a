//! Tidings: turns events into the right notice to the right person, and can prove what became of every event.

pub mod channel;
pub mod config;
pub mod demo;
pub mod events;
pub mod http;
pub mod inbox;
pub mod ingest;
pub mod messages;
pub mod outbound;
pub mod secrets;
pub mod tokens;
pub mod trace;
pub mod workers;
