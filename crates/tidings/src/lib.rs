//! The parts of the `tidings` binary, as a library for its tests.

pub mod bench;
