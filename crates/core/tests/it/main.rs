//! What `tidings-core` promises, seen from outside. One binary for all of it.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests fail as tests do")]

mod filter;
mod pattern;
