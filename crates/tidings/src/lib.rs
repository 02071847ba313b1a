//! Tidings: turns events into the right notice to the right person, and can prove what became of every event.

pub mod channel;
pub mod config;
pub mod outbound;
