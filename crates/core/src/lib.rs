//! The pure heart of Tidings: no I/O, no clock, no randomness, no async runtime.
//!
//! Everything here is a function of its arguments, so that it can be tested exhaustively and simulated.

pub mod cloudevents;
pub mod envelope;
pub mod filter;
pub mod ids;
pub mod json;
pub mod limits;
pub mod message;
pub mod pattern;
pub mod retry;
pub mod time;
pub mod trace;
