//! The library behind the `tidings` binary, so that tests can use its parts.

pub mod config;
