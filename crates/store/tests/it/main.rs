//! The store's tests: the conformance suite on each engine, and engines compared with the model.

mod memory;
mod support;
